"""The most similar tools on PyPI, in their own environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from uv import find_uv_bin

REQUIREMENTS = ("onnx-doctor==0.2.0", "polygraphy==0.53.6", "onnx-graphsurgeon", "onnxruntime==1.31.1", "onnx==1.23.2")
"""Polygraphy's lint runs each node under ONNX Runtime."""


class NotInstallableError(Exception):
    """The tools cannot be installed on this machine."""


def environment(folder: Path) -> Path:
    """Return the folder with the programs of the tools; uv creates the environment if it is missing.

    Raises:
        NotInstallableError: uv failed, for example without a package index.
    """
    home = folder / "peers"
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    if not (home / "complete").is_file():
        _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(home))
        _uv("pip", "install", "--quiet", "--python", str(programs / "python"), *REQUIREMENTS)
        _uv("pip", "install", "--quiet", "--python", str(programs / "python"), "--compile-bytecode", *REQUIREMENTS)
        (home / "complete").touch()
    return programs


def _uv(*arguments: str) -> None:
    try:
        subprocess.run([find_uv_bin(), *arguments], check=True, stdin=subprocess.DEVNULL)
    except subprocess.CalledProcessError as error:
        raise NotInstallableError(f"uv exited with {error.returncode}") from error
