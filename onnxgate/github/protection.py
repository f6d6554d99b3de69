"""Protection of a step against code of the checked repository, which runs as the same user.

A source can search for the runner's command files (`GITHUB_ENV` and similar), change the installed files of onnxgate,
and leave processes behind that do so later. The step therefore ends all processes of the command before it reads
results, and requires that these files are unchanged. `docs/concepts/trust.md` lists what this does not prevent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from onnxgate.core.files import file_identity
from onnxgate.core.subprocesses import deny_inspection, set_process_option
from onnxgate.core.text import join_phrases

COMMAND_FILES = ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_STEP_SUMMARY")
"""Variables with the paths of the runner's command files. Lines in these files change later steps."""
END_TIMEOUT_S = 10
# Source: linux/prctl.h.
_SET_CHILD_SUBREAPER = 36
_GET_CHILD_SUBREAPER = 37


def adopt_orphans() -> None:
    """Become the parent of all processes below this one that outlive their own parent. Linux only."""
    set_process_option(_SET_CHILD_SUBREAPER, 1)


class StepGuard:
    """The files that the command of a step must not change, in their state at the time of creation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._command_files = CommandFiles(environment)
        self._installed = _list_files(sys.prefix)

    def finish(self) -> list[str]:
        """End all processes of the command, and undo changes to the runner's files. Return a message per problem."""
        problems = []
        if not end_descendants():
            problems.append("code of the repository started processes that could not be ended")
        if changed := self._command_files.restore():
            names = join_phrases([f"`{name}`" for name in changed])
            problems.append(
                f"code of the repository wrote to the runner's command files {names}; the changes were undone"
            )
        if changed := _list_changes(self._installed, _list_files(sys.prefix)):
            problems.append(f"code of the repository changed files of onnxgate's environment, such as `{changed[0]}`")
        return problems


def end_descendants(timeout_s: float = END_TIMEOUT_S) -> bool:
    """Kill all processes below this one, if it adopts orphans. Return whether none is left."""
    if not _adopts_orphans():
        return True
    deadline_s = time.monotonic() + timeout_s
    while descendants := list(_list_descendants(os.getpid())):
        if time.monotonic() > deadline_s:
            return False
        for process in descendants:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)
    return True


def _adopts_orphans() -> bool:
    adopts = ctypes.c_int()
    set_process_option(_GET_CHILD_SUBREAPER, ctypes.addressof(adopts))
    return bool(adopts.value)


def _list_descendants(ancestor: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(folder.name))
    waiting = [ancestor]
    while waiting:
        found = children.get(waiting.pop(), [])
        waiting += found
        yield from found


class CommandFiles:
    """The runner's command files of this step, with their contents at the time of creation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        paths = {name: Path(environment[name]) for name in COMMAND_FILES if environment.get(name)}
        self._contents = {name: (path, _read_content(path)) for name, path in paths.items()}

    def restore(self) -> list[str]:
        """Undo all changes to the files. Return the names of the changed files."""
        changed = [name for name, (path, content) in self._contents.items() if _read_content(path) != content]
        for name in changed:
            path, content = self._contents[name]
            path.unlink(missing_ok=True)  # it may be a link
            path.write_bytes(content or b"")
        return changed


def _read_content(path: Path) -> bytes | None:
    """Return the content of a file; None if it is missing, a link or not a regular file."""
    try:
        return path.read_bytes() if path.is_file() and not path.is_symlink() else None
    except OSError:
        return None


def _list_files(folder: str) -> dict[str, os.stat_result]:
    files = {}
    for parent, _, names in os.walk(folder):
        for path in (os.path.join(parent, name) for name in names):  # noqa: PTH118 - faster for thousands of files
            with contextlib.suppress(OSError):
                files[path] = os.lstat(path)
    return files


def _list_changes(before: Mapping[str, os.stat_result], after: Mapping[str, os.stat_result]) -> list[str]:
    """Return the files that were changed, removed or created, except for bytecode that was created.

    The time of the last status change shows that a file was written even if its content was restored. It also changes
    when a file is linked, so no other environment may use the cache that the files are linked from.
    """
    created = (path for path in after.keys() - before.keys() if Path(path).parent.name != "__pycache__")
    changed = (
        path
        for path, status in before.items()
        if path not in after or file_identity(status) != file_identity(after[path])
    )
    return sorted((*created, *changed))


if __name__ == "__main__":  # runs onnxgate in a process that cannot be inspected
    deny_inspection()
    runpy.run_module("onnxgate", run_name="__main__", alter_sys=True)
