"""The types of all values of a model: inferred once, the same for every release."""

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
"""Attributes up to this size are part of what is matched."""
_MAX_ROUNDS = 16
"""How often inference starts again behind operators that onnx does not know."""
MAX_FUNCTION_CALLS = 4000
"""So many different calls of local functions are looked into: each is a model of its own to infer types of."""
_TOO_MANY_CALLS = f"its local functions are called in more than {MAX_FUNCTION_CALLS:,} different ways"
_CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
_TENSOR_TYPE_NAMES = {number: f"tensor({element.name})" for number, element in ELEMENT_TYPES.items()}


def infer_model_types(proto: ModelProto) -> TypedModel:
    """The model's nodes with the types of their arguments, those of subgraphs and of called functions included."""
    return TypedModel(proto.ir_version, _find_required_opsets(proto), infer_node_types(proto))


def _find_required_opsets(proto: ModelProto) -> dict[str, int]:
    found: dict[str, int] = {}
    for holder in (proto, *proto.functions):
        for imported in holder.opset_import:
            domain = imported.domain or DEFAULT_DOMAIN
            found[domain] = max(imported.version, found.get(domain, 0))
    return dict(sorted(found.items()))


def infer_node_types(proto: ModelProto) -> tuple[TypedNode, ...]:
    """The nodes of a model's graph, typed. Calls of local functions are followed where that ends soon."""
    reason = explain_unfollowed_calls(proto)
    return _infer_graph_nodes(_remove_functions(proto) if reason else proto, "", _FunctionCalls(reason), proto)


def _remove_functions(proto: ModelProto) -> ModelProto:
    """A copy without local functions: inference follows each call of one, however many they become."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    copy.ClearField("functions")
    return copy


@dataclass(slots=True, eq=False)
class _FunctionCalls:
    """What all walks of one model share."""

    unread: str  # why none is followed
    bodies: dict[tuple[object, ...], tuple[TypedNode, ...]] = field(default_factory=dict)


def _infer_graph_nodes(
    proto: ModelProto, within: str, calls: _FunctionCalls, called: ModelProto
) -> tuple[TypedNode, ...]:
    """`within` is the function that the model was made of, `called` holds the local functions."""
    imports = {imported.domain or DEFAULT_DOMAIN: imported.version for imported in proto.opset_import}
    functions = {
        (function.domain or DEFAULT_DOMAIN, function.name, function.overload): function for function in called.functions
    }
    walk = _NodeTypeInference(imports, functions, within, calls)
    graph = _infer_shapes(proto).graph
    scope = walk.scope(graph, None)
    for _ in range(_MAX_ROUNDS):
        added = walk.propagate(graph, scope)
        if not added or not walk.lacks(graph, scope):
            break
        again = _add_value_types(proto, {name: scope.values[name] for name in walk.learnt})
        graph = _infer_shapes(again).graph
        scope = walk.scope(graph, None)
    return tuple(walk.node(node, scope) for node in graph.node)


def _infer_shapes(proto: ModelProto) -> ModelProto:
    from onnx import checker, shape_inference

    for complete in (False, True):
        model = _import_used_domains(proto) if complete else proto
        try:
            return shape_inference.infer_shapes(model, check_type=False, strict_mode=False)
        except (shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError, IndexError):
            continue
        except MemoryError:  # constants that ask inference for more than there is
            break
    return proto


def _import_used_domains(proto: ModelProto) -> ModelProto:
    """A copy that imports every domain that it uses, as releases do by themselves; inference insists on it."""
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
    said = {value.name for value in (*copy.graph.value_info, *copy.graph.output, *copy.graph.input)}
    for name, each in types.items():
        if name not in said:
            copy.graph.value_info.add(name=name, type=each)
    return copy


def format_known_type(proto: TypeProto) -> str:
    """The type as ONNX Runtime spells it; "" where it is not known."""
    if proto.HasField("tensor_type"):
        return _TENSOR_TYPE_NAMES.get(proto.tensor_type.elem_type, "")
    name = format_type(proto)
    return "" if "type 0" in name or "()" in name else name


def has_static_shape(proto: TypeProto) -> bool:
    """Whether the shape is known in full."""
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
    learnt: set[str] = field(default_factory=set)  # names whose types only the schemas of releases tell

    # Values

    def scope(self, graph: GraphProto, parent: _ValueScope | None) -> _ValueScope:
        """All that the graph names, with its type."""
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
        """Types that follow from the operators' schemas alone, put into the scope; whether there were any."""
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
        given = [self._spelled(name, scope) for name in node.input]
        known = infer_output_types(operator, schema, given, len(node.output))
        protos = {self._spelled(name, scope): scope.type_of(name) for name in node.input if name}
        for name, text in zip(node.output, known, strict=True):
            if name and text and name not in scope.values:
                found = _parse_type(text, protos)
                if found is not None:
                    scope.values[name] = found
                    self.learnt.add(name)

    def lacks(self, graph: GraphProto, scope: _ValueScope) -> bool:
        """Whether a value of the graph has no type yet."""
        return any(name and name not in scope.values for node in graph.node for name in node.output)

    def _spelled(self, name: str, scope: _ValueScope) -> str | None:
        if not name:
            return None
        found = scope.type_of(name)
        return "" if found is None else format_known_type(found)

    # Nodes

    def node(self, node: NodeProto, scope: _ValueScope) -> TypedNode:
        """The node with its types, and all inside it."""
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
                for each in graph.node:
                    yield self.node(each, inner)

    def _pass_in(self, node: NodeProto, graph: GraphProto, inner: _ValueScope, scope: _ValueScope) -> None:
        """Loop hands its inputs on as they are; what a graph says of its own inputs is more."""
        if node.op_type != "Loop":
            return
        names = [None, None, *node.input[2:]]
        for value, name in zip(graph.input, names, strict=False):
            given = scope.type_of(name) if name else None
            if value.name not in inner.values and given is not None:
                inner.values[value.name] = _remove_shape(given)

    def _called(self, node: NodeProto, function: FunctionProto, scope: _ValueScope) -> tuple[TypedNode, ...] | None:
        """The nodes of the body; None where it is not looked into."""
        if self.calls.unread:
            return None
        types = [scope.type_of(name) if name else None for name in node.input]
        imports = self._imports_of(function)
        given = (*(attribute.SerializeToString() for attribute in node.attribute), *map(_serialize_type, types))
        key = (function.domain, function.name, function.overload, *sorted(imports.items()), *given)
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
        """What a body imports, in the versions that the model imports: its nodes become nodes of the model.

        Source: loads of functions that import other versions than their model, on ONNX Runtime 1.16 to 1.31.
        """
        return {
            opset.domain: self.imports.get(opset.domain or DEFAULT_DOMAIN, opset.version)
            for opset in function.opset_import
        }

    def _reached(self, function: FunctionProto) -> dict[tuple[str, str, str], FunctionProto]:
        """The local functions that the function's nodes call, directly or not."""
        found: dict[tuple[str, str, str], FunctionProto] = {}
        ahead = [function]
        while ahead:
            for node in iter_function_nodes(ahead.pop()):
                key = (node.domain or DEFAULT_DOMAIN, node.op_type, node.overload)
                if key in self.functions and key not in found:
                    found[key] = self.functions[key]
                    ahead.append(found[key])
        return found


