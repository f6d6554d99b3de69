"""Child programs end when onnxgate ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from onnxgate.core import subprocesses
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no /bin/sh")
SLEEPS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
STARTS = (
    "import sys; from onnxgate.core import subprocesses; "
    "subprocesses.run_supervised([sys.executable, '-c', sys.argv[2], sys.argv[1]])"
)


def test_program_output_is_returned() -> None:
    """Input, output, errors and the exit status are passed through the supervisor."""
    script = "import sys; print(sys.stdin.read().upper()); print('no', file=sys.stderr); sys.exit(3)"
    ended = subprocesses.run_supervised([sys.executable, "-c", script], input=b"yes")

    assert (ended.returncode, ended.stdout, ended.stderr) == (3, b"YES\n", b"no\n")


def test_program_that_cannot_start(tmp_path: Path) -> None:
    """A program that cannot be started raises the same error as without supervision."""
    (tmp_path / "text").touch()
    with pytest.raises(FileNotFoundError):
        subprocesses.run_supervised(["unheard-of"])
    with pytest.raises(FileNotFoundError):
        subprocesses.run_supervised([str(tmp_path / "nowhere")])
    with pytest.raises(PermissionError):
        subprocesses.run_supervised([str(tmp_path / "text")])


def test_program_that_times_out(tmp_path: Path) -> None:
    """After the timeout, the program and its child processes are killed."""
    with pytest.raises(subprocess.TimeoutExpired):
        subprocesses.run_supervised([sys.executable, "-c", SLEEPS, str(tmp_path / "pid")], timeout_s=1)

    assert _ends(tmp_path / "pid")


def test_program_ends_with_its_starter(tmp_path: Path) -> None:
    """The program ends even if the process that started it is killed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", STARTS, str(tmp_path / "pid"), SLEEPS], env=environment) as starter:
        until = time.monotonic() + 60
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert time.monotonic() < until
            time.sleep(0.01)
        starter.send_signal(signal.SIGKILL)

    assert _ends(tmp_path / "pid")


def _ends(file: Path) -> bool:
    """Return whether the process with the ID in `file` ends within 20 seconds."""
    number = int(file.read_text())
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return True
        stat = Path(f"/proc/{number}/stat")
        if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


INSPECTION = """
import ctypes, os, subprocess, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
from onnxgate.core.subprocesses import deny_inspection
CHILD = '''
import os
for name in ("environ", "mem", "fd/0", "cwd"):
    try:
        os.close(os.open(f"/proc/{os.getppid()}/{name}", os.O_RDONLY))
        print("read", end=" ")
    except PermissionError:
        print("denied", end=" ")
'''
for _ in range(2):
    ran = subprocess.run([sys.executable, "-I", "-c", CHILD], stdout=subprocess.PIPE, check=True, text=True)
    print(ran.stdout.strip())
    deny_inspection()
"""
SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = 65534


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


def _run_as_another_user(script: str, *arguments: str) -> str:
    """Run a script as an unprivileged user, because root can inspect every process."""
    root = os.getuid() == 0
    python = SYSTEM_PYTHON if root else sys.executable
    minor = [python, "-c", "import sys; print(*sys.version_info[:2])"]
    if root and (not Path(python).exists() or _run(minor).split() != [*map(str, sys.version_info[:2])]):
        pytest.skip("needs a Python that an unprivileged user can run")
    return _run([python, "-I", "-c", script, *arguments], user=NOBODY if root else None, cwd="/")


def _run(command: list[str], **options: Any) -> str:
    return subprocess.run(command, capture_output=True, check=True, text=True, **options).stdout


@linux
def test_a_child_cannot_inspect_its_parent() -> None:
    """A process of the same user cannot read the variables, memory, files and folder of a protected process."""
    seen = _run_as_another_user(INSPECTION, os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry)]))

    assert seen == "read read read read\ndenied denied denied denied\n"


@linux
def test_commands_deny_inspection() -> None:
    """The environment of a command may contain secrets, which programs of the repository must not read."""
    script = (
        "import atexit, ctypes; from onnxgate.cli import main; "
        "atexit.register(lambda: print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))); main(['explain', 'opset-too-new'])"
    )
    command = [sys.executable, "-c", script]
    seen = _run(command)

    assert seen.splitlines()[-1] == "0"
