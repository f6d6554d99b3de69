"""The progress display and the timings of `-v`."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys

import pytest
from rich.console import Console

from onnxgate.cli.shared import worker_pool
from onnxgate.runtimes.pool import Progress


def shown(board: worker_pool.ProgressBoard) -> str:
    """Return the display as printed on a terminal with 100 columns."""
    page = io.StringIO()
    Console(file=page, width=100, force_terminal=True, color_system=None).print(board.lines())
    return page.getvalue()


def test_each_runtime_has_a_line() -> None:
    """Each line shows the activity and the number of finished jobs; preparing an environment is not a job."""
    board = worker_pool.ProgressBoard()
    board.started("onnxruntime 1.18.1", "prepare")
    board.started("onnxruntime 1.19.2", "prepare")
    board.finished("onnxruntime 1.18.1", "prepare", "ready")
    board.started("onnxruntime 1.18.1", "run a.onnx")
    board.finished("onnxruntime 1.18.1", "run a.onnx", "completed")
    board.started("onnxruntime 1.18.1", "run b.onnx")

    assert [line.split("  ") for line in shown(board).split("\n")[:2]] == [
        ["onnxruntime 1.18.1", "run b.onnx", *[""] * 7, " 1 done"],
        ["onnxruntime 1.19.2", "preparing the environment", "0 done"],
    ]


def test_an_unavailable_environment() -> None:
    """A runtime without an environment is shown as not available."""
    board = worker_pool.ProgressBoard()
    board.started("onnxruntime 1.18.1", "prepare")
    board.finished("onnxruntime 1.18.1", "prepare", "unavailable")

    assert "not available" in shown(board)


@pytest.mark.parametrize(
    "attack", ["\x1b[31m", "[red]x[/red]", "[/]", "\u202e", "x\n::error::", ":smile:", "##[error]x"]
)
def test_names_are_shown_and_not_obeyed(attack: str) -> None:
    """Names cannot inject rich markup, terminal escapes or GitHub workflow commands."""
    from onnxgate.core.escape import escape_log_line

    board = worker_pool.ProgressBoard()
    board.started("onnxruntime 1.18.1", f"run {attack}")

    assert escape_log_line(f"run {attack} ") in shown(board)


def test_a_pipe_gets_nothing() -> None:
    """Without a terminal, progress is not displayed."""
    with worker_pool.open_progress() as display:
        assert type(display) is Progress


@pytest.mark.skipif(os.name == "nt", reason="a pseudo-terminal as POSIX has it")
@pytest.mark.parametrize(
    ("arguments", "terminal", "expected"), [("", "xterm", True), ("quiet=True", "xterm", False), ("", "dumb", False)]
)
def test_on_a_terminal(arguments: str, terminal: str, expected: bool) -> None:
    """The display appears on a terminal, but not with `--quiet` or on a dumb terminal."""
    code = f"""
from onnxgate.cli.shared import worker_pool
with worker_pool.open_progress({arguments}) as board:
    board.started("onnxruntime 1.18.1", "run a.onnx")
    getattr(board, "lines", lambda: 0)()
    import time; time.sleep(0.5)
"""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": terminal}
    process = subprocess.Popen([sys.executable, "-c", code], stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    while True:
        try:
            block = os.read(ours, 4096)
        except OSError:
            break
        if not block:
            break
        said += block
    os.close(ours)

    assert process.wait(30) == 0
    assert (b"run a.onnx" in said) is expected


@pytest.mark.skipif(os.name == "nt", reason="a pseudo-terminal as POSIX has it")
def test_printed_lines_do_not_mix_with_progress() -> None:
    """The display is cleared before a line is printed and redrawn below it."""
    code = """
import sys, time
from onnxgate.cli.shared import worker_pool
with worker_pool.open_progress() as board:
    board.started("onnxruntime 1.18.1", "run a.onnx")
    time.sleep(0.5)
    with worker_pool.pause_progress(board):
        print("printed meanwhile", flush=True)
    time.sleep(0.5)
"""
    actual = on_terminal(code)

    before, _, after = actual.partition(b"printed meanwhile\r\n")

    assert b"\x1b[2K" in before.rpartition(b"done")[2]
    assert b"run a.onnx" in after


def on_terminal(code: str) -> bytes:
    """Return the output to a pseudo-terminal on both streams."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # on Linux, reading fails after the process has ended
        while block := os.read(ours, 4096):
            said += block
    os.close(ours)
    assert process.wait(30) == 0
    return said


def test_timings_of_each_runtime() -> None:
    """`-v` prints a line per runtime, `-vv` also one per activity; the display receives all events."""
    board = worker_pool.ProgressBoard()
    log = worker_pool.ActivityLog(board)
    for activity, outcome in (("prepare", "ready"), ("load a.onnx", "completed"), ("run a.onnx", "crashed")):
        log.started("onnxruntime 1.18.1", activity)
        log.finished("onnxruntime 1.18.1", activity, outcome)
    log.started("onnxruntime 1.9.0", "prepare")
    log.finished("onnxruntime 1.9.0", "prepare", "unavailable")

    assert log.lines() == [
        "onnxruntime 1.9.0: environment unavailable (0.0 s)",
        "onnxruntime 1.18.1: environment ready (0.0 s), 2 jobs (0.0 s)",
    ]
    assert log.lines(each=True)[3:] == [
        "  prepare: ready (0.0 s)",
        "  load a.onnx: completed (0.0 s)",
        "  run a.onnx: crashed (0.0 s)",
    ]
    assert "2 done" in shown(board)
