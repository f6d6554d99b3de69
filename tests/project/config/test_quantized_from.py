"""`quantized-from` must name one other existing model of the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.project.config.loader import load_config
from tests.project.config.test_loader import problems

CONFIG = '[targets.t]\nruntime = "onnxruntime"\n[[model]]\npath = "{}"\nquantized-from = "{}"\n'


@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        ("a.onnx", "./a.onnx", "`./a.onnx` is the model itself; expected the float model that it was quantized from"),
        ("a.onnx", "c.onnx", "`c.onnx` does not exist"),
        ("a.onnx", "*.onnx", "expected one model, got the glob `*.onnx`"),
        ("a.onnx", "../b.onnx", "expected the path of a model in the project, got `../b.onnx`"),
        ("a.onnx", "", "expected the path of a model in the project, got ``"),
    ],
)
def test_quantized_from(tmp_path: Path, path: str, name: str, message: str) -> None:
    """A glob of models may share one original; a path outside the project or to a missing file is an error."""
    (tmp_path / ".git").mkdir()
    for each in ("a.onnx", "b.onnx"):
        (tmp_path / each).touch()

    assert problems(tmp_path, CONFIG.format(path, name)) == [f"line 5: `model[0].quantized-from`: {message}"]


def test_quantized_from_that_is_right(tmp_path: Path) -> None:
    """A valid `quantized-from` is loaded without an error."""
    (tmp_path / ".git").mkdir()
    for each in ("a.onnx", "b.onnx"):
        (tmp_path / each).touch()
    (tmp_path / "onnxgate.toml").write_text(CONFIG.format("*.onnx", "b.onnx"))
    project = load_config(tmp_path / "onnxgate.toml")

    assert project.selected("a.onnx").settings.quantized_from == "b.onnx"
