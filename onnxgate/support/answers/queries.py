"""Answer which releases support an operator, by matching its smallest nodes with the support table of each release."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from onnxgate.model.facts import DEFAULT_DOMAIN, INTERNAL_DOMAINS
from onnxgate.support.answers.minimal_nodes import (
    is_chosen_by_attribute,
    list_accepted_types,
    list_operations,
    list_parameter_types,
    translate_parameter,
)
from onnxgate.support.answers.operator_answers import (
    SUPPORTED_WAYS,
    NewestVersions,
    OperatorSupport,
    ReleaseSupport,
    SupportSpan,
    TypeSupport,
    VersionSupport,
)
from onnxgate.support.answers.release_answers import MinimalNodes, ReleaseAnswer, find_best, limit_answer, match_nodes
from onnxgate.support.limits import Limits, get_limits, is_probed_interface_type
from onnxgate.support.matching.function_bodies import has_function_body
from onnxgate.support.matching.kernels import CPU_PROVIDER
from onnxgate.support.matching.onnxruntime.float16_casts import FIRST_CAST_OPSET
from onnxgate.support.matching.operations import Operation
from onnxgate.support.operators import (
    Implementation,
    Operator,
    Schema,
    get_implementation,
    list_known_releases,
    load_shipped_table,
)


def list_operators(engine: str = "onnxruntime") -> tuple[tuple[str, str], ...]:
    """Return domain and name of each operator that a known release has, without operators of internal domains."""
    operators = load_shipped_table(engine).operators
    return tuple(
        (domain, name) for domain in operators if domain not in INTERNAL_DOMAINS for name in sorted(operators[domain])
    )


def describe_operator(
    name: str,
    *,
    domain: str | None = None,
    engine: str = "onnxruntime",
    provider: str = CPU_PROVIDER,
    types: Mapping[str, str] | None = None,
    opset: int | None = None,
    releases: Sequence[str] | None = None,
    ai_onnx: int | None = None,
) -> tuple[OperatorSupport, ...]:
    """Return the support of an operator in each domain that has it, or in one domain; () if none has it.

    `types` fixes types of some parameters, such as `{"T1": "tensor(float16)"}`; versions without these parameters are
    left out. The name "" means the first parameter that accepts the type. With `opset`, only the operator's version in
    this opset of its domain is described, as it is at this opset. `releases` are known releases in ascending order;
    without them, all count. `ai_onnx` is the opset of ai.onnx in models with operators of other domains, if known.
    """
    table = load_shipped_table(engine).operators
    domains = [it for it in table if name in table[it]] if domain is None else [domain]
    public = [it for it in domains if it not in INTERNAL_DOMAINS] or domains
    found = []
    for it in public:
        query = _OperatorQuery(it, name, engine, types or {}, releases, ai_onnx)
        if versions := tuple(query.describe(opset)):
            imported = ai_onnx if it != DEFAULT_DOMAIN else None
            limits = query.find_opset_limits(versions)
            found.append(OperatorSupport(engine, it, name, versions, provider, imported, limits))
    return tuple(found)


def find_newest_versions(releases: Iterable[str], engine: str = "onnxruntime") -> NewestVersions:
    """Return the newest IR version and the newest opset of each domain that all of these releases accept.

    Raises:
        ValueError: `releases` is empty, or the limits of a release are unknown.
    """
    limits = {release: get_limits(release, engine) for release in releases}
    known = [row for row in limits.values() if row is not None]
    if not known or len(known) != len(limits):
        unknown = [release for release, row in limits.items() if row is None]
        raise ValueError(f"the limits of these releases are not known: {', '.join(unknown) or 'none given'}")
    opsets: dict[str, int] = {}
    for row in known:
        for domain, newest in row.opsets.items():
            opsets[domain] = min(newest, opsets.get(domain, newest))
    ir_versions = [row.ir for row in known if row.ir is not None]
    return NewestVersions(min(ir_versions, default=None), dict(sorted(opsets.items())))


def describe_release(release: str, engine: str = "onnxruntime") -> ReleaseSupport:
    """Return the versions, locations of external data and operators that a release with known limits accepts."""
    limits, implementation = get_limits(release, engine), get_implementation(release, engine)
    assert limits is not None
    operators = None
    if implementation is not None:
        named = [(it, name) for it in implementation.domains() for name in implementation.operators(it)]
        kernels = [domain for domain, name in named if (it := implementation.operator(domain, name)) and it.kernels]
        operators = {it: count for it, count in Counter(kernels).items() if it not in INTERNAL_DOMAINS}
    layouts = limits.external_data
    return ReleaseSupport(
        release=release,
        ir_version=limits.ir,
        opsets=limits.opsets,
        unreleased_opsets=limits.dev_opsets,
        external_data=None if layouts is None else {it: getattr(layouts, it) for it in layouts.__struct_fields__},
        operators=operators,
        refused_interface_types=limits.refused_interface_types,
    )


class _TypeQuery(NamedTuple):
    """A question about given types, at an opset."""

    known: Sequence[Schema]  # of the version that models with this opset use; these have the names of `types`
    opset: int
    parameter: str  # one of `types`, which other types resemble if possible
    types: Mapping[str, str]  # by parameter


_Answers = dict[tuple[str, str], list[ReleaseAnswer]]
"""Answer of each release in ascending order, by type parameter and type."""


class _OperatorQuery:
    """A question which releases support an operator."""

    def __init__(
        self,
        domain: str,
        name: str,
        engine: str,
        types: Mapping[str, str],
        releases: Sequence[str] | None,
        ai_onnx: int | None,
    ) -> None:
        self._domain, self._name, self._types = domain, name, types
        self._ai_onnx = ai_onnx if domain != DEFAULT_DOMAIN else None
        known = list_known_releases(engine)
        self._releases = known if releases is None else tuple(releases)
        self._known_operators = [
            _find_operator(it, domain, name) for release in known if (it := get_implementation(release, engine))
        ]
        implementations = [get_implementation(release, engine) for release in self._releases]
        self._implementations = [it for it in implementations if it is not None]
        self._is_probed = any(it.is_probed for it in self._implementations)
        self._operators = [_find_operator(it, domain, name) for it in self._implementations]
        self._limits = [get_limits(release, engine) for release in self._releases]
        newest = max((row.opsets.get(domain, 1) for it in known if (row := get_limits(it, engine))), default=1)
        self._newest = max((row.opsets.get(domain, 1) for row in self._limits if row is not None), default=1)
        self._is_limited = self._newest < newest

    def describe(self, opset: int | None) -> Iterator[VersionSupport]:
        """Yield the support of each version, or only of the version at an opset."""
        schemas = [schema for operator in self._known_operators if operator for schema in operator.schemas]
        sinces = sorted({schema.since for schema in schemas})
        for since, following in itertools.zip_longest(sinces, sinces[1:]):
            last = following - 1 if following else None
            if opset is None:
                if self._is_limited and since <= self._newest < (last or self._newest + 1):
                    last = self._newest  # of the releases in question: none of them accepts newer opsets
                yield from self._describe_version(since, last, range(since, max(last or self._newest, since) + 1))
            elif since <= opset <= (last or opset) or opset < since == sinces[0]:
                yield from self._describe_version(since, opset, range(opset, opset + 1))

    def find_opset_limits(self, versions: Sequence[VersionSupport]) -> dict[str, int]:
        """Return the newest opset of each release that accepts the first opset of a version, but not the last one."""
        limits = zip(self._releases, self._limits, strict=True)
        newest = {release: row.opsets[self._domain] for release, row in limits if row and self._domain in row.opsets}
        ends = [(version.first_opset, version.last_opset) for version in versions]
        return {it: n for it, n in newest.items() if any(first <= n < (last or 0) for first, last in ends)}

    def _describe_version(self, since: int, last: int | None, opsets: range) -> Iterator[VersionSupport]:
        """Yield the support of one version; opsets with the same answers share a value."""
        schemas = [schema for it in self._known_operators if (schema := _find_schema(it, since)) is not None]
        parameters = list_parameter_types(schemas)
        fixed = {name: wanted for name, wanted in self._types.items() if name}
        if "" in self._types:  # a type without a name is about a parameter that no other type names
            others = {name: types for name, types in parameters.items() if name not in fixed}
            fixed[self._find_parameter(others, self._types[""])] = self._types[""]
        if not fixed.keys() <= parameters.keys():
            return
        parameters |= {name: [value_type] for name, value_type in fixed.items()}
        keys = [(name, value_type) for name, types in parameters.items() for value_type in types]
        groups: list[tuple[int, _Answers]] = []
        has_body = not self._is_probed and has_function_body(self._domain, self._name, since)
        for opset in opsets:
            refusals = [self._explain_opset(row, opset) for row in self._limits]
            earlier = groups[-1][1] if groups else {}
            answers = {}
            for key in keys:
                query = _TypeQuery(schemas, opset, key[0], {**fixed, key[0]: key[1]})
                answers[key] = self._answer(query, refusals, earlier.get(key, [None] * len(refusals)))
            if not groups or not self._are_equal(groups[-1][1], answers, refusals):
                groups.append((opset, answers))
            if not (has_body or opset < FIRST_CAST_OPSET):
                break
        for (first, answers), after in itertools.zip_longest(groups, groups[1:]):
            types = tuple(
                TypeSupport(parameter, value_type, self._merge(rows))
                for (parameter, value_type), rows in answers.items()
            )
            about_fixed_first = sorted(answers, key=lambda key: key[0] not in fixed)  # whose refusals name these types
            best = [find_best(column) for column in zip(*(answers[key] for key in about_fixed_first), strict=True)]
            yield VersionSupport(
                version=since,
                first_opset=first,
                last_opset=after[0] - 1 if after else last,
                deprecated=all(schema.deprecated for schema in schemas),
                spans=self._merge(best),
                types=types,
                fixed=fixed,
            )

    def _find_parameter(self, parameters: Mapping[str, Sequence[str]], value_type: str) -> str:
        """Return the type parameter of a version that a type without a name is about.

        It is the first one that accepts the type, preferably among several types. If none does, it is the one that
        accepts it in other versions, and otherwise the first one.
        """
        accepting = [name for name, types in parameters.items() if value_type in types]
        schemas = [schema for operator in self._known_operators if operator for schema in reversed(operator.schemas)]
        elsewhere = [
            name
            for schema in schemas
            for name, types in schema.constraints.items()
            if value_type in types and name in parameters
        ]
        choices = [name for name in accepting if len(parameters[name]) > 1]
        return next(iter((*choices, *accepting, *elsewhere, *parameters)), "")

    def _are_equal(self, answers: _Answers, later: _Answers, refusals: Sequence[str]) -> bool:
        """Return whether the answers at a later opset are equal on the releases that accept it."""
        accepting = [index for index, refusal in enumerate(refusals) if not refusal]
        return all(
            [answers[key][index][0] for index in accepting] == [rows[index][0] for index in accepting]
            for key, rows in later.items()
        )

    def _merge(self, answers: Sequence[ReleaseAnswer]) -> tuple[SupportSpan, ...]:
        spans = []
        for answer, group in itertools.groupby(zip(self._releases, answers, strict=True), key=lambda pair: pair[1]):
            releases = [release for release, _ in group]
            spans.append(SupportSpan(releases[0], releases[-1], *answer))
        return tuple(spans)

    def _explain_opset(self, limits: Limits | None, opset: int) -> str:
        """Return why a release does not accept the opsets of a model; "" if it does."""
        if limits is None:
            return ""
        imports = [(self._domain, opset, "")]
        if self._ai_onnx is not None:
            imports.append((DEFAULT_DOMAIN, self._ai_onnx, f" of {DEFAULT_DOMAIN}"))
        for domain, version, suffix in imports:
            if version <= limits.opsets.get(domain, version):
                continue
            if version <= limits.dev_opsets.get(domain, 0):
                return f"opset {version}{suffix} requires ALLOW_RELEASED_ONNX_OPSET_ONLY=0"
            return f"opset {version}{suffix} is too new"
        return ""

    def _answer(
        self, query: _TypeQuery, refusals: Sequence[str], earlier: Sequence[ReleaseAnswer | None]
    ) -> list[ReleaseAnswer]:
        """Return how each release runs the operator.

        `refusals` are the reasons for which releases do not accept the opset, and `earlier` the answers at an earlier
        opset of the same version: a kernel implements all opsets of a version.
        """
        nodes: dict[Operator | None, MinimalNodes | ReleaseAnswer] = {}  # most releases have an operator in common
        matched: dict[tuple[Operator | None, tuple[Operation, ...]], ReleaseAnswer] = {}
        answers = []
        for index, operator in enumerate(self._operators):
            before = earlier[index]
            if refusals[index]:
                answers.append(ReleaseAnswer("none", refusals[index]))
                continue
            if before is not None and before.way == "kernel":
                answers.append(before)
                continue
            if operator not in nodes:
                nodes[operator] = self._list_nodes(operator, query)
            shared = nodes[operator]
            if isinstance(shared, ReleaseAnswer):
                answers.append(shared)
                continue
            restriction = self._restrict_interface(index, query.types.values())
            if self._is_probed and not restriction:  # types that the question does not fix matter, too
                found = [self._restrict_interface(index, (*it.inputs, *it.outputs)) for it in shared.operations]
                free = tuple(it for it, words in zip(shared.operations, found, strict=True) if not words)
                restriction = "" if free else found[0]
                shared = shared._replace(operations=free or shared.operations)
            key = operator, shared.operations
            answer = matched.get(key)
            if answer is None:
                answer, is_shared = match_nodes(self._implementations[index], shared)
                if is_shared:
                    matched[key] = answer
            if answer.way in SUPPORTED_WAYS:
                condition = shared.condition or restriction
                limited = limit_answer(answer, self._implementations[index], self._name)
                answer = ReleaseAnswer("unknown", condition) if condition else limited
            answers.append(answer)
        return answers

    def _list_nodes(self, operator: Operator | None, query: _TypeQuery) -> MinimalNodes | ReleaseAnswer:
        """Return the nodes of which a release with this operator must accept one, or the answer if there are none."""
        known, opset, parameter, types = query
        schema = operator.schema(opset) if operator else None
        if schema is None or operator is None:
            is_older = opset < known[-1].since
            missing = f"`{self._name}`" if is_older else f"`{self._name}({known[-1].since})`"
            return ReleaseAnswer("none", f"{missing} does not exist{f' in opset {opset}' if is_older else ''}")
        name = f"`{self._name}({schema.since})`"
        translated: dict[str, str] = {}
        condition = ""
        for wanted_name, wanted in types.items():
            own_names = translate_parameter(wanted_name, known, schema)
            if not own_names:
                return ReleaseAnswer("none", f"{name} has no type parameter `{wanted_name}`")
            for own in own_names:
                if translated.setdefault(own, wanted) != wanted:
                    return ReleaseAnswer("none", f"{name} cannot have these types together")
                if wanted in list_accepted_types(schema, own):
                    continue
                if not is_chosen_by_attribute(schema, own):
                    return ReleaseAnswer("none", f"{name} does not accept `{wanted}` for `{own}`")
                condition = f"{name} must not return `{wanted}`, but the release may not check this"
        about = next(iter(translate_parameter(parameter, known, schema)))
        operations = list_operations(operator, schema.since, opset, about, tuple(translated.items()), self._ai_onnx)
        if not operations:
            return ReleaseAnswer("none", f"{name} cannot have these types together")
        return MinimalNodes(schema, operations, condition)

    def _restrict_interface(self, index: int, types: Iterable[str | None]) -> str:
        """Return the condition on which a release accepts types that inputs and outputs of models may not have."""
        limits, release = self._limits[index], self._implementations[index]
        for value_type in types:
            if limits is not None and value_type in limits.refused_interface_types:
                return f"only if no input or output of the model is a `{value_type}`"
            if value_type and release.is_probed and not is_probed_interface_type(value_type, release.engine):
                return f"models with a `{value_type}` as input or output were not probed"
        return ""


def _find_operator(release: Implementation, domain: str, name: str) -> Operator | None:
    """Return an operator of a release. If the engine has no schemas, these are ONNX Runtime's."""
    operator = release.operator(domain, name)
    return _add_reference_schemas(operator, domain, name) if release.is_probed else operator


@functools.cache
def _add_reference_schemas(operator: Operator | None, domain: str, name: str) -> Operator:
    kernels, conditions = (operator.kernels, operator.conditions) if operator else ((), ())
    return Operator(domain, name, _list_reference_schemas(domain, name), kernels, conditions)


@functools.cache
def _list_reference_schemas(domain: str, name: str) -> tuple[Schema, ...]:
    """Return the newest schema of each version of an operator that ONNX Runtime has."""
    schemas: dict[int, Schema] = {}
    for release in list_known_releases():
        implementation = get_implementation(release)
        operator = implementation.operator(domain, name) if implementation else None
        schemas |= {schema.since: schema for schema in (operator.schemas if operator else ())}
    return tuple(schemas[since] for since in sorted(schemas))


def _find_schema(operator: Operator | None, since: int) -> Schema | None:
    return next((schema for schema in (operator.schemas if operator else ()) if schema.since == since), None)
