"""Changes a config's `[[ignore]]` entries and nothing else: all other bytes stay what they are."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from onnxgate.config.lines import Keys, array_span, key_spans
from onnxgate.config.spelled import entry, fingerprints
from onnxgate.config.toml import TOMLDecodeError, decode, loads
from onnxgate.config.types import Ignore
from onnxgate.errors import UsageError
from onnxgate.scratch import beside

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Edit:
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


def edited(data: bytes, prefix: Keys, edit: Edit, name: str) -> bytes:
    """
    The file afterwards; `prefix` is the table of it that is ours.

    Raises:
        UsageError: the entries are written in a way that cannot be added to.
    """
    text = data.decode("utf-8")
    newline = "\r\n" if "\r\n" in text else "\n"
    spans = key_spans(text)
    changes = [_change(text, spans, (*prefix, "ignore", str(index)), each) for index, each in edit.listed.items()]
    if edit.added:
        changes.append(_addition(text, spans, prefix, edit.added))
    for (start, end), new in sorted(changes, reverse=True):
        text = text[:start] + new.replace("\n", newline) + text[end:]
    made = text.encode("utf-8")
    if _read(made, prefix) != _expected(data, prefix, edit):
        raise UsageError(
            f"the entries of `{name}` cannot be edited as they are written there",
            hint="write each as a table of its own, `[[ignore]]`; or paste what `check --show-ignores` prints",
        )
    return made


def _change(text: str, spans: Mapping[Keys, Span], keys: Keys, listed: tuple[str, ...]) -> tuple[Span, str]:
    if not listed:
        return _block(text, spans, keys), ""
    start, _ = spans.get((*keys, "fingerprints"), (0, 0))
    return array_span(text, start), fingerprints(listed)


def _block(text: str, spans: Mapping[Keys, Span], keys: Keys) -> Span:
    """All lines of one table, and the blank line before it."""
    start = text.rfind("\n", 0, spans[keys][0]) + 1
    before = text[:start].rstrip("\r\n")
    if text[len(before) : start].count("\n") > 1:
        start = text.rfind("\n", 0, start - 1) + 1
    return start, _end(text, spans, keys)


def _end(text: str, spans: Mapping[Keys, Span], keys: Keys) -> int:
    """Behind the last line of a table."""
    last = max(end for each, (_, end) in spans.items() if each[: len(keys)] == keys)
    return min(last + 1, len(text))


def _addition(text: str, spans: Mapping[Keys, Span], prefix: Keys, added: Sequence[Ignore]) -> tuple[Span, str]:
    """New entries behind the last one that there is, else at the end."""
    keys = (*prefix, "ignore")
    at = _end(text, spans, keys) if any(each[: len(keys)] == keys for each in spans) else len(text)
    lead = "" if not at or text[at - 1] == "\n" else "\n"
    return (at, at), lead + "".join(f"\n{entry(ignore, prefix)}\n" for ignore in added)


def _read(data: bytes, prefix: Keys) -> object:
    """The file's values, with the entries apart."""
    try:
        values = loads(decode(data))
    except TOMLDecodeError:
        return None
    return values, _entries(values, prefix)


def _expected(data: bytes, prefix: Keys, edit: Edit) -> object:
    values = loads(decode(data))
    kept = []
    for index, each in enumerate(_entries(values, prefix)):
        listed = edit.listed.get(index, None)
        if listed != ():
            kept.append(each if listed is None else {**each, "fingerprints": list(listed)})
    return values, [*kept, *(_plain(ignore) for ignore in edit.added)]


def _entries(values: dict[str, Any], prefix: Keys) -> list[dict[str, Any]]:
    """The entries of the file, taken out of its values."""
    table: dict[str, Any] = values
    for key in prefix:
        table = table[key]
    entries: list[dict[str, Any]] = table.pop("ignore", [])
    return entries


def _plain(ignore: Ignore) -> dict[str, Any]:
    """An entry as TOML has it: no key that says what is so anyway."""
    fields = {name: getattr(ignore, name) for name in ignore.__struct_fields__}
    fields["fingerprints"] = None if ignore.fingerprints is None else list(ignore.fingerprints)
    return {key: value for key, value in fields.items() if value is not None and (key, value) != ("model", "**")}


def refuse_read_only(path: Path) -> None:
    """
    Say before any work is done that a config is not to be written.

    Raises:
        UsageError: the file is marked as read-only, or belongs to somebody else.
    """
    path = path.resolve()
    if not path.stat().st_mode & 0o222 or not os.access(path, os.W_OK):
        raise UsageError(f"`{path.name}` is read-only, and `--write-ignores` writes to it", hint="make it writable")


def write(path: Path, data: bytes, before: bytes) -> None:
    """
    Write the config in one step, with the mode that it has, so that nobody reads a half.

    Raises:
        UsageError: the file is no longer what it was `before`, or cannot be written.
    """
    path = path.resolve()
    try:
        if path.read_bytes() != before:
            raise UsageError(f"`{path.name}` was changed while the models were judged", hint="run the command again")
        with beside(path) as scratch:
            scratch.write_bytes(data)
            shutil.copymode(path, scratch)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"`{path.name}` cannot be written: {reason}") from error
