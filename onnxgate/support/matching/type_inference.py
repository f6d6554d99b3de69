"""Type inference: the types of all values of a model, once for all releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxgate.model.checking.validity import explain_unfollowed_calls
from onnxgate.model.facts import ELEMENT_TYPES, format_type
from onnxgate.model.reading.structure import iter_function_nodes, iter_nodes, iter_subgraphs
from onnxgate.support.matching.function_calls import instantiate_function
from onnxgate.support.matching.node_checks import infer_output_types
from onnxgate.support.matching.operations import Attribute, Operation, TypedModel, TypedNode
from onnxgate.support.tables.operators import find_newest_schema

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto

DEFAULT_DOMAIN = "ai.onnx"
_MAX_ATTRIBUTE_BYTES = 4096
"""Attributes up to this size take part in matching."""
_MAX_ROUNDS = 16
"""Maximum repetitions of inference after operators that onnx does not know."""
MAX_FUNCTION_CALLS = 4000
"""Maximum number of different calls of local functions: types are inferred for each one separately."""
_TOO_MANY_CALLS = f"its local functions are called in more than {MAX_FUNCTION_CALLS:,} different ways"
_CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
_TENSOR_TYPE_NAMES = {number: f"tensor({element.name})" for number, element in ELEMENT_TYPES.items()}


def infer_model_types(proto: ModelProto) -> TypedModel:
    """Return the model's nodes with argument types, including nodes of subgraphs and called functions."""
    return TypedModel(proto.ir_version, _find_required_opsets(proto), infer_node_types(proto))


def _find_required_opsets(proto: ModelProto) -> dict[str, int]:
    opsets: dict[str, int] = {}
    for holder in (proto, *proto.functions):
        for imported in holder.opset_import:
            domain = imported.domain or DEFAULT_DOMAIN
            opsets[domain] = max(imported.version, opsets.get(domain, 0))
    return dict(sorted(opsets.items()))


def infer_node_types(proto: ModelProto) -> tuple[TypedNode, ...]:
    """Return the typed nodes of a model's graph. Calls of local functions are followed within limits."""
    reason = explain_unfollowed_calls(proto)
    return _infer_graph_nodes(_remove_functions(proto) if reason else proto, "", _FunctionCalls(reason), proto)


