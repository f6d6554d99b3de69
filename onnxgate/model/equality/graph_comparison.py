"""Differences between two graphs, found from their outputs backwards; names of values and nodes do not matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from onnxgate.model.reading.fact_extraction import (
    canonical_domain,
    format_change,
    format_operator,
    read_attributes,
    read_opsets,
)
from onnxgate.model.reading.graph import trim_trailing_empty
from onnxgate.model.reading.structure import iter_subgraphs

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

_Position = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GraphDifference:
    """One difference; `where` orders differences as the new model has its nodes."""

    where: _Position
    text: str


@dataclass(frozen=True, slots=True)
class WeightPair:
    """Two tensors that stand for each other, still to be compared."""

    where: _Position
    label: str
    old: TensorProto
    new: TensorProto


@dataclass(frozen=True, slots=True)
class _Value:
    """Resolved name of a value: a graph input, a weight, a node's output, or nothing."""

    kind: Literal["nothing", "input", "weight", "sparse", "node", "unknown"]
    scope: _Scope
    name: str
    index: int = 0  # an input's position, or the output of its node
    node: int = 0


@dataclass(slots=True)
class _Scope:
    """One graph or function body, and the graph around it."""

    holder: GraphProto | FunctionProto
    opsets: dict[str, int]
    label: str = ""  # "" for the main graph
    where: _Position = ()
    parent: _Scope | None = None
    inputs: dict[str, int] = field(default_factory=dict)
    weights: dict[str, TensorProto] = field(default_factory=dict)
    sparse: dict[str, SparseTensorProto] = field(default_factory=dict)
    overridable: set[str] = field(default_factory=set)  # weights that are inputs too
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [getattr(value, "name", value) for value in self.holder.input]
        self.weights = {tensor.name: tensor for tensor in getattr(self.holder, "initializer", ())}
        self.sparse = {it.values.name: it for it in getattr(self.holder, "sparse_initializer", ())}
        with_data = {*self.weights, *self.sparse}
        self.overridable = with_data.intersection(names)
        self.inputs = {name: index for index, name in enumerate(it for it in names if it not in with_data)}
        for position, node in enumerate(self.holder.node):
            for index, name in enumerate(node.output):
                self.producers[name] = position, index

    def resolve(self, name: str) -> _Value:
        """Resolve `name` in this graph or an enclosing one."""
        if not name:
            return _Value("nothing", self, name)
        if name in self.weights:
            return _Value("weight", self, name)
        if name in self.sparse:
            return _Value("sparse", self, name)
        if name in self.inputs:
            return _Value("input", self, name, self.inputs[name])
        if name in self.producers:
            node, index = self.producers[name]
            return _Value("node", self, name, index, node)
        return self.parent.resolve(name) if self.parent else _Value("unknown", self, name)

    def dims(self, name: str) -> Sequence[int] | None:
        """The dims of a weight."""
        value = self.resolve(name)
        return tuple(value.scope.weights[name].dims) if value.kind == "weight" else None


