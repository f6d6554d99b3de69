"""Child processes: started in a group of their own, read without blocking, and ended as a group with this process."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

LINE_LIMIT_BYTES = 16 * 2**20
LOG_LIMIT_BYTES = 64 * 2**10
QUEUED_LINES_LIMIT = 64
REAP_TIMEOUT_S = 10
LOG_GRACE_S = 2


def start_in_group(
    argv: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a program in a process group of its own, with three pipes.

    Raises:
        OSError: the program cannot be started.
    """
    return subprocess.Popen(
        argv,
        env=environment,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=os.name != "nt",
        creationflags=_group_creation_flags(),
    )


def _group_creation_flags() -> int:
    if sys.platform == "win32":
        return subprocess.CREATE_NEW_PROCESS_GROUP
    return 0


def end_group(process: subprocess.Popen[bytes]) -> int:
    """Kill the program with its whole group, and return its status."""
    if sys.platform == "win32":
        tree = ["taskkill", "/T", "/F", "/PID", str(process.pid)]
        subprocess.run(tree, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    elif process.returncode is None:  # once reaped, the number may belong to another process
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait(REAP_TIMEOUT_S)


def describe_exit_status(status: int) -> str:
    """Return the exit status as text: `SIGSEGV`, or `exit status 3`."""
    if status >= 0:
        return f"exit status {status:#x}" if status > 0xFFFF else f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


class LineTooLongError(Exception):
    """A line is longer than any that a worker writes."""


class WorkerProcess:
    """One worker process and the three pipes to it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._lines: queue.Queue[bytes | None] = queue.Queue(QUEUED_LINES_LIMIT)
        self._log = bytearray()
        self._log_lock = threading.Lock()
        self._ended = threading.Event()
        self._silent = threading.Event()
        self._log_reader = _start_thread(self._read_log)
        _start_thread(self._read_lines)

    @property
    def alive(self) -> bool:
        """True unless the process is known to have ended."""
        return not self._ended.is_set() and not self._silent.is_set()

    def send(self, line: bytes) -> None:
        """Write a line in the background: a worker that does not read must not block this process."""
        _start_thread(lambda: self._write(line + b"\n"))

    def receive(self, timeout_s: float) -> bytes | None:
        """Return the next line, None at the end of all lines.

        Raises:
            TimeoutError: no line arrived in time.
            LineTooLongError: the line is longer than allowed.
        """
        try:
            line = self._lines.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            raise TimeoutError from None
        if line is not None and not line.endswith(b"\n"):
            raise LineTooLongError
        return line

    def end(self) -> int:
        """Kill the process and all that it started; return its exit status, negative for a signal."""
        self._ended.set()
        status = end_group(self._process)
        self._wake_listener()
        self._log_reader.join(LOG_GRACE_S)
        with contextlib.suppress(OSError, ValueError):
            _require_pipe(self._process.stdin).close()
        return status

    def forget_log(self) -> None:
        """Drop what earlier jobs printed."""
        with self._log_lock:
            self._log.clear()

    def log(self) -> str:
        """Return the tail of the log since the last `forget_log`."""
        with self._log_lock:
            return self._log.decode("utf-8", "replace")

    def _wake_listener(self) -> None:
        while True:
            try:
                return self._lines.put_nowait(None)
            except queue.Full:
                with contextlib.suppress(queue.Empty):
                    self._lines.get_nowait()

    def _write(self, data: bytes) -> None:
        stdin = _require_pipe(self._process.stdin)
        with contextlib.suppress(OSError, ValueError):  # it died: the end of its lines shows that
            stdin.write(data)
            stdin.flush()

    def _read_lines(self) -> None:
        with _require_pipe(self._process.stdout) as stdout:
            for line in _read_complete_lines(stdout):
                if not self._hand_over(line):
                    return
        self._silent.set()
        self._hand_over(None)

    def _hand_over(self, line: bytes | None) -> bool:
        """Queue a line. False if the worker was ended, so that nothing reads its lines."""
        while not self._ended.is_set():
            with contextlib.suppress(queue.Full):
                self._lines.put(line, timeout=0.2)
                return True
        return False

    def _read_log(self) -> None:
        with _require_pipe(self._process.stderr) as stderr:
            while chunk := os.read(stderr.fileno(), 2**16):
                with self._log_lock:
                    self._log += chunk
                    del self._log[:-LOG_LIMIT_BYTES]


def _require_pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # `start_in_group` opens all three
    return stream


def _read_complete_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield complete lines; a line that is too long is cut off and is the last. An unfinished last line is dropped."""
    while line := stream.readline(LINE_LIMIT_BYTES):
        if line.endswith(b"\n"):
            yield line
        elif len(line) == LINE_LIMIT_BYTES:
            yield line
            return


def _start_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


SHELL = "/bin/sh"
# This process keeps the write end of a pipe open and never writes to it, so the pipe closes when this process ends. A
# guard process that runs with the program waits for that; it closes all its other pipes, to keep none of them open.
_GUARD_SCRIPT = '(exec </dev/fd/"$0" >/dev/null 2>&1; read -r _; kill -KILL 0) & exec "$@"'

_guard_pipes: dict[int, tuple[int, int]] = {}  # by process id: a forked process opens its own
_guard_pipes_lock = threading.Lock()


def start_supervised(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    stdin: int = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Start a program in a group of its own; call `release_supervised` when it has ended.

    Raises:
        OSError: the program cannot be started.
    """
    guarded = sys.platform != "win32" and Path(SHELL).exists()
    if guarded:
        _check_executable(argv[0], folder)
    return subprocess.Popen(
        [SHELL, "-c", _GUARD_SCRIPT, str(_guard_pipe()), *argv] if guarded else argv,
        env=environment,
        cwd=folder,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        pass_fds=(_guard_pipe(),) if guarded else (),
        start_new_session=sys.platform != "win32",
        creationflags=_group_creation_flags(),
    )


def release_supervised(process: subprocess.Popen[bytes]) -> None:
    """Kill the rest of the program's group: the guard, and processes that the program did not wait for."""
    if sys.platform != "win32" and _is_guarded(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _is_guarded(process: subprocess.Popen[bytes]) -> bool:
    """Return whether its process group still has its id: without a guard, the id is free once the program has ended."""
    return process.returncode is None or (isinstance(process.args, list) and process.args[:1] == [SHELL])


def run_supervised(
    argv: Sequence[str],
    *,
    input: bytes = b"",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    timeout_s: float | None = None,
    stdout: int = subprocess.PIPE,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end; any exception meanwhile kills it.

    Raises:
        OSError: the program cannot be started.
        subprocess.TimeoutExpired: the program exceeded the time limit.
    """
    with start_supervised(argv, environment=environment, folder=folder, stdout=stdout) as process:
        try:
            out, err = process.communicate(input, timeout=timeout_s)
        finally:
            release_supervised(process)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def _check_executable(program: str, folder: Path | None) -> None:
    """Raise the `OSError` that starting the program would raise: a shell would only print it."""
    if os.sep in program:
        found = Path(folder or "", program)
        if found.exists() and not os.access(found, os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), program)
        if found.exists():
            return
    elif shutil.which(program) is not None:
        return
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)


def _guard_pipe() -> int:
    """Return the read end; the write end stays open as long as this process runs."""
    with _guard_pipes_lock:
        return _guard_pipes.setdefault(os.getpid(), _guard_pipes.get(os.getpid()) or os.pipe())[0]
