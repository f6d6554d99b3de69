"""Cache folder of the suite, and the Python of each release."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from filelock import FileLock
from packaging.version import Version
from uv import find_uv_bin

from onnxgate.core.files import cache_dir

PYTHON = "3.11"  # every release since 1.16.0 has a wheel for it
FIRST_WITH_NUMPY_2 = Version("1.19")
FOLDER = "ONNXGATE_CONFORMANCE_CACHE"
PYTHONS = "ONNXGATE_CONFORMANCE_PYTHONS"


def cache(default: Path | None = None) -> Path:
    """Return `ONNXGATE_CONFORMANCE_CACHE`, the default folder, or a folder in the cache of onnxgate."""
    named = os.environ.get(FOLDER)
    return Path(named).absolute() if named else default or cache_dir() / "conformance"


def python_of(release: str, cache: Path) -> Path:
    """Return an interpreter with the release; `ONNXGATE_CONFORMANCE_PYTHONS` may name a folder of them."""
    home = Path(os.environ.get(PYTHONS) or cache / "runtimes") / release
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if os.environ.get(PYTHONS):
        return python
    home.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(home.with_name(f"{release}.lock")):
        if not (home / "ready").exists():
            _install(release, home, python)
            (home / "ready").touch()
    return python


def _install(release: str, home: Path, python: Path) -> None:
    numpy = "numpy" if Version(release) >= FIRST_WITH_NUMPY_2 else "numpy<2"
    packages = ["--no-deps", "--only-binary", ":all:", f"onnxruntime=={release}", numpy]
    for words in (
        ["venv", "--quiet", "--clear", "--python", PYTHON, str(home)],
        ["pip", "install", "--quiet", "--python", str(python), *packages],
    ):
        subprocess.run([find_uv_bin(), *words], check=True, stdin=subprocess.DEVNULL)