def _remove_functions(proto: ModelProto) -> ModelProto:
    """Return a copy without local functions, since inference would follow each call without a limit."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    copy.ClearField("functions")
    return copy


@dataclass(slots=True, eq=False)
class _FunctionCalls:
    """Function bodies that all inferences of one model share."""

    unread: str  # why no call is followed
    bodies: dict[tuple[object, ...], tuple[TypedNode, ...]] = field(default_factory=dict)


def _infer_graph_nodes(
    proto: ModelProto, within: str, calls: _FunctionCalls, called: ModelProto
) -> tuple[TypedNode, ...]:
    """Infer types in a graph; `within` is the function of which `proto` was made, `called` has local functions."""
    imports = {imported.domain or DEFAULT_DOMAIN: imported.version for imported in proto.opset_import}
    functions = {
        (function.domain or DEFAULT_DOMAIN, function.name, function.overload): function for function in called.functions
    }
    inference = _NodeTypeInference(imports, functions, within, calls)
    graph = _infer_shapes(proto).graph
    scope = inference.scope(graph, None)
    for _ in range(_MAX_ROUNDS):
        added = inference.propagate(graph, scope)
        if not added or not inference.lacks(graph, scope):
            break
        again = _add_value_types(proto, {name: scope.values[name] for name in inference.learnt})
        graph = _infer_shapes(again).graph
        scope = inference.scope(graph, None)
    return tuple(inference.node(node, scope) for node in graph.node)


def _infer_shapes(proto: ModelProto) -> ModelProto:
    from onnx import checker, shape_inference

    for complete in (False, True):
        model = _import_used_domains(proto) if complete else proto
        try:
            return shape_inference.infer_shapes(model, check_type=False, strict_mode=False)
        except (shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError, IndexError):
            continue
        except MemoryError:  # constants that make inference allocate more than is available
            break
    return proto


def _import_used_domains(proto: ModelProto) -> ModelProto:
    """Return a copy that imports every domain in use, which inference requires and releases do implicitly."""
    from onnx import ModelProto, defs

    copy = ModelProto()
    copy.CopyFrom(proto)
    imported = {opset.domain or DEFAULT_DOMAIN for opset in copy.opset_import}
    for domain in sorted({node.domain or DEFAULT_DOMAIN for node in iter_nodes(copy)} - imported):
        copy.opset_import.add(domain=domain, version=defs.onnx_opset_version() if domain == DEFAULT_DOMAIN else 1)
    return copy


def _add_value_types(proto: ModelProto, types: Mapping[str, TypeProto]) -> ModelProto:
    from onnx import ModelProto

    copy = ModelProto()
    copy.CopyFrom(proto)
    typed = {value.name for value in (*copy.graph.value_info, *copy.graph.output, *copy.graph.input)}
    for name, value_type in types.items():
        if name not in typed:
            copy.graph.value_info.add(name=name, type=value_type)
    return copy


def format_known_type(proto: TypeProto) -> str:
    """Return the type as ONNX Runtime spells it; "" if it is not known."""
    if proto.HasField("tensor_type"):
        return _TENSOR_TYPE_NAMES.get(proto.tensor_type.elem_type, "")
    name = format_type(proto)
    return "" if "type 0" in name or "()" in name else name


def has_static_shape(proto: TypeProto) -> bool:
    """Return whether all dimensions are known."""
    tensor = proto.tensor_type
    return tensor.HasField("shape") and all(
        dim.HasField("dim_value") and dim.dim_value >= 0 for dim in tensor.shape.dim
    )


@dataclass(slots=True, eq=False)
class _ValueScope:
    values: dict[str, TypeProto]
    parent: _ValueScope | None

    def type_of(self, name: str) -> TypeProto | None:
        scope: _ValueScope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return None


@dataclass(slots=True, eq=False)
class _NodeTypeInference:
    imports: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], FunctionProto]
    within: str
    calls: _FunctionCalls
    learnt: set[str] = field(default_factory=set)  # names whose types are known only from schemas of releases

    # Values

    def scope(self, graph: GraphProto, parent: _ValueScope | None) -> _ValueScope:
        """Return the named values of a graph with their types."""
        values = {
            value.name: value.type
            for value in (*graph.value_info, *graph.output, *graph.input)
            if _is_known_type(value.type)
        }
        for tensor in graph.initializer:
            values[tensor.name] = _make_tensor_type(tensor.data_type, tensor.dims)
        for sparse in graph.sparse_initializer:
            values.setdefault(sparse.values.name, _make_tensor_type(sparse.values.data_type, sparse.dims))
        return _ValueScope(values, parent)

    def propagate(self, graph: GraphProto, scope: _ValueScope) -> bool:
        """Add types that follow from operators' schemas to the scope; return whether there were any."""
        before = len(self.learnt)
        for node in graph.node:
            missing = [name for name in node.output if name and name not in scope.values]
            if missing:
                self._learn(node, scope)
        return len(self.learnt) > before

    def _learn(self, node: NodeProto, scope: _ValueScope) -> None:
        domain = node.domain or DEFAULT_DOMAIN
        schema = find_newest_schema(
            domain, node.op_type, self.imports.get(domain, 1 if domain != DEFAULT_DOMAIN else 0)
        )
        if schema is None or (domain, node.op_type, node.overload) in self.functions:
            return
        operator = node.op_type if domain == DEFAULT_DOMAIN else f"{domain}.{node.op_type}"
        input_types = [self._spelled(name, scope) for name in node.input]
        output_types = infer_output_types(operator, schema, input_types, len(node.output))
        protos = {self._spelled(name, scope): scope.type_of(name) for name in node.input if name}
        for name, text in zip(node.output, output_types, strict=True):
            if name and text and name not in scope.values:
                value_type = _parse_type(text, protos)
                if value_type is not None:
                    scope.values[name] = value_type
                    self.learnt.add(name)

    def lacks(self, graph: GraphProto, scope: _ValueScope) -> bool:
        """Return whether a value of the graph has no type yet."""
        return any(name and name not in scope.values for node in graph.node for name in node.output)

    def _spelled(self, name: str, scope: _ValueScope) -> str | None:
        if not name:
            return None
        value_type = scope.type_of(name)
        return "" if value_type is None else format_known_type(value_type)

    # Nodes

    def node(self, node: NodeProto, scope: _ValueScope) -> TypedNode:
        """Return the node with its types and the nodes inside it."""
        function = self.functions.get((node.domain or DEFAULT_DOMAIN, node.op_type, node.overload))
        operation = self._operation(node, scope)
        if function is None:
            inside = tuple(self._inside(node, scope))
            return TypedNode(operation, node.name, node, inside, False, self.within, scope.type_of)
        inner = self._called(node, function, scope)
        unread = "" if inner is not None else self.calls.unread or _TOO_MANY_CALLS
        return TypedNode(operation, node.name, node, inner or (), True, self.within, scope.type_of, unread)

    def _operation(self, node: NodeProto, scope: _ValueScope) -> Operation:
        domain = node.domain or DEFAULT_DOMAIN
        first = scope.type_of(node.input[0]) if node.input and node.op_type == "Shape" else None
        return Operation(
            domain=domain,
            name=node.op_type,
            version=self.imports.get(domain, 0),
            opset=self.imports.get(DEFAULT_DOMAIN, 0),
            inputs=tuple(self._spelled(name, scope) for name in node.input),
            outputs=tuple(self._spelled(name, scope) for name in node.output),
            attributes=tuple(_read_attributes(node)),
            static=first is not None and has_static_shape(first),
        )

    def _inside(self, node: NodeProto, scope: _ValueScope) -> Iterator[TypedNode]:
        for attribute in node.attribute:
            for graph in iter_subgraphs(attribute):
                inner = self.scope(graph, scope)
                self._pass_in(node, graph, inner, scope)
                self.propagate(graph, inner)
                for inner_node in graph.node:
                    yield self.node(inner_node, inner)

    def _pass_in(self, node: NodeProto, graph: GraphProto, inner: _ValueScope, scope: _ValueScope) -> None:
        """Pass the types of a Loop's inputs to its body; declared types of the body's inputs take precedence."""
        if node.op_type != "Loop":
            return
        names = [None, None, *node.input[2:]]
        for value, name in zip(graph.input, names, strict=False):
            outer_type = scope.type_of(name) if name else None
            if value.name not in inner.values and outer_type is not None:
                inner.values[value.name] = _remove_shape(outer_type)

    def _called(self, node: NodeProto, function: FunctionProto, scope: _ValueScope) -> tuple[TypedNode, ...] | None:
        """Return the typed nodes of the body; None if it is not followed."""
        if self.calls.unread:
            return None
        types = [scope.type_of(name) if name else None for name in node.input]
        imports = self._imports_of(function)
        signature = (*(attribute.SerializeToString() for attribute in node.attribute), *map(_serialize_type, types))
        key = (function.domain, function.name, function.overload, *sorted(imports.items()), *signature)
        bodies = self.calls.bodies
        if key not in bodies:
            if len(bodies) >= MAX_FUNCTION_CALLS:
                return None
            bodies[key] = ()
            functions = tuple(self._reached(function).values())
            model = instantiate_function(function, node, types, imports=imports, defaults={}, functions=functions)
            bodies[key] = _infer_graph_nodes(model, f"{function.domain}.{function.name}", self.calls, model)
        return bodies[key]

    def _imports_of(self, function: FunctionProto) -> dict[str, int]:
        """Return a body's imports, at the model's versions: its nodes become nodes of the model.

        Source: loads of functions that import other versions than their model, on ONNX Runtime 1.16 to 1.31.
        """
        return {
            opset.domain: self.imports.get(opset.domain or DEFAULT_DOMAIN, opset.version)
            for opset in function.opset_import
        }

    def _reached(self, function: FunctionProto) -> dict[tuple[str, str, str], FunctionProto]:
        """Return the local functions that the function calls directly or indirectly."""
        reached: dict[tuple[str, str, str], FunctionProto] = {}
        ahead = [function]
        while ahead:
            for node in iter_function_nodes(ahead.pop()):
                key = (node.domain or DEFAULT_DOMAIN, node.op_type, node.overload)
                if key in self.functions and key not in reached:
                    reached[key] = self.functions[key]
                    ahead.append(reached[key])
        return reached


