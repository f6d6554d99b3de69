"""A support matrix as text and Markdown."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from onnxgate.core.escape import (
    escape_log_line,
    escape_markdown,
    escape_unprintable,
    markdown_code,
    neutralize_commands,
    quote_name,
)
from onnxgate.core.findings import name_runtimes
from onnxgate.core.matrix import (
    Entry,
    Matrix,
    MatrixModel,
    ReasonGroup,
    describe_working_range,
    group_by_reason,
    render_reason,
)
from onnxgate.core.text import LONG_LIMIT, SHORT_LIMIT, pluralize, truncate
from onnxgate.formats.markdown import capitalize_first, render_row
from onnxgate.formats.text import Column, Terminal

STATE_MARKS = {"loads": "+", "refused": "x", "unknown": "?", "crashed": "c", "timed-out": "t"}
UNVERIFIED_MARK, WRONG_MARK = "~", "!"
MARK_MEANINGS = {
    "+": "loads",
    "x": "refused",
    "?": "not known",
    "c": "crashed",
    "t": "timed out",
    UNVERIFIED_MARK: "predicted, could not be verified here",
    WRONG_MARK: "the prediction was wrong",
}


@dataclass(frozen=True, slots=True)
class ReleaseColumn:
    """Neighbouring releases with equal marks for every model, merged to one column."""

    engine: str
    ends: tuple[str, ...]  # ("1.18",), ("1.16.1",), ("1.8", "1.15")
    index: int  # of one of them in every model's `runtimes`

    @property
    def major(self) -> str:
        """Return `1.`; "" if the ends do not share it."""
        majors = {end.partition(".")[0] for end in self.ends}
        return f"{majors.pop()}." if len(majors) == 1 else ""


def entry_mark(entry: Entry) -> str:
    """Return the mark of a cell: `+`, `x`, `?`, and one for a wrong or unverified prediction."""
    state = entry.observed if entry.observed in ("crashed", "timed-out") else entry.state
    more = WRONG_MARK if entry.contradicted else UNVERIFIED_MARK if entry.observed == "unavailable" else ""
    return f"{STATE_MARKS[state]}{more}"


def columns_by_minor(matrix: Matrix) -> list[ReleaseColumn]:
    """Return a column for each minor, or for each of its patches if they differ for some model."""
    columns: list[ReleaseColumn] = []
    for (engine, minor), span in _group_by_minor(matrix).items():
        if len({_marks_of_runtime(matrix, index) for index in span}) == 1:
            columns.append(ReleaseColumn(engine, (minor,), span[-1]))
        else:
            names = _runtime_names(matrix)
            columns += (ReleaseColumn(engine, (names[index].rpartition(" ")[2],), index) for index in span)
    return columns


def columns_by_agreement(matrix: Matrix) -> list[ReleaseColumn]:
    """Return a column for each run of releases that agree for every model.

    An end is named by its minor if the run contains all patches of it.
    """
    names = _runtime_names(matrix)
    minors = {index: (minor, span) for (_, minor), span in _group_by_minor(matrix).items() for index in span}
    columns = []
    for (engine, _), run in itertools.groupby(
        range(len(names)), lambda index: (names[index].rpartition(" ")[0], _marks_of_runtime(matrix, index))
    ):
        indexes = list(run)
        ends = []
        for index in (indexes[0], indexes[-1]):
            minor, span = minors[index]
            ends.append(minor if set(span) <= set(indexes) else names[index].rpartition(" ")[2])
        columns.append(ReleaseColumn(engine, tuple(dict.fromkeys(ends)), indexes[-1]))
    return columns


def _runtime_names(matrix: Matrix) -> list[str]:
    return [entry.runtime for entry in matrix.models[0].runtimes] if matrix.models else []


def _marks_of_runtime(matrix: Matrix, index: int) -> tuple[str, ...]:
    return tuple(entry_mark(model.runtimes[index]) for model in matrix.models)


def _group_by_minor(matrix: Matrix) -> dict[tuple[str, str], list[int]]:
    """Return (engine, minor) -> indexes of its runtimes, which stand together."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, name in enumerate(_runtime_names(matrix)):
        engine, _, release = name.rpartition(" ")
        groups.setdefault((engine, ".".join(release.split(".")[:2])), []).append(index)
    return groups


REPORT_REQUEST = "report it with the model, or with the nodes that it names: a prediction must never be wrong"
STATE_PHRASES = {"refused": "refused by", "unknown": "not known on"}


def describe_group(group: ReasonGroup, model: MatrixModel) -> str:
    """Return `refused by onnxruntime 1.16.0 to 1.17.3`."""
    runtimes = [entry.runtime for entry in model.runtimes]
    return f"{STATE_PHRASES[group.state]} {name_runtimes(group.runtimes, runtimes)}"


def describe_reason(group: ReasonGroup) -> str:
    """Return the reason of a group."""
    return truncate(group.because, LONG_LIMIT) or "no reason is known"


