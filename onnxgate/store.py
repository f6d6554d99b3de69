"""Results by content: what a locked runtime gave for the same model, on the same inputs, on such a machine.

Only what went well is kept: what failed, crashed, or gave other outputs the second time is run again. An entry is found
by the digests of all that it depends on (`sameness`), taken anew from the files that are there now, and is used only
where its own files are what it says of them. What a source exports is never kept: it is made by code that may read
whatever it likes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from onnxgate.model.hashing import sha256_of
from onnxgate.runtimes.jobs import CaseResult, Completed, Job, Observation, Run, RunResult
from onnxgate.runtimes.seats import JobLimits, Seat
from onnxgate.runtimes.whole import is_whole
from onnxgate.sameness import HALF, ChangedError, Digests, fed_digest, place_digest, processor

__all__ = ["LARGEST_BYTES", "MOST_BYTES", "Store", "processor", "prune"]

LARGEST_BYTES = 64 * 2**20
"""Outputs of one run that take more are not kept."""
MOST_BYTES = 2**30
"""What all results of a cache may take; beyond, those go first that were not used for longest."""
LEFT_AFTER_S = 24 * 3600
"""What a writer did not finish for so long, it never will."""
NAME = re.compile(r"\d+/\d+\.npy")
_PART = ".part"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run: what it was, its result with outputs by their path in the folder, and what each of these files is."""

    run: str  # both digests in full; the folder has half of each for its name
    result: RunResult
    files: dict[str, str]  # path -> sha256


Files = Mapping[str, Mapping[Path, str]]
NO_FILES: Files = {}


class Store:
    """Results in a folder.

    `contents` gives the digest of each model's content, external data included, by its path; `files` the digest of each
    file that it was made of: nothing is kept of a model that changes while it is run. A `fresh` store takes nothing
    over, and what is kept then takes the place of what was there.
    """

    def __init__(
        self,
        folder: Path,
        contents: Mapping[str, str],
        files: Files = NO_FILES,
        limits: JobLimits | None = None,
        *,
        fresh: bool = False,
    ) -> None:
        self._folder = folder
        self._contents = contents
        self._files = files
        self._limits = limits or JobLimits()
        self._fresh = fresh
        self._digests = Digests()
        self._sound = functools.cache(self._is_content)
        self._kept = False

    def find(self, seat: Seat, job: Job) -> Observation | None:
        """What was observed of it before; None where it must be run."""
        run = self._run(seat, job)
        if run is None or self._fresh or not isinstance(job, Run):
            return None
        folder = self._at(run)
        entry = _read(folder)
        result = _taken(entry, folder, job) if entry is not None and entry.run == run else None
        if result is None:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(folder)
        return Completed(result=result)

    def expects(self, seat: Seat, jobs: Sequence[Run]) -> bool:
        """Whether each job was done before on some inputs: then its runtime may not be needed. It promises nothing."""
        places = {run[:HALF] for job in jobs if (run := self._run(seat, job)) is not None}
        return len(places) == len(jobs) and not self._fresh and places <= self._places

    @functools.cached_property
    def _places(self) -> frozenset[str]:
        try:
            return frozenset(entry.name[:HALF] for entry in self._folder.iterdir())
        except OSError:
            return frozenset()

    def keep(self, seat: Seat, job: Job, observation: Observation) -> None:
        """Keep what was observed, where it may be taken over; a disk that is full is no fault."""
        match observation:
            case Completed(result=RunResult() as result) if isinstance(job, Run) and _is_sound(result):
                run = self._run(seat, job)
                if run is not None:
                    with contextlib.suppress(OSError):
                        _write(self._at(run), run, result, anew=self._fresh)
                        self._kept = True
            case _:
                pass

    def tidy(self) -> None:
        """Remove what has no room any more, where anything came."""
        if self._kept:
            prune(self._folder)

    def _at(self, run: str) -> Path:
        place, _, fed = run.partition(" ")
        return self._folder / (place[:HALF] + fed[:HALF])

    def _run(self, seat: Seat, job: Job) -> str | None:
        """All that the outputs depend on; None where that cannot be told, and where something changes meanwhile."""
        if not isinstance(job, Run) or seat.runtime is None or seat.runtime.environment:
            return None
        content = self._contents.get(job.model)
        try:
            if content is None or not self._sound(job.model):
                return None
            for path in self._files.get(job.model, ()):
                self._digests.of(path)
            place = place_digest(seat, job, content, self._limits, self._digests)
            return f"{place} {fed_digest(job, self._digests)}"
        except ChangedError:
            return None

    def _is_content(self, model: str) -> bool:
        return all(self._digests.of(path) == sha256 for path, sha256 in self._files.get(model, {}).items())


def prune(folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove what takes more than that together, least recently used first, and what was never finished."""
    total = 0
    for used, size_bytes, entry in sorted(_entries(folder), reverse=True):
        total += size_bytes
        if total > most_bytes or (entry.suffix == _PART and used < time.time() - LEFT_AFTER_S):
            shutil.rmtree(entry, ignore_errors=True)


def _entries(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """When each was used last, and what it takes."""
    with contextlib.suppress(OSError):  # another gate removes some of it at this moment
        for entry in list(folder.iterdir()):
            with contextlib.suppress(OSError):
                files = [status for each in entry.rglob("*") if stat.S_ISREG((status := each.lstat()).st_mode)]
                yield entry.lstat().st_mtime, sum(status.st_size for status in files), entry


def _is_sound(result: RunResult) -> bool:
    return all(case.failure is None and not case.unstable and not case.aliased for case in result.cases)


def _read(folder: Path) -> Entry | None:
    try:
        return msgspec.json.decode((folder / "entry.json").read_bytes(), type=Entry)
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
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

    return is_whole(io.BytesIO(content), len(content))


def _write(folder: Path, run: str, result: RunResult, *, anew: bool) -> None:
    paths = dict(_outputs(result))
    if (folder.exists() and not anew) or sum(Path(path).stat().st_size for path in paths) > LARGEST_BYTES:
        return
    scratch = folder.with_name(f"{secrets.token_hex(8)}{_PART}")
    try:
        for path, name in paths.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, scratch / name)
        scratch.mkdir(parents=True, exist_ok=True)
        cases = tuple(_placed(case, paths.__getitem__) for case in result.cases)
        files = {name: sha256_of(scratch / name) for name in paths.values()}
        entry = Entry(run, msgspec.structs.replace(result, cases=cases), files)
        (scratch / "entry.json").write_bytes(msgspec.json.encode(entry))
        if anew:
            shutil.rmtree(folder, ignore_errors=True)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _outputs(result: RunResult) -> Iterator[tuple[str, str]]:
    for number, case in enumerate(result.cases):
        for index, path in enumerate(case.outputs):
            if path is not None:
                yield path, f"{number}/{index}.npy"
