"""Edit the `[[ignore]]` entries of a config; all other bytes stay the same."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from onnxgate.core.errors import StorageError, UsageError
from onnxgate.core.files import follow_links, replace_atomically
from onnxgate.core.machine_faults import find_machine_fault
from onnxgate.core.text import quote_path
from onnxgate.project.config.schema import Ignore
from onnxgate.project.toml import Keys, decode, escape_character, find_key_lines, format_key_path, loads, quote_string


class IgnoreEdit(msgspec.Struct, frozen=True):
    """A change to the `[[ignore]]` entries."""

    listed: Mapping[int, tuple[str, ...]]  # index of an entry -> its new fingerprints; without any, it is removed
    added: Sequence[Ignore] = ()

    def apply(self, ignores: Sequence[Ignore]) -> tuple[Ignore, ...]:
        """Return the entries after the change."""
        remaining = []
        for index, ignore in enumerate(ignores):
            if index not in self.listed:
                remaining.append(ignore)
            elif self.listed[index]:
                remaining.append(msgspec.structs.replace(ignore, fingerprints=self.listed[index]))
        return (*remaining, *self.added)


def edit_ignores(data: bytes, prefix: Keys, edit: IgnoreEdit, name: str) -> bytes:
    """Return the content of a config with changed entries; `prefix` is the path of onnxgate's table in the file.

    Only lines of changed entries are rewritten. Each entry is edited separately, because tomlkit would group entries
    that have other tables between them.

    Raises:
        UsageError: the entries are not `[[ignore]]` tables.
    """
    newline = "\r\n" if b"\r\n" in data else "\n"
    lines = [line.decode("utf-8") for line in data.splitlines(keepends=True)]
    try:
        spans = _find_entries(decode(data), (*prefix, "ignore"))
        if edit.added:
            at = spans[-1].stop if spans else len(lines)
            if at and not lines[at - 1].endswith("\n"):
                lines[at - 1] += newline
            text = "".join(f"\n{render_entry(ignore, prefix)}\n" for ignore in edit.added)
            lines.insert(at, text.replace("\n", newline))
        for index, fingerprints in sorted(edit.listed.items(), reverse=True):
            span = spans[index]
            if fingerprints:
                lines[span] = _replace_fingerprints(lines[span], fingerprints, newline)
            else:
                has_blank_line = span.start > 0 and not lines[span.start - 1].strip()
                del lines[span.start - has_blank_line : span.stop]
        changed = "".join(lines).encode("utf-8")
        is_correct = loads(decode(changed)) == _expected_values(data, prefix, edit)
    except (IndexError, ValueError):  # inline entries have no lines; errors of TOML are `ValueError`
        is_correct = False
    if not is_correct:
        raise UsageError(
            f"the ignores in `{name}` are in a form that cannot be edited automatically",
            hint="write each entry as an `[[ignore]]` table, or paste the output of `onnxgate check --show-ignores`",
        )
    return changed


def _find_entries(text: str, keys: Keys) -> list[slice]:
    """Return the lines of each entry, from its header to its last key."""
    lines = text.split("\n")
    sections = itertools.groupby(find_key_lines(text).items(), lambda item: item[0][: len(keys) + 1])
    starts = [(section, next(items)[1] - 1) for section, items in sections]
    spans = []
    for (section, start), (_, end) in itertools.pairwise([*starts, ((), len(lines))]):
        if len(section) > len(keys) and section[:-1] == keys:
            while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):
                end -= 1
            spans.append(slice(start, end))
    return spans


def _replace_fingerprints(lines: list[str], fingerprints: tuple[str, ...], newline: str) -> list[str]:
    import tomlkit  # takes 40 ms; only edits need it

    entry = tomlkit.parse("".join(lines[1:]))
    entry["fingerprints"] = tomlkit.value(render_fingerprints(fingerprints).replace("\n", newline))
    return [lines[0], tomlkit.dumps(entry)]


def _expected_values(data: bytes, prefix: Keys, edit: IgnoreEdit) -> dict[str, Any]:
    """Return the values that the file must have after the edit."""
    values = table = loads(decode(data))
    for key in prefix:
        table = table[key]
    entries = []
    for index, entry in enumerate(table.pop("ignore", [])):
        fingerprints = edit.listed.get(index)
        if fingerprints != ():
            entries.append(entry if fingerprints is None else {**entry, "fingerprints": list(fingerprints)})
    for ignore in edit.added:
        fields = msgspec.structs.asdict(ignore)
        fields["fingerprints"] = None if ignore.fingerprints is None else list(ignore.fingerprints)
        fields["model"] = None if ignore.model == "**" else ignore.model
        entries.append({key: value for key, value in fields.items() if value is not None})
    if entries:
        table["ignore"] = entries
    return values


def check_writable(path: Path) -> None:
    """Check that a config may be written, before any other work is done.

    Raises:
        StorageError: the file is read-only for this user.
    """
    path = follow_links(path)
    if not path.stat().st_mode & 0o222 or not os.access(path, os.W_OK):
        hint = f"run `chmod u+w {quote_path(str(path))}`"
        raise StorageError(f"`--write-ignores` cannot write to `{path.name}`: it is read-only", hint=hint)


def write_config(path: Path, data: bytes, before: bytes) -> None:
    """Replace the config atomically; its mode stays the same.

    Raises:
        UsageError: the content differs from `before`.
        StorageError: the file cannot be written.
    """
    path = follow_links(path)
    try:
        if path.read_bytes() != before:
            raise UsageError(f"`{path.name}` changed during the check", hint="run the command again")
        with replace_atomically(path) as scratch:
            scratch.write_bytes(data)
            shutil.copymode(path, scratch)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        fault = find_machine_fault(error)
        hint = fault.hint if fault else "check the permissions of the folder that contains the config"
        raise StorageError(f"cannot write to `{path.name}`: {reason}", hint=hint) from error


MAX_INLINE_FINGERPRINTS = 4
"""Maximum number of fingerprints on one line. If there are more, each has its own line."""


def render_entry(ignore: Ignore, prefix: Keys = ()) -> str:
    """Render an `[[ignore]]` entry (`[[tool.onnxgate.ignore]]` for a `pyproject.toml`) without a trailing newline."""
    lines = [f"[[{format_key_path((*prefix, 'ignore'))}]]", f"rule = {quote_string(ignore.rule)}"]
    if ignore.model != "**":
        lines.append(f"model = {quote_string(ignore.model)}")
    if ignore.sha256 is not None:
        lines.append(f"sha256 = {quote_string(ignore.sha256)}")
    if ignore.fingerprints is not None:
        lines.append(f"fingerprints = {render_fingerprints(ignore.fingerprints)}")
    lines.append(f"reason = {quote_string(ignore.reason)}" if ignore.reason else 'reason = ""  # required')
    if ignore.until is not None:
        lines.append(f"until = {ignore.until.isoformat()}")
    text = "\n".join(lines).replace("##[", r"#\u0023[")  # avoids a workflow command for GitHub's runner
    return "".join(char if char.isprintable() or char == "\n" else escape_character(char) for char in text)


def render_fingerprints(fingerprints: tuple[str, ...]) -> str:
    """Render an array of fingerprints."""
    elements = [quote_string(fingerprint) for fingerprint in fingerprints]
    if len(elements) <= MAX_INLINE_FINGERPRINTS:
        return f"[{', '.join(elements)}]"
    return "[\n" + "".join(f"  {element},\n" for element in elements) + "]"


def escape_glob(path: str) -> str:
    """Return a glob that matches only this path. A character that TOML cannot contain becomes a wildcard."""
    glob = re.sub(r"[*?\[]", lambda match: f"[{match[0]}]", path)
    return re.sub("[\ud800-\udfff]", "?", glob)
