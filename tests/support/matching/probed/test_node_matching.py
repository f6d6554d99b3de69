"""Nodes are matched with conditions that probes of an engine have found."""

from __future__ import annotations

import onnx.parser
import pytest

from onnxgate.model.reading.view import ModelView
from onnxgate.support import harvest
from onnxgate.support.limits import Limits
from onnxgate.support.matching.kernels import match_operation, predict
from onnxgate.support.matching.operations import SupportGap, TypedModel
from onnxgate.support.matching.probed.node_features import describe_node
from onnxgate.support.matching.probed.node_matching import _explain, _list_types
from onnxgate.support.matching.type_inference import infer_model_types
from onnxgate.support.operators import (
    ConditionRow,
    Implementation,
    KernelRow,
    Operator,
    TableSource,
    build_implementations,
    find_newest_schema,
)

HEAD = '<ir_version: 10, opset_import: ["" : 18, "local" : 1]>'


def read(text: str) -> TypedModel:
    """Return a model with its types."""
    return infer_model_types(ModelView(onnx.parser.parse_model(HEAD + text)))


def features(text: str) -> frozenset[str]:
    """Return the features of the last node of a model."""
    node = read(text).nodes[-1]
    schema = find_newest_schema(node.operation.domain, node.operation.name, node.operation.version)
    assert schema is not None
    return describe_node(node, schema)


def make_implementation(*rows: tuple[str, KernelRow | ConditionRow], engine: str = "tract") -> Implementation:
    """Return a release of a probed engine with these rows."""
    builder = harvest.TableBuilder()
    for name, row in rows:
        builder.add(("ai.onnx", name), row)
    source = TableSource(release="0.23.9", wheel="engine.whl", sha256="0")
    return build_implementations(builder.table(engine, "linux x86_64", (source,)), {})["0.23.9"]


def make_kernel(version: int) -> KernelRow:
    """Return a kernel without constraints for one version of an operator."""
    return KernelRow(version, version, "CPUExecutionProvider", (), 1)


def list_gaps(text: str, implementation: Implementation) -> list[str]:
    """Return the problem of each refused node, in order."""
    prediction = predict(read(text), implementation, Limits(ir=None, opsets={}))
    return [found.miss.problem if found.miss else found.unknown for found in prediction.found]


UNSQUEEZE_BY_INPUT = "g (float[N] x, int64[1] a) => (float[M, K] y) { y = Unsqueeze (x, a) }"


def test_features_state_sources_of_inputs() -> None:
    """An input is constant, dynamic or neither if it follows from a shape."""
    by_constant = "g (float[N] x) => (float[M, K] y) <int64[1] a = {0}> { y = Unsqueeze (x, a) }"
    by_shape = "g (float[N] x) => (float[M, K] y) { a = Shape (x) y = Unsqueeze (x, a) }"
    by_fixed_shape = "g (float[1] x) => (float[M, K] y) { a = Shape (x) y = Unsqueeze (x, a) }"
    by_computation = "g (float[N] x, int64[1] b) => (float[M, K] y) { a = Neg (b) y = Unsqueeze (x, a) }"

    assert {"axes: constant", "x: constant"} & features(by_constant) == {"axes: constant"}
    assert {"axes: constant", "axes: dynamic"} & features(by_shape) == set()
    assert "axes: constant" in features(by_fixed_shape)
    assert "axes: dynamic" in features(UNSQUEEZE_BY_INPUT)
    assert "axes: dynamic" in features(by_computation)


def test_features_state_types_attributes_ranks_and_omitted_inputs() -> None:
    """Each argument and attribute of the schema has features."""
    actual = features(
        "g (float16[1, 2, 4, 4] x, int64[4] s) => (float16[A, B, C, D] y)"
        '{ y = Resize <mode: string = "cubic", antialias: int = 0> (x, , , s) }'
    )

    expected = {"T1=tensor(float16)", "X: rank 4", "X: static", "roi: omitted", "sizes: given", "mode=cubic"}
    assert expected | {"antialias: zero", "nearest_mode: unset"} <= actual


def test_shapes_of_computed_values_are_not_features_if_they_are_unknown() -> None:
    """Engines can infer more shapes than onnx does."""
    text = "g (float[N, 2] x) => (float[A, B] z) { y = Relu (x) z = Relu (y) }"

    assert "X: symbolic" in features("g (float[N, 2] x) => (float[A, B] y) { y = Relu (x) }")
    assert "X: symbolic" not in features(text)
    assert "X: rank 2" in features(text)


