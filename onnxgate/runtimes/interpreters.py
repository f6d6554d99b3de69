"""Finding an interpreter of a given minor version."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from onnxgate.errors import UnavailableError
from onnxgate.runtimes.commands import Commands

PATH_VARIABLE = "ONNXGATE_PYTHON_PATH"
PROBE_TIMEOUT_S = 30
DOWNLOAD_TIMEOUT_S = 600
# CPython with its interpreter lock, and 64 bits: what engines publish wheels for.
_PROBE = """
import platform, sys, sysconfig
usual = platform.python_implementation() == "CPython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
print("%d.%d" % sys.version_info[:2] if usual and sys.maxsize > 2**32 else "unusual")
"""
_WHERE = "import sys; print(sys.executable)"


def find_interpreter(minor: str, commands: Commands, *, offline: bool) -> Path:
    """A CPython of that minor version ("3.11").

    Raises:
        UnavailableError: there is none here, and uv's settings, or being offline, let none be fetched.
    """
    for candidate in _candidates(minor, commands, offline):
        if _minor(candidate, commands) == minor:
            return candidate
    raise UnavailableError(
        f"no Python {minor} was found here",
        hint=f"run `uv python install {minor}`, or name its folder in `{PATH_VARIABLE}`",
    )


def _candidates(minor: str, commands: Commands, offline: bool) -> Iterator[Path]:
    """The cheapest and the most explicit first; uv fetches one only where nothing else is left."""
    yield from _named(minor)
    yield from _answer(commands.uv(["python", "find", "--no-project", "--system", minor], timeout_s=PROBE_TIMEOUT_S))
    if minor == f"{sys.version_info[0]}.{sys.version_info[1]}":
        yield Path(sys.executable)
    if not offline:
        fetch = ["run", "--quiet", "--no-project", "--python", minor, "python", "-I", "-c", _WHERE]
        yield from _answer(commands.uv(fetch, timeout_s=DOWNLOAD_TIMEOUT_S))


def _answer(ended: tuple[int, str, str]) -> Iterator[Path]:
    status, out, _ = ended
    if status == 0 and out.strip():
        yield Path(out.strip().splitlines()[-1])


def _named(minor: str) -> Iterator[Path]:
    for entry in os.environ.get(PATH_VARIABLE, "").split(os.pathsep):
        if entry:
            yield from _within(Path(entry), minor)


def _within(path: Path, minor: str) -> Iterator[Path]:
    """An executable itself; or those of a folder of programs, of one installation, or of many."""
    if path.is_file():
        yield path
    names = (f"python{minor}", f"python{minor}.exe", "python", "python.exe")
    for pattern in ("{}", "bin/{}", "*/bin/{}", "*/{}"):
        for name in names:
            yield from (found for found in sorted(path.glob(pattern.format(name))) if found.is_file())


def _minor(interpreter: Path, commands: Commands) -> str:
    status, out, _ = commands.run([str(interpreter), "-I", "-c", _PROBE], timeout_s=PROBE_TIMEOUT_S)
    return out.strip() if status == 0 else ""
