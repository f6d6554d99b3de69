"""TOML as it is written: strings, and `[[ignore]]` entries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onnxgate.config.lines import Keys, key_path
from onnxgate.config.types import Ignore

ON_ONE_LINE = 4
"""So many fingerprints stand on one line; more have a line each."""

# Controls, and characters that a reviewer does not see or that turn the text around them (Source: Unicode 15.1, the
# ranges of Cc, Cf, Zl and Zp; a fixed list, since each Python has its own Unicode).
_UNSEEN = re.compile(
    '["\\\\\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e'
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def string(text: str) -> str:
    """The text as a string of TOML; what a reader does not see is spelled."""
    return f'"{_UNSEEN.sub(lambda found: _escaped(found.group()), text)}"'


def _escaped(character: str) -> str:
    code = ord(character)
    return _SHORT.get(character) or (f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")


def entry(ignore: Ignore, prefix: Keys = ()) -> str:
    """An `[[ignore]]` entry, `[[tool.onnxgate.ignore]]` in a `pyproject.toml`; without a newline at its end."""
    text = "\n".join(_lines(ignore, prefix)).replace("##[", r"#\u0023[")  # a command where a log is read
    return "".join(each if each.isprintable() or each == "\n" else _escaped(each) for each in text)


def _lines(ignore: Ignore, prefix: Keys) -> Iterator[str]:
    yield f"[[{key_path((*prefix, 'ignore'))}]]"
    yield f"rule = {string(ignore.rule)}"
    if ignore.model != "**":
        yield f"model = {string(ignore.model)}"
    if ignore.sha256 is not None:
        yield f"sha256 = {string(ignore.sha256)}"
    if ignore.fingerprints is not None:
        yield f"fingerprints = {fingerprints(ignore.fingerprints)}"
    yield f"reason = {string(ignore.reason)}" if ignore.reason else 'reason = ""  # say why'
    if ignore.until is not None:
        yield f"until = {ignore.until.isoformat()}"


def fingerprints(listed: tuple[str, ...]) -> str:
    """An array of fingerprints."""
    each = [string(one) for one in listed]
    if len(each) <= ON_ONE_LINE:
        return f"[{', '.join(each)}]"
    return "[\n" + "".join(f"  {one},\n" for one in each) + "]"


def literal_glob(path: str) -> str:
    """The glob that matches this path alone; a character that TOML cannot hold may be any."""
    glob = re.sub(r"[*?\[]", lambda found: f"[{found[0]}]", path)
    return re.sub("[\ud800-\udfff]", "?", glob)
