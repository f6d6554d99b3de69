"""A support matrix as text, Markdown and JSON."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

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
    WorkingRange,
    describe_working_range,
    group_by_reason,
    render_reason,
)
from onnxgate.core.report_json import build_schema, encode_json
from onnxgate.core.text import LONG_LIMIT, SHORT_LIMIT, pluralize, truncate
from onnxgate.formats.terminal import Column, Terminal

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
    def label(self) -> str:
        """Return `1.8-1.15`."""
        return "-".join(self.ends)

    @property
    def major(self) -> str:
        """Return `1.`; "" if the ends do not share it."""
        majors = {end.partition(".")[0] for end in self.ends}
        return f"{majors.pop()}." if len(majors) == 1 else ""

    @property
    def short_label(self) -> str:
        """Return `8-15`, for below the `major`."""
        return "-".join(end.removeprefix(self.major) for end in self.ends)


def entry_mark(entry: Entry) -> str:
    """Return the mark of a cell: `+`, `x`, `?`, and one for a wrong or unverified prediction."""
    seen = entry.observed if entry.observed in ("crashed", "timed-out") else entry.state
    more = WRONG_MARK if entry.contradicted else UNVERIFIED_MARK if entry.observed == "unavailable" else ""
    return f"{STATE_MARKS[seen]}{more}"


def columns_by_minor(matrix: Matrix) -> list[ReleaseColumn]:
    """Return a column for each minor, or for each of its patches if they differ for some model."""
    return [column for span in _group_by_minor(matrix) for column in _collapse_minor(matrix, span)]


def columns_by_agreement(matrix: Matrix) -> list[ReleaseColumn]:
    """Return a column for each run of releases that agree for every model."""
    names = _runtime_names(matrix)
    spans = itertools.groupby(
        range(len(names)), lambda index: (_engine_of(names[index]), _marks_of_runtime(matrix, index))
    )
    minors = {index: span for span in _group_by_minor(matrix) for index in span}
    return [_agreement_column(names, list(span), minors) for _, span in spans]


def _runtime_names(matrix: Matrix) -> list[str]:
    return [entry.runtime for entry in matrix.models[0].runtimes] if matrix.models else []


def _marks_of_runtime(matrix: Matrix, index: int) -> tuple[str, ...]:
    return tuple(entry_mark(model.runtimes[index]) for model in matrix.models)


def _group_by_minor(matrix: Matrix) -> Iterator[list[int]]:
    names = _runtime_names(matrix)
    for _, span in itertools.groupby(
        range(len(names)), lambda index: (_engine_of(names[index]), _minor_of(names[index]))
    ):
        yield list(span)


def _collapse_minor(matrix: Matrix, span: Sequence[int]) -> Iterator[ReleaseColumn]:
    names = _runtime_names(matrix)
    if len({_marks_of_runtime(matrix, index) for index in span}) == 1:
        yield ReleaseColumn(_engine_of(names[span[0]]), (_minor_of(names[span[0]]),), span[-1])
    else:
        yield from (ReleaseColumn(_engine_of(names[index]), (_release_of(names[index]),), index) for index in span)


def _agreement_column(names: Sequence[str], span: Sequence[int], minors: dict[int, list[int]]) -> ReleaseColumn:
    """Return the column of a run; an end is named by its minor if the run contains all patches of it."""
    ends = [
        _minor_of(names[end]) if set(minors[end]) <= set(span) else _release_of(names[end])
        for end in (span[0], span[-1])
    ]
    return ReleaseColumn(_engine_of(names[span[0]]), tuple(dict.fromkeys(ends)), span[-1])


def _engine_of(runtime: str) -> str:
    return runtime.rpartition(" ")[0]


def _release_of(runtime: str) -> str:
    return runtime.rpartition(" ")[2]


def _minor_of(runtime: str) -> str:
    return ".".join(_release_of(runtime).split(".")[:2])


REPORT_REQUEST = "report it with the model, or with the nodes that it names: a prediction must never be wrong"
STATE_PHRASES = {"refused": "refused by", "unknown": "not known on"}


def describe_range(working: WorkingRange) -> str:
    """Return the sentence on where the model loads."""
    return truncate(working.sentence, LONG_LIMIT)


def describe_group(group: ReasonGroup, model: MatrixModel) -> str:
    """Return `refused by onnxruntime 1.16.0 to 1.17.3`."""
    every = [entry.runtime for entry in model.runtimes]
    return f"{STATE_PHRASES[group.state]} {name_runtimes(group.runtimes, every)}"


def describe_reason(group: ReasonGroup) -> str:
    """Return the reason of a group."""
    return truncate(group.because, LONG_LIMIT) or "no reason is known"


@dataclass(frozen=True, slots=True)
class WrongPrediction:
    """A prediction that a run contradicted."""

    path: str
    runtime: str
    problem: str


def list_wrong_predictions(matrix: Matrix) -> list[WrongPrediction]:
    """Return all predictions that a run contradicted."""
    return [
        WrongPrediction(model.path, entry.runtime, _describe_contradiction(entry))
        for model in matrix.models
        for entry in model.runtimes
        if entry.contradicted
    ]


def _describe_contradiction(entry: Entry) -> str:
    if entry.observed == "loads":
        because = f" ({truncate(render_reason(entry.reasons[0]))})" if entry.reasons else ""
        return f"predicted to be refused{because}, and it loads"
    was = "it was refused" if entry.observed == "refused" else "the runtime crashed"
    return f"predicted to load, and {was}: {truncate(entry.error)}"


def list_unverified(matrix: Matrix) -> dict[str, list[str]]:
    """Return reason -> runtimes that could not be verified, without duplicates."""
    unverified: dict[str, list[str]] = {}
    for entry in matrix.entries:
        if entry.observed in ("unavailable", "timed-out"):
            runtimes = unverified.setdefault(truncate(entry.error, SHORT_LIMIT), [])
            if entry.runtime not in runtimes:
                runtimes.append(entry.runtime)
    return unverified


def render_verdict(matrix: Matrix) -> str:
    """Return the last line, such as `pass: 2 models on 46 releases; predicted, nothing was run`."""
    releases = pluralize(len(matrix.models[0].runtimes) if matrix.models else 0, "release")
    parts = (
        f"{matrix.verdict}: {pluralize(len(matrix.models), 'model')} on {releases}",
        _count_unloadable(matrix),
        _describe_verification(matrix),
    )
    return "; ".join(part for part in parts if part)


def _count_unloadable(matrix: Matrix) -> str:
    """Count the models that do not load on the newest release."""
    refused = [model for model in matrix.models if model.outcome == "refused"]
    unknown = sum(model.outcome == "unknown" for model in matrix.models)
    suffix = " that is known" if any(model.on("unknown") for model in refused) else ""
    parts = [f"{len(refused)} {_load_verb(len(refused))} on none{suffix}"] if refused else []
    if unknown:
        parts.append(f"{unknown} {'is' if unknown == 1 else 'are'} not known to load on any")
    return ", ".join(parts)


def _load_verb(number: int) -> str:
    return "loads" if number == 1 else "load"


def _describe_verification(matrix: Matrix) -> str:
    verified = [entry for entry in matrix.entries if entry.observed]
    if not verified:
        return "predicted, nothing was run"
    completed = [entry for entry in verified if entry.observed not in ("unavailable", "timed-out")]
    false = sum(entry.contradicted for entry in verified)
    wrong = pluralize(false, "prediction") if false else "no prediction"
    sentence = f"{pluralize(len(completed), 'load')} tried, {wrong} wrong"
    missing = len(verified) - len(completed)
    return f"{sentence}, {missing} could not be verified" if missing else sentence


COLUMN_GUTTER = 1
VERBOSE_HINT = "`-v` says all reasons"
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
        lines += [*_render_text_table(matrix, paper), "", *_render_text_legend(matrix, paper), ""]
        for model in matrix.models:
            lines += _render_text_model(model, paper, verbose)
        lines += [*_render_text_unverified(matrix, paper), *_render_text_wrong(matrix, paper)]
    return "\n".join(neutralize_commands(line) for line in [*lines, *_render_verdict_lines(matrix, paper), ""])


def _render_verdict_lines(matrix: Matrix, paper: Terminal) -> Iterator[str]:
    first, *others = paper.wrapped(render_verdict(matrix), 0, own=True)
    yield paper.ink(matrix.verdict, matrix.verdict) + first.removeprefix(matrix.verdict)
    yield from others


def _render_text_table(matrix: Matrix, paper: Terminal) -> Iterator[str]:
    """Yield the table: a column for each minor if they fit, or else for each run that agrees, in blocks."""
    first = Column("", "", [escape_log_line(quote_name(truncate(model.path))) for model in matrix.models])
    columns = _text_columns(matrix, columns_by_minor(matrix))
    if paper.width and _table_width([first, *columns]) > paper.width:
        columns = _text_columns(matrix, columns_by_agreement(matrix))
    styles = {cell: MARK_STYLES[cell.strip()[0]] for column in columns for cell in column.cells}
    yield from paper.table([first, *columns], styles, gutter=COLUMN_GUTTER)


def _text_columns(matrix: Matrix, releases: Sequence[ReleaseColumn]) -> list[Column]:
    return [_text_column(matrix, release) for release in releases]


def _text_column(matrix: Matrix, releases: ReleaseColumn) -> Column:
    """Return a column whose cells are padded, so that their colour fills it."""
    label = escape_unprintable(releases.short_label)
    marks = [entry_mark(model.runtimes[releases.index]) for model in matrix.models]
    width = max(map(len, (label, *marks)))
    return Column(
        escape_unprintable(f"{releases.engine} {releases.major}"), label, [mark.center(width) for mark in marks]
    )


def _table_width(columns: Sequence[Column]) -> int:
    return sum(column.width + COLUMN_GUTTER for column in columns) - COLUMN_GUTTER


def _render_text_legend(matrix: Matrix, paper: Terminal) -> Iterator[str]:
    shown = {character for entry in matrix.entries for character in entry_mark(entry)}
    legend = ", ".join(f"{mark}: {meaning}" for mark, meaning in MARK_MEANINGS.items() if mark in shown)
    return paper.wrapped(legend, 0, style="quiet")


def _render_text_model(model: MatrixModel, paper: Terminal, verbose: bool) -> Iterator[str]:
    working = describe_working_range(model)
    yield paper.ink(quote_name(truncate(model.path)), "heading")
    yield from paper.wrapped(describe_range(working), 2)
    left_out = any(group.more for group in group_by_reason(model))
    for group in group_by_reason(model) if verbose and left_out else working.others:
        yield from paper.wrapped(describe_group(group, model), 2, style="quiet")
        for reason in group.reasons if verbose and group.more else [describe_reason(group)]:
            yield from paper.wrapped(truncate(reason, LONG_LIMIT), 4)
    yield from paper.wrapped(VERBOSE_HINT, 2, style="quiet") if left_out and not verbose else []
    yield ""


def _render_text_unverified(matrix: Matrix, paper: Terminal) -> Iterator[str]:
    missing = list_unverified(matrix)
    every = [entry.runtime for entry in matrix.models[0].runtimes]
    yield from [paper.ink("not verified", "heading")] if missing else []
    for reason, runtimes in missing.items():
        yield from paper.wrapped(reason, 2, f"{name_runtimes(runtimes, every)}: ")
    yield from [""] if missing else []


def _render_text_wrong(matrix: Matrix, paper: Terminal) -> Iterator[str]:
    predictions = list_wrong_predictions(matrix)
    yield from [paper.ink("predictions that were wrong", "error")] if predictions else []
    for wrong in predictions:
        yield from paper.wrapped(f"{truncate(wrong.path)} on {wrong.runtime}: {wrong.problem}", 2, f"{WRONG_MARK} ")
    yield from [*paper.wrapped(REPORT_REQUEST, 2), ""] if predictions else []


MAX_COLUMNS = 12
"""Columns from which on releases that agree for every model are merged."""
STATE_SIGNS = {"loads": "✅", "refused": "❌", "unknown": "❔", "crashed": "💥", "timed-out": "⏱️"}
MARK_SIGNS = {UNVERIFIED_MARK: "🔮", WRONG_MARK: "⚠️"}
SIGN_BY_MARK = {**{STATE_MARKS[state]: sign for state, sign in STATE_SIGNS.items()}, **MARK_SIGNS}


def format_markdown(matrix: Matrix) -> str:
    """Render the matrix without a heading."""
    lines = [f"**{escape_markdown(render_verdict(matrix))}**", ""]
    if matrix.models:
        lines += [*_render_markdown_wrong(matrix), *_render_markdown_table(matrix), ""]
        for model in matrix.models:
            lines += _render_markdown_model(model)
        lines += _render_markdown_unverified(matrix)
    return "\n".join(neutralize_commands(line) for line in lines) + "\n"


def _render_markdown_table(matrix: Matrix) -> Iterator[str]:
    columns = columns_by_minor(matrix)
    if len(columns) > MAX_COLUMNS:
        columns = columns_by_agreement(matrix)
    engines = list(dict.fromkeys(column.engine for column in columns))
    heads = [
        escape_markdown(column.label) if len(engines) == 1 else _render_markdown_head(column) for column in columns
    ]
    yield _render_markdown_row(escape_markdown(engines[0]) if len(engines) == 1 else "", heads)
    yield _render_markdown_row("---", [":-:"] * len(columns))
    for model in matrix.models:
        yield _render_markdown_row(
            markdown_code(truncate(model.path)), [_entry_sign(model.runtimes[column.index]) for column in columns]
        )
    shown = {character for entry in matrix.entries for character in entry_mark(entry)}
    yield ""
    yield " · ".join(f"{SIGN_BY_MARK[mark]} {meaning}" for mark, meaning in MARK_MEANINGS.items() if mark in shown)


def _render_markdown_row(first: str, cells: list[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


def _render_markdown_head(releases: ReleaseColumn) -> str:
    """On two lines, so that columns are narrow."""
    return "<br>".join(escape_markdown(part) for part in (releases.engine, releases.label) if part)


def _entry_sign(entry: Entry) -> str:
    return "".join(SIGN_BY_MARK[character] for character in entry_mark(entry))


def _render_markdown_wrong(matrix: Matrix) -> Iterator[str]:
    predictions = list_wrong_predictions(matrix)
    yield from ["### ⚠️ Predictions that were wrong", ""] if predictions else []
    for wrong in predictions:
        subject = f"{markdown_code(truncate(wrong.path))} on {escape_markdown(wrong.runtime)}"
        yield f"- {subject}: {escape_markdown(wrong.problem)}"
    yield from ["", f"{REPORT_REQUEST[0].upper()}{REPORT_REQUEST[1:]}.", ""] if predictions else []


def _render_markdown_unverified(matrix: Matrix) -> Iterator[str]:
    missing = list_unverified(matrix)
    every = [entry.runtime for entry in matrix.models[0].runtimes]
    yield from ["", "### Not verified", ""] if missing else []
    for reason, runtimes in missing.items():
        yield f"- {escape_markdown(name_runtimes(runtimes, every))}: {escape_markdown(reason)}"


def _render_markdown_model(model: MatrixModel) -> Iterator[str]:
    working = describe_working_range(model)
    yield f"- {markdown_code(truncate(model.path))} {escape_markdown(describe_range(working))}"
    for group in working.others:
        yield f"  - {escape_markdown(describe_group(group, model))}: {escape_markdown(describe_reason(group))}"


def format_json(matrix: Matrix) -> str:
    """Render indented JSON with a final newline."""
    return encode_json(matrix)


def parse_json(text: str | bytes) -> Matrix:
    """Return the matrix that `format_json` wrote."""
    return msgspec.json.decode(text, type=Matrix)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a matrix."""
    return build_schema(Matrix, "A matrix of onnxgate")
