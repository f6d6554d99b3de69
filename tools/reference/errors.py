"""The page of all error texts that are known, each as it was really said once."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

from onnxgate.core.escape import escape_markdown, markdown_code
from onnxgate.diagnostics.catalogue import Entry, Template, render_template
from onnxgate.diagnostics.classification import ENTRIES_BY_PRODUCER, Diagnosis, classify, normalize_text

TEXTS = Path(__file__).resolve().parents[2] / "fixtures" / "texts"
INTRODUCTION = """
# Error texts

The texts that `onnxgate explain --log FILE` knows, by who says them. A text is recognised by its words, whatever the
class of the exception or the line number. Examples are from `fixtures/texts`, where each failure was really provoked on
many releases; numbers in the answers are those of the example.
"""


def page() -> str:
    """The page."""
    return "\n".join([INTRODUCTION.strip(), "", *_sections()])


def _sections() -> Iterator[str]:
    for emitter, entries in ENTRIES_BY_PRODUCER.items():
        yield f"## {emitter}\n"
        for entry in entries:
            yield from _entry(entry)


def _entry(entry: Entry) -> Iterator[str]:
    yield f"### `{entry.name}`\n"
    example = _examples().get(entry.name)
    if example:
        where, text, known = example
        yield f"{where} says {markdown_code(_around(text, known))}.\n"
        means, why, fix, affected = known.means, known.why, known.fix, known.affected
    else:
        means, why, fix, affected = (render_template(words, {}) for words in _words(entry))
        yield f"Source: {escape_markdown(entry.source)}.\n"
    yield f"- Means: {escape_markdown(means)}."
    if why:
        yield f"- Why: {escape_markdown(why)}."
    yield f"- Fix: {escape_markdown(fix)}."
    if affected:
        yield f"- Affected: {escape_markdown(affected)}."
    if entry.rules:
        yield f"- Rules: {', '.join(f'[`{rule}`](../rules/{rule}.md)' for rule in entry.rules)}."
    yield ""


def _words(entry: Entry) -> tuple[Template, Template, Template, Template]:
    """What is said of any such text."""
    return entry.means, entry.why, entry.anywhere or entry.fix, entry.affected


def _around(text: str, known: Diagnosis) -> str:
    """The piece of the text that was recognised."""
    found = normalize_text(text)[known.start : known.end]
    return found if len(found) <= 240 else found[:239] + "…"


@functools.cache
def _examples() -> dict[str, tuple[str, str, Diagnosis]]:
    """The last release that says it in its own words."""
    found = {}
    for path in sorted(TEXTS.glob("*/*.json"), key=lambda path: (path.parent.name, path.stat().st_size, path.name)):
        content = json.loads(path.read_bytes())
        for each in content["texts"].values():
            known = classify(each["text"])
            if known is not None:
                found.setdefault(known.entry.name, (f"{content['emitter']} {content['release']}", each["text"], known))
    return found
