"""Calls in child processes: a crash in a child fails only its own call."""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from onnxgate.core import process_pool
from onnxgate.core.process_pool import Call, CallFailure, CallLimits, FailedStartError, ProcessPool, describe_failure

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of POSIX")
PROGRAM = """
    import os, signal, sys, time
    from pathlib import Path
    from onnxgate.core.process_pool import Call, ProcessPool

    def forever(path):
        Path(path, str(os.getpid())).touch()
        time.sleep(600)

    if __name__ == "__main__":
        with ProcessPool(2) as children:
            children.run([Call(forever, sys.argv[1], None), Call(forever, sys.argv[1], None)])
"""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("ImportError: \n\nIMPORTANT:\n\nx.so: failed to map segment from shared object", "there is not enough memory"),
        ("ValueError: a\n\nb", "the support prediction failed with an internal error of onnxgate: ValueError: a b"),
    ],
)
def test_a_raised_failure_is_one_line(words: str, reason: str) -> None:
    """Missing memory is a fault of the machine, and other errors are shown in one line."""
    assert reason == describe_failure(CallFailure("raised", words), "the support prediction")[0]


def squared(number: int) -> int:
    """Return the square of a number."""
    return number * number


def odd_fates(number: int) -> int:
    """Return the number, or end abnormally for certain numbers."""
    match number:
        case 3:
            faulthandler.disable()
            ctypes.string_at(0)
        case 5:
            time.sleep(60)
        case 7:
            raise KeyError("seven")
        case 9:
            return len(bytearray(3 * 2**30))
        case 11:
            os._exit(4)
        case 13:
            os.write(1, b"noise on standard output\n")
    return number


def process_id(_: int) -> int:
    """Return the ID of the process that runs the call."""
    return os.getpid()


def large(size_bytes: int) -> bytes:
    """Return a result that does not fit into a pipe buffer."""
    return bytes(size_bytes)


