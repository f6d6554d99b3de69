"""`newest_opset` and `newest_ir_version`: what to export at, so that all releases accept the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.api import ArgumentError, newest_ir_version, newest_opset, predict
from tests.harness.version_models import stamped_file


@pytest.mark.parametrize(
    "requirement", ["onnxruntime==1.16.3", "onnxruntime>=1.18", "onnxruntime>=1.31", "onnxruntime-web>=1.21"]
)
def test_they_are_the_newest(tmp_path: Path, requirement: str) -> None:
    """All releases accept a model with both versions, and one of them refuses the next opset or IR version."""
    opset, ir_version = newest_opset(requirement), newest_ir_version(requirement)
    stamped_file(tmp_path / "newest.onnx", ir_version, opset)
    stamped_file(tmp_path / "opset.onnx", ir_version, opset + 1)
    stamped_file(tmp_path / "ir.onnx", ir_version + 1, opset)

    assert {"loads"} == {it.verdict for it in predict(tmp_path / "newest.onnx", requirement)}
    for name in ("opset.onnx", "ir.onnx"):
        assert "refused" in {it.verdict for it in predict(tmp_path / name, requirement)}


def test_other_domains() -> None:
    """The opset of each domain has its own limit; "" is the default domain, as in models."""
    assert 5 == newest_opset("onnxruntime>=1.18", domain="ai.onnx.ml")
    assert newest_opset("onnxruntime>=1.18") == newest_opset("onnxruntime>=1.18", domain="")


@pytest.mark.parametrize(
    ("requirement", "domain", "message"),
    [
        ("onnxruntime>=99", "ai.onnx", "no known release matches `onnxruntime>=99`"),
        ("", "ai.onnx", "`` is not a valid requirement"),
        ("onnxruntime>=1.18", "my.domain", "does not limit the opset of the domain `my.domain`"),
    ],
)
def test_questions_without_an_answer(requirement: str, domain: str, message: str) -> None:
    """There is no number that stands for "unlimited" or "unknown"."""
    with pytest.raises(ArgumentError, match=message):
        newest_opset(requirement, domain=domain)


def test_arguments_of_other_types() -> None:
    """The error names the argument."""
    with pytest.raises(TypeError, match="`requirement` must be `str`, got `NoneType`"):
        newest_ir_version(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`domain` must be `str`, got `int`"):
        newest_opset("onnxruntime", domain=1)  # type: ignore[arg-type]
