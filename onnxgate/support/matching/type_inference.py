"""Type inference: the types of all values of a model, once for all releases."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from onnxgate.model.facts import DEFAULT_DOMAIN, ELEMENT_TYPES, canonical_domain, format_type
from onnxgate.model.reading.structure import find_omitted_list, iter_function_nodes, iter_node_subgraphs, iter_nodes
from onnxgate.model.validity import explain_unfollowed_calls
from onnxgate.support.matching.node_checks import infer_output_types
from onnxgate.support.matching.operations import Attribute, Operation, TypedModel, TypedNode
from onnxgate.support.operators import find_newest_schema

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto

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
    opsets: dict[str, int] = {}
    for holder in (proto, *proto.functions):
        for imported in holder.opset_import:
            domain = canonical_domain(imported.domain)
            opsets[domain] = max(imported.version, opsets.get(domain, 0))
    return TypedModel(proto.ir_version, dict(sorted(opsets.items())), infer_node_types(proto))


def infer_node_types(proto: ModelProto) -> tuple[TypedNode, ...]:
    """Return the typed nodes of a model's graph. Calls of local functions are followed within limits."""
    called = proto
    if reason := explain_unfollowed_calls(proto):
        proto = deepcopy(proto)  # without functions, since inference would follow each call without a limit
        proto.ClearField("functions")
    return _infer_graph_nodes(proto, "", _FunctionCalls(reason), called)


@dataclass(slots=True, eq=False)
class _FunctionCalls:
    """Function bodies that all inferences of one model share."""

    unread: str  # why no call is followed
    bodies: dict[tuple[object, ...], tuple[TypedNode, ...]] = field(default_factory=dict)


def _infer_graph_nodes(
    proto: ModelProto, within: str, calls: _FunctionCalls, called: ModelProto
) -> tuple[TypedNode, ...]:
    """Infer types in a graph; `within` is the function of which `proto` was made, `called` has local functions."""
    imports = {canonical_domain(imported.domain): imported.version for imported in proto.opset_import}
    functions = {
        (canonical_domain(function.domain), function.name, function.overload): function for function in called.functions
    }
    inference = _NodeTypeInference(imports, functions, within, calls)
    graph = _infer_shapes(proto).graph
    scope = inference.scope(graph, ChainMap())
    for _ in range(_MAX_ROUNDS):
        added = inference.propagate(graph, scope)
        if not added or all(name in scope.maps[0] for node in graph.node for name in node.output if name):
            break
        copy = deepcopy(proto)
        typed = {value.name for value in (*copy.graph.value_info, *copy.graph.output, *copy.graph.input)}
        for name in inference.learnt - typed:
            copy.graph.value_info.add(name=name, type=scope[name])
        graph = _infer_shapes(copy).graph
        scope = inference.scope(graph, ChainMap())
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
    from onnx import defs

    copy = deepcopy(proto)
    imported = {canonical_domain(opset.domain) for opset in copy.opset_import}
    for domain in sorted({canonical_domain(node.domain) for node in iter_nodes(copy)} - imported):
        copy.opset_import.add(domain=domain, version=defs.onnx_opset_version() if domain == DEFAULT_DOMAIN else 1)
    return copy


def format_known_type(proto: TypeProto) -> str:
    """Return the type as ONNX Runtime spells it; "" if it is not known."""
    if proto.HasField("tensor_type"):
        return _TENSOR_TYPE_NAMES.get(proto.tensor_type.elem_type, "")
    name = format_type(proto)
    return "" if "type 0" in name or "()" in name else name


_ValueTypes = ChainMap[str, "TypeProto"]
"""Types of the named values of a graph, and of the graphs around it."""


