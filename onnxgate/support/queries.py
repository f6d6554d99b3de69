"""Answer which releases support an operator, by matching its smallest nodes with the support table of each release."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from onnxgate.model.facts import DEFAULT_DOMAIN, INTERNAL_DOMAINS
from onnxgate.support.answers import (
    NewestVersions,
    OperatorSupport,
    SupportSpan,
    SupportWay,
    TypeSupport,
    VersionSupport,
)
from onnxgate.support.limits import Limits, get_limits
from onnxgate.support.matching.float16_casts import FIRST_CAST_OPSET
from onnxgate.support.matching.function_bodies import has_function_body
from onnxgate.support.matching.kernels import CPU_PROVIDER, Implemented, find_implementation
from onnxgate.support.matching.operations import Attribute, NodeTraits, Operation, SupportGap
from onnxgate.support.minimal_nodes import is_chosen_by_attribute, list_operations
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
    return tuple(
        OperatorSupport(engine, it, name, versions, provider, ai_onnx if it != DEFAULT_DOMAIN else None)
        for it in public
        if (versions := tuple(_OperatorQuery(it, name, engine, types or {}, releases, ai_onnx).describe(opset)))
    )


def find_newest_versions(releases: Iterable[str], engine: str = "onnxruntime") -> NewestVersions:
    """Return the newest IR version and the newest opset of each domain that all of these releases accept.

    Raises:
        ValueError: there is no release, or the limits of one are unknown.
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


class _Answer(NamedTuple):
    """How one release runs an operator with given types."""

    way: SupportWay
    reason: str = ""


def _find_best(answers: Iterable[_Answer]) -> _Answer:
    return min(answers, key=lambda answer: _RANKS.index(answer.way))


_Answers = dict[tuple[str, str], list[_Answer]]
"""Answer of each release in ascending order, by type parameter and type."""
_RANKS: tuple[SupportWay, ...] = ("kernel", "converted", "function", "cast", "folded", "unknown", "none")


class _OperatorQuery:
    """The question which releases support an operator."""

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

    def _describe_version(self, since: int, last: int | None, opsets: range) -> Iterator[VersionSupport]:
        """Yield the support of one version; opsets with the same answers share a value."""
        schemas = [schema for it in self._known_operators if (schema := _find_schema(it, since)) is not None]
        parameters = _list_types(schemas)
        fixed = {name: wanted for name, wanted in self._types.items() if name}
        if "" in self._types:  # a type without a name is about a parameter that no other type names
            others = {name: types for name, types in parameters.items() if name not in fixed}
            fixed[self._find_parameter(others, self._types[""])] = self._types[""]
        if not fixed.keys() <= parameters.keys():
            return
        parameters |= {name: [value_type] for name, value_type in fixed.items()}
        groups: list[tuple[int, _Answers]] = []
        is_probed = any(it.is_probed for it in self._implementations)
        has_body = not is_probed and has_function_body(self._domain, self._name, since)
        for opset in opsets:
            answers = {
                (parameter, value_type): [
                    self._answer(index, schemas, opset, parameter, {**fixed, parameter: value_type})
                    for index in range(len(self._releases))
                ]
                for parameter, types in parameters.items()
                for value_type in types
            }
            if not groups or not self._are_equal(groups[-1][1], answers, opset):
                groups.append((opset, answers))
            if not (has_body or opset < FIRST_CAST_OPSET):
                break
        for (first, answers), after in itertools.zip_longest(groups, groups[1:]):
            types = tuple(
                TypeSupport(parameter, value_type, self._merge(rows))
                for (parameter, value_type), rows in answers.items()
            )
            best = [_find_best(column) for column in zip(*answers.values(), strict=True)]
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

    def _are_equal(self, answers: _Answers, later: _Answers, opset: int) -> bool:
        """Return whether the answers at a later opset are equal on the releases that accept it."""
        accept = [self._explain_opset(row, opset) == "" for row in self._limits]
        return all(
            [row[0] for row, accepted in zip(answers[key], accept, strict=True) if accepted]
            == [row[0] for row, accepted in zip(rows, accept, strict=True) if accepted]
            for key, rows in later.items()
        )

    def _merge(self, answers: Sequence[_Answer]) -> tuple[SupportSpan, ...]:
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
        self, index: int, known: Sequence[Schema], opset: int, parameter: str, types: Mapping[str, str]
    ) -> _Answer:
        """Return how a release runs the operator with these types, at an opset.

        `known` are the schemas of the version that models with this opset use; these have the names of `types`.
        """
        refusal = self._explain_opset(self._limits[index], opset)
        if refusal:
            return _Answer("none", refusal)
        operator = self._operators[index]
        schema = operator.schema(opset) if operator else None
        if schema is None or operator is None:
            is_older = opset < known[-1].since
            missing = f"`{self._name}`" if is_older else f"`{self._name}({known[-1].since})`"
            return _Answer("none", f"{missing} does not exist{f' in opset {opset}' if is_older else ''}")
        name = f"`{self._name}({schema.since})`"
        translated: dict[str, str] = {}
        invalid = ""
        for wanted_name, wanted in types.items():
            own_names = _translate_parameter(wanted_name, known, schema)
            if not own_names:
                return _Answer("none", f"{name} has no type parameter `{wanted_name}`")
            for own in own_names:
                if translated.setdefault(own, wanted) != wanted:
                    return _Answer("none", f"{name} cannot have these types together")
                if wanted in _list_accepted(schema, own):
                    continue
                if not is_chosen_by_attribute(schema, own):
                    return _Answer("none", f"{name} does not accept `{wanted}` for `{own}`")
                invalid = f"{name} must not return `{wanted}`, but the release may not check this"
        failed: list[_Answer] = []
        about = next(iter(_translate_parameter(parameter, known, schema)))
        fixed = tuple(translated.items())
        for operation in list_operations(operator, schema.since, opset, about, fixed, self._ai_onnx):
            answer = self._match(self._implementations[index], schema, operation)
            if answer.way not in ("none", "unknown"):
                condition = invalid or self._restrict_interface(index, types.values())
                return _Answer("unknown", condition) if condition else answer
            failed.append(answer)
        return _find_best(failed) if failed else _Answer("none", f"{name} cannot have these types together")

    def _restrict_interface(self, index: int, types: Iterable[str]) -> str:
        """Return the condition on which a release accepts types that models must not have as inputs or outputs."""
        limits = self._limits[index]
        refused = [it for it in types if limits is not None and it in limits.refused_interface_types]
        return f"only if no input or output of the model is a `{refused[0]}`" if refused else ""

    def _match(self, release: Implementation, schema: Schema, operation: Operation) -> _Answer:
        """Return how a release runs an operation. Attributes that it requires beyond the schema are added."""
        result = find_implementation(operation, release)
        while isinstance(result, SupportGap) and result.rule == "attribute-unsupported":
            kind = schema.attributes.get(result.about, ("",))[0]
            if not kind or any(attribute.name == result.about for attribute in operation.attributes):
                break
            added = (*operation.attributes, Attribute(result.about, kind, b""))
            operation = replace(operation, attributes=tuple(sorted(added, key=lambda attribute: attribute.name)))
            result = find_implementation(operation, release)
        if isinstance(result, Implemented):
            return _Answer(result.way)
        if isinstance(result, str):
            return _Answer("unknown", result)
        for condition, changed in _list_removals(operation):
            if isinstance(find_implementation(changed, release), Implemented):
                return _Answer("unknown", condition)  # the rest of the model decides
        is_general = result.rule == "type-mismatch" and result.detail  # about a type, not about the operator
        return _Answer("none", f"{result.problem}; the release {result.detail}" if is_general else result.problem)


