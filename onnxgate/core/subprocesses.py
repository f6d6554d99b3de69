"""Child processes that have a time limit and end together with all processes that they started."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, NamedTuple

from onnxgate.core.errors import UnavailableError
from onnxgate.core.files import create_process_folder

LINE_LIMIT_BYTES = 16 * 2**20
LOG_LIMIT_BYTES = 64 * 2**10
QUEUED_LINES_LIMIT = 64
REAP_TIMEOUT_S = 10
LOG_GRACE_S = 2
SHELL = "/bin/sh"
# This process keeps the write end of a pipe open and never writes to it, so the pipe closes when this process ends. A
# guard process next to the program waits for that. The guard has closed its copies of the program's own pipes.
_GUARD_SCRIPT = '(exec </dev/fd/"$0" >/dev/null 2>&1; read -r _; kill -KILL 0) & exec "$@"'

_guard_pipes: dict[int, tuple[int, int]] = {}  # process ID -> pipe; a forked process opens its own
_guard_pipes_lock = threading.Lock()


_SET_DUMPABLE = 4  # Source: linux/prctl.h


def deny_inspection() -> None:
    """Deny processes of the same user to read this process's environment, descriptors and memory. Linux only.

    Root is not restricted. Programs that this process starts can be inspected.
    """
    set_process_option(_SET_DUMPABLE, 0)


def set_process_option(option: int, argument: int) -> None:
    """Call `prctl` on Linux."""
    if sys.platform.startswith("linux"):
        import ctypes  # not at the top: few processes need it

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, *(ctypes.c_ulong(value) for value in (argument, 0, 0, 0)))


def start_program(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    bound: Literal["guard", "group", "nothing"] = "guard",
) -> subprocess.Popen[bytes]:
    """Start a program with a pipe as its standard input.

    With `bound="group"`, the program leads its own process group. With "guard" (the default), that group also ends when
    this process is killed; call `release_supervised` after the program has ended. With "nothing", the program stays in
    the group of this process and receives signals from its terminal.

    Raises:
        OSError: the program cannot be started.
    """
    guarded = bound == "guard" and sys.platform != "win32" and Path(SHELL).exists()
    if guarded:
        _check_executable(argv[0], folder)
    return subprocess.Popen(
        [SHELL, "-c", _GUARD_SCRIPT, str(_guard_pipe()), *argv] if guarded else argv,
        env=environment,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        pass_fds=(_guard_pipe(),) if guarded else (),
        start_new_session=bound != "nothing" and sys.platform != "win32",
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) if bound != "nothing" else 0,
    )


def _check_executable(program: str, folder: Path | None) -> None:
    """Raise the `OSError` that would be raised without the shell, which only prints it."""
    if os.sep in program:
        path = Path(folder or "", program)
        if path.exists() and not os.access(path, os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), program)
        if path.exists():
            return
    elif shutil.which(program) is not None:
        return
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)


def _guard_pipe() -> int:
    """Return the read end of a pipe whose write end stays open until this process ends."""
    with _guard_pipes_lock:
        return _guard_pipes.setdefault(os.getpid(), _guard_pipes.get(os.getpid()) or os.pipe())[0]


def end_group(process: subprocess.Popen[bytes]) -> int:
    """Kill a program and its process group. Return the program's exit status."""
    if sys.platform == "win32":
        tree = ["taskkill", "/T", "/F", "/PID", str(process.pid)]
        subprocess.run(tree, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    elif process.returncode is None:  # later, the process ID may belong to another process
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(PermissionError):
            process.kill()  # it may be in the group of this process
    return process.wait(REAP_TIMEOUT_S)


def release_supervised(process: subprocess.Popen[bytes]) -> None:
    """Kill the remaining processes in the program's group: the guard, and processes that outlived the program."""
    guarded = isinstance(process.args, list) and process.args[:1] == [SHELL]
    # Without a guard, another group may get this ID after the program has ended.
    if sys.platform != "win32" and (guarded or process.returncode is None):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def run_supervised(
    argv: Sequence[str],
    *,
    input: bytes = b"",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program until it ends. It is killed if an exception is raised here or this process ends.

    Raises:
        OSError: the program cannot be started.
        subprocess.TimeoutExpired: the program exceeded the time limit.
    """
    return finish_program(start_program(argv, environment=environment, folder=folder), input, timeout_s)


def finish_program(
    process: subprocess.Popen[bytes], input: bytes = b"", timeout_s: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Wait until a program ends. It is killed if an exception is raised here.

    Raises:
        subprocess.TimeoutExpired: the program exceeded the time limit.
    """
    with process:
        try:
            out, err = process.communicate(input, timeout=timeout_s)
        except BaseException:
            end_group(process)
            raise
        finally:
            release_supervised(process)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def describe_exit_status(status: int) -> str:
    """Return the exit status as text, such as `SIGSEGV` or `exit status 3`."""
    if status >= 0:
        return f"exit status {status:#x}" if status > 0xFFFF else f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


INSTALL_VARIABLES = (
    *("UV_CONSTRAINT", "UV_OVERRIDE", "UV_BUILD_CONSTRAINT", "UV_EXCLUDE", "UV_NO_BINARY", "UV_NO_BINARY_PACKAGE"),
    *("UV_PROJECT", "UV_WORKING_DIR", "UV_WORKING_DIRECTORY"),
)
"""Environment variables that change which packages uv installs, except those that configure package indexes.

The last three select a project, whose settings would apply.
"""
# The other variables select a Python or an environment, which onnxgate always passes as paths.
REMOVED_VARIABLES = (
    *INSTALL_VARIABLES,
    "UV_COMPILE_BYTECODE",  # with it, uv starts the interpreter of the new environment, which runs `.pth` files
    *("UV_LINK_MODE", "UV_VENV_SEED", "UV_VENV_RELOCATABLE", "UV_NO_VERIFY_HASHES"),  # change the environment itself
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH", "UV_PYTHON", "UV_SYSTEM_PYTHON"),
)
CI_VARIABLES = (
    *("ACTIONS_*", "INPUT_*", "ONNXGATE_INPUT_*", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE"),
    *("GITHUB_STEP_SUMMARY", "CI_JOB_TOKEN", "CI_JOB_JWT*", "CI_REGISTRY_PASSWORD", "CI_DEPLOY_PASSWORD"),
    *("CI_DEPENDENCY_PROXY_PASSWORD", "SYSTEM_ACCESSTOKEN"),
)
"""Credentials of CI systems, and files that affect later CI steps."""
TELEMETRY_VARIABLES = {"ORT_DISABLE_TELEMETRY": "1"}
"""Environment variables that turn off the telemetry of engines. It writes to the home folder and uses the network.

They replace the user's values. Source: onnxruntime 1.29.0 to 1.32.0 write a database to `XDG_CACHE_HOME`, or to
`.cache` in `HOME`, at import. In the sandbox, the telemetry of 1.29.0 crashes with SIGSEGV at import.
"""
UV_DEFAULTS = {"UV_HTTP_TIMEOUT": "30", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
TIMED_OUT = -1000


def without_ci_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables without those of the CI system, for a process that code of the repository runs.

    Such code can also read the variables of other processes of the same user.
    """
    names = re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in CI_VARIABLES))
    return {name: value for name, value in variables.items() if not names.fullmatch(name)}


def isolate_uv(folder: Path) -> None:
    """Prepare a folder so that uv uses no settings and no environment of its parent folders when it runs there.

    uv searches its folder and then the parents, which may be the checked repository, for the first `uv.toml` or
    `pyproject.toml`, and for the first `.venv`, whose Python it runs. The settings of the user and of the system still
    apply. Source: measured with uv 0.13.9.

    Raises:
        OSError: the folder cannot be prepared.
    """
    (folder / "uv.toml").touch()
    (folder / ".venv").mkdir()


def find_uv() -> str:
    """Return the path of uv: the copy installed with onnxgate, or uv on `PATH`.

    Raises:
        UnavailableError: neither exists.
    """
    try:
        from uv import find_uv_bin  # not at the top: distributions may install uv without its Python package

        return os.fsdecode(find_uv_bin())
    except (ImportError, FileNotFoundError) as error:
        if found := shutil.which("uv"):
            return found
        raise UnavailableError(
            "`uv` was not found on `PATH` or in the environment of onnxgate", hint="install uv: `pip install uv`"
        ) from error


class CompletedCommand(NamedTuple):
    """Exit status and output of a program. The status `TIMED_OUT` is never a real exit status."""

    status: int
    out: str
    err: str

    @property
    def last_error_line(self) -> str:
        """Last line of the program's error output or, if there is none, its exit status."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        return lines[-1] if lines else describe_exit_status(self.status)


class CommandRunner:
    """Runs programs that build environments, and tracks the running ones. Thread-safe."""

    def __init__(self) -> None:
        self.executed: list[str] = []  # commands of uv, npm and the user, as `-v` prints them
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False
        # Programs run in their own folder, since `[tool.uv]` in the project is only for the project's own environment.
        self._folder = create_process_folder()
        isolate_uv(self._folder)
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def run(
        self, argv: Sequence[str], *, timeout_s: float, stdin: str = "", environment: Mapping[str, str] | None = None
    ) -> CompletedCommand:
        """Run a program until it ends. The status is 127 if it cannot be started.

        Without `environment`, the program gets the user's variables, except those that change what uv installs.

        Raises:
            UnavailableError: onnxgate is shutting down.
        """
        if environment is None:
            users = {name: value for name, value in os.environ.items() if name not in REMOVED_VARIABLES}
            environment = {**UV_DEFAULTS, **users}
        try:
            with self._lock:
                self.require_open()
                process = start_program(argv, environment=environment, folder=self._folder)
                self._running.add(process)
        except OSError as error:
            return CompletedCommand(127, "", f"`{argv[0]}` cannot be started: {error.strerror}")
        try:
            ended = finish_program(process, stdin.encode(), timeout_s)
        except subprocess.TimeoutExpired:
            return CompletedCommand(TIMED_OUT, "", f"did not finish within {timeout_s:g} s")
        finally:
            with self._lock:
                self._running.discard(process)
            self.require_open()
        out, err = (output.decode("utf-8", "replace") for output in (ended.stdout, ended.stderr))
        return CompletedCommand(ended.returncode, out, err)

    @contextlib.contextmanager
    def start_worker(
        self, argv: Sequence[str], *, environment: Mapping[str, str], folder: Path
    ) -> Iterator[WorkerProcess]:
        """Start a worker, which is killed at the end of the block.

        Raises:
            UnavailableError: onnxgate is shutting down.
            OSError: the worker cannot be started.
        """
        with self._lock:
            self.require_open()
            process = start_program(argv, environment=environment, folder=folder, bound="group")
            self._running.add(process)
        worker = WorkerProcess(process)
        try:
            yield worker
        finally:
            worker.end()
            with self._lock:
                self._running.discard(process)
            self.require_open()

    def require_open(self) -> None:
        """Check that onnxgate is not shutting down.

        Raises:
            UnavailableError: onnxgate is shutting down.
        """
        if self._closed:
            raise UnavailableError("onnxgate is shutting down")

    def close(self) -> None:
        """Kill all running programs, and refuse to run new ones."""
        with self._lock:
            self._closed = True
            for process in self._running:
                end_group(process)


class LineTooLongError(Exception):
    """Raised if a line from a worker is longer than the limit."""


class WorkerProcess:
    """One worker process and the three pipes to it, read without blocking."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin = process.stdin
        self._lines: queue.Queue[bytes | None] = queue.Queue(QUEUED_LINES_LIMIT)
        self._log = bytearray()
        self._log_lock = threading.Lock()
        self._ended = threading.Event()
        self._silent = threading.Event()
        self._log_reader = _start_thread(self._read_log, process.stderr)
        _start_thread(self._read_lines, process.stdout)

    @property
    def alive(self) -> bool:
        """Whether the worker process may still be running."""
        return not self._ended.is_set() and not self._silent.is_set()

    def send(self, line: bytes) -> None:
        """Write a line to the worker in a background thread.

        A worker that does not read would otherwise block this process.
        """
        _start_thread(self._write, line + b"\n")

    def receive(self, timeout_s: float) -> bytes | None:
        """Return the next line from the worker; None after its last line.

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
        """Kill the worker and its child processes. Return its exit status, which is negative for a signal."""
        self._ended.set()
        status = end_group(self._process)
        self._wake_receiver()
        self._log_reader.join(LOG_GRACE_S)
        with contextlib.suppress(OSError, ValueError):
            self._stdin.close()
        return status

    def clear_log(self) -> None:
        """Discard the log that the worker has written so far."""
        with self._log_lock:
            self._log.clear()

    def log(self) -> str:
        """Return the end of the log that the worker has written since the last call to `clear_log`."""
        with self._log_lock:
            return self._log.decode("utf-8", "replace")

    def _wake_receiver(self) -> None:
        while True:
            try:
                return self._lines.put_nowait(None)
            except queue.Full:
                with contextlib.suppress(queue.Empty):
                    self._lines.get_nowait()

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # the worker has ended, which `_read_lines` reports
            self._stdin.write(data)
            self._stdin.flush()

    def _read_lines(self, stdout: IO[bytes]) -> None:
        """Queue the complete lines that the worker writes.

        Reading stops after a line that is too long. An incomplete last line is discarded.
        """
        with stdout:
            while line := stdout.readline(LINE_LIMIT_BYTES):
                is_complete = line.endswith(b"\n")
                if (is_complete or len(line) == LINE_LIMIT_BYTES) and not self._queue_line(line):
                    return
                if not is_complete:
                    break
        self._silent.set()
        self._queue_line(None)

    def _queue_line(self, line: bytes | None) -> bool:
        """Queue a line. Return False if the worker was stopped, because its lines are no longer read."""
        while not self._ended.is_set():
            with contextlib.suppress(queue.Full):
                self._lines.put(line, timeout=0.2)
                return True
        return False

    def _read_log(self, stderr: IO[bytes]) -> None:
        with stderr:
            while chunk := os.read(stderr.fileno(), 2**16):
                with self._log_lock:
                    self._log += chunk
                    del self._log[:-LOG_LIMIT_BYTES]


def _start_thread(target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread
