"""A user's own command that writes a model: run without a shell, its output kept short."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import Any, Callable, Dict, List

from .failure import plain

KEPT_BYTES = 64 * 1024
NOT_STARTED = 127  # what a shell says of a command that it cannot start
_GRACE_S = 2.0


def run(job: Dict[str, Any], phase: Callable[[str], None]) -> Dict[str, Any]:
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
        return _result(NOT_STARTED, "`{}` cannot be started: {}".format(argv[0], error.strerror or error))
    return _result(*_wait(child))


def _result(status: int, log: str) -> Dict[str, Any]:
    return {"kind": "command", "status": status, "log": log}


def _wait(child: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Status and tail. What the command leaves running may hold its output open: it is not waited for."""
    kept: List[bytes] = []
    reader = threading.Thread(target=_keep_tail, args=(child, kept), daemon=True)
    reader.start()
    status = child.wait()
    reader.join(_GRACE_S)
    return status, plain(b"".join(kept)[-KEPT_BYTES:].decode("utf-8", "replace"))


def _keep_tail(child: subprocess.Popen[bytes], kept: List[bytes]) -> None:
    assert child.stdout is not None
    with child.stdout as output:
        for chunk in iter(lambda: os.read(output.fileno(), 65536), b""):
            kept.append(chunk)
            while sum(map(len, kept)) - len(kept[0]) > KEPT_BYTES:
                del kept[0]
