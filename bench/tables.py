"""
Render a result as Markdown.

The printed result has one table for each corpus and project. The documentation has a single table for all corpora.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import figures
from bench.contestants import CAT, HASH, IMPORT, LOAD, SHA256SUM
from bench.figures import Result, Row, Span, WorkResult
from bench.processes import Measurement
from bench.targets import Target, list_targets

_GROWN = (
    ("small-100", "small-1000", 900, "small model"),
    ("nodes-2000", "nodes-20000", 18_000, "node of a large graph"),
)
_COUNTED = ("cores", "GiB of memory")
"""Properties of the machine that are written as a number with a unit."""
_BOUNDS = frozenset({IMPORT, LOAD, HASH, SHA256SUM, CAT})
_SMALL = frozenset({IMPORT, SHA256SUM})
"""Commands that need the same amount of memory for every corpus."""
_UNDOCUMENTED = frozenset({HASH, CAT})
"""Lower bounds that are printed but omitted from the documentation."""


def markdown(result: Result) -> str:
    """Return the complete result as Markdown."""
    targets = [f"### Targets\n\n{table}" for table in _targets(result)]
    return _joined([_machine(result), *targets, *_static(result), *_full(result), *_skipped(result)])


def write_figures(result: Result, folder: Path) -> None:
    """Write the files that the documentation includes; files without new results stay unchanged."""
    parts = {"targets": _targets(result), "static": _overview(result), "full": [*_full(result), *_skipped(result)]}
    for name, part in parts.items():
        sections = list(part)
        if sections:
            (folder / f"{name}.md").write_text(_joined([_machine(result), *sections]), encoding="utf-8")


def _joined(sections: Sequence[str]) -> str:
    return "\n\n".join(sections) + "\n"


def _static(result: Result) -> Iterator[str]:
    yield from map(_work, result.corpora)
    yield from _growth(result)
    yield from _commands(result)


def _full(result: Result) -> Iterator[str]:
    yield from map(_work, result.projects)


def _skipped(result: Result) -> Iterator[str]:
    if result.skipped:
        yield "Not measured:\n\n" + "\n".join(
            f"- {name}: {' '.join(reason.split())}" for name, reason in result.skipped.items()
        )


def _targets(result: Result) -> Iterator[str]:
    targets = list(list_targets(result))
    if targets:
        rows = [_target(target) for target in targets]
        yield _table(("work", "target", "measured", "met"), rows, "---")


def _target(target: Target) -> tuple[str, ...]:
    met = {True: "yes", False: "**no**", None: ""}[target.is_met]
    return target.work, target.at_most, target.measured or "**failed**", met


def _machine(result: Result) -> str:
    machine = ", ".join(
        f"{value} {name}" if name in _COUNTED else f"{name} {value}" for name, value in result.machine.items()
    )
    return f"Median (minimum–maximum) on {machine}."


def _work(work: WorkResult) -> str:
    bound = work.row(work.bound)
    rows = [_row(work, row, bound) for row in work.rows]
    size = f"{work.size_bytes / 1e6:,.1f} MB"
    title = f"### {work.title[0].upper()}{work.title[1:]} ({size})"
    columns = ("", "CPU s", f"CPU relative to `{work.bound}`", "wall s", "peak MiB")
    return "\n\n".join([title, *_own_work(work), _table(columns, rows)])


def _own_work(work: WorkResult) -> Iterator[str]:
    if work.own_work_s:
        seconds = ", ".join(f"{step} {seconds:.2f} s" for step, seconds in work.own_work_s.items())
        yield f"Total time in the {work.runtimes} runtimes: {seconds}."


def _row(work: WorkResult, row: Row, bound: Row | None) -> tuple[str, ...]:
    if row.failure is not None:
        return (row.name, f"**failed**: {_describe_failure(work, row.failure)}", "", "", f"{row.failure.peak_mib:,.0f}")
    ratio = figures.cpu_ratio(row, bound)
    times = "-" if ratio is None else ratio.text()
    return (row.name, _cpu_s(row), times, _median(figures.wall_s(row)), _peak_mib(row))


def _describe_failure(work: WorkResult, failed: Measurement) -> str:
    done = f", {failed.lines:,} of {work.models:,} models done" if failed.lines else ""
    how = f"stopped at the limit of {failed.wall_s:.0f} s" if failed.exit is None else f"exit {failed.exit}"
    output = f": {_plain(failed.output)}" if failed.exit is not None and failed.output else ""
    return f"{how}{done}{output}"


def _plain(text: str) -> str:
    """Return the last line of a tool's output, formatted for a table cell."""
    last = text.strip().splitlines()[-1]
    return "`" + last[:120].replace("`", "'").replace("|", "/") + "`"


def _cpu_s(row: Row) -> str:
    return _median(figures.cpu_s(row))


def _peak_mib(row: Row) -> str:
    peak = figures.peak_mib(row)
    return "-" if peak is None else f"{peak:,.0f}"


def _median(span: Span | None) -> str:
    return "-" if span is None else f"{span.median:,.2f}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], alignment: str = "---:") -> str:
    head, *lines = (f"| {' | '.join(line)} |" for line in (columns, *rows))
    return "\n".join([head, f"|---|{'|'.join(alignment for _ in columns[1:])}|", *lines])


def _overview(result: Result) -> Iterator[str]:
    """Return the tables for the documentation: all commands on all corpora.

    If two corpora differ only in size, the smaller one is omitted.
    """
    smaller = {first for first, second, *_ in _GROWN if result.work(second) is not None}
    works = [work for work in result.corpora if work.name not in smaller]
    rows = [row.name for work in works for row in work.rows if row.name not in _UNDOCUMENTED]
    names = list(dict.fromkeys(rows))
    if works:
        yield f"CPU time in seconds:\n\n{_compare(works, names, _cpu_s)}"
        yield f"Peak memory in MiB:\n\n{_compare(works, [name for name in names if name not in _SMALL], _peak_mib)}"
    failed = [(work, row.name, row.failure) for work in works for row in work.rows if row.name in names and row.failure]
    if failed:
        yield "\n".join(f"- {name}, {work.title}: {_describe_failure(work, run)}" for work, name, run in failed)
    yield from _growth(result)
    yield from _commands(result)


def _compare(works: Sequence[WorkResult], names: Sequence[str], show: Callable[[Row], str]) -> str:
    def cell(row: Row | None) -> str:
        return "-" if row is None else "**failed**" if row.failure else show(row)

    rows = [(name, *(cell(work.row(name)) for work in works)) for name in names]
    return _table(("", *(work.title for work in works)), rows)


def _growth(result: Result) -> Iterator[str]:
    columns = {}
    for first, second, more, unit in _GROWN:
        small, large = result.work(first), result.work(second)
        if small is not None and large is not None:
            columns[unit] = figures.growth(small, large, more)
    if columns:
        names = dict.fromkeys(name for grown in columns.values() for name in grown if name not in _BOUNDS)
        rows = [(name, *(f"{ms[name]:.3f}" if name in ms else "-" for ms in columns.values())) for name in names]
        yield f"CPU time per additional model or node, in ms:\n\n{_table(('', *columns), rows)}"


def _commands(result: Result) -> Iterator[str]:
    for row in result.commands:
        output = row.failure.output if row.failure else row.runs[0].output
        failed = "" if row.failure is None else f" (failed, exit {row.failure.exit})"
        yield f"### `{row.name}`{failed}\n\n```text\n{output}\n```"
