"""Attribute values of classical models that releases of ONNX Runtime refuse, and other newly found restrictions."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from onnxgate.model.reading.view import ModelView
from onnxgate.support.limits import get_limits
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.type_inference import infer_model_types
from onnxgate.support.operators import get_implementation
from tests.support.matching.test_kernels import prediction

REGRESSOR: dict[str, object] = {
    "n_targets": 1,
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "target_treeids": [0, 0],
    "target_nodeids": [1, 2],
    "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
}


def verdict(operator: str, attributes: dict[str, object], release: str) -> str:
    """Return the predicted verdict for a model with one node of `ai.onnx.ml`."""
    outputs = ["y", "scores"] if operator.endswith("Classifier") else ["y"]
    node = helper.make_node(operator, ["x"], outputs, domain="ai.onnx.ml", **attributes)
    values = [onnx.ValueInfoProto(name="y")]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 1, ["N", 2])], values)
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    limits = get_limits(release)
    assert limits is not None
    return predict(infer_model_types(ModelView(model)), get_implementation(release), limits).verdict


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ({"nodes_treeids": [0, 0]}, "1.16.0"),
        ({"nodes_values": [0.5]}, "1.16.0"),
        ({"target_nodeids": [1]}, "1.16.0"),
        ({"n_targets": 0}, "1.16.0"),
        ({"nodes_truenodeids": [5, 0, 0]}, "1.16.0"),
        ({"nodes_nodeids": [0, 1, 1]}, "1.16.0"),
        ({"target_treeids": [0, 5]}, "1.16.0"),
        ({"nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_LEQ"]}, "1.16.0"),
        ({"target_weights": [1.0, 2.0, 3.0]}, "1.20.0"),
        ({"nodes_featureids": [-1, 0, 0]}, "1.27.0"),
        ({"nodes_featureids": [2**31, 0, 0]}, "1.27.0"),
        ({"nodes_modes": ["BRANCH", "LEAF", "LEAF"]}, "1.23.0"),
        ({"target_ids": [0, -1]}, "1.26.0"),
        ({"target_ids": [0, 1]}, "1.26.0"),
    ],
)
def test_trees(changed: dict[str, object], first: str) -> None:
    """Lists of trees must fit each other; newer releases check more of them."""
    releases = ["1.16.3", "1.20.1", "1.23.2", "1.26.0", "1.31.1"]
    expected = [
        "refused" if tuple(map(int, it.split("."))) >= tuple(map(int, first.split("."))) else "loads" for it in releases
    ]

    assert expected == [verdict("TreeEnsembleRegressor", REGRESSOR | changed, release) for release in releases]


def test_features_of_leaves() -> None:
    """Leaves compare no feature."""
    assert "loads" == verdict("TreeEnsembleRegressor", REGRESSOR | {"nodes_featureids": [0, -1, 2**31]}, "1.32.0")


def test_valid_trees() -> None:
    """A valid tree loads everywhere."""
    assert ["loads"] * 2 == [verdict("TreeEnsembleRegressor", REGRESSOR, release) for release in ("1.16.3", "1.32.0")]


@pytest.mark.parametrize(
    ("operator", "attributes", "expected"),
    [
        ("ZipMap", {"classlabels_int64s": [0, 1], "classlabels_strings": ["a", "b"]}, ["refused", "refused"]),
        ("SVMRegressor", {"rho": [0.1]}, ["refused", "refused"]),
        ("LinearRegressor", {"coefficients": [1.0, 1.0], "targets": 0}, ["loads", "refused"]),
        ("LinearRegressor", {"coefficients": [1.0, 1.0]}, ["loads", "loads"]),
    ],
)
def test_other_models(operator: str, attributes: dict[str, object], expected: list[str]) -> None:
    """Kernels require attributes that the schema does not."""
    assert expected == [verdict(operator, attributes, release) for release in ("1.16.3", "1.31.1")]


@pytest.mark.parametrize(
    ("opset", "body", "expected"),
    [
        (13, "(float x, float w) => (float y) { y = Conv <dilations = [0, 1]> (x, w) }", ["loads", "refused"]),
        (13, "(float x, int64[3] n) => (float y) { y = ReverseSequence <time_axis = 2> (x, n) }", ["refused"] * 2),
        (13, "(float x, int64[3] n) => (float y) { y = ReverseSequence (x, n) }", ["loads"] * 2),
        (9, "(float x) => (float y) { y = Slice <starts = [0, 1], ends = [1]> (x) }", ["refused"] * 2),
        (9, "(int64[2] x) => (float y) { y = ConstantOfShape <value = float[2] {1, 2}> (x) }", ["refused"] * 2),
        (9, "(int64[2] x) => (float y) { y = ConstantOfShape <value = float[1] {1}> (x) }", ["loads"] * 2),
        (
            13,
            "(float[2] x) => (float[2] y) { k = foo.Constant <value = float[2] {1, 2}> () y = Add (x, k) }",
            ["loads"] * 2,
        ),
        (
            14,
            "(float[1, 1, 1] x, float[1, 1, 1] w, float[1, 1, 1] r) => (float y) "
            '{ y = RNN <hidden_size = 1, activations = ["Tanh", "q"]> (x, w, r) }',
            ["loads"] * 2,
        ),
    ],
)
def test_other_restrictions(opset: int, body: str, expected: list[str]) -> None:
    """Each case was observed on 31 releases from 1.16.0 to 1.32.0."""
    text = f'<ir_version: 8, opset_import: ["" : {opset}, "foo" : 1]> g {body}'

    assert expected == [prediction(text, release).verdict for release in ("1.16.3", "1.31.1")]


def test_branch_without_kernel_for_its_type() -> None:
    """An If of a type without kernel may load if its condition is constant, because a branch replaces it."""
    names = ("then_branch", "else_branch")
    branches = [f"{name} = t () => (int4[2] {name}_) {{ {name}_ = QuantizeLinear (x, s, z) }}" for name in names]
    node = f"{{ y = If (c) <{', '.join(branches)}> }}"
    heads = (
        "(float[2] x, float s, int4 z) => (int4[2] y) <bool c = {1}>",
        "(float[2] x, float s, int4 z, bool c) => (int4[2] y)",
    )
    texts = [f'<ir_version: 10, opset_import: ["" : 21]> g {head} {node}' for head in heads]

    assert ["unknown", "refused"] == [prediction(text, "1.31.1").verdict for text in texts]


def test_mode_of_an_output_that_is_omitted() -> None:
    """Attention reads the mode of its fourth output only if it returns it."""
    head = '<ir_version: 10, opset_import: ["" : 23]> g (float[1, 2, 4, 8] q) => (float[1, 2, 4, 8] y)'
    node = "Attention <qk_matmul_output_mode = 4> (q, q, q)"
    actual = [prediction(f"{head} {{ {outputs} = {node} }}", "1.31.1").verdict for outputs in ("y", "y, k, v, m")]

    assert actual == ["loads", "refused"]


def test_declared_types_of_outputs() -> None:
    """An output has the type that its operator determines; releases refuse other declared types."""
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[2] x, float s)'
    texts = [
        f"{head} => (double[2] y) {{ a = com.microsoft.FastGelu (x) y = Add (a, x) }}",
        f"{head} => (int8[2] y) {{ y = com.microsoft.QuantizeLinear (x, s) }}",
        f"{head} => (uint8[2] y) {{ y = com.microsoft.QuantizeLinear (x, s) }}",
    ]

    assert ["refused", "refused", "loads"] == [prediction(text, "1.31.1").verdict for text in texts]


def test_experimental_operators() -> None:
    """Releases check neither attributes nor the number of inputs of experimental operators."""
    node = "{ y = Crop <border = [0, 0, 1, 1], q = 1> (x) }"
    text = f'<ir_version: 8, opset_import: ["" : 9]> g (float[1, 1, 4, 4] x) => (float y) {node}'

    assert prediction(text, "1.31.1").verdict == "loads"


SUPPORTS: dict[str, object] = {
    "kernel_params": [0.5, 0.0, 0.0],
    "n_supports": 2,
    "coefficients": [1.0, 1.0],
    "support_vectors": [1.0, 1.0],
    "rho": [0.0],
}


@pytest.mark.parametrize(
    ("operator", "attributes", "expected"),
    [
        ("Scaler", {"scale": [1.0, 1.0], "offset": [0.5, 0.5]}, ["loads", "loads", "loads"]),
        ("Scaler", {"scale": [1.0], "offset": [0.5, 0.5]}, ["refused", "refused", "refused"]),
        ("Scaler", {"scale": [1.0]}, ["refused", "refused", "refused"]),
        ("Scaler", {}, ["refused", "refused", "refused"]),
        ("SVMRegressor", SUPPORTS, ["loads", "loads", "loads"]),
        ("SVMRegressor", SUPPORTS | {"coefficients": [1.0]}, ["loads", "refused", "refused"]),
        ("SVMRegressor", SUPPORTS | {"support_vectors": [1.0]}, ["loads", "refused", "refused"]),
    ],
)
def test_lists_that_fit(operator: str, attributes: dict[str, object], expected: list[str]) -> None:
    """Lists must have the same length, or values for each support vector."""
    assert expected == [verdict(operator, attributes, release) for release in ("1.25.1", "1.26.0", "1.32.0")]


@pytest.mark.parametrize(
    ("intercepts", "labels", "expected"),
    [
        ([0.0], None, "loads"),
        ([0.0], [1, 2], "loads"),
        ([0.0], [1], "refused"),
        ([0.0], [1, 2, 3], "refused"),
        ([0.0, 0.0], None, "refused"),
        ([0.0, 0.0], [1], "refused"),
        ([0.0, 0.0], [1, 2, 3], "loads"),
    ],
)
def test_labels_of_classes(intercepts: list[float], labels: list[int] | None, expected: str) -> None:
    """Since 1.28.0, each class of a LinearClassifier must have a label, and two classes may share an intercept."""
    found: dict[str, object] = {"intercepts": intercepts, "coefficients": [1.0] * 2 * len(intercepts)}
    found |= {"classlabels_ints": labels} if labels else {}
    releases = ("1.27.0", "1.28.0")

    assert ["loads", expected] == [verdict("LinearClassifier", found, release) for release in releases]


@pytest.mark.parametrize(
    ("release", "expected"),
    [("1.20.1", "refused"), ("1.21.1", "unknown"), ("1.24.4", "unknown"), ("1.25.0", "refused")],
)
def test_classes_of_trees(release: str, expected: str) -> None:
    """Releases that do not compare the lists of a TreeEnsembleClassifier may crash."""
    classes = {name.replace("target", "class"): it for name, it in REGRESSOR.items() if name != "n_targets"}
    attributes = classes | {"class_ids": [0, 1, 0], "classlabels_int64s": [0, 1]}

    assert expected == verdict("TreeEnsembleClassifier", attributes, release)


@pytest.mark.parametrize(
    "changed",
    [
        {"nodes_featureids": [1, -1, 2**40]},
        {"nodes_truenodeids": [2, 0, 0], "nodes_falsenodeids": [1, 0, 0]},
        {"nodes_treeids": [2**32, 0, 0]},
    ],
)
def test_trees_that_load(changed: dict[str, object]) -> None:
    """Features of leaves are not read, and numbers of trees have 32 bits."""
    assert ["loads"] * 2 == [verdict("TreeEnsembleRegressor", REGRESSOR | changed, it) for it in ("1.16.3", "1.32.0")]


def test_nodes_that_are_not_read() -> None:
    """Releases up to 1.20.1 require that the first node of a tree leads to all others, except for 1.16.0."""
    changed = REGRESSOR | {"nodes_modes": ["LEAF", "BRANCH_LEQ", "LEAF"], "nodes_featureids": [0, -1, 0]}
    changed |= {"nodes_truenodeids": [0, 2, 0], "nodes_falsenodeids": [0, 0, 0], "target_nodeids": [0, 2]}

    found = [verdict("TreeEnsembleRegressor", changed, release) for release in ("1.16.0", "1.16.1", "1.20.1", "1.32.0")]
    assert found == ["loads", "refused", "refused", "loads"]


TREES = (
    "n_targets = 1, leaf_targetids = [0, 0], nodes_splits = float[2] {0, 0}, leaf_weights = float[2] {1, 2}, "
    "nodes_modes = uint8[2] {0, 0}, nodes_trueleafs = [0, 1], nodes_falseleafs = [1, 1], nodes_falsenodeids = [0, 1]"
)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("tree_roots = [0], nodes_truenodeids = [1, 0], nodes_featureids = [0, 0]", ["loads"] * 4),
        ("tree_roots = [0, 1], nodes_truenodeids = [1, 0], nodes_featureids = [0, 0]", ["loads"] * 4),
        ("tree_roots = [1], nodes_truenodeids = [-7, 0], nodes_featureids = [-1, 0]", ["loads"] * 4),
        ("tree_roots = [0], nodes_truenodeids = [1, 0], nodes_featureids = [0, -1]", ["loads"] + ["refused"] * 3),
        ("tree_roots = [0], nodes_truenodeids = [0, 0], nodes_featureids = [0, 0]", ["loads"] * 2 + ["refused"] * 2),
        ("tree_roots = [2], nodes_truenodeids = [1, 0], nodes_featureids = [0, 0]", ["unknown"] * 2 + ["refused"] * 2),
    ],
)
def test_trees_with_roots(changed: str, expected: list[str]) -> None:
    """Releases read a TreeEnsemble from its roots on, and check only what they read."""
    model = (
        '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 5]> g (float[N, 2] x) => (float[N, 1] y) '
        f"{{ y = ai.onnx.ml.TreeEnsemble <{TREES}, {changed}> (x) }}"
    )
    releases = ("1.26.0", "1.29.0", "1.30.0", "1.32.0")

    assert expected == [prediction(model, release).verdict for release in releases]


@pytest.mark.parametrize(
    ("opset", "type_name", "body", "expected"),
    [
        (3, "float[N, 2]", "ai.onnx.ml.Imputer <replaced_value_float = 0.0> (x)", ["refused"] * 2),
        (3, "float[N, 2]", "ai.onnx.ml.Imputer <imputed_value_floats = [1.0]> (x)", ["loads"] * 2),
        (3, "map(int64, float)", 'ai.onnx.ml.CastMap <map_form = "SPARSE", max_map = 0> (x)', ["refused"] * 2),
        (3, "map(int64, float)", 'ai.onnx.ml.CastMap <map_form = "DENSE", max_map = 0> (x)', ["loads"] * 2),
        (1, "string[N]", "ai.onnx.ml.LabelEncoder <default_int64 = 1> (x)", ["refused"] * 2),
        (1, "string[N]", 'ai.onnx.ml.LabelEncoder <classes_strings = ["a"]> (x)', ["loads"] * 2),
    ],
)
def test_required_attributes(opset: int, type_name: str, body: str, expected: list[str]) -> None:
    """Kernels require attributes that schemas do not."""
    model = (
        f'<ir_version: 8, opset_import: ["" : 15, "ai.onnx.ml" : {opset}]> g ({type_name} x) => (y) {{ y = {body} }}'
    )

    assert expected == [prediction(model, release).verdict for release in ("1.16.3", "1.32.0")]


@pytest.mark.parametrize(
    ("labels", "bases", "expected"),
    [(2, 1, "loads"), (2, 2, "loads"), (2, 3, "refused"), (3, 3, "loads"), (3, 1, "refused")],
)
def test_base_values_of_classes(labels: int, bases: int, expected: str) -> None:
    """Since 1.27.0, a TreeEnsembleClassifier of more than two classes needs a base value for each, or none."""
    classes = {name.replace("target", "class"): it for name, it in REGRESSOR.items() if name != "n_targets"}
    attributes = classes | {"classlabels_int64s": list(range(labels)), "base_values": [0.5] * bases}

    found = [verdict("TreeEnsembleClassifier", attributes, release) for release in ("1.26.0", "1.27.0")]
    assert found == ["loads", expected]
