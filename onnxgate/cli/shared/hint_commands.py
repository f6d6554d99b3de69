"""The folder in which commands in hints and fixes must be run, if it is not the working directory."""

from __future__ import annotations

import os
import re
import shlex
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

_COMMAND = re.compile(r"`(?:onnxgate (?!explain)|git |ls )[^`]+`")
"""Matches a command in a hint or fix whose paths or project depend on the working directory."""


class CommandFolder(NamedTuple):
    """The folder in which printed commands must be run, and the config of its project (None if there is no project)."""

    folder: Path
    config: Path | None = None


_command_folder: ContextVar[CommandFolder | None] = ContextVar("_command_folder", default=None)


def set_command_folder(folder: Path, config: Path | None = None) -> None:
    """Record the folder in which the commands in hints and fixes must be run, for all output that follows."""
    _command_folder.set(CommandFolder(folder.resolve(), config.absolute() if config is not None else None))


def prefix_command_folder(advice: str) -> str:
    """Return a hint or fix that starts with the folder and the `--config` option that its commands require, if any."""
    place = _describe_place(advice)
    return f"{place}, {advice}" if place else advice


def append_command_folder(line: str) -> str:
    """Return a line that ends with the folder and the `--config` option that its commands require, if any."""
    place = _describe_place(line)
    return f"{line} ({place})" if place else line


def _describe_place(text: str) -> str:
    base = _command_folder.get()
    if base is None or not _COMMAND.search(text):
        return ""
    directory = _relative_folder(base.folder)
    added = [f"in the folder `{directory}`"] if directory else []
    if base.config is not None and "`onnxgate " in text and not _is_default_config(base.config):
        added.append(f"with `--config {shlex.quote(base.config.name)}`")
    return " ".join(added)


def _relative_folder(folder: Path) -> str:
    """Return a folder's path: "" for the current folder, relative if it is above or below that, otherwise absolute."""
    try:
        current = Path.cwd().resolve()
    except OSError:  # the working directory was removed
        return folder.as_posix()
    if folder == current:
        return ""
    if folder.is_relative_to(current) or current.is_relative_to(folder):
        return Path(os.path.relpath(folder, current)).as_posix()
    return folder.as_posix()


def _is_default_config(config: Path) -> bool:
    """Return whether onnxgate finds this config without `--config` if it is run in the folder of the config."""
    from onnxgate.project.config.loader import find_config  # slow to import: only for errors and reports

    return find_config(config.parent) == config
