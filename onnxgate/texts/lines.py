"""A log's lines as they were printed, without what a terminal, a CI service or a container put around them."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from onnxgate.texts.classify import canonical

CHUNK = 65_536
LINE_LIMIT = 16_384
"""Characters of a line that are looked at together; what is longer is read in pieces, parted at a blank."""
_ANSI = re.compile(r"\x1b\[[0-?]{0,32}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|\\u001b\[[\d;]{0,32}m")
_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d)?"
# Source: logs of GitHub (web and `gh run view`), GitLab, Jenkins, docker compose, buildkit; pytest's own mark.
_PREFIX = re.compile(
    rf"(?:\s{{0,40}}(?:{_TIME}|\[{_TIME}\])\s{{1,8}}"
    r"|[^\t\n]{1,120}\t[^\t\n]{1,120}\t(?=\d{4}-)"
    r"|\s{0,40}##\[\w{1,20}\]"
    r"|\s{0,40}::(?:error|warning|notice|debug)[^:\n]{0,300}::"
    r"|\s{0,8}[\w.-]{1,80} {0,20}\| "
    r"|#\d{1,6} \d{1,6}\.\d{1,4} "
    r"|E {2,8}(?=\S))"
)
_PREFIXES = 4
_JSON = re.compile(r'"[\w.@-]{1,40}" ?: ?"')


@dataclass(frozen=True, slots=True)
class Line:
    """A line, or a piece of one."""

    number: int  # as an editor counts them, from 1
    text: str  # canonical


def lines(stream: BinaryIO) -> Iterator[Line]:
    """All lines that are not blank, in bounded memory, whatever the length of one."""
    for number, text in _pieces(stream):
        for piece in _unescaped(text):
            if piece and (said := canonical(stripped(piece))):
                for line in said.split("\n"):
                    yield Line(number, line)


def stripped(text: str) -> str:
    """A line without colours, and without the prefixes of whoever passed it on."""
    plain = _ANSI.sub("", text)
    for _ in range(_PREFIXES):
        found = _PREFIX.match(plain)
        if not found:
            break
        plain = plain[found.end() :]
    return plain


def _unescaped(text: str) -> list[str]:
    """The lines that a line of JSON holds, else the line itself."""
    if "\\n" not in text or not _JSON.search(text):
        return text.split("\r")
    return text.replace("\\r", "").replace("\\t", " ").replace('\\"', '"').split("\\n")


def _pieces(stream: BinaryIO) -> Iterator[tuple[int, str]]:
    """Lines by number, long ones in pieces."""
    first = stream.read(CHUNK)
    decoder = codecs.getincrementaldecoder(_encoding(first))(errors="replace")
    number, rest, chunk = 1, "", first
    while chunk:
        rest += decoder.decode(chunk)
        *whole, rest = rest.split("\n")
        for line in whole:
            yield from ((number, piece) for piece in _cut(line))
            number += 1
        *pieces, rest = _cut(rest)
        yield from ((number, piece) for piece in pieces)
        chunk = stream.read(CHUNK)
    yield number, rest + decoder.decode(b"", final=True)


def _encoding(first: bytes) -> str:
    """What the log is written in: PowerShell writes UTF-16."""
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig"


def _cut(line: str) -> list[str]:
    pieces = []
    while len(line) > LINE_LIMIT:
        end = line.rfind(" ", LINE_LIMIT // 2, LINE_LIMIT)
        end = LINE_LIMIT if end < 0 else end
        pieces.append(line[:end])
        line = line[end:]
    return [*pieces, line]
