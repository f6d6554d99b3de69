"""Infer the types of all values in a model. The types do not depend on the runtime release."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from onnxgate.core.process_pool import FailedCallError
from onnxgate.model.facts import DEFAULT_DOMAIN, ELEMENT_TYPES, STRING, canonical_domain, format_type, wrap_opset
from onnxgate.model.local_functions import explain_unfollowed_calls
from onnxgate.model.onnx_functions import OnnxError, infer_shapes
from onnxgate.model.reading.omitted_data import find_omitted_list, list_companion_tensors, shorten_companions
from onnxgate.model.reading.view import GraphView, ModelView, NodeView, OperatorKey, iter_node_subgraphs
from onnxgate.model.subgraphs.reduced_models import function_key, replace_sparse_tensors
from onnxgate.support.matching.graph_values import FOLDED, GraphValues, find_used_names
from onnxgate.support.matching.node_checks import infer_output_types
from onnxgate.support.matching.node_traits import DESCRIBED, READERS, TraitReader, find_scalar_squeezes
from onnxgate.support.matching.onnxruntime.float16_casts import is_redundant_cast, make_neighbor
from onnxgate.support.matching.onnxruntime.removed_nodes import RemovedNodes, mark_removed
from onnxgate.support.matching.operations import (
    NO_TRAITS,
    Attribute,
    InterfaceValue,
    NodeTraits,
    Operation,
    TypedModel,
    TypedNode,
    get_unknown_type,
)
from onnxgate.support.operators import find_newest_schema

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

_MAX_ATTRIBUTE_BYTES = 4096
"""Maximum size in bytes of an attribute whose value is used to decide whether a release supports the node."""
_OPSET_ZERO = -1
"""Version that stands for opset 0, which defines no operators, whereas 0 stands for an absent import."""
_TENSOR = 4
"""Type of an attribute that is a tensor."""
_MAX_ROUNDS = 16
"""Maximum number of rounds of type inference for one graph.

Another round follows if a round determined output types of operators that the onnx package does not define.
"""
MAX_FUNCTION_CALLS = 4000
"""Maximum number of different calls to local functions. Types are inferred for each of them separately."""
_MAX_BODIES_WITH_CONSTANTS = 500
"""Maximum number of different calls to local functions that are distinguished by the constants that they pass."""
_TOO_MANY_CALLS = (
    f"its local functions are called with more than {MAX_FUNCTION_CALLS:,} combinations of types and attributes"
)
OVERLOADED = "releases of ONNX Runtime before 1.27.0 ignore the overload of a local function"
UNKNOWN_OVERLOAD = f"{OVERLOADED}, and the overload that it calls does not exist"
"""Reasons why it is unknown which local function a node calls on releases before 1.27.0.

