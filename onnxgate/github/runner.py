"""The interface to GitHub's runner: annotations, outputs, files of other jobs. Imports only the standard library."""

from __future__ import annotations

import io
import os
import sys
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.core.escape import escape_command_data, escape_command_property, escape_unprintable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def annotate(level: str, *lines: str, file: str = "", line: int = 0) -> None:
    """Print a GitHub annotation, on a line of a file if one is given. All values may contain untrusted text."""
    text = "\n".join(escape_unprintable(line) for line in lines)
    values = {"file": file, "line": str(line) if file and line else "", "title": "onnxgate"}
    properties = ",".join(f"{name}={escape_command_property(value)}" for name, value in values.items() if value)
    print(f"::{level} {properties}::{escape_command_data(text)}", flush=True)


def write_outputs(path: Path, *values: DataclassInstance) -> None:
    """Append outputs to GitHub's output file. Random delimiters prevent a value from setting other outputs."""
    with path.open("a", encoding="utf-8", newline="\n") as file:
        for name, value in (item for output_set in values for item in asdict(output_set).items()):
            delimiter = f"onnxgate_{uuid.uuid4()}"
            file.write(f"{name.replace('_', '-')}<<{delimiter}\n{value}\n{delimiter}\n")


def use_utf8_output() -> None:
    """Make Python write the log in UTF-8, regardless of the system's encoding."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def run_url(environment: Mapping[str, str]) -> str:
    """Return the address of the current workflow run; "" if it is unknown."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    server, repository, run = (environment.get(name, "") for name in names)
    return f"{server}/{repository}/actions/runs/{run}" if server and repository and run else ""


def read_artifact(path: str, limit_bytes: int) -> bytes:
    """Read a file that another job uploaded, and which is therefore untrusted.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
        ValueError: the file is too large.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise ValueError(f"it has more than {limit_bytes} bytes")
    return content
