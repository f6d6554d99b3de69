"""Search for changes that make an unsupported operation supported by all required releases."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from onnxgate.support.matching.function_bodies import get_definition_nodes
from onnxgate.support.matching.kernels import CPU_PROVIDER, MatchResult, match_operation
from onnxgate.support.matching.operations import Attribute, Operation, SupportGap, TypedModel
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

DEFAULT_DOMAIN = "ai.onnx"
_INTERNAL_DOMAINS = frozenset({"com.microsoft.nchwc", "com.ms.internal.nhwc"})
"""Domains of operators that only ONNX Runtime inserts into graphs."""
_MIN_OPSET = 7
"""The oldest opset of ai.onnx that ONNX Runtime documents as supported."""
_MAX_OPSETS_TRIED = 6
"""Number of opsets, the nearest ones, at which the whole model is matched."""
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
"""Replacements of deprecated operators. Source: ONNX's operator changelog, opsets 10 and 11."""


@dataclass(frozen=True, slots=True)
class RequiredRelease:
    """One release that a model must run on."""

    implementation: Implementation
    limits: Limits
    providers: tuple[str, ...] = (CPU_PROVIDER,)

    def answer(self, operation: Operation) -> MatchResult:
        """Match an operation with the release."""
        return match_operation(operation, self.implementation, self.providers)


@dataclass(frozen=True, slots=True)
class SupportGapGroup:
    """Operations of a model that are not supported for the same reason."""

    miss: SupportGap
    operations: tuple[Operation, ...]
    works_since: str = ""  # the first release since which all implement them; "" if the newest does not


def is_implemented(operations: Iterable[Operation], releases: Sequence[RequiredRelease]) -> bool:
    """Whether each release implements each operation."""
    return all(release.answer(operation) is None for operation in operations for release in releases)


def find_implemented_span(operations: Sequence[Operation], every: Sequence[Implementation]) -> tuple[str, str]:
    """Return the release since which all implement the operations, and the one until which all did; "" for none."""
    taken = [all(match_operation(operation, release) is None for operation in operations) for release in every]
    return find_support_span([release.release for release in every], taken)


def find_suggestions(
    missed: SupportGapGroup, prepared: TypedModel, releases: Sequence[RequiredRelease], others: Sequence[Limits] = ()
) -> tuple[Suggestion, ...]:
    """Return a few changes, the best first; nothing if no required release has a kernel table.

    `others` are the limits of releases whose kernels are not known: a suggested opset is within them.
    """
    if not releases:
        return ()
    search = _SuggestionSearch(missed, prepared, releases, (*(release.limits for release in releases), *others))
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
        releases: Sequence[RequiredRelease],
        every_limits: Sequence[Limits],
    ) -> None:
        self._missed = missed
        self._operations = missed.operations
        self._first = missed.operations[0]
        self._prepared = prepared
        self._releases = releases
        self._limits = every_limits

    def every(self) -> Iterator[Suggestion]:
        """Yield each change after which all required releases implement the operations."""
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
        return None not in changed and is_implemented([operation for operation in changed if operation], self._releases)

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
        fitting = [v for v in near if self._takes(lambda operation, v=v: change_opset(operation, domain, v))]  # type: ignore[misc]
        rated = [(v, self._rest(domain, v)) for v in fitting[:_MAX_OPSETS_TRIED]]
        best = [v for v, rest in rated if rest == "whole"] or [v for v, rest in rated if rest == "kept"]
        if best:
            yield OpsetChange(domain, best[0], whole=(best[0], "whole") in rated)

    def _rest(self, domain: str, version: int) -> str:
        """Rate a model at another opset: the "whole" is implemented, "kept" as before, or some of it is "lost"."""
        accepted = _accept_versions(self._prepared, domain, version, self._limits)
        for operation in {node.operation for node in self._prepared.every() if not node.calls}:
            there = change_opset(operation, domain, version)
            for release in self._releases:
                answer = release.answer(there)
                accepted = accepted and answer is None
                if (
                    isinstance(answer, SupportGap)
                    and answer.rule in _BREAKING_RULES
                    and release.answer(operation) is None
                ):
                    return "lost"
        return "whole" if accepted else "kept"

    # Another type

    def _retyped(self) -> Iterator[TypeCast]:
        schema = self._schema()
        if schema is None or not self._first.opset:
            return
        casts = [way for way in _list_type_casts(self._first, schema) if self._takes_types(way, schema)]
        yield from sorted(casts, key=lambda way: _rank_type_cast(self._first, schema, way))[:1]

    def _takes_types(self, way: TypeCast, schema: Schema) -> bool:
        if not self._takes(lambda operation: change_parameter_type(operation, schema, way.parameter, way.to)):
            return False
        return all(
            is_implemented(list_casts(operation, schema, way.parameter, way.to), self._releases)
            for operation in self._operations
        )

    def _schema(self) -> Schema | None:
        """Return the operations' schema in the newest required release that has one."""
        for release in reversed(self._releases):
            operator = release.implementation.operator(self._first.domain, self._first.name)
            schema = operator.schema(self._first.version or 1) if operator else None
            if schema is not None:
                return schema
        return None

    # Other attributes, another operator

    def _without(self) -> Iterator[AttributeRemoval]:
        for attribute in self._first.attributes:
            if self._takes(lambda operation, name=attribute.name: remove_attribute(operation, name)):  # type: ignore[misc]
                yield AttributeRemoval(attribute.name)

    def _with(self) -> Iterator[AttributeAddition]:
        schema = self._schema()
        if schema is None:
            return
        kinds = {attribute.name: attribute.kind for attribute in self._first.attributes}
        wanted = tuple(
            (name, kind)
            for name, (kind, required) in schema.attributes.items()
            if (required and name not in kinds) or kinds.get(name, kind) != kind
        )
        if wanted and self._takes(lambda operation: set_attributes(operation, wanted)):
            yield AttributeAddition(wanted)

    def _imported(self) -> Iterator[DomainImport]:
        """Import a domain; of a local function's domain any version, since the model defines its content."""
        domain = self._first.domain
        newest = _find_newest_common_opset(domain, self._limits)
        if any(node.calls and node.operation == self._first for node in self._prepared.every()):
            yield DomainImport(domain, 1)
        elif (
            not self._first.version
            and newest
            and self._takes(lambda operation: replace(operation, version=newest or 0))
        ):
            yield DomainImport(domain, newest)

    def _other_domains(self) -> Iterator[OperatorReplacement]:
        candidates = set(self._releases[0].implementation.domains()) - _INTERNAL_DOMAINS - {self._first.domain}
        for domain in (
            *_find_same_names(self._first.domain, candidates),
            *_find_similar_names(self._first.domain, candidates),
        ):
            yield OperatorReplacement(domain, self._first.name)

    def _other_names(self) -> Iterator[OperatorReplacement]:
        candidates = self._releases[0].implementation.operators(self._first.domain)
        for name in _find_same_names(self._first.name, set(candidates) - {self._first.name}):
            yield OperatorReplacement(self._first.domain, name)

    def _replaced(self, ways: Iterable[OperatorReplacement]) -> Iterator[OperatorReplacement]:
        fitting = (way for way in ways if self._takes(lambda operation, way=way: self._by(operation, way)))  # type: ignore[misc]
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
            inner = [node.operation for top in nodes for node in top.every()]
            if not inner or not is_implemented(inner, self._releases):
                return
        yield FunctionExpansion()


