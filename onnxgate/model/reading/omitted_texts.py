"""Large texts that static checks leave in the file: documentation, metadata and string attributes.

Of documentation and metadata, only the paths to home directories are kept, which is all that static checks read. A
string attribute keeps its first bytes; the position of the attribute in the file is in its `doc_string`.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnxgate.model.reading.file_format import FileWindow

if TYPE_CHECKING:
    from onnx import AttributeProto

LARGE_TEXT_BYTES = 64 * 1024
"""Minimum size in bytes of texts that are omitted. It exceeds the stack trace of any node."""
LARGE_VALUE_BYTES = 256
"""Minimum size in bytes of the values of a model's metadata that are omitted, because a model may have many."""
KEPT_STRING_BYTES = 8 * 1024
"""Number of bytes of a large string that are kept. No operator that onnx defines accepts a string as long."""
OMITTED_TEXT_KEY = f"onnxgate.omitted-text.{os.urandom(8).hex()}"
"""Key that marks string attributes with omitted text. It is random in each process, so that no file can contain it."""
_PIECE_BYTES = 1024 * 1024
_MAX_PATH = 4096
"""Maximum number of characters of a path that are shown."""
_PATH_ENDS = " \t\r\n\"'"
"""Characters that no path contains."""
_HOME_PATTERN = r"(?:/home/|/Users/|[A-Za-z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/))([^/\\\s\"':]+)[/\\][^\s\"'`,;)\]]*"
_SERVICE_ACCOUNTS = frozenset(
    {
        *("runner", "runneradmin", "circleci", "vsts", "vsts_azpcontainer", "jenkins", "gitlab-runner", "buildkite"),
        *("ubuntu", "docker", "app", "user", "nonroot", "vscode", "codespace", "jovyan", "Shared", "Public"),
    }
)
"""Default user accounts in CI images. Source: images from GitHub, CircleCI, Azure, GitLab and Jupyter."""


def find_home_paths(text: str, limit: int | None = None) -> set[str]:
    """Return the paths to home directories in a text that begin before position `limit`."""
    if "/home/" not in text and "Users" not in text:
        return set()
    found = (match for match in re.finditer(_HOME_PATTERN, text) if limit is None or match.start() < limit)
    return {match[0][:_MAX_PATH] for match in found if match[1] not in _SERVICE_ACCOUNTS}


def summarize_text(source: FileWindow, start: int, end: int) -> bytes | None:
    """Return the paths to home directories in the text between `start` and `end`; None if it is not valid UTF-8."""
    paths: set[str] = set()
    try:
        for piece, limit in _iter_pieces(source, start, end):
            paths |= find_home_paths(piece, limit)
    except UnicodeDecodeError:
        return None
    return "\n".join(sorted(paths)).encode()


def _iter_pieces(source: FileWindow, start: int, end: int) -> Iterator[tuple[str, int | None]]:
    """Yield a text in pieces, each with the position before which paths are complete; None stands for its end."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    text = ""
    for position in range(start, end, _PIECE_BYTES):
        text += decoder.decode(source.read(position, min(position + _PIECE_BYTES, end)))
        cut = max(map(text.rfind, _PATH_ENDS)) + 1
        if cut:
            yield text[:cut], None
        else:  # no path ends here
            cut = max(len(text) - _MAX_PATH, 0)
            yield text, cut
        text = text[cut:]
    yield text + decoder.decode(b"", final=True), None


def encode_text_position(start: int, end: int) -> bytes:
    """Return the document string of the string attribute between `start` and `end` if it is omitted."""
    return f"{OMITTED_TEXT_KEY}:{start}:{end}".encode()


def find_omitted_text(attribute: AttributeProto) -> tuple[int, int] | None:
    """Return the start and end of the attribute in the file if its string is omitted; None if it is complete."""
    text: object = attribute.doc_string
    if not isinstance(text, str) or not text.startswith(OMITTED_TEXT_KEY):  # bytes if not UTF-8
        return None
    start, end = map(int, text.split(":")[1:])
    return start, end
