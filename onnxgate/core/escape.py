r"""How strings that models hold are made harmless: one escape for each place where text is obeyed.

A model's name, node names, metadata and error texts are written by whoever wrote the model. GitHub's runner obeys
`::command::` after leading blanks and `##[command]` anywhere in a line, on stdout and on stderr (Source:
actions/runner, ActionCommand.cs); a terminal obeys ESC sequences; a reader is misled by characters that turn the
direction of text. What is obeyed is shown as an escape instead: `\x1b`, `\n`, `\u202e`.
"""

from __future__ import annotations

import re

_LEADING_COMMAND = re.compile(r"^(\s*):(?=:)")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\n]")


def escape_unprintable(text: str) -> str:
    """The text on one line, with each character that has no glyph of its own shown as an escape."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _unicode_escape(character) for character in text)


def _unicode_escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def neutralize_commands(line: str) -> str:
    """A line of our own making that holds no workflow command, wherever in it a foreign string came to stand."""
    return _LEADING_COMMAND.sub(r"\1\\x3a", line).replace("##[", r"#\x23[")


def quote_name(name: str) -> str:
    """A name with which a line begins: in back-ticks where it is no plain path, so that it can be no line of ours."""
    shown = escape_unprintable(name)
    plain = ("/" in shown or "." in shown) and not any(each in shown for each in " :`")
    return shown if plain or not shown else f"`{shown}`"


def escape_log_line(text: str) -> str:
    """One line for a terminal or a log."""
    return neutralize_commands(escape_unprintable(text))


def escape_command_data(text: str) -> str:
    """The message of a workflow command; foreign strings in it are `visible` already, so its newlines are ours."""
    lines = "\n".join(neutralize_commands(line) for line in text.split("\n"))
    return lines.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_command_property(text: str) -> str:
    """A property of a workflow command, such as `file` or `title`."""
    return escape_command_data(escape_unprintable(text)).strip().replace(":", "%3A").replace(",", "%2C")


def escape_json(text: str) -> str:
    r"""JSON in which no string holds a command or an unseen character as it is; both are spelled `\u0023`."""
    return _UNPRINTABLE.sub(_json_escape, text).replace("##[", r"#\u0023[")


def _json_escape(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def markdown_code(text: str) -> str:
    """A Markdown code span, also inside a table's cell, where a `|` would end the cell in spite of the back-ticks."""
    shown = escape_unprintable(text).replace("|", r"\x7c") or " "
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


_AUTOLINK = re.compile(r"[@#$]|:(?=\S)|www\.|\bgh-[0-9]|\b[0-9a-f]{40}\b", re.IGNORECASE)
_BLOCK_START = re.compile(r"^((?:\d+(?=[.)](?:\s|$)))?)([-+=.)])")
_MARKUP = re.compile(r"[\\`*_\[\]<>|~&]")


def escape_markdown(text: str) -> str:
    """Markdown text: back-ticked literals stay code spans; no other markup, mention, reference or link is left.

    At the start of a line it begins no list, heading or block of code either, and blank text is shown as such: a list's
    empty entry would underline the line above it, as a heading.
    """
    shown = escape_unprintable(text).lstrip()
    if not shown:
        return markdown_code(shown)
    parts = shown.split("`")
    if len(parts) % 2 == 0:  # an unpaired back-tick
        return _BLOCK_START.sub(r"\1\\\2", _escape_words(shown))
    written = "".join(markdown_code(part) if index % 2 else _escape_words(part) for index, part in enumerate(parts))
    return _BLOCK_START.sub(r"\1\\\2", written)


def _escape_words(text: str) -> str:
    return " ".join(
        markdown_code(word) if _AUTOLINK.search(word) else _MARKUP.sub(r"\\\g<0>", word) for word in text.split(" ")
    )


def escape_mermaid_label(text: str) -> str:
    """A quoted label of a Mermaid diagram, where all but letters, digits, blanks and `/` is spelled by its number.

    Mermaid reads directives, Markdown, icons and formulas in labels, and its own marks for what it has read already.
    """
    shown = " ".join(escape_unprintable(text).split())
    return "".join(each if each.isascii() and (each.isalnum() or each in " /") else f"#{ord(each)};" for each in shown)
