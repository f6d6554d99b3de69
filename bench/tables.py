"""A result as Markdown: a table for each corpus, the growth, and the promised costs beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench import figures
from bench.contestants import HERE, SHA256SUM
from bench.figures import CorpusResult, Pair, Result, Row, Span

_GROWN = (("small-100", "small-1000", 900, "model"), ("nodes-2000", "nodes-20000", 18_000, "node"))
_COLUMNS = ("", "CPU s", "x bound", "wall s", "x bound", "peak MiB")
_HASH = "hashlib.sha256"
_LOAD = "onnx.load, in a loop"
_GATE = f"{HERE} check --static"


def markdown(result: Result) -> str:
    """The whole result."""
    parts = [_machine(result), *map(_corpus, result.corpora), *_growths(result), *_promises(result), *_others(result)]
    return "\n\n".join(parts) + "\n"


def _machine(result: Result) -> str:
    """What was measured on, and how to read the tables."""
    said = ", ".join(f"{name} {value}" for name, value in result.machine.items())
    return f"Measured with {said}. Median (least..most) of the repetitions; ratios are of one repetition each."


def _corpus(corpus: CorpusResult) -> str:
    bound = corpus.row(corpus.bound)
    rows = [_row(corpus, row, bound) for row in corpus.rows]
    size = f"{corpus.size_bytes / 1e6:,.1f} MB"
    return f"### {corpus.says[0].upper()}{corpus.says[1:]} ({size})\n\n{_table(_columns(corpus.bound), rows)}"


def _columns(bound: str) -> tuple[str, ...]:
    return tuple(f"x `{bound}`" if name == "x bound" else name for name in _COLUMNS)


def _row(corpus: CorpusResult, row: Row, bound: Row | None) -> tuple[str, ...]:
    failed = row.failure
    if failed is not None:
        done = f", {failed.lines:,} of {corpus.models:,} models done" if failed.lines else ""
        how = f"ended at the limit of {failed.wall_s:.0f} s" if failed.exit is None else f"exit {failed.exit}"
        said = f": {_plain(failed.said)}" if failed.exit is not None and failed.said else ""
        return (f"{row.name}", f"**failed**: {how}{done}{said}", "", "", "", f"{failed.peak_mib:,.0f}")
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
    """What a tool wrote, in one cell."""
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
    for first, second, more, what in _GROWN:
        small, large = result.corpus(first), result.corpus(second)
        if small is None or large is None:
            continue
        rows = [
            (
                each.name,
                f"{each.times:.2f}",
                f"{each.each_ms:.3f}",
                f"{each.peak_mib[0]:,.0f} to {each.peak_mib[1]:,.0f}",
            )
            for each in figures.growth(small, large, more)
        ]
        columns = ("", "CPU grows", f"CPU ms for one more {what}", "peak MiB")
        yield f"### From {small.says} to {large.says}\n\n{_table(columns, rows)}"


def _promises(result: Result) -> Iterator[str]:
    rows = [_pair(pair) for pair in result.pairs] + list(_huge(result))
    if rows:
        yield f"### What is promised\n\n{_table(('work', 'must be', 'measured'), rows)}"


def _pair(pair: Pair) -> tuple[str, str, str]:
    name = f"{pair.name} / `{pair.bound.name}`"
    cpu, wall = figures.cpu_ratio(pair.subject, pair.bound), figures.wall_ratio(pair.subject, pair.bound)
    if cpu is None or wall is None:
        return name, f"at most {pair.allowed:g}", "**failed**"
    times = f"CPU {_times(cpu)}, wall {_times(wall)}, {len(pair.subject.runs)} pairs"
    return name, f"at most {pair.allowed:g}", times


def _huge(result: Result) -> Iterator[tuple[str, str, str]]:
    huge = result.corpus("huge")
    if huge is None:
        return
    gate, peak = huge.row(_GATE), figures.peak_mib(huge.row(_GATE))
    yield "one file of 1.9 GB, peak", "under 200 MiB", "**failed**" if peak is None else f"{peak:,.0f} MiB"
    own, digest = figures.cpu_s(gate), figures.cpu_s(huge.row(_HASH))
    load = figures.cpu_s(huge.row(_LOAD))
    if own is not None and digest is not None and load is not None:
        rest = own.median - digest.median
        says = f"{load.median:.2f} s / {rest:.2f} s = {load.median / rest:.1f}" if rest > 0 else "hashing is all"
        yield "the same without hashing, CPU: `onnx.load` / onnxgate", "at least 10", says
        yield from _beyond_start(result, load.median, rest)
    speed = figures.cpu_ratio(huge.row(_HASH), huge.row(SHA256SUM))
    if speed is not None:
        yield "hashing it, CPU: `hashlib` / `sha256sum`", "at most 1", _times(speed)


def _beyond_start(result: Result, load_s: float, rest_s: float) -> Iterator[tuple[str, str, str]]:
    """Without what both take on any model: importing, and for onnxgate all that it does with a small one."""
    start = next((pair for pair in result.pairs if pair.name == f"{_GATE}, one small model"), None)
    own = figures.cpu_s(start.subject) if start else None
    imported = figures.cpu_s(start.bound) if start else None
    if own is None or imported is None:
        return
    load_s, rest_s = load_s - imported.median, rest_s - own.median
    says = f"{load_s:.2f} s / {rest_s:.2f} s = {load_s / rest_s:.1f}" if rest_s > 0 else "the start is all"
    yield "the same without what one small model takes", "", says


def _others(result: Result) -> Iterator[str]:
    for row in result.commands:
        said = row.failure.said if row.failure else row.runs[0].said
        how = "" if row.failure is None else f" (failed, exit {row.failure.exit})"
        yield f"### `{row.name}`{how}\n\n```text\n{said}\n```"
