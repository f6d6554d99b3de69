"""A signal interrupts the command even if the handler cannot raise an exception."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

IN_A_CALLBACK = """
import os, signal, time, weakref
from onnxgate.cli.shared.error_handling import install_signal_handlers

class Referent:
    pass

def gone(_):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.01)

install_signal_handlers()
referent = Referent()
reference = weakref.ref(referent, gone)
try:
    del referent
    for _ in range(500):
        time.sleep(0.01)
    print("went on")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM that a program could obey, and no timer of signals")
def test_in_a_callback() -> None:
    """Python swallows exceptions of weak-reference callbacks; the command is interrupted nevertheless, silently."""
    result = subprocess.run([sys.executable, "-c", IN_A_CALLBACK], capture_output=True, text=True, check=True)

    assert (result.stdout, result.stderr) == ("interrupted\n", "")


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process that gets SIGTERM")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_before_the_command_starts(tmp_path: Path, name: str) -> None:
    """A signal during the first import ends the installed command with status 130, without a traceback."""
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    ((module, function),) = re.findall(r'^onnxgate = "([\w.]+):(\w+)"$', settings, re.MULTILINE)[:1]
    signalling = f"import os, signal\nos.kill(os.getpid(), signal.{name})\n"
    (tmp_path / "click.py").write_text(signalling, encoding="utf-8")
    code = (
        f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"from {module} import {function}; {function}()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    result = subprocess.run(
        [sys.executable, "-c", code, "--help"], env=environment, capture_output=True, text=True, check=False
    )

    assert (result.returncode, result.stdout, result.stderr) == (130, "", "interrupted\n")
