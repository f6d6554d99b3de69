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
    for node, entered in _asked(prepared.nodes, implementation):
        answer: Answer = _not_imported(node, implementation)
        if answer is None and not entered:
            answer = match(node.operation, implementation, providers)
        if isinstance(answer, Miss):
            yield Found(_detached(node), answer)
        elif answer is not None:
            yield Found(_detached(node), None, answer)


def _asked(nodes: Iterable[TypedNode], implementation: Implementation) -> Iterator[tuple[TypedNode, bool]]:
    """The nodes that the release sees, and whether it takes a node for a call of a local function."""
    for node in nodes:
        entered = node.calls and not _is_own(node.operation, implementation)
        yield node, entered
        if entered or not node.calls:
            yield from _asked(node.inner, implementation)


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
