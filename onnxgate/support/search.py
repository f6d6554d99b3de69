"""The search for ways out of a miss: each one found is implemented by every release that is asked."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from onnxgate.support.bodies import definition
from onnxgate.support.casts import casts, distance, is_exact, retyped
from onnxgate.support.limits import Limits, loads
from onnxgate.support.match import CPU, Answer, match
from onnxgate.support.operations import Attribute, Miss, Operation, Prepared
from onnxgate.support.spans import span
from onnxgate.support.table import Implementation, Schema
from onnxgate.support.ways import AtOpset, Expanded, Imported, Raised, Replaced, Retyped, Way, With, Without

DEFAULT, CONTRIB = "ai.onnx", "com.microsoft"
_INTERNAL = frozenset({"com.microsoft.nchwc", "com.ms.internal.nhwc"})
"""Domains of operators that ONNX Runtime puts into graphs by itself."""
_LOWEST = 7
"""The first opset of ai.onnx that ONNX Runtime promises to take."""
_TRIED = 6
"""At how many opsets, the nearest ones, all of a model is looked at."""
_MOST = 3
_ALIKE = 0.9
_LOSING = frozenset({"unknown-operator", "deprecated-operator", "missing-kernel"})
_SUCCESSORS: dict[str, tuple[Replaced, ...]] = {
    "Scatter": (Replaced(DEFAULT, "ScatterElements"),),
    "Upsample": (
        Replaced(
            DEFAULT,
            "Resize",
            inputs=(0, None, 1),
            attributes=(("coordinate_transformation_mode", "asymmetric"), ("nearest_mode", "floor")),
        ),
        Replaced(DEFAULT, "Resize"),  # at opset 10, whose Resize takes no region
    ),
}
"""What computes the same as a deprecated operator. Source: ONNX's operator changelog, opsets 10 and 11."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One release that a model is promised on."""

    implementation: Implementation
    limits: Limits
    providers: tuple[str, ...] = (CPU,)

    def answer(self, operation: Operation) -> Answer:
        """What it makes of an operation."""
        return match(operation, self.implementation, self.providers)


@dataclass(frozen=True, slots=True)
class Missed:
    """Operations of a model that are refused for the same reason."""

    miss: Miss
    operations: tuple[Operation, ...]
    works_since: str = ""  # from this release on, all implement them; "" where the newest does not


def implemented(operations: Iterable[Operation], asked: Sequence[Asked]) -> bool:
    """Whether each release implements each operation."""
    return all(each.answer(operation) is None for operation in operations for each in asked)


def works(operations: Sequence[Operation], every: Sequence[Implementation]) -> tuple[str, str]:
    """From which release on all implement the operations, and up to which one all did; "" where there is none."""
    taken = [all(match(operation, each) is None for operation in operations) for each in every]
    return span([each.release for each in every], taken)


def ways_out(
    missed: Missed, prepared: Prepared, asked: Sequence[Asked], others: Sequence[Limits] = ()
) -> tuple[Way, ...]:
    """What would do, the best first and few of them. None where no release that is asked has kernels.

    `others` are the limits of releases whose kernels are not known: no opset is named that they would refuse.
    """
    if not asked:
        return ()
    search = _Search(missed, prepared, asked, (*(each.limits for each in asked), *others))
    return tuple(sorted(search.every(), key=_cost)[:_MOST])


def _cost(way: Way) -> int:
    match way:
        case Imported() | With():
            return 0
        case AtOpset(whole=whole):
            return 1 if whole else 6
        case Expanded():
            return 2
        case Retyped(exact=exact):
            return 3 if exact else 7
        case Replaced():
            return 3
        case Raised():
            return 4
        case Without():
            return 5


