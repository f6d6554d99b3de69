"""The rule `unknown-operator`."""

from __future__ import annotations

from onnxgate.core.findings import Place
from onnxgate.evidence.support import NodeGroup, RefusedOperation
from onnxgate.rules.support.unknown_operator import unknown_operator
from onnxgate.support.matching.operations import SupportGap
from onnxgate.support.matching.probed.node_matching import match_probed_node
from onnxgate.support.operators import get_implementation
from tests.support.matching.probed.test_node_matching import read


def test_local_functions_can_be_inlined() -> None:
    """tract takes a call for an operator. Source: tract 0.23.9 loads the model after it is inlined, not before."""
    body = '<domain: "local", opset_import: ["" : 18]> Twice (S) => (T) { T = Add (S, S) }'
    (node,) = read(f"g (float[2] x) => (float[2] y) {{ y = local.Twice (x) }}{body}").nodes
    implementation = get_implementation("0.23.9", "tract")
    assert implementation is not None
    gap = match_probed_node(node, implementation)
    assert isinstance(gap, SupportGap)
    subject = RefusedOperation(
        rule=gap.rule,
        model="m.onnx",
        place=Place("m.onnx"),
        runtimes=("tract 0.23.9",),
        problem=gap.problem,
        detail=gap.detail,
        operator="local.Twice",
        nodes=NodeGroup("", ""),
        about=gap.about,
    )
    (hit,) = unknown_operator.judge(subject)

    assert "inline the local functions, for example with `onnx.inliner.inline_local_functions`" == hit.fix
