"""Replace operators by their function bodies, as ONNX Runtime does for operators without a kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onnxgate.core.findings import version_sort_key
from onnxgate.model.facts import DEFAULT_DOMAIN, canonical_domain, model_domain, parse_type
from onnxgate.model.onnx_functions import OnnxError, build_function_body
from onnxgate.model.reading.view import iter_node_subgraphs
from onnxgate.support.matching.attribute_values import read_attribute_values
from onnxgate.support.matching.operations import Operation, TypedNode
from onnxgate.support.matching.type_inference import infer_node_types, instantiate_function
from onnxgate.support.operators import Implementation, Schema

if TYPE_CHECKING:
    from onnx import FunctionProto, NodeProto, TypeProto
    from onnx.defs import OpSchema


_MODEL_OPSET_SINCE = version_sort_key("1.17.0")
_LAST_WITH_UNCAST_PRODUCT = version_sort_key("1.27.0")
"""Last release with an older function body of Attention.

Source: 2,640 Attention nodes with each mode, precision and type, loaded on 11 releases from 1.23.0 to 1.32.0.
"""
_FALLBACK_OPSET = 13
"""Opset of ai.onnx that is assumed for the nodes of a function body if the model does not import ai.onnx."""
_SHAPE_DEPENDENT_BODIES = frozenset({"CausalConvWithState(27)"})
"""Operators that have a function body only if the shapes of their inputs are known.

Source: onnx 1.23.2; models loaded on ONNX Runtime 1.32.0.
"""
Expansion = tuple[TypedNode, ...] | str | None
"""Result of replacing an operator by its function body: the body's nodes, the reason why they are unknown, or None.

None means that the operator has no function body, or that the release does not use it."""


def expand_function(operation: Operation, schema: Schema, implementation: Implementation) -> Expansion:
    """Return the nodes of the function body with which a release replaces an operation; None if it does not.

    A release does not use a body if the schema of an operator in the body has changed since the body was written."""
    name, release = f"{operation.label}({schema.since})", version_sort_key(implementation.release)
    if name in CONTRIB_BODIES:
        if DOUBLE in operation.inputs and release < version_sort_key(DOUBLE_BODY_SINCE.get(name, "0")):
            return None
        return expand_contrib_function(operation, name)
    if name in ("Attention(23)", "Attention(24)") and release <= _LAST_WITH_UNCAST_PRODUCT:
        operation = _return_uncast_product(operation)
    # Source: ONNX Runtime 1.16 selects a body by the schema's opset, later ones by the model's.
    by_schema = release < _MODEL_OPSET_SINCE and operation.domain == DEFAULT_DOMAIN
    opset = schema.since if by_schema else operation.opset
    expanded = _instantiate_body(operation, schema.since, opset)
    if not isinstance(expanded, _ExpandedFunction):
        return expanded
    if not expanded.contextual and not _is_body_current(expanded, opset, implementation):
        return None
    return expanded.nodes


@functools.lru_cache(maxsize=256)
def _return_uncast_product(operation: Operation) -> Operation:
    """Return an Attention with the body of older releases, which does not return a cast if the output's mode is 1."""
    mode = read_attribute_values(operation).get("qk_matmul_output_mode")
    kept = (it for it in operation.attributes if mode != 1 or it.name != "qk_matmul_output_mode")
    return replace(operation, attributes=tuple(kept))


@functools.lru_cache(maxsize=1024)
def expand_contrib_function(operation: Operation, name: str) -> tuple[TypedNode, ...]:
    """Return the nodes with which ONNX Runtime replaces an operation whose function body it defines itself."""
    node, types = _make_call(operation)
    if len(types) > 1 and types[1] is not None:
        node.attribute.add(name="to", type="INT", i=types[1].tensor_type.elem_type)
    imports = {"": operation.opset or _FALLBACK_OPSET}
    return infer_node_types(instantiate_function(parse_contrib_body(name), node, types, imports=imports))


