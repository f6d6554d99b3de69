"""TOML: values, strings, key paths and the lines of keys."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

TOMLDecodeError = tomllib.TOMLDecodeError


def loads(text: str) -> dict[str, Any]:
    """
    Return the values of a TOML text.

    Raises:
        TOMLDecodeError: the text is not TOML; the message names line and column.
    """
    try:
        values: dict[str, Any] = tomllib.loads(text)
    except TOMLDecodeError:
        raise
    except RecursionError:
        raise TOMLDecodeError("nested too deeply (at end of document)") from None
    except ValueError as error:  # an integer of thousands of digits
        raise TOMLDecodeError(f"{error} (at end of document)") from error
    return values


def decode(data: bytes) -> str:
    """
    Return the text of a TOML file, without a byte order mark and with `\\n` as line end.

    Raises:
        UnicodeDecodeError: the file is not UTF-8.
    """
    return data.decode("utf-8-sig").replace("\r\n", "\n")


# Control characters, and characters that are invisible or change the direction of text. Source: Unicode 15.1, the
# ranges of Cc, Cf, Zl and Zp; a fixed list, because the Unicode version depends on Python's.
_INVISIBLE = re.compile(
    '["\\\\\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e'
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quote_string(text: str) -> str:
    """Return the text as a TOML string; invisible characters are escaped."""
    return f'"{_INVISIBLE.sub(lambda match: escape_character(match[0]), text)}"'


def escape_character(character: str) -> str:
    """Return the escape of one character in a TOML string."""
    code = ord(character)
    return _SHORT_ESCAPES.get(character) or (f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")


Keys = tuple[str, ...]
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_VALUE_MARK = re.compile(r"[\"'#\[\]{}\n]")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'  # multi-line strings may end in up to two quotes of their own
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)


@functools.lru_cache(maxsize=4)
def find_key_lines(text: str) -> Mapping[Keys, int]:
    """
    Return the line, from 1, of every table and key of a TOML text, in the order of the text.

    An element of an array of tables is named by its index: `("model", "0", "path")`. Keys inside of a value (an inline
    table, an array) have no line of their own. If the text is invalid, only keys before the error are returned.
    """
    scan = _Scanner(text)
    while scan.skip_trivia():
        if not (scan.read_header() if text[scan.at] == "[" else scan.read_assignment()):
            break
    return MappingProxyType(scan.lines)


def format_key_path(keys: Iterable[str]) -> str:
    """Return keys as one path for messages: `model[0].path`, `opset."ai.onnx"`."""
    text = ""
    for key in keys:
        word = key if _BARE_KEY.fullmatch(key) else f'"{key}"'
        text += f"[{key}]" if key.isdecimal() and text else f".{word}" if text else word
    return text


def find_nearest_line(lines: Mapping[Keys, int], keys: Keys) -> int:
    """Return the line of the key or of its nearest parent; 0 if neither has one."""
    while keys:
        if keys in lines:
            return lines[keys]
        keys = keys[:-1]
    return 0


@dataclass(slots=True)
class _Scanner:
    """A position in the text, its table, and the lines of all keys before it."""

    text: str
    at: int = 0
    table: Keys = ()
    arrays: dict[Keys, int] = field(default_factory=dict)  # array of tables -> index of its newest element
    lines: dict[Keys, int] = field(default_factory=dict)
    _counted_to: int = 0
    _line: int = 1

    def skip_trivia(self) -> bool:
        """Skip blanks and comments; return False at the end of the text."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                self._to_end_of_line()
            elif self.text[self.at].isspace():
                self.at += 1
            else:
                return True
        return False

    def read_header(self) -> bool:
        """Read `[table]` or `[[array]]`; return False for anything else."""
        is_array = self.text.startswith("[[", self.at)
        line = self._line_here()
        self.at += 2 if is_array else 1
        keys = self._dotted_key()
        if not keys:
            return False
        self.table = self._resolved(keys, is_array)
        self.lines.setdefault(self.table, line)
        self._to_end_of_line()
        return True

    def read_assignment(self) -> bool:
        """Read `key = value`; return False for anything else."""
        line = self._line_here()
        keys = self._dotted_key()
        if not keys:
            return False
        for length in range(1, len(keys) + 1):
            self.lines.setdefault((*self.table, *keys[:length]), line)
        self._skip_value()
        return True

    def _resolved(self, keys: Keys, is_array: bool) -> Keys:
        path: Keys = ()
        for position, key in enumerate(keys, start=1):
            path = (*path, key)
            if is_array and position == len(keys):
                self.arrays[path] = self.arrays.get(path, -1) + 1
            if path in self.arrays:
                path = (*path, str(self.arrays[path]))
        return path

    def _dotted_key(self) -> Keys:
        keys: list[str] = []
        while True:
            self._skip_blanks()
            key = self._simple_key()
            if key is None:
                return ()
            keys.append(key)
            self._skip_blanks()
            if not self.text.startswith(".", self.at):
                return tuple(keys)
            self.at += 1

    def _simple_key(self) -> str | None:
        if match := _BARE_KEY.match(self.text, self.at):
            self.at = match.end()
            return match.group()
        if match := _STRING.match(self.text, self.at):
            self.at = match.end()
            return str(loads(f"key = {match.group()}")["key"])
        return None

    def _skip_value(self) -> None:
        """Go to the end of the line on which the value ends."""
        depth = 0
        while mark := _VALUE_MARK.search(self.text, self.at):
            self.at = mark.start()
            if mark.group() == "\n" and depth == 0:
                return
            if mark.group() == "#":
                self._to_end_of_line()
            elif string := _STRING.match(self.text, self.at):
                self.at = string.end()
            else:
                depth += (mark.group() in "[{") - (mark.group() in "]}")
                self.at += 1
        self.at = len(self.text)

    def _skip_blanks(self) -> None:
        while self.text.startswith((" ", "\t"), self.at):
            self.at += 1

    def _to_end_of_line(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _line_here(self) -> int:
        self._line += self.text.count("\n", self._counted_to, self.at)
        self._counted_to = self.at
        return self._line
