"""Results by content: what a locked runtime gave for the same model, on the same inputs, on such a processor.

Only what went well is kept: what failed, crashed, or gave other outputs the second time is run again. An entry is found
by the digests of all that it depends on, taken anew from the files that are there now, and is used only where its own
files are what it says of them. Nothing is taken over unless `ONNXGATE_KEPT_DIR` says where from.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
import platform
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from onnxgate.lock.types import LockedRuntime, Pinned
from onnxgate.model.hashing import sha256_of
from onnxgate.runtimes.jobs import CaseResult, Completed, Job, Observation, Run, RunResult
from onnxgate.runtimes.seats import Seat

LAYOUT = 1
"""Counts changes of what an entry means."""
LARGEST_BYTES = 64 * 2**20
"""Outputs of one run that take more are not kept."""
NAME = re.compile(r"\d+/\d+\.npy")
WORKER = Path(__file__).parent / "runtimes" / "worker"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run: its result, with outputs by their path in the entry's folder, and what each of these files is."""

    result: RunResult
    files: dict[str, str]  # path -> sha256


class _Run(msgspec.Struct, frozen=True):
    """All that the outputs of a run depend on."""

    layout: int
    worker: str
    processor: str
    runtime: LockedRuntime
    packages: tuple[Pinned, ...]
    model: str
    optimization: str
    providers: tuple[str, ...]
    extensions: tuple[str, ...]
    again: bool
    cases: tuple[tuple[tuple[str, str], ...], ...]


class Store:
    """Results in a folder. `contents` gives the digest of each model's content, external data included, by its path."""

    def __init__(self, folder: Path, contents: Mapping[str, str]) -> None:
        self._folder = folder
        self._contents = contents
        self._digests: dict[str, str] = {}

    def find(self, seat: Seat, job: Job) -> Observation | None:
        """What was observed of it before; None where it must be run."""
        key = self._key(seat, job)
        if key is None or not isinstance(job, Run):
            return None
        folder = self._at(key)
        entry = _read(folder)
        result = _taken(entry, folder, job) if entry is not None else None
        if result is None:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(folder)
        return Completed(result=result)

    def keep(self, seat: Seat, job: Job, observation: Observation) -> None:
        """Keep what was observed, where it may be taken over; a disk that is full is no fault."""
        match observation:
            case Completed(result=RunResult() as result) if isinstance(job, Run) and _is_sound(result):
                key = self._key(seat, job)
                if key is not None:
                    with contextlib.suppress(OSError):
                        _write(self._at(key), result)
            case _:
                pass

    def _at(self, key: str) -> Path:
        return self._folder / key

    def _key(self, seat: Seat, job: Job) -> str | None:
        if not isinstance(job, Run) or seat.runtime is None or seat.runtime.environment:
            return None
        if job.model not in self._contents:
            return None
        run = _Run(
            layout=LAYOUT,
            worker=_worker(),
            processor=processor(),
            runtime=seat.runtime,
            packages=seat.packages,
            model=self._contents[job.model],
            optimization=job.optimization,
            providers=job.providers,
            extensions=tuple(self._digest(each) if Path(each).is_absolute() else each for each in job.extensions),
            again=job.again,
            cases=tuple(tuple((name, self._digest(path)) for name, path in case.inputs.items()) for case in job.cases),
        )
        return hashlib.sha256(msgspec.json.encode(run, order="sorted")).hexdigest()

    def _digest(self, path: str) -> str:
        if path not in self._digests:
            self._digests[path] = sha256_of(Path(path))
        return self._digests[path]


def _is_sound(result: RunResult) -> bool:
    return all(case.failure is None and not case.unstable and not case.aliased for case in result.cases)


def _read(folder: Path) -> Entry | None:
    try:
        return msgspec.json.decode((folder / "entry.json").read_bytes(), type=Entry)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _taken(entry: Entry, folder: Path, job: Run) -> RunResult | None:
    """The result with its outputs copied to where the job wants them; None where something is not what it was."""
    result = entry.result
    names = {name for case in result.cases for name in case.outputs if name is not None}
    if len(result.cases) != len(job.cases) or not _is_sound(result) or names != entry.files.keys():
        return None
    if any(len(case.outputs) != len(result.outputs) for case in result.cases):
        return None
    target = Path(job.output)
    if not all(NAME.fullmatch(name) and _copy(folder / name, target / name, entry.files[name]) for name in names):
        return None
    cases = tuple(_placed(case, lambda name: str(target / name)) for case in result.cases)
    return msgspec.structs.replace(result, cases=cases)


def _placed(case: CaseResult, place: Callable[[str], str]) -> CaseResult:
    return msgspec.structs.replace(case, outputs=tuple(None if path is None else place(path) for path in case.outputs))


def _copy(file: Path, to: Path, sha256: str) -> bool:
    """Whether the file has that hash and is an array that can be read."""
    try:
        if file.is_symlink() or file.stat().st_size > LARGEST_BYTES:
            return False
        content = file.read_bytes()
        if hashlib.sha256(content).hexdigest() != sha256 or not _is_array(content):
            return False
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content)
    except OSError:
        return False
    return True


def _is_array(content: bytes) -> bool:
    """Whether it is a whole array of numbers or texts, as long as its own header says."""
    import io

    from numpy.lib import format as npy

    file = io.BytesIO(content)
    try:
        read_header = {1: npy.read_array_header_1_0, 2: npy.read_array_header_2_0}[npy.read_magic(file)[0]]
        shape, _, dtype = read_header(file)
    except (ValueError, KeyError):
        return False
    return not dtype.hasobject and math.prod(shape) * dtype.itemsize == len(content) - file.tell()


def _write(folder: Path, result: RunResult) -> None:
    paths = dict(_outputs(result))
    if folder.exists() or sum(Path(path).stat().st_size for path in paths) > LARGEST_BYTES:
        return
    scratch = folder.with_name(f"{secrets.token_hex(8)}.part")
    try:
        for path, name in paths.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, scratch / name)
        scratch.mkdir(parents=True, exist_ok=True)
        cases = tuple(_placed(case, paths.__getitem__) for case in result.cases)
        files = {name: sha256_of(scratch / name) for name in paths.values()}
        entry = Entry(msgspec.structs.replace(result, cases=cases), files)
        (scratch / "entry.json").write_bytes(msgspec.json.encode(entry))
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _outputs(result: RunResult) -> Iterator[tuple[str, str]]:
    for number, case in enumerate(result.cases):
        for index, path in enumerate(case.outputs):
            if path is not None:
                yield path, f"{number}/{index}.npy"


@functools.cache
def _worker() -> str:
    """What of ours makes the outputs: the worker's own code."""
    digest = hashlib.sha256()
    for file in sorted(path for path in WORKER.rglob("*") if path.suffix in (".py", ".mjs")):
        digest.update(f"{file.relative_to(WORKER).as_posix()}\0{sha256_of(file)}\n".encode())
    return digest.hexdigest()


@functools.cache
def processor() -> str:
    """What of the machine the outputs may depend on: another processor may round otherwise."""
    words = [platform.system(), platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
        words += [
            line for line in lines if line.startswith(("vendor_id", "model", "stepping", "flags", "Features", "CPU"))
        ]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()
