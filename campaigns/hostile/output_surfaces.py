"""All output formats of onnxgate, each with its writer, its reader and its limits."""

from __future__ import annotations

import json as standard_json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from campaigns.hostile import consumers
from campaigns.hostile.documents import Pair
from onnxgate.core import escape, report_json
from onnxgate.core.matrix import Matrix
from onnxgate.core.report import Report
from onnxgate.core.report_json import encode_json
from onnxgate.formats import (
    github,
    gitlab,
    html,
    junit,
    markdown,
    model_diff,
    sarif,
    support_matrix,
    text,
    upgrade_preview,
)
from onnxgate.formats.markdown.mermaid import render_mermaid
from onnxgate.formats.markdown.pull_request_comment import format_comment
from onnxgate.model.diff.result import Difference
from onnxgate.project.config import ignore_entries
from onnxgate.project.lock.lock_file import parse_lock, render_lock
from onnxgate.project.toml import loads

Reading = Callable[[str], Counter[object]]
COMMENT_LIMIT, SUMMARY_LIMIT = 65_536, 1024 * 1024


@dataclass(frozen=True)
class Surface:
    """One format of one kind of document; `decode` parses formats that must keep all data."""

    name: str
    kind: str
    write: Callable[[Any], str]
    read: Reading
    decode: Callable[[str], Any] | None = None
    limit: int = 0  # characters that its consumer accepts
    tame: bool = False  # checked with tame documents only, because its lines begin with names written by onnxgate
    exact: tuple[str, ...] = ()  # counts that must equal those of the twin


def _terminal(write: Callable[..., str]) -> Callable[[Any], str]:
    return lambda document: write(document, color=True, width=60)


def _described(report: Any) -> str:
    """Render lines as `diff --textconv` prints them."""
    lines = (f"{finding.model} {finding.node} {finding.message}" for finding in report.findings)
    return "".join(f"{escape.escape_log_line(line)}\n" for line in lines)


def _drawings(report: Any) -> str:
    return "\n".join(render_mermaid(drawing) for drawing in report.drawings)


def _entries(document: Any) -> str:
    return "\n\n".join(ignore_entries.render_entry(entry) for entry in document.entries)


def _entries_read(text: str) -> Any:
    return [{"model": "**", **entry} for entry in loads(text)["ignore"]]


SURFACES = (
    Surface("text", "report", text.format, consumers.shown("report"), tame=True),
    Surface("text for a terminal", "report", _terminal(text.format), consumers.shown("report"), tame=True),
    Surface(
        "text with all figures",
        "report",
        lambda it: text.format(it, verbosity=2),
        consumers.shown("report"),
        tame=True,
    ),
    Surface("verdict", "report", text.render_verdict, consumers.shown("report")),
    Surface("json", "report", report_json.format, consumers.data, msgspec.json.Decoder(Report).decode),
    Surface("html", "report", html.format, consumers.markup),
    Surface("markdown", "report", markdown.format, consumers.page),
    Surface("summary", "report", markdown.format_summary, consumers.page, limit=SUMMARY_LIMIT),
    Surface("comment", "report", format_comment, consumers.page, limit=COMMENT_LIMIT),
    Surface("github", "report", github.format, consumers.annotated, exact=("command",)),
    Surface("sarif", "report", sarif.format, consumers.sarif),
    Surface("junit", "report", junit.format, consumers.junit),
    Surface("gitlab", "report", gitlab.format, consumers.gitlab),
    Surface("mermaid", "report", _drawings, consumers.diagram),
    Surface("description", "report", _described, consumers.logged),
    Surface("matrix text", "matrix", support_matrix.format_text, consumers.shown("matrix"), tame=True),
    Surface(
        "matrix for a terminal", "matrix", _terminal(support_matrix.format_text), consumers.shown("matrix"), tame=True
    ),
    Surface("matrix markdown", "matrix", support_matrix.format_markdown, consumers.page),
    Surface("matrix json", "matrix", encode_json, consumers.data, partial(msgspec.json.decode, type=Matrix)),
    Surface("diff text", "diff", model_diff.format_text, consumers.shown("diff"), tame=True),
    Surface("diff for a terminal", "diff", _terminal(model_diff.format_text), consumers.shown("diff"), tame=True),
    Surface("diff markdown", "diff", model_diff.format_markdown, consumers.page),
    Surface("diff json", "diff", encode_json, consumers.data, partial(msgspec.json.decode, type=Difference)),
    Surface("preview text", "preview", upgrade_preview.format, consumers.shown("preview"), tame=True),
    Surface(
        "preview for a terminal", "preview", _terminal(upgrade_preview.format), consumers.shown("preview"), tame=True
    ),
    Surface("lock", "lock", render_lock, lambda text: Counter(), lambda text: parse_lock(text, "onnxgate.lock")),
    Surface("ignores", "ignores", _entries, consumers.logged, _entries_read),
)
BY_KIND = {
    kind: [surface for surface in SURFACES if surface.kind == kind] for kind in dict.fromkeys(s.kind for s in SURFACES)
}


