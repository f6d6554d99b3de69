"""One known error text: how it is recognised, and what is said about it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Formatter

CapturedGroups = Mapping[str, str]
"""What the named groups of a pattern took from a text; one that took nothing is not there."""
Template = str | tuple[str, ...] | Callable[[CapturedGroups], str]
"""A template (`{op}`); several, of which the first is taken that can be filled; or what makes the words."""
_LITERAL = re.compile(r"[^\\.^$*+?{}\[\]|()]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A failure that is known by its text.

    A blank in a pattern also matches the end of a line, since logs wrap; `.` does not.
    """

    name: str  # kebab-case, never reused
    says: tuple[str, ...]  # patterns; each finds it
    means: Template  # one clause, without full stop
    why: Template = ""
    fix: Template
    anywhere: Template = ""  # the fix without what differs between releases; "": it is `fix`
    affected: Template = ""  # the releases concerned
    rules: tuple[str, ...] = ()  # where onnxgate says it before it happens
    family: str = ""  # what the runtime stage goes by; "": it has nothing to do with a model's load or run
    source: str = ""  # where it is from, if the corpus has no text of it
    general: bool = False  # says less than any other entry that matches too


class TemplateValues(dict[str, str]):
    """Captured text for a template: what is missing is `…`."""

    def __missing__(self, key: str) -> str:
        return "…"

    def fill(self, template: str) -> bool:
        """Whether all that the template asks for was captured."""
        return all(name in self for _, name, _, _ in Formatter().parse(template) if name)


def render_template(words: Template, captured: CapturedGroups) -> str:
    """The words about one text."""
    if callable(words):
        return words(captured)
    filled = TemplateValues({name: text.replace("`", "'") for name, text in captured.items()})
    templates = (words,) if isinstance(words, str) else words
    return next(
        (template.format_map(filled) for template in templates if filled.fill(template)),
        templates[-1].format_map(filled),
    )


@functools.cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern, with blanks outside of character classes that match the end of a line as well."""
    made, inside = [], False
    for place, character in enumerate(pattern):
        escaped = place > 0 and pattern[place - 1] == "\\" and pattern[place - 2 : place - 1] != "\\"
        if character in "[]" and not escaped:
            inside = character == "["
        made.append("[ \n]" if character == " " and not inside else character)
    return re.compile("".join(made))


@functools.cache
def longest_literal(pattern: str) -> str:
    """The longest piece of a pattern that every text it matches holds as it is written."""
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
