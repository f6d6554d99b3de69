"""Folders of locked environments and caches, and the marker file of a complete environment."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from onnxgate.core.files import cache_dir, read_limited, remove_path, replace_atomically

ENVIRONMENTS = "environments"
"""Name of the environments folder in the cache."""
LAYOUT_VERSION = 1
"""Version of the folder layout; after a change, all environments are created again."""

SHARED_CACHE_VARIABLE = "ONNXGATE_KEPT_DIR"


def support_dir() -> Path:
    """Return the folder of cached support tables, one for each engine build."""
    return cache_dir() / "support"


def inputs_dir() -> Path:
    """Return the folder of saved inputs that reproduce findings."""
    return cache_dir() / "inputs"


def static_dir() -> Path:
    """Return the folder of cached results of the static stages."""
    return cache_dir() / "static"


def create_private_folder(folder: Path) -> Path | None:
    """Create a folder that only this user can write to. Return None if that fails, or if others can write to it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    is_private = os.name == "nt" or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)
    return folder if stat.S_ISDIR(status.st_mode) and is_private else None


def costs_dir() -> Path:
    """Return the folder of measured costs. Its files are named after model digests, so folders can be merged."""
    return (shared_cache_dir() or cache_dir()) / "costs"


def shared_cache_dir() -> Path | None:
    """Return the cache folder shared between machines, which `ONNXGATE_KEPT_DIR` sets; None if it is not set.

    Its content is verified by hash, except for costs, which only affect how models are assigned to shards.
    """
    named = os.environ.get(SHARED_CACHE_VARIABLE)
    return Path(named).absolute() if named else None


def results_dir() -> Path:
    """Return the folder of cached results."""
    return (shared_cache_dir() or cache_dir()) / "results"


BuildFunction = Callable[[Path], None]
"""Function that creates an environment in a folder that does not exist yet. Raises `UnavailableError`."""


MAX_MARKER_BYTES = 4096
_ATTEMPT_NAME = re.compile("[0-9a-f]{8}")


class ReadyMarker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Marker file of a complete environment. It is written last and atomically."""

    layout: int
    key: str
    attempt: str


class EnvironmentSlot(msgspec.Struct, frozen=True):
    """Folder of one environment.

    `attempts/<name>/` is one attempt to build the environment; `ready.json` names the attempt that succeeded. If a
    build process is killed, its children may continue to write, but only to an attempt that is never used.
    """

    folder: Path
    key: str
    program: str = ""  # program of a finished attempt, relative to its folder; "" for a Python interpreter

    def ready(self) -> Path | None:
        """Return the program of the environment; None if the environment is not complete."""
        try:
            marker = msgspec.json.decode(read_limited(self._ready, MAX_MARKER_BYTES), type=ReadyMarker)
        except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        if not _ATTEMPT_NAME.fullmatch(marker.attempt):
            return None
        program = self._program_of(self.folder / "attempts" / marker.attempt)
        return program if (marker.layout, marker.key) == (LAYOUT_VERSION, self.key) and program.exists() else None

    def build(self, build: BuildFunction) -> Path:
        """Build the environment in a new attempt and return its program. If it fails, remove all attempts."""
        self._clear()
        attempt = self.folder / "attempts" / secrets.token_hex(4)
        attempt.parent.mkdir(parents=True, exist_ok=True)
        try:
            build(attempt)
            with replace_atomically(self._ready) as scratch:
                scratch.write_bytes(msgspec.json.encode(ReadyMarker(LAYOUT_VERSION, self.key, attempt.name)))
        except BaseException:
            self._clear()
            raise
        return self._program_of(attempt)

    def distrust(self) -> None:
        """Remove the marker, so that the environment is rebuilt on its next use."""
        remove_path(self._ready)

    def _clear(self) -> None:
        """Remove the marker and all attempts, except for files that cannot be removed because they are in use."""
        self.distrust()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _program_of(self, attempt: Path) -> Path:
        return attempt / self.program if self.program else interpreter_of(attempt)

    @property
    def _ready(self) -> Path:
        return self.folder / "ready.json"


def interpreter_of(environment: Path) -> Path:
    """Return the interpreter of an environment on this system."""
    return environment / "Scripts" / "python.exe" if os.name == "nt" else environment / "bin" / "python"


def base_interpreter_of(environment: Path) -> Path:
    """Return the interpreter that uv created an environment from.

    Raises:
        OSError: the environment is incomplete.
    """
    if os.name != "nt":
        return interpreter_of(environment).parent / interpreter_of(environment).readlink()
    settings = (environment / "pyvenv.cfg").read_text(encoding="utf-8")
    home = next((line.partition("=")[2].strip() for line in settings.splitlines() if line.startswith("home ")), "")
    return Path(home, "python.exe")


def site_packages_of(environment: Path) -> Path:
    """Return the folder of an environment's packages on this system."""
    folders = (environment / "Lib" / "site-packages", *environment.glob("lib/python3*/site-packages"))
    return next(folder for folder in folders if folder.is_dir())


def environment_slot(cache: Path, name: str, identity: Iterable[str], program: str = "") -> EnvironmentSlot:
    """Return the place of the environment `name` in the cache; its key depends on `identity` and this platform."""
    words = [f"layout {LAYOUT_VERSION}", sys.platform, platform.machine(), *identity]
    key = hashlib.sha256("\n".join(words).encode()).hexdigest()
    return EnvironmentSlot(cache / ENVIRONMENTS / f"{name}-{key[:12]}", key, program)