class GraphComparison:
    """The differences between two models' graphs, and the pairs of weights whose data are yet to be compared."""

    def __init__(self, old: ModelProto, new: ModelProto) -> None:
        self.found: list[GraphDifference] = []
        self.weights: list[WeightPair] = []
        self.values: dict[str, str] = {}  # value that a node of the old main graph makes -> its name in the new one
        self._old_functions = {_function_key(function): function for function in old.functions}
        self._new_functions = {_function_key(function): function for function in new.functions}
        self._seen: set[tuple[int, str, int, str]] = set()
        self._nodes: set[tuple[int, int, int, int]] = set()
        self._scopes: list[_Scope] = []  # keeps ids unique
        self._pairs: set[tuple[int, int]] = set()
        self._work: list[tuple[_Value, _Value, _Position, str]] = []
        self._match_holders(
            self._scope(old.graph, read_opsets(old)),
            self._scope(new.graph, read_opsets(new)),
        )
        while self._work:
            self._values(*self._work.pop())

    def _scope(self, holder: GraphProto | FunctionProto, imports: dict[str, int], **more: object) -> _Scope:
        scope = _Scope(holder, imports, **more)  # type: ignore[arg-type]
        self._scopes.append(scope)
        return scope

    def _match_holders(self, old: _Scope, new: _Scope) -> None:
        """Queue the outputs of two graphs or function bodies, by position."""
        self._pairs.add((id(old), id(new)))
        for index, (before, after) in enumerate(zip(_output_names(old), _output_names(new), strict=False)):
            end = (len(new.holder.node), index)
            label = f"{new.label}output `{after}`"
            self._work.append((old.resolve(before), new.resolve(after), (*new.where, *end), label))

    def _say(self, where: _Position, text: str) -> None:
        self.found.append(GraphDifference(where, text))

    def _values(self, old: _Value, new: _Value, where: _Position, user: str) -> None:
        key = (id(old.scope), old.name, id(new.scope), new.name)
        if key in self._seen:
            return
        self._seen.add(key)
        match old.kind, new.kind:
            case "node", "node" if self._same_producer(old, new):
                self._match_nodes(old, new)
            case "weight", "weight":
                self._match_weights(old, new, where)
            case "sparse", "sparse":
                self._match_sparse(old, new, where)
            case ("input", "input") if self._same_input(old, new):
                pass
            case ("nothing", "nothing") | ("unknown", "unknown") if old.name == new.name:
                pass
            case _:
                self._say(where, f"{user} is {_format_origin(new)}, was {_format_origin(old)}")

    def _same_producer(self, old: _Value, new: _Value) -> bool:
        before, after = old.scope.holder.node[old.node], new.scope.holder.node[new.node]
        return _operator_key(before) == _operator_key(after) and old.index == new.index

    def _same_input(self, old: _Value, new: _Value) -> bool:
        """Compare inputs of the main graph by name, or by position if renamed; others by position."""
        if (id(old.scope), id(new.scope)) not in self._pairs:
            return False
        if new.scope.parent is None and old.name == new.name:
            return True
        renamed = old.name not in new.scope.inputs and new.name not in old.scope.inputs
        return old.index == new.index and (renamed or new.scope.parent is not None)

    def _match_weights(self, old: _Value, new: _Value, where: _Position) -> None:
        before, after = old.scope.weights[old.name], new.scope.weights[new.name]
        label = f"weight `{new.name}`"
        self.weights.append(WeightPair(where, label, before, after))
        overridable = old.name in old.scope.overridable, new.name in new.scope.overridable
        if overridable[0] != overridable[1]:
            self._say(where, f"{label} {'can be given as an input too' if overridable[1] else 'is no input any more'}")

    def _match_sparse(self, old: _Value, new: _Value, where: _Position) -> None:
        before, after = old.scope.sparse[old.name], new.scope.sparse[new.name]
        label = f"sparse weight `{new.name}`"
        if list(before.dims) != list(after.dims):
            self._say(where, f"{label} has shape {list(after.dims)}, had {list(before.dims)}")
        self.weights.append(WeightPair(where, label, before.values, after.values))
        self.weights.append(WeightPair(where, f"{label} (indices)", before.indices, after.indices))

    def _match_nodes(self, old: _Value, new: _Value) -> None:
        key = (id(old.scope), old.node, id(new.scope), new.node)
        if key in self._nodes:
            return
        self._nodes.add(key)
        before, after = old.scope.holder.node[old.node], new.scope.holder.node[new.node]
        if old.scope.parent is None and new.scope.parent is None:
            self.values.update(zip(before.output, after.output, strict=False))
        where = (*new.scope.where, new.node)
        label = f"{new.scope.label}node {new.node} {format_operator(after)}"
        counts = len(trim_trailing_empty(before.output)), len(trim_trailing_empty(after.output))
        if counts[0] != counts[1]:
            self._say(where, f"{label} has {counts[1]} outputs, had {counts[0]}")
        self._match_attributes(old.scope, before, new.scope, after, where, label)
        self._match_inputs(old.scope, before, new.scope, after, where, label)
        self._match_functions(before, after, where)

    def _match_inputs(
        self, old: _Scope, before: NodeProto, new: _Scope, after: NodeProto, where: _Position, label: str
    ) -> None:
        first, second = trim_trailing_empty(before.input), trim_trailing_empty(after.input)
        for index in range(max(len(first), len(second))):
            a = old.resolve(first[index] if index < len(first) else "")
            b = new.resolve(second[index] if index < len(second) else "")
            self._work.append((a, b, where, f"{label}: input {index}"))

    def _match_attributes(
        self, old: _Scope, before: NodeProto, new: _Scope, after: NodeProto, where: _Position, label: str
    ) -> None:
        first = read_attributes(before, _node_opset(old, before), old.dims)
        second = read_attributes(after, _node_opset(new, after), new.dims)
        for name in sorted({*first, *second}):
            if first.get(name) != second.get(name):
                text = format_change(first.get(name), second.get(name))
                self._say(where, f"{label}: attribute `{name}` {text}")
        attributes = {attribute.name: attribute for attribute in before.attribute if attribute.name not in first}
        for attribute in after.attribute:
            if attribute.name not in second:
                self._match_tensors_and_graphs(old, attributes.pop(attribute.name, None), new, attribute, where, label)
        for name in attributes:
            self._say(where, f"{label}: attribute `{name}` is gone")

    def _match_tensors_and_graphs(
        self,
        old: _Scope,
        before: AttributeProto | None,
        new: _Scope,
        after: AttributeProto,
        where: _Position,
        label: str,
    ) -> None:
        """Attributes that hold tensors or graphs."""
        name = f"attribute `{after.name}`"
        if before is None or before.type != after.type:
            self._say(where, f"{label}: {name} {'is new' if before is None else 'is of another type'}")
            return
        first, second = list(_iter_attribute_tensors(before)), list(_iter_attribute_tensors(after))
        if len(first) != len(second) or len(list(iter_subgraphs(before))) != len(list(iter_subgraphs(after))):
            self._say(where, f"{label}: {name} holds another number of values")
        self.weights += [WeightPair(where, f"{label}: {name}", a, b) for a, b in zip(first, second, strict=False)]
        for a, b in zip(iter_subgraphs(before), iter_subgraphs(after), strict=False):
            self._match_bodies(old, a, new, b, where, f"{label}, {name}: ")

    def _match_bodies(
        self,
        old: _Scope,
        before: GraphProto | FunctionProto,
        new: _Scope,
        after: GraphProto | FunctionProto,
        where: _Position,
        label: str,
    ) -> None:
        for what in ("input", "output"):
            counts = len(getattr(before, what)), len(getattr(after, what))
            if counts[0] != counts[1]:
                self._say(where, f"{label}{counts[1]} {what}s, was {counts[0]}")
        self._match_holders(
            self._scope(before, old.opsets, label=label, where=where, parent=old),
            self._scope(after, new.opsets, label=label, where=where, parent=new),
        )

    def _match_functions(self, before: NodeProto, after: NodeProto, where: _Position) -> None:
        """A call of a local function: its body is compared once."""
        key = _operator_key(after)
        first, second = self._old_functions.pop(key, None), self._new_functions.pop(key, None)
        name = f"local function {format_operator(after)}"
        if first is None and second is None:
            return
        if first is None or second is None:
            self._say(where, f"{name} is {'new' if first is None else 'gone'}")
            return
        imports = _read_function_opsets(first), _read_function_opsets(second)
        if imports[0] != imports[1]:
            self._say(where, f"{name} imports other opsets")
        outer = _Scope(type(first)(), imports[0]), _Scope(type(second)(), imports[1])
        self._match_bodies(outer[0], first, outer[1], second, where, f"{name}: ")


