"""Fix of `opset-mismatch`."""

from __future__ import annotations

from pathlib import Path

from tests.harness.rule_cases import CASES, findings_of, unfold


def test_the_command_that_converts_comes_first(tmp_path: Path) -> None:
    """`onnxgate fix` converts the model, so that no new export is needed."""
    unfold(CASES / "opset-mismatch" / "not-locked", tmp_path)
    (fix,) = [finding.fix for finding in findings_of(tmp_path) if finding.rule == "opset-mismatch"]

    assert (
        fix == "run `onnxgate fix model.onnx` to convert the model, or export the model at opset 18, or change `opset`"
    )
