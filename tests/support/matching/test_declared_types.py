"""Types that runtimes ignore, because another declaration of the same value applies.

Each model was loaded on ONNX Runtime 1.16.3, 1.20.1, 1.24.4, 1.31.1 and 1.32.0.
"""

from __future__ import annotations

import onnx.parser
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper

from onnxgate.model.onnx_functions import infer_shapes
from onnxgate.model.reading.view import ModelView
from onnxgate.support import limits, operators
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.type_inference import infer_model_types, infer_node_types
from tests.harness.timing import measure_cpu_s

STAMPS = '<ir_version: 8, opset_import: ["" : 17]> '


def verdict(model: ModelProto, release: str = "1.31.1", engine: str = "onnxruntime") -> str:
    """Return the predicted verdict of a release."""
    known = limits.get_limits(release, engine)
    assert known is not None
    return predict(infer_model_types(ModelView(model)), operators.get_implementation(release, engine), known).verdict


@pytest.mark.parametrize(
    ("declared", "expected"), [("string a", "loads"), ("string c", "loads"), ("string m", "refused")]
)
def test_body_of_sequence_map(declared: str, expected: str) -> None:
    """The types of inputs and outputs of a body apply; only for other values, the listed type counts."""
    text = (
        "g (seq(float[2]) s) => (seq(float[2]) y) {"
        "y = SequenceMap (s) <body: graph = b (float[2] a) => (float[2] c) "
        f"<{declared}> {{ m = Neg (a) c = Neg (m) }}> }}"
    )

    assert expected == verdict(onnx.parser.parse_model(STAMPS + text))


@pytest.mark.parametrize(("element", "expected"), [(TensorProto.FLOAT, "loads"), (TensorProto.BOOL, "refused")])
def test_sparse_initializer(element: int, expected: str) -> None:
    """The type of a sparse initializer applies rather than the listed one."""
    model = onnx.parser.parse_model(STAMPS + "g (float[4] x) => (float[4] y) <double[4] b> { y = Add (x, b) }")
    sparse = model.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(helper.make_tensor("b", element, [1], [1]))
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [1], [0]))

    assert expected == verdict(model)


def test_copy_of_a_sparse_initializer() -> None:
    """Sparse initializers become dense tensors, also for nodes that use a copy."""
    model = onnx.parser.parse_model(STAMPS + "g (float[4] x) => (float[4] y) { c = Identity (b) y = Add (x, c) }")
    sparse = model.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(helper.make_tensor("b", TensorProto.FLOAT, [1], [1]))
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [1], [0]))

    assert "loads" == verdict(model)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(float[4] x) => (float[4] y) { y = Add (x, w) }", "refused"),
        ("(float[4] x) => (float[4] y) { v = Identity (w) y = Add (x, v) }", "refused"),
        ("(float[4] x) => (float[4] y) { y = Neg (x) z = Neg (w) }", "loads"),  # refused by some releases
        ("(float[4] x) => (float[4] y) { y = Neg (x) }", "loads"),
        ("(float[4] x, float[4] w) => (float[4] y) { y = Add (x, w) }", "loads"),
        ("(float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { y = Add (x, w) }", "loads"),
    ],
)
def test_sparse_initializer_on_other_engines(text: str, expected: str) -> None:
    """OpenVINO and tract ignore sparse initializers, and find no value unless it is also an input or a dense one."""
    model = onnx.parser.parse_model(f"{STAMPS}g {text}")
    sparse = model.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, [1], [1]))
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [1], [0]))
    releases = (("openvino", "2024.5.0"), ("openvino", "2026.4.1"), ("tract", "0.21.8"), ("tract", "0.23.9"))

    assert {verdict(model, release, engine) for engine, release in releases} == {expected}
    assert verdict(model) == "loads"


@pytest.mark.parametrize("is_constant", [False, True])
def test_sparse_strings(is_constant: bool) -> None:
    """No release of ONNX Runtime converts sparse strings."""
    model = onnx.parser.parse_model(f"{STAMPS}g (string[4] x) => (bool[4] y) {{ y = Equal (x, w) }}")
    model.opset_import[0].version = 19
    values = helper.make_tensor("w", TensorProto.STRING, [1], ["a"])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("", TensorProto.INT64, [1], [0]), [4])
    if is_constant:
        model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse))
    else:
        model.graph.sparse_initializer.append(sparse)

    assert {verdict(model, release) for release in ("1.18.1", "1.24.4", "1.32.0")} == {"refused"}


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize(("element", "expected"), [(TensorProto.FLOAT, "loads"), (TensorProto.COMPLEX64, "refused")])
def test_initializer_that_is_an_output_of_another_type(element: int, expected: str, is_sparse: bool) -> None:
    """The type of the initializer applies."""
    declared = "complex64" if expected == "loads" else "float"
    model = onnx.parser.parse_model(f"{STAMPS}g (bool c) => (bool y, {declared}[1] w) {{ y = Not (c) }}")
    tensor = helper.make_tensor("w", element, [1], [1])
    if is_sparse:
        indices = helper.make_tensor("", TensorProto.INT64, [1], [0])
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(tensor, indices, [1]))
    else:
        model.graph.initializer.append(tensor)

    assert verdict(model) == expected