Newer releases find no function in the second case.
Source: 18 models with overloads, loaded on 9 releases from 1.18.1 to 1.31.1. Those before 1.27.0 take the last function
of a name, whatever its overload is; the newer ones ignore the overloads that nodes of functions call.
"""
_FIRST_UNUSUAL_ELEMENT = 21
"""Element types with smaller numbers are known to all releases. Source: see `refuses_tensor_type`."""
_MAX_OPERATIONS = 2**16
"""Maximum number of different operations in the cache that all models share."""
_CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
_CONSTANT_KINDS = {
    "value": "TENSOR",
    "sparse_value": "SPARSE_TENSOR",
    **{f"value_{kind.lower()}": kind for kind in ("FLOAT", "FLOATS", "INT", "INTS", "STRING", "STRINGS")},
}
"""Kind of each attribute of Constant. Source: the ONNX specification."""
_CONSTANT_ELEMENTS = {"FLOAT": 1, "FLOATS": 1, "INT": 7, "INTS": 7, "STRING": 8, "STRINGS": 8}
"""Element type of a Constant by the kind of its attribute."""
_TENSOR_TYPE_NAMES = {number: f"tensor({element.name})" for number, element in ELEMENT_TYPES.items()}
_KNOWN_TYPES = frozenset(
    name for number, name in _TENSOR_TYPE_NAMES.items() if number < _FIRST_UNUSUAL_ELEMENT and "complex" not in name
)
"""Types of tensors that all releases support as constants. Source: `UNREGISTERED_TYPES`."""


def infer_model_types(model: ModelView, inferred: ModelProto | None = None) -> TypedModel:
    """Return the nodes of a model with their input and output types, including nodes of subgraphs and called functions.

    `inferred` is the same model with the value types that the onnx package inferred, if this was already done.
    """
    opsets: dict[str, int] = {}
    for holder in (model.proto, *model.proto.functions):
        for imported in holder.opset_import:
            domain = canonical_domain(imported.domain)
            opsets[domain] = max(wrap_opset(imported.version), opsets.get(domain, 0))
    nodes = _infer_nodes(model, inferred)
    type_of = nodes[-1].type_of if nodes else get_unknown_type
    interface = (*_describe_interface((inferred or model.proto).graph, nodes, type_of), *_list_unusual_tensors(model))
    return TypedModel(model.proto.ir_version, dict(sorted(opsets.items())), nodes, interface)


def _describe_interface(
    graph: GraphProto, nodes: Sequence[TypedNode], type_of: Callable[[str], TypeProto | None]
) -> Iterator[InterfaceValue]:
    """Yield the inputs without a default, and the outputs. `type_of` returns the types of undeclared outputs."""
    defaults = {tensor.name: tensor.data_type for tensor in graph.initializer}
    defaults |= {sparse.values.name: sparse.values.data_type for sparse in graph.sparse_initializer}
    constants = {name: _TENSOR_TYPE_NAMES.get(element, "") for name, element in defaults.items()}
    constants |= {it.proto.output[0]: it.operation.outputs[0] or "" for it in nodes if it.operation.name == "Constant"}
    for value in graph.input:
        if value.name not in defaults:
            yield InterfaceValue("input", value.name, format_known_type(value.type))
    outputs = {value.name: value for value in reversed(graph.output)}  # the first of a name counts
    for value in reversed(outputs.values()):
        value_type = format_known_type(value.type)
        if not value_type and (known := type_of(value.name)) is not None:
            value_type = format_known_type(known)
        if value.name in constants:  # the type of the tensor applies, whatever is declared
            value_type = constants[value.name]
        yield InterfaceValue("output", value.name, value_type)


def _list_unusual_tensors(model: ModelView) -> Iterator[InterfaceValue]:
    """Yield an initializer or constant of each type that some releases do not support."""
    found: dict[int, str] = {}
    for name, tensor in model.tensors:
        if tensor.data_type >= _FIRST_UNUSUAL_ELEMENT:
            found.setdefault(tensor.data_type, name)
    for element, name in found.items():
        if element in _TENSOR_TYPE_NAMES:
            yield InterfaceValue("tensor", name, _TENSOR_TYPE_NAMES[element])
    if not model.has_sparse_tensors:
        return
    used = find_used_names(model.graphs[0])
    sparse = {element: name for name, element in _list_sparse_weights(model) if name in used}
    for element, name in sparse.items():
        yield InterfaceValue("tensor", name, f"sparse_{_TENSOR_TYPE_NAMES.get(element, '')}")


def _list_sparse_weights(model: ModelView) -> Iterator[tuple[str, int]]:
    """Yield the names and element types of sparse initializers, and of `Constant` nodes with sparse strings.

    Initializers with the name of an input or a dense initializer are left out.
    """
    for graph in model.graphs:
        dense = {value.name for values in (graph.proto.input, graph.proto.initializer) for value in values}
        used = find_used_names(graph) - dense
        for sparse in graph.proto.sparse_initializer:
            if sparse.values.name in used:
                yield sparse.values.name, sparse.values.data_type
        for node in graph.nodes:
            if node.operator[1] == "Constant" and node.attributes:
                element = node.attributes[0].sparse_tensor.values.data_type
                yield from ((name, element) for name in used.intersection(node.outputs) if element == STRING)


def infer_node_types(proto: ModelProto) -> tuple[TypedNode, ...]:
    """Return the nodes of a model with their types. Calls to local functions are followed up to a limit."""
    return _infer_nodes(ModelView(proto), None)


def _infer_nodes(model: ModelView, inferred: ModelProto | None) -> tuple[TypedNode, ...]:
    return _infer_graph_nodes(model, "", _FunctionCalls(explain_unfollowed_calls(model)), inferred)


class _FunctionCalls(msgspec.Struct, eq=False):
    """Nodes of called functions with their types. All type inferences for one model share them."""

    unread: str  # why no call is followed
    bodies: dict[tuple[object, ...], tuple[TypedNode, ...]] = msgspec.field(default_factory=dict)
    read: dict[OperatorKey, set[str]] = msgspec.field(default_factory=dict)  # see `_list_read`


def _infer_graph_nodes(
    model: ModelView,
    within: str,
    calls: _FunctionCalls,
    inferred: ModelProto | None = None,
    outer_constants: frozenset[str] = frozenset(),
) -> tuple[TypedNode, ...]:
    """Return the nodes of a model with their inferred types.

    `within` is the name of the local function that the model was made from; "" if it was not made from one.
    `outer_constants` are the inputs of this function that are constants of graphs around the one with the call.
    """
    if model.has_sparse_tensors:
        model, inferred = ModelView(replace_sparse_tensors(model.proto)), None
    retyped = _find_retyped_outputs(model.proto.graph)
    inferred = None if retyped else inferred
    proto, graph = inferred or model.proto, model.graphs[0]
    if calls.unread and proto.functions:
        proto = deepcopy(proto)  # without functions, since inference would follow each call without a limit
        proto.ClearField("functions")
    if retyped:
        proto = deepcopy(proto)
        for output in (it for it in proto.graph.output if it.name in retyped):
            output.type.CopyFrom(retyped[output.name])
    if inferred is None and list_companion_tensors(model):
        proto = deepcopy(proto)
        shorten_companions(ModelView(proto))
    functions = {function_key(function.proto): function for function in model.functions}
    overloads: dict[tuple[str, str], list[OperatorKey]] = {}
    for key in functions:
        overloads.setdefault(key[:2], []).append(key)
    inference = _NodeTypeInference(
        imports={canonical_domain(it.domain): wrap_opset(it.version) for it in model.proto.opset_import},
        functions=functions,
        overloads=overloads,
        within=within,
        calls=calls,
        outer_constants=outer_constants,
    )
    typed = (inferred or _infer_shapes(proto)).graph
    scope = ValueTypes(typed, graph.proto)
    for _ in range(_MAX_ROUNDS):
        added = inference.propagate(graph, scope)
        if not added or all(name in scope.names for node in graph.nodes for name in node.outputs if name):
            break
        copy = deepcopy(proto)
        known = {value.name for value in (*copy.graph.value_info, *copy.graph.output, *copy.graph.input)}
        for name in inference.learnt - known:
            copy.graph.value_info.add(name=name, type=scope.type_of(name))
        typed = _infer_shapes(copy).graph
        scope = ValueTypes(typed, graph.proto)
    inference.scalar_squeezes = find_scalar_squeezes(proto, typed)
    return tuple(inference.nodes(graph, typed, scope))


def _find_retyped_outputs(graph: GraphProto) -> dict[str, TypeProto]:
    """Return the types of inputs and constants that are also outputs of another type, which ONNX Runtime ignores.

    Source: such models, loaded on ONNX Runtime 1.16.3, 1.20.1, 1.24.4, 1.31.1 and 1.32.0.
    """
    outputs = {value.name: value.type for value in graph.output}
    retyped = {it.name: it.type for it in graph.input if it.name in outputs and it.type != outputs[it.name]}
    for node in graph.node:
        if node.op_type == "Constant" and [it.type for it in node.attribute] == [_TENSOR]:
            tensor = node.attribute[0].t
            for name in (name for name in node.output if name in outputs):
                if outputs[name].tensor_type.elem_type != tensor.data_type:
                    retyped[name] = _make_tensor_type(tensor.data_type, tensor.dims)
    return retyped


def _infer_shapes(proto: ModelProto) -> ModelProto:
    for complete in (False, True):
        model = _import_used_domains(proto) if complete else proto
        try:
            return infer_shapes(model)
        except OnnxError:
            continue
        except FailedCallError as error:
            if error.failure.how != "memory":  # constants may make inference allocate more than is available
                raise
            break
    return proto


def _import_used_domains(proto: ModelProto) -> ModelProto:
    """Return a copy of the model that imports every domain in use.

    The onnx package requires this, whereas ONNX Runtime imports some domains implicitly.
    """
    from onnx import defs

    copy = deepcopy(proto)
    imported = {canonical_domain(opset.domain) for opset in copy.opset_import}
    for domain in sorted({node.operator[0] for node in ModelView(copy).nodes()} - imported):
        copy.opset_import.add(domain=domain, version=defs.onnx_opset_version() if domain == DEFAULT_DOMAIN else 1)
    return copy


def format_known_type(proto: TypeProto) -> str:
    """Return a value type as ONNX Runtime spells it, such as `tensor(float)`; "" if the type is unknown."""
    if proto.HasField("tensor_type"):
        return _TENSOR_TYPE_NAMES.get(proto.tensor_type.elem_type, "")
    name = format_type(proto)
    return "" if "type 0" in name or "()" in name else name


class ValueTypes:
    """Types of the named values in a graph and in the graphs that enclose it.

    `typed` is the graph with the types that onnx inferred, `held` the graph that contains the initializers.
    """

    __slots__ = ("_parent", "_types", "names")

    def __init__(self, typed: GraphProto, held: GraphProto, parent: ValueTypes | None = None) -> None:
        self._parent = parent
        self._types: dict[str, Any] = {}  # a TypeProto, or the tensor that it follows from
        self.names: dict[str, str] = {}  # value -> its type as ONNX Runtime spells it, of this graph alone
        for values in (typed.value_info, typed.output, typed.input):
            for value in reversed(values):  # the first of a name counts
                value_type = value.type
                name = _TENSOR_TYPE_NAMES.get(value_type.tensor_type.elem_type) or format_known_type(value_type)
                if name:
                    self.names[value.name], self._types[value.name] = name, value_type
        for tensor in held.initializer:
            self.names[tensor.name], self._types[tensor.name] = _TENSOR_TYPE_NAMES.get(tensor.data_type, ""), tensor

    def add(self, name: str, value_type: TypeProto) -> None:
        """Record the type of a value of this graph."""
        self.names[name], self._types[name] = format_known_type(value_type), value_type

    def spell(self, name: str) -> str | None:
        """Return a value's type as ONNX Runtime spells it; "" if the type is unknown, None if `name` is empty."""
        if not name:
            return None
        scope: ValueTypes | None = self
        while scope is not None:
            if (spelled := scope.names.get(name)) is not None:
                return spelled
            scope = scope._parent
        return ""

    def initializer(self, name: str) -> TensorProto | None:
        """Return the initializer with this name; None if the value is not an initializer."""
        scope: ValueTypes | None = self
        while scope is not None:
            if (found := scope._types.get(name)) is not None:
                return found if hasattr(found, "data_type") else None
            scope = scope._parent
        return None

    def type_of(self, name: str) -> TypeProto | None:
        """Return the type of the named value, with its shape if known; None if the type is unknown."""
        scope: ValueTypes | None = self
        while scope is not None:
            if (found := scope._types.get(name)) is not None:
                return _make_tensor_type(found.data_type, found.dims) if hasattr(found, "data_type") else found
            scope = scope._parent
        return None