@dataclass(slots=True, eq=False)
class _NodeTypeInference:
    imports: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], FunctionProto]
    within: str
    calls: _FunctionCalls
    learnt: set[str] = field(default_factory=set)  # names whose types are known only from schemas of releases

    # Values

    def scope(self, graph: GraphProto, parent: _ValueTypes) -> _ValueTypes:
        """Return the named values of a graph with their types."""
        values = {
            value.name: value.type
            for value in (*graph.value_info, *graph.output, *graph.input)
            if value.type.WhichOneof("value") is not None and format_known_type(value.type)
        }
        for tensor in graph.initializer:
            values[tensor.name] = _make_tensor_type(tensor.data_type, tensor.dims)
        for sparse in graph.sparse_initializer:
            values.setdefault(sparse.values.name, _make_tensor_type(sparse.values.data_type, sparse.dims))
        return parent.new_child(values)

    def propagate(self, graph: GraphProto, scope: _ValueTypes) -> bool:
        """Add types that follow from operators' schemas to the scope; return whether there were any."""
        before = len(self.learnt)
        for node in graph.node:
            if any(name and name not in scope.maps[0] for name in node.output):
                self._learn(node, scope)
        return len(self.learnt) > before

    def _learn(self, node: NodeProto, scope: _ValueTypes) -> None:
        domain = canonical_domain(node.domain)
        schema = find_newest_schema(
            domain, node.op_type, self.imports.get(domain, 1 if domain != DEFAULT_DOMAIN else 0)
        )
        if schema is None or (domain, node.op_type, node.overload) in self.functions:
            return
        operator = node.op_type if domain == DEFAULT_DOMAIN else f"{domain}.{node.op_type}"
        input_types = [self._spelled(name, scope) for name in node.input]
        output_types = infer_output_types(operator, schema, input_types, len(node.output))
        protos = {self._spelled(name, scope): scope.get(name) for name in node.input if name}
        for name, text in zip(node.output, output_types, strict=True):
            if name and text and name not in scope.maps[0]:
                value_type = _parse_type(text, protos)
                if value_type is not None:
                    scope[name] = value_type
                    self.learnt.add(name)

    def _spelled(self, name: str, scope: _ValueTypes) -> str | None:
        if not name:
            return None
        value_type = scope.get(name)
        return "" if value_type is None else format_known_type(value_type)

    # Nodes

    def node(self, node: NodeProto, scope: _ValueTypes) -> TypedNode:
        """Return the node with its types and the nodes inside it."""
        function = self.functions.get((canonical_domain(node.domain), node.op_type, node.overload))
        operation = self._operation(node, scope)
        if function is None:
            inside = tuple(self._inside(node, scope))
            return TypedNode(operation, node.name, node, inside, False, self.within, scope.get)
        inner = self._called(node, function, scope)
        unread = "" if inner is not None else self.calls.unread or _TOO_MANY_CALLS
        return TypedNode(operation, node.name, node, inner or (), True, self.within, scope.get, unread)

    def _operation(self, node: NodeProto, scope: _ValueTypes) -> Operation:
        domain = canonical_domain(node.domain)
        first = scope.get(node.input[0]) if node.input and node.op_type == "Shape" else None
        shape = first.tensor_type.shape if first is not None and first.tensor_type.HasField("shape") else None
        return Operation(
            domain=domain,
            name=node.op_type,
            version=self.imports.get(domain, 0),
            opset=self.imports.get(DEFAULT_DOMAIN, 0),
            inputs=tuple(self._spelled(name, scope) for name in node.input),
            outputs=tuple(self._spelled(name, scope) for name in node.output),
            attributes=tuple(_read_attributes(node)),
            static=shape is not None and all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in shape.dim),
        )

    def _inside(self, node: NodeProto, scope: _ValueTypes) -> Iterator[TypedNode]:
        for graph in iter_node_subgraphs(node):
            inner = self.scope(graph, scope)
            self._pass_in(node, graph, inner, scope)
            self.propagate(graph, inner)
            for inner_node in graph.node:
                yield self.node(inner_node, inner)

    def _pass_in(self, node: NodeProto, graph: GraphProto, inner: _ValueTypes, scope: _ValueTypes) -> None:
        """Pass the types of a Loop's inputs to its body; declared types of the body's inputs take precedence."""
        if node.op_type != "Loop":
            return
        names = [None, None, *node.input[2:]]
        for value, name in zip(graph.input, names, strict=False):
            outer_type = scope.get(name) if name else None
            if value.name not in inner.maps[0] and outer_type is not None:
                inner[value.name] = _remove_shape(outer_type)

    def _called(self, node: NodeProto, function: FunctionProto, scope: _ValueTypes) -> tuple[TypedNode, ...] | None:
        """Return the typed nodes of the body; None if it is not followed."""
        if self.calls.unread:
            return None
        types = [scope.get(name) if name else None for name in node.input]
        # Its nodes become nodes of the model, at the model's versions. Source: loads of functions that import other
        # versions than their model, on ONNX Runtime 1.16 to 1.31.
        imports = {
            opset.domain: self.imports.get(canonical_domain(opset.domain), opset.version)
            for opset in function.opset_import
        }
        signature = [attribute.SerializeToString() for attribute in node.attribute]
        signature += [b"" if value_type is None else value_type.SerializeToString() for value_type in types]
        key = (function.domain, function.name, function.overload, *sorted(imports.items()), *signature)
        bodies = self.calls.bodies
        if key not in bodies:
            if len(bodies) >= MAX_FUNCTION_CALLS:
                return None
            bodies[key] = ()
            functions = tuple(self._reached(function).values())
            model = instantiate_function(function, node, types, imports=imports, functions=functions)
            bodies[key] = _infer_graph_nodes(model, f"{function.domain}.{function.name}", self.calls, model)
        return bodies[key]

    def _reached(self, function: FunctionProto) -> dict[tuple[str, str, str], FunctionProto]:
        """Return the local functions that the function calls directly or indirectly."""
        reached: dict[tuple[str, str, str], FunctionProto] = {}
        ahead = [function]
        while ahead:
            for node in iter_function_nodes(ahead.pop()):
                key = (canonical_domain(node.domain), node.op_type, node.overload)
                if key in self.functions and key not in reached:
                    reached[key] = self.functions[key]
                    ahead.append(reached[key])
        return reached


