"""The search for ways out of a miss: each one found is implemented by every release that is asked."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from onnxgate.support.matching.function_bodies import get_definition_nodes
from onnxgate.support.matching.operations import Attribute, Operation, SupportGap, TypedModel
from onnxgate.support.matching.prediction import CPU_PROVIDER, MatchResult, match_operation
from onnxgate.support.suggestions.casts import change_parameter_type, is_lossless, list_casts, measure_type_distance
from onnxgate.support.suggestions.kinds import (
    AttributeAddition,
    AttributeRemoval,
    DomainImport,
    FunctionExpansion,
    MinimumReleaseRaise,
    OperatorReplacement,
    OpsetChange,
    Suggestion,
    TypeCast,
)
from onnxgate.support.tables.limits import Limits, accepts_versions, find_support_span
from onnxgate.support.tables.operators import Implementation, Schema

DEFAULT_DOMAIN, CONTRIB_DOMAIN = "ai.onnx", "com.microsoft"
_INTERNAL_DOMAINS = frozenset({"com.microsoft.nchwc", "com.ms.internal.nhwc"})
"""Domains of operators that ONNX Runtime puts into graphs by itself."""
_MIN_OPSET = 7
"""The first opset of ai.onnx that ONNX Runtime promises to take."""
_MAX_OPSETS_TRIED = 6
"""At how many opsets, the nearest ones, all of a model is looked at."""
_MAX_SUGGESTIONS = 3
_MIN_NAME_SIMILARITY = 0.9
_BREAKING_RULES = frozenset({"unknown-operator", "deprecated-operator", "missing-kernel"})
_SUCCESSORS: dict[str, tuple[OperatorReplacement, ...]] = {
    "Scatter": (OperatorReplacement(DEFAULT_DOMAIN, "ScatterElements"),),
    "Upsample": (
        OperatorReplacement(
            DEFAULT_DOMAIN,
            "Resize",
            inputs=(0, None, 1),
            attributes=(("coordinate_transformation_mode", "asymmetric"), ("nearest_mode", "floor")),
        ),
        OperatorReplacement(DEFAULT_DOMAIN, "Resize"),  # at opset 10, whose Resize takes no region
    ),
}
"""What computes the same as a deprecated operator. Source: ONNX's operator changelog, opsets 10 and 11."""


@dataclass(frozen=True, slots=True)
class RequiredRelease:
    """One release that a model is promised on."""

    implementation: Implementation
    limits: Limits
    providers: tuple[str, ...] = (CPU_PROVIDER,)

    def answer(self, operation: Operation) -> MatchResult:
        """What it makes of an operation."""
        return match_operation(operation, self.implementation, self.providers)


@dataclass(frozen=True, slots=True)
class SupportGapGroup:
    """Operations of a model that are refused for the same reason."""

    miss: SupportGap
    operations: tuple[Operation, ...]
    works_since: str = ""  # from this release on, all implement them; "" where the newest does not


def is_implemented(operations: Iterable[Operation], asked: Sequence[RequiredRelease]) -> bool:
    """Whether each release implements each operation."""
    return all(each.answer(operation) is None for operation in operations for each in asked)


def find_implemented_span(operations: Sequence[Operation], every: Sequence[Implementation]) -> tuple[str, str]:
    """From which release on all implement the operations, and up to which one all did; "" where there is none."""
    taken = [all(match_operation(operation, each) is None for operation in operations) for each in every]
    return find_support_span([each.release for each in every], taken)


def find_suggestions(
    missed: SupportGapGroup, prepared: TypedModel, asked: Sequence[RequiredRelease], others: Sequence[Limits] = ()
) -> tuple[Suggestion, ...]:
    """What would do, the best first and few of them. None where no release that is asked has kernels.

    `others` are the limits of releases whose kernels are not known: no opset is named that they would refuse.
    """
    if not asked:
        return ()
    search = _SuggestionSearch(missed, prepared, asked, (*(each.limits for each in asked), *others))
    return tuple(sorted(search.every(), key=_rank_suggestion)[:_MAX_SUGGESTIONS])


def _rank_suggestion(way: Suggestion) -> int:
    match way:
        case DomainImport() | AttributeAddition():
            return 0
        case OpsetChange(whole=whole):
            return 1 if whole else 6
        case FunctionExpansion():
            return 2
        case TypeCast(exact=exact):
            return 3 if exact else 7
        case OperatorReplacement():
            return 3
        case MinimumReleaseRaise():
            return 4
        case AttributeRemoval():
            return 5