def test_input_that_is_an_output_of_another_type() -> None:
    """The type of the input applies."""
    text = "g (seq(float[2]) s, int64 i) => (float[2] y, float[3] s) { e = SequenceErase (s, i) y = SequenceAt (e, i) }"

    assert "loads" == verdict(onnx.parser.parse_model(STAMPS + text))


def test_input_that_is_an_output_of_another_type_after_inference() -> None:
    """The types that the checker inferred are not used: onnx applies the type of the output."""
    text = "g (float[N] x) => (float16[N] x) { y = Relu (x) }"
    model = onnx.parser.parse_model(STAMPS + text)
    inferred = infer_shapes(model, strict_mode=True)
    known = limits.get_limits("1.31.1")
    assert known is not None
    typed = infer_model_types(ModelView(model), inferred)

    assert "loads" == predict(typed, operators.get_implementation("1.31.1"), known).verdict


@pytest.mark.parametrize(
    ("release", "element", "expected"),
    [
        ("1.17.3", TensorProto.INT4, "refused"),
        ("1.18.1", TensorProto.INT4, "loads"),
        ("1.22.1", TensorProto.FLOAT4E2M1, "refused"),
        ("1.23.2", TensorProto.FLOAT4E2M1, "loads"),
        ("1.23.2", TensorProto.FLOAT8E8M0, "refused"),
        ("1.24.4", TensorProto.FLOAT8E8M0, "loads"),
        ("1.31.1", TensorProto.FLOAT6E2M3, "refused"),
        ("1.32.0", TensorProto.FLOAT6E3M2, "loads"),
        ("1.16.3", TensorProto.COMPLEX64, "loads"),
    ],
)
@pytest.mark.parametrize("is_constant", [False, True])
def test_unused_tensor_of_an_unknown_type(release: str, element: int, expected: str, is_constant: bool) -> None:
    """A release refuses tensors of a type that it does not know, and ignores those that it knows but does not use."""
    model = onnx.parser.parse_model(STAMPS + "g (float[2] x) => (float[2] y) { y = Relu (x) }")
    tensor = TensorProto(name="w", data_type=element, dims=[2], raw_data=bytes(16))
    if is_constant:
        value = AttributeProto(name="value", type=AttributeProto.TENSOR, t=tensor)
        model.graph.node.add(op_type="Constant", output=["w"], attribute=[value])
    else:
        model.graph.initializer.append(tensor)

    assert expected == verdict(model, release)


def test_constant_that_is_an_output_of_another_type() -> None:
    """The type of the tensor applies, also for nodes that take it."""
    text = (
        "g (int64[1] x) => (int64[2] y, float[1] c) { c = Constant <value_ints = [1]> () y = Concat <axis = 0> (x, c) }"
    )

    assert "loads" == verdict(onnx.parser.parse_model(STAMPS + text))


def test_condition_that_is_computed_along_many_paths() -> None:
    """Each value is followed once: here, there are 2 ** 40 paths from the condition to its constant."""
    chain = "".join(f"c{depth + 1} = And (c{depth}, c{depth}) " for depth in range(40))
    branch = "<then_branch = t () => (float[2] a) { a = Neg (x) }, else_branch = e () => (float[2] b) { b = Abs (x) }>"
    text = f"g (float[2] x) => (float[2] y) <bool c0 = {{1}}> {{ {chain} y = If (c40) {branch} }}"

    assert "loads" == verdict(onnx.parser.parse_model(STAMPS + text))


def conditions_of_one_value(count: int) -> ModelProto:
    """Return a model with conditions that are computed from one list of constants."""
    names = [f"k{index}" for index in range(count)]
    branches = (
        "then_branch = t () => (bool[M] t{0}) {{ t{0} = Identity (x) }}, "
        "else_branch = e () => (bool[M] e{0}) {{ e{0} = Not (x) }}"
    )
    nodes = "".join(f"n{at} = Not (v) y{at} = If (n{at}) <{branches.format(at)}> " for at in range(count))
    weights = ", ".join(f"bool[1] {name} = {{1}}" for name in names)
    text = f"g (bool[M] x) => (bool[M] y0) <{weights}> {{ v = Concat <axis = 0> ({', '.join(names)}) {nodes} }}"
    return onnx.parser.parse_model(STAMPS + text)


def test_conditions_of_one_value_take_linear_time() -> None:
    """All constants were followed for each condition: four times the conditions took ten times as long."""
    few, many = map(conditions_of_one_value, (250, 1000))

    assert measure_cpu_s(lambda: infer_node_types(many)) < 7 * measure_cpu_s(lambda: infer_node_types(few))


def test_condition_that_depends_on_itself() -> None:
    """The search ends, although each input of the node is one of its outputs."""
    branch = "<then_branch = t () => (bool a, bool b) { a, b = Identity (x) }>"
    text = f"g (bool x) => (bool y, bool i) {{ y, i = If (i, y) {branch} }}"

    assert "loads" != verdict(onnx.parser.parse_model(STAMPS + text))
