"""A project that is checked by mypy in strict mode sees the types of `onnxgate.api`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="mypy is in the dependency group `lint`; `nox -s types` runs this test")

PROJECT = """\
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx

from onnxgate.api import (
    ArgumentError,
    Prediction,
    Reason,
    Support,
    assert_supported,
    newest_ir_version,
    newest_opset,
    predict,
    support,
)


def list_refused(model: onnx.ModelProto | Path | str) -> list[str]:
    predictions: list[Prediction] = predict(model, "onnxruntime>=1.18")
    reasons: tuple[Reason, ...] = predictions[0].reasons
    if reasons and reasons[0].works_since:
        raise ArgumentError(reasons[0].message)
    assert_supported(model, "onnxruntime>=1.18")
    versions: tuple[int, int] = newest_opset("onnxruntime>=1.18", domain="ai.onnx"), newest_ir_version("onnxruntime")
    answer: Support = support("Gelu", types={"T": "float16"}, opset=max(versions))
    first: str = answer.since or answer.spans[0].reason or answer.versions[0].types[0].type
    print(first)
    return [prediction.release for prediction in predictions if prediction.verdict == "refused"]


def test_model(assert_supported: Callable[[str, str], None]) -> None:
    assert_supported("model.onnx", "onnxruntime>=1.18")
"""
WRONG = """\
from onnxgate.api import predict

prediction = predict("model.onnx", 1.18)[0]
reveal_type(prediction.verdict)
prediction.verdict == "pass"
prediction.state
"""


def run_mypy(folder: Path, text: str, installed: Path) -> tuple[int, str]:
    """Return exit status and output of `mypy --strict` for a file, with the installed package."""
    (folder / "project.py").write_text(text, encoding="utf-8")
    python = installed.with_name("python")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "project.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_the_types_are_complete(tmp_path: Path, installed: Path) -> None:
    """Nothing is `Any`, so that strict mode accepts the calls without comments."""
    assert (0, "Success: no issues found in 1 source file\n") == run_mypy(tmp_path, PROJECT, installed)


def test_wrong_uses_are_found(tmp_path: Path, installed: Path) -> None:
    """Wrong arguments, values and attributes are errors, so the types are not `Any`."""
    status, shown = run_mypy(tmp_path, WRONG, installed)

    assert status == 1
    for found in ("[arg-type]", "Literal['refused']", "[comparison-overlap]", "[attr-defined]"):
        assert found in shown
