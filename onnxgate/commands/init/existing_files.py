"""Find onnxgate's steps and hooks in an existing workflow or pre-commit config without a YAML parser."""

from __future__ import annotations

import posixpath
import re
import textwrap

_ONNXGATE_ITEM = re.compile(
    r"\bid: *[\"']?onnxgate|\buses: *[\"']?onnxgate/onnxgate@|\bonnxgate[\"', ]+(?:check|lock)\b"
)
_VALUE = r"""(?:"([^"\n]*)"|'([^'\n]*)'|([^\s"',\]#]+))"""
_SEPARATOR = r"[\"',=\s]+?(?:- +)?"  # also between two items of a list
_DIRECTORY = re.compile(rf"\b(?:working-)?directory *: *{_VALUE}|--directory{_SEPARATOR}{_VALUE}")
_CONFIG = re.compile(rf"--config{_SEPARATOR}{_VALUE}")


def find_checked_folders(text: str) -> set[str]:
    """Return the folders that onnxgate checks in a workflow or a pre-commit config; "" for the repository root."""
    without_comments = re.sub(r"(?m)(?:^|[ \t])#.*$", "", text)
    folders = set()
    for item in re.split(r"(?m)^[ \t]*- (?=[\w-]+:)", without_comments):
        if _ONNXGATE_ITEM.search(item):
            named = [posixpath.join(_value(match), "_") for match in _DIRECTORY.finditer(item)]
            named += [_value(match) for match in _CONFIG.finditer(item)]
            folders |= {posixpath.dirname(posixpath.normpath(path)) for path in named or ["_"]}
    return folders


def _value(match: re.Match[str]) -> str:
    return next((group for group in match.groups() if group), "")


def align_hooks(entry: str, text: str) -> str:
    """Return an entry of `repos:` at the column of the entries in a pre-commit config."""
    return _align(entry, re.search(r"(?m)^( *)- repo:", text))


def align_step(step: str, text: str) -> str:
    """Return a step at the column of the steps in a workflow."""
    return _align(step, re.search(r"(?m)^ *steps:[^\n]*\n(?:[ \t]*(?:#[^\n]*)?\n)*( *)- ", text))


def _align(item: str, other: re.Match[str] | None) -> str:
    return item if other is None else textwrap.indent(textwrap.dedent(item), other[1])
