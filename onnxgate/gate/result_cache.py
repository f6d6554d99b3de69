"""Cache of run results by content: outputs of a locked runtime for a model and its inputs on one kind of machine.

Only completed runs are cached; failures, crashes and unstable outputs are not. The key of an entry is a digest of
everything that the outputs depend on, computed from the current files. An entry is used only if its files match their
digests and are older than the check: a source could write an entry for the model that it exports. Exports are never
cached, because the code of a source may read any file.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import platform
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from onnxgate.core.cache_entries import decode_entry, encode_entry, record_damage
from onnxgate.core.files import Identity, file_identity, read_limited, remove_path, sha256_of
from onnxgate.core.jobs import CaseResult, Completed, Job, Observation, Run, RunResult
from onnxgate.project.engines import runs_on_node
from onnxgate.runtimes import sandbox
from onnxgate.runtimes.protocol import WORKER_FOLDER, is_complete_npy
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec

MAX_RUN_BYTES = 64 * 2**20
"""Maximum size of the cached outputs of one run."""
ENTRY_FILE = "entry.json"
MAX_ENTRY_BYTES = 4 * 2**20
"""Maximum size of the record of one run, without its outputs."""
MAX_CACHE_BYTES = 2**30
"""Maximum size of the cache; the least recently used entries are removed first."""
ABANDONED_AFTER_S = 24 * 3600
"""Age after which an unfinished entry is removed."""
OUTPUT_NAME = re.compile(r"\d+/\d+\.npy")
_PART = ".part"


class CacheEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cached result of one run, with output paths relative to the folder and digests of the output files."""

    run: str  # both digests in full; the folder name contains half of each
    result: RunResult
    files: dict[str, str]  # path -> sha256


class ResultCache:
    """Cache of run results in a folder.

    `contents` maps paths to digests of models including their external data. `files` contains the digest of each model
    file, so that a model that changes during the run is not cached. A `fresh` cache replaces existing entries instead
    of reusing them.
    """

    def __init__(
        self,
        folder: Path,
        contents: Mapping[str, str],
        files: Mapping[str, Mapping[Path, str]] | None = None,
        limits: JobLimits | None = None,
        *,
        fresh: bool = False,
    ) -> None:
        self._folder = folder
        self._contents = contents
        self._files = files or {}
        self._limits = limits or JobLimits()
        self._fresh = fresh
        self._opened_ns = time.time_ns()
        self._digests = FileDigests()
        self._has_content = functools.cache(self._check_content)
        self._added = False
        self._used: dict[str, list[str]] = {}

    def find(self, spec: WorkerSpec, job: Job) -> Observation | None:
        """Return the cached observation of a job, or None."""
        run = self._run(spec, job)
        if run is None or self._fresh or not isinstance(job, Run):
            return None
        folder, result = self._at(run), None
        with contextlib.suppress(OSError):
            content = read_limited(folder / ENTRY_FILE, MAX_ENTRY_BYTES)
            entry = decode_entry(folder.name, content, CacheEntry, msgspec.json)
            if entry is not None and not _is_older(folder, self._opened_ns):
                remove_path(folder)  # not damaged, but a source may have written it
                return None
            result = _restore_result(entry, folder, job) if entry is not None and entry.run == run else None
        if result is None:
            if os.path.lexists(folder):
                record_damage(str(folder))
                with contextlib.suppress(OSError):
                    remove_path(folder)
            return None
        with contextlib.suppress(OSError):
            os.utime(folder)
        self._used.setdefault(job.model, []).append(folder.name)
        return Completed(result=result)

    def expects(self, spec: WorkerSpec, jobs: Sequence[Run]) -> bool:
        """Return whether each job has a cached entry for some inputs, so that its runtime is probably not needed."""
        places = {run[:KEY_HALF_DIGITS] for job in jobs if (run := self._run(spec, job)) is not None}
        return len(places) == len(jobs) and not self._fresh and places <= self._places

    @functools.cached_property
    def _places(self) -> frozenset[str]:
        try:
            return frozenset(entry.name[:KEY_HALF_DIGITS] for entry in self._folder.iterdir())
        except OSError:
            return frozenset()

    def keep(self, spec: WorkerSpec, job: Job, observation: Observation) -> None:
        """Cache an observation if it can be reused; write errors are ignored."""
        result = observation.result if isinstance(observation, Completed) else None
        if not isinstance(job, Run) or not isinstance(result, RunResult) or not _is_cacheable(result):
            return
        run = self._run(spec, job)
        if run is not None:
            with contextlib.suppress(OSError):
                _write_entry(self._at(run), run, result, replace_existing=self._fresh)
                self._added = True
                self._used.setdefault(job.model, []).append(self._at(run).name)

    def entries_of(self, model: Path) -> tuple[str, ...]:
        """Return the names of the entries that this check has read or written for a model."""
        return tuple(self._used.get(str(model.absolute()), ()))

    def tidy(self) -> None:
        """Prune the cache if entries were added."""
        if self._added:
            prune(self._folder)

    def _at(self, run: str) -> Path:
        place, _, fed = run.partition(" ")
        return self._folder / (place[:KEY_HALF_DIGITS] + fed[:KEY_HALF_DIGITS])

    def _run(self, spec: WorkerSpec, job: Job) -> str | None:
        """Return the key of a job; None if it is not cacheable or a file changed during the run."""
        if not isinstance(job, Run) or spec.runtime is None or spec.runtime.environment:
            return None
        content = self._contents.get(job.model)
        try:
            if content is None or not self._has_content(job.model):
                return None
            for path in self._files.get(job.model, ()):
                self._digests.of(path)
            place = digest_context(spec, job, content, self._limits, self._digests)
            return f"{place} {digest_inputs(job, self._digests)}"
        except FileChangedError:
            return None

    def _check_content(self, model: str) -> bool:
        return all(self._digests.of(path) == sha256 for path, sha256 in self._files.get(model, {}).items())


