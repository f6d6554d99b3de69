"""A result as Markdown: the targets, a table for each corpus and project, and the growth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import figures
from bench.figures import Result, Row, Span, WorkResult
from bench.targets import Target, list_targets

_GROWN = (("small-100", "small-1000", 900, "model"), ("nodes-2000", "nodes-20000", 18_000, "node"))
_COLUMNS = ("", "CPU s", "x bound", "wall s", "x bound", "peak MiB")


def markdown(result: Result) -> str:
    """Return the whole result."""
    targets = [f"### Targets\n\n{table}" for table in _targets(result)]
    return _joined([_machine(result), *targets, *_static(result), *_full(result), *_skipped(result)])


def write_figures(result: Result, folder: Path) -> None:
    """Write the parts that the documentation includes, and leave those that were not measured as they are."""
    parts = {"targets": _targets(result), "static": _static(result), "full": [*_full(result), *_skipped(result)]}
    for name, part in parts.items():
        sections = list(part)
        if sections:
            (folder / f"{name}.md").write_text(_joined([_machine(result), *sections]), encoding="utf-8")


def _joined(sections: Sequence[str]) -> str:
    return "\n\n".join(sections) + "\n"


def _static(result: Result) -> Iterator[str]:
    yield from map(_work, result.corpora)
    yield from _growths(result)
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
        yield _table(("work", "target", "measured", "met"), rows)


def _target(target: Target) -> tuple[str, ...]:
    met = {True: "yes", False: "**no**", None: ""}[target.is_met]
    return target.work, target.at_most, target.measured or "**failed**", met


def _machine(result: Result) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in result.machine.items())
    return f"Measured with {machine}. Median (minimum..maximum) of the repetitions; ratios are within one repetition."


def _work(work: WorkResult) -> str:
    bound = work.row(work.bound)
    rows = [_row(work, row, bound) for row in work.rows]
    size = f"{work.size_bytes / 1e6:,.1f} MB"
    title = f"### {work.title[0].upper()}{work.title[1:]} ({size})"
    return "\n\n".join([title, *_own_work(work), _table(_columns(work.bound), rows)])


def _own_work(work: WorkResult) -> Iterator[str]:
    if work.own_work_s:
        seconds = ", ".join(f"{step} {seconds:.2f} s" for step, seconds in work.own_work_s.items())
        yield f"Total time in the {work.runtimes} runtimes: {seconds}."


def _columns(bound: str) -> tuple[str, ...]:
    return tuple(f"x `{bound}`" if name == "x bound" else name for name in _COLUMNS)


def _row(work: WorkResult, row: Row, bound: Row | None) -> tuple[str, ...]:
    failed = row.failure
    if failed is not None:
        done = f", {failed.lines:,} of {work.models:,} models done" if failed.lines else ""
        how = f"stopped at the limit of {failed.wall_s:.0f} s" if failed.exit is None else f"exit {failed.exit}"
        output = f": {_plain(failed.output)}" if failed.exit is not None and failed.output else ""
        return (f"{row.name}", f"**failed**: {how}{done}{output}", "", "", "", f"{failed.peak_mib:,.0f}")
    peak = figures.peak_mib(row)
    assert peak is not None
    return (
        row.name,
        _seconds(figures.cpu_s(row)),
        _times(figures.cpu_ratio(row, bound)),
        _seconds(figures.wall_s(row)),
        _times(figures.wall_ratio(row, bound)),
        f"{peak:,.0f}",
    )


def _plain(text: str) -> str:
    """Return the last line of a tool's output for one cell of a table."""
    last = text.strip().splitlines()[-1]
    return "`" + last[:120].replace("`", "'").replace("|", "/") + "`"


def _seconds(span: Span | None) -> str:
    return _span(span, "{:,.2f}")


def _times(span: Span | None) -> str:
    return _span(span, "{:,.2f}")


def _span(span: Span | None, form: str) -> str:
    if span is None:
        return "-"
    median, least, most = (form.format(value) for value in (span.median, span.least, span.most))
    return median if least == most else f"{median} ({least}..{most})"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---", *("---:" for _ in columns[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _growths(result: Result) -> Iterator[str]:
    for first, second, more, unit in _GROWN:
        small, large = result.work(first), result.work(second)
        if small is None or large is None:
            continue
        rows = [
            (
                grown.name,
                f"{grown.times:.2f}",
                f"{grown.one_more_ms:.3f}",
                f"{grown.peak_mib[0]:,.0f} to {grown.peak_mib[1]:,.0f}",
            )
            for grown in figures.growth(small, large, more)
        ]
        columns = ("", "CPU grows", f"CPU ms for one more {unit}", "peak MiB")
        yield f"### From {small.title} to {large.title}\n\n{_table(columns, rows)}"


def _commands(result: Result) -> Iterator[str]:
    for row in result.commands:
        output = row.failure.output if row.failure else row.runs[0].output
        failed = "" if row.failure is None else f" (failed, exit {row.failure.exit})"
        yield f"### `{row.name}`{failed}\n\n```text\n{output}\n```"
