"""The required costs, next to the measured ones. A figure that depends on the machine has a bound from the same run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench import figures
from bench.contestants import (
    ALONE,
    DOCTOR,
    FULL_UNCHANGED,
    FULL_WARM,
    HASH,
    HERE,
    IMPORT,
    LOAD,
    SHA256SUM,
    STATIC,
    TORCH,
    UNCHANGED,
)
from bench.figures import Pair, Result, Row, Span, WorkResult


@dataclass(frozen=True, slots=True)
class Target:
    """One line of the table."""

    work: str
    at_most: str  # the requirement in words
    measured: str  # empty: a contestant failed
    is_met: bool | None


def list_targets(result: Result) -> Iterator[Target]:
    """Return the targets of all works that were measured, for each checkout of onnxgate."""
    yield from map(_pair, result.pairs)
    for name in _checkouts(result):
        yield from _small_models(result, name)
        yield from _large_graph(result, name)
        yield from _ensemble(result, name)
        yield from _huge(result, name)
        yield from _quickstart(result, name)
        yield from _full_ensemble(result, name)
        yield from _real_models(result, name)


def _checkouts(result: Result) -> list[str]:
    """Return the names of the checkouts, this one first."""
    rows = [row.name for work in (*result.corpora, *result.projects) for row in work.rows]
    names = [
        name.removesuffix(f" {command}") for command in (STATIC, FULL_WARM) for name in rows if name.endswith(command)
    ]
    return list(dict.fromkeys([HERE, *names]))


def _pair(pair: Pair) -> Target:
    work, at_most = f"{pair.name} / `{pair.bound.name}`", f"wall at most {pair.at_most:g} x"
    cpu, wall = figures.cpu_ratio(pair.subject, pair.bound), figures.wall_ratio(pair.subject, pair.bound)
    if cpu is None or wall is None:
        return Target(work, at_most, "", None)
    measured = f"CPU {_span(cpu)} x, wall {_span(wall)} x, {len(pair.subject.runs)} pairs"
    return Target(work, at_most, measured, wall.median <= pair.at_most)


def _small_models(result: Result, name: str) -> Iterator[Target]:
    work = result.work("small-1000")
    if work is None:
        return
    cold, unchanged = work.row(f"{name} {STATIC}"), work.row(f"{name} {UNCHANGED}")
    ratio = figures.cpu_ratio(cold, work.row(DOCTOR))
    is_below = _within(figures.cpu_s(cold), 5.0) and (ratio is None or ratio.median < 1)
    at_most = "CPU at most 5 s, below onnx-doctor"
    yield _timed(work, cold, f"{name}: {work.title}, static, cold", at_most, is_below, (DOCTOR, IMPORT))
    at_most = "wall at most 0.4 s"
    is_quick = _within(figures.wall_s(unchanged), 0.4)
    yield _timed(work, unchanged, f"{name}: {work.title}, static, unchanged", at_most, is_quick, (IMPORT,))


def _large_graph(result: Result, name: str) -> Iterator[Target]:
    work = result.work("nodes-20000")
    if work is not None:
        row = work.row(f"{name} {STATIC}")
        is_met = _within(figures.cpu_s(row), 1.0)
        title = f"{name}: {work.title}, static"
        yield _timed(work, row, title, "CPU at most 1 s", is_met, (DOCTOR, IMPORT))


def _ensemble(result: Result, name: str) -> Iterator[Target]:
    work = result.work("ensemble")
    if work is None:
        return
    row, bound = work.row(f"{name} {STATIC}"), figures.cpu_s(work.row(SHA256SUM))
    title = f"{name}: {work.title}, static"
    own = figures.cpu_s(row)
    is_met = None if own is None or bound is None else own.median <= 2 * bound.median + 1
    at_most = f"CPU at most 2 x `{SHA256SUM}` + 1 s"
    if bound is not None:
        at_most += f" = {2 * bound.median + 1:.2f} s"
    yield _timed(work, row, title, at_most, is_met, (SHA256SUM,))
    yield _peak(row, title, 400)


def _huge(result: Result, name: str) -> Iterator[Target]:
    work = result.work("huge")
    if work is None:
        return
    row = work.row(f"{name} {STATIC}")
    title = f"{name}: {work.title}, static"
    yield _peak(row, title, 200)
    own, digest, load = (figures.cpu_s(each) for each in (row, work.row(HASH), work.row(LOAD)))
    if own is not None and digest is not None and load is not None:
        rest_s = own.median - digest.median
        times = load.median / rest_s if rest_s > 0 else None
        measured = f"{load.median:.2f} s / {rest_s:.2f} s"
        measured += "" if times is None else f" = {times:.1f}"
        is_met = times is None or times >= 10
        yield Target(f"{title}, without hashing: CPU of `onnx.load` / onnxgate", "at least 10 x", measured, is_met)
        yield from _beyond_start(result, name, title, load.median, rest_s)
    ratio = figures.cpu_ratio(work.row(HASH), work.row(SHA256SUM))
    if ratio is not None and name == HERE:
        title = f"{work.title}, hashing: CPU of `hashlib` / `{SHA256SUM}`"
        yield Target(title, "at most 1 x", f"{_span(ratio)} x", ratio.median <= 1)


def _beyond_start(result: Result, name: str, title: str, load_s: float, rest_s: float) -> Iterator[Target]:
    """Compare with loading after subtracting start-up: importing onnx, and the check of one small model."""
    start = next((pair for pair in result.pairs if pair.name == f"{name} {STATIC}, one small model"), None)
    own = figures.cpu_s(start.subject) if start else None
    imported = figures.cpu_s(start.bound) if start else None
    if own is None or imported is None:
        return
    load_s, rest_s = load_s - imported.median, rest_s - own.median
    measured = f"{load_s:.2f} s / {rest_s:.2f} s" + (f" = {load_s / rest_s:.1f}" if rest_s > 0 else "")
    yield Target(f"{title}, without hashing and start-up: CPU of `onnx.load` / onnxgate", "", measured, None)


def _quickstart(result: Result, name: str) -> Iterator[Target]:
    work = result.work("quickstart")
    if work is not None:
        row = work.row(f"{name} {FULL_WARM}")
        is_met = _within(figures.wall_s(row), 6.0)
        yield _timed(work, row, f"{name}: quickstart, full, warm", "wall at most 6 s", is_met, (ALONE, TORCH))
    work = result.work("no-sources")
    if work is not None:
        title, at_most = (
            f"{name}: quickstart without sources, warm",
            "wall at most 0.5 s per runtime beyond its own work",
        )
        wall = figures.wall_s(work.row(f"{name} {FULL_WARM}"))
        if wall is None:
            yield Target(title, at_most, "", None)
            return
        spread_s = sum(work.own_work_s.values()) / int(result.machine["cores"])
        beyond_s = (wall.median - spread_s) / work.runtimes
        measured = f"({wall.median:.2f} s - {spread_s:.2f} s) / {work.runtimes} = {beyond_s:.2f} s"
        yield Target(title, at_most, measured, beyond_s <= 0.5)


def _full_ensemble(result: Result, name: str) -> Iterator[Target]:
    work = result.work("ensemble-full")
    if work is None:
        return
    row, alone = work.row(f"{name} {FULL_WARM}"), work.row(ALONE)
    title = f"{name}: {work.title}"
    ratio = figures.cpu_ratio(row, alone)
    is_met = None if ratio is None else ratio.median <= 1.2
    yield _timed(work, row, title, "CPU at most 1.2 x the runtimes alone", is_met, (ALONE,))
    own, bound = figures.peak_mib(row), figures.peak_mib(alone)
    at_most = "peak at most 1.2 x the runtimes alone"
    if own is None or bound is None:
        yield Target(title, at_most, "", None)
    else:
        yield Target(title, at_most, f"{own:,.0f} / {bound:,.0f} MiB = {own / bound:.2f} x", own <= 1.2 * bound)


def _real_models(result: Result, name: str) -> Iterator[Target]:
    work = result.work("models")
    if work is not None:
        row = work.row(f"{name} {FULL_UNCHANGED}")
        title = f"{name}: {work.title}, unchanged"
        yield _timed(work, row, title, "wall at most 2 s", _within(figures.wall_s(row), 2.0), (ALONE,))
        yield _peak(row, title, 300)


def _timed(
    work: WorkResult, row: Row | None, title: str, at_most: str, is_met: bool | None, bounds: tuple[str, ...]
) -> Target:
    """Return a target in time with the ratios to each bound that was measured."""
    cpu, wall = figures.cpu_s(row), figures.wall_s(row)
    if cpu is None or wall is None:
        return Target(title, at_most, "", None)
    parts = [f"CPU {_span(cpu)} s, wall {_span(wall)} s"]
    for bound in bounds:
        cpu_ratio, wall_ratio = (ratio(row, work.row(bound)) for ratio in (figures.cpu_ratio, figures.wall_ratio))
        if cpu_ratio is not None and wall_ratio is not None:
            parts.append(f"{bound}: CPU {cpu_ratio.median:.2f} x, wall {wall_ratio.median:.2f} x")
    return Target(title, at_most, "; ".join(parts), is_met)


def _peak(row: Row | None, title: str, at_most_mib: int) -> Target:
    peak, at_most = figures.peak_mib(row), f"peak at most {at_most_mib} MiB"
    if peak is None:
        return Target(title, at_most, "", None)
    return Target(title, at_most, f"{peak:,.0f} MiB", peak <= at_most_mib)


def _within(span: Span | None, seconds: float) -> bool | None:
    return None if span is None else span.median <= seconds


def _span(span: Span) -> str:
    values = [f"{value:,.2f}" for value in (span.median, span.least, span.most)]
    return values[0] if values[1] == values[2] else f"{values[0]} ({values[1]}..{values[2]})"
