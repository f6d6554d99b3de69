"""Changes a config's `[[ignore]]` entries and nothing else: all other bytes stay what they are."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from onnxgate.core.errors import UsageError
from onnxgate.core.files import replace_atomically
from onnxgate.project.config.schema import Ignore
from onnxgate.project.toml import Keys, TOMLDecodeError, decode, find_array_span, find_key_spans, format_key_path, loads

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class IgnoreEdit:
    """What is to become of the entries."""

    listed: Mapping[int, tuple[str, ...]]  # of an entry by its number: what it lists from now on; one of none is gone
    added: Sequence[Ignore] = ()

    def apply(self, ignores: Sequence[Ignore]) -> tuple[Ignore, ...]:
        """The entries afterwards."""
        kept = []
        for index, ignore in enumerate(ignores):
            if index not in self.listed:
                kept.append(ignore)
            elif self.listed[index]:
                kept.append(msgspec.structs.replace(ignore, fingerprints=self.listed[index]))
        return (*kept, *self.added)


def edit_ignores(data: bytes, prefix: Keys, edit: IgnoreEdit, name: str) -> bytes:
    """
    The file afterwards; `prefix` is the table of it that is ours.

    Raises:
        UsageError: the entries are written in a way that cannot be added to.
    """
    text = data.decode("utf-8")
    newline = "\r\n" if "\r\n" in text else "\n"
    spans = find_key_spans(text)
    changes = [_change_entry(text, spans, (*prefix, "ignore", str(index)), each) for index, each in edit.listed.items()]
    if edit.added:
        changes.append(_add_entries(text, spans, prefix, edit.added))
    for (start, end), new in sorted(changes, reverse=True):
        text = text[:start] + new.replace("\n", newline) + text[end:]
    made = text.encode("utf-8")
    if _read_values(made, prefix) != _expected_values(data, prefix, edit):
        raise UsageError(
            f"the entries of `{name}` cannot be edited as they are written there",
            hint="write each as a table of its own, `[[ignore]]`; or paste what `check --show-ignores` prints",
        )
    return made


def _change_entry(text: str, spans: Mapping[Keys, Span], keys: Keys, listed: tuple[str, ...]) -> tuple[Span, str]:
    if not listed:
        return _entry_span(text, spans, keys), ""
    start, _ = spans.get((*keys, "fingerprints"), (0, 0))
    return find_array_span(text, start), render_fingerprints(listed)


def _entry_span(text: str, spans: Mapping[Keys, Span], keys: Keys) -> Span:
    """All lines of one table, and the blank line before it."""
    start = text.rfind("\n", 0, spans[keys][0]) + 1
    before = text[:start].rstrip("\r\n")
    if text[len(before) : start].count("\n") > 1:
        start = text.rfind("\n", 0, start - 1) + 1
    return start, _find_table_end(text, spans, keys)


def _find_table_end(text: str, spans: Mapping[Keys, Span], keys: Keys) -> int:
    """Behind the last line of a table."""
    last = max(end for each, (_, end) in spans.items() if each[: len(keys)] == keys)
    return min(last + 1, len(text))


def _add_entries(text: str, spans: Mapping[Keys, Span], prefix: Keys, added: Sequence[Ignore]) -> tuple[Span, str]:
    """New entries behind the last one that there is, else at the end."""
    keys = (*prefix, "ignore")
    at = _find_table_end(text, spans, keys) if any(span[: len(keys)] == keys for span in spans) else len(text)
    lead = "" if not at or text[at - 1] == "\n" else "\n"
    return (at, at), lead + "".join(f"\n{render_entry(ignore, prefix)}\n" for ignore in added)


def _read_values(data: bytes, prefix: Keys) -> object:
    """The file's values, with the entries apart."""
    try:
        values = loads(decode(data))
    except TOMLDecodeError:
        return None
    return values, _pop_entries(values, prefix)


def _expected_values(data: bytes, prefix: Keys, edit: IgnoreEdit) -> object:
    values = loads(decode(data))
    kept = []
    for index, pop_entry in enumerate(_pop_entries(values, prefix)):
        listed = edit.listed.get(index, None)
        if listed != ():
            kept.append(pop_entry if listed is None else {**pop_entry, "fingerprints": list(listed)})
    return values, [*kept, *(_to_toml_values(ignore) for ignore in edit.added)]


