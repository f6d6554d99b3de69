"""Describe changes to operators from one release to another. Operators with equal changes are listed together.

In the descriptions, `7+` is a kernel with an open-ended range of versions, which ONNX Runtime uses only for version 7
of the operator, and `7-12` a kernel for versions 7 to 12. The kernel or number that was replaced follows after `for`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.support.answers.conditions import (
    find_absent_names,
    list_refused_uses,
    word_refusal,
    word_requirement,
)
from onnxgate.support.answers.operator_answers import ChangeKind, OperatorChange
from onnxgate.support.answers.type_names import shorten_type
from onnxgate.support.matching.probed.node_matching import NOT_CONSTANT
from onnxgate.support.operators import (
    Condition,
    FormalParameter,
    Implementation,
    Kernel,
    Operator,
    Schema,
    find_newest_schema,
)

Types = dict[str, frozenset[str]]  # constraint -> types
Versions = tuple[int, int]
_NAME = re.compile(r"\w+")
"""Pattern of the name of an attribute, an input or an output, with which a feature begins."""


def list_operators_by_label(release: Implementation) -> dict[str, Operator]:
    """Return the operators of a release by label, such as `Gelu` or `com.microsoft.Gelu`.

    Of a probed engine, these are the operators that it supports. Their kernels have all types that it accepts, and
    their conditions contain what it refuses because of other nodes.
    """
    operators = {
        name if domain == DEFAULT_DOMAIN else f"{domain}.{name}": operator
        for domain in release.domains()
        for name in release.operators(domain)
        if (operator := release.operator(domain, name)) is not None
    }
    if not release.is_probed:
        return operators
    return {label: _normalize(operator, release) for label, operator in operators.items() if operator.kernels}


def _normalize(operator: Operator, release: Implementation) -> Operator:
    """Return an operator of a probed engine so that it can be compared with that of another release.

    Its kernels have the types of all parameters; tables contain only restricted ones. Types that are refused unless all
    inputs are constant do not count. Conditions do not contain that feature, and what kernels contain: refused types.
    """
    uses = list_refused_uses(operator.name, release)
    kernels = []
    conditions = []
    for kernel in operator.kernels:
        schema = find_newest_schema(operator.domain, operator.name, kernel.start)
        types = {**(schema.constraints if schema is not None else {}), **kernel.constraints}
        conditions += [Condition(kernel.start, frozenset({use})) for use in uses]
        for condition in operator.conditions:
            if condition.start != kernel.start:
                continue
            features = condition.features - {NOT_CONSTANT}
            name, _, value_type = min(features, default="").partition("=")
            if len(features) == 1 and name in types:
                types[name] -= {value_type}
            else:
                conditions.append(replace(condition, features=features))
        kernels.append(replace(kernel, constraints=types))
    return replace(operator, kernels=tuple(kernels), conditions=tuple(conditions))


def list_changes(
    older: Mapping[str, Operator], newer: Mapping[str, Operator], *, noun: str = "kernel"
) -> tuple[OperatorChange, ...]:
    """Return the changes from one release to another, sorted by their first operators.

    `noun` is the word for kernels of an operator.
    """
    changed: dict[tuple[ChangeKind, tuple[str, ...]], list[str]] = defaultdict(list)
    for name in sorted(older.keys() | newer.keys()):
        before, after = older.get(name), newer.get(name)
        kind: ChangeKind = "added" if before is None else "removed" if after is None else "changed"
        details = _describe_changes(before, after, noun)
        if details or kind != "changed":
            changed[kind, details].append(name)
    return tuple(OperatorChange(kind, tuple(names), details) for (kind, details), names in changed.items())


def _describe_changes(older: Operator | None, newer: Operator | None, noun: str) -> tuple[str, ...]:
    schemas = _compare_schemas(older.schemas if older else (), newer.schemas if newer else ())
    kernels = _compare_kernels(older.kernels if older else (), newer.kernels if newer else (), noun)
    details = tuple(filter(None, (*schemas, *kernels)))
    combinations = "" if details else _describe_combinations(older, newer)
    return (*((combinations,) if combinations else details), *_compare_conditions(older, newer, noun))


def _describe_combinations(older: Operator | None, newer: Operator | None) -> str:
    """Describe changes that do not affect versions or the sets of types."""
    old, new = ({_get_content(kernel) for kernel in it.kernels} if it else set() for it in (older, newer))
    return "" if old == new else "the same types in different combinations"


def _get_content(kernel: Kernel) -> object:
    return kernel.start, kernel.end, kernel.provider, frozenset(kernel.constraints.items())


def _compare_schemas(older: Iterable[Schema], newer: Iterable[Schema]) -> Iterator[str]:
    old, new = ({schema.since: schema for schema in it} for it in (older, newer))
    yield _label_list("schema", (str(since) for since in sorted(new.keys() - old.keys())))
    yield _label_list("no schema", (str(since) for since in sorted(old.keys() - new.keys())))
    common = sorted(old.keys() & new.keys())
    yield from _label_differences("schema", {str(it): _compare_schema(old[it], new[it]) for it in common})


def _compare_schema(old: Schema, new: Schema) -> Iterator[str]:
    yield from _compare_lists("attribute", _list_attributes(old), _list_attributes(new))
    yield from _compare_lists("input", _list_arguments(old.inputs), _list_arguments(new.inputs))
    yield from _compare_lists("output", _list_arguments(old.outputs), _list_arguments(new.outputs))
    yield from _compare_types(old.constraints, new.constraints)
    for name in ("deprecated", "experimental", "inputs_min", "inputs_max", "outputs_min", "outputs_max"):
        if getattr(old, name) != getattr(new, name):
            yield f"{name.replace('_', ' ')} {getattr(new, name)} for {getattr(old, name)}"


def _list_attributes(schema: Schema) -> list[str]:
    return [f"{name}: {kind}{'!' if needed else ''}" for name, (kind, needed) in sorted(schema.attributes.items())]


def _list_arguments(formals: Iterable[FormalParameter]) -> list[str]:
    return [f"{formal.name}: {shorten_type(formal.type)}{('', '?', '…', '…')[formal.option]}" for formal in formals]


def _compare_kernels(older: Iterable[Kernel], newer: Iterable[Kernel], noun: str) -> Iterator[str]:
    old, new = _join_types_by_range(older), _join_types_by_range(newer)
    removed, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    if added:
        replaced = f" for {', '.join(map(_name_range, removed))}" if removed else ""
        yield _label_list(noun, (f"{_name_range(it)}{_describe_new_types(it, old, new)}" for it in added)) + replaced
    elif removed:
        yield _label_list(f"no {noun}", map(_name_range, removed))
    common = sorted(old.keys() & new.keys())
    yield from _label_differences(noun, {_name_range(it): _compare_types(old[it], new[it]) for it in common})


def _compare_conditions(older: Operator | None, newer: Operator | None, noun: str) -> Iterator[str]:
    """Yield conditions that appeared or disappeared, such as `support of version 16, 18 also with `mode` = `cubic``.

    Of versions that the older release does not support, only what the newer one requires of all nodes.
    """
    versions: dict[tuple[str, str], list[int]] = defaultdict(list)  # form and words of a condition -> versions
    for start in sorted({kernel.start for kernel in newer.kernels} if newer else ()):
        is_known = older is not None and any(kernel.start == start for kernel in older.kernels)
        old, new = (_list_conditions(it, start) for it in (older, newer))
        for condition in _exclude_covered(new, old):
            required = word_requirement(condition)
            if required or is_known:
                key = (f"{noun} {{}} {required}", "") if required else (f"no {noun} {{}} ", word_refusal(condition))
                versions[key].append(start)
        for condition in _exclude_covered(old, new) if is_known else ():
            rest = [word_refusal(it - condition) for it in new if condition <= _add_implied(it)]
            words = f"{noun} {{}} also {word_refusal(condition)}, except {_join_alternatives(rest)}"
            versions[(words, "") if rest else (f"{noun} {{}} also ", word_refusal(condition))].append(start)
    joined: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (form, words), starts in versions.items():
        joined[form, ", ".join(map(str, starts))].append(words)
    for (form, names), listed in joined.items():
        yield shorten_type(form.replace("{}", names) + _join_alternatives(listed))


def _list_conditions(operator: Operator | None, start: int) -> list[frozenset[str]]:
    conditions = operator.conditions if operator else ()
    return sorted({condition.features for condition in conditions if condition.start == start}, key=sorted)


def _exclude_covered(conditions: Iterable[frozenset[str]], others: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Return the conditions on nodes that no other condition covers, without those that follow from one of them."""
    found = [it for it in conditions if not any(other <= _add_implied(it) for other in others)]
    return [it for it in found if not any(other < it for other in found)]


