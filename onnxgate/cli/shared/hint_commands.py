"""Adapt the commands in hints and fixes, which are written for the project folder, to the working directory."""

from __future__ import annotations

import os
import re
import shlex
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

_COMMAND = re.compile(r"`((?:onnxgate|git|ls) [^`]+)`")
_PROJECT_COMMANDS = frozenset({"check", "export", "fix", "lock", "matrix", "plan"})
"""Subcommands of onnxgate that depend on the working directory, through their paths or their project."""
_PLACEHOLDERS = frozenset({"FILE", "MODEL", "PATH"})
_OWN_FOLDER_OPTIONS = frozenset({"--directory", "--config"})


class CommandFolder(NamedTuple):
    """The folder for which commands are written, and its config, or None if there is no project."""

    folder: Path
    config: Path | None = None


_command_folder: ContextVar[CommandFolder | None] = ContextVar("_command_folder", default=None)


def set_command_folder(folder: Path, config: Path | None = None) -> None:
    """Record the folder for which the commands in the following output are written."""
    _command_folder.set(CommandFolder(folder.resolve(), config.absolute() if config is not None else None))


def localize_commands(text: str) -> str:
    """Return the text with the commands in backticks adapted to the working directory."""
    base = _command_folder.get()
    if base is None:
        return text
    return _COMMAND.sub(lambda code: f"`{localize_command(code[1])}`", text)


def localize_command(command: str) -> str:
    """Return the command adapted to the working directory."""
    base = _command_folder.get()
    try:
        words, current = shlex.split(command), Path.cwd().resolve()
    except (ValueError, OSError):  # not a complete command, or the working directory was removed
        return command
    if base is None or len(words) < 2:
        return command
    directory = _relative_folder(base.folder, current)
    match words[0]:
        case "git":
            return _localize_git(command, words, base.folder, current, directory)
        case "ls":
            path = Path(directory, words[-1]).as_posix()
            return shlex.join([*words[:-1], path]) if directory else command
        case _:
            return _localize_onnxgate(command, words, base, current, directory)


def _relative_folder(folder: Path, current: Path) -> str:
    """Return the relative path if one folder contains the other, otherwise the absolute path; "" if equal."""
    if folder == current:
        return ""
    if folder.is_relative_to(current) or current.is_relative_to(folder):
        return Path(os.path.relpath(folder, current)).as_posix()
    return folder.as_posix()


def _localize_git(command: str, words: list[str], folder: Path, current: Path, directory: str) -> str:
    """Add `-C` if the git command contains paths or the current folder is outside the repository."""
    from onnxgate.project.git.repository import find_git_root  # slow to import: only for errors and reports

    root = find_git_root(folder)
    has_paths = "--" in words or (words[1] == "add" and words[2:])
    is_inside = root is not None and current.is_relative_to(root)
    if not directory or words[1] == "-C" or words == ["git", "add"] or (is_inside and not has_paths):
        return command
    return f"git -C {shlex.quote(directory)} {command.removeprefix('git ')}"


def _localize_onnxgate(command: str, words: list[str], base: CommandFolder, current: Path, directory: str) -> str:
    """Add `--directory` and `--config`, unless the command finds the project without them."""
    from onnxgate.project.config.loader import find_config  # slow to import: only for errors and reports

    options = {word.partition("=")[0] for word in words}
    if words[1] not in _PROJECT_COMMANDS or options & _OWN_FOLDER_OPTIONS or options & _PLACEHOLDERS:
        return command
    has_paths = any(not word.startswith("-") for word in words[2:])
    finds_config = base.config is not None and not has_paths and find_config(current) == base.config
    added = [] if not directory or finds_config else ["--directory", directory]
    if base.config is not None and find_config(base.folder) != base.folder / base.config.name:
        added += ["--config", Path(directory, base.config.name).as_posix()]
    return " ".join([command, *map(shlex.quote, added)])
