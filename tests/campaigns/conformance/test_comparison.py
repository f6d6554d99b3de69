"""False predictions of both kinds are counted, and each explanation covers only its own disagreements."""

from __future__ import annotations

from dataclasses import replace

import pytest
from onnx import TensorProto, helper

from campaigns.conformance.comparison import Comparison, Disagreement, compare
from campaigns.conformance.known_disagreements import EXPLANATIONS, explanation, idle, unexplained
from campaigns.conformance.load_outcome import BACKEND, FUZZ
from onnxgate.model.reading.view import ModelView
from onnxgate.support.matching.type_inference import infer_model_types

NO_KERNEL = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Conv(11) node with name ''"
CONSTRUCTOR = "Exception during initialization: kernel_shape must be given"
INVALID = Disagreement(
    BACKEND,
    "all",
    "1.31.1",
    "1.3.0/node/test_convtranspose_output_shape",
    "loads but refused",
    "",
    "Node () Op (ConvTranspose) [ShapeInferenceError] Attribute output_shape has incorrect size",
)


def _compared(corpus: str, element: int, text: str) -> Comparison:
    """Compare the prediction for a `Conv` on 1.31.1, which has only float kernels, with a recorded load."""
    values = [helper.make_tensor_value_info(name, element, [1, 1, 4, 4]) for name in "xw"]
    result = helper.make_tensor_value_info("y", element, None)
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "g", values, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return compare(Comparison(corpus, "all", "1.31.1"), [("conv", infer_model_types(ModelView(model)))], {"conv": text})


@pytest.mark.parametrize(
    ("element", "text", "outcome"), [(TensorProto.FLOAT, "", "loads"), (TensorProto.DOUBLE, NO_KERNEL, "refused")]
)
def test_agreement_is_counted_by_outcome(element: int, text: str, outcome: str) -> None:
    """A load with the predicted outcome is counted as right."""
    comparison = _compared(BACKEND, element, text)

    assert ({outcome: 1}, []) == (dict(comparison.right), comparison.disagreements)


@pytest.mark.parametrize(
    ("element", "text", "kind"),
    [(TensorProto.FLOAT, NO_KERNEL, "loads but refused"), (TensorProto.DOUBLE, "", "refused but loads")],
)
def test_disagreements_in_both_directions_are_listed(element: int, text: str, kind: str) -> None:
    """Each disagreement is listed with its kind and fails the suite."""
    comparison = _compared(BACKEND, element, text)

    assert [kind] == [disagreement.kind for disagreement in comparison.disagreements]
    assert 1 == comparison.counted
    assert comparison.disagreements == unexplained(comparison.disagreements)


def test_constructor_error_contradicts_missing_kernel() -> None:
    """An error of a constructor proves that the kernel exists, so a predicted refusal is wrong."""
    assert ["refused but loads"] == [
        disagreement.kind for disagreement in _compared(FUZZ, TensorProto.DOUBLE, CONSTRUCTOR).disagreements
    ]
    assert ["conv"] == list(_compared(FUZZ, TensorProto.FLOAT, CONSTRUCTOR).excluded)


def test_explanation_covers_one_disagreement() -> None:
    """A different name, text, release, corpus or kind is a new disagreement."""
    others = [
        replace(INVALID, name="1.4.0/node/test_convtranspose_output_shape"),
        replace(INVALID, text="no kernel"),
        replace(INVALID, release="1.22.1"),
        replace(INVALID, corpus="fuzz"),
        replace(INVALID, kind="unknown"),
    ]

    assert explanation(INVALID) is EXPLANATIONS[0]
    assert others == unexplained([INVALID, *others])


def test_false_refusal_is_never_explained() -> None:
    """No explanation can cover a false refusal."""
    assert {"loads but refused", "unknown"} >= {explanation.kind for explanation in EXPLANATIONS}


def test_an_explanation_without_a_case_is_idle() -> None:
    """An unused explanation fails the suite on releases to which it applies."""
    old, new = Comparison(BACKEND, "all", "1.16.3"), Comparison(BACKEND, "all", "1.31.1")
    met = Comparison(BACKEND, "all", "1.31.1", disagreements=[INVALID])

    assert [] == idle([old])
    assert EXPLANATIONS[0] in idle([old, new])
    assert EXPLANATIONS[0] not in idle([old, met])
