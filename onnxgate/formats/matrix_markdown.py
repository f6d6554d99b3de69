"""A matrix as Markdown, as GitHub renders it: a table, and below it where each model loads, and why."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.findings import name_runtimes
from onnxgate.formats import matrix_phrases as phrases
from onnxgate.formats.escape import code, neutral, prose
from onnxgate.formats.matrix_columns import MARKS, MEANINGS, NOT_SEEN, WRONG, Releases, by_minor, by_run, mark
from onnxgate.formats.phrases import short
from onnxgate.matrix import Entry, Matrix, MatrixModel, working_range

MANY = 12
"""With more columns than these, releases that agree for every model are one."""
SIGNS = {"loads": "✅", "refused": "❌", "unknown": "❔", "crashed": "💥", "timed-out": "⏱️"}
MORE = {NOT_SEEN: "🔮", WRONG: "⚠️"}
SIGN_OF = {**{MARKS[state]: sign for state, sign in SIGNS.items()}, **MORE}


def format(matrix: Matrix) -> str:
    """A heading is left to whoever has a page for it."""
    lines = [f"**{prose(phrases.verdict(matrix))}**", ""]
    if matrix.models:
        lines += [*_wrong(matrix), *_table(matrix), ""]
        for model in matrix.models:
            lines += _model(model)
        lines += _unseen(matrix)
    return "\n".join(neutral(line) for line in lines) + "\n"


def _table(matrix: Matrix) -> Iterator[str]:
    columns = by_minor(matrix)
    if len(columns) > MANY:
        columns = by_run(matrix)
    engines = list(dict.fromkeys(each.engine for each in columns))
    heads = [prose(each.label) if len(engines) == 1 else _head(each) for each in columns]
    yield _row(prose(engines[0]) if len(engines) == 1 else "", heads)
    yield _row("---", [":-:"] * len(columns))
    for model in matrix.models:
        yield _row(code(short(model.path)), [_sign(model.runtimes[each.index]) for each in columns])
    shown = {character for entry in matrix.entries for character in mark(entry)}
    yield ""
    yield " · ".join(f"{SIGN_OF[each]} {meaning}" for each, meaning in MEANINGS.items() if each in shown)


def _row(first: str, cells: list[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


def _head(releases: Releases) -> str:
    """On two lines, so that columns are narrow."""
    return "<br>".join(prose(part) for part in (releases.engine, releases.label) if part)


def _sign(entry: Entry) -> str:
    return "".join(SIGN_OF[character] for character in mark(entry))


def _wrong(matrix: Matrix) -> Iterator[str]:
    found = phrases.wrong(matrix)
    yield from ["### ⚠️ Predictions that were wrong", ""] if found else []
    for each in found:
        yield f"- {code(short(each.path))} on {prose(each.runtime)}: {prose(each.said)}"
    yield from ["", f"{phrases.REPORT_IT[0].upper()}{phrases.REPORT_IT[1:]}.", ""] if found else []


def _unseen(matrix: Matrix) -> Iterator[str]:
    missing = phrases.unseen(matrix)
    every = [entry.runtime for entry in matrix.models[0].runtimes]
    yield from ["", "### Not verified", ""] if missing else []
    for reason, runtimes in missing.items():
        yield f"- {prose(name_runtimes(runtimes, every))}: {prose(reason)}"


def _model(model: MatrixModel) -> Iterator[str]:
    found = working_range(model)
    yield f"- {code(short(model.path))} {prose(phrases.sentence(found))}"
    for group in found.others:
        yield f"  - {prose(phrases.where(group, model))}: {prose(phrases.because(group))}"
