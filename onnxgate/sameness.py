"""What the outputs of a run depend on, as two digests: of where and what is run, and of what it is fed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from onnxgate.config.engines import runs_on_node
from onnxgate.lock.types import LockedRuntime, Pinned
from onnxgate.model.hashing import Identity, identity, sha256_of
from onnxgate.runtimes import rights
from onnxgate.runtimes.jobs import Run
from onnxgate.runtimes.seats import JobLimits, Seat

LAYOUT = 2
"""Counts changes of what an entry means."""
WORKER = Path(__file__).parent / "runtimes" / "worker"
HALF = 32
"""Digits of a key that say where and what is run; as many say on which inputs."""
NOT_TOLD = frozenset({*rights.SCRATCH, "PATH", "TERM"})
"""Variables of a worker that no output depends on."""


class _Place(msgspec.Struct, frozen=True):
    """All that the outputs of a run depend on, but what it is fed."""

    layout: int
    worker: str
    processor: str
    variables: dict[str, str]
    node: str
    runtime: LockedRuntime
    packages: tuple[Pinned, ...]
    model: str
    optimization: str
    providers: tuple[str, ...]
    extensions: tuple[str, ...]
    again: bool
    time_s: float
    memory_mib: int | None


class ChangedError(Exception):
    """A file is not what it was when its digest was made."""


@dataclass(slots=True)
class Digests:
    """Digests of files, each with what proves that the file is still the one that has it."""

    _known: dict[Path, tuple[Identity, str]] = field(default_factory=dict)

    def of(self, path: Path) -> str:
        """The digest of a file.

        Raises:
            ChangedError: it changed since its digest was made, or cannot be read.
        """
        try:
            status = identity(path.stat())
            if path not in self._known:
                self._known[path] = (status, sha256_of(path))
                status = identity(path.stat())
        except OSError as error:
            raise ChangedError(str(path)) from error
        known, digest = self._known[path]
        if known != status:
            raise ChangedError(str(path))
        return digest


def place_digest(seat: Seat, job: Run, content: str, limits: JobLimits, digests: Digests) -> str:
    """Where and what is run. `content` is the model's digest, external data included."""
    assert seat.runtime is not None
    place = _Place(
        layout=LAYOUT,
        worker=_worker(),
        processor=processor(),
        variables=_variables(),
        node=_node() if runs_on_node(seat.engine) else "",
        runtime=seat.runtime,
        packages=seat.packages,
        model=content,
        optimization=job.optimization,
        providers=job.providers,
        extensions=tuple(digests.of(Path(each)) if Path(each).is_absolute() else each for each in job.extensions),
        again=job.again,
        time_s=limits.time_s,
        memory_mib=limits.memory_mib,
    )
    return hashlib.sha256(msgspec.json.encode(place, order="sorted")).hexdigest()


def fed_digest(job: Run, digests: Digests) -> str:
    """What it is fed: names and contents of the inputs, case by case; what a case is called says nothing."""
    cases = [[(name, digests.of(Path(path))) for name, path in case.inputs.items()] for case in job.cases]
    return hashlib.sha256(msgspec.json.encode(cases)).hexdigest()


@functools.cache
def _worker() -> str:
    """What of ours makes the outputs: the worker's own code."""
    digest = hashlib.sha256()
    for file in sorted(path for path in WORKER.rglob("*") if path.suffix in (".py", ".mjs")):
        digest.update(f"{file.relative_to(WORKER).as_posix()}\0{sha256_of(file)}\n".encode())
    return digest.hexdigest()


def _variables() -> dict[str, str]:
    """What a runtime's worker is told by its environment: threads, allocators, languages, libraries."""
    told = rights.for_runtime(os.environ, Path(), own=False)
    return {name: told[name] for name in sorted(told) if name.upper() not in NOT_TOLD}


@functools.cache
def _node() -> str:
    """The Node that an engine runs on, which no lock pins."""
    found = shutil.which("node")
    if found is None:
        return ""
    program = Path(found).resolve()
    return f"{program} {program.stat().st_size}"


@functools.cache
def processor() -> str:
    """What of the machine the outputs may depend on: another processor or mathematical library may round otherwise."""
    words = [platform.system(), platform.machine(), platform.processor(), f"{os.cpu_count()} cores"]
    words += [*platform.libc_ver(), platform.mac_ver()[0], platform.version() if os.name == "nt" else ""]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
        words += [
            line for line in lines if line.startswith(("vendor_id", "model", "stepping", "flags", "Features", "CPU"))
        ]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()
