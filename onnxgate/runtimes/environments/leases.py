"""Leases on environments, which prevent other processes from removing an environment in use."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

import filelock
from filelock import BaseFileLock


class EnvironmentLeases:
    """Leases on the environments that this process uses. Thread-safe."""

    def __init__(self) -> None:
        self._leases: dict[Path, BaseFileLock] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def acquire(self, environment: Path) -> Iterator[None]:
        """Mark the environment as in use until `close`. If the block raises, the lease is released immediately.

        If the folder is not writable, no lease is needed, since no process can remove the environment.
        """
        with self._lock, contextlib.suppress(OSError):
            if environment not in self._leases:
                file = lease_folder(environment) / f"{secrets.token_hex(8)}.lock"
                file.parent.mkdir(parents=True, exist_ok=True)
                lease = filelock.FileLock(file, thread_local=False)  # another thread may release it
                lease.acquire(timeout=0)
                self._leases[environment] = lease
        try:
            yield
        except BaseException:
            with self._lock, contextlib.suppress(OSError, KeyError):
                _release_lease(self._leases.pop(environment))
                lease_folder(environment).rmdir()
            raise

    def close(self) -> None:
        """Release all leases. The time of last use remains stored on disk."""
        with self._lock:
            for lease in self._leases.values():
                _release_lease(lease)
            self._leases.clear()


def _release_lease(lease: BaseFileLock) -> None:
    lease.release()
    with contextlib.suppress(OSError):
        Path(lease.lock_file).unlink(missing_ok=True)


def lease_folder(environment: Path) -> Path:
    """Return the folder for leases on an environment. The environment was last used when the folder was modified."""
    return environment.with_name(f"{environment.name}.uses")


def is_in_use(environment: Path) -> bool:
    """Return whether a running process uses the environment; remove the leases of processes that have ended."""
    folder = lease_folder(environment)
    for file in sorted(folder.glob("*.lock")) if folder.is_dir() else ():
        lease = filelock.FileLock(file)
        try:
            lease.acquire(timeout=0)
        except filelock.Timeout:
            return True
        _release_lease(lease)
    return False
