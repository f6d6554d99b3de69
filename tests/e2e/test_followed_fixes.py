"""Fixes of findings, followed literally: the next check passes, or suggests what is left to do."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.harness.models import parse, write
from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index

CHECK = ("--stage", "runtime,parity", "--against", "none")
OVERFLOW = "g (float[N, 4] x) => (float[N, 4] y) <float scale = {2000.0}> { z = Mul(x, scale) y = Exp(z) }"
LOOKUP = """g (float[N, 4] x) => (float[N, 4] y)
    <float scale = {1000.0}, int64[1] axes = {1}, float[3, 4] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
    { z = Mul(x, scale) i = Cast<to = 7>(z) row = ReduceSum<keepdims = 0>(i, axes) y = Gather(table, row) }"""
CEIL_POOL = """<ir_version: 8, opset_import: ["" : 19]> g (float[1, 1, 6, 6] x) => (float[1, 1, h, w] y)
    { y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], ceil_mode = 1,
        count_include_pad = 1>(x) }"""

UNREACHED = """g (float[1] x) => (float[1] y) <float limit = {1.5}, float[4] k = {0, 1, 2, 3}, int64[1] wrong = {9}> {
    r = ReduceSum<keepdims = 0>(x) s = Sin(r) c = Greater(s, limit)
    b = If(c) <then_branch = t () => (float[1] z) { z = Gather(k, wrong) },
               else_branch = e () => (float[1] o) { o = Neg(x) }>
    y = Add(x, b) }"""


def find_fix(repository: Repository, status: int) -> tuple[str, str]:
    """Return the rule and the fix of the only finding."""
    ((rule, fix),) = {(it["rule"], it["fix"]) for it in repository.report(*CHECK, status=status)["findings"]}
    return rule, fix


def quote(fix: str, key: str) -> str:
    """Return the setting that the fix quotes."""
    (setting,) = re.findall(rf"`({key} = [^`]+)`", fix)
    return str(setting)


def configure(
    repository: Repository, setting: str, runtime: str = "onnxruntime>=1.18,<1.20", select: str = "minors"
) -> None:
    """Write a config with one setting of the model."""
    entry = f'[[model]]\npath = "models/small.onnx"\n{setting}\n' if setting else ""
    target = f'[targets.server]\nruntime = "{runtime}"\nselect = "{select}"\n'
    repository.write("onnxgate.toml", f'models = ["models/*.onnx"]\n\n{target}\n{entry}')
    repository.run("lock")


@pytest.mark.parametrize(
    ("model", "first", "second"),
    [
        (
            OVERFLOW,
            (0, "output-not-finite", "set `inputs` or `source` in `onnxgate.toml` to find out whether "),
            ("output-not-finite", "use smaller values or a wider type in nodes that overflow, "),
        ),
        (
            LOOKUP,
            (3, "inputs-unusable", 'set `inputs = "samples/*.npz"` for the model in `onnxgate.toml`, '),
            ("run-failed", "export the model again so that it accepts these inputs, or set different `inputs`"),
        ),
    ],
)
def test_real_inputs_that_fail_as_well(
    small: Repository, model: str, first: tuple[int, str, str], second: tuple[str, str]
) -> None:
    """After inputs were set as suggested, the model or these inputs are the cause, and no inputs are suggested."""
    write(small.folder / "models" / "small.onnx", parse(model))
    (small.folder / "samples").mkdir()
    np.savez(small.folder / "samples" / "a.npz", x=np.full((2, 4), 3, np.float32))
    configure(small, "")
    status, rule, advice = first
    found, fix = find_fix(small, status)
    configure(small, 'inputs = "samples/*.npz"')
    found_next, fix_next = find_fix(small, 1)

    assert (found, fix.startswith(advice)) == (rule, True)
    assert (found_next, fix_next.startswith(second[1])) == (second[0], True)


def test_a_tolerance_that_is_too_small(small: Repository) -> None:
    """The suggested tolerance allows the difference; one that does not is to be raised."""
    write(small.folder / "models" / "small.onnx", parse(CEIL_POOL, head=""))
    both = "onnxruntime>=1.20,<1.22"
    configure(small, "", both)
    rule, fix = find_fix(small, 1)
    configure(small, "tolerance = { rtol = 0, atol = 1e-3 }", both)
    _, fix_next = find_fix(small, 1)
    configure(small, quote(fix, "tolerance"), both)
    accepted = small.report(*CHECK)["findings"]

    assert rule == "runtime-mismatch"
    assert fix.startswith("narrow the target to >=1.21, or set a tolerance above the difference, such as ")
    assert fix_next == (
        "narrow the target to >=1.21, or raise the model's `tolerance` in the config if the difference is acceptable"
    )
    assert accepted == []


def test_an_engine_that_does_not_support_the_model(small: Repository) -> None:
    """The targets on which the model works are named, so that the setting can be pasted."""
    write(small.folder / "models" / "small.onnx", "g (float[N, 4, 4] x) => (float[N] y) { y = Det(x) }")
    edge = '[targets.edge]\nruntime = "openvino==2026.4.1"\n'
    configure(small, "")
    small.write("onnxgate.toml", f"{small.read('onnxgate.toml')}\n{edge}")
    small.run("lock")
    rule, fix = find_fix(small, 1)
    configure(small, quote(fix, "targets"))
    small.write("onnxgate.toml", f"{small.read('onnxgate.toml')}\n{edge}")

    assert (rule, fix) == (
        "load-failed",
        'export with operators that all required runtimes support, or set `targets = ["server"]` for the model',
    )
    assert small.report(*CHECK)["findings"] == []


def test_a_wrong_constant_in_a_branch_that_does_not_run(small: Repository) -> None:
    """Newer releases load the model, but would fail when they run the branch; the target is not narrowed to them."""
    write(small.folder / "models" / "small.onnx", parse(UNREACHED))
    configure(small, "", "onnxruntime>=1.18,<1.32", "bounds")
    report = small.report("--stage", "support,runtime", "--against", "none", status=1)

    assert [(it["rule"], it["runtimes"], it["fix"]) for it in report["findings"] if it["level"] == "error"] == [
        (
            "attribute-unsupported",
            ["onnxruntime 1.18.1"],
            "correct the constant input of `Gather`, and export the model again",
        )
    ]
