"""Where locked environments lie, and which of them may be trusted."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import secrets
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

LAYOUT = 1
"""Counts changes of what a slot's folder holds; each makes new environments."""

KEPT_VARIABLE = "ONNXGATE_KEPT_DIR"


def cache_dir() -> Path:
    """`ONNXGATE_CACHE_DIR`, else the user's cache folder; it need not exist yet."""
    if chosen := os.environ.get("ONNXGATE_CACHE_DIR"):
        return Path(chosen).absolute()
    import platformdirs

    return platformdirs.user_cache_path("onnxgate", appauthor=False)


def support_dir() -> Path:
    """Where it is kept what builds say that they implement."""
    return cache_dir() / "support"


def inputs_dir() -> Path:
    """Where inputs are kept that show a finding."""
    return cache_dir() / "inputs"


def static_dir() -> Path:
    """Where it is kept what the static stages said of models that did not change."""
    return cache_dir() / "static"


def private_folder(folder: Path) -> Path | None:
    """A folder for answers that nobody else can write to, made where it is not there; None where it is another's."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return None
    if os.name != "nt" and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
        return None
    return folder


def costs_dir() -> Path:
    """Where it is kept what models cost, one file per content: folders of several machines can be laid together."""
    return (kept_dir() or cache_dir()) / "costs"


def kept_dir() -> Path | None:
    """`ONNXGATE_KEPT_DIR`: what other machines left for this one, of which nothing is believed but by its hash;
    but costs, which only balance."""
    named = os.environ.get(KEPT_VARIABLE)
    return Path(named).absolute() if named else None


def results_dir() -> Path:
    """Where results of earlier checks are."""
    return (kept_dir() or cache_dir()) / "results"


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What marks an environment as ready; it is written last, at once."""

    layout: int
    key: str
    attempt: str


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one environment.

    `attempts/<name>/` is one try to build it, made in place; `ready.json` says which try succeeded. A process that was
    killed may leave a child that still writes, but only into a try that nobody will ever trust.
    """

    folder: Path
    key: str
    program: str = ""  # what a finished try has, relative to its folder; "" for an interpreter of Python

    def program_of(self, attempt: Path) -> Path:
        """What a try is there for."""
        return attempt / self.program if self.program else interpreter_of(attempt)

    @property
    def lock(self) -> Path:
        """Held by whoever builds."""
        return self.folder.with_name(f"{self.folder.name}.lock")

    def ready(self) -> Path | None:
        """The program of the environment, where it was finished and still is there."""
        state = self._state()
        if state is None or state.layout != LAYOUT or state.key != self.key:
            return None
        program = self.program_of(self._attempts / state.attempt)
        return program if program.exists() else None

    def mark_ready(self, attempt: Path) -> None:
        """Make `attempt` the environment."""
        scratch = self._ready.with_suffix(f".{attempt.name}")
        scratch.write_bytes(msgspec.json.encode(State(LAYOUT, self.key, attempt.name)))
        scratch.replace(self._ready)

    def distrust(self) -> None:
        """Have it built anew by whoever needs it next."""
        if self._ready.is_dir() and not self._ready.is_symlink():
            shutil.rmtree(self._ready, ignore_errors=True)
        else:
            self._ready.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all that is there, as far as no other process still writes."""
        self.distrust()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def attempt(self) -> Iterator[Path]:
        """A path for a new try; nothing is left of it where the try raises."""
        self._attempts.mkdir(parents=True, exist_ok=True)
        path = self._attempts / secrets.token_hex(4)
        try:
            yield path
        except BaseException:
            self.clear()
            raise

    @property
    def _attempts(self) -> Path:
        return self.folder / "attempts"

    @property
    def _ready(self) -> Path:
        return self.folder / "ready.json"

    def _state(self) -> State | None:
        try:
            return msgspec.json.decode(self._ready.read_bytes(), type=State)
        except (OSError, msgspec.MsgspecError):
            return None


def interpreter_of(environment: Path) -> Path:
    """Where an environment of this system has its interpreter."""
    return environment / "Scripts" / "python.exe" if os.name == "nt" else environment / "bin" / "python"


def slot(cache: Path, name: str, identity: Iterable[str], program: str = "") -> Slot:
    """The place of the environment called `name`, which is `identity` and nothing else."""
    words = [f"layout {LAYOUT}", sys.platform, platform.machine(), *identity]
    key = hashlib.sha256("\n".join(words).encode()).hexdigest()
    return Slot(cache / "environments" / f"{name}-{key[:12]}", key, program)
