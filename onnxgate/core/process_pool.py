"""Calls in child processes of our own: one that crashes, hangs or eats memory costs that call, and no other.

onnx's checker and its shape inference are C++ that reads whatever a file holds; so models are looked at here, side by
side on the cores. A child reads calls from a pipe and writes what came of each to another; both ends are this program.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Generic, Literal, NoReturn, TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result", covariant=True)
Answer = TypeVar("Answer")

BATCH = 16
"""Calls that a child is sent at once, so that it does not wait for us between two of them."""
LARGEST_MESSAGE_BYTES = 2**31
_HEADER = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1
"""Source: prctl(2)."""
_IS_WINDOWS = sys.platform == "win32"


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What one call may take; 0 is no bound. Held on Linux and macOS, memory on Linux alone."""

    time_s: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CallFailure:
    """A call that came to nothing."""

    how: Literal["crashed", "timed-out", "memory", "raised"]
    words: str  # "SIGSEGV", "300 s", or what was raised


@dataclass(frozen=True, slots=True)
class Call(Generic[Argument, Result]):
    """One call: a function that a module has by its name, what it is given, and what it may take."""

    function: Callable[[Argument], Result]
    argument: Argument
    bounds: CallLimits = CallLimits()


class ProcessPool:
    """Up to `count` children, each started when there is work for it and ended with the block; 0: all is done here."""

    def __init__(self, count: int) -> None:
        self._count = min(count, 1) if _IS_WINDOWS else count  # there is no waiting for several pipes there
        self._children: list[_PoolProcess] = []

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.end()
        self._children.clear()

    def run(self, calls: Sequence[Call[Any, Answer]], *, at_once: int = 0) -> list[Answer | CallFailure]:
        """What came of each call, in their order. `at_once` is how many children are worth their start."""
        if not self._count:
            return [call.function(call.argument) for call in calls]
        work = _CallQueue(deque(enumerate(calls)), [None] * len(calls))
        try:
            self._work(work, min(self._count, at_once or self._count))
        except BaseException:
            self.__exit__()  # they are in the middle of something that nobody waits for
            raise
        return work.results

    def _work(self, work: _CallQueue, most: int) -> None:
        busy: list[_PoolProcess] = []
        while work.ahead or busy:
            for child in self._idle(busy, most) if work.ahead else ():
                if work.ahead:
                    child.send(work.take(most))
                    busy.append(child)
            for child in _wait_for_answers(busy):
                if not child.receive(work):
                    busy.remove(child)
                if not child.alive:
                    self._children.remove(child)

    def _idle(self, busy: Sequence[_PoolProcess], most: int) -> list[_PoolProcess]:
        idle = [child for child in self._children if child not in busy]
        while len(idle) + len(busy) < most:
            child = _start_pool_process()
            self._children.append(child)
            idle.append(child)
        return idle[: most - len(busy)]


