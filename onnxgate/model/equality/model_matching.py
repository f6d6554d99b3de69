"""Matching of the graphs, nodes and weights of two models."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from onnxgate.model.equality.node_matching import KeyNumbers, NodeHashes, NodeMatching
from onnxgate.model.reading.graph import Graph, ModelGraphs, Node, ValueSource, Weight
from onnxgate.model.reading.view import OperatorKey


@dataclass(frozen=True, slots=True)
class ScopeStep:
    """One step of the path to a nested graph: a local function, or a node and the attribute that contains the graph."""

    node: Node | None = None
    attribute: str = ""
    function: OperatorKey | None = None


@dataclass(frozen=True, slots=True)
class MatchedScope:
    """A graph or function body that both models contain; `steps` is the path to it in the new model."""

    steps: tuple[ScopeStep, ...]
    alignment: NodeMatching


@dataclass(frozen=True, slots=True)
class WeightMatch:
    """A pair of matched weights: `old` is None for an added weight, and `new` for a removed weight.

    `copy_of` is the original weight if an added weight is a copy.
    """

    old: Weight | None
    new: Weight | None
    copy_of: Weight | None = None

    @property
    def same(self) -> bool:
        """Whether both weights exist and have the same content."""
        return self.old is not None and self.new is not None and self.old.content == self.new.content


@dataclass(slots=True)
class ModelMatching:
    """Two models with their matched graphs, functions and weights."""

    old: ModelGraphs
    new: ModelGraphs
    scopes: list[MatchedScope] = field(default_factory=list)
    functions: dict[OperatorKey, OperatorKey] = field(default_factory=dict)  # new -> old
    weights: list[WeightMatch] = field(default_factory=list)
    partners: dict[int, Weight] = field(default_factory=dict)  # id of an old weight -> the new weight


def match_models(old: ModelGraphs, new: ModelGraphs) -> ModelMatching:
    """Match the graphs, functions and weights of two models."""
    models = match_graphs(old, new)
    _match_weights(models)
    return models


def match_graphs(old: ModelGraphs, new: ModelGraphs) -> ModelMatching:
    """Match two models without their weights."""
    models = ModelMatching(old, new, functions=_match_functions(old, new))

    def operator(name: OperatorKey) -> OperatorKey:
        return models.functions.get(name, name)

    def descend(before: Graph, after: Graph, steps: tuple[ScopeStep, ...], around: NodeMatching | None) -> None:
        alignment = NodeMatching(before, after, operator, around)
        models.scopes.append(MatchedScope(steps, alignment))
        for first, second in sorted(alignment.forth.items(), key=lambda it: after.nodes[it[1]].position):
            for name, bodies in before.nodes[first].bodies.items():
                others = after.nodes[second].bodies.get(name, ())
                for a, b in zip(bodies, others, strict=False):
                    descend(a, b, (*steps, ScopeStep(after.nodes[second], name)), alignment)

    descend(old.main, new.main, (), None)
    for after, before in models.functions.items():
        descend(old.functions[before], new.functions[after], (ScopeStep(function=after),), None)
    return models


def _match_functions(old: ModelGraphs, new: ModelGraphs) -> dict[OperatorKey, OperatorKey]:
    """Match local functions by name, or by body if their names differ."""
    matched = {name: name for name in new.functions if name in old.functions}
    numbers: KeyNumbers = {}
    by_body: defaultdict[object, list[OperatorKey]] = defaultdict(list)
    for name in old.functions:
        if name not in matched:
            by_body[_hash_body(old.functions[name], numbers)].append(name)
    for name in new.functions:
        if name not in matched and (same := by_body.get(_hash_body(new.functions[name], numbers))):
            matched[name] = same.pop(0)
    return matched


def _hash_body(wiring: Graph, numbers: KeyNumbers) -> object:
    graph_hash = NodeHashes(wiring, numbers, lambda it: it, lambda it: (it.kind, it.index), exact=True).outputs()
    return graph_hash, tuple(sorted(wiring.imports.items()))


def _match_weights(models: ModelMatching) -> None:
    links = Counter(
        (id(before), id(after)) for scope in models.scopes for before, after in iter_linked_weights(scope.alignment)
    )
    old, new = {id(it): it for it in _iter_weights(models.old)}, {id(it): it for it in _iter_weights(models.new)}
    places = {key: place for place, key in enumerate(links)}

    def strength(link: tuple[int, int]) -> tuple[bool, int, bool, int]:
        before, after = old[link[0]], new[link[1]]
        return before.content != after.content, -links[link], before.name != after.name, places[link]

    back: dict[int, Weight] = {}

    def take(pairs: Iterable[tuple[int, int]]) -> None:
        for before, after in pairs:
            if before not in models.partners and after not in back:
                models.partners[before] = new[after]
                back[after] = old[before]

    take(sorted(links, key=strength))
    for key in (lambda it: it.content, lambda it: (it.name, it.type, it.dims), lambda it: it.name):
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        for number, weight in old.items():
            if number not in models.partners:
                groups[key(weight)].append(number)
        for number, weight in new.items():
            if number not in back and groups[key(weight)]:
                take([(groups[key(weight)].pop(0), number)])
    weights = {weight.content: weight for weight in old.values()}
    models.weights = [
        WeightMatch(back.get(key), weight, None if key in back else weights.get(weight.content))
        for key, weight in new.items()
    ]
    models.weights += [WeightMatch(weight, None) for key, weight in old.items() if key not in models.partners]


def iter_linked_weights(alignment: NodeMatching) -> Iterator[tuple[Weight, Weight]]:
    """Yield pairs of weights at the same input or attribute of matched nodes."""
    old, new = alignment.old, alignment.new
    for first, second in alignment.forth.items():
        before, after = old.nodes[first], new.nodes[second]
        pairs = list(_link_inputs(old, before.sources, new, after.sources))
        first_contents, second_contents = (Counter(pair[side].content for pair in pairs) for side in (0, 1))
        if first_contents == second_contents:  # equal weights, possibly in a different order
            by_content = {weight.content: weight for _, weight in pairs}
            pairs = [(weight, by_content[weight.content]) for weight, _ in pairs]
        yield from pairs
        for name, weights in before.tensors.items():
            yield from zip(weights, after.tensors.get(name, ()), strict=False)
    yield from _link_inputs(old, old.outputs, new, new.outputs)


def _link_inputs(
    old: Graph, before: Iterable[ValueSource], new: Graph, after: Iterable[ValueSource]
) -> Iterator[tuple[Weight, Weight]]:
    for a, b in zip(before, after, strict=False):
        first, second = old.weight(a), new.weight(b)
        if first is not None and second is not None:
            yield first, second


def _iter_weights(wired: ModelGraphs) -> Iterator[Weight]:
    for wiring in wired.scopes():
        yield from wiring.weights.values()
        for node in wiring.nodes:
            for weights in node.tensors.values():
                yield from weights