def prune(folder: Path, most_bytes: int = MAX_CACHE_BYTES) -> None:
    """Remove the least recently used entries beyond the size limit, and unfinished entries."""
    entries: list[tuple[float, int, Path]] = []  # time of last use, size
    with contextlib.suppress(OSError):  # another process may remove entries at the same time
        for entry in list(folder.iterdir()):
            with contextlib.suppress(OSError):
                files = [status for path in entry.rglob("*") if stat.S_ISREG((status := path.lstat()).st_mode)]
                entries.append((entry.lstat().st_mtime, sum(status.st_size for status in files), entry))
    total = 0
    for used, size_bytes, entry in sorted(entries, reverse=True):
        total += size_bytes
        if total > most_bytes or (entry.suffix == _PART and used < time.time() - ABANDONED_AFTER_S):
            shutil.rmtree(entry, ignore_errors=True)


def _is_cacheable(result: RunResult) -> bool:
    return all(case.failure is None and not case.unstable and not case.aliased for case in result.cases)


def _is_older(entry: Path, time_ns: int) -> bool:
    """Return whether no file of an entry was created or changed after a point in time."""
    return all(path.lstat().st_ctime_ns <= time_ns for path in entry.rglob("*"))


def _restore_result(entry: CacheEntry, folder: Path, job: Run) -> RunResult | None:
    """Copy the outputs to the paths of the job and return the result; None if a file does not match its digest."""
    result = entry.result
    names = {name for case in result.cases for name in case.outputs if name is not None}
    if len(result.cases) != len(job.cases) or not _is_cacheable(result) or names != entry.files.keys():
        return None
    if any(len(case.outputs) != len(result.outputs) for case in result.cases):
        return None
    target = Path(job.output)
    for name in names:
        if not OUTPUT_NAME.fullmatch(name) or not _copy_verified(folder / name, target / name, entry.files[name]):
            return None
    cases = tuple(_with_output_paths(case, lambda name: str(target / name)) for case in result.cases)
    return msgspec.structs.replace(result, cases=cases)


def _with_output_paths(case: CaseResult, place: Callable[[str], str]) -> CaseResult:
    return msgspec.structs.replace(case, outputs=tuple(None if path is None else place(path) for path in case.outputs))


def _copy_verified(file: Path, to: Path, sha256: str) -> bool:
    """Copy a file if it matches the digest and contains a readable array; return False otherwise."""
    try:
        if file.is_symlink():
            return False
        content = read_limited(file, MAX_RUN_BYTES)
        if hashlib.sha256(content).hexdigest() != sha256 or not is_complete_npy(io.BytesIO(content), len(content)):
            return False
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content)
    except OSError:
        return False
    return True


def _write_entry(folder: Path, run: str, result: RunResult, *, replace_existing: bool) -> None:
    paths = {
        path: f"{number}/{index}.npy"
        for number, case in enumerate(result.cases)
        for index, path in enumerate(case.outputs)
        if path is not None
    }
    is_kept = os.path.lexists(folder) and not replace_existing
    if is_kept or sum(Path(path).stat().st_size for path in paths) > MAX_RUN_BYTES:
        return
    scratch = folder.with_name(f"{secrets.token_hex(8)}{_PART}")
    try:
        for path, name in paths.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, scratch / name)
        scratch.mkdir(parents=True, exist_ok=True)
        cases = tuple(_with_output_paths(case, paths.__getitem__) for case in result.cases)
        files = {name: sha256_of(scratch / name) for name in paths.values()}
        entry = CacheEntry(run, msgspec.structs.replace(result, cases=cases), files)
        content = encode_entry(folder.name, entry, CacheEntry, msgspec.json)
        if content is None or len(content) > MAX_ENTRY_BYTES:
            return
        (scratch / ENTRY_FILE).write_bytes(content)
        if replace_existing:
            remove_path(folder)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


