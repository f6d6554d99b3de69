"""Long attribute lists stay in the file, and every reader returns the same results as for a complete model."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto, helper

from onnxgate.model.diff import text_description
from onnxgate.model.equality.model_comparison import GraphComparison
from onnxgate.model.reading import structure
from onnxgate.model.reading.fact_extraction import read_attributes
from onnxgate.model.reading.file_format import UnreadableModel, encode_length_prefix
from onnxgate.model.reading.omitted_data import (
    OMITTED_KEY,
    OMITTED_LISTS,
    find_omitted_list,
    read_omitted_list,
    restore_lists,
)
from onnxgate.model.reading.structure import read_light_view, read_structure, read_view
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.reduced_models import NodeSurroundings, extract_node
from onnxgate.model.validity import ModelFault, find_fault
from onnxgate.support.matching.attribute_values import LongList, read_attribute_values
from onnxgate.support.matching.type_inference import infer_model_types
from tests.harness.models import write

HELD, OMITTED = 10**9, 0
"""Values of `large_bytes`."""
NODES = 6000
NODE_LISTS: dict[str, list[object]] = {
    "nodes_treeids": [0] * NODES,
    "nodes_nodeids": list(range(NODES)),
    "nodes_featureids": [index % 61 for index in range(NODES)],
    "nodes_modes": ["LEAF" if index % 2 else "BRANCH_LEQ" for index in range(NODES)],
    "nodes_values": [index / 8 for index in range(NODES)],
    "nodes_hitrates": [1.0] * NODES,
    "nodes_truenodeids": list(range(NODES)),
    "nodes_falsenodeids": list(range(NODES)),
    "nodes_missing_value_tracks_true": [0] * NODES,
}


def leaves(prefix: str) -> dict[str, list[object]]:
    """Return the leaf lists of a classifier or a regressor."""
    numbers = {f"{prefix}_{name}": list[object](range(NODES)) for name in ("treeids", "nodeids", "ids")}
    return {**numbers, f"{prefix}_weights": [0.5] * NODES}


FLOATS: list[object] = [0.25] * NODES
NUMBERS: list[object] = [*range(1, NODES), 0]
WORDS: list[object] = [f"word {index}" for index in range(NODES)]
LISTS: dict[str, dict[str, list[object]]] = {
    "TreeEnsembleClassifier": {**NODE_LISTS, **leaves("class")},
    "TreeEnsembleRegressor": {**NODE_LISTS, **leaves("target")},
    "TreeEnsemble": {
        **{name: NODE_LISTS[name] for name in ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids")},
        **dict.fromkeys(("nodes_trueleafs", "nodes_falseleafs", "nodes_missing_value_tracks_true"), [0] * NODES),
        **dict.fromkeys(("leaf_targetids", "tree_roots"), [0] * NODES),
    },
    "SVMClassifier": {"support_vectors": FLOATS, "coefficients": FLOATS},
    "SVMRegressor": {"support_vectors": FLOATS, "coefficients": FLOATS},
    "LinearClassifier": {"coefficients": FLOATS},
    "LinearRegressor": {"coefficients": FLOATS},
    "LabelEncoder": {"keys_strings": WORDS, "values_int64s": NUMBERS},
    "CategoryMapper": {"cats_strings": WORDS, "cats_int64s": NUMBERS},
    "DictVectorizer": {"string_vocabulary": WORDS},
    "Imputer": {"imputed_value_floats": FLOATS},
    "Scaler": {"offset": FLOATS, "scale": FLOATS},
    "StringNormalizer": {"stopwords": WORDS},
    "TfIdfVectorizer": {"pool_strings": WORDS, "ngram_indexes": NUMBERS, "weights": FLOATS},
}
STRING_INPUTS = {"LabelEncoder", "CategoryMapper", "StringNormalizer", "TfIdfVectorizer"}
OPERATORS = [name for _, name in OMITTED_LISTS if name != "Constant"]
DOMAINS = {name: "" if domain == "ai.onnx" else domain for domain, name in OMITTED_LISTS}
SHORT: dict[str, dict[str, object]] = {
    "TreeEnsembleClassifier": {"classlabels_int64s": [0, 1, 2], "base_values": [0.0, 0.0, 0.0]},
    "TreeEnsembleRegressor": {"n_targets": 1},
    "SVMClassifier": {"classlabels_ints": [0, 1, 2], "kernel_params": [0.1, 0.0, 3.0]},
    "LinearClassifier": {"classlabels_ints": [0, 1, 2], "intercepts": [0.0, 0.0, 0.0]},
    "Imputer": {"replaced_value_float": 0.0},
    "TfIdfVectorizer": {
        "max_gram_length": 1,
        "max_skip_count": 0,
        "min_gram_length": 1,
        "mode": "TF",
        "ngram_counts": [0],
    },
}
TENSORS: dict[str, dict[str, int]] = {
    "TreeEnsemble": {
        **dict.fromkeys(("nodes_splits", "nodes_hitrates", "leaf_weights"), TensorProto.FLOAT),
        "nodes_modes": TensorProto.UINT8,
    }
}
"""Operator -> attribute -> type of a tensor that is as long as the lists."""


def make_tensor(element: int, *dims: int) -> TensorProto:
    """Return a tensor of zeros."""
    size = helper.tensor_dtype_to_np_dtype(element).itemsize
    return TensorProto(data_type=element, dims=dims, raw_data=bytes(size * math.prod(dims)))


def make_model(operator: str = "TreeEnsembleRegressor", version: int = 3, **attributes: object) -> ModelProto:
    """Return a model of one node with lists of 6,000 elements; attributes that are None are omitted."""
    tensors = {name: make_tensor(element, NODES) for name, element in TENSORS.get(operator, {}).items()}
    both = {**LISTS[operator], **SHORT.get(operator, {}), **tensors, **attributes}
    names = ["label", "scores"] if operator.endswith("Classifier") else ["scores"]
    node = helper.make_node(
        operator,
        ["x"],
        names,
        domain=DOMAINS[operator],
        **{name: value for name, value in both.items() if value is not None},
    )
    last = helper.make_node("Identity", ["scores"], ["y"])  # the type of `scores` is inferred
    outputs = [helper.make_tensor_value_info("y", 1, ["N", "E"])]
    if operator in ("LabelEncoder", "CategoryMapper"):
        outputs[0].type.tensor_type.elem_type = TensorProto.INT64
    elif operator == "StringNormalizer":
        outputs[0].type.tensor_type.elem_type = TensorProto.STRING
    if len(names) > 1:
        outputs.insert(0, helper.make_tensor_value_info("label", 7, ["N"]))
    element = TensorProto.STRING if operator in STRING_INPUTS else TensorProto.FLOAT
    value = helper.make_tensor_value_info("x", element, [1, "M"] if operator == "StringNormalizer" else ["N", 61])
    if operator == "DictVectorizer":
        tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
        value = helper.make_value_info("x", helper.make_map_type_proto(TensorProto.STRING, tensor))
    graph = helper.make_graph([node, last], "g", [value], outputs)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    model: ModelProto = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return model


def list_omitted(model: ModelProto) -> set[str]:
    """Return the names of attributes whose lists are omitted."""
    return {it.name for node in ModelView(model).nodes() for it in node.attributes if find_omitted_list(it)}


@pytest.mark.parametrize("operator", OPERATORS)
def test_long_lists_stay_in_the_file(tmp_path: Path, operator: str) -> None:
    """The structure has a few elements of each list and the position of the rest."""
    model = make_model(operator)
    path = write(tmp_path / "m.onnx", model)

    structure = read_structure(path, large_bytes=OMITTED)
    size, omitted = structure.ByteSize(), list_omitted(structure)
    counts = {it.count for node in structure.graph.node for at in node.attribute if (it := find_omitted_list(at))}
    restore_lists((structure.graph,), path)
    complete, read = (
        [it for it in each.graph.node[0].attribute if it.type != AttributeProto.TENSOR] for each in (model, structure)
    )

    assert (set(LISTS[operator]), {NODES}, True, complete) == (omitted, counts, size < 4096, read)


@pytest.mark.parametrize("operator", OPERATORS)
def test_static_checks_leave_them_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str) -> None:
    """Static checks omit lists even in files that other stages read completely, and tensors do not change that."""
    path = write(tmp_path / "m.onnx", make_model(operator))
    monkeypatch.setattr(structure, "LIGHT_BYTES", 1000)

    assert list_omitted(read_light_view(path).proto) == set(LISTS[operator])
    assert find_fault(read_light_view(path), path) == find_fault(read_view(path), path)


ELEMENTS = {
    "floats": st.floats(width=32, allow_nan=False),
    "ints": st.sampled_from([0, 1, -1, 0x3D, 0x40, 0x4A, 64 << 7, 61 << 14, 2**63 - 1, -(2**63)]) | st.integers(0, 300),
    "strings": st.sampled_from([b"", b"LEAF", b"BRANCH_LEQ", b"J" * 12, b"@=J\x0a", b"\x3d" * 20]),
}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(sorted(ELEMENTS)), repeats=st.sampled_from([1, 4000, 20_000]))
def test_restored_lists_equal_those_of_onnx(tmp_path: Path, data: st.DataObject, kind: str, repeats: int) -> None:
    """Restored lists are correct for any division into chunks, even if elements look like the start of another one."""
    elements = data.draw(st.lists(ELEMENTS[kind], min_size=1, max_size=12)) * repeats
    name = {"floats": "nodes_values", "ints": "nodes_nodeids", "strings": "nodes_modes"}[kind]
    attribute = AttributeProto(name=name, type=kind.upper(), **{kind: elements})
    model = ModelProto(ir_version=8)
    model.graph.node.add(op_type="TreeEnsembleRegressor", domain="ai.onnx.ml").attribute.append(attribute)
    path = write(tmp_path / "m.onnx", model)

    structure = read_structure(path, large_bytes=OMITTED, small_bytes=16)
    stub = structure.graph.node[0].attribute[0]
    omitted = find_omitted_list(stub)
    shown = (omitted.count, read_omitted_list(omitted, path)) if omitted else (len(elements), stub)

    assert (len(elements), attribute) == shown
    assert omitted is not None or attribute.ByteSize() <= 16


def get_node_ids(model: ModelProto) -> AttributeProto:
    """Return one of the attributes that are omitted."""
    return next(it for it in model.graph.node[0].attribute if it.name == "nodes_nodeids")


def rename(model: ModelProto, function: FunctionProto) -> None:
    """Make the first node a call to a local function."""
    model.graph.node[0].op_type, model.graph.node[0].domain = function.name, function.domain


UNUSUAL: dict[str, Callable[[ModelProto], object]] = {
    "a document string": lambda model: setattr(get_node_ids(model), "doc_string", "mine"),
    "a reference": lambda model: setattr(get_node_ids(model), "ref_attr_name", "other"),
    "two lists": lambda model: get_node_ids(model).floats.append(1),
    "another type": lambda model: setattr(get_node_ids(model), "type", AttributeProto.FLOATS),
    "no type": lambda model: get_node_ids(model).ClearField("type"),
    "a number": lambda model: setattr(get_node_ids(model), "i", 5),
    "another operator": lambda model: setattr(model.graph.node[0], "op_type", "OneHotEncoder"),
    "another long name behind its own": lambda model: model.graph.node[0].MergeFrom(NodeProto(op_type="x" * 9000)),
    "a function of this name": lambda model: model.functions.add(name="TreeEnsembleRegressor", domain="ai.onnx.ml"),
    "a call to a function": lambda model: rename(model, model.functions.add(name="Mine", domain="mine")),
}


@pytest.mark.parametrize("unusual", UNUSUAL)
def test_lists_that_readers_may_need_are_complete(tmp_path: Path, unusual: str) -> None:
    """An attribute with other content, or of an operator whose lists are needed, is read completely."""
    model = make_model()
    UNUSUAL[unusual](model)
    path = write(tmp_path / "m.onnx", model)

    assert get_node_ids(model) == get_node_ids(read_structure(path, large_bytes=OMITTED))


def test_lists_of_other_operators_stay_in_the_file(tmp_path: Path) -> None:
    """Lists of operators that onnx does not define are omitted, because onnx does not read them."""
    model = make_model()
    model.graph.node[0].domain = "mine"
    path = write(tmp_path / "m.onnx", model)
    read = read_structure(path, large_bytes=OMITTED)
    omitted = list_omitted(read)
    restore_lists((read.graph,), path)

    assert set(LISTS["TreeEnsembleRegressor"]) == omitted
    assert model.graph.node[0] == read.graph.node[0]


def test_packed_lists_are_complete(tmp_path: Path) -> None:
    """Packed lists, which no exporter writes but protobuf accepts, are read completely."""
    numbers = b"\x05" * 9000
    packed = encode_length_prefix(1, 13) + b"nodes_nodeids" + b"\xa0\x01\x07" + encode_length_prefix(8, 9000) + numbers
    node = NodeProto(op_type="TreeEnsembleRegressor", domain="ai.onnx.ml").SerializeToString()
    node += encode_length_prefix(5, len(packed)) + packed
    graph = encode_length_prefix(1, len(node)) + node
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x08" + encode_length_prefix(7, len(graph)) + graph)

    for large_bytes in (HELD, OMITTED):
        read = read_structure(path, large_bytes=large_bytes)
        restore_lists((read.graph,), path)
        assert [5] * 9000 == list(read.graph.node[0].attribute[0].ints)


def test_training_information_is_complete(tmp_path: Path) -> None:
    """Training information is read completely, because it is compared as a whole."""
    model = make_model()
    model.training_info.add().algorithm.CopyFrom(model.graph)
    path = write(tmp_path / "m.onnx", model)

    assert model.training_info == read_structure(path, large_bytes=OMITTED).training_info


def test_document_strings_need_not_be_text(tmp_path: Path) -> None:
    """Document strings may be invalid UTF-8, which protobuf returns as bytes."""
    model = make_model()
    get_node_ids(model).doc_string = "doc?"
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString().replace(b"doc?", b"doc\xff"))

    assert find_omitted_list(get_node_ids(read_structure(path, large_bytes=OMITTED))) is None


# Validity and types


def changes_of(operator: str) -> dict[str, dict[str, object]]:
    """Return variants of the operator's attributes: other lengths and types, missing and empty ones."""
    variants: dict[str, dict[str, object]] = {"valid": {}, "unknown": {"nodes_nothing": [1] * 100}}
    for name, elements in LISTS[operator].items():
        variants |= {
            f"{name} is shorter": {name: elements[:50]},
            f"{name} has one element": {name: elements[:1]},
            f"{name} is missing": {name: None},
            f"{name} is of other numbers": {name: elements[:100][::-1]},
            **({f"{name} has a negative element": {name: [*elements[:99], -1]}} if elements[0] == 1 else {}),
            f"{name} is of another kind": {name: ["text"] * 100 if isinstance(elements[0], float) else [0.5] * 100},
        }
    for name, element in TENSORS.get(operator, {}).items():
        variants |= {
            f"{name} is missing": {name: None},
            f"{name} is a list": {name: [1] * 100},
            f"{name} is longer": {name: make_tensor(element, 101)},
            f"{name} is small": {name: make_tensor(element, 1)},
            f"{name} has two axes": {name: make_tensor(element, 100, 1)},
            f"{name} is of another type": {name: make_tensor(TensorProto.DOUBLE, 100)},
        }
    for name in SHORT.get(operator, {}):
        variants[f"{name} is missing"] = {name: None}
    return variants


