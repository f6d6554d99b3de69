"""Match operations on engines whose tables were probed: releases that load a model with one node of each kind.

Such a table has kernels, one per version of an operator, but no schemas: the engines convert models when they load
them, and report what they cannot convert.
"""

from __future__ import annotations

from onnxgate.support.matching.node_checks import find_constrained_type
from onnxgate.support.matching.operations import Operation, SupportGap, TypedNode
from onnxgate.support.operators import Implementation, find_newest_schema

MatchResult = SupportGap | str | None


def match_probed_node(node: TypedNode, implementation: Implementation) -> MatchResult:
    """Return why a release rejects a node, or why this is unknown; None if it accepts the node.

    Nodes in the node's subgraphs or in the function that it calls are not checked.
    """
    if node.calls:
        return node.unread or None
    return match_probed_operation(node.operation, implementation)


def match_probed_operation(operation: Operation, implementation: Implementation) -> MatchResult:
    """Return why a release does not implement an operation, or why this is unknown; None if it does implement it."""
    if operation not in implementation.answers:
        implementation.answers[operation] = _decide(operation, implementation)
    return implementation.answers[operation]  # type: ignore[return-value]


def _decide(operation: Operation, implementation: Implementation) -> MatchResult:
    operator = implementation.operator(operation.domain, operation.name)
    schema = find_newest_schema(operation.domain, operation.name, operation.version)
    if operator is None or schema is None:
        return f"`{operation.label}` was not probed"
    kernels = [kernel for kernel in operator.kernels if kernel.start <= schema.since <= (kernel.end or schema.since)]
    if not kernels:
        return SupportGap("unknown-operator", f"`{operation.label}({schema.since})` is not implemented")
    for kernel in kernels:
        for key, types in kernel.constraints.items():
            found = find_constrained_type(schema, key, operation.inputs, operation.outputs)
            if found and found not in types:
                problem = f"there is no kernel for `{operation.label}({schema.since})` with `{key}` = `{found}`"
                return SupportGap("missing-kernel", problem, about=f"{key}={found}")
    return None
