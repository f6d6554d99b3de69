"""Search for changes to a model after which all required releases support an unsupported operation."""

from __future__ import annotations

import difflib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from onnxgate.model.facts import DEFAULT_DOMAIN, INTERNAL_DOMAINS
from onnxgate.support.limits import Limits, accepts_versions, find_support_span
from onnxgate.support.matching.function_bodies import get_definition_nodes
from onnxgate.support.matching.kernels import CPU_PROVIDER, MatchResult, match_operation
from onnxgate.support.matching.node_checks import find_parameter, find_schema_violation
from onnxgate.support.matching.operations import (
    Attribute,
    AttributeAddition,
    AttributeRemoval,
    DomainImport,
    FunctionExpansion,
    NodeChange,
    Operation,
    OperatorReplacement,
    OpsetChange,
    Suggestion,
    SupportGap,
    TypeCast,
    TypedModel,
    TypedNode,
)
from onnxgate.support.matching.probed.node_matching import describe_features, match_probed_node
from onnxgate.support.operators import Implementation, Schema, find_newest_schema
from onnxgate.support.suggestions.node_changes import find_node_changes
from onnxgate.support.suggestions.type_casts import (
    NUMERIC_TYPES,
    change_parameter_type,
    is_lossless_cast,
    list_casts,
    list_changed_types,
    make_cast,
    rank_type_cast,
)

_MIN_OPSET = 7
"""The oldest opset of ai.onnx that ONNX Runtime documents as supported."""
_MAX_OPSETS_TRIED = 6
"""Maximum number of opsets for which the whole model is checked; those nearest to the current opset come first."""
_MAX_SUGGESTIONS = 3
_MAX_ATTRIBUTES = 64
"""Maximum number of attributes of a node for which it is tried whether removing one of them helps.

No schema defines as many, so that several attributes of such a node are unknown.
"""
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
        OperatorReplacement(DEFAULT_DOMAIN, "Resize"),  # at opset 10, where Resize has no `roi` input
    ),
}
"""Replacements of deprecated operators, by operator name. Source: ONNX's operator changelog, opsets 10 and 11."""


@dataclass(frozen=True, slots=True)
class RequiredRelease:
    """One runtime release that a model must run on, with the execution providers to use."""

    implementation: Implementation
    limits: Limits
    providers: tuple[str, ...] = (CPU_PROVIDER,)

    def match(self, operation: Operation, node: TypedNode | None = None) -> MatchResult:
        """Return why this release does not implement an operation, or why this is unknown; None if it does.

        A probed release may also refuse the constants and shapes of the inputs of `node`, which has the operation.
        """
        if not self.implementation.is_probed:
            return match_operation(operation, self.implementation, self.providers)
        schema = find_newest_schema(operation.domain, operation.name, operation.version)
        if schema is None and operation.domain == DEFAULT_DOMAIN:
            return f"`{operation.label}` does not exist in opset {operation.version}"
        if schema is not None and (violation := find_schema_violation(operation, schema)):
            return violation
        if node is None:
            return match_operation(operation, self.implementation)
        return match_probed_node(replace(node, operation=operation), self.implementation)

    def can_cast(self, value_type: str, opset: int) -> bool:
        """Return whether this release can cast float to a type and back, at an opset of ai.onnx."""
        if value_type not in NUMERIC_TYPES:
            return False
        casts = make_cast(opset, "tensor(float)", value_type), make_cast(opset, value_type, "tensor(float)")
        return all(self.match(cast) is None for cast in casts)


@dataclass(frozen=True, slots=True)
class SupportGapGroup:
    """Operations of a model that are unsupported for the same reason."""

    miss: SupportGap
    operations: tuple[Operation, ...]
    nodes: tuple[TypedNode, ...] = ()  # a node for each of the operations, if a required release was probed

    def pairs(self) -> Iterator[tuple[Operation, TypedNode | None]]:
        """Yield each operation with its node."""
        return zip(self.operations, self.nodes or itertools.repeat(None), strict=False)


def find_implemented_span(
    operations: Sequence[Operation], implementations: Sequence[Implementation], nodes: Sequence[TypedNode] = ()
) -> tuple[str, str]:
    """Return the oldest release since which all implement the operations, and the newest up to which all do.

    A result is "" if there is no such release. Both are "" if all releases implement the operations. `nodes` have the
    operations; probed releases are matched with them.
    """
    first = implementations[0]
    if not first.is_probed and not all(first.knows(it.domain, it.name) for it in operations):
        return "", ""  # no release has such an operator
    works = [
        all(match_probed_node(node, release) is None for node in nodes)
        if nodes and release.is_probed
        else all(match_operation(operation, release) is None for operation in operations)
        for release in implementations
    ]
    since, until = find_support_span([release.release for release in implementations], works)
    newest = next((it.newest_opsets for it in implementations if it.release == until), {})
    # A release that lacks the opset is matched with an older version of the operator.
    is_too_old = any(operation.version > newest.get(operation.domain, operation.version) for operation in operations)
    return since, "" if is_too_old else until


