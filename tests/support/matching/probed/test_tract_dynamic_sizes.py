"""tract refuses nodes if certain sizes are dynamic; if this is not certain, they have no prediction."""

from __future__ import annotations

import onnx.parser
import pytest

from onnxgate.model.reading.view import ModelView
from onnxgate.support.limits import get_limits
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.operations import Prediction
from onnxgate.support.matching.type_inference import infer_model_types
from onnxgate.support.operators import get_implementation

HEAD = '<ir_version: 10, opset_import: ["" : 18]>'
SCALE = "w = Constant <value_floats = [1.0, 1.0, 1.0, 1.0]> ()"
LSTM = "float[1, 12, 4] w, float[1, 12, 3] r"


def predict_on(text: str, engine: str = "tract", release: str = "0.23.9") -> Prediction:
    """Return the prediction of a release for a model."""
    model = infer_model_types(ModelView(onnx.parser.parse_model(HEAD + text)))
    limits = get_limits(release, engine)
    assert limits is not None
    return predict(model, get_implementation(release, engine), limits)


@pytest.mark.parametrize(
    ("inputs", "node", "verdict"),
    [
        (f"float[5, N, 4] x, {LSTM}", "y = LSTM <hidden_size = 3> (x, w, r)", "refused"),
        (f"float[S, 2, 4] x, {LSTM}", "y = LSTM <hidden_size = 3> (x, w, r)", "loads"),
        (f"float[5, N, 4] x, {LSTM}", "z = Relu (x) y = LSTM <hidden_size = 3> (z, w, r)", "unknown"),
        (
            f"float[5, N, 4] x, {LSTM}, float[1, N, 3] h, float[1, N, 3] c",
            'y = LSTM <hidden_size = 3> (x, w, r, "", "", h, c)',
            "loads",
        ),
        (
            f"float[5, N, 4] x, {LSTM}, float[1, 2, 3] h, float[1, 2, 3] c",
            'y = LSTM <hidden_size = 3> (x, w, r, "", "", h, c)',
            "unknown",
        ),
        (
            f"float[S, 2, 4] x, {LSTM}",
            'l = Constant <value_ints = [5, 5]> () i = Cast <to = 6> (l) y = LSTM <hidden_size = 3> (x, w, r, "", i)',
            "unknown",
        ),
        ("float[5, N, 4] x, float[1, 3, 4] w, float[1, 3, 3] r", "y = RNN <hidden_size = 3> (x, w, r)", "refused"),
        ("float[5, N, 4] x, float[1, 9, 4] w, float[1, 9, 3] r", "y = GRU <hidden_size = 3> (x, w, r)", "refused"),
        ("float[N, M, 4] x", "y = Flatten <axis = 1> (x)", "refused"),
        ("float[N, M, 4] x", "z = Relu (x) y = Flatten <axis = 1> (z)", "unknown"),
        ("float[N, 3, 4] x", "z = Relu (x) y = Flatten <axis = 1> (z)", "loads"),
        ("float[1, 3, H, W] x", "y = SpaceToDepth <blocksize = 2> (x)", "refused"),
        ("float[N, 3, 8, 8] x", "y = SpaceToDepth <blocksize = 2> (x)", "loads"),
        ("float[N, C, 8, 8] x", "y = DepthToSpace <blocksize = 2> (x)", "refused"),
        ("float[1, 4, H, W] x", "y = DepthToSpace <blocksize = 2> (x)", "loads"),
        ("float[N, C, 8, 8] x", "y = MaxPool <kernel_shape = [2, 2]> (x)", "refused"),
        ("float[N, 3, H, W] x", "y = MaxPool <kernel_shape = [2, 2]> (x)", "loads"),
        ("float[N, C, 8, 8] x, float[4, 3, 3, 3] w", "y = Conv (x, w)", "unknown"),
        ("float[N, 3, H, W] x, float[4, 3, 3, 3] w", "y = Conv (x, w)", "loads"),
        ("float[N, 3, 8, 8] x, float[3, 4, 3, 3] w", "y = ConvTranspose (x, w)", "loads"),
        ("float[N, C, 8, 8] x, float[3, 4, 3, 3] w", "y = ConvTranspose (x, w)", "unknown"),
        ("float[N, 3, 8, 8] x, float[3, 4, 3, 3] w", "y = ConvTranspose <output_shape = [9, 9]> (x, w)", "unknown"),
        ("float[N, 4] x, float[4, 3] w", "y = Gemm (x, w)", "loads"),
        ("float[N, M] x, float[4, 3] w", "y = Gemm (x, w)", "unknown"),
        ("float[N, S, 4] x, float[4, 3] w", "y = MatMul (x, w)", "loads"),
        ("float[N, S, M] x, float[4, 3] w", "y = MatMul (x, w)", "unknown"),
        ("float[N, 2, S, 4] x, float[N, 2, 4, S] w", "y = MatMul (x, w)", "loads"),
        ("float[N, S, 4] x, float[4] w", "y = LayerNormalization (x, w)", "loads"),
        ("float[N, S, M] x, float[4] w", "y = LayerNormalization (x, w)", "unknown"),
        ("float[N, 4] x", "y = Hardmax (x)", "loads"),
        ("float[2, M] x", "y = Hardmax (x)", "unknown"),
        ("float[N, 4, H, W] x, float[4, 1, 1] w", "y = PRelu (x, w)", "loads"),
        ("float[N, C, H, W] x, float[4, 1, 1] w", "y = PRelu (x, w)", "unknown"),
        ("float[N, 4] x", f"{SCALE} y = QuantizeLinear (x, w)", "loads"),
        ("float[N, M] x", f"{SCALE} y = QuantizeLinear (x, w)", "unknown"),
        ("float[N, 4] x, float[4, 3] w", 'y = Einsum <equation = "ij,jk->ik"> (x, w)', "loads"),
        ("float[N, M] x, float[4, 3] w", 'y = Einsum <equation = "ij,jk->ik"> (x, w)', "unknown"),
    ],
)
def test_dynamic_sizes(inputs: str, node: str, verdict: str) -> None:
    """Some sizes must be numbers or those of weights; a dynamic batch is usually accepted."""
    output = "uint8" if "Quantize" in node else "float"

    assert predict_on(f"g ({inputs}) => ({output} y) {{ {node} }}").verdict == verdict


