"""Match paths against the globs in the config. All paths use `/`."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import re

_TOKEN = re.compile(r"(?:(?<=/)|^)\*\*/|\*\*|\*|\?|\[!?\]?[^\]]+\]|[^*?\[]+|\[")


def is_glob(pattern: str) -> bool:
    """Return whether the pattern can match more than one path."""
    return any(character in pattern for character in "*?[")


def matches(pattern: str, path: str) -> bool:
    """Return whether a glob matches a whole path. `*` and `?` do not match `/`; `**` matches any number of folders."""
    return len(path) in _find_match_ends(pattern, path)


def covers(pattern: str, path: str) -> bool:
    """Return whether a glob matches a path, or a folder that contains the path."""
    return any(end == len(path) or path[end] == "/" for end in _find_match_ends(pattern.rstrip("/"), path))


def literal_folder(pattern: str) -> str:
    """Return the leading folders of a glob without wildcards, such as `models` for `models/**/*.onnx`."""
    folders = pattern.removeprefix("./").split("/")[:-1]
    return "/".join(itertools.takewhile(lambda folder: not is_glob(folder), folders))


def _find_match_ends(pattern: str, path: str) -> set[int]:
    """Return the end positions of all matches that begin at the start of the path.

    All matches advance by one token at a time, so no pattern causes backtracking.
    """
    ends = {0}
    for token in _tokenize(pattern.removeprefix("./")):
        if not ends:
            break
        ends = _advance(token, path, ends)
    return ends


@functools.cache
def _tokenize(pattern: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(pattern))


def _advance(token: str, path: str, starts: set[int]) -> set[int]:
    """Return the end positions of all matches of one token that begin at one of `starts`."""
    match token:
        case "**/":
            return starts | {at + 1 for at in range(min(starts), len(path)) if path[at] == "/"}
        case "**":
            return set(range(min(starts), len(path) + 1))
        case "*":
            ends: set[int] = set()
            for start in sorted(starts):
                if start not in ends:  # the rest of this folder is not in it yet
                    ends.update(range(start, start + len(path[start:].partition("/")[0]) + 1))
            return ends
        case _ if token == "?" or (token.startswith("[") and len(token) > 1):
            return {at + 1 for at in starts if at < len(path) and _matches_character(token, path[at])}
        case _:
            return {at + len(token) for at in starts if path.startswith(token, at)}


def _matches_character(token: str, character: str) -> bool:
    """Return whether `?` or a character set matches a character; only a set that contains `/` matches `/`."""
    if character == "/" and (token == "?" or token.startswith("[!")):
        return False
    return token == f"[{character}]" or fnmatch.fnmatchcase(character, token)  # `[!]` is not a set for fnmatch
