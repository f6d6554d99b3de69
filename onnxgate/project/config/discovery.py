"""Find the config: the nearest one upward, up to git's root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onnxgate.project.toml import TOMLDecodeError, decode, loads

CONFIG_NAME = "onnxgate.toml"
PYPROJECT = "pyproject.toml"


def find_config(start: Path) -> Path | None:
    """Return the nearest config in the folder `start` or above it, up to git's root; None if there is none."""
    for folder in _folders_upward(start):
        if (folder / CONFIG_NAME).is_file():
            return folder / CONFIG_NAME
        if _has_config(folder / PYPROJECT):
            return folder / PYPROJECT
    return None


def find_git_root(folder: Path) -> Path | None:
    """Return git's root: the nearest folder upward that has `.git`, which is a file in worktrees and submodules."""
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)


def _folders_upward(start: Path) -> Iterator[Path]:
    start = start.absolute()
    root = find_git_root(start)
    for folder in (start, *start.parents):
        yield folder
        if folder == root:
            return


def _has_config(path: Path) -> bool:
    """Return whether a `pyproject.toml` has a table for onnxgate; an invalid file has one if it names the table."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    if b"onnxgate" not in data:
        return False
    try:
        tool = loads(decode(data)).get("tool", {})
    except (TOMLDecodeError, UnicodeDecodeError):
        return b"[tool.onnxgate" in data
    return isinstance(tool, dict) and "onnxgate" in tool