@pytest.mark.parametrize(
    ("inputs", "arguments", "verdict"),
    [
        ("int64[1] s, int64[1] e", "x, s, e", "refused"),
        ("int64[2] s, int64[2] e", "x, s, e", "loads"),
        ("int64[K] s, int64[K] e", "x, s, e", "unknown"),
        ("int64[1] s, int64[1] e, int64[1] a", "x, s, e, a", "loads"),
    ],
)
def test_computed_bounds(inputs: str, arguments: str, verdict: str) -> None:
    """Slice without axes needs bounds of all axes, unless the bounds are constant."""
    text = f"g (float[4, 5] x, {inputs}) => (float y) <int64[1] a = {{0}}> {{ y = Slice ({arguments}) }}"

    assert predict_on(text.replace(", int64[1] a)", ")")).verdict == verdict


@pytest.mark.parametrize(
    "node",
    [
        "y = Hardmax <axis = 5> (x)",
        "y = Gemm (x, w)",
        'y = Einsum <equation = "iji,i->j"> (x, w)',
        "y = LSTM <hidden_size = 3> (x)",
        "y = QuantizeLinear <axis = 7> (x, w)",
        "y = Slice (x, w)",
    ],
)
def test_invalid_nodes_are_described(node: str) -> None:
    """Axes that the input does not have are no reason to stop."""
    assert predict_on(f"g (float[N] x, float[3] w) => (float y) {{ {node} }}").verdict in (
        "loads",
        "refused",
        "unknown",
    )


def test_constant_bounds() -> None:
    """Constant bounds of some axes are accepted."""
    text = "g (float[4, 5] x) => (float y) <int64[1] s = {0}, int64[1] e = {2}> { y = Slice (x, s, e) }"

    assert predict_on(text).verdict == "loads"


def test_recurrent_operators_end_the_process() -> None:
    """The gap names the signal, so that a crash in the full check confirms the prediction."""
    text = f"g (float[5, N, 4] x, {LSTM}) => (float y) {{ y = LSTM <hidden_size = 3> (x, w, r) }}"
    (problem,) = predict_on(text).found

    assert problem.miss is not None
    assert problem.miss.signal == "SIGABRT"
    assert problem.miss.problem == "`LSTM` is refused with the dynamic size `N` in axis 1 of its first input"


def test_openvino_accepts_dynamic_sizes() -> None:
    """Other engines compute sizes while a model runs."""
    text = "g (float[1, 3, H, W] x) => (float y) { y = SpaceToDepth <blocksize = 2> (x) }"

    assert predict_on(text, "openvino", "2026.4.1").verdict == "loads"