def complaints(surface: Surface, pair: Pair) -> Iterator[str]:
    """Yield the failures of a format: effects of a hostile document that its harmless twin does not have."""
    if surface.tame and not pair.tame:
        return
    try:
        yield from _judged(surface, pair)
    except Exception as error:  # noqa: BLE001 - any exception is a failure
        yield f"{type(error).__name__}: {error}"[:2000]


def _judged(surface: Surface, pair: Pair) -> Iterator[str]:
    written = surface.write(pair.hostile)
    got, wanted = surface.read(written), surface.read(surface.write(pair.twin))
    for what, count in got.items():
        if count > wanted[what] + SLACK.get(_kind(what), 0):
            yield f"{count} x {what!r}, but {wanted[what]} x in the twin"
    for kind in surface.exact:
        if _count(got, kind) != _count(wanted, kind):
            yield f"{_count(got, kind)} x `{kind}`, but {_count(wanted, kind)} x in the twin"
    if surface.limit and len(written) > surface.limit:
        yield f"{len(written)} characters, but the reader accepts at most {surface.limit}"
    if surface.decode is not None:
        yield from _lost(surface, surface.decode, pair.hostile, written)


SLACK: dict[object, int] = {("element", "p"): 40, ("element", "th"): 40, ("element", "td"): 60, ("element", "br"): 40}
"""Allowed surplus: paragraphs that count omitted parts, and cells for release names with a space."""


def _kind(what: object) -> object:
    return what[:2] if isinstance(what, tuple) else what


def _count(counts: Counter[object], kind: str) -> int:
    return sum(number for what, number in counts.items() if isinstance(what, tuple) and what[0] == kind)


def _lost(surface: Surface, decode: Callable[[str], Any], document: Any, written: str) -> Iterator[str]:
    decoded, expected = (msgspec.to_builtins(value) for value in (decode(written), document))
    match surface.kind:
        case "ignores":
            expected, decoded = _equal_entries(expected["entries"]), _equal_entries(decoded)
        case "lock":
            expected, decoded = _unordered(expected), _unordered(decoded)
        case _:
            expected = report_json._escape_surrogates(expected)
    if _plain(decoded) != _plain(expected):
        yield "the decoded document differs from the original"


def _plain(value: Any) -> str:
    return standard_json.dumps(value, default=str)


def _equal_entries(entries: Any) -> Any:
    return [{key: _plain(value) for key, value in sorted(entry.items()) if value is not None} for entry in entries]


def _unordered(lock: Any) -> Any:
    """Sort a lock, as its writer does."""
    if isinstance(lock, dict):
        return {key: _unordered(value) for key, value in sorted(lock.items())}
    return sorted(map(_unordered, lock), key=repr) if isinstance(lock, list | tuple) else lock