def list_wrong_predictions(matrix: Matrix) -> list[tuple[str, str, str]]:
    """Return path, runtime and problem of all predictions that a run contradicted."""
    wrong = []
    for path, entry in ((model.path, entry) for model in matrix.models for entry in model.runtimes):
        if not entry.contradicted:
            continue
        if entry.observed == "loads":
            because = f" ({truncate(render_reason(entry.reasons[0]))})" if entry.reasons else ""
            problem = f"predicted to be refused{because}, and it loads"
        else:
            was = "it was refused" if entry.observed == "refused" else "the runtime crashed"
            problem = f"predicted to load, and {was}: {truncate(entry.error)}"
        wrong.append((path, entry.runtime, problem))
    return wrong


def list_unverified(matrix: Matrix) -> dict[str, str]:
    """Return reason -> names of the runtimes that could not be verified for it."""
    unverified: dict[str, set[str]] = {}
    for entry in matrix.entries:
        if entry.observed in ("unavailable", "timed-out"):
            unverified.setdefault(truncate(entry.error, SHORT_LIMIT), set()).add(entry.runtime)
    return {reason: name_runtimes(runtimes, _runtime_names(matrix)) for reason, runtimes in unverified.items()}


def render_verdict(matrix: Matrix) -> str:
    """Return the last line, such as `pass: 2 models on 46 releases; predicted, nothing was run`."""
    releases = pluralize(len(_runtime_names(matrix)), "release")
    parts = (
        f"{matrix.verdict}: {pluralize(len(matrix.models), 'model')} on {releases}",
        _count_unloadable(matrix),
        _describe_verification(matrix),
    )
    return "; ".join(part for part in parts if part)


def _count_unloadable(matrix: Matrix) -> str:
    """Count the models that load on no release."""
    refused = [model for model in matrix.models if model.outcome == "refused"]
    unknown = sum(model.outcome == "unknown" for model in matrix.models)
    suffix = " that is known" if any(model.on("unknown") for model in refused) else ""
    parts = [f"{len(refused)} {'loads' if len(refused) == 1 else 'load'} on none{suffix}"] if refused else []
    if unknown:
        parts.append(f"{unknown} {'is' if unknown == 1 else 'are'} not known to load on any")
    return ", ".join(parts)


def _describe_verification(matrix: Matrix) -> str:
    verified = [entry for entry in matrix.entries if entry.observed]
    if not verified:
        return "predicted, nothing was run"
    missing = sum(entry.observed in ("unavailable", "timed-out") for entry in verified)
    false = sum(entry.contradicted for entry in verified)
    wrong = pluralize(false, "prediction") if false else "no prediction"
    sentence = f"{pluralize(len(verified) - missing, 'load')} tried, {wrong} wrong"
    return f"{sentence}, {missing} could not be verified" if missing else sentence


COLUMN_GUTTER = 1
MARK_STYLES = {"+": "loads", "x": "refused", "c": "refused", "?": "unknown", "t": "unknown"}


def format_text(
    matrix: Matrix, *, color: bool = False, width: int = 0, quiet: bool = False, verbose: bool = False
) -> str:
    """Render the matrix. `width` is the terminal's, 0 does not wrap lines; with `quiet`, only the last line.

    With `verbose`, all reasons are shown instead of the first one.
    """
    paper = Terminal(color, width)
    lines: list[str] = []
    if not quiet and matrix.models:
        legend = ", ".join(f"{mark}: {meaning}" for mark, meaning in _shown_marks(matrix))
        lines += [*_render_text_table(matrix, paper), "", *paper.wrapped(legend, 0, style="quiet"), ""]
        for model in matrix.models:
            lines += _render_text_model(model, paper, verbose)
        lines += _render_text_verification(matrix, paper)
    first, *others = paper.wrapped(render_verdict(matrix), 0, own=True)
    lines += [paper.ink(matrix.verdict, matrix.verdict) + first.removeprefix(matrix.verdict), *others, ""]
    return "\n".join(neutralize_commands(line) for line in lines)


def _shown_marks(matrix: Matrix) -> list[tuple[str, str]]:
    """Return the marks in the table with their meanings."""
    shown = {character for entry in matrix.entries for character in entry_mark(entry)}
    return [(mark, meaning) for mark, meaning in MARK_MEANINGS.items() if mark in shown]


def _render_text_table(matrix: Matrix, paper: Terminal) -> Iterator[str]:
    """Yield the table: a column for each minor if they fit, or else for each run that agrees, in blocks."""
    first = Column("", "", [escape_log_line(quote_name(truncate(model.path))) for model in matrix.models])
    columns = [first, *(_text_column(matrix, releases) for releases in columns_by_minor(matrix))]
    if paper.width and sum(column.width + COLUMN_GUTTER for column in columns) - COLUMN_GUTTER > paper.width:
        columns = [first, *(_text_column(matrix, releases) for releases in columns_by_agreement(matrix))]
    styles = {cell: MARK_STYLES[cell.strip()[0]] for column in columns[1:] for cell in column.cells}
    yield from paper.table(columns, styles, gutter=COLUMN_GUTTER)