def _make_tensor_type(element: int, dims: Sequence[int] | None = None) -> TypeProto:
    """Return a tensor's type; without a shape if there are no `dims`."""
    from onnx import TypeProto

    tensor_type = TypeProto()
    tensor_type.tensor_type.elem_type = element
    if dims is not None:
        tensor_type.tensor_type.shape.SetInParent()
    for dim in dims or ():
        tensor_type.tensor_type.shape.dim.add(dim_value=dim)
    return tensor_type


def _parse_type(text: str, known_types: Mapping[str | None, TypeProto | None]) -> TypeProto | None:
    """Return the type with this spelling, without a shape."""
    like = known_types.get(text)
    if like is not None:
        return _remove_shape(like)
    number = next((number for number, name in _TENSOR_TYPE_NAMES.items() if name == text), None)
    return None if number is None else _make_tensor_type(number)


def _remove_shape(value_type: TypeProto) -> TypeProto:
    tensor_type = deepcopy(value_type)
    if tensor_type.HasField("tensor_type"):
        tensor_type.tensor_type.ClearField("shape")
    return tensor_type


def _read_attributes(node: NodeProto) -> Iterator[Attribute]:
    """Yield the attributes with the values that a function body can read; tensors and subgraphs are separate."""
    for attribute in sorted(node.attribute, key=lambda attribute_proto: attribute_proto.name):
        kind = str(attribute.AttributeType.Name(attribute.type))
        is_separate = node.op_type == "Constant" or (node.op_type in _CONTROL_FLOW and attribute.HasField("g"))
        is_short = attribute.ByteSize() <= _MAX_ATTRIBUTE_BYTES
        if attribute.doc_string and find_omitted_list(attribute):
            is_short = False
        is_readable = not is_separate and is_short
        yield Attribute(attribute.name, kind, attribute.SerializeToString() if is_readable else b"")


def instantiate_function(
    function: FunctionProto,
    node: NodeProto,
    types: Sequence[TypeProto | None],
    *,
    imports: Mapping[str, int],
    defaults: Mapping[str, AttributeProto] = MappingProxyType({}),
    functions: Sequence[FunctionProto] = (),
) -> ModelProto:
    """Return one call of a function as a model with typed inputs and its attributes; omitted arguments are "".

    `imports` is spelled as protobuf has it: "" is the default domain.
    """
    from onnx import ModelProto

    model = ModelProto(ir_version=8)
    for domain, version in imports.items():
        model.opset_import.add(domain=domain, version=version)
    model.functions.extend(functions)
    model.graph.name = function.name
    typed_inputs = {
        formal: value_type for formal, value_type in zip(function.input, types, strict=False) if value_type is not None
    }
    for formal, value_type in typed_inputs.items():
        model.graph.input.add(name=formal, type=value_type)
    model.graph.node.extend(function.node)
    own = {attribute.name: attribute for attribute in (*function.attribute_proto, *node.attribute)}
    _fill_attributes(model.graph.node, {**defaults, **own}, set(function.input) - set(typed_inputs))
    for name in function.output:
        model.graph.output.add(name=name)
    return model


def _fill_attributes(nodes: Iterable[NodeProto], values: Mapping[str, AttributeProto], absent: set[str]) -> None:
    for node in nodes:
        for index, name in enumerate(node.input):
            if name in absent:
                node.input[index] = ""
        if any(attribute.ref_attr_name for attribute in node.attribute):
            attributes = []
            for attribute in node.attribute:
                if not attribute.ref_attr_name:
                    attributes.append(attribute)
                elif attribute.ref_attr_name in values:
                    attributes.append(deepcopy(values[attribute.ref_attr_name]))
                    attributes[-1].name = attribute.name
            del node.attribute[:]
            node.attribute.extend(attributes)
        for graph in iter_node_subgraphs(node):
            _fill_attributes(graph.node, values, absent)
