"""The one way in which git is asked: whoever owns the checkout, whatever its settings name, and with no questions."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

SAFE = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
"""A checkout may belong to another user (containers), and its own settings may name programs to run."""
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
    try:
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            command, cwd=folder, input=stdin, stdout=stdout, stderr=subprocess.PIPE, check=False, env=environment
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, b"", f"git: {error.strerror}".encode())


def answer(folder: Path, *arguments: str) -> str | None:
    """What git answers without asking anybody else; None where it fails, or there is none."""
    done = ask(folder, arguments, offline=True)
    return os.fsdecode(done.stdout) if done.returncode == 0 else None


def words(folder: Path, arguments: Sequence[str]) -> str:
    """The one line that git answers; "" where it has no answer."""
    return (answer(folder, *arguments) or "").strip()


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
