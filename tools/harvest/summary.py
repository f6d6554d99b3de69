"""Render the shipped data for reviewers: the origin of each release, and the changes from one release to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from onnxgate.support.answers import OperatorChange
from onnxgate.support.changes import list_changes, list_operators_by_label
from onnxgate.support.limits import ExternalData, Limits
from onnxgate.support.operators import Implementation, TableSource, build_implementations

if TYPE_CHECKING:
    from harvest.data import Data

HEAD = """# Support data of ONNX Runtime

`tools/harvest_support.py` writes this page together with the data. `onnxruntime-kernels.json.z` contains the kernels
and schemas that official wheels (Linux x86_64, CPU) report since release 1.16.0; older wheels do not report them.
`onnxruntime-limits.json` contains the limits, which are measured by loading tiny models.

In the lists of changes, `7+` is a kernel with an open-ended range of versions; ONNX Runtime uses it only for version 7
of the operator. `7-12` is a kernel for versions 7 to 12. After `for` is the kernel or number that was replaced. Types
are written without `tensor(…)`.
"""


def summary(data: Data) -> str:
    """Return the page, newest release first."""
    known = build_implementations(data.table, {}) if data.table is not None else {}
    parts = [HEAD, _limits(data.limits), _sources(data.sources, known)]
    parts += reversed(list(_changes(known)))
    return "\n".join(parts)


def _limits(rows: Mapping[str, Limits]) -> str:
    head = ["release", "IR", "opsets", "with `ALLOW_RELEASED_ONNX_OPSET_ONLY=0`", "external data rejected"]
    return "## Limits\n\n" + _table(head, ([name, *_limit_cells(row)] for name, row in reversed(list(rows.items()))))


def _limit_cells(row: Limits) -> list[str]:
    return [str(row.ir), _opsets(row.opsets), _opsets(row.dev_opsets), _refused(row.external_data)]


def _opsets(opsets: Mapping[str, int]) -> str:
    return ", ".join(f"{domain} {newest}" for domain, newest in opsets.items())


def _refused(policy: ExternalData | None) -> str:
    if policy is None:
        return "not measured"
    return ", ".join(name for name in policy.__struct_fields__ if not getattr(policy, name)).replace("_", " ")


def _sources(sources: Mapping[str, TableSource], known: Mapping[str, Implementation]) -> str:
    head = ["release", "kernels", "schemas", "commit", "wheel", "sha256"]
    return "## Sources\n\n" + _table(head, (_source(source, known) for source in reversed(list(sources.values()))))


def _source(source: TableSource, known: Mapping[str, Implementation]) -> list[str]:
    counts = ["", ""]
    if source.release in known:
        operators = list_operators_by_label(known[source.release]).values()
        counts = [str(sum(len(each.kernels) for each in operators)), str(sum(len(each.schemas) for each in operators))]
    return [source.release, *counts, source.commit, f"`{source.wheel}`", f"`{source.sha256}`"]


def _changes(known: Mapping[str, Implementation]) -> Iterator[str]:
    for older, newer in pairwise(known.values()):
        changes = list_changes(list_operators_by_label(older), list_operators_by_label(newer))
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