def _serialize_type(each: TypeProto | None) -> bytes:
    return b"" if each is None else each.SerializeToString()


def _is_known_type(each: TypeProto) -> bool:
    return each.WhichOneof("value") is not None and bool(format_known_type(each))


def _make_tensor_type(element: int, dims: Sequence[int]) -> TypeProto:
    from onnx import TypeProto

    made = TypeProto()
    made.tensor_type.elem_type = element
    made.tensor_type.shape.SetInParent()
    for dim in dims:
        made.tensor_type.shape.dim.add(dim_value=dim)
    return made


def _parse_type(text: str, given: Mapping[str | None, TypeProto | None]) -> TypeProto | None:
    """A type of this spelling, without a shape."""
    like = given.get(text)
    if like is not None:
        return _remove_shape(like)
    number = next((number for number, name in _TENSOR_TYPE_NAMES.items() if name == text), None)
    if number is None:
        return None
    from onnx import TypeProto

    made = TypeProto()
    made.tensor_type.elem_type = number
    return made


def _remove_shape(given: TypeProto) -> TypeProto:
    from onnx import TypeProto

    made = TypeProto()
    made.CopyFrom(given)
    if made.HasField("tensor_type"):
        made.tensor_type.ClearField("shape")
    return made


def _read_attributes(node: NodeProto) -> Iterator[Attribute]:
    for attribute in sorted(node.attribute, key=lambda each: each.name):
        yield Attribute(attribute.name, _get_attribute_kind(attribute), _serialize_attribute(node, attribute))


def _get_attribute_kind(attribute: AttributeProto) -> str:
    from onnx import AttributeProto

    return str(AttributeProto.AttributeType.Name(attribute.type))


def _serialize_attribute(node: NodeProto, attribute: AttributeProto) -> bytes:
    """What a body or a constructor may read; tensors and the graphs of control flow are judged by themselves."""
    if node.op_type == "Constant" or (node.op_type in _CONTROL_FLOW and attribute.HasField("g")):
        return b""
    return attribute.SerializeToString() if attribute.ByteSize() <= _MAX_ATTRIBUTE_BYTES else b""
