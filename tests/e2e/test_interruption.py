"""An interrupted check ends at once with status 130, and a killed check leaves no processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import SilentIndex, unanswered
from tests.e2e.test_offline import PAGE
from tests.harness.marked_processes import MARK, busiest_s, marked, until
from tests.harness.models import write
from tests.harness.repositories.user_repository import CommandResult, Repository, wait

SOON_S = 20
SLEEPS = 'import pathlib, time; pathlib.Path("started").touch(); time.sleep(600)'


def interrupt(process: subprocess.Popen[str]) -> CommandResult:
    """Send SIGINT and wait for the process to end soon."""
    process.send_signal(signal.SIGINT)
    return wait(process, SOON_S)


@pytest.mark.index
def test_while_a_model_runs(endless: Repository, mark: str) -> None:
    """A check is interrupted during native code and ends with status 130, even if a model has already failed."""
    write(endless.folder / "models" / "page.onnx")
    endless.run("lock", "--offline")
    endless.write("models/page.onnx", PAGE)
    process = endless.with_environment(**{MARK: mark}).start("check")
    until(lambda: busiest_s(mark) > 2, running=process)
    result = interrupt(process)

    assert (result.status, result.out, result.err.splitlines()[-1]) == (130, "", "interrupted")
    assert marked(mark) == []


@pytest.mark.index
def test_killed_while_a_model_runs(endless: Repository, mark: str) -> None:
    """Workers end even if the check is killed before it can stop them."""
    process = endless.with_environment(**{MARK: mark}).start("check")
    until(lambda: busiest_s(mark) > 2, running=process)
    process.kill()

    assert wait(process).status == -signal.SIGKILL
    until(lambda: marked(mark) == [], SOON_S)


def test_while_an_environment_is_built(small: Repository, silent_index: SilentIndex, tmp_path: Path, mark: str) -> None:
    """uv is stopped too, and the incomplete environment is removed."""
    variables = unanswered(silent_index.url, tmp_path)
    process = small.with_environment(**variables, **{MARK: mark}).start("check")
    cache = Path(str(variables["ONNXGATE_CACHE_DIR"]))
    until(lambda: silent_index.taken != [], running=process)
    half_built = list(cache.glob("environments/*/attempts/*"))
    result = interrupt(process)

    assert half_built
    assert (result.status, result.err) == (130, "interrupted\n")
    assert marked(mark) == []
    assert list(cache.glob("environments/*/attempts/*")) == []


def test_while_a_command_exports(small: Repository, mark: str) -> None:
    """The user's command is stopped together with the worker of the toolchain."""
    python = f'[toolchain]\npython = "{Path(sys.executable).as_posix()}"\n'
    command = f"[[model]]\npath = 'models/small.onnx'\ncommand = ['{{python}}', '-c', '''{SLEEPS}''', '{{output}}']\n"
    small.write("onnxgate.toml", small.read("onnxgate.toml") + python + command)
    process = small.with_environment(**{MARK: mark}).start("check", "--stage", "export")
    until((small.folder / "started").exists, running=process)
    result = interrupt(process)

    assert (result.status, result.err) == (130, "interrupted\n")
    assert marked(mark) == []
