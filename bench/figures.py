"""What was measured, and the arithmetic on it: nothing that failed has a figure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.processes import Taken


@dataclass(frozen=True, slots=True)
class Span:
    """A median with its smallest and largest value."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Span:
        """The span of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant on one corpus: a run per repetition, in their order; none after one that failed."""

    name: str
    runs: tuple[Taken, ...]

    @property
    def failure(self) -> Taken | None:
        """The first run that did not do its work."""
        return next((run for run in self.runs if run.failed), None)


@dataclass(frozen=True, slots=True)
class CorpusResult:
    """All contestants on one corpus."""

    name: str
    says: str
    models: int
    size_bytes: int
    bound: str  # the contestant that ratios are relative to
    rows: tuple[Row, ...]

    def row(self, name: str) -> Row | None:
        """The row of that contestant."""
        return next((row for row in self.rows if row.name == name), None)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two commands in turn: `subject` must cost at most `allowed` times what `bound` costs."""

    name: str
    subject: Row
    bound: Row
    allowed: float


@dataclass(frozen=True, slots=True)
class Result:
    """One whole run of the benchmark."""

    machine: dict[str, str]
    corpora: tuple[CorpusResult, ...] = ()
    pairs: tuple[Pair, ...] = ()
    commands: tuple[Row, ...] = ()  # other benchmarks, each a process that prints its own figures

    def corpus(self, name: str) -> CorpusResult | None:
        """The result on that corpus."""
        return next((each for each in self.corpora if each.name == name), None)


def cpu_s(row: Row | None) -> Span | None:
    """Processor time over the repetitions; None where the contestant failed, or was not there."""
    return None if row is None or row.failure else Span.of([run.cpu_s for run in row.runs])


def wall_s(row: Row | None) -> Span | None:
    """Time that passed, over the repetitions; None as for `cpu_s`."""
    return None if row is None or row.failure else Span.of([run.wall_s for run in row.runs])


def peak_mib(row: Row | None) -> float | None:
    """The most memory of all repetitions; None as for `cpu_s`."""
    return None if row is None or row.failure else max(run.peak_mib for run in row.runs)


def cpu_ratio(row: Row | None, bound: Row | None) -> Span | None:
    """The processor time of one over that of the other, repetition by repetition."""
    return _ratio(row, bound, "cpu_s")


def wall_ratio(row: Row | None, bound: Row | None) -> Span | None:
    """The time of one over that of the other, repetition by repetition."""
    return _ratio(row, bound, "wall_s")


def _ratio(row: Row | None, bound: Row | None, what: str) -> Span | None:
    if row is None or bound is None or row.failure or bound.failure:
        return None
    pairs = zip(row.runs, bound.runs, strict=True)
    return Span.of([getattr(one, what) / getattr(other, what) for one, other in pairs])


@dataclass(frozen=True, slots=True)
class Growth:
    """How a contestant's cost grew from a small corpus to a larger one of the same kind."""

    name: str
    times: float  # the processor time on the larger one over that on the smaller one
    each_ms: float  # of processor time that each one more cost
    peak_mib: tuple[float, float]


def growth(small: CorpusResult, large: CorpusResult, more: int) -> tuple[Growth, ...]:
    """The growth of every contestant that did both; `more` models (or nodes) are in the larger corpus."""
    grown = []
    for row in large.rows:
        before, after = cpu_s(small.row(row.name)), cpu_s(row)
        peaks = peak_mib(small.row(row.name)), peak_mib(row)
        if before is None or after is None or peaks[0] is None or peaks[1] is None:
            continue
        each_ms = (after.median - before.median) * 1000 / more
        grown.append(Growth(row.name, after.median / before.median, each_ms, (peaks[0], peaks[1])))
    return tuple(grown)
