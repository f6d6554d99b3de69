"""Models that tract may refuse as a whole have no prediction, unless one of their nodes is refused."""

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
RESHAPE = "s = Shape (x) r = Reshape (x, s) y = Relu (r)"
BRANCH = """
y = If (c) <
    then_branch = then () => (float[2, 4] t) { t = Relu (x) },
    else_branch = otherwise () => (float[2, 4] e) { e = Neg (x) }
>
"""


def predict_on(text: str, engine: str = "tract", release: str = "0.23.9") -> Prediction:
    """Return the prediction of a release for a model."""
    model = infer_model_types(ModelView(onnx.parser.parse_model(HEAD + text)))
    limits = get_limits(release, engine)
    assert limits is not None
    return predict(model, get_implementation(release, engine), limits)


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("g (float[2, 4] x) => (float[2, 4] y) { r = Neg (x) y = Relu (r) }", ""),
        ("g (float[N, 4] x) => (float[N, 4] y) { r = Neg (x) y = Relu (r) }", ""),
        ("g (float[?, 4] x) => (float[N, 4] y) { r = Neg (x) y = Relu (r) }", "input `x` has a size with neither"),
        ("g (float[?, 4] x) => (float[N, 4] y) { y = Relu (x) }", "input `x` has a size with neither"),
        (f"g (float[2, 4] x) => (float[2, 4] y) {{ {RESHAPE} }}", ""),
        (f"g (float[N, 4] x) => (float[N, 4] y) {{ {RESHAPE} }}", "sizes depend on `Shape`"),
        ("g (float[N, 4] x) => (int64[2] y) { y = Shape (x) }", ""),
        (
            f"g (float[2, 4] x, bool c) => (float[2, 4] y) {{ n = Not (c) {BRANCH} }}",
            "the model contains `If`, and",
        ),
        ("g (float[2, 4] x) => (int64[2, N] y) { r = Relu (x) y = NonZero (r) }", "sizes depend on `NonZero`"),
        (
            "g (float[N, 4] x, float[M, 4] z) => (float[K, 8] y) { r = Relu (x) y = Concat <axis = 1> (r, z) }",
            "the names of sizes differ",
        ),
        ("g (float[N, M] x, float[N, 4] z) => (float[N, K] y) { r = Relu (x) y = Concat <axis = 1> (r, z) }", ""),
    ],
)
def test_models_without_a_prediction(text: str, beginning: str) -> None:
    """The table describes single nodes; which sizes tract can derive from others is a property of the model."""
    prediction = predict_on(text)

    assert prediction.unknown_reason.startswith(beginning)
    assert prediction.verdict == ("unknown" if beginning else "loads")
    assert bool(prediction.unknown_reason) == bool(beginning)


@pytest.mark.parametrize(
    ("release", "verdict"), [("0.21.8", "loads"), ("0.21.9", "unknown"), ("0.22.4", "unknown"), ("0.23.0", "loads")]
)
def test_range_of_sizes_before_0_23(release: str, verdict: str) -> None:
    """Some releases refuse Range if its inputs mix sizes with other integers, although all sizes are known."""
    text = "g (float[2] x) => (int64[2] y) <int64 a = {0}, int64 b = {1}> { s = Size (x) y = Range (a, s, b) }"

    prediction = predict_on(text, "tract", release)

    assert prediction.verdict == verdict
    assert prediction.unknown_reason.startswith("the model contains `Range`, which tract 0.21.9–0.22.4 refuses") == (
        verdict == "unknown"
    )


def test_a_default_is_not_an_input() -> None:
    """A size of an input with a default is known."""
    text = "g (float[N, 4] x, float[?, 4] w) => (float[N, 4] y) <float[1, 4] w = {1, 2, 3, 4}> { y = Add (x, w) }"

    assert predict_on(text).verdict == "loads"


def test_a_refused_node_is_certain() -> None:
    """A model with a refused node is refused, whatever its sizes are."""
    text = "g (float[N, 4] x) => (float[K, 4] y) { s = Shape (x) r = Reshape (x, s) y, k = Unique <axis = 0> (r) }"

    assert predict_on(text).verdict == "refused"


def test_models_of_other_engines_have_predictions() -> None:
    """Other engines compute sizes while a model runs."""
    text = f"g (float[N, 4] x) => (float[N, 4] y) {{ {RESHAPE} }}"

    assert [predict_on(text, *each).verdict for each in (("onnxruntime", "1.31.1"), ("openvino", "2026.4.1"))] == [
        "loads",
        "loads",
    ]


@pytest.mark.parametrize("engine", ["openvino", "tract"])
def test_interfaces_that_were_not_probed_have_no_prediction(engine: str) -> None:
    """A sequence of a rare type is not one that a release accepts because no probe has it.

    Source: a model with such an input is refused by tract 0.21.8 and 0.23.9 and by OpenVINO 2024.5.0, not by 2026.4.1.
    """
    release = {"openvino": "2026.4.1", "tract": "0.23.9"}[engine]
    text = "g (seq(float8e5m2[2]) x, float[2] z) => (float[2] y) { y = Relu (z) }"

    assert predict_on(text, engine, release).unknown_reason == (
        "input `x` is a `seq(tensor(float8e5m2))`, and models with such inputs were not probed"
    )
