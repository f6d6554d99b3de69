"""Where the config is: the nearest one upward, up to git's root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onnxgate.project.toml import TOMLDecodeError, decode, loads

CONFIG_NAME = "onnxgate.toml"
PYPROJECT = "pyproject.toml"


def find_config(start: Path) -> Path | None:
    """The nearest config of the folder `start` and those above it, up to git's root; None where there is none."""
    for folder in _folders_upward(start):
        if (folder / CONFIG_NAME).is_file():
            return folder / CONFIG_NAME
        if _has_config(folder / PYPROJECT):
            return folder / PYPROJECT
    return None


def find_git_root(folder: Path) -> Path | None:
    """Git's root: the nearest folder upward that has `.git`, which is a file in worktrees and submodules."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def _folders_upward(start: Path) -> Iterator[Path]:
    start = start.absolute()
    root = find_git_root(start)
    for folder in (start, *start.parents):
        yield folder
        if folder == root:
            return


def _has_config(path: Path) -> bool:
    """Whether a `pyproject.toml` has our table; one that cannot be read is ours where it names the table."""
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
