"""Known limits of engines apply only to the releases, models and texts that they were measured on."""

from __future__ import annotations

import pytest

from onnxgate.diagnostics.catalogue.engines import find_text_limit, find_value_limit
from onnxgate.model.numeric_traits import NumericTraits

QUANTIZED = NumericTraits(quantized=("QuantizeLinear",))
ATTENTION = frozenset({"MatMul", "Softmax", "QuantizeLinear", "DequantizeLinear"})


@pytest.mark.parametrize(
    ("runtime", "comparability", "operators", "expected"),
    [
        ("tract 0.23.9", QUANTIZED, ATTENTION, "a known limitation of tract: `Softmax`"),
        ("tract@.venv 0.23.9", QUANTIZED, ATTENTION, "a known limitation of tract: `Softmax`"),
        ("tract 0.24.0", QUANTIZED, ATTENTION, ""),
        ("tract 0.23.9", QUANTIZED, ATTENTION - {"Softmax"}, ""),
        ("tract 0.23.9", NumericTraits(), ATTENTION, ""),
        ("openvino 2026.4.1", QUANTIZED, ATTENTION - {"Softmax"}, "a known limitation of openvino: int8 values"),
        ("onnxruntime 1.31.1", QUANTIZED, ATTENTION, ""),
    ],
)
def test_values(runtime: str, comparability: NumericTraits, operators: frozenset[str], expected: str) -> None:
    """A limit applies only to its own releases, types and operators."""
    limit = find_value_limit(runtime, comparability, operators)

    assert limit.startswith(expected) if expected else limit == ""


@pytest.mark.parametrize(
    ("runtime", "text", "expected"),
    [
        (
            "tract 0.23.9",
            'Translating node #3 "dense" Gemm ToTypedTranslator\n\nCaused by:\n    Output mismatch after rewiring '
            "expansion for output #0: expected N,2,F16 got N,2,F32",
            "a known limitation of tract: `Gemm` is not supported in float16",
        ),
        ("tract 0.23.9", 'Translating node #1 "first" Unimplemented(OpA) ToTypedTranslator', ""),
        (
            "onnx 1.23.2",
            "No implementation for operator 'DequantizeLinear' domain '' and version 18, found 19, 21, 23, 25, None.",
            "a known limitation of onnx: the reference evaluator implements some operators only for newer opsets "
            "(`DequantizeLinear`: opset 19 and newer)",
        ),
        (
            "tract 0.23.9",
            'Evaluating #12 "node_Equal_7" Eq\n\nCaused by:\n    Bool is not a number',
            "a known limitation of tract: `Equal` is not supported for booleans",
        ),
        (
            "tract 0.21.8",
            "Unsupported DatumType in the public API TDim",
            "a known limitation of tract: its Python package cannot return the integers that tract computes from sizes",
        ),
        ("tract 0.23.0", "Unsupported DatumType in the public API TDim", ""),
        (
            "onnx 1.22.0",
            "Unsupported value 2 for num_directions and operator 'GRU'.",
            "a known limitation of onnx: the reference evaluator does not support bidirectional recurrent layers",
        ),
        ("onnx 1.23.2", "Unsupported value 2 for num_directions and operator 'GRU'.", ""),
        ("onnxruntime 1.31.1", "GatherND of booleans", ""),
    ],
)
def test_texts(runtime: str, text: str, expected: str) -> None:
    """A limit applies only if the message matches its pattern."""
    assert expected == find_text_limit(runtime, text)
