"""A matrix as a person reads it in a terminal or a log: a heat map, and below it where each model loads, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.findings import name_runtimes
from onnxgate.formats import matrix_phrases as phrases
from onnxgate.formats.escape import log_line, named, neutral, visible
from onnxgate.formats.matrix_columns import MEANINGS, WRONG, Releases, by_minor, by_run, mark
from onnxgate.formats.paper import Column, Paper
from onnxgate.formats.phrases import LONG, short
from onnxgate.matrix import Matrix, MatrixModel, groups, working_range

GUTTER = 1
ALL_REASONS = "`-v` says all reasons"
HEAT = {"+": "loads", "x": "refused", "c": "refused", "?": "unknown", "t": "unknown"}


def format(matrix: Matrix, *, color: bool = False, width: int = 0, quiet: bool = False, verbose: bool = False) -> str:
    """The matrix. `width` is the terminal's, 0 where lines are left whole; `quiet` leaves the last line alone.

    With `verbose`, every reason is said, and not the first one alone.
    """
    paper = Paper(color, width)
    lines: list[str] = []
    if not quiet and matrix.models:
        lines += [*_table(matrix, paper), "", *_legend(matrix, paper), ""]
        for model in matrix.models:
            lines += _model(model, paper, verbose)
        lines += [*_unseen(matrix, paper), *_wrong(matrix, paper)]
    return "\n".join(neutral(line) for line in [*lines, *_verdict(matrix, paper), ""])


def _verdict(matrix: Matrix, paper: Paper) -> Iterator[str]:
    first, *others = paper.wrapped(phrases.verdict(matrix), 0, own=True)
    yield paper.ink(matrix.verdict, matrix.verdict) + first.removeprefix(matrix.verdict)
    yield from others


def _table(matrix: Matrix, paper: Paper) -> Iterator[str]:
    """The columns that fit: a minor each, else runs that agree, else blocks of these."""
    first = Column("", "", [log_line(named(short(model.path))) for model in matrix.models])
    columns = _columns(matrix, by_minor(matrix))
    if paper.width and _width([first, *columns]) > paper.width:
        columns = _columns(matrix, by_run(matrix))
    styles = {cell: HEAT[cell.strip()[0]] for column in columns for cell in column.cells}
    yield from paper.table([first, *columns], styles, gutter=GUTTER)


def _columns(matrix: Matrix, releases: Sequence[Releases]) -> list[Column]:
    return [_heat(matrix, each) for each in releases]


def _heat(matrix: Matrix, releases: Releases) -> Column:
    """Its cells are as wide as the column, so that their colour fills it."""
    label = visible(releases.short_label)
    marks = [mark(model.runtimes[releases.index]) for model in matrix.models]
    width = max(map(len, (label, *marks)))
    return Column(visible(f"{releases.engine} {releases.major}"), label, [each.center(width) for each in marks])


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width + GUTTER for column in columns) - GUTTER


def _legend(matrix: Matrix, paper: Paper) -> Iterator[str]:
    shown = {character for entry in matrix.entries for character in mark(entry)}
    legend = ", ".join(f"{each}: {meaning}" for each, meaning in MEANINGS.items() if each in shown)
    return paper.wrapped(legend, 0, style="quiet")


def _model(model: MatrixModel, paper: Paper, verbose: bool) -> Iterator[str]:
    found = working_range(model)
    yield paper.ink(named(short(model.path)), "heading")
    yield from paper.wrapped(phrases.sentence(found), 2)
    left_out = any(group.more for group in groups(model))
    for group in groups(model) if verbose and left_out else found.others:
        yield from paper.wrapped(phrases.where(group, model), 2, style="quiet")
        for reason in group.every if verbose and group.more else [phrases.because(group)]:
            yield from paper.wrapped(short(reason, LONG), 4)
    yield from paper.wrapped(ALL_REASONS, 2, style="quiet") if left_out and not verbose else []
    yield ""


def _unseen(matrix: Matrix, paper: Paper) -> Iterator[str]:
    missing = phrases.unseen(matrix)
    every = [entry.runtime for entry in matrix.models[0].runtimes]
    yield from [paper.ink("not verified", "heading")] if missing else []
    for reason, runtimes in missing.items():
        yield from paper.wrapped(reason, 2, f"{name_runtimes(runtimes, every)}: ")
    yield from [""] if missing else []


def _wrong(matrix: Matrix, paper: Paper) -> Iterator[str]:
    found = phrases.wrong(matrix)
    yield from [paper.ink("predictions that were wrong", "error")] if found else []
    for each in found:
        yield from paper.wrapped(f"{short(each.path)} on {each.runtime}: {each.said}", 2, f"{WRONG} ")
    yield from [*paper.wrapped(phrases.REPORT_IT, 2), ""] if found else []
