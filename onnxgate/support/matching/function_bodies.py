"""Function bodies of operators, which a release expands if it has no kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from onnxgate.core.findings import version_sort_key
from onnxgate.model.facts import parse_type
from onnxgate.support.matching.function_calls import (
    FunctionBody,
    attribute_defaults,
    find_body,
    find_schema,
    has_body,
    instantiate_function,
)
from onnxgate.support.matching.operations import Operation, TypedNode
from onnxgate.support.matching.type_inference import infer_node_types
from onnxgate.support.tables.operators import Implementation, Schema

if TYPE_CHECKING:
    from onnx import FunctionProto, NodeProto


DEFAULT_DOMAIN = "ai.onnx"
_MODEL_OPSET_SINCE = version_sort_key("1.17.0")
_FALLBACK_OPSET = 13
"""Opset for models that do not import ai.onnx."""
Expansion = tuple[TypedNode, ...] | str | None
"""Nodes; the reason why they are unknown; None if there is no body."""


def expand_function(operation: Operation, schema: Schema, implementation: Implementation) -> Expansion:
    """Return the operation's body as a release expands it: only if the operators in it did not change since."""
    name = f"{operation.label}({schema.since})"
    if name in CONTRIB_BODIES:
        return expand_contrib_function(operation, name) if has_contrib_body(name, implementation.release) else None
    opset = _choose_body_opset(operation, schema, implementation)
    expanded = _instantiate_body(operation, schema.since, opset)
    if not isinstance(expanded, _ExpandedFunction):
        return expanded
    if not expanded.contextual and not _is_body_current(expanded.body, opset, implementation):
        return None
    return expanded.nodes


def _choose_body_opset(operation: Operation, schema: Schema, implementation: Implementation) -> int:
    """Return the opset that selects a body. Source: ONNX Runtime 1.16 uses the schema's, later ones the model's."""
    old = version_sort_key(implementation.release) < _MODEL_OPSET_SINCE
    return schema.since if old and operation.domain == DEFAULT_DOMAIN else operation.opset


@functools.lru_cache(maxsize=1024)
def expand_contrib_function(operation: Operation, name: str) -> tuple[TypedNode, ...]:
    """Return the nodes of a body of ONNX Runtime's own."""
    types = [None if spelling is None else parse_type(spelling) for spelling in operation.inputs]
    node = _make_node(operation)
    if len(types) > 1 and types[1] is not None:
        node.attribute.add(name="to", type="INT", i=types[1].tensor_type.elem_type)
    imports = {"": operation.opset or _FALLBACK_OPSET}
    return infer_node_types(instantiate_function(parse_contrib_body(name), node, types, imports=imports, defaults={}))


def get_definition_nodes(operation: Operation, since: int) -> tuple[TypedNode, ...] | None:
    """Return the nodes of the body that ONNX defines for an operation; None if it has none."""
    expanded = (
        None
        if f"{operation.label}({since})" in CONTRIB_BODIES
        else _instantiate_body(operation, since, operation.opset)
    )
    return expanded.nodes if isinstance(expanded, _ExpandedFunction) else None


class _ExpandedFunction:
    """A body and its nodes at one call, typed on first use."""

    def __init__(self, body: FunctionBody, contextual: bool, type_nodes: Callable[[], tuple[TypedNode, ...]]) -> None:
        self.body = body
        self.contextual = contextual
        self._type_nodes = type_nodes

    @functools.cached_property
    def nodes(self) -> tuple[TypedNode, ...]:
        return self._type_nodes()


