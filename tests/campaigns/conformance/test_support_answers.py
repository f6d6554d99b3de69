"""The models with which answers of `onnxgate support` are compared."""

from __future__ import annotations

import onnx

from campaigns.conformance.support_answers import Case, explain, make_cases


def context(model: onnx.ModelProto) -> onnx.checker.C.CheckerContext:
    """Return the versions with which onnx checks a node."""
    made = onnx.checker.C.CheckerContext()
    made.ir_version = model.ir_version
    made.opset_imports = {imported.domain: imported.version for imported in model.opset_import}
    return made


def test_each_answer_has_its_models() -> None:
    """Each model has one node of the operator, with the types in question; the checker of onnx accepts it."""
    cases, models = make_cases("1.26.0", "Gelu|Cast|Concat|InstanceNormalization")

    assert {case.way for case in cases} == {"kernel", "function", "cast", "none"}
    assert {name for case in cases for name in case.models} == models.keys()
    for name, data in models.items():
        model = onnx.load_from_string(data)
        (node,) = model.graph.node

        assert name.startswith(f"{node.domain or 'ai.onnx'}/{node.op_type}(")
        if not node.domain:
            onnx.checker.check_node(node, context(model))


def test_questions_cover_opsets_that_a_release_refuses() -> None:
    """The answers about opsets that are too new, and about versions that a release lacks, are checked as well."""
    cases, models = make_cases("1.24.4", "Attention")
    reasons = {case.reason for case in cases if case.way == "none"}

    assert "opset 26 is too new" in reasons
    assert any("ai.onnx/Attention(24)@25" in name for name in models)


def test_types_that_do_not_suit_each_other_have_models() -> None:
    """A model shows whether a release really refuses two types together."""
    cases, models = make_cases("1.28.0", "OptionalGetElement")
    pairs = [case for case in cases if case.way == "none" and " O=" in case.name and " V=" in case.name]

    assert pairs
    assert all(name in models for case in pairs for name in case.models)


def test_nodes_have_optional_inputs() -> None:
    """Kernels require inputs that are optional in the schema, such as the scales of Resize."""
    _, models = make_cases("1.28.0", "Resize")
    nodes = [onnx.load_from_string(data).graph.node[0] for data in models.values()]

    assert {len(node.input) for node in nodes} >= {1, 3}


def test_attributes_set_the_type_of_the_result() -> None:
    """Nodes with another type of their result have the attribute for it, and not the one of the original node."""
    _, models = make_cases("1.24.4", "MelWeightMatrix|RandomNormalLike")
    graphs = [onnx.load_from_string(data).graph for data in models.values()]
    pairs = {
        (attribute.i, graph.output[0].type.tensor_type.elem_type)
        for graph in graphs
        for attribute in graph.node[0].attribute
        if attribute.name in ("dtype", "output_datatype")
    }

    assert len(pairs) > 1
    assert all(number == element for number, element in pairs)


def test_label_encoders_have_several_strings() -> None:
    """ONNX Runtime 1.25.0 to 1.26.0 refuses a LabelEncoder with a tensor that contains one string."""
    _, models = make_cases("1.26.0", "LabelEncoder")
    nodes = [onnx.load_from_string(data).graph.node[0] for data in models.values()]
    sizes = {len(attribute.t.string_data) for node in nodes for attribute in node.attribute if attribute.HasField("t")}

    assert sizes == {0, 2}


def test_only_supported_answers_have_explanations() -> None:
    """If a node loads although no release should support it, the answer is wrong."""
    assert "Identity" in explain(Case("ai.onnx/If(13)@13 V=tensor(float)", "kernel", ()))
    assert explain(Case("ai.onnx/If(13)@13 V=tensor(bool)", "none", ())) == ""
    assert explain(Case("ai.onnx/Add(14)@14 T=tensor(float)", "kernel", ())) == ""
