"""The report as a document in Markdown, for files, wikis and comments elsewhere: all of it, with no HTML in it."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.formats import markdown_parts as parts
from onnxgate.formats import phrases
from onnxgate.formats.escape import code, prose
from onnxgate.report import Measured, Report

PAGE = parts.Page(html=False)


def format(report: Report) -> str:
    """Whole: nothing is left out or folded."""
    return parts.written(
        [
            [f"# {parts.VERDICTS[report.verdict]} onnxgate", "", f"**{prose(phrases.verdict(report))}**", ""],
            parts.remarks(report, PAGE),
            parts.changes(report, PAGE),
            _matrix(report),
            parts.findings(report, PAGE),
            parts.drawings(report, PAGE),
            parts.not_done(report, PAGE),
            _measured(report),
            parts.replays(report, PAGE),
        ]
    )


def _matrix(report: Report) -> Iterator[str]:
    if report.cells:
        yield "\n### Models and runtimes\n"
        yield from parts.table(report, PAGE)


def _measured(report: Report) -> Iterator[str]:
    """Every figure with the inputs on which it was measured."""
    said = [parts.capital(sentence) for sentence in phrases.compared(report)]
    if said or report.measured:
        yield "\n### Measured\n"
        yield from (f"{sentence}.\n" for sentence in said)
        yield from (_figure(figure) for figure in report.measured)


def _figure(figure: Measured) -> str:
    case = f", case {code(phrases.short(figure.case))}" if figure.case else ""
    return f"- {prose(phrases.figure(figure))}{case}"
