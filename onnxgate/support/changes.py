"""Describe changes to operators from one release to another. Operators with equal changes are listed together.

In the descriptions, `7+` is a kernel with an open-ended range of versions, which ONNX Runtime uses only for version 7
of the operator, and `7-12` a kernel for versions 7 to 12. The kernel or number that was replaced follows after `for`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.support.answers import ChangeKind, OperatorChange
from onnxgate.support.operators import FormalParameter, Implementation, Kernel, Operator, Schema
from onnxgate.support.type_names import shorten_type

Types = dict[str, frozenset[str]]  # constraint -> types
Versions = tuple[int, int]


def list_operators_by_label(release: Implementation) -> dict[str, Operator]:
    """Return the operators of a release by label, such as `Gelu` or `com.microsoft.Gelu`."""
    return {
        name if domain == DEFAULT_DOMAIN else f"{domain}.{name}": operator
        for domain in release.domains()
        for name in release.operators(domain)
        if (operator := release.operator(domain, name)) is not None
    }


def list_changes(older: Mapping[str, Operator], newer: Mapping[str, Operator]) -> tuple[OperatorChange, ...]:
    """Return the changes from one release to another, sorted by their first operators."""
    changed: dict[tuple[ChangeKind, tuple[str, ...]], list[str]] = defaultdict(list)
    for name in sorted(older.keys() | newer.keys()):
        before, after = older.get(name), newer.get(name)
        kind: ChangeKind = "added" if before is None else "removed" if after is None else "changed"
        details = _describe(before, after)
        if details or kind != "changed":
            changed[kind, details].append(name)
    return tuple(OperatorChange(kind, tuple(names), details) for (kind, details), names in changed.items())


def _describe(older: Operator | None, newer: Operator | None) -> tuple[str, ...]:
    schemas = _schemas(older.schemas if older else (), newer.schemas if newer else ())
    kernels = _kernels(older.kernels if older else (), newer.kernels if newer else ())
    details = tuple(filter(None, (*schemas, *kernels)))
    hidden = "" if details else _hidden(older, newer)
    return (hidden,) if hidden else details


def _hidden(older: Operator | None, newer: Operator | None) -> str:
    """Describe changes that do not affect versions or the sets of types."""
    old, new = ({_row(kernel) for kernel in it.kernels} if it else set() for it in (older, newer))
    return "" if old == new else "the same types in different combinations"


def _row(kernel: Kernel) -> object:
    return kernel.start, kernel.end, kernel.provider, frozenset(kernel.constraints.items())


def _schemas(older: Iterable[Schema], newer: Iterable[Schema]) -> Iterator[str]:
    old, new = ({schema.since: schema for schema in it} for it in (older, newer))
    yield _and_more("schema", (str(since) for since in sorted(new.keys() - old.keys())))
    yield _and_more("no schema", (str(since) for since in sorted(old.keys() - new.keys())))
    for since in sorted(old.keys() & new.keys()):
        differences = list(_schema(old[since], new[since]))
        if differences:
            yield f"schema {since} with {', '.join(differences)}"


def _schema(old: Schema, new: Schema) -> Iterator[str]:
    yield from _moved("attribute", _attributes(old), _attributes(new))
    yield from _moved("input", _formals(old.inputs), _formals(new.inputs))
    yield from _moved("output", _formals(old.outputs), _formals(new.outputs))
    yield from _types(old.constraints, new.constraints)
    for name in ("deprecated", "experimental", "inputs_min", "inputs_max", "outputs_min", "outputs_max"):
        if getattr(old, name) != getattr(new, name):
            yield f"{name.replace('_', ' ')} {getattr(new, name)} for {getattr(old, name)}"


def _attributes(schema: Schema) -> list[str]:
    return [f"{name}: {kind}{'!' if needed else ''}" for name, (kind, needed) in sorted(schema.attributes.items())]


def _formals(formals: Iterable[FormalParameter]) -> list[str]:
    return [f"{formal.name}: {shorten_type(formal.type)}{('', '?', '…', '…')[formal.option]}" for formal in formals]


def _kernels(older: Iterable[Kernel], newer: Iterable[Kernel]) -> Iterator[str]:
    old, new = _ranges(older), _ranges(newer)
    gone, come = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    if come:
        replaced = f" for {', '.join(map(_range, gone))}" if gone else ""
        yield _and_more("kernel", (f"{_range(it)}{_unlike(it, old, new)}" for it in come)) + replaced
    elif gone:
        yield _and_more("no kernel", map(_range, gone))
    for it in sorted(old.keys() & new.keys()):
        differences = list(_types(old[it], new[it]))
        if differences:
            yield f"kernel {_range(it)} with {', '.join(differences)}"


def _unlike(versions: Versions, old: Mapping[Versions, Types], new: Mapping[Versions, Types]) -> str:
    """Return how the types of a new version range differ from the replaced range, or from the previous range."""
    same_start = [types for it, types in old.items() if it[0] == versions[0]]
    before = [types for it, types in sorted(new.items()) if it[0] < versions[0]]
    differences = list(_types((same_start or before[-1:] or [{}])[0], new[versions]))
    return f" ({', '.join(differences)})" if differences else ""


def _ranges(kernels: Iterable[Kernel]) -> dict[Versions, Types]:
    """Return the union of the types of all kernels, by version range."""
    actual: dict[Versions, Types] = {}
    for kernel in kernels:
        types = actual.setdefault((kernel.start, kernel.end), {})
        for name, accepted in kernel.constraints.items():
            types[name] = types.get(name, frozenset()) | accepted
    return actual


def _types(old: Mapping[str, frozenset[str]], new: Mapping[str, frozenset[str]]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        before, after = (sorted(map(shorten_type, types.get(name, ()))) for types in (old, new))
        words = " ".join(word.strip() for word in _moved("", before, after))
        if words:
            yield f"{name} {words}"


def _moved(what: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield the difference between two lists, such as `attribute +a -b`."""
    come, gone = sorted(set(new) - set(old)), sorted(set(old) - set(new))
    words = [*(f"+{it}" for it in come), *(f"-{it}" for it in gone)]
    if words:
        yield f"{what} {' '.join(words)}"
    elif old != new:
        yield f"{what}s in a different order"


def _range(versions: Versions) -> str:
    start, end = versions
    return f"{start}-{end}" if end > start else f"{start}+" if end == 0 else str(start)


def _and_more(what: str, words: Iterable[str]) -> str:
    listed = ", ".join(words)
    return f"{what} {listed}" if listed else ""
