"""Branches of `If` nodes, and sizes that only the runtime knows, on real runtimes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.harness.models import parse, write
from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index

CONFIG = """models = ["models/*.onnx"]

[targets.server]
runtime = "onnxruntime==1.31.1"

[[model]]
path = "models/sampled.onnx"
inputs = "samples/*.npz"
"""
RATE = """g (float[batch, samples] x, int64 sr) => (float[batch, samples] y) <int64 k = {16000}, float w = {2}> {
    c = Equal(sr, k)
    [choice] y = If(c) <then_branch = a () => (float[batch, samples] z) { z = Mul(x, w) },
                        else_branch = b () => (float[batch, samples] v) { v = Neg(x) }> }"""
EARLY_EXIT = """g (float[batch, 4] x) => (float[batch, 4] y) <float zero = {0}> {
    m = ReduceMean<keepdims = 0>(x) e = Exp(m) c = Greater(e, zero)
    [exit] y = If(c) <then_branch = a () => (float[batch, 4] z) { z = Relu(x) },
                      else_branch = b () => (float[batch, 4] v) { v = Neg(x) }> }"""
# Only the branch for 16 kHz supports 512 samples, and only the other one supports 256.
WINDOWS = """g (float[batch, samples] x, int64 sr) => (float[batch, 4] y) <int64 k = {16000}> {
    c = Equal(sr, k)
    y = If(c) <then_branch = a () => (float[B, 4] z) { z = MatMul(x, wide) },
               else_branch = b () => (float[B, 4] v) { v = MatMul(x, narrow) }> }"""
# The table has an entry for 22050 Hz, but none for 16 kHz.
TABLE = """g (float[batch, 4] x, int64 sr) => (float[batch, 4] y)
    <int64 k = {10000}, int64 d = {11025}, float[3] table = {%s, 2, 3}> {
    c = Greater(sr, k)
    y = If(c) <then_branch = a () => (float[B, 4] z) { q = Mod(sr, d) e = Gather(table, q) z = Add(x, e) },
               else_branch = b () => (float[B, 4] v) { v = Neg(x) }> }"""
LOOP = """g (float[batch, 4] x, int64 n) => (float[batch, 4] y) <int64 k = {16000}, int64 three = {3}, float w = {2}> {
    c = Equal(n, k)
    y = Loop(three, c, x) <body = a (int64 i, bool before, float[batch, 4] v) => (bool after, float[batch, 4] u) {
        after = Identity(before) u = Mul(v, w) }> }"""
# The weights require 80 features, and the batch axis of the state has no name.
SPEECH = """g (float[time, batch, features] x, float[2, 1, 4] h) => (float[time, 1, batch, 4] y)
    <int64[1] zero = {0}, int64[1] one = {1}> {
    s = Slice(h, zero, one, zero)
    y = GRU<hidden_size = 4>(x, w, r, , , s) }"""


def _speech() -> onnx.ModelProto:
    """Return a model whose state has an unnamed batch axis, which the text form of ONNX does not support."""
    model = parse(SPEECH)
    for name, shape in (("w", (1, 12, 80)), ("r", (1, 12, 4))):
        tensor = numpy_helper.from_array(np.full(shape, 0.1, np.float32), name)
        model.graph.initializer.append(tensor)
    state = next(value for value in model.graph.input if value.name == "h")
    state.type.tensor_type.shape.dim[1].ClearField("dim_value")
    return model


@pytest.fixture
def repository(command: Repository, tmp_path: Path) -> Repository:
    """Return a repository of these models."""
    made = command.at(tmp_path / "branches")
    broken = parse(RATE)
    next(it for it in broken.graph.initializer if it.name == "w").CopyFrom(
        numpy_helper.from_array(np.array(np.nan, np.float32), "w")
    )
    write(made.folder / "models" / "early-exit.onnx", EARLY_EXIT)
    write(made.folder / "models" / "healthy.onnx", RATE)
    write(made.folder / "models" / "not-a-number.onnx", broken)
    write(made.folder / "models" / "sampled.onnx", RATE)
    write(made.folder / "models" / "speech.onnx", _speech())
    (made.folder / "samples").mkdir()
    np.savez(made.folder / "samples" / "one.npz", x=np.ones((1, 8), np.float32), sr=np.array(8000))
    made.write("onnxgate.toml", CONFIG)
    commit(made.folder)
    made.run("lock")
    return made


def test_every_branch_runs(repository: Repository) -> None:
    """A fault in the 16 kHz branch is found; the user's inputs that miss this branch are noted; sizes are corrected."""
    report = repository.report("--stage", "runtime", status=0)
    findings = [(finding["model"], finding["rule"], finding["message"]) for finding in report["findings"]]

    assert report["undecided"] == []
    assert [(model, rule) for model, rule, _ in findings] == [
        ("models/not-a-number.onnx", "output-not-finite"),
        ("models/early-exit.onnx", "branch-not-run"),
        ("models/sampled.onnx", "branch-not-run"),
    ]
    assert "the then branch of node `choice` did not run; input `sr` = 16000 chooses it" in findings[2][2]
    assert "the else branch of node `exit` did not run; its condition is computed from data" in findings[1][2]


def _windows(narrow: float) -> onnx.ModelProto:
    model = parse(WINDOWS)
    for name, array in (("wide", np.ones((512, 4))), ("narrow", np.full((256, 4), narrow))):
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return model


def _with_nan(text: str, name: str) -> onnx.ModelProto:
    model = parse(text)
    tensor = next(it for it in model.graph.initializer if it.name == name)
    tensor.CopyFrom(numpy_helper.from_array(np.full(tuple(tensor.dims), np.nan, np.float32), name))
    return model


def test_branches_that_reject_the_first_inputs(command: Repository, tmp_path: Path) -> None:
    """Other values and other sizes are tried for a branch alone, so that its faults are found."""
    made = command.at(tmp_path / "retries")
    for name, models in {
        "windows": (_windows(1), _windows(np.nan)),
        "table": (parse(TABLE % "1"), _with_nan(TABLE % "1", "table")),
        "loop": (parse(LOOP), _with_nan(LOOP, "w")),
    }.items():
        for kind, model in zip(("good", "bad"), models, strict=True):
            write(made.folder / f"{kind}-{name}.onnx", model)
    made.write("onnxgate.toml", CONFIG.partition("[[model]]")[0].replace("models/", ""))
    commit(made.folder)
    made.run("lock")
    report = made.report("--stage", "runtime", status=0)
    reproduced = {replay["model"]: (replay["rules"], replay["cases"]) for replay in report["replays"]}

    assert report["undecided"] == []
    assert reproduced == {
        "bad-loop.onnx": (["output-not-finite"], ["sizes batch=1 with n=16000"]),
        "bad-table.onnx": (["output-not-finite"], ["sizes batch=1 with sr=22050"]),
        "bad-windows.onnx": (["output-not-finite"], ["sizes batch=1 samples=256 with sr=8000"]),
    }


def test_case_of_a_branch_can_be_selected(repository: Repository) -> None:
    """The name of the case runs only this branch."""
    case = "sizes batch=1 samples=1600 with sr=8000"
    report = repository.report("--stage", "runtime", "--case", case, "models/not-a-number.onnx", status=0)

    assert [finding["rule"] for finding in report["findings"]] == ["branch-not-run"]
