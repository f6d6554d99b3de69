"""Pool of child processes for function calls. If a child crashes, hangs or runs out of memory, only its call fails.

The checker and the shape inference of onnx are C++ code that parses untrusted files, so models are read in child
processes, in parallel on all cores. Calls are pickled. Answers are never pickled, but
decoded as a declared type, so that a child controlled by a malicious model cannot run code in this process.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Generic, Literal, TypeVar

import msgspec

from onnxgate.core.bug_reports import keep_bug_report
from onnxgate.core.errors import OnnxgateError, describe_bug
from onnxgate.core.findings import CHANGED_FILES
from onnxgate.core.machine_faults import find_fault_in_text, find_machine_fault
from onnxgate.core.text import truncate

if sys.platform != "win32":
    import resource

Argument = TypeVar("Argument")
Result = TypeVar("Result", covariant=True)
Answer = TypeVar("Answer")

BATCH = 16
"""Number of calls that are sent to a child process at once, so that it does not wait between calls."""
LARGEST_MESSAGE_BYTES = 2**31
NO_INTERPRETER = "this application contains no Python interpreter"
INTERPRETER_HINT = "install onnxgate in a Python environment, and run it with the interpreter of this environment"
_CALLS = struct.Struct("<Q")
_ANSWER = struct.Struct("<cQ")  # kind (see the next line), and size in bytes
_RESULT, _ESCAPED_RESULT, _FAILURE = b"r", b"e", b"f"
_PR_SET_PDEATHSIG = 1
"""Option of the Linux system call `prctl` that sets the signal to send when the parent process ends. Source: prctl(2).
"""
_IS_WINDOWS = sys.platform == "win32"


class CallLimits(msgspec.Struct, frozen=True):
    """Limits of a call; 0 means unlimited. On Windows, no limits are enforced; on macOS, only the time limit."""

    time_s: int = 0
    memory_bytes: int = 0


class CallFailure(msgspec.Struct, frozen=True):
    """The reason why a call in a child process failed."""

    how: Literal["crashed", "timed-out", "memory", "raised", "changed", "not-started"]
    words: str = ""  # "SIGSEGV", "300 s", the exception, or why no child process was started
    trace: str = ""  # traceback of the exception
    hint: str = ""  # if no child process was started


class FailedCallError(OnnxgateError):
    """A call in a child process failed. A caller that cannot continue without it leaves its model undecided.

    `doing` is a phrase as in `describe_failure`.
    """

    def __init__(self, failure: CallFailure, doing: str = "the call") -> None:
        reason, hint = describe_failure(failure, doing)
        super().__init__(reason, hint=hint)
        self.failure = failure


class FailedStartError(OnnxgateError):
    """No child process can be started. The machine or the installation is the cause, never the model."""

    def __init__(self, cause: Exception | None = None) -> None:
        fault = find_machine_fault(cause) if cause is not None else None
        reason, hint = fault or (f"a child process cannot be started ({cause or NO_INTERPRETER})", INTERPRETER_HINT)
        super().__init__(reason, hint=hint)
        self.failure = CallFailure("not-started", reason, hint=hint)


_current_limits: CallLimits | None = None


def find_call_limits() -> CallLimits | None:
    """Return the limits of the call that this child process of a pool runs; None in any other process.

    A call without limits of time and memory does not count.
    """
    limits = _current_limits
    return limits if limits is not None and limits.time_s and limits.memory_bytes else None


def describe_exceeded_memory(limits: CallLimits) -> CallFailure:
    """Return the failure of a call that exceeded its memory limit."""
    return CallFailure("memory", f"{limits.memory_bytes // 2**20} MiB")


def describe_failure(failure: CallFailure, doing: str) -> tuple[str, str]:
    """Return the reason why a model could not be read, and a hint. `doing` is a phrase such as "reading it".

    For an exception, write a bug report.
    """
    report = "report this problem in the onnxgate issue tracker, and attach the model if possible"
    match failure.how:
        case "crashed":
            return f"{doing} crashed ({failure.words})", report
        case "timed-out":
            return f"{doing} took longer than {failure.words}", report
        case "memory":
            return f"{doing} needed more than {failure.words} of memory", report
        case "changed":
            return CHANGED_FILES
        case "not-started":
            return failure.words, failure.hint
        case "raised":
            if fault := find_fault_in_text(failure.words, is_trusted=True):
                return fault
            words = truncate(" ".join(failure.words.split()))
            hint = keep_bug_report(failure.trace) if failure.trace else report
            return f"{doing} failed with an internal error of onnxgate: {words}", hint


class Call(msgspec.Struct, Generic[Argument, Result], frozen=True):
    """A call to a module-level function, with the required type of its result."""

    function: Callable[[Argument], Result]
    argument: Argument
    answer: Any  # for `msgspec`: the type `Result`, or a union
    bounds: CallLimits = CallLimits()


class ProcessPool:
    """A pool of up to `count` child processes, which are started on demand and end when the `with` block ends.

    If `count` is 0, calls run in this process, except for onnx's C++ code; see `model/onnx_functions`. Each child first
    calls `prepare`, a module-level function.
    """

    def __init__(self, count: int, prepare: Callable[[], None] | None = None) -> None:
        self._count = min(count, 1) if _IS_WINDOWS else count  # Windows cannot wait for several pipes
        self._prepare = prepare
        self._children: list[_PoolProcess] = []

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.end()
        self._children.clear()

    def kill(self) -> None:
        """Kill the child processes from another thread than the one that waits for their answers."""
        for child in tuple(self._children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM if _IS_WINDOWS else signal.SIGKILL)

    def run(self, calls: Sequence[Call[Any, Answer]], *, at_once: int = 0) -> list[Answer | CallFailure]:
        """Return the result or failure of each call, in order of the calls. At most `at_once` children are used."""
        if not self._count:
            return [_call_here(call) for call in calls]
        most = min(self._count, at_once or self._count)
        queue = _CallQueue(deque(enumerate(calls)), [None] * len(calls))
        busy: list[_PoolProcess] = []
        try:
            while queue.ahead or busy:
                while queue.ahead and len(self._children) < most:
                    self._children.append(_start_pool_process(self._prepare))
                idle = [child for child in self._children if child not in busy]
                for child in idle[: most - len(busy)]:
                    if queue.ahead:
                        child.send(queue.take(most))
                        busy.append(child)
                for child in _wait_for_answers(busy):
                    if not child.receive(queue):
                        busy.remove(child)
                    if not child.alive:
                        self._children.remove(child)
        except BaseException:
            self.__exit__()  # the children still run calls whose answers are no longer needed
            raise
        return queue.results


def _call_here(call: Call[Any, Answer]) -> Answer | CallFailure:
    try:
        return call.function(call.argument)
    except Exception as error:  # noqa: BLE001 - reported as the failure of this call
        return _describe_exception(error, call.bounds)


class _CallQueue(msgspec.Struct):
    """Calls that no child has received yet, each with its position, and the results of all calls."""

    ahead: deque[tuple[int, Call[Any, Any]]]
    results: list[Any]

    def take(self, children: int) -> list[tuple[int, Call[Any, Any]]]:
        """Take the next calls for one child: fewer towards the end, so that all children finish almost together."""
        share = max(1, min(BATCH, len(self.ahead) // (2 * children)))
        return [self.ahead.popleft() for _ in range(share)]


class _PoolProcess(msgspec.Struct):
    """A child process of the pool, and the pipes to it."""

    pid: int
    calls: IO[bytes]
    answers: IO[bytes]  # unbuffered: polling the pipe does not see data in a buffer
    process: subprocess.Popen[bytes] | None  # None if it was forked
    pending: deque[tuple[int, Call[Any, Any]]] = msgspec.field(default_factory=deque)
    alive: bool = True

    def send(self, share: Sequence[tuple[int, Call[Any, Any]]]) -> None:
        """Send calls to an idle child. If it were busy writing a result, both processes could block on full pipes."""
        self.pending.extend(share)
        data = pickle.dumps([(call.function, call.argument, call.bounds) for _, call in share], pickle.HIGHEST_PROTOCOL)
        with contextlib.suppress(BrokenPipeError):  # the child has ended; reading from it reports that
            self.calls.write(_CALLS.pack(len(data)) + data)
            self.calls.flush()

    def receive(self, queue: _CallQueue) -> bool:
        """Receive one result from the child, and return whether the child still has calls to process.

        If the child has ended, only its current call fails; its other calls are queued again.
        """
        index, call = self.pending.popleft()
        try:
            queue.results[index] = _read_answer(self.answers, call.answer)
        except (EOFError, OSError):
            queue.results[index] = _failure_of_status(self._wait(), call.bounds)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self.end()
            queue.results[index] = CallFailure("raised", f"unreadable answer: {error}")
        if not self.alive:
            queue.ahead.extendleft(reversed(self.pending))
            self.pending.clear()
        return bool(self.pending)

    def end(self) -> None:
        """Kill the child process."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM if _IS_WINDOWS else signal.SIGKILL)
            self._wait()

    def _wait(self) -> int:
        """Wait for the child to end. Return its exit status, which is negative if a signal ended the child."""
        self.alive = False
        for pipe in (self.calls, self.answers):
            with contextlib.suppress(OSError):
                pipe.close()
        if self.process is not None:
            return self.process.wait()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _failure_of_status(status: int, bounds: CallLimits) -> CallFailure:
    if not _IS_WINDOWS and status == -signal.SIGALRM:
        return CallFailure("timed-out", f"{bounds.time_s} s")
    if status < 0:
        with contextlib.suppress(ValueError):
            return CallFailure("crashed", signal.Signals(-status).name)
    return CallFailure("crashed", f"exit status {status}")


