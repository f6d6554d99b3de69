"""Describe changes to operators from one release to the next. Operators with equal changes share a line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnxgate.support.operators import FormalParameter, Kernel, Operator, Schema

Types = dict[str, frozenset[str]]  # constraint -> types
Versions = tuple[int, int]


def changes(older: Mapping[str, Operator], newer: Mapping[str, Operator]) -> list[str]:
    """Return Markdown list items `- operators: change`, sorted by the first operator in each item."""
    changed: dict[str, list[str]] = defaultdict(list)
    for name in sorted(older.keys() | newer.keys()):
        text = _operator(older.get(name), newer.get(name))
        if text:
            changed[text].append(f"`{name}`")
    return [f"- {', '.join(names)}: {text}\n" for text, names in changed.items()]


def _operator(older: Operator | None, newer: Operator | None) -> str:
    schemas = _schemas(older.schemas if older else (), newer.schemas if newer else ())
    kernels = _kernels(older.kernels if older else (), newer.kernels if newer else ())
    words = [("new" if older is None else "removed" if newer is None else ""), *schemas, *kernels]
    return "; ".join(word for word in words if word) or _hidden(older, newer)


def _hidden(older: Operator | None, newer: Operator | None) -> str:
    """Describe changes that do not affect versions or the sets of types."""
    old, new = ({_row(kernel) for kernel in each.kernels} if each else set() for each in (older, newer))
    return "" if old == new else "the same types in different combinations"


def _row(kernel: Kernel) -> object:
    return kernel.start, kernel.end, kernel.provider, frozenset(kernel.constraints.items())


def _schemas(older: Iterable[Schema], newer: Iterable[Schema]) -> Iterator[str]:
    old, new = ({schema.since: schema for schema in each} for each in (older, newer))
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
    return [f"{formal.name}: {short_type(formal.type)}{('', '?', '…', '…')[formal.option]}" for formal in formals]


def _kernels(older: Iterable[Kernel], newer: Iterable[Kernel]) -> Iterator[str]:
    old, new = _ranges(older), _ranges(newer)
    gone, come = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    if come:
        replaced = f" for {', '.join(map(_range, gone))}" if gone else ""
        yield _and_more("kernel", (f"{_range(each)}{_unlike(each, old, new)}" for each in come)) + replaced
    elif gone:
        yield _and_more("no kernel", map(_range, gone))
    for each in sorted(old.keys() & new.keys()):
        differences = list(_types(old[each], new[each]))
        if differences:
            yield f"kernel {_range(each)} with {', '.join(differences)}"


def _unlike(versions: Versions, old: Mapping[Versions, Types], new: Mapping[Versions, Types]) -> str:
    """Return how the types of a new version range differ from the replaced range, or from the previous range."""
    same_start = [types for each, types in old.items() if each[0] == versions[0]]
    before = [types for each, types in sorted(new.items()) if each[0] < versions[0]]
    differences = list(_types((same_start or before[-1:] or [{}])[0], new[versions]))
    return f" ({', '.join(differences)})" if differences else ""


def _ranges(kernels: Iterable[Kernel]) -> dict[Versions, Types]:
    """Return the union of the types of all kernels, by version range."""
    actual: dict[Versions, Types] = {}
    for kernel in kernels:
        types = actual.setdefault((kernel.start, kernel.end), {})
        for name, each in kernel.constraints.items():
            types[name] = types.get(name, frozenset()) | each
    return actual


def _types(old: Mapping[str, frozenset[str]], new: Mapping[str, frozenset[str]]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        before, after = (sorted(map(short_type, types.get(name, ()))) for types in (old, new))
        words = " ".join(word.strip() for word in _moved("", before, after))
        if words:
            yield f"{name} {words}"


def _moved(what: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield the difference between two lists, such as `attribute +a -b`."""
    come, gone = sorted(set(new) - set(old)), sorted(set(old) - set(new))
    words = [*(f"+{each}" for each in come), *(f"-{each}" for each in gone)]
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


def short_type(type_name: str) -> str:
    """Remove `tensor(…)` from a type: `int64` for `tensor(int64)`."""
    return type_name.removeprefix("tensor(").removesuffix(")") if type_name.startswith("tensor(") else type_name