def _text_column(matrix: Matrix, releases: ReleaseColumn) -> Column:
    """Return a column whose cells are padded, so that their colour fills it."""
    label = escape_unprintable("-".join(end.removeprefix(releases.major) for end in releases.ends))
    marks = [entry_mark(model.runtimes[releases.index]) for model in matrix.models]
    width = max(map(len, (label, *marks)))
    group = escape_unprintable(f"{releases.engine} {releases.major}")
    return Column(group, label, [mark.center(width) for mark in marks])


def _render_text_model(model: MatrixModel, paper: Terminal, verbose: bool) -> Iterator[str]:
    working = describe_working_range(model)
    yield paper.ink(quote_name(truncate(model.path)), "heading")
    yield from paper.wrapped(truncate(working.sentence, LONG_LIMIT), 2)
    left_out = any(group.more for group in group_by_reason(model))
    for group in group_by_reason(model) if verbose and left_out else working.others:
        yield from paper.wrapped(describe_group(group, model), 2, style="quiet")
        for reason in group.reasons if verbose and group.more else [describe_reason(group)]:
            yield from paper.wrapped(truncate(reason, LONG_LIMIT), 4)
    yield from paper.wrapped("`-v` says all reasons", 2, style="quiet") if left_out and not verbose else []
    yield ""


def _render_text_verification(matrix: Matrix, paper: Terminal) -> Iterator[str]:
    """Yield what could not be verified, and what was predicted wrongly."""
    unverified, wrong = list_unverified(matrix), list_wrong_predictions(matrix)
    yield from [paper.ink("not verified", "heading")] if unverified else []
    for reason, runtimes in unverified.items():
        yield from paper.wrapped(reason, 2, f"{runtimes}: ")
    yield from [""] if unverified else []
    yield from [paper.ink("predictions that were wrong", "error")] if wrong else []
    for path, runtime, problem in wrong:
        yield from paper.wrapped(f"{truncate(path)} on {runtime}: {problem}", 2, f"{WRONG_MARK} ")
    yield from [*paper.wrapped(REPORT_REQUEST, 2), ""] if wrong else []


MAX_COLUMNS = 12
"""Columns from which on releases that agree for every model are merged."""
STATE_SIGNS = {"loads": "✅", "refused": "❌", "unknown": "❔", "crashed": "💥", "timed-out": "⏱️"}
SIGN_BY_MARK = {STATE_MARKS[state]: sign for state, sign in STATE_SIGNS.items()}
SIGN_BY_MARK |= {UNVERIFIED_MARK: "🔮", WRONG_MARK: "⚠️"}


def format_markdown(matrix: Matrix) -> str:
    """Render the matrix without a heading."""
    lines = [f"**{escape_markdown(render_verdict(matrix))}**", ""]
    if matrix.models:
        wrong, unverified = list_wrong_predictions(matrix), list_unverified(matrix)
        lines += ["### ⚠️ Predictions that were wrong", ""] if wrong else []
        for path, runtime, problem in wrong:
            subject = f"{markdown_code(truncate(path))} on {escape_markdown(runtime)}"
            lines.append(f"- {subject}: {escape_markdown(problem)}")
        lines += ["", f"{capitalize_first(REPORT_REQUEST)}.", ""] if wrong else []
        lines += [*_render_markdown_table(matrix), ""]
        for model in matrix.models:
            working = describe_working_range(model)
            sentence = escape_markdown(truncate(working.sentence, LONG_LIMIT))
            lines.append(f"- {markdown_code(truncate(model.path))} {sentence}")
            lines += (
                f"  - {escape_markdown(describe_group(group, model))}: {escape_markdown(describe_reason(group))}"
                for group in working.others
            )
        lines += ["", "### Not verified", ""] if unverified else []
        lines += [
            f"- {escape_markdown(runtimes)}: {escape_markdown(reason)}" for reason, runtimes in unverified.items()
        ]
    return "\n".join(neutralize_commands(line) for line in lines) + "\n"


def _render_markdown_table(matrix: Matrix) -> Iterator[str]:
    """Yield the table and its legend; heads of several engines have two lines, so that columns are narrow."""
    columns = columns_by_minor(matrix)
    if len(columns) > MAX_COLUMNS:
        columns = columns_by_agreement(matrix)
    engines = {column.engine for column in columns}
    heads = []
    for column in columns:
        parts = [] if len(engines) == 1 else [column.engine]
        heads.append("<br>".join(escape_markdown(part) for part in (*parts, "-".join(column.ends)) if part))
    yield render_row(escape_markdown(columns[0].engine) if len(engines) == 1 else "", heads)
    yield render_row("---", [":-:"] * len(columns))
    for model in matrix.models:
        marks = (entry_mark(model.runtimes[column.index]) for column in columns)
        signs = ("".join(SIGN_BY_MARK[character] for character in mark) for mark in marks)
        yield render_row(markdown_code(truncate(model.path)), signs)
    yield ""
    yield " · ".join(f"{SIGN_BY_MARK[mark]} {meaning}" for mark, meaning in _shown_marks(matrix))
