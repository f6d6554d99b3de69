"""Reasons for comparisons that are limited."""

from __future__ import annotations

from onnxgate.core.findings import Place
from onnxgate.gate.execution.parity.comparison import explain_limit
from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.model.ranked_outputs import RankedOutputs
from onnxgate.stages.parity.output_comparison import ParityModel


def test_the_cause_of_a_comparison_in_float16_only() -> None:
    """In float32, a detector may select other items; other outputs depend on weights that were computed in float16."""
    ranked = (RankedOutputs({"boxes": None}),)
    model = ParityModel("m.onnx", Place("m.onnx", 1), NumericTraits(half=True), None, None, ranked=ranked)

    assert "because another selection of items limits" in explain_limit(model, "boxes", 10.8)
    assert "because rounding of computed weights limits" in explain_limit(model, "y", 10.8)
