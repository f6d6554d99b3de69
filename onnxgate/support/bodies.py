"""Function bodies of operators, as a release would expand them where it has no kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from onnxgate.findings import version_order
from onnxgate.model.functions import Body, body_of, defaults_of, has_body, instantiate, schema_of
from onnxgate.model.types import type_proto
from onnxgate.support import contributed
from onnxgate.support.operations import Operation, TypedNode
from onnxgate.support.table import Implementation, Schema
from onnxgate.support.typing import typed_nodes

if TYPE_CHECKING:
    from onnx import NodeProto

DEFAULT = "ai.onnx"
_BY_MODEL = version_order("1.17.0")
_NEWEST = 13
"""The opset that stands in where a model imports none of ai.onnx."""
Expansion = tuple[TypedNode, ...] | str | None
"""Nodes; why it cannot be told; None where there is no body."""


def expand(operation: Operation, schema: Schema, implementation: Implementation) -> Expansion:
    """The operation's body as the release takes it: not, where an operator in it has changed since it was written."""
    name = f"{operation.label}({schema.since})"
    if name in contributed.BODIES:
        return contributed_nodes(operation, name) if contributed.has_body(name, implementation.release) else None
    asked = _asked(operation, schema, implementation)
    found = _body(operation, schema.since, asked)
    if not isinstance(found, _Expanded):
        return found
    if not found.contextual and not _is_current(found.body, asked, implementation):
        return None
    return found.nodes


def _asked(operation: Operation, schema: Schema, implementation: Implementation) -> int:
    """The opset that a body is asked for. Source: ONNX Runtime 1.16 takes the schema's own, later ones the model's."""
    old = version_order(implementation.release) < _BY_MODEL
    return schema.since if old and operation.domain == DEFAULT else operation.opset


@functools.lru_cache(maxsize=1024)
def contributed_nodes(operation: Operation, name: str) -> tuple[TypedNode, ...]:
    """The nodes of a body that is no part of ONNX."""
    types = [None if each is None else type_proto(each) for each in operation.inputs]
    node = _node(operation)
    if len(types) > 1 and types[1] is not None:
        node.attribute.add(name="to", type="INT", i=types[1].tensor_type.elem_type)
    imports = {"": operation.opset or _NEWEST}
    return typed_nodes(instantiate(contributed.body(name), node, types, imports=imports, defaults={}))


def definition(operation: Operation, since: int) -> tuple[TypedNode, ...] | None:
    """The nodes of the operation's body by ONNX, whether or not a release would expand it; None where it has none."""
    found = None if f"{operation.label}({since})" in contributed.BODIES else _body(operation, since, operation.opset)
    return found.nodes if isinstance(found, _Expanded) else None


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
def _body(operation: Operation, since: int, asked: int) -> _Expanded | str | None:
    node = _node(operation)
    types = [None if each is None else type_proto(each) for each in operation.inputs]
    schema = schema_of(operation.domain, operation.name, since)
    if schema is None:
        return _unknown(operation, since)
    if not has_body(schema):
        return None
    body = body_of(schema, asked, node, types)
    if body is None:
        return None

    def type_nodes() -> tuple[TypedNode, ...]:
        imports = {imported.domain: imported.version for imported in body.function.opset_import}
        imports[""] = operation.opset
        model = instantiate(body.function, node, types, imports=imports, defaults=defaults_of(schema))
        return typed_nodes(model)

    return _Expanded(body, schema.has_context_dependent_function, type_nodes)


def _unknown(operation: Operation, since: int) -> str | None:
    """An operator newer than the installed onnx; what that does not know although it is older is the runtime's own."""
    import onnx

    if operation.domain != DEFAULT or since <= onnx.defs.onnx_opset_version():
        return None
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
