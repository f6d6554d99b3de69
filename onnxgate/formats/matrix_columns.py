"""The columns of a matrix: patches that agree for every model are one, and where it must be narrow neighbours too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnxgate.matrix import Entry, Matrix

MARKS = {"loads": "+", "refused": "x", "unknown": "?", "crashed": "c", "timed-out": "t"}
NOT_SEEN, WRONG = "~", "!"
MEANINGS = {
    "+": "loads",
    "x": "refused",
    "?": "not known",
    "c": "crashed",
    "t": "timed out",
    NOT_SEEN: "predicted, could not be verified here",
    WRONG: "the prediction was wrong",
}


@dataclass(frozen=True, slots=True)
class Releases:
    """Neighbouring releases that are alike in every row, and so are one column."""

    engine: str
    ends: tuple[str, ...]  # ("1.18",), ("1.16.1",), ("1.8", "1.15")
    index: int  # of one of them in every model's `runtimes`

    @property
    def label(self) -> str:
        """`1.8-1.15`."""
        return "-".join(self.ends)

    @property
    def major(self) -> str:
        """`1.`, "" where the ends do not share it."""
        majors = {end.partition(".")[0] for end in self.ends}
        return f"{majors.pop()}." if len(majors) == 1 else ""

    @property
    def short_label(self) -> str:
        """`8-15`, to stand below the `major`."""
        return "-".join(end.removeprefix(self.major) for end in self.ends)


def mark(entry: Entry) -> str:
    """What stands in a cell: `+`, `x`, `?`, and what is to be said of how that is known."""
    seen = entry.observed if entry.observed in ("crashed", "timed-out") else entry.state
    more = WRONG if entry.contradicted else NOT_SEEN if entry.observed == "unavailable" else ""
    return f"{MARKS[seen]}{more}"


def by_minor(matrix: Matrix) -> list[Releases]:
    """A column for each minor; one for each of its patches where some model tells them apart."""
    return [column for span in _minors(matrix) for column in _collapsed(matrix, span)]


def by_run(matrix: Matrix) -> list[Releases]:
    """A column for each run of releases that agree for every model."""
    names = _names(matrix)
    spans = itertools.groupby(range(len(names)), lambda index: (_engine(names[index]), _column(matrix, index)))
    minors = {index: span for span in _minors(matrix) for index in span}
    return [_run(names, list(span), minors) for _, span in spans]


def _names(matrix: Matrix) -> list[str]:
    return [entry.runtime for entry in matrix.models[0].runtimes] if matrix.models else []


def _column(matrix: Matrix, index: int) -> tuple[str, ...]:
    return tuple(mark(model.runtimes[index]) for model in matrix.models)


def _minors(matrix: Matrix) -> Iterator[list[int]]:
    names = _names(matrix)
    for _, span in itertools.groupby(range(len(names)), lambda index: (_engine(names[index]), _minor(names[index]))):
        yield list(span)


def _collapsed(matrix: Matrix, span: Sequence[int]) -> Iterator[Releases]:
    names = _names(matrix)
    if len({_column(matrix, index) for index in span}) == 1:
        yield Releases(_engine(names[span[0]]), (_minor(names[span[0]]),), span[-1])
    else:
        yield from (Releases(_engine(names[index]), (_release(names[index]),), index) for index in span)


def _run(names: Sequence[str], span: Sequence[int], minors: dict[int, list[int]]) -> Releases:
    """Its ends are named by their minors where all patches of these are in it."""
    ends = [
        _minor(names[end]) if set(minors[end]) <= set(span) else _release(names[end]) for end in (span[0], span[-1])
    ]
    return Releases(_engine(names[span[0]]), tuple(dict.fromkeys(ends)), span[-1])


def _engine(runtime: str) -> str:
    return runtime.rpartition(" ")[0]


def _release(runtime: str) -> str:
    return runtime.rpartition(" ")[2]


def _minor(runtime: str) -> str:
    return ".".join(_release(runtime).split(".")[:2])
