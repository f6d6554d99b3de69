r"""Functions that escape untrusted strings from models, one for each context in which text is interpreted.

A model's name, node names, metadata and error texts are written by the model's author. GitHub's runner executes
`::command::` after leading blanks and `##[command]` anywhere in a line, on stdout and on stderr (Source:
actions/runner, ActionCommand.cs); a terminal executes ESC sequences; characters that change the text direction mislead
readers. Such characters are shown as escapes: `\x1b`, `\n`, `\u202e`.
"""

from __future__ import annotations

import re

# Not compiled here: `re` compiles and caches patterns on first use, and most commands need few of them.
_LEADING_COMMAND = r"^(\s*):(?=:)"
_UNPRINTABLE = r"[^\x20-\x7e\n]"


def escape_unprintable(text: str) -> str:
    """Return the text on one line, with non-printable characters escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def neutralize_commands(line: str) -> str:
    """Return a line of output in which GitHub workflow commands, possibly from untrusted strings, are escaped."""
    return re.sub(_LEADING_COMMAND, r"\1\\x3a", line).replace("##[", r"#\x23[")


def quote_name(name: str) -> str:
    """Return a name to print at the start of a line.

    Unless it is a plain path, the name is put in backticks, so that it cannot imitate a message.
    """
    shown = escape_unprintable(name)
    plain = ("/" in shown or "." in shown) and not any(character in shown for character in " :`")
    return shown if plain or not shown else f"`{shown}`"


def escape_log_line(text: str) -> str:
    """Return the text as one line that is safe to print to a terminal or a log of GitHub Actions."""
    return neutralize_commands(escape_unprintable(text))


def escape_command_data(text: str) -> str:
    """Escape the message of a GitHub workflow command. Untrusted strings in it must already be escaped."""
    lines = "\n".join(neutralize_commands(line) for line in text.split("\n"))
    return lines.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_command_property(text: str) -> str:
    """Escape the value of a property of a GitHub workflow command, such as `file` or `title`."""
    return escape_command_data(escape_unprintable(text)).strip().replace(":", "%3A").replace(",", "%2C")


def escape_json(text: str) -> str:
    r"""Return JSON with GitHub workflow commands and invisible characters in its strings escaped, as in `\u0023`."""
    return re.sub(_UNPRINTABLE, _json_escape, text).replace("##[", r"#\u0023[")


def _json_escape(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def markdown_code(text: str) -> str:
    """Return the text as a Markdown code span.

    It is also valid in a table, where a `|` ends the cell even in backticks.
    """
    shown = escape_unprintable(text).replace("|", r"\x7c") or " "
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


_AUTOLINK = r"(?i)[@#$]|:(?=\S)|www\.|\bgh-[0-9]|\b[0-9a-f]{40}\b"
_BLOCK_START = r"^((?:\d+(?=[.)](?:\s|$)))?)([-+=.)])"
_MARKUP = r"[\\`*_\[\]<>|~&]"


def escape_markdown(text: str) -> str:
    """
    Return Markdown text: literals in backticks remain code spans; all other markup, mentions and links are escaped.

    The text cannot begin a list, a heading or a code block. Blank text becomes a code span, because an empty list item
    would turn the line above it into a heading.
    """
    shown = escape_unprintable(text).lstrip()
    if not shown:
        return markdown_code(shown)
    parts = shown.split("`")
    if len(parts) % 2 == 0:  # an unpaired backtick
        return re.sub(_BLOCK_START, r"\1\\\2", _escape_words(shown))
    written = "".join(markdown_code(part) if index % 2 else _escape_words(part) for index, part in enumerate(parts))
    return re.sub(_BLOCK_START, r"\1\\\2", written)


def _escape_words(text: str) -> str:
    return " ".join(
        markdown_code(word) if re.search(_AUTOLINK, word) else re.sub(_MARKUP, r"\\\g<0>", word)
        for word in text.split(" ")
    )


def escape_mermaid_label(text: str) -> str:
    """
    Return a quoted label for a Mermaid diagram; characters other than letters, digits, spaces and `/` become entities.

    Mermaid interprets directives, Markdown, icons and formulas in labels.
    """
    shown = " ".join(escape_unprintable(text).split())
    return "".join(char if char.isascii() and (char.isalnum() or char in " /") else f"#{ord(char)};" for char in shown)