def _serialize_type(value_type: TypeProto | None) -> bytes:
    return b"" if value_type is None else value_type.SerializeToString()


def _is_known_type(value_type: TypeProto) -> bool:
    return value_type.WhichOneof("value") is not None and bool(format_known_type(value_type))


def _make_tensor_type(element: int, dims: Sequence[int]) -> TypeProto:
    from onnx import TypeProto

    tensor_type = TypeProto()
    tensor_type.tensor_type.elem_type = element
    tensor_type.tensor_type.shape.SetInParent()
    for dim in dims:
        tensor_type.tensor_type.shape.dim.add(dim_value=dim)
    return tensor_type


def _parse_type(text: str, known_types: Mapping[str | None, TypeProto | None]) -> TypeProto | None:
    """Return the type with this spelling, without a shape."""
    like = known_types.get(text)
    if like is not None:
        return _remove_shape(like)
    number = next((number for number, name in _TENSOR_TYPE_NAMES.items() if name == text), None)
    if number is None:
        return None
    from onnx import TypeProto

    tensor_type = TypeProto()
    tensor_type.tensor_type.elem_type = number
    return tensor_type


def _remove_shape(value_type: TypeProto) -> TypeProto:
    from onnx import TypeProto

    tensor_type = TypeProto()
    tensor_type.CopyFrom(value_type)
    if tensor_type.HasField("tensor_type"):
        tensor_type.tensor_type.ClearField("shape")
    return tensor_type


def _read_attributes(node: NodeProto) -> Iterator[Attribute]:
    for attribute in sorted(node.attribute, key=lambda attribute_proto: attribute_proto.name):
        yield Attribute(attribute.name, _get_attribute_kind(attribute), _serialize_attribute(node, attribute))


def _get_attribute_kind(attribute: AttributeProto) -> str:
    from onnx import AttributeProto

    return str(AttributeProto.AttributeType.Name(attribute.type))


def _serialize_attribute(node: NodeProto, attribute: AttributeProto) -> bytes:
    """Return the value that a function body can read; tensors and subgraphs are handled separately."""
    if node.op_type == "Constant" or (node.op_type in _CONTROL_FLOW and attribute.HasField("g")):
        return b""
    return attribute.SerializeToString() if attribute.ByteSize() <= _MAX_ATTRIBUTE_BYTES else b""