def check(path: Path, large_bytes: int) -> tuple[ModelFault | None, list[object], list[object]]:
    """Return the fault, and the attributes with their lengths, and the types that matching reads."""
    model = read_view(path, large_bytes=large_bytes, small_bytes=64)
    nodes = infer_model_types(model).nodes
    types: list[object] = [node.type_of(name) for node in nodes for name in node.proto.output]
    values = [value for node in nodes for value in read_attribute_values(node.operation).items()]
    lists = [(name, it) for name, it in values if isinstance(it, LongList | tuple)]
    attributes: list[object] = [(it.name, it.kind) for node in nodes for it in node.operation.attributes]
    attributes += [(name, it.count if isinstance(it, LongList) else len(it)) for name, it in lists]
    return find_fault(model, path), attributes, types


@pytest.mark.parametrize("operator", OPERATORS)
def test_omission_does_not_change_onnx_results(tmp_path: Path, operator: str) -> None:
    """Omitted lists change no result of the checker or of shape inference, in any version of the operator."""
    faults = set()
    short: dict[str, object] = {name: elements[:100] for name, elements in LISTS[operator].items()}
    short |= {name: make_tensor(element, 100) for name, element in TENSORS.get(operator, {}).items()}
    for version in (1, 2, 3, 4, 5):
        for name, attributes in changes_of(operator).items():
            path = write(tmp_path / "m.onnx", make_model(operator, version, **{**short, **attributes}))
            held = check(path, HELD)

            assert (version, name, held) == (version, name, check(path, OMITTED))
            faults.add(held[0] is None)
    assert {True, False} == faults


