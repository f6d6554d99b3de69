"""Two whole models side by side: which graph, node and weight of one is which of the other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from onnxgate.model.alignment import Alignment
from onnxgate.model.fingerprints import Fingerprints, Symbols
from onnxgate.model.wiring import Node, Operator, Source, Weight, Wired, Wiring


@dataclass(frozen=True, slots=True)
class Step:
    """One step down to a graph inside: the local function, or the node and its attribute."""

    node: Node | None = None
    attribute: str = ""
    function: Operator | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """A graph or function body that is in both models; `steps` lead to it in the new one."""

    steps: tuple[Step, ...]
    alignment: Alignment


@dataclass(frozen=True, slots=True)
class WeightMatch:
    """A weight before and after; None where there is none. `copy_of` is what a new one repeats."""

    old: Weight | None
    new: Weight | None
    copy_of: Weight | None = None

    @property
    def same(self) -> bool:
        """Both hold the same."""
        return self.old is not None and self.new is not None and self.old.content == self.new.content


@dataclass(slots=True)
class Models:
    """Two wired models and how they match."""

    old: Wired
    new: Wired
    scopes: list[Scope] = field(default_factory=list)
    functions: dict[Operator, Operator] = field(default_factory=dict)  # new -> old
    weights: list[WeightMatch] = field(default_factory=list)
    partners: dict[int, Weight] = field(default_factory=dict)  # id of an old weight -> the new one


def match(old: Wired, new: Wired) -> Models:
    """Match the two."""
    models = Models(old, new, functions=_functions(old, new))
    symbols = Symbols()

    def operator(name: Operator) -> Operator:
        return models.functions.get(name, name)

    def descend(before: Wiring, after: Wiring, steps: tuple[Step, ...], around: Alignment | None) -> None:
        alignment = Alignment(before, after, symbols, operator, around)
        models.scopes.append(Scope(steps, alignment))
        for first, second in sorted(alignment.forth.items(), key=lambda it: after.nodes[it[1]].position):
            for name, bodies in before.nodes[first].bodies.items():
                others = after.nodes[second].bodies.get(name, ())
                for a, b in zip(bodies, others, strict=False):
                    descend(a, b, (*steps, Step(after.nodes[second], name)), alignment)

    descend(old.main, new.main, (), None)
    for after, before in models.functions.items():
        descend(old.functions[before], new.functions[after], (Step(function=after),), None)
    _match_weights(models)
    return models


def _functions(old: Wired, new: Wired) -> dict[Operator, Operator]:
    """Local functions by name; the others by what they do."""
    found = {name: name for name in new.functions if name in old.functions}
    symbols = Symbols()
    by_body: defaultdict[object, list[Operator]] = defaultdict(list)
    for name in old.functions:
        if name not in found:
            by_body[_body(old.functions[name], symbols)].append(name)
    for name in new.functions:
        if name not in found and (same := by_body.get(_body(new.functions[name], symbols))):
            found[name] = same.pop(0)
    return found


def _body(wiring: Wiring, symbols: Symbols) -> object:
    whole = Fingerprints(wiring, symbols, "exact", lambda it: it, lambda it: (it.kind, it.index)).whole()
    return whole, tuple(sorted(wiring.imports.items()))


def _match_weights(models: Models) -> None:
    links = Counter(
        (id(before), id(after)) for scope in models.scopes for before, after in linked_weights(scope.alignment)
    )
    old, new = {id(it): it for it in _weights(models.old)}, {id(it): it for it in _weights(models.new)}
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
    for key in (lambda it: it.content, lambda it: (it.name, it.form), lambda it: it.name):
        take(_left_over(old, new, models.partners, back, key))
    held = {weight.content: weight for weight in old.values()}
    models.weights = [
        WeightMatch(back.get(key), weight, None if key in back else held.get(weight.content))
        for key, weight in new.items()
    ]
    models.weights += [WeightMatch(weight, None) for key, weight in old.items() if key not in models.partners]


def _left_over(
    old: dict[int, Weight],
    new: dict[int, Weight],
    forth: dict[int, Weight],
    back: dict[int, Weight],
    key: object,
) -> Iterator[tuple[int, int]]:
    groups: defaultdict[object, list[int]] = defaultdict(list)
    for number, weight in old.items():
        if number not in forth:
            groups[key(weight)].append(number)  # type: ignore[operator]
    for number, weight in new.items():
        if number not in back and groups.get(wanted := key(weight)):  # type: ignore[operator]
            yield groups[wanted].pop(0), number


def linked_weights(alignment: Alignment) -> Iterator[tuple[Weight, Weight]]:
    """Weights that stand at the same place of counterparts."""
    old, new = alignment.old, alignment.new
    for first, second in alignment.forth.items():
        before, after = old.nodes[first], new.nodes[second]
        yield from _of_node(old, before.sources, new, after.sources)
        for name, held in before.held.items():
            yield from zip(held, after.held.get(name, ()), strict=False)
    yield from _both(old, old.outputs, new, new.outputs)


def _of_node(
    old: Wiring, before: Iterable[Source], new: Wiring, after: Iterable[Source]
) -> Iterator[tuple[Weight, Weight]]:
    """Input by input; where all of them are there in another order, by what they hold."""
    pairs = list(_both(old, before, new, after))
    first, second = Counter(it.content for it, _ in pairs), {it.content: it for _, it in pairs}
    if first == Counter(it.content for _, it in pairs):
        yield from ((it, second[it.content]) for it, _ in pairs)
    else:
        yield from pairs


def _both(
    old: Wiring, before: Iterable[Source], new: Wiring, after: Iterable[Source]
) -> Iterator[tuple[Weight, Weight]]:
    for a, b in zip(before, after, strict=False):
        first, second = old.weight(a), new.weight(b)
        if first is not None and second is not None:
            yield first, second


def _weights(wired: Wired) -> Iterator[Weight]:
    for wiring in wired.scopes():
        yield from wiring.weights.values()
        for node in wiring.nodes:
            for held in node.held.values():
                yield from held