def test_features_state_sequences_of_the_interface() -> None:
    """OpenVINO supports sequences between nodes, but not as inputs and outputs of the model."""
    inner = "g (seq(float[2]) s, int64 i) => (float[2] y) { t = SequenceErase (s, i) y = SequenceAt (t, i) }"
    split = "g (float[4] x) => (float[2] y, seq(float[2]) s) { s = SplitToSequence (x) }"
    branch = "b () => (seq(float) t) { t = SplitToSequence (x) }"
    nested = (
        f"g (bool k, float[4] x) => (seq(float) s) {{ s = If (k) <then_branch = {branch}, else_branch = {branch}> }}"
    )

    assert "input_sequence: model input" not in features(inner)
    assert "input_sequence: model input" in features(inner.replace("(t, i)", "(s, i)"))
    assert "output_sequence: model output" in features(split)
    assert "output_sequence: model output" not in features(f"{split[:-1]} y = SequenceAt (s, i) }}")
    (inside, _) = read(nested).nodes[0].inner
    assert not inside.is_output("t")


def test_elements_of_a_sequence_that_the_model_passes_have_a_rank() -> None:
    """OpenVINO needs the rank of each input, also of the elements of a sequence."""
    text = "g (seq(float[2]) s) => (seq(float) t) { t = Identity (s) }"

    assert "input: rank unknown" not in features(text)
    assert "input: rank unknown" in features(text.replace("[2]", "[]"))


@pytest.mark.parametrize(
    ("values", "expected"), [("float[2] w", True), ("", False), ("float[4] v", True)], ids=["input", "none", "computed"]
)
def test_bodies_that_use_computed_values(values: str, expected: bool) -> None:
    """OpenVINO passes constants to the body of a Scan, but no other values from around it."""
    used = {"float[2] w": "w", "": "c", "float[4] v": "u"}[values]
    before = "u = Relu (v)" if used == "u" else ""
    inputs = ", ".join(filter(None, ["float[2] s, float[3, 2] x", values]))
    constants = "<float[2] c = {1.0, 2.0}>"
    body = f"b (float[2] a, float[2] e) => (float[2] d, float[2] f) {{ d = Add (a, e) f = Add (d, {used}) }}"
    text = (
        f"g ({inputs}) => (float[2] y, float[3, 2] z) {constants}"
        f"{{ {before} y, z = Scan <num_scan_inputs = 1, body = {body}> (s, x) }}"
    )

    assert expected is ("body: uses computed values" in features(text))


def test_a_node_with_the_features_of_a_condition_is_refused() -> None:
    """Only nodes with all features of a condition are refused, even if another node has the same operation."""
    implementation = make_implementation(
        ("Unsqueeze", make_kernel(13)), ("Unsqueeze", ConditionRow(13, ("axes: dynamic", "data: rank 1"), 1))
    )
    two = (
        "g (float[N] x, int64[1] a) => (float[M, K] y, float[O, P] z) <int64[1] b = {0}>"
        "{ y = Unsqueeze (x, b) z = Unsqueeze (x, a) }"
    )

    refused = "`Unsqueeze(13)` is refused with `axes` that is not constant and `data` of rank 1"
    assert [refused] == list_gaps(UNSQUEEZE_BY_INPUT, implementation)
    assert [refused] == list_gaps(two, implementation)
    assert [] == list_gaps("g (float[N, 2] x, int64[1] a) => (float[M] y) { y = Unsqueeze (x, a) }", implementation)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (("axes: dynamic", "inputs: not constant"), "with `axes` that is not constant"),
        (("inputs: not constant",), "unless all inputs are constant"),
        (("a: omitted", "b: given"), "with `b` and no `a`"),
        (("alpha: nonzero", "mode=cubic"), "with `alpha` other than `0` and `mode` = `cubic`"),
        (("direction: has reverse", "x: rank 4"), "with `reverse` in `direction` and `x` of rank 4"),
        (("kernel_shape: 3", "inputs: 3 or more"), "with `inputs` of length 3 or more and `kernel_shape` of length 3"),
        (("seed: unset",), "with no `seed`"),
    ],
)
def test_conditions_are_stated_in_words(condition: tuple[str, ...], expected: str) -> None:
    """The feature that a node has an input that is not constant is stated only if it is the whole condition."""
    operator = Operator("ai.onnx", "Op", (), ())
    gap = _explain("Op(1)", frozenset(condition), operator)

    assert f"`Op(1)` is refused {expected}" == gap.problem


def test_accepted_types_are_those_of_the_same_kind() -> None:
    """A list of sequence types does not help if a tensor is refused."""
    types = ("seq(tensor(float))", "tensor(float)", "tensor(double)")

    assert "`tensor(double)`, `tensor(float)`" == _list_types(types, ["T=tensor(bool)"])
    assert "`seq(tensor(float))`, `tensor(double)`, `tensor(float)`" == _list_types(types, ["T=seq(tensor(bool))"])


