"""Export commands from the config, run by the worker without a shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import onnxgate
from onnxgate.runtimes.worker.exporters import source_jobs

ROOT = Path(onnxgate.__file__).parent.parent
JOB = {"argv": [sys.executable, "-c", "print(input('continue? '))"], "environment": {}}


def run(folder: Path, *argv: str, **environment: str) -> dict[str, Any]:
    """Return the result of a command in a folder."""
    job = {"kind": "command", "argv": list(argv), "folder": str(folder), "environment": environment}
    return source_jobs.command(job, lambda phase: None)


def python(folder: Path, code: str, **environment: str) -> dict[str, Any]:
    """Return the result of a Python program."""
    return run(folder, sys.executable, "-c", code, **environment)


def test_output_of_both_streams(tmp_path: Path) -> None:
    """The log contains both streams in the order of writing."""
    result = python(tmp_path, "import sys; print('a', flush=True); print('b', file=sys.stderr)")

    assert result == {"kind": "command", "status": 0, "log": "a\nb\n"}


def test_working_directory_and_environment(tmp_path: Path) -> None:
    """The command runs in the given folder, with the worker's environment plus the given variables."""
    code = "import os; print(os.getcwd(), os.environ['ADDED'], 'PATH' in os.environ)"

    assert python(tmp_path, code, ADDED="yes")["log"] == f"{tmp_path} yes True\n"


def test_no_shell(tmp_path: Path) -> None:
    """Arguments are passed on unchanged."""
    result = run(tmp_path, sys.executable, "-c", "import sys; print(sys.argv[1:])", "$HOME; ls", "*", "")

    assert result["log"] == "['$HOME; ls', '*', '']\n"


def test_nothing_to_read(tmp_path: Path) -> None:
    """The command reads an empty standard input, even if the worker's own is not empty."""
    code = f"from {source_jobs.__name__} import command; print(command({{**{JOB}, 'folder': '.'}}, print)['log'])"
    result = subprocess.run(
        [sys.executable, "-c", code], input="yes", capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert "EOFError" in result.stdout


def test_exit_status(tmp_path: Path) -> None:
    """An exit status is reported unchanged, and a signal as its negative number."""
    killed = f"import os; os.kill(os.getpid(), {int(signal.SIGTERM)})"

    assert python(tmp_path, "import sys; sys.exit(3)")["status"] == 3
    assert python(tmp_path, killed)["status"] == -signal.SIGTERM


def test_command_that_is_not_there(tmp_path: Path) -> None:
    """A command that cannot be started has status 127, as in a shell, and does not fail the worker."""
    result = run(tmp_path, "no-such-exporter", "--out", "x")

    assert result["status"] == 127
    assert result["log"] == "`no-such-exporter` cannot be started: No such file or directory"


def test_long_output_keeps_its_end(tmp_path: Path) -> None:
    """The log is limited in size and keeps the end of the output."""
    result = python(tmp_path, "for i in range(200000): print('line', i)\nprint('the end')")

    assert len(result["log"]) <= source_jobs.LOG_TAIL_BYTES
    assert result["log"].endswith("line 199999\nthe end\n")


def test_terminal_output_is_made_plain(tmp_path: Path) -> None:
    """Colors are removed, and only the last state of a progress bar is kept."""
    result = python(tmp_path, r"print('\x1b[31mred\x1b[0m'); print('10%\r50%\r100%'); print('\x1b]0;title\x07done')")

    assert result["log"] == "red\n100%\ndone\n"


@pytest.mark.skipif(os.name == "nt", reason="process groups are POSIX's")
def test_command_stays_in_the_workers_group(tmp_path: Path) -> None:
    """Ending the worker's process group also ends the command."""
    assert python(tmp_path, "import os; print(os.getpgid(0))")["log"] == f"{os.getpgid(0)}\n"


def test_background_process_is_not_awaited(tmp_path: Path) -> None:
    """The result is returned although a background process keeps the output open."""
    sleeper = "[sys.executable, '-c', 'import time; time.sleep(8)']"
    code = f"import subprocess, sys; subprocess.Popen({sleeper}); print('started')"
    begin = time.monotonic()
    result = python(tmp_path, code)

    assert result["log"] == "started\n"
    assert time.monotonic() - begin < 7
