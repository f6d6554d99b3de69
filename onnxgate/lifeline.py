"""Programs that end when we do, whatever ends us: they, and all that they start in their group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

SHELL = "/bin/sh"
# A pipe of which we hold the end that is written to, and never write: it is at its end once we are gone. Who waits for
# that is a process beside the program, with nothing but the pipe, so that it keeps no other one open.
_GUARD = '(exec </dev/fd/"$0" >/dev/null 2>&1; read -r _; kill -KILL 0) & exec "$@"'

_pipes: dict[int, tuple[int, int]] = {}  # by process: one that was forked makes its own
_making = threading.Lock()


def start(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    stdin: int = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Start a program in a group of its own; `release` it when it has ended.

    Raises:
        OSError: it cannot be started.
    """
    guarded = sys.platform != "win32" and Path(SHELL).exists()
    if guarded:
        _see(argv[0], folder)
    return subprocess.Popen(
        [SHELL, "-c", _GUARD, str(_pipe()), *argv] if guarded else argv,
        env=environment,
        cwd=folder,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        pass_fds=(_pipe(),) if guarded else (),
        start_new_session=sys.platform != "win32",
        creationflags=_creation_flags(),
    )


def _creation_flags() -> int:
    if sys.platform == "win32":
        return subprocess.CREATE_NEW_PROCESS_GROUP
    return 0


def release(process: subprocess.Popen[bytes]) -> None:
    """End what is left of its group: the guard, and what the program did not wait for."""
    if sys.platform != "win32" and _is_guarded(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _is_guarded(process: subprocess.Popen[bytes]) -> bool:
    """Without a guard nobody holds its number once it has ended."""
    return process.returncode is None or (isinstance(process.args, list) and process.args[:1] == [SHELL])


def run(
    argv: Sequence[str],
    *,
    input: bytes = b"",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    timeout_s: float | None = None,
    stdout: int = subprocess.PIPE,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end; whatever is raised meanwhile ends it.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it took too long.
    """
    with start(argv, environment=environment, folder=folder, stdout=stdout) as process:
        try:
            out, err = process.communicate(input, timeout=timeout_s)
        finally:
            release(process)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def _see(program: str, folder: Path | None) -> None:
    """Raise what starting it would raise: a shell would only say it."""
    import errno
    import shutil

    if os.sep in program:
        found = Path(folder or "", program)
        if found.exists() and not os.access(found, os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), program)
        if found.exists():
            return
    elif shutil.which(program) is not None:
        return
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)


def _pipe() -> int:
    """The end that is read from; the other one stays open for as long as we live."""
    with _making:
        return _pipes.setdefault(os.getpid(), _pipes.get(os.getpid()) or os.pipe())[0]
