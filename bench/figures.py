"""Measured values, and calculations with them. A command that failed has no values."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.processes import Measurement


@dataclass(frozen=True, slots=True)
class Span:
    """Median, smallest and largest of several values."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Span:
        """Return the span of `values`, of which there must be at least one."""
        return cls(statistics.median(values), min(values), max(values))

    def text(self) -> str:
        """Return the median, with the range if the values differ."""
        median, least, most = (f"{value:,.2f}" for value in (self.median, self.least, self.most))
        return median if least == most else f"{median} ({least}–{most})"


@dataclass(frozen=True, slots=True)
class Row:
    """The runs of one command on a corpus or project, in order; only the last one can have failed."""

    name: str
    runs: tuple[Measurement, ...]

    @property
    def failure(self) -> Measurement | None:
        """The run that failed, if any."""
        return next((run for run in self.runs if run.failed), None)


@dataclass(frozen=True, slots=True)
class WorkResult:
    """Results of all commands on one corpus or project."""

    name: str
    title: str
    models: int
    size_bytes: int
    bound: str  # the contestant that ratios are relative to
    rows: tuple[Row, ...]
    runtimes: int = 0  # full checks: how many releases run
    own_work_s: Mapping[str, float] = field(default_factory=dict)  # import, session and run of all releases, in sum

    def row(self, name: str) -> Row | None:
        """Return the row of the command with this name."""
        return next((row for row in self.rows if row.name == name), None)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two commands measured in turn. `subject` may take at most `at_most` times as long as `bound`."""

    name: str
    subject: Row
    bound: Row
    at_most: float


@dataclass(frozen=True, slots=True)
class Result:
    """Results of one run of the benchmark."""

    machine: dict[str, str]
    corpora: tuple[WorkResult, ...] = ()  # static checks
    projects: tuple[WorkResult, ...] = ()  # full checks
    pairs: tuple[Pair, ...] = ()
    commands: tuple[Row, ...] = ()  # other benchmarks, each a process that prints its own figures
    skipped: dict[str, str] = field(default_factory=dict)  # full checks that could not be measured: reason

    def work(self, name: str) -> WorkResult | None:
        """Return the result of the corpus or project with this name."""
        return next((work for work in (*self.corpora, *self.projects) if work.name == name), None)


def cpu_s(row: Row | None) -> Span | None:
    """Return the CPU times of the repetitions; None if the command failed or did not run."""
    return None if row is None or row.failure or not row.runs else Span.of([run.cpu_s for run in row.runs])


def wall_s(row: Row | None) -> Span | None:
    """Return the elapsed times of the repetitions; None if the command failed or did not run."""
    return None if row is None or row.failure or not row.runs else Span.of([run.wall_s for run in row.runs])


def peak_mib(row: Row | None) -> float | None:
    """Return the highest memory peak of all repetitions; None if the command failed or did not run."""
    return None if row is None or row.failure or not row.runs else max(run.peak_mib for run in row.runs)


def cpu_ratio(row: Row | None, bound: Row | None) -> Span | None:
    """Return the ratio of the CPU times, computed for each repetition."""
    return _ratio(row, bound, "cpu_s")


def wall_ratio(row: Row | None, bound: Row | None) -> Span | None:
    """Return the ratio of the elapsed times, computed for each repetition."""
    return _ratio(row, bound, "wall_s")


def _ratio(row: Row | None, bound: Row | None, quantity: str) -> Span | None:
    if row is None or bound is None or row.failure or bound.failure or not row.runs or not bound.runs:
        return None
    pairs = zip(row.runs, bound.runs, strict=False)  # a slow peer has fewer repetitions
    return Span.of([getattr(one, quantity) / getattr(other, quantity) for one, other in pairs])


def growth(small: WorkResult, large: WorkResult, more: int) -> dict[str, float]:
    """Return the CPU time in ms per additional model or node; the larger corpus has `more` of them.

    Only commands that completed both corpora are included.
    """
    grown = {}
    for row in large.rows:
        before, after = cpu_s(small.row(row.name)), cpu_s(row)
        if before is not None and after is not None:
            grown[row.name] = (after.median - before.median) * 1000 / more
    return grown
