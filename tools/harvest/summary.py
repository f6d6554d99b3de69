"""Render the shipped data for reviewers: the origin of each release, and the changes from one release to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from onnxgate.support.answers.operator_answers import OperatorChange
from onnxgate.support.answers.release_changes import list_changes, list_operators_by_label
from onnxgate.support.answers.type_names import shorten_type
from onnxgate.support.limits import ExternalData, Limits
from onnxgate.support.operators import Implementation, TableSource, build_implementations

if TYPE_CHECKING:
    from harvest.data import Data


def summary(data: Data) -> str:
    """Return the page, newest release first."""
    known = build_implementations(data.table, {}) if data.table is not None else {}
    parts = [data.description.head, _limits(data.limits), _sources(data.sources, known)]
    parts += reversed(list(_changes(known)))
    return "\n".join(parts)


def _limits(rows: Mapping[str, Limits]) -> str:
    columns: dict[str, Callable[[Limits], str]] = {
        "IR": lambda row: "any" if row.ir is None else str(row.ir),
        "opsets": lambda row: _opsets(row.opsets) or "any",
        "with `ALLOW_RELEASED_ONNX_OPSET_ONLY=0`": lambda row: _opsets(row.dev_opsets),
        "external data rejected": lambda row: _refused(row.external_data),
        "types that inputs and outputs cannot have": lambda row: ", ".join(
            map(shorten_type, row.refused_interface_types)
        ),
    }
    empty = {name for name, cell in columns.items() if not any(cell(row) for row in rows.values())}
    shown = {name: cell for name, cell in columns.items() if name not in empty}
    cells = [(name, [cell(row) for cell in shown.values()]) for name, row in reversed(list(rows.items()))]
    lines = []
    for content, group in groupby(cells, key=lambda pair: pair[1]):  # consecutive releases with equal limits
        *newer, oldest = [name for name, _ in group]
        lines.append([f"{oldest}–{newer[0]}" if newer else oldest, *content])
    return "## Limits\n\n" + _table(["releases", *shown], lines)


def _opsets(opsets: Mapping[str, int]) -> str:
    return ", ".join(f"{domain} {newest}" for domain, newest in opsets.items())


def _refused(policy: ExternalData | None) -> str:
    if policy is None:
        return ""
    return ", ".join(name for name in policy.__struct_fields__ if not getattr(policy, name)).replace("_", " ")


def _sources(sources: Mapping[str, TableSource], known: Mapping[str, Implementation]) -> str:
    is_probed = any(it.is_probed for it in known.values())
    counts = ["versions of operators"] if is_probed else ["kernels", "schemas"]
    head = ["release", *counts, "commit", "wheel", "sha256"]
    if not any(source.commit for source in sources.values()):
        head[1 + len(counts) :] = ["package", "digest"]
    rows = (_source(source, known, head, len(counts)) for source in reversed(list(sources.values())))
    return "## Sources\n\n" + _table(head, rows)


def _source(source: TableSource, known: Mapping[str, Implementation], head: Sequence[str], columns: int) -> list[str]:
    counts = ["", ""]
    if source.release in known:
        operators = list_operators_by_label(known[source.release]).values()
        counts = [str(sum(len(each.kernels) for each in operators)), str(sum(len(each.schemas) for each in operators))]
    commit = [source.commit] if "commit" in head else []
    return [source.release, *counts[:columns], *commit, f"`{source.wheel}`", f"`{source.sha256}`"]


def _changes(known: Mapping[str, Implementation]) -> Iterator[str]:
    for older, newer in pairwise(known.values()):
        noun = "support of version" if newer.is_probed else "kernel"
        changes = list_changes(list_operators_by_label(older), list_operators_by_label(newer), noun=noun)
        lines = "".join(map(_change, changes))
        yield f"## {newer.release} after {older.release}\n\n" + (lines or "No change.\n")


def _change(change: OperatorChange) -> str:
    kinds = {"added": ["new"], "removed": ["removed"], "changed": []}
    names = ", ".join(f"`{name}`" for name in change.operators)
    return f"- {names}: {'; '.join([*kinds[change.kind], *change.details])}\n"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