@functools.lru_cache(maxsize=4096)
def _instantiate_body(operation: Operation, since: int, opset: int) -> _ExpandedFunction | str | None:
    node = _make_node(operation)
    types = [None if spelling is None else parse_type(spelling) for spelling in operation.inputs]
    schema = find_schema(operation.domain, operation.name, since)
    if schema is None:
        return _explain_unknown_operator(operation, since)
    if not has_body(schema):
        return None
    body = find_body(schema, opset, node, types)
    if body is None:
        return None

    def type_nodes() -> tuple[TypedNode, ...]:
        imports = {imported.domain: imported.version for imported in body.function.opset_import}
        imports[""] = operation.opset
        model = instantiate_function(body.function, node, types, imports=imports, defaults=attribute_defaults(schema))
        return infer_node_types(model)

    return _ExpandedFunction(body, schema.has_context_dependent_function, type_nodes)


def _explain_unknown_operator(operation: Operation, since: int) -> str | None:
    """Explain a missing schema if the operator is newer than the installed onnx; None if it is the runtime's own."""
    import onnx

    if operation.domain != DEFAULT_DOMAIN or since <= onnx.defs.onnx_opset_version():
        return None
    return f"the installed onnx {onnx.__version__} does not know `{operation.name}({since})`, which may have a body"


def _make_node(operation: Operation) -> NodeProto:
    from onnx import AttributeProto, NodeProto

    node = NodeProto(op_type=operation.name, domain="" if operation.domain == DEFAULT_DOMAIN else operation.domain)
    node.input.extend("" if spelling is None else f"i{index}" for index, spelling in enumerate(operation.inputs))
    node.output.extend("" if output is None else f"o{index}" for index, output in enumerate(operation.outputs))
    node.attribute.extend(
        AttributeProto.FromString(attribute.data) for attribute in operation.attributes if attribute.data
    )
    return node


def _is_body_current(body: FunctionBody, opset: int, implementation: Implementation) -> bool:
    for node in body.function.node:
        operator = implementation.operator(node.domain or DEFAULT_DOMAIN, node.op_type)
        if operator is None:
            return False
        if not node.domain and operator.schema(body.written_for) is not operator.schema(opset):
            return False
    return True


CONTRIB_BODIES = {
    "LayerNormalization(1)": """
        <domain: "ai.onnx", opset_import: ["" : 13]> LayerNormalization <to> (X, Scale) => (Y) {
            Dims = Shape (X)
            Rank = Size (Dims)
            Axis = Neg (Rank)
            XU = Cast <to: int = 1> (X)
            Mean = ReduceMean (XU)
            Off = Sub (XU, Mean)
            Square = Mul (Off, Off)
            Deviation = Sqrt (Square)
            Normal = Div (Off, Deviation)
            Typed = Cast <to: int = @to> (Normal)
            Y = Mul (Typed, Scale)
        }
    """,
    "com.microsoft.FastGelu(1)": """
        <domain: "com.microsoft", opset_import: ["" : 13]> FastGelu (X) => (Y) {
            C = Mul (X, X)
            D = Mul (C, X)
            E = Add (X, D)
            T = Tanh (E)
            H = Mul (X, T)
            Y = Add (H, X)
        }
    """,
    "com.microsoft.QuickGelu(1)": """
        <domain: "com.microsoft", opset_import: ["" : 13]> QuickGelu (X) => (Y) {
            S = Sigmoid (X)
            Y = Mul (X, S)
        }
    """,
}
"""Bodies reduced to the operators whose types matter: without constants and biases.

The attribute `to` is the element type of the second input, to which results are cast.
"""
CONTRIB_BODY_SINCE = {"com.microsoft.QuickGelu(1)": "1.31.0"}
"""First release that keeps the body expanded; older ones fuse it into an operator without a kernel."""


def has_contrib_body(name: str, release: str) -> bool:
    """Return whether the release expands the operator."""
    return name in CONTRIB_BODIES and version_sort_key(release) >= version_sort_key(CONTRIB_BODY_SINCE.get(name, "0"))


@functools.cache
def parse_contrib_body(name: str) -> FunctionProto:
    """Return a body of `CONTRIB_BODIES`."""
    from onnx import parser

    return parser.parse_function(CONTRIB_BODIES[name])
