"""A model with seven unsupported nodes: each is reported with a suggestion, and all of them make the model pass."""

from __future__ import annotations

from typing import Any

import onnx.parser
import pytest
from onnx import ModelProto

from onnxgate.support.matching.operations import OpsetChange, Suggestion
from tests.harness.repositories.user_repository import Repository
from tests.support.suggestions.test_search import changed, refusals

RELEASES = ("1.18.1", "1.19.2")
TEXT = """
<ir_version: 7, opset_import: ["" : 14, "com.microsft" : 1]>
g (double[1, 3, 8, 8] image, uint16[4] a, float[1, 1, 2, 2] small, float[2, 5, 4] series, float[4] f, int64[4] i)
=> (double[1, 4, 6, 6] features, uint16[4] product, float[1, 1, 4, 4] large, float[2, 5, 1, 3] states, float[4] sum,
    float[4] leaky, float[4] smooth)
<float[4] scales = {1, 1, 2, 2}>
{
  kernel = ConstantOfShape <value = double[1] {0.5}> (kernel_shape)
  [conv] features = Conv (image, kernel)
  [mul] product = Mul (a, a)
  [up] large = Upsample <mode = "nearest"> (small, scales)
  w = ConstantOfShape <value = float[1] {0.1}> (w_shape)
  r = ConstantOfShape <value = float[1] {0.1}> (r_shape)
  [gru] states = GRU <hidden_size = 3, layout = 1> (series, w, r)
  [add] sum = Add (f, i)
  [leaky] leaky = LeakyReLU (f)
  [gelu] smooth = com.microsft.Gelu (f)
}
"""
SHAPES = {"kernel_shape": (4, 3, 3, 3), "w_shape": (1, 9, 4), "r_shape": (1, 9, 3)}
EXPECTED = {
    "conv": ("missing-kernel", "cast the inputs `X` and `W` of `Conv` to `tensor(float)`"),
    "mul": ("missing-kernel", "cast the inputs `A` and `B` of `Mul` to `tensor(int32)`"),
    "up": ("deprecated-operator", "use `Resize` instead"),
    "gru": ("attribute-unsupported", "remove `layout`"),
    "add": ("type-mismatch", "cast the input `B` of `Add` to `tensor(float)`"),
    "leaky": ("unknown-operator", "use `LeakyRelu` instead"),
    "gelu": ("unknown-domain", "use `com.microsoft.Gelu` instead"),
}

pytestmark = pytest.mark.index


def model() -> ModelProto:
    """Return the model, whose shapes are initializers so that generated inputs do not change them."""
    parsed = onnx.parser.parse_model(TEXT)
    for name, dims in SHAPES.items():
        parsed.graph.initializer.append(onnx.helper.make_tensor(name, onnx.TensorProto.INT64, [len(dims)], dims))
    return parsed


def way_of(ways: tuple[Suggestion, ...]) -> Suggestion:
    """Return the best suggestion that changes only one node."""
    return next(way for way in ways if not isinstance(way, OpsetChange))


def fixed(given: ModelProto) -> ModelProto:
    """Apply one suggestion per unsupported node and return the model."""
    for refused in refusals(given, RELEASES):
        given = changed(given, refused, way_of(refused.ways), RELEASES)
    return given


def support(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the errors of the support stage."""
    return [finding for finding in report["findings"] if finding["stage"] == "support" and finding["level"] == "error"]


@pytest.fixture
def refused(small: Repository) -> Repository:
    """Return a repository of the model and a valid one, on two releases."""
    path = small.folder / "models" / "refused.onnx"
    path.write_bytes(model().SerializeToString())
    small.run("lock", "--offline")
    return small


def test_all_misses_are_reported_at_once(refused: Repository) -> None:
    """Each unsupported node is reported with a suggestion, and the real runtimes refuse the model."""
    report = refused.report(status=1)
    actual = {each["node"]: (each["rule"], each["fix"]) for each in support(report)}

    assert {node: rule for node, (rule, _) in actual.items()} == {node: rule for node, (rule, _) in EXPECTED.items()}
    assert [node for node, (_, fix) in EXPECTED.items() if fix not in actual[node][1]] == []
    assert {tuple(each["runtimes"]) for each in support(report)} == {("onnxruntime 1.18.1", "onnxruntime 1.19.2")}


def test_the_ways_out_lead_out(refused: Repository) -> None:
    """With all suggestions applied, the real runtimes load and run the model."""
    path = refused.folder / "models" / "refused.onnx"
    path.write_bytes(fixed(model()).SerializeToString())
    refused.run("lock", "--offline")

    report = refused.report()

    assert (report["verdict"], report["findings"]) == ("pass", [])
    assert report["counts"]["ran"] == 4