@functools.lru_cache(maxsize=1024)
def has_function_body(domain: str, name: str, since: int) -> bool:
    """Return whether a version of an operator may have a function body, as far as the installed onnx defines it."""
    label = name if domain == DEFAULT_DOMAIN else f"{domain}.{name}"
    schema = _find_schema(domain, name, since)
    is_defined = schema is not None and (schema.has_function or schema.has_context_dependent_function)
    return is_defined or f"{label}({since})" in CONTRIB_BODIES


def get_definition_nodes(operation: Operation, since: int) -> tuple[TypedNode, ...] | None:
    """Return the nodes of the function body that the ONNX standard defines for an operation; None if there is none."""
    if f"{operation.label}({since})" in CONTRIB_BODIES:
        return None
    expanded = _instantiate_body(operation, since, operation.opset)
    return expanded.nodes if isinstance(expanded, _ExpandedFunction) else None


class _ExpandedFunction:
    """A function body, and the nodes that replace one call to the function. Their types are inferred on first use.

    `written_for` is the opset of ai.onnx that the body was written for."""

    def __init__(
        self, body: FunctionProto, written_for: int, contextual: bool, type_nodes: Callable[[], tuple[TypedNode, ...]]
    ) -> None:
        self.body = body
        self.written_for = written_for
        self.contextual = contextual
        self._type_nodes = type_nodes

    @functools.cached_property
    def nodes(self) -> tuple[TypedNode, ...]:
        return self._type_nodes()


@functools.lru_cache(maxsize=4096)
def _instantiate_body(operation: Operation, since: int, opset: int) -> _ExpandedFunction | str | None:
    """Return the function body of an operation at an opset, the reason why it is unknown, or None if there is none."""
    import onnx

    node, types = _make_call(operation)
    schema = _find_schema(operation.domain, operation.name, since)
    if schema is None:
        if operation.domain != DEFAULT_DOMAIN or since <= onnx.defs.onnx_opset_version():
            return None  # an operator that the runtime defines
        name = f"`{operation.name}({since})`"
        return f"the installed onnx {onnx.__version__} does not define {name}, so its function body is unknown"
    selected = _find_body(schema, opset, node, types)
    if selected is None:
        name = f"{operation.label}({since})"
        if schema.has_context_dependent_function and "" in operation.inputs:
            return f"the function body of `{name}` depends on input types, which are unknown"
        return (
            f"the function body of `{name}` depends on input shapes, so its nodes are unknown"
            if name in _SHAPE_DEPENDENT_BODIES
            else None
        )
    body, written_for = selected

    def type_nodes() -> tuple[TypedNode, ...]:
        imports = {imported.domain: imported.version for imported in body.opset_import}
        imports[""] = operation.opset
        defaults = {name: attribute.default_value for name, attribute in schema.attributes.items()}
        defaults = {name: value for name, value in defaults.items() if value.name}
        return infer_node_types(instantiate_function(body, node, types, imports=imports, defaults=defaults))

    return _ExpandedFunction(body, written_for, schema.has_context_dependent_function, type_nodes)


def _make_call(operation: Operation) -> tuple[NodeProto, list[TypeProto | None]]:
    """Return an ONNX node that performs the operation, and the types of the node's inputs."""
    from onnx import AttributeProto, NodeProto

    node = NodeProto(op_type=operation.name, domain=model_domain(operation.domain))
    node.input.extend("" if spelling is None else f"i{index}" for index, spelling in enumerate(operation.inputs))
    node.output.extend("" if output is None else f"o{index}" for index, output in enumerate(operation.outputs))
    node.attribute.extend(
        AttributeProto.FromString(attribute.data) for attribute in operation.attributes if attribute.data
    )
    for graph in iter_node_subgraphs(node):  # types of inputs and outputs apply, whatever else is declared
        declared = {value.name for value in (*graph.input, *graph.output)}
        values = [value for value in graph.value_info if value.name not in declared]
        del graph.value_info[:]
        graph.value_info.extend(values)
    return node, [None if spelling is None else parse_type(spelling) for spelling in operation.inputs]


