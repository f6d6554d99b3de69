"""Read TOML values, key paths and the lines of keys, and write TOML strings."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Mapping
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
        TOMLDecodeError: the text is not valid TOML; the message contains the line and column.
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


def find_error_line(error: ValueError, text: str) -> int:
    """Return the line of a syntax error: the last line if the document ends too early."""
    place = re.search(r" \(at line (\d+), column \d+\)$", str(error))
    return int(place[1]) if place else text.rstrip("\n").count("\n") + 1


def decode(data: bytes) -> str:
    """
    Return the text of a TOML file, without a byte order mark and with `\\n` as the line ending.

    Raises:
        UnicodeDecodeError: the file is not valid UTF-8.
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
    """Return the escape sequence of one character in a TOML string."""
    code = ord(character)
    return _SHORT_ESCAPES.get(character) or (f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")


Keys = tuple[str, ...]
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = (
    r'"""(?:\\.|[^\\])*?"{3,5}'  # multi-line strings may end in up to two quotes of their own
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
)
_BRACKETS, _REST_OF_LINE = re.compile(r"\[{0,2}"), re.compile(r"[^\n]*")
_TRIVIA = re.compile(r"(?:\s|#[^\n]*)*")
_KEY = re.compile(rf"[ \t]*(?:(?P<bare>{_BARE_KEY.pattern})|(?P<string>{_STRING}))[ \t]*(?P<dot>\.?)", re.DOTALL)
_VALUE_MARK = re.compile(rf"{_STRING}|#[^\n]*|[\[\]{{}}\n]", re.DOTALL)


@functools.lru_cache(maxsize=4)
def find_key_lines(text: str) -> Mapping[Keys, int]:
    """
    Return the line number, from 1, of every table and key in a TOML text, in the order of the text.

    An element of an array of tables has its index as key: `("model", "0", "path")`. Keys inside a value (an inline
    table, an array) do not have their own line. If the text is invalid, only keys before the error are returned.
    """
    lines: dict[Keys, int] = {}
    arrays: dict[Keys, int] = {}  # array of tables -> index of its newest element
    table: Keys = ()
    at, line = 0, 1
    while (start := _find_end(_TRIVIA, text, at)) < len(text):
        line += text.count("\n", at, start)
        brackets = _find_end(_BRACKETS, text, start) - start
        keys, at = _read_keys(text, start + brackets)
        if not keys:
            break
        if brackets:
            table = _resolve_header(keys, arrays, is_array=brackets == 2)
            lines.setdefault(table, line)
            at = _find_end(_REST_OF_LINE, text, at)
        else:
            for length in range(1, len(keys) + 1):
                lines.setdefault((*table, *keys[:length]), line)
            at = _find_value_end(text, at)
        line += text.count("\n", start, at)
    return MappingProxyType(lines)


def _find_end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _read_keys(text: str, at: int) -> tuple[Keys, int]:
    """Return the parts of a dotted key and its end position; no parts if there is no key."""
    keys: Keys = ()
    while part := _KEY.match(text, at):
        try:
            keys = (*keys, part["bare"] or _read_string(part["string"]))
        except TOMLDecodeError:  # a string with an invalid escape
            break
        at = part.end()
        if not part["dot"]:
            return keys, at
    return (), at


def _read_string(literal: str) -> str:
    """Return the value of a TOML string literal."""
    if literal.isprintable() and "\\" not in literal and literal[:3] not in (3 * '"', "'''"):
        return literal[1:-1]  # it has no escapes
    return str(loads(f"key = {literal}")["key"])


def _resolve_header(keys: Keys, arrays: dict[Keys, int], *, is_array: bool) -> Keys:
    """Return the path of a table header, with an element's index after each array of tables. Update `arrays`."""
    path: Keys = ()
    for position, key in enumerate(keys, start=1):
        path = (*path, key)
        if is_array and position == len(keys):
            arrays[path] = arrays.get(path, -1) + 1
        if path in arrays:
            path = (*path, str(arrays[path]))
    return path


def _find_value_end(text: str, at: int) -> int:
    """Return the position of the end of the line on which a value ends."""
    depth = 0
    for mark in _VALUE_MARK.finditer(text, at):
        if mark[0] == "\n" and depth == 0:
            return mark.start()
        depth += (mark[0] in ("[", "{")) - (mark[0] in ("]", "}"))
    return len(text)


def format_key_path(keys: Iterable[str]) -> str:
    """Return keys as one path for messages, such as `model[0].path` or `opset."ai.onnx"`."""
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
