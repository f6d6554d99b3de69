"""Extraction of one node as a separate model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from onnxgate.model.subgraphs import reduced_models
from onnxgate.model.subgraphs.reduced_models import NodeSurroundings
from tests.harness.models import parse

IR = 8


def surroundings(model: onnx.ModelProto) -> NodeSurroundings:
    """Return the surroundings of a node in the main graph; `Constant` nodes count as constants."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {value.name: value.type for value in (*inferred.input, *inferred.value_info, *inferred.output)}
    constants: dict[str, onnx.TensorProto | onnx.NodeProto] = {
        tensor.name: tensor for tensor in model.graph.initializer
    }
    constants |= {node.output[0]: node for node in model.graph.node if node.op_type == "Constant"}
    functions = {reduced_models.function_key(function): function for function in model.functions}
    imports = {opset.domain or "ai.onnx": opset.version for opset in model.opset_import}
    return NodeSurroundings(imports, types.get, constants, functions)


def cut(model: onnx.ModelProto, index: int = 0) -> onnx.ModelProto | None:
    """Return one node of the main graph as a model."""
    data = reduced_models.extract_node(model.graph.node[index], surroundings(model), IR, Path("no file"))
    return None if data is None else onnx.ModelProto.FromString(data)


def shown(model: onnx.ModelProto | None) -> str:
    """Return the graph as text."""
    assert model is not None
    return " ".join(onnx.printer.to_text(model.graph).split())


def test_node_inputs_become_model_inputs() -> None:
    """Inputs have known sizes and names of dynamic axes and are listed once; outputs have a type and no shape."""
    model = parse("g (float[N, 4] x) => (float[N, 4] z) { y = Relu (x) [twice] z = Mul (y, y) }")
    cut_out = cut(model, 1)

    assert "alone (float[N,4] y) => (float[] z) { [twice] z = Mul (y, y) }" == shown(cut_out)
    assert cut_out is not None
    assert (IR, [("", 18)]) == (cut_out.ir_version, [(opset.domain, opset.version) for opset in cut_out.opset_import])


def test_small_constants_stay_constants() -> None:
    """Small initializers and `Constant` nodes stay constants, because a shape given as an input changes the model."""
    model = parse(
        "g (float[2, 3] x) => (float[1, 6] z) <int64[2] axes = {1, 6}>"
        " { low = Constant <value = float {0.0}> () y = Clip (x, low) z = Reshape (y, axes) }"
    )

    assert "alone (float[2,3] y) => (float[] z) <int64[2] axes = {1,6}> { z = Reshape (y, axes) }" == shown(
        cut(model, 2)
    )
    assert (
        "alone (float[2,3] x) => (float[] y) { low = Constant <value: tensor = float {0}> () y = Clip (x, low) }"
        == shown(cut(model, 1))
    )


@pytest.mark.parametrize("away", [False, True], ids=["large", "elsewhere"])
def test_other_weights_become_inputs(*, away: bool) -> None:
    """Large weights and weights in external files become inputs."""
    model = parse(f"g (float[1, 200] x, float[200, 200] w) => (float[1, {200}] y) {{ y = MatMul (x, w) }}")
    weights = model.graph.initializer.add(name="w", data_type=onnx.TensorProto.FLOAT, dims=[200, 200])
    if away:
        weights.data_location = onnx.TensorProto.EXTERNAL
        weights.external_data.add(key="location", value="weights.bin")
    else:
        weights.raw_data = bytes(4 * 200 * 200)

    assert "alone (float[1,200] x, float[200,200] w) => (float[] y) { y = MatMul (x, w) }" == shown(cut(model))


def test_outer_values_of_a_subgraph_become_inputs() -> None:
    """Outer values at any depth of a subgraph become inputs; its own values do not."""
    model = parse(
        "g (bool b, float[2] x, float[2] y) => (float[2] z) { z = If (b) <"
        "then_branch = one () => (float[2] t) {"
        " t = If (b) <then_branch = in () => (float[2] p) { q = Neg (y) p = Relu (q) },"
        " else_branch = out () => (float[2] r) { r = Neg (x) }> },"
        "else_branch = other () => (float[2] e) { e = Identity (x) }> }"
    )

    assert ("b", "y", "x") == reduced_models.list_needed_values(model.graph.node[0])
    assert "alone (bool b, float[2] y, float[2] x) => (float[] z) {" in shown(cut(model))


def test_local_function_is_included() -> None:
    """A local function is included with the functions that it calls, and no others."""
    head = '<ir_version: 8, opset_import: ["" : 18, "mine": 1]>\n'
    functions = """
    <domain: "mine", opset_import: ["" : 18, "mine": 1]> outer (a) => (b) { b = mine.inner (a) }
    <domain: "mine", opset_import: ["" : 18]> inner (a) => (b) { b = Relu (a) }
    <domain: "mine", opset_import: ["" : 18]> other (a) => (b) { b = Neg (a) }"""
    model = onnx.parser.parse_model(f"{head}g (float[2] x) => (float[2] y) {{ y = mine.outer (x) }}{functions}")
    cut_out = cut(model)

    assert cut_out is not None
    assert ["inner", "outer"] == [function.name for function in cut_out.functions]


NESTED_CALLS = """
<ir_version: 8, opset_import: ["" : 17, "my" : 1]>
g (float[2] x, bool cond) => (float[2] y) {
  y = If (cond) <
    then_branch = t () => (float[2] q) {
      p = If (cond) <
        then_branch = a () => (float[2] p1) { p1 = my.Outer (x) },
        else_branch = b () => (float[2] p2) { p2 = my.Outer (x) }
      >
      q = my.Inner (p)
    },
    else_branch = e () => (float[2] r) { r = Relu (x) }
  >
}
<domain: "my", opset_import: ["" : 17, "my" : 1]> Inner (a) => (c) { c = Relu (a) }
<domain: "my", opset_import: ["" : 17, "my" : 1]> Outer (a) => (c) { c = my.Inner (a) }
"""


def test_a_function_comes_after_those_that_it_calls() -> None:
    """The reference evaluator, which is also an engine, requires called functions first."""
    cut_out = cut(onnx.parser.parse_model(NESTED_CALLS))

    assert cut_out is not None
    assert ["Inner", "Outer"] == [function.name for function in cut_out.functions]
    feeds = {"x": np.ones(2, np.float32), "cond": np.array(True)}
    assert [[1, 1]] == [output.tolist() for output in ReferenceEvaluator(cut_out).run(None, feeds)]


def test_untyped_node_is_not_extracted() -> None:
    """A node is not extracted if an input has no type, or if its own tensor is external."""
    head = '<ir_version: 8, opset_import: ["" : 18, "mine": 1]>\n'
    untyped = parse("g (float[2] x) => (float[2] z) { y = mine.Strange (x) z = Relu (y) }", head)
    elsewhere = parse("g () => (float[2] y) { y = Constant <value = float[2] {1, 2}> () }")
    tensor = elsewhere.graph.node[0].attribute[0].t
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")

    assert (None, None) == (cut(untyped, 1), cut(elsewhere))
