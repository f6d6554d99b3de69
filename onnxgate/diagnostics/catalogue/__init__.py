"""Known error texts by their producer: each is one entry with its patterns, and templates for meaning, cause and fix.

A new one is one entry in a tuple of these modules; docs follow by command.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Callable, Mapping
from string import Formatter

import msgspec

CapturedGroups = Mapping[str, str]
"""Named groups of a pattern -> text, without empty ones."""
Template = str | tuple[str, ...] | Callable[[CapturedGroups], str]
"""A template (`{op}`); several, of which the first that can be filled is used; or a function."""
_LITERAL = re.compile(r"[^\\.^$*+?{}\[\]|()]")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that is recognised by its text.

    A blank in a pattern also matches the end of a line, since logs wrap; `.` does not.
    """

    name: str  # kebab-case, never reused
    patterns: str | tuple[str, ...]  # a pattern, or several; each finds it
    means: Template  # one clause, without full stop
    why: Template = ""
    fix: Template
    anywhere: Template = ""  # the fix without what differs between releases; "": it is `fix`
    affected: Template = ""  # the releases concerned
    rules: tuple[str, ...] = ()  # of onnxgate, that report it before it happens
    family: str = ""  # used by the runtime stage; "": not about loading or running a model
    source: str = ""  # origin of the text, if the corpus does not contain it
    general: bool = False  # matched after all specific entries


def render_template(words: Template, captured: CapturedGroups) -> str:
    """Render a template with the names of one text; a missing name becomes `…`."""
    if callable(words):
        return words(captured)
    values = collections.defaultdict(lambda: "…", {name: text.replace("`", "'") for name, text in captured.items()})
    templates = (words,) if isinstance(words, str) else words
    for template in templates:
        if all(name in captured for _, name, _, _ in Formatter().parse(template) if name):
            return template.format_map(values)
    return templates[-1].format_map(values)


@functools.cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern whose blanks outside of character classes also match the end of a line."""
    characters, inside = [], False
    for place, character in enumerate(pattern):
        escaped = place > 0 and pattern[place - 1] == "\\" and pattern[place - 2 : place - 1] != "\\"
        if character in "[]" and not escaped:
            inside = character == "["
        characters.append("[ \n]" if character == " " and not inside else character)
    return re.compile("".join(characters))


@functools.cache
def longest_literal(pattern: str) -> str:
    """Return the longest literal of a pattern that each matching text contains."""
    pieces, piece, depth, place = [], "", 0, 0
    while place < len(pattern):
        character, escape = pattern[place], pattern[place] == "\\"
        if escape:
            place += 1
            character = pattern[place]
        elif character == "[":
            place = pattern.index("]", place + 2)  # brackets in a class open and close nothing
        literal = not character.isalnum() if escape else bool(_LITERAL.match(character))
        if literal and depth == 0:
            piece += character
        else:
            pieces.append(piece[:-1] if not escape and character in "*?{" else piece)
            piece = ""
            depth += 0 if escape else (character in "({") - (character in ")}")
        place += 1
    return max((*pieces, piece), key=len)