def find_suggestions(
    missed: SupportGapGroup, prepared: TypedModel, releases: Sequence[RequiredRelease], others: Sequence[Limits] = ()
) -> tuple[Suggestion, ...]:
    """Return up to three changes after which all required releases support the operations, the best change first.

    `releases` are the required releases with known kernels; without them, nothing is suggested. `others` are the
    version limits of the other required releases, which a suggested opset must not exceed.
    """
    if not releases:
        return ()
    search = _SuggestionSearch(missed, prepared, releases, (*(release.limits for release in releases), *others))
    return tuple(sorted(search.suggestions(), key=_rank_suggestion)[:_MAX_SUGGESTIONS])


def _rank_suggestion(way: Suggestion) -> int:
    match way:
        case DomainImport() | AttributeAddition():
            return 0
        case OpsetChange(whole=is_complete):
            return 1 if is_complete else 5
        case FunctionExpansion():
            return 2
        case TypeCast(exact=exact):
            return 3 if exact else 6
        case OperatorReplacement():
            return 3
        case NodeChange(changes):
            return max({"constant": 1, "value": 2}.get(change.kind, 4) for change in changes)
        case AttributeRemoval():
            return 4


@dataclass(frozen=True, eq=False)
class _SuggestionSearch:
    missed: SupportGapGroup
    prepared: TypedModel
    releases: Sequence[RequiredRelease]
    limits: Sequence[Limits]  # including releases with unknown kernels

    def suggestions(self) -> Iterator[Suggestion]:
        """Yield the changes to the model after which all required releases implement the unsupported operations."""
        match self.missed.miss.rule:
            case "missing-kernel":
                yield from self._type_casts()
                yield from self._function_expansions()
            case "type-mismatch":
                yield from self._type_casts()
            case "attribute-unsupported" if self._refusing_probed_releases:
                yield from self._node_changes()
            case "attribute-unsupported":
                yield from self._attribute_removals()
                yield from self._attribute_additions()
            case "unknown-domain":
                yield from self._domain_imports()
                domains = sorted({*self.releases[0].implementation.domains()} - INTERNAL_DOMAINS - {self.first.domain})
                similar = difflib.get_close_matches(self.first.domain, domains, cutoff=_MIN_NAME_SIMILARITY)
                names = [*_find_same_names(self.first.domain, domains), *similar]
                yield from self._replacements(OperatorReplacement(domain, self.first.name) for domain in names)
            case "unknown-operator":
                operators = self.releases[0].implementation.operators(self.first.domain)
                names = _find_same_names(self.first.name, operators)
                yield from self._replacements(OperatorReplacement(self.first.domain, name) for name in names)
            case "deprecated-operator":
                yield from self._replacements(_SUCCESSORS.get(self.first.name, ()))
        yield from self._opset_changes()

    @property
    def first(self) -> Operation:
        """The first unsupported operation; the others differ from it only in types and attributes."""
        return self.missed.operations[0]

    def _all_implement(self, operations: Iterable[Operation]) -> bool:
        return all(release.match(operation) is None for operation in operations for release in self.releases)

    def _works_with(self, change: Callable[[Operation], Operation | None]) -> bool:
        """Return whether all required releases implement the unsupported operations after this change to them."""
        for operation, node in self.missed.pairs():
            changed = change(operation)
            if changed is None or any(release.match(changed, node) is not None for release in self.releases):
                return False
        return True

    @functools.cached_property
    def _refusing_probed_releases(self) -> tuple[Implementation, ...]:
        """Required releases whose support was probed and that refuse one of the nodes."""
        return tuple(
            release.implementation
            for release in self.releases
            if release.implementation.is_probed
            and any(match_probed_node(node, release.implementation) is not None for node in self.missed.nodes)
        )

    def _node_changes(self) -> Iterator[NodeChange]:
        """Yield changes to inputs, outputs or attributes after which the probed releases accept each node."""
        changes: dict[NodeChange, int] = {}
        for node in self.missed.nodes:
            for change in find_node_changes(node, self._refusing_probed_releases):
                changes[change] = changes.get(change, 0) + 1
        yield from (change for change, number in changes.items() if number == len(self.missed.nodes))

    def _opset_changes(self) -> Iterator[OpsetChange]:
        domain, current = self.first.domain, self.first.version
        newest = _find_newest_common_opset(domain, self.limits)
        if newest is None or not current or not self._is_known_everywhere:
            return
        oldest = _MIN_OPSET if domain == DEFAULT_DOMAIN else 1
        near = sorted(set(range(oldest, newest + 1)) - {current}, key=lambda v: (abs(v - current), -v))
        working = [v for v in near if self._works_with(functools.partial(_change_opset, domain=domain, version=v))]
        rated = [(v, self._rate_opset(domain, v)) for v in working[:_MAX_OPSETS_TRIED]]
        best = [v for v, rating in rated if rating == "whole"] or [v for v, rating in rated if rating == "kept"]
        if best:
            yield OpsetChange(domain, best[0], whole=(best[0], "whole") in rated)

    @property
    def _is_known_everywhere(self) -> bool:
        """Whether each required release has the operator at some opset."""
        return all(release.implementation.operator(self.first.domain, self.first.name) for release in self.releases)

    def _rate_opset(self, domain: str, version: int) -> str:
        """Rate an opset of a domain by how much of the model the required releases support after changing to it.

        The result is "whole" if they support everything, "kept" if as much as before, and "lost" if less.
        """
        opsets = {**self.prepared.opsets, domain: version}
        accepted = all(accepts_versions(limit, self.prepared.ir_version, opsets) for limit in self.limits)
        for operation in {node.operation for node in self.prepared.all_nodes() if not node.calls}:
            changed = _change_opset(operation, domain, version)
            for release in self.releases:
                result = release.match(changed)
                accepted = accepted and result is None
                is_breaking = isinstance(result, SupportGap) and result.rule in _BREAKING_RULES
                if is_breaking and release.match(operation) is None:
                    return "lost"
        return "whole" if accepted else "kept"

    def _type_casts(self) -> Iterator[TypeCast]:
        schema = self._schema()
        if schema is None or not self.first.opset:
            return
        ranked: list[tuple[tuple[object, ...], TypeCast]] = []
        for parameter in dict.fromkeys(formal.type for formal in (*schema.inputs, *schema.outputs)):
            for to in sorted(schema.constraints.get(parameter) or {parameter}):
                changed = change_parameter_type(self.first, schema, parameter, to)
                if changed is None or changed == self.first or not self._works_with_type(schema, parameter, to):
                    continue
                exact = all(is_lossless_cast(*pair) for pair in list_changed_types(self.first.inputs, changed.inputs))
                way = TypeCast(
                    parameter,
                    to,
                    exact,
                    back=changed.outputs != self.first.outputs,
                    inputs=self._list_cast_inputs(schema, parameter, to),
                )
                ranked.append((rank_type_cast(self.first, changed, way), way))
        yield from (way for _, way in sorted(ranked, key=lambda pair: pair[0])[:1])

    def _list_cast_inputs(self, schema: Schema, parameter: str, to: str) -> tuple[str, ...]:
        """Return the names (from the schema) of the inputs that must be cast in at least one of the operations."""
        names: dict[int, str] = {}
        for operation in self.missed.operations:
            changed = change_parameter_type(operation, schema, parameter, to)
            for index, pair in enumerate(zip(operation.inputs, changed.inputs, strict=True)) if changed else ():
                formal = find_parameter(schema.inputs, index)
                if formal is not None and pair[0] != pair[1]:
                    names[index] = formal.name
        return tuple(name for _, name in sorted(names.items()))

    def _works_with_type(self, schema: Schema, parameter: str, to: str) -> bool:
        if not self._works_with(functools.partial(change_parameter_type, schema=schema, parameter=parameter, to=to)):
            return False
        casts = (list_casts(operation, schema, parameter, to) for operation in self.missed.operations)
        return all(map(self._all_implement, casts))

    def _schema(self) -> Schema | None:
        """Return the schema of the unsupported operator from the newest required release that has one."""
        for release in reversed(self.releases):
            operator = release.implementation.operator(self.first.domain, self.first.name)
            schema = operator.schema(self.first.version or 1) if operator else None
            if schema is not None:
                return schema
        if self._refusing_probed_releases:
            return describe_features(self.missed.nodes[0])[0]
        return None

    def _attribute_removals(self) -> Iterator[AttributeRemoval]:
        attributes = self.first.attributes
        for attribute in attributes if len(attributes) <= _MAX_ATTRIBUTES else ():
            if self._works_with(functools.partial(_remove_attribute, name=attribute.name)):
                yield AttributeRemoval(attribute.name)

    def _attribute_additions(self) -> Iterator[AttributeAddition]:
        schema = self._schema()
        if schema is None:
            return
        kinds = {attribute.name: attribute.kind for attribute in self.first.attributes}
        missing = tuple(
            (name, kind)
            for name, (kind, required) in schema.attributes.items()
            if (required and name not in kinds) or kinds.get(name, kind) != kind
        )
        if missing and self._works_with(lambda operation: _set_attributes(operation, missing)):
            yield AttributeAddition(missing)

    def _domain_imports(self) -> Iterator[DomainImport]:
        """Yield the suggestion to import the operator's domain, if this solves the problem.

        For the domain of a local function, the suggested version does not matter.
        """
        domain = self.first.domain
        newest = _find_newest_common_opset(domain, self.limits)
        if self.first in self.prepared.called:
            yield DomainImport(domain, 1)
        elif not self.first.version and newest and self._works_with(functools.partial(replace, version=newest)):
            yield DomainImport(domain, newest)

    def _replacements(self, ways: Iterable[OperatorReplacement]) -> Iterator[OperatorReplacement]:
        """Yield the first operator replacement after which all required releases support the operations."""
        for way in ways:
            version = self.prepared.opsets.get(way.domain) or _find_newest_common_opset(way.domain, self.limits) or 0
            if self._works_with(functools.partial(_replace_operator, way=way, version=version)):
                yield way
                return

    def _function_expansions(self) -> Iterator[FunctionExpansion]:
        """Yield the suggestion to replace the operator by its function body.

        Source: OpenVINO 2026.4.1 implements each node in the body of SequenceMap, but refuses the whole body.
        """
        if self._refusing_probed_releases:
            return
        schema = self._schema()
        for operation in self.missed.operations:
            nodes = get_definition_nodes(operation, schema.since) if schema is not None else None
            inner = [node.operation for top in nodes or () for node in top.all_nodes()]
            if not inner or not self._all_implement(inner):
                return
        yield FunctionExpansion()


