"""Catalogue of known error texts: patterns that match them, and templates for their meaning, cause and fix.

To add an error text, add an entry to a tuple in a module of this package, and run `python tools/generate_reference.py`.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Callable, Mapping
from string import Formatter

import msgspec

CapturedGroups = Mapping[str, str]
"""Name of a group in a regular expression -> text that the group captured. Groups that captured nothing are missing."""
Template = str | tuple[str, ...] | Callable[[CapturedGroups], str]
"""Type of an explanatory text: a template, a tuple of alternative templates, or a function that returns the text.

In a template, `{op}` stands for the text that the group `op` captured. Of several templates, the first one whose
groups were all captured is used.
"""
_LITERAL = re.compile(r"[^\\.^$*+?{}\[\]|()]")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A known error: patterns that match its text, and its meaning, cause and fix.

    A space in a pattern also matches a line break, because logs wrap lines; `.` does not match line breaks.
    """

    name: str  # kebab-case, never reused
    patterns: str | tuple[str, ...]  # the entry matches if any pattern matches
    means: Template  # one clause without a period
    why: Template = ""
    fix: Template
    anywhere: Template = ""  # the fix without changes to the target; "": same as `fix`
    affected: Template = ""  # affected releases
    rules: tuple[str, ...] = ()  # rules of onnxgate that report the problem in advance
    family: str = ""  # groups failures in the runtime stage; "" if not about loading or running a model
    example: str = ""  # an error text, if the corpus does not contain one
    source: str = ""  # origin of the error text, if the corpus does not contain it
    general: bool = False  # matched after all specific entries
    self_explanatory: bool = False  # the error text states its meaning, so that the reference page omits `means`


def render_template(words: Template, captured: CapturedGroups) -> str:
    """Return the text of a template with captured groups filled in. A group that was not captured becomes `…`."""
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
    """Compile a regular expression. In the result, spaces outside character classes also match line breaks."""
    characters, inside = [], False
    for place, character in enumerate(pattern):
        escaped = place > 0 and pattern[place - 1] == "\\" and pattern[place - 2 : place - 1] != "\\"
        if character in "[]" and not escaped:
            inside = character == "["
        characters.append("[ \n]" if character == " " and not inside else character)
    return re.compile("".join(characters))


@functools.cache
def longest_literal(pattern: str) -> str:
    """Return the longest literal text that every match of a regular expression contains."""
    pieces, piece, depth, place = [], "", 0, 0
    while place < len(pattern):
        character, escape = pattern[place], pattern[place] == "\\"
        if escape:
            place += 1
            character = pattern[place]
        elif character == "[":
            place = pattern.index("]", place + 2)  # brackets and braces inside a class are literal
        literal = not character.isalnum() if escape else bool(_LITERAL.match(character))
        if literal and depth == 0:
            piece += character
        else:
            pieces.append(piece[:-1] if not escape and character in "*?{" else piece)
            piece = ""
            depth += 0 if escape else (character in "({") - (character in ")}")
        place += 1
    return max((*pieces, piece), key=len)
