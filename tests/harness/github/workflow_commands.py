"""How GitHub's runner parses a log: a port of its parser, used to verify that untrusted text contains no commands.
Source: actions/runner, ActionCommand.cs, ActionCommandManager.cs, ExecutionContext.cs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

LEVELS = ("error", "warning", "notice")
_LOG = ("debug", "echo", "endgroup", "error", "group", "notice", "stop-commands", "warning")
_STATE = ("add-mask", "add-path", "internal-set-repo-path", "save-state", "set-env", "set-output")
REGISTERED = frozenset((*_LOG, *_STATE, "add-matcher", "remove-matcher"))
ANNOTATIONS_PER_LEVEL = 10
MESSAGE_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Command:
    """One command to the runner; `properties` are unescaped."""

    name: str
    data: str
    properties: dict[str, str] = field(default_factory=dict)


def lines(log: str) -> list[str]:
    """Split the log into lines as .NET's `ReadLine` does."""
    return re.split(r"\r\n|\r|\n", log)


def parse(line: str) -> Command | None:
    """Return the command in this line, or None if the runner treats it as text."""
    return _parse_v2(line) or _parse_v1(line)


def _parse_v2(line: str) -> Command | None:
    text = line.lstrip()
    end = text.find("::", 2)
    if not text.startswith("::") or end < 0:
        return None
    name, _, properties = text[2:end].partition(" ")
    if name.lower() not in REGISTERED:
        return None
    return Command(name.lower(), _unescape(text[end + 2 :], _DATA), _properties(properties.strip(), ",", _PROPERTY))


def _parse_v1(line: str) -> Command | None:
    start = line.find("##[")
    end = line.find("]", start)
    if start < 0 or end < 0:
        return None
    name, _, properties = line[start + 3 : end].partition(" ")
    if name.lower() not in REGISTERED:
        return None
    return Command(name.lower(), _unescape(line[end + 1 :], _V1), _properties(properties.strip(), ";", _V1))


_DATA = (("%0D", "\r"), ("%0A", "\n"), ("%25", "%"))
_PROPERTY = (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%"))
_V1 = (("%3B", ";"), ("%0D", "\r"), ("%0A", "\n"), ("%5D", "]"), ("%25", "%"))


def _unescape(text: str, table: tuple[tuple[str, str], ...]) -> str:
    for escaped, char in table:
        text = text.replace(escaped, char)
    return text


def _properties(text: str, separator: str, table: tuple[tuple[str, str], ...]) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(separator) if part)
    return {name: _unescape(value, table) for name, _, value in pairs if name and value}


def commands(log: str) -> Iterator[Command]:
    """Return all commands that the runner executes in a log; it executes none between `stop-commands` and its token."""
    token = ""
    for line in lines(log):
        if token:
            token = "" if line.strip().lower() == f"::{token.lower()}::" else token
        elif command := parse(line):
            token = command.data if command.name == "stop-commands" else ""
            yield command


def annotations(log: str) -> list[Command]:
    """Return the annotations of a step: at most ten per level, truncated as GitHub does."""
    shown: list[Command] = []
    for command in commands(log):
        room = sum(other.name == command.name for other in shown) < ANNOTATIONS_PER_LEVEL
        if command.name in LEVELS and room:
            shown.append(Command(command.name, command.data[:MESSAGE_LIMIT], command.properties))
    return shown