@pytest.mark.parametrize(("types", "expected"), [(("float",), []), (("double",), ["`Relu(14)`"])])
def test_types_that_no_probe_loads_are_refused(types: tuple[str], expected: list[str]) -> None:
    """A kernel lists the accepted types of a parameter."""
    builder = harvest.TableBuilder()
    constraints = builder.constraints({"T": ["tensor(float)"]})
    builder.add(("ai.onnx", "Relu"), KernelRow(14, 14, "CPUExecutionProvider", constraints, 1))
    source = TableSource(release="0.23.9", wheel="tract.whl", sha256="0")
    implementation = build_implementations(builder.table("tract", "linux x86_64", (source,)), {})["0.23.9"]
    gaps = list_gaps(f"g ({types[0]}[N] x) => ({types[0]}[N] y) {{ y = Relu (x) }}", implementation)

    assert expected == [gap.partition(" ")[0] for gap in gaps]


def test_refused_and_unknown_operators_differ_from_unprobed_versions() -> None:
    """A version without a kernel is refused only if it was probed."""
    implementation = make_implementation(
        ("Relu", make_kernel(13)), ("Neg", make_kernel(6)), ("Neg", ConditionRow(13, (), 1))
    )

    assert [] == list_gaps("g (float[N] x) => (float[N] y) { y = Relu (x) }", implementation)
    assert ["`Neg(13)` is not implemented"] == list_gaps(
        "g (float[N] x) => (float[N] y) { y = Neg (x) }", implementation
    )
    assert ["`Abs` was not probed"] == list_gaps("g (float[N] x) => (float[N] y) { y = Abs (x) }", implementation)
    assert ["`my.domain.Abs` is not implemented"] == list_gaps(
        "g (float[N] x) => (float[N] y) { y = my.domain.Abs (x) }", implementation
    )


def test_nodes_without_used_outputs_are_ignored() -> None:
    """Engines remove a node before they convert it if no output of the graph depends on it."""
    implementation = make_implementation(("Neg", make_kernel(13)), ("Relu", ConditionRow(14, (), 1)))

    assert [] == list_gaps("g (float[N] x) => (float[N] y) { y = Neg (x) z = Relu (x) }", implementation)
    assert [] == list_gaps("g (float[N] x) => (float[N] y) { y = Neg (x) z = Relu (x) w = Neg (z) }", implementation)
    assert ["`Relu(14)` is not implemented"] == list_gaps(
        "g (float[N] x) => (float[N] y) { z = Relu (x) y = Neg (z) }", implementation
    )


@pytest.mark.parametrize("engine", ["openvino", "tract"])
@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("y = local.Do (x)", ["`local.Do` is a local function"]),
        ("y = local.Do <k = 1> (x)", ["`local.Do` is a local function"]),
        ("y = Relu (x) z = local.Do (x)", []),
    ],
    ids=["called", "called with an attribute that it does not declare", "unused"],
)
def test_local_functions_are_not_called(nodes: str, expected: list[str], engine: str) -> None:
    """An engine takes a call for an operator, and refuses it unless it has one; it ignores unused nodes."""
    implementation = make_implementation(("Relu", make_kernel(14)), ("Neg", make_kernel(13)), engine=engine)
    function = '<domain: "local", opset_import: ["" : 18]> Do (X) => (Y) { Y = Neg (X) }'

    assert expected == list_gaps(f"g (float[N] x) => (float[N] y) {{ {nodes} }}" + function, implementation)


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("openvino", "`local.Relu` is a local function"),
        ("tract", "the engine may run its own operator `Relu` instead of the local function `local.Relu`"),
    ],
)
def test_functions_named_like_an_operator(engine: str, expected: str) -> None:
    """Only tract ignores the domain of a call."""
    implementation = make_implementation(("Relu", make_kernel(14)), engine=engine)
    function = '<domain: "local", opset_import: ["" : 18]> Relu (X) => (Y) { Y = Neg (X) }'

    assert [expected] == list_gaps("g (float[N] x) => (float[N] y) { y = local.Relu (x) }" + function, implementation)


def test_operations_are_matched_without_shapes_and_constants() -> None:
    """A condition on a constant cannot be decided for an operation alone."""
    implementation = make_implementation(
        ("Unsqueeze", make_kernel(13)),
        ("Unsqueeze", ConditionRow(13, ("axes: dynamic",), 1)),
        ("Neg", ConditionRow(13, (), 1)),
    )
    unsqueeze = read(UNSQUEEZE_BY_INPUT).nodes[0].operation
    neg = read("g (float[N] x) => (float[N] y) { y = Neg (x) }").nodes[0].operation

    assert match_operation(unsqueeze, implementation) is None
    assert isinstance(match_operation(neg, implementation), SupportGap)


def test_a_value_is_named_once() -> None:
    """A condition can contain both that an attribute is zero and that it has this value."""
    condition = ConditionRow(13, ("axis: set", "axis: zero", "axis=0"), 1)
    implementation = make_implementation(("Softmax", make_kernel(13)), ("Softmax", condition))

    gaps = list_gaps("g (float[2, 3] x) => (float[2, 3] y) { y = Softmax <axis = 0> (x) }", implementation)
    assert ["`Softmax(13)` is refused with `axis` = `0`"] == gaps
