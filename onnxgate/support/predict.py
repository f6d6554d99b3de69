"""What a release does with a model: its stamps and each of its nodes, all misses at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from onnxgate.support.limits import Limits
from onnxgate.support.match import CPU, Answer, match
from onnxgate.support.operations import Found, Miss, Operation, Prediction, Prepared, TypedNode, nothing_known
from onnxgate.support.table import Implementation

_CLOSED = frozenset({"ai.onnx", "ai.onnx.ml", "ai.onnx.training"})
"""Domains that local functions add nothing to."""


def predict(
    prepared: Prepared, implementation: Implementation | None, limits: Limits, providers: Sequence[str] = (CPU,)
) -> Prediction:
    """All that the release refuses of the model. Without an implementation only the stamps are judged."""
    return Prediction(
        ir_too_new=prepared.ir_version > limits.ir,
        opsets_too_new=tuple(
            domain for domain, version in prepared.opsets.items() if version > limits.opsets.get(domain, version)
        ),
        found=() if implementation is None else tuple(_found(prepared, implementation, providers)),
    )


def _found(prepared: Prepared, implementation: Implementation, providers: Sequence[str]) -> Iterator[Found]:
    told = {node.operation for node in prepared.kinds if _answer(node, implementation, providers) is not None}
    for node in _seen(prepared.nodes, implementation) if told else ():
        answer = _answer(node, implementation, providers) if node.operation in told else None
        if isinstance(answer, Miss):
            yield Found(_detached(node), answer)
        elif answer is not None:
            yield Found(_detached(node), None, answer)


def _answer(node: TypedNode, implementation: Implementation, providers: Sequence[str]) -> Answer:
    """What the release makes of a node, whatever is inside it."""
    answer = _not_imported(node, implementation)
    if answer is not None:
        return answer
    if _is_entered(node, implementation):
        return node.unread or None
    return match(node.operation, implementation, providers)


def _seen(nodes: Iterable[TypedNode], implementation: Implementation) -> Iterator[TypedNode]:
    """The nodes that the release sees."""
    for node in nodes:
        yield node
        if node.inner and (not node.calls or _is_entered(node, implementation)):
            yield from _seen(node.inner, implementation)


def _is_entered(node: TypedNode, implementation: Implementation) -> bool:
    """Whether the release takes a node for a call of a local function."""
    return node.calls and not _is_own(node.operation, implementation)


def _is_own(operation: Operation, implementation: Implementation) -> bool:
    """Whether an operator is the release's own although a local function has its name: that is never called then.

    Source: loads of local functions named like operators, and of new ones in their domains, on ONNX Runtime 1.16 to
    1.31.
    """
    operator = implementation.operator(operation.domain, operation.name)
    version = operation.version or implementation.newest_opsets.get(operation.domain, 0)
    return operation.domain in _CLOSED or bool(operator and operator.schema(version))


def _not_imported(node: TypedNode, implementation: Implementation) -> Miss | None:
    """A model need not import what the release knows by itself; a local function must import all that it uses.

    Source: ONNX Runtime 1.16 to 1.31.
    """
    operation = node.operation
    if operation.version or (not node.within and operation.domain in implementation.newest_opsets):
        return None
    who = "its local function" if node.within else "the model"
    return Miss("unknown-domain", f"`{operation.label}` is of domain `{operation.domain}`, which {who} does not import")


def _detached(node: TypedNode) -> TypedNode:
    """The node without the model around it, which protobuf would keep in memory."""
    from onnx import NodeProto

    copy = NodeProto()
    copy.CopyFrom(node.proto)
    return replace(node, proto=copy, inner=(), type_of=nothing_known)