@functools.lru_cache(maxsize=_MAX_OPERATIONS)
def _make_operation(
    domain: str,
    name: str,
    versions: tuple[int, int],  # of its domain and of ai.onnx
    types: tuple[tuple[str | None, ...], tuple[str | None, ...]],  # of inputs and outputs
    attributes: tuple[tuple[str, str, bytes, int], ...],
    static: bool,
    traits: NodeTraits,
) -> Operation:
    """Return an operation with these properties. Equal operations are the same object, even in different models."""
    return Operation(domain, name, *versions, *types, tuple(Attribute(*it) for it in attributes), static, traits)


class _NodeTypeInference(msgspec.Struct, eq=False):
    imports: Mapping[str, int]
    functions: Mapping[OperatorKey, GraphView]
    overloads: Mapping[tuple[str, str], Sequence[OperatorKey]]  # of functions, by domain and name
    within: str
    calls: _FunctionCalls
    outer_constants: frozenset[str]  # see `_infer_graph_nodes`
    scalar_squeezes: Mapping[str, str] = MappingProxyType({})  # see `find_scalar_squeezes`
    learnt: set[str] = msgspec.field(default_factory=set)  # names whose types are known only from schemas of releases

    def propagate(self, graph: GraphView, scope: ValueTypes) -> bool:
        """Add the output types that ONNX Runtime's schemas determine to `scope`; return whether any were added."""
        before, names = len(self.learnt), scope.names
        for node in graph.nodes:
            if node.operator[1] == "Constant":
                self._learn_constant(node, scope)
            for name in node.outputs:
                if name and name not in names:
                    self._learn(node, scope)
                    break
        return len(self.learnt) > before

    def _learn(self, node: NodeView, scope: ValueTypes) -> None:
        domain, name, _ = node.operator
        schema = find_newest_schema(domain, name, self.imports.get(domain, 1 if domain != DEFAULT_DOMAIN else 0))
        if schema is None or node.operator in self.functions:
            return
        operator = name if domain == DEFAULT_DOMAIN else f"{domain}.{name}"
        input_types = [scope.spell(name) for name in node.inputs]
        output_types = infer_output_types(operator, schema, input_types, len(node.outputs))
        protos = {scope.spell(name): scope.type_of(name) for name in node.inputs if name}
        for name, text in zip(node.outputs, output_types, strict=True):
            if name and text and name not in scope.names:
                value_type = _parse_type(text, protos)
                if value_type is not None:
                    scope.add(name, value_type)
                    self.learnt.add(name)

    def _learn_constant(self, node: NodeView, scope: ValueTypes) -> None:
        """Set the type of a Constant that onnx rejects, or that is declared otherwise.

        ONNX Runtime reads the first attribute, whatever its name, and ignores the declared type.
        """
        attribute = next(iter(node.attributes), None)
        kind = "" if attribute is None else attribute.AttributeType.Name(attribute.type)
        if attribute is None or not node.outputs:
            return
        element = attribute.t.data_type if kind == "TENSOR" else _CONSTANT_ELEMENTS.get(kind)
        is_known = _CONSTANT_KINDS.get(attribute.name) == kind
        if element and not (is_known and scope.names.get(node.outputs[0]) == _TENSOR_TYPE_NAMES.get(element)):
            scope.add(node.outputs[0], _make_tensor_type(element, attribute.t.dims if kind == "TENSOR" else None))
            self.learnt.add(node.outputs[0])

    def nodes(
        self, graph: GraphView, typed: GraphProto, scope: ValueTypes, outer: GraphValues | None = None
    ) -> Iterator[TypedNode]:
        """Yield the nodes of a graph with their types; each contains the nodes of its subgraphs or called function."""
        type_of = scope.type_of
        values = GraphValues(
            graph,
            scope,
            self.imports,
            is_in_function=bool(self.within),
            outer=outer,
            outer_constants=self.outer_constants if outer is None else frozenset(),
        )
        traits = TraitReader(values, self.scalar_squeezes)
        removed = RemovedNodes(values, traits.changes)
        describe = functools.partial(self._describe, scope, traits)
        for index, node in enumerate(graph.nodes):
            operation = describe(node)
            is_unusual = operation.name == "Constant" and not _KNOWN_TYPES.issuperset(operation.outputs)
            if is_unusual and not any(values.is_needed(name) for name in node.outputs if name):
                operation = replace(operation, outputs=(None,))  # runtimes ignore its type
            removal = removed.find(node, operation)
            if is_redundant_cast(operation):
                neighbors = tuple(
                    make_neighbor(describe(near), near.inputs, near.outputs, name)
                    for near, name in traits.changes.find_neighbors(node)
                )
                has_functions = bool(self.functions or self.within)
                operation = replace(operation, traits=NodeTraits(neighbors=neighbors, has_functions=has_functions))
            overloads = self.overloads.get(node.operator[:2], ()) if self.functions else ()
            is_call = bool(overloads)
            unread = ""
            inside: tuple[TypedNode, ...] = ()
            if is_call:
                called = self.functions.get((*node.operator[:2], "" if self.within else node.operator[2]))
                inner = self._called(node, called, scope, values) if called is not None else ()
                unread = UNKNOWN_OVERLOAD if called is None else OVERLOADED if len(overloads) > 1 else ""
                unread = unread if inner is not None else self.calls.unread or _TOO_MANY_CALLS
                inside = inner or ()
            else:
                branches = removed.list_removed_branches(node) if node.graphs else frozenset()
                inside = tuple(self._inside(node, typed.node[index], scope, values, branches)) if node.graphs else ()
            if removal or (node.graphs and not is_call and branches):
                operation = replace(operation, traits=replace(operation.traits, removal=removal or "inlined"))
            if removal:
                inside = mark_removed(inside, removal)
            yield TypedNode(
                operation,
                node.name,
                node.proto,
                inside,
                is_call,
                self.within,
                type_of,
                unread,
                values.find_source,
                values.has_use,
                values.is_model_output,
            )

    def _describe(self, scope: ValueTypes, traits: TraitReader, node: NodeView) -> Operation:
        """Return the operation of a node, without its neighbors."""
        domain, name, _ = node.operator
        spell, version = scope.spell, self.imports.get(domain)
        return _make_operation(
            domain,
            name,
            (0 if version is None else version or _OPSET_ZERO, self.imports.get(DEFAULT_DOMAIN, 0)),
            (tuple(map(spell, node.inputs)), _spell_constant(node) or tuple(map(spell, node.outputs))),
            _read_attributes(node) if node.attributes else (),
            name == "Shape" and _has_static_shape(node, scope),
            traits.read(node) if name in DESCRIBED else NO_TRAITS,
        )

    def _inside(
        self,
        node: NodeView,
        typed_node: NodeProto,
        scope: ValueTypes,
        values: GraphValues,
        removed_branches: frozenset[int],
    ) -> Iterator[TypedNode]:
        for index, (graph, typed) in enumerate(zip(node.graphs, iter_node_subgraphs(typed_node), strict=True)):
            inner = ValueTypes(typed, graph.proto, scope)
            if node.operator[1] == "Loop":
                _pass_in(node, graph.proto, inner, scope)
            self.propagate(graph, inner)
            nodes = self.nodes(graph, typed, inner, values)
            yield from mark_removed(nodes, "branch") if index in removed_branches else nodes

    def _called(
        self, node: NodeView, body: GraphView, scope: ValueTypes, values: GraphValues
    ) -> tuple[TypedNode, ...] | None:
        """Return the nodes of the function that a node calls, with their types; None if the call is not followed."""
        if self.calls.unread:
            return None
        function = body.proto
        types = [scope.type_of(name) if name else None for name in node.inputs]
        # Its nodes become nodes of the model, at the model's versions. Source: models whose functions import
        # different versions than the model itself, loaded on ONNX Runtime 1.16 to 1.31.
        imports = {
            opset.domain: self.imports.get(canonical_domain(opset.domain), opset.version)
            for opset in function.opset_import
        }
        signature = [attribute.SerializeToString() for attribute in node.attributes]
        signature += [b"" if value_type is None else value_type.SerializeToString() for value_type in types]
        signature.append(bytes(map(bool, node.inputs)))  # an absent input is not one of unknown type
        constants, outer_constants = self._list_constants(node, body, values)
        signature += [tensor.SerializeToString() for tensor in constants]
        signature += [b"", *sorted(map(str.encode, outer_constants))]
        key = (function.domain, function.name, function.overload, *sorted(imports.items()), *signature)
        bodies = self.calls.bodies
        if key not in bodies:
            if len(bodies) >= MAX_FUNCTION_CALLS:
                return None
            bodies[key] = ()
            functions = tuple(reached.proto for reached in self._reached(body).values())
            model = instantiate_function(
                function, node.proto, types, imports=imports, functions=functions, constants=constants
            )
            bodies[key] = _infer_graph_nodes(
                ModelView(model),
                f"{function.domain}.{function.name}",
                self.calls,
                outer_constants=outer_constants,
            )
        return bodies[key]

    def _list_constants(
        self, node: NodeView, body: GraphView, values: GraphValues
    ) -> tuple[list[TensorProto], frozenset[str]]:
        """Return the small constants that a call passes to nodes that read them, by the names of the function's inputs.

        The names of those that belong to graphs around the call are returned, too. Source: 750 nodes of 60 operators
        with constants, moved into functions with constants of the function, of its caller, and of the graph around the
        call (6,750 models), loaded on ONNX Runtime 1.16.3, 1.18.1, 1.20.1, 1.24.4, 1.31.1 and 1.32.0.
        """
        constants, outer = [], set()
        passed = zip(body.proto.input, node.inputs, strict=False)
        for formal, name in passed if len(self.calls.bodies) < _MAX_BODIES_WITH_CONSTANTS else ():
            tensor = values.constant(name) if name and values.is_stored(name) else None
            if tensor is None or tensor.external_data or tensor.ByteSize() > _MAX_ATTRIBUTE_BYTES:
                continue
            if formal in self._list_read(body):
                constants.append(deepcopy(tensor))
                constants[-1].name = formal
                if not values.is_stored_here(name):
                    outer.add(formal)
        return constants, frozenset(outer)

    def _list_read(self, body: GraphView) -> set[str]:
        """Return the names of the values of a function that nodes read, also after they computed with them."""
        key = function_key(body.proto)
        if key not in self.calls.read:
            read: set[str] = set()
            for node in reversed([*body.all_nodes()]):
                name = node.operator[1]
                is_computed = name in FOLDED and not read.isdisjoint(node.outputs)
                if name in READERS or is_computed or node.operator[:2] in self.overloads:
                    read.update(node.inputs)
            self.calls.read[key] = read
        return self.calls.read[key]

    def _reached(self, function: GraphView) -> dict[OperatorKey, GraphView]:
        """Return the local functions that `function` calls directly or indirectly, by operator."""
        reached: dict[OperatorKey, GraphView] = {}
        ahead = [function]
        while ahead:
            for node in ahead.pop().all_nodes():
                for key in self.overloads.get(node.operator[:2], ()):
                    if key not in reached:
                        reached[key] = self.functions[key]
                        ahead.append(reached[key])
        return reached