def test_operations_with_omitted_lists_are_equal(tmp_path: Path) -> None:
    """Operations with omitted lists are equal to complete ones, so that cached results apply to both."""
    path = write(tmp_path / "m.onnx", make_model())

    held, omitted = (infer_model_types(read_view(path, large_bytes=it)).nodes for it in (HELD, OMITTED))
    assert held[0].operation == omitted[0].operation


# Constants

CONSTANTS: dict[str, list[object]] = {"value_floats": FLOATS, "value_ints": NUMBERS, "value_strings": WORDS}


def make_constant(opset: int = 17, rows: int = 2, operator: str = "Reshape", **lists: object) -> ModelProto:
    """Return a model that reshapes a constant with this list to `rows` rows; both are attributes of `Constant`."""
    constants = [
        helper.make_node("Constant", [], ["data"], **lists),
        helper.make_node("Constant", [], ["shape"], value_ints=[rows, -1]),
    ]
    inputs = ["data", "shape"] if operator == "Reshape" else ["data"]
    node = helper.make_node(operator, inputs, ["y"])
    element = {"value_floats": 1, "value_ints": 7, "value_strings": 8}[next(iter(lists), "value_floats")]
    graph = helper.make_graph([*constants, node], "g", [], [helper.make_tensor_value_info("y", element, None)])
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return model


