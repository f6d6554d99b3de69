"""HTML and SVG as values: what is not markup of ours is escaped where it is put in, and cannot be forgotten."""

from __future__ import annotations

import html
from collections.abc import Iterable

from onnxgate.formats.escape import visible

VOID = frozenset({"meta", "br", "input", "line", "circle", "rect", "path", "col"})
"""Elements without content; those of SVG are closed for it."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Iterable[str] | None
Value = str | int | float | bool | None


def escaped(text: str) -> Markup:
    """Foreign text in an element or in a quoted attribute; visible, and no command to a runner that logs the page."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(visible(text)).replace("##[", "#&#35;["))


def tag(name: str, /, *children: Child, **attributes: Value) -> Markup:
    """An element. `class_` is `class`, and `_` in other names is `-`; None and False are no attribute."""
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{given}/>" if name in ("line", "circle", "rect", "path") else f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(children)}</{name}>")


def joined(children: Iterable[Child], between: str = "") -> Markup:
    """Children one after the other; text is escaped, and iterables are gone through. One text is one child."""
    return Markup(between.join(_flat((children,) if isinstance(children, str) else children)))


def lines(*children: Child) -> Markup:
    """Each on its own line, so that a page can be read and compared."""
    return joined(children, "\n")


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, str):
            yield escaped(child)
        elif child is not None:
            yield from _flat(child)


def _attribute(key: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped(number(value))}"'


def number(value: Value) -> str:
    """A coordinate with one digit after the point, and none where it is 0; text as it is."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def prose(text: str) -> Markup:
    """Text of ours with foreign literals in back-ticks, which are set as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an unpaired back-tick
        return escaped(text)
    return joined(code(part) if index % 2 else part for index, part in enumerate(parts))


def code(text: str) -> Markup:
    """A literal."""
    return tag("code", text)