@dataclass(slots=True)
class _CallQueue:
    """Calls that are ahead, with their places, and what came of the others."""

    ahead: deque[tuple[int, Call[Any, Any]]]
    results: list[Any]

    def take(self, children: int) -> list[tuple[int, Call[Any, Any]]]:
        """A share for one child: fewer towards the end, so that all end together."""
        share = max(1, min(BATCH, len(self.ahead) // (2 * children)))
        return [self.ahead.popleft() for _ in range(share)]


@dataclass(slots=True)
class _PoolProcess:
    """One child and the pipes to it."""

    pid: int
    calls: IO[bytes]
    answers: IO[bytes]  # without a buffer: what lies in one, no waiting for the pipe shows
    process: subprocess.Popen[bytes] | None  # None where it was forked
    under_way: deque[tuple[int, Call[Any, Any]]] = field(default_factory=deque)
    alive: bool = True

    def send(self, share: Sequence[tuple[int, Call[Any, Any]]]) -> None:
        """Give it calls; it is idle, so that neither side waits for the other to read."""
        self.under_way.extend(share)
        with contextlib.suppress(BrokenPipeError):  # it is gone, as reading from it tells
            _write_message(self.calls, [call for _, call in share])

    def receive(self, work: _CallQueue) -> bool:
        """Take one answer. False where it is idle, or gone: then the call that it was in is lost, and no other."""
        index, call = self.under_way.popleft()
        try:
            work.results[index] = _read_message(self.answers)
        except (EOFError, OSError, pickle.UnpicklingError):
            work.results[index] = _failure_of_status(self._ended(), call.bounds)
            work.ahead.extendleft(reversed(self.under_way))
            self.under_way.clear()
        return bool(self.under_way)

    def end(self) -> None:
        """End it, whatever it does."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM if _IS_WINDOWS else signal.SIGKILL)
            self._ended()

    def _ended(self) -> int:
        """Its status once it is gone, as `subprocess` tells it."""
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
    """Those that have something to be read; waits for the first."""
    if _IS_WINDOWS or len(busy) < 2:
        return list(busy)
    import select

    poll = select.poll()
    by_number = {child.answers.fileno(): child for child in busy}
    for number in by_number:
        poll.register(number, select.POLLIN | select.POLLHUP)
    return [by_number[number] for number, _ in poll.poll()]


def _start_pool_process() -> _PoolProcess:
    """A child: forked, which costs little, where nothing else runs in this process; else started anew."""
    if hasattr(os, "fork") and threading.active_count() == 1:
        return _fork_pool_process()
    words = [
        sys.executable,
        "-c",
        f"from onnxgate.core.process_pool import serve_standard; serve_standard({os.getpid()})",
    ]
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths}
    process = subprocess.Popen(words, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert process.stdin is not None
    assert process.stdout is not None
    return _PoolProcess(process.pid, io.BufferedWriter(process.stdin), process.stdout, process)


def _fork_pool_process() -> _PoolProcess:
    their_calls, our_calls = os.pipe()
    our_answers, their_answers = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _die_with_parent(parent)
        os.close(our_calls)
        os.close(our_answers)
        _serve_after_fork(their_calls, their_answers)
    os.close(their_calls)
    os.close(their_answers)
    return _PoolProcess(pid, os.fdopen(our_calls, "wb"), os.fdopen(our_answers, "rb", buffering=0), None)


def _serve_after_fork(calls: int, answers: int) -> NoReturn:
    """The life of a forked child: whatever happens, it does not return into the program that it is a copy of."""
    status = 1
    try:
        os.dup2(2, 1)  # what C++ prints is no part of a report
        _serve_calls(os.fdopen(calls, "rb"), os.fdopen(answers, "wb"))
    except (EOFError, BrokenPipeError):
        status = 0
    finally:
        os._exit(status)


def _die_with_parent(parent: int) -> None:
    """Have the system end this process with the one that started it, in the middle of whatever it does."""
    if sys.platform != "linux":
        return  # the end of the pipe tells, once the call is done
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it was gone before


def serve_standard(parent: int) -> None:
    """The life of a child that was started anew: its pipes are its standard input and output, and nobody else's."""
    _die_with_parent(parent)
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(EOFError, BrokenPipeError):
        _serve_calls(calls, answers)


def _serve_calls(calls: IO[bytes], answers: IO[bytes]) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever started us says that it was interrupted
    _disable_core_dumps()
    while True:
        for call in _read_message(calls):
            _write_message(answers, _execute_call(call))


def _execute_call(call: Call[Any, Any]) -> object:
    with _limit_call(call.bounds):
        try:
            return call.function(call.argument)
        except MemoryError:
            return CallFailure("memory", f"{call.bounds.memory_bytes // 2**20} MiB")
        except Exception as error:  # noqa: BLE001 - said as what became of this call
            return CallFailure("raised", f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def _limit_call(bounds: CallLimits) -> Iterator[None]:
    """Hold this process to what a call may take: an alarm ends it, memory beyond is refused."""
    if bounds.time_s and hasattr(signal, "alarm"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(bounds.time_s)
    if bounds.memory_bytes and sys.platform == "linux":
        _limit_memory(bounds.memory_bytes)
    try:
        yield
    finally:
        if bounds.time_s and hasattr(signal, "alarm"):
            signal.alarm(0)


def _limit_memory(limit_bytes: int) -> None:
    if sys.platform != "win32":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        allowed = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))


def _disable_core_dumps() -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _write_message(pipe: IO[bytes], message: object) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(_HEADER.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _read_message(pipe: IO[bytes]) -> Any:
    (size,) = _HEADER.unpack(_read_exactly(pipe, _HEADER.size))
    if size > LARGEST_MESSAGE_BYTES:
        raise EOFError
    return pickle.loads(_read_exactly(pipe, size))  # noqa: S301 - see above


def _read_exactly(pipe: IO[bytes], size: int) -> bytes:
    """That many bytes. Raises EOFError where the other side is gone before."""
    parts = []
    while size:
        part = pipe.read(size)
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
