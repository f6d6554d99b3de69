"""Which environments a running gate works with, told to whoever wants to remove them.

A gate holds a file of its own beside each environment, locked for as long as it lives, however it ends.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filelock import BaseFileLock


class Uses:
    """What this process works with. Safe for several threads."""

    def __init__(self) -> None:
        self._held: dict[Path, BaseFileLock] = {}
        self._lock = threading.Lock()

    def hold(self, environment: Path) -> None:
        """From now on it is in use; where nothing can be written, nobody else can remove it either."""
        import filelock

        with self._lock, contextlib.suppress(OSError):
            if environment in self._held:
                return
            place = folder_of(environment) / f"{secrets.token_hex(8)}.lock"
            place.parent.mkdir(parents=True, exist_ok=True)
            held = filelock.FileLock(place, thread_local=False)  # it is released by whichever thread ends the gate
            held.acquire(timeout=0)
            self._held[environment] = held

    def forget(self, environment: Path) -> None:
        """It could not be made; nothing of its use is left."""
        with self._lock, contextlib.suppress(OSError, KeyError):
            _release(self._held.pop(environment))
            folder_of(environment).rmdir()

    def close(self) -> None:
        """Nothing is in use any more; when it was used last is still to be seen."""
        with self._lock:
            for held in self._held.values():
                _release(held)
            self._held.clear()


def _release(held: BaseFileLock) -> None:
    held.release()
    with contextlib.suppress(OSError):
        Path(held.lock_file).unlink(missing_ok=True)


def folder_of(environment: Path) -> Path:
    """Where the files lie that say so; it changed when the environment was last used."""
    return environment.with_name(f"{environment.name}.uses")


def in_use(environment: Path) -> bool:
    """Whether a gate that lives holds it; what those left that do not is removed."""
    import filelock

    folder = folder_of(environment)
    for place in sorted(folder.glob("*.lock")) if folder.is_dir() else ():
        held = filelock.FileLock(place)
        try:
            held.acquire(timeout=0)
        except filelock.Timeout:
            return True
        held.release()
        with contextlib.suppress(OSError):
            place.unlink(missing_ok=True)
    return False