CONSTANT_CASES: dict[str, tuple[dict[str, Any], bool]] = {
    "valid": ({}, True),
    "rows that do not fit": ({"rows": 7}, True),
    "an operator that takes no list": ({"operator": "Transpose", "rows": 1}, True),
    "an opset without lists": ({"opset": 11}, False),
    "two values": ({"value_float": 1.0}, False),
}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("case", CONSTANT_CASES)
def test_omitted_constants_keep_their_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, case: str
) -> None:
    """The list of a `Constant` becomes a tensor whose type and shape are known; faults and types are the same."""
    monkeypatch.setattr(structure, "LIGHT_BYTES", 1000)
    options, omits = CONSTANT_CASES[case]
    path = write(tmp_path / "m.onnx", make_constant(**{name: CONSTANTS[name], **options}))
    complete, light = read_view(path), read_light_view(path)
    results = []
    for view in (complete, light):
        nodes = infer_model_types(view).nodes
        results.append((find_fault(view, path), [node.type_of(name) for node in nodes for name in node.proto.output]))

    assert results[0] == results[1]
    assert omits == (light.proto.ByteSize() < 2000)


@pytest.mark.parametrize("name", CONSTANTS)
def test_omitted_constants_are_compared(tmp_path: Path, name: str) -> None:
    """A changed element of an omitted `Constant` is found, and equal ones are equal to complete ones."""
    changed = [*CONSTANTS[name]]
    changed[4321] = changed[0] if name != "value_floats" else 9.0

    same = pairs(tmp_path, make_constant(**{name: CONSTANTS[name]}), make_constant(**{name: CONSTANTS[name]}))
    first, *others = pairs(tmp_path, make_constant(**{name: CONSTANTS[name]}), make_constant(**{name: changed}))
    assert ([[]] * 4, [first] * 3, 1) == (same, others, len(first))


