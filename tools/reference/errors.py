"""Render the reference page of known error messages."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path

from onnxgate.core.escape import escape_markdown, markdown_code
from onnxgate.diagnostics.catalogue import Entry, render_template
from onnxgate.diagnostics.classification import ENTRIES_BY_PROGRAM, Diagnosis, classify, normalize_text

TEXTS = Path(__file__).resolve().parents[2] / "fixtures" / "texts"
MAX_TEXT_LENGTH = 72
MAX_NAME_LENGTH = 60
TOOLS = ("pip", "tract", "uv")
FIRST_PROGRAMS = ("ONNX Runtime: loading a model", "ONNX Runtime: running a model")
QUOTATION_MARKS = ("'", '"', "`")
GENERAL_RULES = ("export-failed", "invalid-model", "load-failed", "run-failed")
"""Rules to which the page does not link, because the pages of these rules add no information about an error."""
INTRODUCTION = """
# Error messages

[`onnxgate explain --log FILE`](../guides/logs.md) finds these errors in a log. Search this page for a part of your
error message, without exception classes and line numbers. The names and numbers in an entry are examples.
"""


def page() -> str:
    """Return the page as Markdown."""
    programs = list(dict.fromkeys((*FIRST_PROGRAMS, *ENTRIES_BY_PROGRAM)))
    return "\n".join([INTRODUCTION.strip(), "", *_render_sections(programs)])


def _render_sections(programs: list[str]) -> Iterator[str]:
    for program in programs:
        yield f"## {program}\n"
        for entry in ENTRIES_BY_PROGRAM[program]:
            yield from _render_entry(entry)


def _render_entry(entry: Entry) -> Iterator[str]:
    text, known = _find_examples().get(entry.name) or _diagnose_example(entry)
    yield f"### {entry.name}\n"
    yield f"{markdown_code(_quote_match(text, known))}\n"
    captured = {name: value for name, value in known.captured.items() if len(value) <= MAX_NAME_LENGTH}
    captured.pop("detail", None)  # the quote contains it
    meaning = "" if entry.self_explanatory else render_template(entry.means, captured).removesuffix(": …")
    if meaning or known.why:
        yield f"{' '.join(map(_sentence, filter(None, (meaning, known.why))))}\n"
    repeated = known.affected and known.affected.split()[-1] in known.fix.replace(";", " ").split()
    affected = f" Affected: {escape_markdown(known.affected)}." if known.affected and not repeated else ""
    rule = next((f" See [{rule}](../rules/{rule}.md)." for rule in entry.rules if rule not in GENERAL_RULES), "")
    yield f"Fix: {escape_markdown(known.fix)}.{affected}{rule}\n"


def _sentence(clause: str) -> str:
    """Return a clause as an escaped sentence that begins with a capital letter, except for the names of tools."""
    first = clause.partition(" ")[0]
    capitalized = clause[0].upper() + clause[1:] if first.rstrip(",").isalpha() and first not in TOOLS else clause
    return escape_markdown(capitalized.removesuffix(".")) + "."


def _quote_match(text: str, known: Diagnosis) -> str:
    """Return the part of the text that matches, with whole words and at most `MAX_TEXT_LENGTH` characters."""
    text = normalize_text(text)
    match, rest = " ".join(text[known.start : known.end].split()), text[known.end :]
    if rest[:1] in QUOTATION_MARKS and match.count(rest[:1]) % 2:
        match += rest[0]
    if len(match) <= MAX_TEXT_LENGTH:
        return match + ("…" if re.search(r"\w$", match) and re.match(r"[\w(]", rest) else "")
    start = match[:MAX_TEXT_LENGTH]
    return (start.rpartition(" ")[0] or start) + " …"


def _diagnose_example(entry: Entry) -> tuple[str, Diagnosis]:
    known = classify(entry.example)
    assert known is not None
    assert known.entry is entry
    return entry.example, known


@functools.cache
def _find_examples() -> dict[str, tuple[str, Diagnosis]]:
    """Return an example text and its diagnosis for each catalogue entry, by the name of the entry.

    The text comes from the smallest corpus file that contains a text for the entry.
    """
    examples: dict[str, tuple[str, Diagnosis]] = {}
    for path in sorted(TEXTS.glob("*/*.json"), key=lambda path: (path.parent.name, path.stat().st_size, path.name)):
        for case in json.loads(path.read_bytes())["texts"].values():
            known = classify(case["text"])
            if known is not None:
                examples.setdefault(known.entry.name, (case["text"], known))
    return examples
