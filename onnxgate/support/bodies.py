"""Function bodies of operators, as a release would expand them where it has no kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from onnxgate.model.functions import Body, body_of, defaults_of, has_body, instantiate, schema_of
from onnxgate.model.types import type_proto
from onnxgate.support.operations import Operation, TypedNode
from onnxgate.support.table import Implementation, Schema
from onnxgate.support.typing import typed_nodes

if TYPE_CHECKING:
    from onnx import NodeProto

DEFAULT = "ai.onnx"
Expansion = tuple[TypedNode, ...] | str | None
"""Nodes; why it cannot be told; None where there is no body."""


def expand(operation: Operation, schema: Schema, implementation: Implementation) -> Expansion:
    """The operation's body as the release takes it: not, where an operator in it has changed since it was written."""
    found = _body(operation, schema.since)
    if not isinstance(found, _Expanded):
        return found
    if not found.contextual and not _is_current(found.body, operation.opset, implementation):
        return None
    return found.nodes


class _Expanded:
    """A body and its nodes at one call; the nodes are typed when they are asked for."""

    def __init__(self, body: Body, contextual: bool, type_nodes: Callable[[], tuple[TypedNode, ...]]) -> None:
        self.body = body
        self.contextual = contextual
        self._type_nodes = type_nodes

    @functools.cached_property
    def nodes(self) -> tuple[TypedNode, ...]:
        return self._type_nodes()


@functools.lru_cache(maxsize=4096)
def _body(operation: Operation, since: int) -> _Expanded | str | None:
    schema = schema_of(operation.domain, operation.name, since)
    if schema is None:
        return _unknown(operation, since)
    if not has_body(schema):
        return None
    node = _node(operation)
    types = [None if each is None else type_proto(each) for each in operation.inputs]
    body = body_of(schema, operation.opset, node, types)
    if body is None:
        return None

    def type_nodes() -> tuple[TypedNode, ...]:
        imports = {imported.domain: imported.version for imported in body.function.opset_import}
        imports[""] = operation.opset
        model = instantiate(body.function, node, types, imports=imports, defaults=defaults_of(schema))
        return typed_nodes(model)

    return _Expanded(body, schema.has_context_dependent_function, type_nodes)


def _unknown(operation: Operation, since: int) -> str | None:
    if operation.domain != DEFAULT:
        return None
    import onnx

    return f"the installed onnx {onnx.__version__} does not know `{operation.name}({since})`, which may have a body"


def _node(operation: Operation) -> NodeProto:
    from onnx import AttributeProto, NodeProto

    node = NodeProto(op_type=operation.name, domain="" if operation.domain == DEFAULT else operation.domain)
    node.input.extend("" if each is None else f"i{index}" for index, each in enumerate(operation.inputs))
    node.output.extend("" if each is None else f"o{index}" for index, each in enumerate(operation.outputs))
    node.attribute.extend(AttributeProto.FromString(each.data) for each in operation.attributes if each.data)
    return node


def _is_current(body: Body, opset: int, implementation: Implementation) -> bool:
    for node in body.function.node:
        operator = implementation.operator(node.domain or DEFAULT, node.op_type)
        if operator is None:
            return False
        if not node.domain and operator.schema(body.written_for) is not operator.schema(opset):
            return False
    return True