def _output_names(scope: _Scope) -> list[str]:
    return [getattr(value, "name", value) for value in scope.holder.output]


def _operator_key(node: NodeProto) -> tuple[str, str, str]:
    return canonical_domain(node.domain), node.op_type, getattr(node, "overload", "")


def _function_key(function: FunctionProto) -> tuple[str, str, str]:
    return canonical_domain(function.domain), function.name, getattr(function, "overload", "")


def _read_function_opsets(function: FunctionProto) -> dict[str, int]:
    return {canonical_domain(imported.domain): imported.version for imported in function.opset_import}


def _node_opset(scope: _Scope, node: NodeProto) -> int:
    return scope.opsets.get(canonical_domain(node.domain), 1)


def _iter_attribute_tensors(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    single = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    for sparse in (*attribute.sparse_tensors, *single):
        yield sparse.values
        yield sparse.indices


def _format_origin(value: _Value) -> str:
    match value.kind:
        case "node":
            node = value.scope.holder.node[value.node]
            which = f"output {value.index} of " if value.index else ""
            return f"{which}{format_operator(node)}"
        case "weight" | "input" | "sparse":
            return f"{value.kind} `{value.name}`"
        case "unknown":
            return f"`{value.name}`, which nothing makes"
        case _:
            return "not given"
