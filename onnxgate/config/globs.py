"""Globs over paths with `/`, as the config's keys take them."""

from __future__ import annotations

import functools
import itertools
import re


def is_glob(pattern: str) -> bool:
    """Whether the text means more than one path."""
    return any(character in pattern for character in "*?[")


def matches(pattern: str, path: str) -> bool:
    """Whether a glob matches a whole path: `*` and `?` stay in one folder, `**` goes through any number of them."""
    return _compiled(pattern.removeprefix("./")).fullmatch(path) is not None


def covers(pattern: str, path: str) -> bool:
    """Whether a glob matches a path, or a folder that the path lies in."""
    pattern = pattern.rstrip("/")
    return matches(pattern, path) or any(matches(pattern, folder) for folder in _folders(path))


def literal_folder(pattern: str) -> str:
    """The folders at the start of a glob that are no glob themselves: `models` of `models/**/*.onnx`."""
    folders = pattern.removeprefix("./").split("/")[:-1]
    return "/".join(itertools.takewhile(lambda folder: not is_glob(folder), folders))


def _folders(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(_TOKEN.sub(_as_regex, pattern), re.DOTALL)


_TOKEN = re.compile(
    r"(?P<folders>(?:(?<=/)|^)\*\*/)"
    r"|(?P<all>\*\*)"
    r"|(?P<star>\*)"
    r"|(?P<one>\?)"
    r"|\[(?P<not>!?)(?P<set>\]?[^\]]+)\]"
    r"|(?P<literal>.)",
    re.DOTALL,
)


def _as_regex(token: re.Match[str]) -> str:
    if token["set"]:
        return f"[{'^/' if token['not'] else ''}{re.escape(token['set']).replace(chr(92) + '-', '-')}]"
    fixed = {"folders": "(?:.*/)?", "all": ".*", "star": "[^/]*", "one": "[^/]"}
    return fixed.get(token.lastgroup or "", re.escape(token.group()))
