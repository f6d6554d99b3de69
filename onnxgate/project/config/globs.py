"""Globs over paths with `/`, as the config's keys take them."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence

MAX_REGEX_WILDCARDS = 3
"""With more wildcards a regular expression may take longer than anybody waits."""
_WILDCARD_KINDS = frozenset(("folders", "all", "star"))


def is_glob(pattern: str) -> bool:
    """Whether the text means more than one path."""
    return any(character in pattern for character in "*?[")


def matches(pattern: str, path: str) -> bool:
    """Whether a glob matches a whole path: `*` and `?` stay in one folder, `**` goes through any number of them."""
    return _compile(pattern.removeprefix("./")).fullmatch(path) is not None


def covers(pattern: str, path: str) -> bool:
    """Whether a glob matches a path, or a folder that the path lies in."""
    pattern = pattern.rstrip("/")
    compiled = _compile(pattern.removeprefix("./"))
    if isinstance(compiled, GlobAutomaton):
        return compiled.covers(path)
    return any(compiled.fullmatch(each) is not None for each in (path, *_parent_folders(path)))


def literal_folder(pattern: str) -> str:
    """The folders at the start of a glob that are no glob themselves: `models` of `models/**/*.onnx`."""
    folders = pattern.removeprefix("./").split("/")[:-1]
    return "/".join(itertools.takewhile(lambda folder: not is_glob(folder), folders))


def _parent_folders(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]


@functools.cache
def _compile(pattern: str) -> re.Pattern[str] | GlobAutomaton:
    """A regular expression; of a glob with many wildcards, over which one may go back and forth without end, steps."""
    tokens = list(_tokenize(pattern))
    if sum(token.lastgroup in _WILDCARD_KINDS for token in tokens) > MAX_REGEX_WILDCARDS:
        return GlobAutomaton(tokens)
    return re.compile("".join(map(_token_regex, tokens)), re.DOTALL)


def _tokenize(pattern: str) -> Iterator[re.Match[str]]:
    """Its parts; what repeats a wildcard says nothing new, and is left out."""
    last = ""
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup or ""
        if kind not in _WILDCARD_KINDS or kind != last:
            yield token
        last = kind


class GlobAutomaton:
    """A glob that is followed character by character: as long as both are, multiplied, and never longer."""

    def __init__(self, tokens: Sequence[re.Match[str]]) -> None:
        self._kinds = [token.lastgroup or "set" for token in tokens]
        self._ones = [re.compile(_token_regex(token), re.DOTALL) for token in tokens]

    def fullmatch(self, path: str) -> bool | None:
        """True where it matches the whole path, else None, as regular expressions have it."""
        *_, last = self._walk(path)
        return len(self._kinds) in last or None

    def covers(self, path: str) -> bool:
        """Whether it matches the path, or a folder that the path lies in."""
        ends = (*path[1:], "/") if path else ()
        after = itertools.islice(self._walk(path), 1, None)
        return any(end == "/" and len(self._kinds) in reached for end, reached in zip(ends, after, strict=False))

    def _walk(self, path: str) -> Iterator[set[int]]:
        """How far in the pattern one may be, at the start and after each character; to the end, or until nowhere."""
        reached = self._free({0}, at_start=True)
        yield reached
        for character in path:
            reached = self._free(self._after(reached, character), at_start=character == "/")
            yield reached
            if not reached:
                return

    def _after(self, reached: set[int], character: str) -> set[int]:
        found = set()
        for at in reached:
            kind = self._kinds[at] if at < len(self._kinds) else ""
            if kind in ("all", "folders") or (kind == "star" and character != "/"):
                found.add(at)
            elif kind and kind not in _WILDCARD_KINDS and self._ones[at].fullmatch(character):
                found.add(at + 1)
        return found

    def _free(self, reached: set[int], *, at_start: bool) -> set[int]:
        """With what a wildcard that stands for nothing leads to; `**/` ends where a name begins."""
        found, waiting = set(reached), list(reached)
        while waiting:
            at = waiting.pop()
            kind = self._kinds[at] if at < len(self._kinds) else ""
            if (kind in ("all", "star") or (kind == "folders" and at_start)) and at + 1 not in found:
                found.add(at + 1)
                waiting.append(at + 1)
        return found


_TOKEN = re.compile(
    r"(?P<folders>(?:(?<=/)|^)\*\*/)"
    r"|(?P<all>\*\*)"
    r"|(?P<star>\*)"
    r"|(?P<one>\?)"
    r"|\[(?P<not>!?)(?P<set>\]?[^\]]+)\]"
    r"|(?P<literal>.)",
    re.DOTALL,
)


def _token_regex(token: re.Match[str]) -> str:
    if token["set"]:
        members = "".join(_set_members(token["set"]))
        return f"[^/{members}]" if token["not"] else f"[{members}]" if members else "(?!)"
    fixed = {"folders": "(?:.*/)?", "all": ".*", "star": "[^/]*", "one": "[^/]"}
    return fixed.get(token.lastgroup or "", re.escape(token.group()))


def _set_members(said: str) -> Iterator[str]:
    """What a set names: characters, and ranges of them; one that ends before it begins has none."""
    at = 0
    while at < len(said):
        if said[at + 1 : at + 2] == "-" and at + 2 < len(said):
            if said[at] <= said[at + 2]:
                yield f"{_escape_literal(said[at])}-{_escape_literal(said[at + 2])}"
            at += 3
        else:
            yield _escape_literal(said[at])
            at += 1


def _escape_literal(character: str) -> str:
    return character if character.isalnum() else f"\\{character}"