@pytest.mark.parametrize("name", CONSTANTS)
def test_omitted_constants_can_be_restored(tmp_path: Path, name: str) -> None:
    """Nodes get their lists back, and the text description does not depend on omission."""
    model = make_constant(**{name: CONSTANTS[name]})
    path = write(tmp_path / "m.onnx", model)
    read = read_structure(path, large_bytes=OMITTED)
    held, omitted = (
        [*text_description._describe_structure(read_view(path, large_bytes=it), path)] for it in (HELD, OMITTED)
    )
    size = read.ByteSize()
    restore_lists((read.graph,), path)

    assert (model, held, True) == (read, omitted, size < 2000)


# Equality and texts


def pairs(tmp_path: Path, old: ModelProto, new: ModelProto) -> list[list[str]]:
    """Return the differences for each combination of complete and omitted lists."""
    first, second = write(tmp_path / "old.onnx", old), write(tmp_path / "new.onnx", new)
    differences = []
    for sizes in ((HELD, HELD), (HELD, OMITTED), (OMITTED, HELD), (OMITTED, OMITTED)):
        a, b = (read_view(path, large_bytes=size) for path, size in zip((first, second), sizes, strict=True))
        differences.append([text for _, text in GraphComparison(a, first, b, second).differences])
    return differences