def _change_opset(operation: Operation, domain: str, version: int) -> Operation:
    """Return the operation as it would be in a model that imports `version` of `domain`."""
    opset = version if domain == DEFAULT_DOMAIN and operation.opset else operation.opset
    own = version if domain == operation.domain and operation.version else operation.version
    return replace(operation, version=own, opset=opset)


def _remove_attribute(operation: Operation, name: str) -> Operation | None:
    """Return the operation without the named attribute; None if it does not have this attribute."""
    remaining = tuple(attribute for attribute in operation.attributes if attribute.name != name)
    return replace(operation, attributes=remaining) if len(remaining) < len(operation.attributes) else None


def _set_attributes(operation: Operation, attributes: Sequence[tuple[str, str]]) -> Operation:
    """Return the operation with attributes of these names and kinds added; existing attributes are replaced."""
    by_name = {attribute.name: attribute for attribute in operation.attributes}
    by_name |= {name: Attribute(name, kind, b"") for name, kind in attributes}
    return replace(operation, attributes=tuple(attribute for _, attribute in sorted(by_name.items())))


def _replace_operator(operation: Operation, way: OperatorReplacement, version: int) -> Operation | None:
    """Return the operation rewritten to use the replacement; None if a required input is missing.

    `version` is the opset to use if the replacement belongs to a different domain."""
    order = way.inputs if way.inputs is not None else tuple(range(len(operation.inputs)))
    if any(index is not None and index >= len(operation.inputs) for index in order):
        return None
    inputs = tuple(None if index is None else operation.inputs[index] for index in order)
    version = operation.version if way.domain == operation.domain else version
    replaced = replace(operation, domain=way.domain, name=way.name, version=version, inputs=inputs)
    return _set_attributes(replaced, [(name, "STRING") for name, _ in way.attributes])


def _find_newest_common_opset(domain: str, limits: Sequence[Limits]) -> int | None:
    """Return the newest opset of a domain that all limits allow; None if none of them limits the domain."""
    return min((limit.opsets[domain] for limit in limits if domain in limit.opsets), default=None)


def _find_same_names(name: str, candidates: Sequence[str]) -> list[str]:
    """Return the other candidates that are equal to `name` except for case and underscores."""
    same = _fold_names(tuple(candidates)).get(_fold_name(name), ())
    return [candidate for candidate in same if candidate != name]


@functools.lru_cache(maxsize=16)
def _fold_names(names: tuple[str, ...]) -> Mapping[str, Sequence[str]]:
    """Return the names by what they have in common with equal names."""
    by_folded: dict[str, list[str]] = {}
    for name in names:
        by_folded.setdefault(_fold_name(name), []).append(name)
    return by_folded


def _fold_name(name: str) -> str:
    return name.replace("_", "").casefold()
