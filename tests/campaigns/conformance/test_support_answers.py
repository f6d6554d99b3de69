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


def test_only_supported_answers_have_explanations() -> None:
    """If a node loads although no release should support it, the answer is wrong."""
    assert "scales" in explain(Case("ai.onnx/Resize(13)@13 T1=tensor(float)", "kernel", ()))
    assert explain(Case("ai.onnx/Resize(13)@13 T1=tensor(bool)", "none", ())) == ""
    assert explain(Case("ai.onnx/Add(14)@14 T=tensor(float)", "kernel", ())) == ""
