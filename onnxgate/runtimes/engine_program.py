"""Programs of engines: how their workers are started, in the sandbox and without it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxgate.core.files import read_limited
from onnxgate.core.jobs import Job, Observation, Unavailable
from onnxgate.core.subprocesses import CommandRunner
from onnxgate.project.engines import engine_family, runs_on_node
from onnxgate.runtimes import sandbox
from onnxgate.runtimes.memory import memory_limit_mib
from onnxgate.runtimes.protocol import WORKER_FOLDER, WorkerSession
from onnxgate.runtimes.sandbox import Permissions, WorkerFolder
from onnxgate.runtimes.worker_spec import JobLimits

PYTHON_FLAGS = ("-B", "-X", "utf8")
ISOLATED_FLAGS = ("-I", "-S")
"""Engines only import packages from their environment. The worker processes `.pth` files after it entered the sandbox.

Source: `site` imports `sitecustomize` and runs the lines of `.pth` files that begin with `import`.
"""


def adapter_name(engine: str) -> str:
    """Return the name of the module that implements the jobs of an engine."""
    return engine_family(engine).replace("-", "_")


MAX_PTH_BYTES = 2**16
MODULE_SUFFIXES = frozenset({".py", ".so", ".pyd"})
"""Suffixes of modules. Source: `importlib.machinery.all_suffixes()`, without bytecode."""


@dataclass(frozen=True, slots=True)
class EngineProgram:
    """Program of one environment that runs the jobs of an engine."""

    engine: str
    argv: tuple[str, ...]  # the interpreter; for Node, the whole command
    reads: frozenset[str] = frozenset()  # files and folders that the program itself reads
    own: bool = False  # in a user environment
    worker: Path = WORKER_FOLDER

    @classmethod
    def of_python(
        cls, engine: str, interpreter: Path, *, own: bool = False, worker: Path = WORKER_FOLDER
    ) -> EngineProgram:
        """Return the program of an environment with this interpreter."""
        environment = interpreter.parent.parent  # with `-S`, Python itself does not know it
        reads = frozenset(_list_linked_packages(environment) if own else [str(environment)])
        return cls(engine, (str(interpreter),), reads, own, worker)

    @property
    def adapter(self) -> str:
        """Name of the module that implements the engine's jobs."""
        return adapter_name(self.engine)

    def command(self, rights: Path | None) -> list[str]:
        """Return the command that starts a worker; without a file with its permissions, it has no sandbox."""
        main = [str(self.worker / "__main__.py"), *([str(rights)] if rights is not None else [])]
        if not runs_on_node(self.engine):
            return [*self.argv, *ISOLATED_FLAGS, *PYTHON_FLAGS, *main]
        return [sys.executable, *ISOLATED_FLAGS, *PYTHON_FLAGS, *main, *self.argv] if rights else [*self.argv]

    def write_permissions(self, folder: WorkerFolder, permissions: Permissions) -> Path:
        """Write the file for `command`: the permissions, and those that the program itself needs."""
        return folder.write_permissions(permissions, self.reads)

    def variables(self, folder: WorkerFolder) -> Mapping[str, str]:
        """Return the environment variables of a worker in the sandbox."""
        return sandbox.runtime_variables(os.environ, folder.path, own=self.own)


def _list_linked_packages(environment: Path) -> Iterator[str]:
    """Yield the folders outside of an environment that its packages are in: of `.pth` files, and targets of links.

    They may be hidden, as the cache of uv, whose link mode `symlink` creates a link for each file of a package. A
    package may also name a folder with credentials, such as `~/.ssh`.
    """
    for entry in environment.glob("lib*/python3*/site-packages/*"):
        with contextlib.suppress(OSError, ValueError):  # the files may change, and the environment is checked later
            if entry.suffix == ".pth":
                lines = read_limited(entry, MAX_PTH_BYTES).decode("utf-8", "replace").splitlines()
                folders = (entry.parent / line.strip() for line in lines if not line.startswith(("#", "import")))
                yield from (os.path.realpath(folder) for folder in folders if _contains_modules(folder))
            elif entry.is_symlink():
                yield os.path.realpath(entry)
            elif (entry / "__init__.py").is_symlink():
                yield str(Path(os.path.realpath(entry / "__init__.py")).parents[1])  # with `numpy.libs`


def _contains_modules(folder: Path) -> bool:
    """Return whether Python can import a file in a folder, or a package with an `__init__.py`."""
    with contextlib.suppress(OSError):
        return any(entry.suffix in MODULE_SUFFIXES or (entry / "__init__.py").exists() for entry in folder.iterdir())
    return False


def run_job(program: EngineProgram, job: Job, commands: CommandRunner, limits: JobLimits) -> Observation:
    """Run one job in a new worker. As in the pool, a user's build that cannot start in the sandbox runs unsandboxed.

    Raises:
        UnavailableError: onnxgate is shutting down.
        OSError: the worker's program cannot be started, or its outputs cannot be stored.
        InvalidOutputError: an output is not a complete array.
    """
    observation, started = _run_once(program, job, commands, limits, limited=True)
    return observation if started or not program.own else _run_once(program, job, commands, limits, limited=False)[0]


def _run_once(
    program: EngineProgram, job: Job, commands: CommandRunner, limits: JobLimits, *, limited: bool
) -> tuple[Observation, bool]:
    """Return the observation, and whether the engine could be started."""
    memory_mib = memory_limit_mib(job, limits)
    permissions = sandbox.required_permissions([job], memory_mib, own=program.own)
    with contextlib.closing(WorkerFolder()) as folder:
        rights = program.write_permissions(folder, permissions) if limited else None
        command, variables = program.command(rights), program.variables(folder)
        with commands.start_worker(command, environment=variables, folder=folder.path) as worker:
            session = WorkerSession(worker, program.adapter)
            refused = session.wait_until_ready()
            if refused is not None:
                return refused, False
            inner = folder.redirect(job)
            observation = folder.deliver(session.run(inner, limits.time_s, memory_mib), inner, job)
            return observation, not (session.cannot_start and isinstance(observation, Unavailable))
