"""Compare measured values with their targets. Values that depend on the machine are compared with a bound from the same
run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench import figures
from bench.contestants import (
    ALONE,
    DOCTOR,
    FULL_UNCHANGED,
    FULL_WARM,
    HASH,
    HERE,
    LOAD,
    SHA256SUM,
    STATIC,
    UNCHANGED,
)
from bench.figures import Pair, Result, Row, Span


@dataclass(frozen=True, slots=True)
class Target:
    """One row of the table of targets."""

    work: str
    at_most: str  # the requirement in words
    measured: str  # empty: a contestant failed
    is_met: bool | None


def list_targets(result: Result) -> Iterator[Target]:
    """Yield the targets of all corpora and projects that were measured, for each checkout of onnxgate."""
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
    work, at_most = f"{pair.name} / `{pair.bound.name}`", f"wall time at most {pair.at_most:g} x"
    wall = figures.wall_ratio(pair.subject, pair.bound)
    if wall is None:
        return Target(work, at_most, "", None)
    return Target(work, at_most, f"{wall.text()} x", wall.median <= pair.at_most)


def _small_models(result: Result, name: str) -> Iterator[Target]:
    work = result.work("small-1000")
    if work is None:
        return
    cold, unchanged = work.row(f"{name} {STATIC}"), work.row(f"{name} {UNCHANGED}")
    cpu, ratio = figures.cpu_s(cold), figures.cpu_ratio(cold, work.row(DOCTOR))
    is_below = _within(cpu, 5.0) and (ratio is None or ratio.median < 1)
    title = _title(name, f"{work.title}, static")
    target = _timed(title, "CPU time at most 5 s, and less than onnx-doctor", cpu, is_below)
    compared = "" if ratio is None else f", {ratio.median:.2f} x onnx-doctor"
    yield replace(target, measured=target.measured + compared)
    wall = figures.wall_s(unchanged)
    yield _timed(f"{title}, unchanged", "wall time at most 0.4 s", wall, _within(wall, 0.4))


def _large_graph(result: Result, name: str) -> Iterator[Target]:
    work = result.work("nodes-20000")
    if work is not None:
        cpu = figures.cpu_s(work.row(f"{name} {STATIC}"))
        yield _timed(_title(name, f"{work.title}, static"), "CPU time at most 1 s", cpu, _within(cpu, 1.0))


def _ensemble(result: Result, name: str) -> Iterator[Target]:
    work = result.work("ensemble")
    if work is None:
        return
    row, bound = work.row(f"{name} {STATIC}"), figures.cpu_s(work.row(SHA256SUM))
    title = _title(name, f"{work.title}, static")
    own = figures.cpu_s(row)
    is_met = None if own is None or bound is None else own.median <= 2 * bound.median + 1
    at_most = f"CPU time at most 2 x `{SHA256SUM}` + 1 s"
    if bound is not None:
        at_most += f" = {2 * bound.median + 1:.2f} s"
    yield _timed(title, at_most, own, is_met)
    yield _peak(row, title, 400)


def _huge(result: Result, name: str) -> Iterator[Target]:
    work = result.work("huge")
    if work is None:
        return
    row = work.row(f"{name} {STATIC}")
    title = _title(name, f"{work.title}, static")
    yield _peak(row, title, 200)
    own, digest, load = (figures.cpu_s(each) for each in (row, work.row(HASH), work.row(LOAD)))
    if own is not None and digest is not None and load is not None:
        rest_s = own.median - digest.median
        times = load.median / rest_s if rest_s > 0 else None
        measured = f"{load.median:.2f} s / {rest_s:.2f} s"
        measured += "" if times is None else f" = {times:.1f} x"
        is_met = times is None or times >= 10
        yield Target(f"{title}: CPU time of `onnx.load` / onnxgate without hashing", "at least 10 x", measured, is_met)
    ratio = figures.cpu_ratio(work.row(HASH), work.row(SHA256SUM))
    if ratio is not None and name == HERE:
        title = f"{work.title}, hashing: CPU time of `hashlib` / `{SHA256SUM}`"
        yield Target(title, "at most 1 x", f"{ratio.text()} x", ratio.median <= 1)


def _quickstart(result: Result, name: str) -> Iterator[Target]:
    work = result.work("quickstart")
    if work is not None:
        wall = figures.wall_s(work.row(f"{name} {FULL_WARM}"))
        yield _timed(
            _title(name, f"{work.title}, environments cached"), "wall time at most 6 s", wall, _within(wall, 6.0)
        )
    work = result.work("no-sources")
    if work is not None:
        title = _title(name, f"{work.title}, environments cached")
        at_most = "wall time at most 0.5 s per runtime, without the work of the runtimes themselves"
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
    title = _title(name, work.title)
    ratio, at_most = figures.cpu_ratio(row, alone), "CPU time at most 1.2 x the runtimes alone"
    if ratio is None:
        yield Target(title, at_most, "", None)
    else:
        yield Target(title, at_most, f"{ratio.text()} x", ratio.median <= 1.2)
    own, bound = figures.peak_mib(row), figures.peak_mib(alone)
    at_most = "peak memory at most 1.2 x the runtimes alone"
    if own is None or bound is None:
        yield Target(title, at_most, "", None)
    else:
        yield Target(title, at_most, f"{own:,.0f} / {bound:,.0f} MiB = {own / bound:.2f} x", own <= 1.2 * bound)


def _real_models(result: Result, name: str) -> Iterator[Target]:
    work = result.work("models")
    if work is not None:
        row = work.row(f"{name} {FULL_UNCHANGED}")
        title, wall = _title(name, f"{work.title}, unchanged"), figures.wall_s(row)
        yield _timed(title, "wall time at most 2 s", wall, _within(wall, 2.0))
        yield _peak(row, title, 300)


def _title(checkout: str, work: str) -> str:
    return work if checkout == HERE else f"{checkout}: {work}"


def _timed(title: str, at_most: str, time_s: Span | None, is_met: bool | None) -> Target:
    if time_s is None:
        return Target(title, at_most, "", None)
    return Target(title, at_most, f"{time_s.text()} s", is_met)


def _peak(row: Row | None, title: str, at_most_mib: int) -> Target:
    peak, at_most = figures.peak_mib(row), f"peak memory at most {at_most_mib} MiB"
    if peak is None:
        return Target(title, at_most, "", None)
    return Target(title, at_most, f"{peak:,.0f} MiB", peak <= at_most_mib)


def _within(span: Span | None, seconds: float) -> bool | None:
    return None if span is None else span.median <= seconds
