"""A small project with real runtimes, and methods that run onnxgate in it under a fault."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from campaigns.faults.invariants import FaultOutcome
from tests.conftest import ROOT
from tests.harness.marked_processes import MARK, marked
from tests.harness.models import write
from tests.harness.repositories.checkout import NOBODY, commit
from tests.harness.repositories.user_repository import Repository, usual_environment

CONFIG = """models = ["models/*.onnx"]

[targets.server]
runtime = "onnxruntime>=1.18,<1.20"

[[model]]
path = "models/**"
sizes = { N = [1, 3] }
"""
PATIENCE_S = 120
SOON_S = 20
DROP_CAPABILITY = 24  # PR_CAPBSET_DROP
PERMISSIONS = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH

During = Callable[[subprocess.Popen[bytes]], None]


@dataclass(frozen=True)
class Ground:
    """The project for one fault. All files in `folder` belong to it; environments come from `shared`."""

    program: Path
    shared: Path  # a cache whose environments are reused and extended
    folder: Path
    thorough: bool = False
    truths: dict[str, dict[str, Any]] = field(default_factory=dict)
    template: Path | None = None  # a locked project to copy

    @property
    def project(self) -> Path:
        """The user's repository."""
        return self.folder / "project"

    @property
    def lock(self) -> Path:
        """The project's lock."""
        return self.project / "onnxgate.lock"

    @property
    def temporary(self) -> Path:
        """The folder for temporary files."""
        return self.folder / "tmp"

    @property
    def cache(self) -> Path:
        """The project's own cache, which links to the shared environments."""
        return self.folder / "cache"

    @property
    def package(self) -> Path:
        """The installed package."""
        return next(self.program.parent.parent.glob("[Ll]ib/**/site-packages/onnxgate"))

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for the command without a fault."""
        own = {"ONNXGATE_CACHE_DIR": str(self.cache), "TMPDIR": str(self.temporary), "UV_PYTHON_DOWNLOADS": "never"}
        return {**usual_environment(), **NOBODY, **own}

    def laid(self) -> Ground:
        """Create the project: one small model, two releases, and a lock copied from a fixture."""
        for folder in (self.temporary, self.cache, self.shared / "environments"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.cache / "environments").symlink_to(self.shared / "environments")
        if self.template:
            shutil.copytree(self.template, self.project)
            return self
        write(self.project / "models" / "small.onnx")
        (self.project / "onnxgate.toml").write_text(CONFIG, encoding="utf-8")
        shutil.copy(ROOT / "fixtures" / "projects" / "broken" / "onnxgate.lock", self.project)
        commit(self.project)
        Repository(self.program, self.project, self.environment).run("lock", "--offline")
        commit(self.project)
        return self

    def elsewhere(self, name: str) -> Ground:
        """Return a second project like this one, with the same reference reports."""
        return replace(self, folder=self.folder / name).laid()

    def truth(self, *arguments: str) -> dict[str, Any]:
        """Return the report of a check without a fault."""
        key = " ".join(arguments)
        if key not in self.truths:
            own = self.folder / "unharmed cache"
            own.mkdir(exist_ok=True)
            if not (own / "environments").exists():
                (own / "environments").symlink_to(self.shared / "environments")
            unharmed = Repository(self.program, self.project, self.environment).with_environment(ONNXGATE_CACHE_DIR=own)
            status = unharmed.run("check", *arguments, "--output", f"json={self.folder / 'truth.json'}")
            assert status.status == 0
            self.truths[key] = json.loads((self.folder / "truth.json").read_bytes())
        return self.truths[key]

    def check(self, *arguments: str, expected: Sequence[int], true: bool = True, **given: Any) -> FaultOutcome:
        """Run `onnxgate check` under a fault. With `true`, a passing report must equal the report without a fault."""
        file = self.folder / f"report-{uuid.uuid4().hex[:6]}.json"
        truth = self.truth(*arguments) if true else None
        if (self.cache / "results").is_dir():  # cached results from before the fault must not be reused
            shutil.rmtree(self.cache / "results")
        seen = self.run("check", *arguments, "--output", f"json={file}", expected=expected, **given)
        with contextlib.suppress(OSError, ValueError):
            return replace(seen, report=json.loads(file.read_bytes()), truth=truth)
        unread = (file.name,) if file.exists() and file.stat().st_size and not seen.killed else ()
        return replace(seen, truth=truth, unread=unread)

    def run(
        self,
        *arguments: str,
        expected: Sequence[int],
        variables: Mapping[str, str | Path | None] | None = None,
        setup: Callable[[], None] | None = None,
        during: During | None = None,
        before: Sequence[str] = (),
        folder: Path | None = None,
        patience_s: float = PATIENCE_S,
        temporary: Path | None = None,
        locks: Sequence[str] = (),
        about: str = "",
        **marks: Any,
    ) -> FaultOutcome:
        """Run the command, and collect its output and the files and processes that it left."""
        mark = uuid.uuid4().hex
        environment = {**self.environment, MARK: mark, **(variables or {})}
        lock_before = _text(self.lock) or ""
        files_before = set(_user_files(self.project))
        scratch_before = set(_names(temporary or self.temporary))
        process = subprocess.Popen(
            [*before, str(self.program), *arguments],
            cwd=folder or self.project,
            env={name: str(value) for name, value in environment.items() if value is not None},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=setup,
            start_new_session=True,
        )
        out, err, late = _converse(process, during, patience_s)
        left = _survivors(mark)
        return FaultOutcome(
            status=process.returncode,
            out=out.decode("utf-8", "replace"),
            err=err.decode("utf-8", "replace"),
            expected=frozenset(expected),
            lock=(lock_before, _text(self.lock)),
            locks=tuple(locks),
            left=left,
            scratch=tuple(sorted(set(_names(temporary or self.temporary)) - scratch_before)),
            strays=tuple(sorted(set(_user_files(self.project)) - files_before)),
            late=late,
            about=about,
            **marks,
        )

    def own_environments(self, *, copied: str = "") -> Path:
        """Create a separate environments folder, with copies of environments named `copied…` and links to others."""
        self.truth()
        folder = self.cache / "environments"
        if folder.is_symlink():
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for path in sorted((self.shared / "environments").iterdir()):
            if path.name.endswith(".lock") or not (path / "ready.json").exists():
                continue
            if copied and path.name.startswith(copied):
                shutil.copytree(path, folder / path.name, symlinks=True)
            else:
                (folder / path.name).symlink_to(path)
        return folder


def _converse(process: subprocess.Popen[bytes], during: During | None, patience_s: float) -> tuple[bytes, bytes, bool]:
    if during is not None:
        during(process)
    try:
        return *process.communicate(timeout=patience_s), False
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return *process.communicate(), True


def _survivors(mark: str) -> tuple[str, ...]:
    """Kill the processes that still run after a short wait, and return them."""
    end = time.monotonic() + SOON_S
    while (left := marked(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    names = tuple(_command_line(pid) for pid in left)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return names


def _command_line(pid: int) -> str:
    return (_text(Path(f"/proc/{pid}/cmdline")) or "").replace("\0", " ")[:120]


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _names(folder: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from (path.name for path in folder.iterdir())


def _user_files(project: Path) -> Iterator[str]:
    """Yield all of the user's files, except the files in `.git`."""
    for here, folders, names in os.walk(project):
        folders[:] = [folder for folder in folders if folder != ".git"]
        yield from (str(Path(here, name).relative_to(project)) for name in names)


def bound_by_permissions() -> None:
    """Make permission bits effective in a child process that runs as root."""
    library = ctypes.CDLL(None)
    for capability in PERMISSIONS:
        library.prctl(DROP_CAPABILITY, capability, 0, 0, 0)


def need_bound_permissions(folder: Path) -> None:
    """Skip the test if permission bits have no effect."""
    probe = folder / "probe"
    probe.mkdir()
    probe.chmod(0o500)
    tried = subprocess.run(
        ["touch", str(probe / "x")], preexec_fn=bound_by_permissions, capture_output=True, check=False
    )
    if tried.returncode == 0:
        pytest.skip("permission bits have no effect here")


def in_own_mounts(*commands: str) -> list[str]:
    """Return a command prefix that mounts file systems for one command, or skip the test."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        tried = subprocess.run([*unshare, "true"], capture_output=True, check=False)
    except OSError:
        pytest.skip("no `unshare` here")
    if tried.returncode:
        pytest.skip("file systems cannot be mounted here")
    return [*unshare, "sh", "-c", f'{" && ".join(commands)} && exec "$@"', "sh"]