def _add_implied(features: frozenset[str]) -> frozenset[str]:
    """Return features with those that follow from them: an attribute with a value is set, a constant input is given."""
    names = {name[0] for it in features if not find_absent_names(it) and (name := _NAME.match(it))}
    return features.union(*((f"{name}: set", f"{name}: given") for name in names))


def _join_alternatives(refusals: Iterable[str]) -> str:
    """Return refusals in words; values of the same attribute are joined: `with `mode` = `cubic` or `linear``."""
    values: dict[str, list[str]] = defaultdict(list)
    for words in refusals:
        name, separator, value = words.partition(" = ")
        is_single = separator and not re.search(r" and |, ", value)
        values[name + separator if is_single else words] += [value] if is_single else []
    return _join_words([name + _join_words(listed) for name, listed in values.items()])


def _join_words(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else "".join(words)


def _describe_new_types(versions: Versions, old: Mapping[Versions, Types], new: Mapping[Versions, Types]) -> str:
    """Return how the types of a new version range differ from the replaced range, or from the previous range."""
    same_start = [types for it, types in old.items() if it[0] == versions[0]]
    before = [types for it, types in sorted(new.items()) if it[0] < versions[0]]
    differences = list(_compare_types((same_start or before[-1:] or [{}])[0], new[versions]))
    return f" ({', '.join(differences)})" if differences else ""


def _join_types_by_range(kernels: Iterable[Kernel]) -> dict[Versions, Types]:
    """Return the union of the types of all kernels, by version range."""
    actual: dict[Versions, Types] = {}
    for kernel in kernels:
        types = actual.setdefault((kernel.start, kernel.end), {})
        for name, accepted in kernel.constraints.items():
            types[name] = types.get(name, frozenset()) | accepted
    return actual


def _compare_types(old: Mapping[str, frozenset[str]], new: Mapping[str, frozenset[str]]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        before, after = (sorted(map(shorten_type, types.get(name, ()))) for types in (old, new))
        words = " ".join(word.strip() for word in _compare_lists("", before, after))
        if words:
            yield f"{name} {words}"


def _compare_lists(label: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield the difference between two lists, such as `attribute +a -b`."""
    added, removed = sorted(set(new) - set(old)), sorted(set(old) - set(new))
    words = [*(f"+{it}" for it in added), *(f"-{it}" for it in removed)]
    if words:
        yield f"{label} {' '.join(words)}"
    elif old != new:
        yield f"{label}s in a different order"


def _name_range(versions: Versions) -> str:
    start, end = versions
    return f"{start}-{end}" if end > start else f"{start}+" if end == 0 else str(start)


def _label_differences(label: str, differences: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield the differences of versions, such as `kernel 13, 19+ with T +float16`; equal ones are joined."""
    versions = defaultdict(list)
    for version, words in differences.items():
        versions[", ".join(words)].append(version)
    for listed, names in versions.items():
        if listed:
            yield f"{label} {', '.join(names)} with {listed}"


def _label_list(label: str, words: Iterable[str]) -> str:
    listed = ", ".join(words)
    return f"{label} {listed}" if listed else ""
