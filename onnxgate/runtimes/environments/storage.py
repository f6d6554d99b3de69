"""Folders of locked environments and caches, and the marker file of a complete environment."""

from __future__ import annotations

import contextlib
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

from onnxgate.core.files import cache_dir, read_limited, remove_path, replace_atomically, sha256_of

ENVIRONMENTS = "environments"
"""Name of the environments folder in the cache."""
LAYOUT_VERSION = 2
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
    state: str  # digest of the sizes and modification times of all files
    content: str  # digest of their contents


class EnvironmentSlot(msgspec.Struct, frozen=True):
    """Folder of one environment.

    `attempts/<name>/` is one attempt to build the environment; `ready.json` names the attempt that succeeded. If a
    build process is killed, its children may continue to write, but only to an attempt that is never used.
    """

    folder: Path
    key: str
    program: str = ""  # program of a finished attempt, relative to its folder; "" for a Python interpreter

    def ready(self) -> Path | None:
        """Return the program of the environment; None if the environment is not complete, or its files have changed."""
        marker = self._read_marker()
        if marker is None:
            return None
        attempt = self.folder / "attempts" / marker.attempt
        try:
            state = _digest_files(attempt, read=False)
            if state != marker.state:  # a copied environment may have the same files at other times
                if _digest_files(attempt, read=True) != marker.content:
                    return None
                with contextlib.suppress(OSError):
                    self._write_marker(msgspec.structs.replace(marker, state=state))
        except OSError:
            return None
        program = self._program_of(attempt)
        return program if program.exists() else None

    @property
    def is_marked(self) -> bool:
        """Whether the environment was complete, although its files may have changed since."""
        return self._read_marker() is not None

    def build(self, build: BuildFunction) -> Path:
        """Build the environment in a new attempt and return its program. If it fails, remove all attempts."""
        self._clear()
        attempt = self.folder / "attempts" / secrets.token_hex(4)
        attempt.parent.mkdir(parents=True, exist_ok=True)
        try:
            build(attempt)
            digests = (_digest_files(attempt, read=read) for read in (False, True))
            self._write_marker(ReadyMarker(LAYOUT_VERSION, self.key, attempt.name, *digests))
        except BaseException:
            self._clear()
            raise
        return self._program_of(attempt)

    def distrust(self) -> None:
        """Remove the marker, so that the environment is rebuilt on its next use."""
        remove_path(self._ready)

    def _read_marker(self) -> ReadyMarker | None:
        try:
            marker = msgspec.json.decode(read_limited(self._ready, MAX_MARKER_BYTES), type=ReadyMarker)
        except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        is_ours = (marker.layout, marker.key) == (LAYOUT_VERSION, self.key) and _ATTEMPT_NAME.fullmatch(marker.attempt)
        return marker if is_ours else None

    def _write_marker(self, marker: ReadyMarker) -> None:
        with replace_atomically(self._ready) as scratch:
            scratch.write_bytes(msgspec.json.encode(marker))

    def _clear(self) -> None:
        """Remove the marker and all attempts, except for files that cannot be removed because they are in use."""
        self.distrust()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _program_of(self, attempt: Path) -> Path:
        return attempt / self.program if self.program else interpreter_of(attempt)

    @property
    def _ready(self) -> Path:
        return self.folder / "ready.json"


def _digest_files(folder: Path, *, read: bool) -> str:
    """Return a digest of the names of an environment's files with their sizes and times or, with `read`, contents.

    Tests of packages, which are many files, are not included. Times have a resolution of seconds, as in tar archives.
    """
    rows: list[tuple[str, object]] = []
    pending = [str(folder)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending += [entry.path] if entry.name != "tests" else []
                    continue
                status = entry.stat(follow_symlinks=False)
                state: object = (status.st_size, int(status.st_mtime))
                if read:
                    path = Path(entry.path)
                    state = str(path.readlink()) if entry.is_symlink() else sha256_of(path)
                rows.append((entry.path[len(str(folder)) :], state))
    return hashlib.sha256(repr(sorted(rows)).encode(errors="surrogateescape")).hexdigest()


def interpreter_of(environment: Path) -> Path:
    """Return the interpreter of an environment on this system."""
    return environment / "Scripts" / "python.exe" if os.name == "nt" else environment / "bin" / "python"


def site_packages_of(environment: Path) -> Path:
    """Return the folder of an environment's packages on this system."""
    folders = (environment / "Lib" / "site-packages", *environment.glob("lib/python3*/site-packages"))
    return next(folder for folder in folders if folder.is_dir())


def environment_slot(cache: Path, name: str, identity: Iterable[str], program: str = "") -> EnvironmentSlot:
    """Return the place of the environment `name` in the cache; its key depends on `identity` and this platform."""
    words = [f"layout {LAYOUT_VERSION}", sys.platform, platform.machine(), *identity]
    key = hashlib.sha256("\n".join(words).encode()).hexdigest()
    return EnvironmentSlot(cache / ENVIRONMENTS / f"{name}-{key[:12]}", key, program)
