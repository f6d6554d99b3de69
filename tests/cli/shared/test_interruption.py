"""A signal interrupts the command even if the handler cannot raise an exception."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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
