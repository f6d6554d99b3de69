"""Create HTML and SVG elements in which inserted strings are escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable

from onnxgate.core.escape import escape_unprintable
from onnxgate.core.text import LONG_LIMIT, truncate
from onnxgate.formats.wording import rule_url

VOID_ELEMENTS = frozenset({"meta", "input"})
SVG_SHAPES = frozenset({"circle", "rect", "path"})
"""SVG elements without content. Unlike void HTML elements, they must be closed."""


class Markup(str):
    """A string of HTML, which is inserted without escaping."""

    __slots__ = ()


Child = str | Iterable[str] | None
AttributeValue = str | int | bool | None


def escape_html(text: str) -> Markup:
    """Escape text for use in an HTML element or a quoted attribute.

    Also escape `##[`, which a CI service would execute as a workflow command if the page is printed to its log.
    """
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(escape_unprintable(text)).replace("##[", "#&#35;["))


def tag(name: str, /, *children: Child, **attributes: AttributeValue) -> Markup:
    """Return an HTML element. Attributes whose value is None or False are omitted.

    In attribute names, a final `_` is removed, and any other `_` becomes `-`.
    """
    start = f"<{name}"
    for key, value in attributes.items():
        if value is not None and value is not False:
            attribute = key.rstrip("_").replace("_", "-")
            start += f" {attribute}" if value is True else f' {attribute}="{escape_html(str(value))}"'
    if name in SVG_SHAPES:
        return Markup(f"{start}/>")
    return Markup(f"{start}>" if name in VOID_ELEMENTS else f"{start}>{join_markup(children)}</{name}>")


def join_markup(children: Iterable[Child], between: str = "") -> Markup:
    """Join strings and HTML, which may be nested in iterables, to one string of HTML; strings are escaped."""
    return Markup(between.join(_flatten((children,) if isinstance(children, str) else children)))


def join_lines(*children: Child) -> Markup:
    """Join pieces of HTML with newlines, so that the HTML source is readable."""
    return join_markup(children, "\n")


def _flatten(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, str):
            yield escape_html(child)
        elif child is not None:
            yield from _flatten(child)


def render_prose(text: str) -> Markup:
    """Render a sentence as HTML; text in backticks becomes `<code>` elements."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an unpaired backtick
        return escape_html(text)
    return join_markup(render_code(part) if index % 2 else part for index, part in enumerate(parts))


def render_code(text: str) -> Markup:
    """Render a string as an HTML `<code>` element."""
    return tag("code", text)


def link_rule(rule: str) -> Markup:
    """Render the name of a rule as a link to its page."""
    url = rule_url(rule)
    return tag("a", render_code(rule), href=url) if url else render_code(rule)


def render_aside(word: str, text: str) -> Markup | None:
    """Render a label and a text as one line of HTML; None if the text is empty."""
    if not text:
        return None
    return tag("p", tag("strong", f"{word} "), render_prose(truncate(text, LONG_LIMIT)), class_="fix")


def render_scrolled(table: Markup, label: str) -> Markup:
    """Wrap a table in an HTML element that scrolls if the table is too wide for the page."""
    return tag("div", table, class_="scroll", tabindex=0, role="group", aria_label=label)


LEVEL_MARKS = {"error": "✕", "warning": "!", "note": "i"}
VERDICT_MARKS = {"pass": ("✓", "Pass"), "fail": ("✕", "Fail"), "undecided": ("?", "Undecided")}
