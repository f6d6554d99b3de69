"""The nearest peers from PyPI, in an environment of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from uv import find_uv_bin

REQUIREMENTS = ("onnx-doctor==0.2.0", "polygraphy==0.53.6", "onnx-graphsurgeon", "onnxruntime==1.31.1", "onnx==1.23.2")
"""Polygraphy's lint runs each node under ONNX Runtime."""


def environment(folder: Path) -> Path:
    """The folder of the peers' programs; made by uv where it is not there yet."""
    home = folder / "peers"
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    if not (home / "complete").is_file():
        _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(home))
        _uv("pip", "install", "--quiet", "--python", str(programs / "python"), *REQUIREMENTS)
        _uv("pip", "install", "--quiet", "--python", str(programs / "python"), "--compile-bytecode", *REQUIREMENTS)
        (home / "complete").touch()
    return programs


def _uv(*arguments: str) -> None:
    subprocess.run([find_uv_bin(), *arguments], check=True, stdin=subprocess.DEVNULL)
