"""The one way in which git is asked: whoever owns the checkout, whatever its settings name, and with no questions."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

SAFE = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
"""A checkout may belong to another user (containers), and its own settings may name programs to run."""
LOCAL_TIMEOUT_S = 120
FETCH_TIMEOUT_S = 1800
FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
"""What a hook of git is given: of the repository that runs it, which need not be the one that is asked."""


def ask(
    folder: Path,
    arguments: Sequence[str],
    *,
    stdin: bytes = b"",
    stdout: object = subprocess.PIPE,
    offline: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """What git answers; where there is no git, status 127. `offline`: nothing is fetched on the way."""
    command = ["git", *SAFE, *arguments]
    environment = _environment(offline)
    limit_s = LOCAL_TIMEOUT_S if offline else FETCH_TIMEOUT_S
    try:
        if not offline:  # it may wait for another machine, and must not do so when we are gone
            return _tied(command, folder, stdin, stdout, environment)
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            command,
            cwd=folder,
            input=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            check=False,
            env=environment,
            timeout=limit_s,
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, b"", f"git: {error.strerror}".encode())
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, b"", f"git: no answer within {limit_s} s".encode())


def _tied(
    command: Sequence[str], folder: Path, stdin: bytes, stdout: object, environment: dict[str, str]
) -> subprocess.CompletedProcess[bytes]:
    from onnxgate import lifeline

    return lifeline.run(
        command,
        input=stdin,
        environment=environment,
        folder=folder,
        timeout_s=FETCH_TIMEOUT_S,
        stdout=stdout,  # type: ignore[arg-type]
    )


def answer(folder: Path, *arguments: str) -> str | None:
    """What git answers without asking anybody else; None where it fails, or there is none."""
    done = ask(folder, arguments, offline=True)
    return os.fsdecode(done.stdout) if done.returncode == 0 else None


def words(folder: Path, arguments: Sequence[str]) -> str:
    """The one line that git answers; "" where it has no answer."""
    return (answer(folder, *arguments) or "").strip()


def trouble(folder: Path) -> str:
    """Why git says nothing of this repository at all; "" where it does."""
    done = ask(folder, ["rev-parse", "--git-dir"], offline=True)
    return last_line(done.stderr) or f"exit status {done.returncode}" if done.returncode else ""


def is_tracked(root: Path, path: str) -> bool:
    """Whether git has a file of that name, committed or about to be."""
    return ask(root, ["ls-files", "--error-unmatch", "-z", "--", f":(literal){path}"]).returncode == 0


def last_line(stderr: bytes) -> str:
    """What git said last, which is why it failed."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


def _environment(offline: bool) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    own |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    return own | {"GIT_NO_LAZY_FETCH": "1"} if offline else own
