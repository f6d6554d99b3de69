"""Inputs and commands that cannot be used concern their own model only."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.harness.models import write
from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index

RELU = "g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }"
FAULTS = {
    "failing": 'inputs = "samples.py:fails"',
    "wide": 'inputs = "samples.py:wide"',
    "data": 'inputs = "other.npz"',
    "absent": 'inputs = "absent/*.npz"',
    "opset": 'command = ["{python}", "write.py", "{output}", "{opset}"]',
}
CONFIG = """models = ["*.onnx"]

[toolchain]
python = '%s'

[targets.server]
runtime = "onnxruntime==1.31.1"
"""
SAMPLES = """import numpy as np

def fails():
    raise ValueError("tokenizer.json is missing")

def wide():
    return [{"x": np.ones((2, 5), np.float32)}, {"z": np.ones(3, np.float32)}]
"""


@pytest.fixture
def repository(command: Repository, tmp_path: Path) -> Repository:
    """Return a locked repository with one model for each fault, and one without a fault."""
    made = command.at(tmp_path / "faults")
    for name in (*FAULTS, "good"):
        write(made.folder / f"{name}.onnx", RELU)
    made.write("samples.py", SAMPLES)
    np.savez(made.folder / "other.npz", z=np.ones((1, 4), np.float32))
    entries = "".join(f'\n[[model]]\npath = "{name}.onnx"\n{setting}\n' for name, setting in FAULTS.items())
    made.write("onnxgate.toml", CONFIG % sys.executable + entries)
    commit(made.folder)
    made.run("lock")
    return made


def test_other_models_are_checked(repository: Repository) -> None:
    """Each fault is an undecided result of its model with the reason; the model without a fault passes."""
    report = repository.report(status=3)
    reasons = {(part["model"], part["reason"]) for part in report["undecided"]}

    assert reasons == {
        ("absent.onnx", "`inputs` of `absent.onnx`: no file matches `absent/*.npz`"),
        (
            "data.onnx",
            "`inputs` of `data.onnx` do not match the model: `other.npz`: has no array for input `x`; 1 more problem",
        ),
        (
            "failing.onnx",
            '`inputs = "samples.py:fails"` failed: ValueError: tokenizer.json is missing (`samples.py:4`)',
        ),
        ("opset.onnx", "the command uses `{opset}`, but the config does not pin an opset"),
        (
            "wide.onnx",
            "`inputs` of `wide.onnx` do not match the model: `samples.py:wide[0]`: `x` has shape (2, 5), but the model "
            "expects (N, 4); 2 more problems",
        ),
    }
    assert {cell["model"]: cell["state"] for cell in report["cells"]} == {
        **dict.fromkeys(("absent.onnx", "data.onnx", "failing.onnx", "wide.onnx"), "undecided"),
        **dict.fromkeys(("good.onnx", "opset.onnx"), "pass"),
    }


def test_selected_case_of_unusable_inputs(repository: Repository) -> None:
    """The name of a case may be valid, so the reason is shown instead of an error about the name."""
    report = repository.report("--case", "samples.py:fails[0]", "failing.onnx", status=3)

    assert ["tokenizer.json is missing" in part["reason"] for part in report["undecided"]] == [True, True]


def test_unknown_case_beside_unsupported_inputs(command: Repository, tmp_path: Path) -> None:
    """A model whose inputs have an unsupported type has no cases, so an unknown name is an error."""
    made = command.at(tmp_path / "unsupported")
    write(made.folder / "good.onnx", RELU)
    write(made.folder / "sequence.onnx", "g (seq(float[2]) s) => (float[n] y) { y = ConcatFromSequence<axis = 0>(s) }")
    made.write("onnxgate.toml", CONFIG % sys.executable)
    commit(made.folder)
    made.run("lock")
    done = made.run("check", "--case", "typo", status=2)

    assert "no selected model has the input case `typo`" in done.err


def test_export_of_other_models(repository: Repository) -> None:
    """A command that cannot be run is reported for its model."""
    done = repository.run("export", "--check", status=3)

    assert "opset.onnx: cannot be exported: the command uses `{opset}`" in done.out