def _pop_entries(values: dict[str, Any], prefix: Keys) -> list[dict[str, Any]]:
    """The entries of the file, taken out of its values."""
    table: dict[str, Any] = values
    for key in prefix:
        table = table[key]
    entries: list[dict[str, Any]] = table.pop("ignore", [])
    return entries


def _to_toml_values(ignore: Ignore) -> dict[str, Any]:
    """An entry as TOML has it: no key that says what is so anyway."""
    fields = {name: getattr(ignore, name) for name in ignore.__struct_fields__}
    fields["fingerprints"] = None if ignore.fingerprints is None else list(ignore.fingerprints)
    return {key: value for key, value in fields.items() if value is not None and (key, value) != ("model", "**")}


def check_writable(path: Path) -> None:
    """
    Say before any work is done that a config is not to be written.

    Raises:
        UsageError: the file is marked as read-only, or belongs to somebody else.
    """
    path = path.resolve()
    if not path.stat().st_mode & 0o222 or not os.access(path, os.W_OK):
        raise UsageError(f"`{path.name}` is read-only, and `--write-ignores` writes to it", hint="make it writable")


def write_config(path: Path, data: bytes, before: bytes) -> None:
    """
    Write the config in one step, with the mode that it has, so that nobody reads a half.

    Raises:
        UsageError: the file is no longer what it was `before`, or cannot be written.
    """
    path = path.resolve()
    try:
        if path.read_bytes() != before:
            raise UsageError(f"`{path.name}` was changed while the models were judged", hint="run the command again")
        with replace_atomically(path) as scratch:
            scratch.write_bytes(data)
            shutil.copymode(path, scratch)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"`{path.name}` cannot be written: {reason}") from error


MAX_INLINE_FINGERPRINTS = 4
"""So many fingerprints stand on one line; more have a line each."""

# Controls, and characters that a reviewer does not see or that turn the text around them (Source: Unicode 15.1, the
# ranges of Cc, Cf, Zl and Zp; a fixed list, since each Python has its own Unicode).
_INVISIBLE = re.compile(
    '["\\\\\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e'
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quote_string(text: str) -> str:
    """The text as a string of TOML; what a reader does not see is spelled."""
    return f'"{_INVISIBLE.sub(lambda found: _escape(found.group()), text)}"'


def _escape(character: str) -> str:
    code = ord(character)
    return _SHORT_ESCAPES.get(character) or (f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")


def render_entry(ignore: Ignore, prefix: Keys = ()) -> str:
    """An `[[ignore]]` entry, `[[tool.onnxgate.ignore]]` in a `pyproject.toml`; without a newline at its end."""
    text = "\n".join(_render_entry_lines(ignore, prefix)).replace("##[", r"#\u0023[")  # a command where a log is read
    return "".join(each if each.isprintable() or each == "\n" else _escape(each) for each in text)


def _render_entry_lines(ignore: Ignore, prefix: Keys) -> Iterator[str]:
    yield f"[[{format_key_path((*prefix, 'ignore'))}]]"
    yield f"rule = {quote_string(ignore.rule)}"
    if ignore.model != "**":
        yield f"model = {quote_string(ignore.model)}"
    if ignore.sha256 is not None:
        yield f"sha256 = {quote_string(ignore.sha256)}"
    if ignore.fingerprints is not None:
        yield f"fingerprints = {render_fingerprints(ignore.fingerprints)}"
    yield f"reason = {quote_string(ignore.reason)}" if ignore.reason else 'reason = ""  # say why'
    if ignore.until is not None:
        yield f"until = {ignore.until.isoformat()}"


def render_fingerprints(listed: tuple[str, ...]) -> str:
    """An array of fingerprints."""
    each = [quote_string(one) for one in listed]
    if len(each) <= MAX_INLINE_FINGERPRINTS:
        return f"[{', '.join(each)}]"
    return "[\n" + "".join(f"  {one},\n" for one in each) + "]"


def escape_glob(path: str) -> str:
    """The glob that matches this path alone; a character that TOML cannot hold may be any."""
    glob = re.sub(r"[*?\[]", lambda found: f"[{found[0]}]", path)
    return re.sub("[\ud800-\udfff]", "?", glob)