def change_opset(operation: Operation, domain: str, version: int) -> Operation:
    """Return the operation as in a model that imports another version of a domain."""
    opset = version if domain == DEFAULT_DOMAIN and operation.opset else operation.opset
    own = version if domain == operation.domain and operation.version else operation.version
    return replace(operation, version=own, opset=opset)


def remove_attribute(operation: Operation, attribute: str) -> Operation | None:
    """Return the operation without an attribute, None if it does not have it."""
    others = tuple(other for other in operation.attributes if other.name != attribute)
    return replace(operation, attributes=others) if len(others) < len(operation.attributes) else None


def set_attributes(operation: Operation, attributes: Sequence[tuple[str, str]]) -> Operation:
    """Return the operation with attributes of these kinds, which replace its own of the same names."""
    names = {name for name, _ in attributes}
    others = [attribute for attribute in operation.attributes if attribute.name not in names]
    new = [Attribute(name, kind, b"") for name, kind in attributes]
    return replace(operation, attributes=tuple(sorted((*others, *new), key=lambda attribute: attribute.name)))


def replace_operator(operation: Operation, way: OperatorReplacement, version: int) -> Operation | None:
    """Return the operation with another operator; None if an argument that it needs is missing."""
    order = way.inputs if way.inputs is not None else tuple(range(len(operation.inputs)))
    if any(index is not None and index >= len(operation.inputs) for index in order):
        return None
    inputs = tuple(None if index is None else operation.inputs[index] for index in order)
    other = replace(operation, domain=way.domain, name=way.name, version=version, inputs=inputs)
    return set_attributes(other, [(name, "STRING") for name, _ in way.attributes])


def _find_newest_common_opset(domain: str, limits: Sequence[Limits]) -> int | None:
    """Return the newest version of a domain within all limits; None if it is not limited."""
    return min((limit.opsets[domain] for limit in limits if domain in limit.opsets), default=None)


def _accept_versions(prepared: TypedModel, domain: str, version: int, limits: Sequence[Limits]) -> bool:
    opsets = {**prepared.opsets, domain: version}
    return all(accepts_versions(limit, prepared.ir_version, opsets) for limit in limits)


def _find_same_names(name: str, candidates: Iterable[str]) -> list[str]:
    """Return names that differ only in case and underscores."""
    return [candidate for candidate in sorted(candidates) if _fold_name(candidate) == _fold_name(name)]


def _fold_name(name: str) -> str:
    return name.replace("_", "").casefold()


def _find_similar_names(name: str, candidates: Iterable[str]) -> list[str]:
    """Return names with similar spelling, the nearest first."""
    return difflib.get_close_matches(name, sorted(candidates), cutoff=_MIN_NAME_SIMILARITY)


def _list_type_casts(operation: Operation, schema: Schema) -> Iterator[TypeCast]:
    for parameter in dict.fromkeys(formal.type for formal in (*schema.inputs, *schema.outputs)):
        for to in sorted(schema.constraints.get(parameter) or {parameter}):
            other = change_parameter_type(operation, schema, parameter, to)
            if other is not None and other != operation:
                back = other.outputs != operation.outputs
                yield TypeCast(parameter, to, is_lossless(operation, other), back)


def _rank_type_cast(operation: Operation, schema: Schema, way: TypeCast) -> tuple[object, ...]:
    """Return a sort key: few casts first, then exact ones, then near types."""
    needed = list_casts(operation, schema, way.parameter, way.to)
    return len(needed), not way.exact, measure_type_distance(operation, schema, way.parameter, way.to), way.to