RESULT_LAYOUT = 3
"""Version of the entry format."""
KEY_HALF_DIGITS = 32
"""Number of digits in each half of a key. The first half identifies runtime and model, the second half the inputs."""
IRRELEVANT_VARIABLES = frozenset({*sandbox.HOME_VARIABLES, "PATH", "TERM"})
"""Environment variables of a worker that do not affect outputs."""


class FileChangedError(Exception):
    """A file changed after its digest was computed."""


@dataclass(slots=True)
class FileDigests:
    """Digests of files, with identities that show whether a file has changed."""

    _digests: dict[Path, tuple[Identity, str]] = field(default_factory=dict)

    def of(self, path: Path) -> str:
        """Return the digest of a file.

        Raises:
            FileChangedError: the file changed after its digest was computed, or cannot be read.
        """
        try:
            status = file_identity(path.stat())
            if path not in self._digests:
                self._digests[path] = (status, sha256_of(path))
                status = file_identity(path.stat())
        except OSError as error:
            raise FileChangedError(str(path)) from error
        identity, digest = self._digests[path]
        if identity != status:
            raise FileChangedError(str(path))
        return digest


def digest_context(spec: WorkerSpec, job: Run, content: str, limits: JobLimits, digests: FileDigests) -> str:
    """Digest everything that the outputs of a run depend on, except its inputs: runtime, machine and job.

    `content` is the digest of the model including its external data.
    """
    assert spec.runtime is not None
    values = {
        "layout": RESULT_LAYOUT,
        "worker": _digest_worker(),
        "processor": identify_machine(),
        "variables": list_relevant_variables(),
        "node": identify_node() if runs_on_node(spec.engine) else "",
        "runtime": spec.runtime,
        "packages": spec.packages,
        "model": content,
        "optimization": job.optimization,
        "providers": job.providers,
        "extensions": [digests.of(Path(it)) if Path(it).is_absolute() else it for it in job.extensions],
        "again": job.again,
        "time_s": limits.time_s,
        "memory_mib": limits.memory_mib,
    }
    return hashlib.sha256(msgspec.json.encode(values, order="sorted")).hexdigest()


def digest_inputs(job: Run, digests: FileDigests) -> str:
    """Digest the names and contents of the inputs of each case; names of cases are ignored."""
    cases = [[(name, digests.of(Path(path))) for name, path in case.inputs.items()] for case in job.cases]
    return hashlib.sha256(msgspec.json.encode(cases)).hexdigest()


@functools.cache
def _digest_worker() -> str:
    """Digest the code of the worker."""
    digest = hashlib.sha256()
    for file in sorted(path for path in WORKER_FOLDER.rglob("*") if path.suffix in (".py", ".mjs")):
        digest.update(f"{file.relative_to(WORKER_FOLDER).as_posix()}\0{sha256_of(file)}\n".encode())
    return digest.hexdigest()


def list_relevant_variables() -> dict[str, str]:
    """Return the environment variables that outputs may depend on."""
    variables = sandbox.runtime_variables(os.environ, Path(), own=False)
    return {name: value for name, value in variables.items() if name.upper() not in IRRELEVANT_VARIABLES}


@functools.cache
def identify_node() -> str:
    """Identify the Node.js installation that an engine uses; the lock does not pin it."""
    node = shutil.which("node")
    if node is None:
        return ""
    program = Path(node).resolve()
    status = program.stat()
    return f"{program} {status.st_size} {status.st_mtime_ns}"


@functools.cache
def identify_machine() -> str:
    """Digest the properties of the machine that may affect rounding: processor and math library."""
    words = [platform.system(), platform.machine(), platform.processor(), f"{os.cpu_count()} cores"]
    if hasattr(os, "sched_getaffinity"):
        words.append(f"{len(os.sched_getaffinity(0))} usable")
    words += [*platform.libc_ver(), platform.mac_ver()[0], platform.version() if os.name == "nt" else ""]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
        words += [
            line for line in lines if line.startswith(("vendor_id", "model", "stepping", "flags", "Features", "CPU"))
        ]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()