def _is_body_current(expanded: _ExpandedFunction, opset: int, implementation: Implementation) -> bool:
    for node in expanded.body.node:
        operator = implementation.operator(canonical_domain(node.domain), node.op_type)
        if operator is None:
            return False
        if not node.domain and operator.schema(expanded.written_for) is not operator.schema(opset):
            return False
    return True


def _find_schema(domain: str, name: str, since: int) -> OpSchema | None:
    """Return the operator's schema that the installed onnx introduces in opset `since`; None if there is none."""
    from onnx import defs

    try:
        schema = defs.get_schema(name, since, model_domain(domain))
    except defs.SchemaError:
        return None
    return schema if schema.since_version == since else None


def _find_body(
    schema: OpSchema, opset: int, node: NodeProto, types: Sequence[TypeProto | None]
) -> tuple[FunctionProto, int] | None:
    """Return the function body of an operator at `opset`, and the opset that it was written for; None if it has none.

    Source: ONNX Runtime 1.16 to 1.31 uses the body that was written for the newest opset up to the model's opset, and
    prefers context-dependent bodies.
    """
    versions = schema.function_opset_versions if schema.has_function else ()
    if schema.has_context_dependent_function:
        versions = schema.context_dependent_function_opset_versions
    version = max((version for version in versions if version <= opset), default=None)
    if version is None:
        return None
    if not schema.has_context_dependent_function:
        return _plain_body(schema, version), version
    try:
        body = build_function_body(schema, version, node, types)
    except OnnxError:  # the node does not meet the requirements of the body's builder
        return None
    return None if body is None else (body, version)


@functools.lru_cache(maxsize=512)
def _plain_body(schema: OpSchema, version: int) -> FunctionProto:
    from onnx import FunctionProto

    return FunctionProto.FromString(schema.get_function_with_opset_version(version))


CONTRIB_BODIES = {
    "LayerNormalization(1)": """
        <domain: "ai.onnx", opset_import: ["" : 13]> LayerNormalization <to> (X, Scale) => (Y) {
            Dims = Shape (X)
            Rank = Size (Dims)
            Axis = Neg (Rank)
            Prefix = Slice (Dims, Dims, Dims)
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
            B = Identity (X)
            C = Mul (B, B)
            D = Mul (C, B)
            E = Add (B, D)
            T = Tanh (E)
            H = Mul (B, T)
            Y = Add (H, B)
        }
    """,
    "com.microsoft.Gelu(1)": """
        <domain: "com.microsoft", opset_import: ["" : 13]> Gelu (X) => (Y) {
            A = Mul (X, X)
            B = Erf (A)
            C = Add (B, X)
            D = Mul (C, X)
            Y = Mul (X, D)
        }
    """,
    "com.microsoft.QuickGelu(1)": """
        <domain: "com.microsoft", opset_import: ["" : 13]> QuickGelu (X) => (Y) {
            S = Sigmoid (X)
            Y = Mul (X, S)
        }
    """,
}
"""Simplified function bodies of operators that ONNX Runtime defines, by operator name and schema version.

Constants and biases are omitted, because the bodies are used only to compare types. For each call to a body, its
attribute `to` is set to the element type of the second input.
"""
DOUBLE = "tensor(double)"
DOUBLE_BODY_SINCE = {"com.microsoft.QuickGelu(1)": "1.31.0"}
"""First ONNX Runtime release that can run the nodes of an operator's function body for doubles, by operator.

Older releases fuse these nodes into the operator again, which has no kernel for doubles.
"""


@functools.cache
def parse_contrib_body(name: str) -> FunctionProto:
    """Return the function body in `CONTRIB_BODIES` with this name, as a FunctionProto."""
    from onnx import parser

    return parser.parse_function(CONTRIB_BODIES[name])