class _Search:
    def __init__(
        self, missed: Missed, prepared: Prepared, asked: Sequence[Asked], every_limits: Sequence[Limits]
    ) -> None:
        self._missed = missed
        self._operations = missed.operations
        self._first = missed.operations[0]
        self._prepared = prepared
        self._asked = asked
        self._limits = every_limits

    def every(self) -> Iterator[Way]:
        """Each way that all releases that are asked would take."""
        match self._missed.miss.rule:
            case "missing-kernel":
                yield from self._retyped()
                yield from self._expanded()
            case "type-mismatch":
                yield from self._retyped()
            case "attribute-unsupported":
                yield from self._without()
                yield from self._with()
            case "unknown-domain":
                yield from self._imported()
                yield from self._replaced(self._other_domains())
            case "unknown-operator":
                yield from self._replaced(self._other_names())
            case "deprecated-operator":
                yield from self._replaced(_SUCCESSORS.get(self._first.name, ()))
        yield from self._at_opset()
        if self._missed.works_since:
            yield Raised(self._missed.works_since)

    def _takes(self, change: Callable[[Operation], Operation | None]) -> bool:
        """Whether all releases implement the operations once they are changed."""
        changed = [change(operation) for operation in self._operations]
        return implemented([each for each in changed if each is not None], self._asked) and None not in changed

    # Another opset

    def _at_opset(self) -> Iterator[AtOpset]:
        domain = self._first.domain
        newest = _newest(domain, self._limits)
        if newest is None or not self._first.version:
            return
        versions = [v for v in range(_LOWEST if domain == DEFAULT else 1, newest + 1) if v != self._first.version]
        near = sorted(versions, key=lambda v: (abs(v - self._first.version), -v))
        fitting = [v for v in near if self._takes(lambda each, v=v: at_opset(each, domain, v))]  # type: ignore[misc]
        judged = [(v, self._rest(domain, v)) for v in fitting[:_TRIED]]
        found = [v for v, rest in judged if rest == "whole"] or [v for v, rest in judged if rest == "kept"]
        if found:
            yield AtOpset(domain, found[0], whole=(found[0], "whole") in judged)

    def _rest(self, domain: str, version: int) -> str:
        """What becomes of a model at another opset: the "whole" is implemented, all is "kept", or some is "lost"."""
        whole = _stamps_fit(self._prepared, domain, version, self._limits)
        for operation in {each.operation for each in self._prepared.every() if not each.calls}:
            there = at_opset(operation, domain, version)
            for asked in self._asked:
                answer = asked.answer(there)
                whole = whole and answer is None
                if isinstance(answer, Miss) and answer.rule in _LOSING and asked.answer(operation) is None:
                    return "lost"
        return "whole" if whole else "kept"

    # Another type

    def _retyped(self) -> Iterator[Retyped]:
        schema = self._schema()
        if schema is None or not self._first.opset:
            return
        found = [way for way in _retypings(self._first, schema) if self._takes_types(way, schema)]
        yield from sorted(found, key=lambda way: _effort(self._first, schema, way))[:1]

    def _takes_types(self, way: Retyped, schema: Schema) -> bool:
        if not self._takes(lambda each: retyped(each, schema, way.parameter, way.to)):
            return False
        return all(implemented(casts(each, schema, way.parameter, way.to), self._asked) for each in self._operations)

    def _schema(self) -> Schema | None:
        """The schema by which the newest release that has one reads the operations."""
        for asked in reversed(self._asked):
            operator = asked.implementation.operator(self._first.domain, self._first.name)
            schema = operator.schema(self._first.version or 1) if operator else None
            if schema is not None:
                return schema
        return None

    # Other attributes, another operator

    def _without(self) -> Iterator[Without]:
        for attribute in self._first.attributes:
            if self._takes(lambda each, name=attribute.name: without(each, name)):  # type: ignore[misc]
                yield Without(attribute.name)

    def _with(self) -> Iterator[With]:
        schema = self._schema()
        if schema is None:
            return
        given = {attribute.name: attribute.kind for attribute in self._first.attributes}
        wanted = tuple(
            (name, kind)
            for name, (kind, required) in schema.attributes.items()
            if (required and name not in given) or given.get(name, kind) != kind
        )
        if wanted and self._takes(lambda each: with_attributes(each, wanted)):
            yield With(wanted)

    def _imported(self) -> Iterator[Imported]:
        """Of a local function's domain, any version: it is the model that defines what is in it."""
        domain = self._first.domain
        newest = _newest(domain, self._limits)
        if any(node.calls and node.operation == self._first for node in self._prepared.every()):
            yield Imported(domain, 1)
        elif not self._first.version and newest and self._takes(lambda each: replace(each, version=newest or 0)):
            yield Imported(domain, newest)

    def _other_domains(self) -> Iterator[Replaced]:
        known = set(self._asked[0].implementation.domains()) - _INTERNAL - {self._first.domain}
        for domain in (*_same(self._first.domain, known), *_alike(self._first.domain, known)):
            yield Replaced(domain, self._first.name)

    def _other_names(self) -> Iterator[Replaced]:
        known = self._asked[0].implementation.operators(self._first.domain)
        for name in _same(self._first.name, set(known) - {self._first.name}):
            yield Replaced(self._first.domain, name)

    def _replaced(self, ways: Iterable[Replaced]) -> Iterator[Replaced]:
        fitting = (way for way in ways if self._takes(lambda each, way=way: self._by(each, way)))  # type: ignore[misc]
        yield from list(fitting)[:1]

    def _by(self, operation: Operation, way: Replaced) -> Operation | None:
        version = self._prepared.opsets.get(way.domain) or _newest(way.domain, self._limits) or 0
        return replaced(operation, way, operation.version if way.domain == operation.domain else version)

    def _expanded(self) -> Iterator[Expanded]:
        for operation in self._operations:
            schema = self._schema()
            nodes = definition(operation, schema.since) if schema is not None else None
            if nodes is None:
                return
            inner = [each.operation for top in nodes for each in top.every()]
            if not inner or not implemented(inner, self._asked):
                return
        yield Expanded()


