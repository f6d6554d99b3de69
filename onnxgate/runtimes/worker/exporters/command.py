"""Run of a user's command that writes a model, without a shell and with a limited log."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import Any, Callable, Dict, List

from .source_errors import plain_text

LOG_TAIL_BYTES = 64 * 1024
NOT_STARTED_STATUS = 127  # exit status of a shell for a command that it cannot start
_GRACE_S = 2.0


def run_command(job: Dict[str, Any], phase: Callable[[str], None]) -> Dict[str, Any]:
    """Answer a `Command` job with a `CommandResult`. The child stays in this process group, and ends with it."""
    argv = job["argv"]
    phase("command `{}`".format(argv[0]))
    try:
        child = subprocess.Popen(
            argv,
            cwd=job["folder"],
            env={**os.environ, **job["environment"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        return _command_result(
            NOT_STARTED_STATUS, "`{}` cannot be started: {}".format(argv[0], error.strerror or error)
        )
    return _command_result(*_wait_for_command(child))


def _command_result(status: int, log: str) -> Dict[str, Any]:
    return {"kind": "command", "status": status, "log": log}


def _wait_for_command(child: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Wait for the command; return its status and the tail of its output.

    Processes that it leaves running may keep the output open: they are not waited for.
    """
    kept: List[bytes] = []
    reader = threading.Thread(target=_read_tail, args=(child, kept), daemon=True)
    reader.start()
    status = child.wait()
    reader.join(_GRACE_S)
    return status, plain_text(b"".join(kept)[-LOG_TAIL_BYTES:].decode("utf-8", "replace"))


def _read_tail(child: subprocess.Popen[bytes], kept: List[bytes]) -> None:
    assert child.stdout is not None
    with child.stdout as output:
        for chunk in iter(lambda: os.read(output.fileno(), 65536), b""):
            kept.append(chunk)
            while sum(map(len, kept)) - len(kept[0]) > LOG_TAIL_BYTES:
                del kept[0]
