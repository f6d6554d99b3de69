"""One environment per release, created by uv and reused by later harvests."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import uv

ROOT = Path(os.environ.get("HARVEST_TEXTS_DIR", Path(tempfile.gettempdir()) / "harvest-texts"))
"""Folder of the environments."""
QUIET = {
    "PATH": os.environ.get("PATH", ""),
    "HOME": os.environ.get("HOME", ""),
    "LANG": "C.UTF-8",
    "NO_COLOR": "1",
    "COLUMNS": "400",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""Environment variables for child processes, without the settings of the current user."""


def environment(name: str, python: str, *requirements: str, deps: bool = False) -> Path:
    """Return the interpreter of an environment with these requirements; create the environment if it does not exist."""
    folder = ROOT / f"{name}-py{python}"
    interpreter = folder / "bin" / "python"
    if not (folder / ".ready").is_file():
        _uv("venv", "--clear", "--python", python, str(folder))
        if requirements:
            flags = [] if deps else ["--no-deps"]
            _uv("pip", "install", "--python", str(interpreter), *flags, *requirements)
        (folder / ".ready").write_text("")
    return interpreter


def _uv(*arguments: str) -> None:
    subprocess.run([uv.find_uv_bin(), "--quiet", *arguments], check=True)


def said(command: list[str | Path], folder: Path, **environment: str) -> str:
    """Run a command and return its standard output and standard error, interleaved."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**QUIET, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=600,
    )
    return done.stdout.decode(errors="replace")