def _wait_for_answers(busy: Sequence[_PoolProcess]) -> list[_PoolProcess]:
    """Wait until at least one child has sent a result. Return all children that have."""
    if _IS_WINDOWS or len(busy) < 2:
        return list(busy)
    poll = select.poll()
    by_number = {child.answers.fileno(): child for child in busy}
    for number in by_number:
        poll.register(number, select.POLLIN | select.POLLHUP)
    return [by_number[number] for number, _ in poll.poll()]


def _start_pool_process(prepare: Callable[[], None] | None) -> _PoolProcess:
    """Start a child process. It is a fork, which is fast, if forking is safe, and otherwise a new interpreter.

    Raises:
        FailedStartError: the machine or the installation prevents this.
    """
    try:
        return _fork_pool_process(prepare) if is_fork_safe() else _start_interpreter(prepare)
    except OSError as error:
        raise FailedStartError(error) from error


def _start_interpreter(prepare: Callable[[], None] | None) -> _PoolProcess:
    if not sys.executable or getattr(sys, "frozen", False):  # it would start the application itself
        raise FailedStartError
    named = pickle.dumps(prepare)
    # Isolated, with only the paths of this process: a checked folder may contain modules with the same names.
    code = (
        f"import sys; sys.path[:] = {[path for path in sys.path if path]!r}; "
        f"from onnxgate.core.process_pool import serve_standard; serve_standard({os.getpid()}, {named!r})"
    )
    argv = [sys.executable, "-I", "-c", code]
    from onnxgate.core.subprocesses import without_ci_variables  # not at the top: most processes are forks

    environment = without_ci_variables(os.environ)  # unlike a fork of a command, it can be inspected
    process = subprocess.Popen(argv, env=environment, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    return _PoolProcess(process.pid, io.BufferedWriter(process.stdin), process.stdout, process)


def is_fork_safe() -> bool:
    """Return whether forking this process is safe: only on Linux, and only if it has a single thread.

    A fork copies one thread and all locks. A lock that another thread holds at that moment (in malloc, OpenBLAS, OpenMP
    or the interpreter) is never released in the copy. Python counts only its own threads, while `/proc/self/task` lists
    all threads, including native ones. If the calling thread is the only one, no other can start before the fork. On
    macOS, system libraries start threads at any time and abort in a copy.
    """
    if sys.platform != "linux":
        return False
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:
        return False


def _fork_pool_process(prepare: Callable[[], None] | None) -> _PoolProcess:
    their_calls, our_calls = os.pipe()
    our_answers, their_answers = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:  # the copy must never return to the caller
        status = 1
        try:
            _die_with_parent(parent)
            os.close(our_calls)
            os.close(our_answers)
            if prepare is not None:
                prepare()
            _serve_calls(their_calls, their_answers)
            status = 0
        finally:
            os._exit(status)
    os.close(their_calls)
    os.close(their_answers)
    return _PoolProcess(pid, os.fdopen(our_calls, "wb"), os.fdopen(our_answers, "rb", buffering=0), None)


def _die_with_parent(parent: int) -> None:
    """Make the system kill this process when its parent ends, even during a call."""
    if sys.platform != "linux":
        return  # the process ends after the current call, because the pipe is closed
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # the parent has already ended


def serve_standard(parent: int, named: bytes) -> None:
    """Serve calls in a new interpreter.

    Calls and results use its standard input and output, which must not be used for anything else.
    """
    _die_with_parent(parent)
    prepare = pickle.loads(named)  # noqa: S301 - from the parent
    if prepare is not None:
        prepare()
    _serve_calls(os.dup(0), os.dup(1))


def _serve_calls(their_calls: int, their_answers: int) -> None:
    """Serve calls until the parent process closes a pipe."""
    calls, answers = os.fdopen(their_calls, "rb"), os.fdopen(their_answers, "wb")
    os.dup2(2, 1)  # C++ output must not become part of a report
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the parent reports the interruption
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            (size,) = _CALLS.unpack(_read_exactly(calls, _CALLS.size))
            for function, argument, bounds in pickle.loads(_read_exactly(calls, size)):  # noqa: S301 - from the parent
                kind, data = _execute_call(function, argument, bounds)
                answers.write(_ANSWER.pack(kind, len(data)) + data)
                answers.flush()


def _execute_call(function: Callable[[Any], object], argument: object, bounds: CallLimits) -> tuple[bytes, bytes]:
    global _current_limits
    with _limit_call(bounds):
        _current_limits = bounds
        try:
            result = function(argument)
            return _encode_result(result)
        except Exception as error:  # noqa: BLE001 - reported as the failure of this call
            failure = _describe_exception(error, bounds)
        finally:
            _current_limits = None
    return _FAILURE, json.dumps(msgspec.to_builtins(failure)).encode()


def _describe_exception(error: Exception, bounds: CallLimits) -> CallFailure:
    if isinstance(error, FailedCallError | FailedStartError):
        return error.failure
    if isinstance(error, MemoryError):
        return describe_exceeded_memory(bounds)
    return CallFailure("raised", f"{type(error).__name__}: {error}", describe_bug(error).traceback)


def _encode_result(result: object) -> tuple[bytes, bytes]:
    """Encode a result as MessagePack, or as JSON if it contains non-UTF-8 names or integers of more than 64 bits."""
    try:
        return _RESULT, msgspec.msgpack.encode(result)
    except (UnicodeEncodeError, OverflowError):
        return _ESCAPED_RESULT, json.dumps(msgspec.to_builtins(result)).encode()


def _read_answer(pipe: IO[bytes], answer: Any) -> Any:
    """Read one result from a child: a value of the declared type, or a `CallFailure`.

    Raises:
        EOFError: the child has ended.
        msgspec.MsgspecError, ValueError: the answer is invalid.
    """
    kind, size = _ANSWER.unpack(_read_exactly(pipe, _ANSWER.size))
    if size > LARGEST_MESSAGE_BYTES:
        raise ValueError(f"{size} bytes")
    data = _read_exactly(pipe, size)
    if kind == _RESULT:
        return msgspec.msgpack.decode(data, type=answer)
    if kind == _ESCAPED_RESULT:
        return msgspec.convert(json.loads(data), type=answer)
    return msgspec.convert(json.loads(data), type=CallFailure)


@contextlib.contextmanager
def _limit_call(bounds: CallLimits) -> Iterator[None]:
    """Enforce the limits of a call: an alarm ends the process, and allocations beyond the limit fail."""
    if bounds.time_s and hasattr(signal, "alarm"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(bounds.time_s)
    if bounds.memory_bytes and sys.platform == "linux":
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = bounds.memory_bytes if hard == resource.RLIM_INFINITY else min(bounds.memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    try:
        yield
    finally:
        if bounds.time_s and hasattr(signal, "alarm"):
            signal.alarm(0)


def _read_exactly(pipe: IO[bytes], size: int) -> bytes:
    parts = []
    while size:
        part = pipe.read(size)
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