@pytest.mark.parametrize(("count", "threads"), [(0, 1), (1, 1), (2, 1), (3, 1), (1, 2), (2, 2)])
def test_order_is_kept(count: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are in the order of the calls for any number of children, forked or spawned."""
    monkeypatch.setattr(process_pool, "is_fork_safe", lambda: threads == 1)

    with ProcessPool(count) as children:
        actual = children.run([Call(squared, number, int) for number in range(500)])

    assert actual == [number * number for number in range(500)]


@pytest.mark.parametrize("threads", [1, 2])
def test_crash_affects_one_call(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash is reported for its call only; all other calls return results, forked or spawned."""
    monkeypatch.setattr(process_pool, "is_fork_safe", lambda: threads == 1)
    bounds = CallLimits(time_s=1, memory_bytes=2 * 2**30)

    with ProcessPool(2) as children:
        actual = children.run([Call(odd_fates, number, int, bounds) for number in range(16)])

    failed = {number: answer for number, answer in enumerate(actual) if isinstance(answer, CallFailure)}
    lost = {number: CallFailure(answer.how, answer.words) for number, answer in failed.items()}
    assert 'raise KeyError("seven")' in failed[7].trace
    assert lost == {
        3: CallFailure("crashed", "SIGSEGV"),
        5: CallFailure("timed-out", "1 s"),
        7: CallFailure("raised", "KeyError: 'seven'"),
        9: CallFailure("memory", "2048 MiB"),
        11: CallFailure("crashed", "exit status 4"),
    }
    assert [answer for answer in actual if not isinstance(answer, CallFailure)] == [
        0,
        1,
        2,
        4,
        6,
        8,
        10,
        12,
        13,
        14,
        15,
    ]


def test_calls_run_in_child_processes() -> None:
    """Calls run in child processes, and several children share the work."""
    with ProcessPool(2) as children:
        actual = set(children.run([Call(process_id, number, int) for number in range(100)]))

    assert os.getpid() not in actual
    assert len(actual) == 2


def test_children_that_are_not_worth_it() -> None:
    """No more children are started than the amount of work justifies."""
    with ProcessPool(4) as children:
        actual = set(children.run([Call(process_id, number, int) for number in range(20)], at_once=1))

    assert len(actual) == 1


def test_large_answers() -> None:
    """A result larger than the pipe buffer is received, and so are the results of later calls."""
    with ProcessPool(1) as children:
        actual = children.run([Call(large, size, bytes) for size in (10, 5_000_000, 20)])

    assert [len(answer) for answer in actual if isinstance(answer, bytes)] == [10, 5_000_000, 20]


def prints(_: int) -> int:
    """Print from native code."""
    return os.write(1, b"printed")


@pytest.mark.parametrize("threads", [1, 2])
def test_printed_text_goes_to_stderr(
    threads: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Output of a call is redirected to stderr, forked or spawned."""
    monkeypatch.setattr(process_pool, "is_fork_safe", lambda: threads == 1)

    with ProcessPool(1) as children:
        actual = children.run([Call(prints, 1, int)])

    assert actual == [7]
    assert capfd.readouterr() == ("", "printed")


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_children_end_with_their_parent(tmp_path: Path, sent: signal.Signals) -> None:
    """Child processes end with the program that started them, even if it is killed."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "pids").mkdir()
    command = [sys.executable, str(script), str(tmp_path / "pids")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as program:
        pids = _wait_for(lambda: sorted(tmp_path.glob("pids/*")), 2)
        program.send_signal(sent)
        program.wait(20)

    assert _wait_for(lambda: [path for path in pids if _is_gone(int(path.name))], 2) == pids


def _wait_for(look: Callable[[], list[Path]], count: int) -> list[Path]:
    for _ in range(400):
        if len(actual := look()) == count:
            return actual
        time.sleep(0.05)
    return look()


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] == "Z"
    except OSError:
        return True


class Hostile:
    """An object that runs code in any process that unpickles it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


def answer_with_object(path: str) -> object:
    """Return an object that is not data."""
    return Hostile(path)


def answer_with_pickle(path: str) -> int:
    """Send a pickle as the result, as code that controls the child could."""
    process_pool._encode_result = lambda _: (b"r", pickle.dumps(Hostile(path)))  # type: ignore[assignment]
    return 0


def answer_with_text(_: str) -> str:
    """Return a value that does not match the declared type."""
    return "text"


@pytest.mark.parametrize("subverted", [answer_with_object, answer_with_pickle, answer_with_text])
def test_an_answer_is_data(tmp_path: Path, subverted: Callable[[str], object]) -> None:
    """A child that a hostile model controls cannot run code in its parent; a new child runs the later calls."""
    calls = [Call(subverted, str(tmp_path / "made"), int), Call(squared, 3, int)]

    with ProcessPool(1) as children:
        lost, answer = children.run(calls)

    assert isinstance(lost, CallFailure)
    assert (lost.how, answer) == ("raised", 9)
    assert not (tmp_path / "made").exists()


def echo(text: str) -> str:
    """Return the argument."""
    return text


def test_names_that_are_not_utf8() -> None:
    """Bytes of a file name that are not UTF-8 are preserved."""
    with ProcessPool(1) as children:
        assert children.run([Call(echo, "a\udcff", str)]) == ["a\udcff"]


NATIVE_THREAD = """
    import ctypes, threading
    from onnxgate.core import process_pool
    alone = process_pool.is_fork_safe()
    libc = ctypes.CDLL(None)
    libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, ctypes.cast(libc.pause, ctypes.c_void_p), None)
    print(alone, threading.active_count(), process_pool.is_fork_safe())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the only system where a child is forked")
def test_native_threads_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that Python did not start may hold a lock, which would block a forked child forever."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(NATIVE_THREAD)]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    monkeypatch.setattr(sys, "platform", "darwin")

    assert printed == "True 1 False\n"
    assert not process_pool.is_fork_safe()


def test_a_new_interpreter_imports_nothing_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current folder is the checked repository, so a module in it must not shadow a standard or onnxgate
    dependency.
    """
    for name in ("selectors.py", "json.py", "msgspec.py"):
        (tmp_path / name).write_text("raise SystemExit('imported from the checked repository')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process_pool, "is_fork_safe", lambda: False)
    with ProcessPool(1) as pool:
        answers = list(pool.run([Call(squared, 3, int)]))

    assert answers == [9]


def read_own_variables(_: int) -> str:
    """Return the variables that this process was started with, as other processes of the same user see them."""
    return Path("/proc/self/environ").read_text()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_a_new_interpreter_gets_no_credentials_of_the_ci_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of the repository can read the variables of a new interpreter, unlike those of a command and its forks."""
    monkeypatch.setenv("ONNXGATE_INPUT_TOKEN", "4f9c")
    monkeypatch.setenv("KEPT", "8a3e")
    monkeypatch.setattr(process_pool, "is_fork_safe", lambda: False)
    with ProcessPool(1) as pool:
        (variables,) = pool.run([Call(read_own_variables, 0, str)])

    assert ("4f9c" in str(variables), "8a3e" in str(variables)) == (False, True)


def thirty_zeros(number: int) -> int:
    """Return an integer of more than 64 bits, as the size in a Git LFS pointer may be."""
    return number * 10**30


def test_an_answer_with_a_large_integer() -> None:
    """A large integer is returned correctly, although MessagePack cannot represent it."""
    with ProcessPool(1) as pool:
        answers = list(pool.run([Call(thirty_zeros, 3, int)]))

    assert answers == [3 * 10**30]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "too many open files"),
        (OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "a process cannot be started: resource temporarily"),
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/no/python"), "a child process cannot be started"),
        (None, "this application contains no Python interpreter"),
    ],
)
def test_a_child_that_cannot_start(monkeypatch: pytest.MonkeyPatch, error: OSError | None, reason: str) -> None:
    """The machine or the installation is named. A frozen application is not started in place of an interpreter."""

    def refuse(*_: object, **__: object) -> NoReturn:
        assert error is not None
        raise error

    monkeypatch.setattr("onnxgate.core.process_pool.is_fork_safe", lambda: False)
    monkeypatch.setattr(sys, "frozen", error is None, raising=False)
    monkeypatch.setattr(subprocess, "Popen", refuse)

    with ProcessPool(1) as children, pytest.raises(FailedStartError) as raised:
        children.run([Call(squared, 3, int)])

    assert reason in raised.value.message
    assert raised.value.hint
