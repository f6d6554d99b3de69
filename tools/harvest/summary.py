"""Render the shipped data for reviewers: the origin of each release, and the changes from one release to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from harvest.changes import changes, short_type
from onnxgate.support.limits import ExternalData, Limits
from onnxgate.support.operators import Implementation, Operator, Table, TableSource, build_implementations

if TYPE_CHECKING:
    from harvest.data import Data


def summary(data: Data) -> str:
    """Return the page, newest release first."""
    known = build_implementations(data.table, {}) if data.table is not None else {}
    parts = [data.description.head, _limits(data.limits), _sources(data.sources, data.table, known)]
    parts += reversed(list(_changes(data.table, known))) if data.table is not None else []
    return "\n".join(parts)


def _limits(rows: Mapping[str, Limits]) -> str:
    columns: dict[str, Callable[[Limits], str]] = {
        "IR": lambda row: "any" if row.ir is None else str(row.ir),
        "opsets": lambda row: _opsets(row.opsets) or "any",
        "with `ALLOW_RELEASED_ONNX_OPSET_ONLY=0`": lambda row: _opsets(row.dev_opsets),
        "external data rejected": lambda row: _refused(row.external_data),
        "types that inputs and outputs cannot have": lambda row: ", ".join(
            map(short_type, row.refused_interface_types)
        ),
    }
    empty = {name for name, cell in columns.items() if not any(cell(row) for row in rows.values())}
    shown = {name: cell for name, cell in columns.items() if name not in empty}
    lines = ([name, *(cell(row) for cell in shown.values())] for name, row in reversed(list(rows.items())))
    return "## Limits\n\n" + _table(["release", *shown], lines)


def _opsets(opsets: Mapping[str, int]) -> str:
    return ", ".join(f"{domain} {newest}" for domain, newest in opsets.items())


def _refused(policy: ExternalData | None) -> str:
    if policy is None:
        return ""
    return ", ".join(name for name in policy.__struct_fields__ if not getattr(policy, name)).replace("_", " ")


def _sources(sources: Mapping[str, TableSource], table: Table | None, known: Mapping[str, Implementation]) -> str:
    head = ["release", "kernels", "schemas", "commit", "wheel", "sha256"]
    if not any(source.commit for source in sources.values()):
        head[3:] = ["package", "digest"]
    return "## Sources\n\n" + _table(
        head, (_source(source, table, known, head) for source in reversed(list(sources.values())))
    )


def _source(
    source: TableSource, table: Table | None, known: Mapping[str, Implementation], head: Sequence[str]
) -> list[str]:
    counts = ["", ""]
    if table is not None and source.release in known:
        operators = [operator for _, operator in _operators(table, known[source.release])]
        counts = [str(sum(len(each.kernels) for each in operators)), str(sum(len(each.schemas) for each in operators))]
    commit = [source.commit] if "commit" in head else []
    return [source.release, *counts, *commit, f"`{source.wheel}`", f"`{source.sha256}`"]


def _changes(table: Table, known: Mapping[str, Implementation]) -> Iterator[str]:
    for older, newer in pairwise(known.values()):
        lines = changes(dict(_operators(table, older)), dict(_operators(table, newer)))
        yield f"## {newer.release} after {older.release}\n\n" + ("".join(lines) or "No change.\n")


def _operators(table: Table, release: Implementation) -> Iterator[tuple[str, Operator]]:
    """Yield the operators of a release with their qualified names."""
    for domain in table.operators:
        for name in release.operators(domain):
            operator = release.operator(domain, name)
            if operator is not None:
                yield (name if domain == "ai.onnx" else f"{domain}.{name}"), operator


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