def at_opset(operation: Operation, domain: str, version: int) -> Operation:
    """The operation in a model that imports another version of a domain."""
    opset = version if domain == DEFAULT and operation.opset else operation.opset
    own = version if domain == operation.domain and operation.version else operation.version
    return replace(operation, version=own, opset=opset)


def without(operation: Operation, attribute: str) -> Operation | None:
    """The operation without an attribute, None where it has none of that name."""
    kept = tuple(each for each in operation.attributes if each.name != attribute)
    return replace(operation, attributes=kept) if len(kept) < len(operation.attributes) else None


def with_attributes(operation: Operation, attributes: Sequence[tuple[str, str]]) -> Operation:
    """The operation with attributes of these kinds, whatever they hold, in the place of its own of the same names."""
    names = {name for name, _ in attributes}
    kept = [each for each in operation.attributes if each.name not in names]
    new = [Attribute(name, kind, b"") for name, kind in attributes]
    return replace(operation, attributes=tuple(sorted((*kept, *new), key=lambda each: each.name)))


def replaced(operation: Operation, way: Replaced, version: int) -> Operation | None:
    """The operation by another operator; None where an argument that it would need is not there."""
    order = way.inputs if way.inputs is not None else tuple(range(len(operation.inputs)))
    if any(index is not None and index >= len(operation.inputs) for index in order):
        return None
    inputs = tuple(None if index is None else operation.inputs[index] for index in order)
    other = replace(operation, domain=way.domain, name=way.name, version=version, inputs=inputs)
    return with_attributes(other, [(name, "STRING") for name, _ in way.attributes])


def _newest(domain: str, limits: Sequence[Limits]) -> int | None:
    """The newest version of a domain that all take; None where none of them limits it."""
    return min((each.opsets[domain] for each in limits if domain in each.opsets), default=None)


def _stamps_fit(prepared: Prepared, domain: str, version: int, limits: Sequence[Limits]) -> bool:
    opsets = {**prepared.opsets, domain: version}
    return all(loads(each, prepared.ir_version, opsets) for each in limits)


def _same(name: str, known: Iterable[str]) -> list[str]:
    """Names that differ in the case of letters and in underscores alone; one more letter is another operator."""
    return [each for each in sorted(known) if _folded(each) == _folded(name)]


def _folded(name: str) -> str:
    return name.replace("_", "").casefold()


def _alike(name: str, known: Iterable[str]) -> list[str]:
    """Names that are spelled alike, the nearest first."""
    return difflib.get_close_matches(name, sorted(known), cutoff=_ALIKE)


def _retypings(operation: Operation, schema: Schema) -> Iterator[Retyped]:
    for parameter in dict.fromkeys(formal.type for formal in (*schema.inputs, *schema.outputs)):
        for to in sorted(schema.constraints.get(parameter) or {parameter}):
            other = retyped(operation, schema, parameter, to)
            if other is not None and other != operation:
                back = other.outputs != operation.outputs
                yield Retyped(parameter, to, is_exact(operation, other), back)


def _effort(operation: Operation, schema: Schema, way: Retyped) -> tuple[object, ...]:
    """Few casts before many, exact ones before others, near types before far ones."""
    needed = casts(operation, schema, way.parameter, way.to)
    return len(needed), not way.exact, distance(operation, schema, way.parameter, way.to), way.to