@pytest.mark.parametrize("name", LISTS["TreeEnsembleRegressor"])
def test_one_element_makes_a_difference(tmp_path: Path, name: str) -> None:
    """Omitted elements are compared in the file."""
    elements = [*LISTS["TreeEnsembleRegressor"][name]]
    elements[4321] = "BRANCH_LT" if name == "nodes_modes" else 99
    text = f"node 0 `ai.onnx.ml.TreeEnsembleRegressor`: attribute `{name}` differs in 1 of 6,000 elements"

    assert [[text]] * 4 == pairs(tmp_path, make_model(), make_model(**{name: [*map(type(elements[0]), elements)]}))


def test_equal_elements_are_no_difference(tmp_path: Path) -> None:
    """The order of attributes is ignored, and NaN and both zeros are equal."""
    old, new = (make_model(nodes_values=[float("nan"), zero] * (NODES // 2)) for zero in (0.0, -0.0))
    attributes = [*new.graph.node[0].attribute]
    del new.graph.node[0].attribute[:]
    new.graph.node[0].attribute.extend(reversed(attributes))

    assert [[]] * 4 == pairs(tmp_path, old, new)


@pytest.mark.parametrize("elements", [[0.5] * 7000, [0.5] * 3000, [0.5] * 3, None])
def test_lists_of_other_lengths_differ(tmp_path: Path, elements: list[float] | None) -> None:
    """Lists of different lengths differ, whether they are omitted or not."""
    held, *others = pairs(tmp_path, make_model(), make_model(target_weights=elements))

    assert ([held] * 3, 1) == (others, len(held))
    assert elements is None or f"changed from 6,000 to {len(elements):,} elements" in held[0]


def test_few_long_strings_are_a_tuple(tmp_path: Path) -> None:
    """A list with few elements is returned as a tuple even if it is omitted."""
    path = write(tmp_path / "m.onnx", make_model(nodes_modes=["x" * 900] * 10))

    values = [
        read_attributes(read_structure(path, large_bytes=it).graph.node[0], 3, {}.get, path)["nodes_modes"]
        for it in (HELD, OMITTED)
    ]
    assert [(b"x" * 900,) * 10] * 2 == values


def test_texts_are_the_same(tmp_path: Path) -> None:
    """The text description does not depend on omission."""
    path = write(tmp_path / "m.onnx", make_model())

    held, omitted = (
        [*text_description._describe_structure(read_view(path, large_bytes=it), path)] for it in (HELD, OMITTED)
    )
    assert held == omitted


def test_extracted_nodes_are_complete(tmp_path: Path) -> None:
    """A model extracted for a runtime always contains the complete lists."""
    model = make_model()
    path = write(tmp_path / "m.onnx", model)
    types = {value.name: value.type for value in (*model.graph.input, *model.graph.output)}
    around = NodeSurroundings({"ai.onnx": 18, "ai.onnx.ml": 3}, types.get, {}, {})
    node = read_structure(path, large_bytes=OMITTED).graph.node[0]

    data = extract_node(node, around, 8, path)
    assert data is not None
    path.unlink()

    assert model.graph.node[0] == onnx.load_from_string(data).graph.node[0]
    assert extract_node(node, around, 8, path) is None


# Damage


def outcome(path: Path, large_bytes: int) -> object:
    """Return the serialized model, or the reason why it cannot be read."""
    try:
        model = read_structure(path, large_bytes=large_bytes)
        restore_lists((model.graph, *model.functions), path)
    except UnreadableModel as reason:
        return str(reason)
    return model.SerializeToString(deterministic=True)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_is_reported_as_before(tmp_path: Path, data: st.DataObject) -> None:
    """A file that is damaged or truncated inside a list has the same error message as without omission."""
    content = bytearray(make_model().SerializeToString())
    for _ in range(data.draw(st.integers(0, 2))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "m.onnx"
    path.write_bytes(content[: data.draw(st.just(len(content)) | st.integers(0, len(content)))])

    assert outcome(path, HELD) == outcome(path, OMITTED)


def test_marks_cannot_be_forged(tmp_path: Path) -> None:
    """A file cannot contain forged marks of omitted lists."""
    model = make_model()
    get_node_ids(model).doc_string = f"{OMITTED_KEY.rpartition('.')[0]}.0:1:0:9"
    path = write(tmp_path / "m.onnx", model)

    assert find_omitted_list(get_node_ids(read_structure(path, large_bytes=OMITTED))) is None


READ = """
import resource, sys
from pathlib import Path
import onnx
from onnxgate.model.reading.structure import read_light_view
from onnxgate.model.validity import find_fault
path = Path(sys.argv[1])
find_fault(read_light_view(path.with_name("small.onnx")), path)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
find_fault(read_light_view(path), path)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


LONG_STRINGS = {"TreeEnsembleRegressor": "nodes_modes", "LabelEncoder": "keys_strings", "Constant": "value_strings"}


@pytest.mark.skipif(sys.platform == "win32", reason="it has no `resource`")
@pytest.mark.parametrize("operator", LONG_STRINGS)
def test_memory_does_not_grow_with_lists(tmp_path: Path, operator: str) -> None:
    """Reading and checking a file with a list of 100 MB, which takes 600 MB in protobuf, needs little memory."""
    elements = b"\x4a\x04LEAF" * 16_000_000
    head = AttributeProto(name=LONG_STRINGS[operator], type=AttributeProto.STRINGS).SerializeToString()
    attribute = encode_length_prefix(5, len(head) + len(elements)) + head
    output = [] if operator != "Constant" else ["y"]
    node = NodeProto(op_type=operator, domain=DOMAINS[operator], output=output).SerializeToString() + attribute
    path = tmp_path / "m.onnx"
    imports = encode_length_prefix(8, 2) + b"\x10\x11"
    with path.open("wb") as file:
        size = len(node) + len(elements)
        inner = encode_length_prefix(1, size) + node
        file.write(b"\x08\x08" + imports + encode_length_prefix(7, len(inner) + len(elements)) + inner + elements)
    write(tmp_path / "small.onnx", make_constant(value_ints=[1, 2]))

    run = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, check=True)

    assert int(run.stdout) < 20