def _spell_constant(node: NodeView) -> tuple[str | None, ...]:
    """Return the type of the tensor in a Constant node, which applies even if another type is declared; () if none."""
    if node.operator[1] != "Constant" or len(node.attributes) != 1 or node.attributes[0].type != _TENSOR:
        return ()
    return (_TENSOR_TYPE_NAMES.get(node.attributes[0].t.data_type, ""),)


def _pass_in(node: NodeView, body: GraphProto, inner: ValueTypes, scope: ValueTypes) -> None:
    """Give the types of a Loop's inputs to the inputs of its body that have no declared type."""
    names = [None, None, *node.inputs[2:]]
    for value, name in zip(body.input, names, strict=False):
        outer_type = scope.type_of(name) if name else None
        if value.name not in inner.names and outer_type is not None:
            inner.add(value.name, _remove_shape(outer_type))


def _has_static_shape(node: NodeView, scope: ValueTypes) -> bool:
    """Return whether all dimensions of the node's first input are fixed."""
    first = scope.type_of(node.inputs[0]) if node.inputs else None
    if first is None or not first.tensor_type.HasField("shape"):
        return False
    return all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in first.tensor_type.shape.dim)


def _make_tensor_type(element: int, dims: Sequence[int] | None = None) -> TypeProto:
    """Return the type of a tensor with this element type; it has no shape if `dims` is None."""
    from onnx import TypeProto

    tensor_type = TypeProto()
    tensor_type.tensor_type.elem_type = element
    if dims is not None:
        tensor_type.tensor_type.shape.SetInParent()
    for dim in dims or ():
        tensor_type.tensor_type.shape.dim.add(dim_value=dim)
    return tensor_type


