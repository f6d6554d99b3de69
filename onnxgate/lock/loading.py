"""Loads `onnxgate.lock`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from onnxgate.config.lines import key_lines, nearest_line
from onnxgate.config.toml import TOMLDecodeError, decode, loads
from onnxgate.errors import LockError
from onnxgate.findings import Place
from onnxgate.lock.types import VERSION, Lock
from onnxgate.lock.validation import lock_problems

_CONFLICT = re.compile(r"^(?:<{7}|>{7}|\|{7}) ", re.MULTILINE)
PROBLEMS_SAID = 10
_WRITE_IT = "run `onnxgate lock`"
_START_OVER = "take the file of one branch (`git checkout --ours` or `--theirs`), then run `onnxgate lock`"

_RESTORE = "restore the file as it was committed, then run `onnxgate lock`"


def load_lock(path: Path) -> Lock:
    """
    The lock in one file.

    Raises:
        LockError: there is none, it cannot be read, or a newer onnxgate wrote it.
    """
    return parse_lock(read_lock(path), path.name)


def read_lock(path: Path) -> str:
    """
    The text of a lock.

    Raises:
        LockError: there is none, or it is no text.
    """
    try:
        return decode(path.read_bytes())
    except FileNotFoundError as error:
        raise LockError(f"there is no `{path.name}`", hint=_WRITE_IT) from error
    except OSError as error:
        hint = f"see that whoever runs onnxgate may read it: `ls -l {path.name}`"
        raise LockError(f"`{path.name}` cannot be read: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise LockError(f"`{path.name}` is damaged: it is not UTF-8", hint=_START_OVER) from error


def parse_lock(text: str, name: str) -> Lock:
    """The lock that a text says; `name` is what errors call it."""
    if conflict := _CONFLICT.search(text):
        line = text.count("\n", 0, conflict.start()) + 1
        raise LockError(f"`{name}` has the marks of a merge conflict at line {line}", hint=_START_OVER)
    try:
        raw = loads(text)
    except TOMLDecodeError as error:
        raise LockError(f"`{name}` is damaged: {_lowered(str(error))}", hint=_START_OVER) from error
    _hold_to_version(raw, name)
    try:
        lock = msgspec.convert(raw, Lock, strict=True)
    except msgspec.ValidationError as error:
        raise LockError(f"`{name}` is damaged: {_lowered(str(error))}", hint=_START_OVER) from error
    _hold_to_meaning(lock, name)
    return lock


def lock_place(text: str, model: str, path: str = "onnxgate.lock") -> Place:
    """The line of a model's table in the lock's text; no line where it has none."""
    return Place(path, nearest_line(key_lines(text), ("models", model)) if text else 0)


def _hold_to_version(raw: dict[str, Any], name: str) -> None:
    version = raw.get("version")
    if not isinstance(version, int):
        raise LockError(f"`{name}` is damaged: it has no `version`", hint=_START_OVER)
    if version > VERSION:
        raise LockError(f"`{name}` has version {version}; this onnxgate reads up to {VERSION}", hint="upgrade onnxgate")


def _hold_to_meaning(lock: Lock, name: str) -> None:
    problems = tuple(lock_problems(lock))
    if len(problems) == 1:
        raise LockError(f"`{name}` is damaged: {problems[0]}", hint=_RESTORE)
    if problems:
        more = (f"and {len(problems) - PROBLEMS_SAID} more",) if len(problems) > PROBLEMS_SAID else ()
        said = (*problems[:PROBLEMS_SAID], *more)
        raise LockError(f"`{name}` is damaged in {len(problems)} places", problems=said, hint=_RESTORE)


def _lowered(words: str) -> str:
    return words[:1].lower() + words[1:]