def _list_removals(operation: Operation) -> Iterator[tuple[str, Operation]]:
    """Yield conditions under which releases may remove a node without a kernel, and the operation that meets them."""
    if operation.domain == DEFAULT_DOMAIN and operation.name == "Shape":
        yield "only if all sizes of the input are fixed", replace(operation, static=True)
    if operation.domain == DEFAULT_DOMAIN and operation.name in ("Identity", "Dropout"):
        yield "only if the optimizer can remove the node", replace(operation, traits=NodeTraits(is_eliminated=True))


def _find_operator(release: Implementation, domain: str, name: str) -> Operator | None:
    """Return an operator of a release. If the engine has no schemas, these are ONNX Runtime's."""
    operator = release.operator(domain, name)
    if not release.is_probed:
        return operator
    return Operator(domain, name, _list_reference_schemas(domain, name), operator.kernels if operator else ())


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


def _translate_parameter(name: str, known: Sequence[Schema], schema: Schema) -> tuple[str, ...]:
    """Return the type parameters of a schema for the arguments that have the parameter `name` in known schemas.

    Releases can have different schemas of one version: newer ones may have more type parameters, or more arguments.
    """
    if name in {formal.type for formal in (*schema.inputs, *schema.outputs)}:
        return (name,)
    having = [it for it in reversed(known) if name in {formal.type for formal in (*it.inputs, *it.outputs)}]
    reference = (*having, known[-1])[0]
    sides = ((reference.inputs, schema.inputs), (reference.outputs, schema.outputs))
    pairs = [(theirs, own) for formals, mine in sides for theirs in formals for own in mine if theirs.name == own.name]
    found = [own for theirs, own in pairs if name in (theirs.type, theirs.name)]
    return tuple(dict.fromkeys(own.type if own.type in schema.constraints else own.name for own in found))


def _list_accepted(schema: Schema, parameter: str) -> frozenset[str]:
    """Return the types that a schema allows for a type parameter, or for an argument whose type never varies."""
    if parameter in schema.constraints:
        return schema.constraints[parameter]
    formals = [it for it in (*schema.inputs, *schema.outputs) if it.name == parameter]
    return frozenset().union(*(schema.types_of(it) for it in formals))


def _list_types(schemas: Sequence[Schema]) -> dict[str, list[str]]:
    """Return the types of each type parameter in any of the schemas.

    If no type of the operator varies, the parameters are the inputs and outputs.
    """
    types: dict[str, set[str]] = {}
    for schema in reversed(schemas):
        for formal in (*schema.inputs, *schema.outputs):
            if formal.type in schema.constraints:
                types.setdefault(formal.type, set()).update(schema.constraints[formal.type])
    if not types:
        for formal in (*schemas[-1].inputs, *schemas[-1].outputs):
            types.setdefault(formal.name, {formal.type})
    return {name: sorted(listed, key=_rank_type) for name, listed in types.items()}


_TYPE_ORDER = ("float", "float16", "bfloat16", "double")


def _rank_type(value_type: str) -> tuple[str, int, str, int]:
    """Return a key that sorts types: first tensors; of these, first the usual floats, then by name and size."""
    kind, _, element = value_type.rstrip(")").rpartition("(")
    stem = element.rstrip("0123456789")
    order = _TYPE_ORDER.index(element) if element in _TYPE_ORDER else len(_TYPE_ORDER)
    return "" if kind == "tensor" else kind, order, stem, int(element[len(stem) :] or 0)