def _parse_type(text: str, known_types: Mapping[str | None, TypeProto | None]) -> TypeProto | None:
    """Return the type that ONNX Runtime spells as `text`, without a shape; None if the spelling is unknown."""
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


def _read_attributes(node: NodeView) -> tuple[tuple[str, str, bytes, int], ...]:
    """Return the name, kind, serialized data and element count of each attribute of a node, sorted by name.

    The data is empty for attributes of Constant, subgraphs, and attributes of more than `_MAX_ATTRIBUTE_BYTES`. Only
    these have a count, if they are lists.
    """
    name = node.operator[1]
    found = []
    for attribute in node.attributes:
        is_separate = name == "Constant" or (name in _CONTROL_FLOW and attribute.HasField("g"))
        omitted = find_omitted_list(attribute) if attribute.doc_string else None
        is_readable = not is_separate and omitted is None and attribute.ByteSize() <= _MAX_ATTRIBUTE_BYTES
        data = attribute.SerializeToString() if is_readable else b""
        lists = 0 if is_readable else max(len(attribute.floats), len(attribute.ints), len(attribute.strings))
        count = lists if omitted is None else omitted.count
        found.append((attribute.name, attribute.AttributeType.Name(attribute.type), data, count))
    found.sort(key=itemgetter(0))
    return tuple(found)