class _SuggestionSearch:
    def __init__(
        self,
        missed: SupportGapGroup,
        prepared: TypedModel,
        asked: Sequence[RequiredRelease],
        every_limits: Sequence[Limits],
    ) -> None:
        self._missed = missed
        self._operations = missed.operations
        self._first = missed.operations[0]
        self._prepared = prepared
        self._asked = asked
        self._limits = every_limits

    def every(self) -> Iterator[Suggestion]:
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
            yield MinimumReleaseRaise(self._missed.works_since)

    def _takes(self, change: Callable[[Operation], Operation | None]) -> bool:
        """Whether all releases implement the operations once they are changed."""
        changed = [change(operation) for operation in self._operations]
        return is_implemented([each for each in changed if each is not None], self._asked) and None not in changed

    # Another opset

    def _at_opset(self) -> Iterator[OpsetChange]:
        domain = self._first.domain
        newest = _find_newest_common_opset(domain, self._limits)
        if newest is None or not self._first.version:
            return
        versions = [
            v for v in range(_MIN_OPSET if domain == DEFAULT_DOMAIN else 1, newest + 1) if v != self._first.version
        ]
        near = sorted(versions, key=lambda v: (abs(v - self._first.version), -v))
        fitting = [v for v in near if self._takes(lambda each, v=v: change_opset(each, domain, v))]  # type: ignore[misc]
        judged = [(v, self._rest(domain, v)) for v in fitting[:_MAX_OPSETS_TRIED]]
        found = [v for v, rest in judged if rest == "whole"] or [v for v, rest in judged if rest == "kept"]
        if found:
            yield OpsetChange(domain, found[0], whole=(found[0], "whole") in judged)

    def _rest(self, domain: str, version: int) -> str:
        """What becomes of a model at another opset: the "whole" is implemented, all is "kept", or some is "lost"."""
        whole = _accept_versions(self._prepared, domain, version, self._limits)
        for operation in {each.operation for each in self._prepared.every() if not each.calls}:
            there = change_opset(operation, domain, version)
            for asked in self._asked:
                answer = asked.answer(there)
                whole = whole and answer is None
                if (
                    isinstance(answer, SupportGap)
                    and answer.rule in _BREAKING_RULES
                    and asked.answer(operation) is None
                ):
                    return "lost"
        return "whole" if whole else "kept"

    # Another type

    def _retyped(self) -> Iterator[TypeCast]:
        schema = self._schema()
        if schema is None or not self._first.opset:
            return
        found = [way for way in _list_type_casts(self._first, schema) if self._takes_types(way, schema)]
        yield from sorted(found, key=lambda way: _rank_type_cast(self._first, schema, way))[:1]

    def _takes_types(self, way: TypeCast, schema: Schema) -> bool:
        if not self._takes(lambda each: change_parameter_type(each, schema, way.parameter, way.to)):
            return False
        return all(
            is_implemented(list_casts(operation, schema, way.parameter, way.to), self._asked)
            for operation in self._operations
        )

    def _schema(self) -> Schema | None:
        """The schema by which the newest release that has one reads the operations."""
        for asked in reversed(self._asked):
            operator = asked.implementation.operator(self._first.domain, self._first.name)
            schema = operator.schema(self._first.version or 1) if operator else None
            if schema is not None:
                return schema
        return None

    # Other attributes, another operator

    def _without(self) -> Iterator[AttributeRemoval]:
        for attribute in self._first.attributes:
            if self._takes(lambda each, name=attribute.name: remove_attribute(each, name)):  # type: ignore[misc]
                yield AttributeRemoval(attribute.name)

    def _with(self) -> Iterator[AttributeAddition]:
        schema = self._schema()
        if schema is None:
            return
        given = {attribute.name: attribute.kind for attribute in self._first.attributes}
        wanted = tuple(
            (name, kind)
            for name, (kind, required) in schema.attributes.items()
            if (required and name not in given) or given.get(name, kind) != kind
        )
        if wanted and self._takes(lambda each: set_attributes(each, wanted)):
            yield AttributeAddition(wanted)

    def _imported(self) -> Iterator[DomainImport]:
        """Of a local function's domain, any version: it is the model that defines what is in it."""
        domain = self._first.domain
        newest = _find_newest_common_opset(domain, self._limits)
        if any(node.calls and node.operation == self._first for node in self._prepared.every()):
            yield DomainImport(domain, 1)
        elif not self._first.version and newest and self._takes(lambda each: replace(each, version=newest or 0)):
            yield DomainImport(domain, newest)

    def _other_domains(self) -> Iterator[OperatorReplacement]:
        known = set(self._asked[0].implementation.domains()) - _INTERNAL_DOMAINS - {self._first.domain}
        for domain in (*_find_same_names(self._first.domain, known), *_find_similar_names(self._first.domain, known)):
            yield OperatorReplacement(domain, self._first.name)

    def _other_names(self) -> Iterator[OperatorReplacement]:
        known = self._asked[0].implementation.operators(self._first.domain)
        for name in _find_same_names(self._first.name, set(known) - {self._first.name}):
            yield OperatorReplacement(self._first.domain, name)

    def _replaced(self, ways: Iterable[OperatorReplacement]) -> Iterator[OperatorReplacement]:
        fitting = (way for way in ways if self._takes(lambda each, way=way: self._by(each, way)))  # type: ignore[misc]
        yield from list(fitting)[:1]

    def _by(self, operation: Operation, way: OperatorReplacement) -> Operation | None:
        version = self._prepared.opsets.get(way.domain) or _find_newest_common_opset(way.domain, self._limits) or 0
        return replace_operator(operation, way, operation.version if way.domain == operation.domain else version)

    def _expanded(self) -> Iterator[FunctionExpansion]:
        for operation in self._operations:
            schema = self._schema()
            nodes = get_definition_nodes(operation, schema.since) if schema is not None else None
            if nodes is None:
                return
            inner = [each.operation for top in nodes for each in top.every()]
            if not inner or not is_implemented(inner, self._asked):
                return
        yield FunctionExpansion()


def change_opset(operation: Operation, domain: str, version: int) -> Operation:
    """The operation in a model that imports another version of a domain."""
    opset = version if domain == DEFAULT_DOMAIN and operation.opset else operation.opset
    own = version if domain == operation.domain and operation.version else operation.version
    return replace(operation, version=own, opset=opset)


def remove_attribute(operation: Operation, attribute: str) -> Operation | None:
    """The operation without an attribute, None where it has none of that name."""
    kept = tuple(each for each in operation.attributes if each.name != attribute)
    return replace(operation, attributes=kept) if len(kept) < len(operation.attributes) else None


def set_attributes(operation: Operation, attributes: Sequence[tuple[str, str]]) -> Operation:
    """The operation with attributes of these kinds, whatever they hold, in the place of its own of the same names."""
    names = {name for name, _ in attributes}
    kept = [attribute for attribute in operation.attributes if attribute.name not in names]
    new = [Attribute(name, kind, b"") for name, kind in attributes]
    return replace(operation, attributes=tuple(sorted((*kept, *new), key=lambda each: each.name)))


def replace_operator(operation: Operation, way: OperatorReplacement, version: int) -> Operation | None:
    """The operation by another operator; None where an argument that it would need is not there."""
    order = way.inputs if way.inputs is not None else tuple(range(len(operation.inputs)))
    if any(index is not None and index >= len(operation.inputs) for index in order):
        return None
    inputs = tuple(None if index is None else operation.inputs[index] for index in order)
    other = replace(operation, domain=way.domain, name=way.name, version=version, inputs=inputs)
    return set_attributes(other, [(name, "STRING") for name, _ in way.attributes])


def _find_newest_common_opset(domain: str, limits: Sequence[Limits]) -> int | None:
    """The newest version of a domain that all take; None where none of them limits it."""
    return min((limit.opsets[domain] for limit in limits if domain in limit.opsets), default=None)


def _accept_versions(prepared: TypedModel, domain: str, version: int, limits: Sequence[Limits]) -> bool:
    opsets = {**prepared.opsets, domain: version}
    return all(accepts_versions(limit, prepared.ir_version, opsets) for limit in limits)


def _find_same_names(name: str, known: Iterable[str]) -> list[str]:
    """Names that differ in the case of letters and in underscores alone; one more letter is another operator."""
    return [each for each in sorted(known) if _fold_name(each) == _fold_name(name)]


def _fold_name(name: str) -> str:
    return name.replace("_", "").casefold()


def _find_similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Names that are spelled alike, the nearest first."""
    return difflib.get_close_matches(name, sorted(known), cutoff=_MIN_NAME_SIMILARITY)


def _list_type_casts(operation: Operation, schema: Schema) -> Iterator[TypeCast]:
    for parameter in dict.fromkeys(formal.type for formal in (*schema.inputs, *schema.outputs)):
        for to in sorted(schema.constraints.get(parameter) or {parameter}):
            other = change_parameter_type(operation, schema, parameter, to)
            if other is not None and other != operation:
                back = other.outputs != operation.outputs
                yield TypeCast(parameter, to, is_lossless(operation, other), back)


def _rank_type_cast(operation: Operation, schema: Schema, way: TypeCast) -> tuple[object, ...]:
    """Few casts before many, exact ones before others, near types before far ones."""
    needed = list_casts(operation, schema, way.parameter, way.to)
    return len(needed), not way.exact, measure_type_distance(operation, schema, way.parameter, way.to), way.to