def instantiate_function(
    function: FunctionProto,
    node: NodeProto,
    types: Sequence[TypeProto | None],
    *,
    imports: Mapping[str, int],
    defaults: Mapping[str, AttributeProto] = MappingProxyType({}),
    functions: Sequence[FunctionProto] = (),
    constants: Sequence[TensorProto] = (),
) -> ModelProto:
    """Return a model whose graph is the body of a called function, with the call's input types and attribute values.

    `constants` are initializers that replace inputs of the same names.
    `imports` maps the domains that the model imports to their versions; "" is the default domain.
    """
    from onnx import ModelProto

    model = ModelProto(ir_version=8)
    for domain, version in imports.items():
        model.opset_import.add(domain=domain, version=version)
    model.functions.extend(functions)
    model.graph.name = function.name
    given = {
        formal: value_type for formal, name, value_type in zip(function.input, node.input, types, strict=False) if name
    }
    model.graph.initializer.extend(constants)
    constant_names = {tensor.name for tensor in constants}
    for formal, value_type in given.items():
        if formal not in constant_names:
            model.graph.input.add(name=formal, type=value_type)
    model.graph.node.extend(function.node)
    own = {attribute.name: attribute for attribute in (*function.attribute_proto, *node.attribute)}
    _fill_attributes(model.graph.node, {**defaults, **own}, set(function.input) - given.keys())
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
