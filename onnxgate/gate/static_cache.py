"""Caches of the static stages: results by content, file digests and support data of custom builds.

Only results that depend on nothing but a model, its data and the values in the key are cached. Read and write errors
are ignored.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from onnxgate.core.cache_entries import add_checksum, decode_entry, encode_entry, record_damage, write_entry_file
from onnxgate.core.files import (
    REMEMBERED_BYTES,
    Identity,
    file_identity,
    is_settled,
    known_digest,
    read_limited,
    remember_digests,
    temporary_folder,
)
from onnxgate.core.findings import IncompleteCheck, Stage, version_sort_key
from onnxgate.core.jobs import Completed, Crashed, Harvest, Load, Observation, Refused, TimedOut
from onnxgate.project.git.repository import find_lfs_contents
from onnxgate.project.lock.types import Lock, LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.worker_spec import WorkerSpec, environment_path
from onnxgate.stages.support.runtime_data import GPU_ENGINE, ONNXRUNTIME
from onnxgate.support import limits, operators
from onnxgate.support.harvest import (
    BuildSupport,
    HarvestCache,
    HarvestRecord,
    decode_dump,
    make_harvest_key,
    make_harvest_record,
)
from onnxgate.support.operators import TableSource

if TYPE_CHECKING:
    from onnxgate.runtimes.pool import WorkerPool

ENTRY_LAYOUT = 2
"""Version of the entry format; increase it for changes outside the code of the stages."""
MAX_ENTRIES = 20_000
"""Maximum number of entries for one project; the least recently used entries are removed first."""
MAX_FILE_BYTES = 2**30
"""Maximum size of the file with the entries of one project; a larger file is damaged."""
MOST_PROJECTS = 200
_JUDGING_FOLDERS = (
    "core",
    "diagnostics",
    "evidence",
    "gate",
    "model",
    "project",
    "rules",
    "stages",
    "support",
)
"""Folders with code that affects static results."""

_READING_PACKAGES = ("onnx", "numpy", "ml_dtypes", "google.protobuf", "google._upb")
"""Packages with code that reads models. `google._upb` does not exist in pure-Python builds of protobuf."""

ResultType = TypeVar("ResultType")


class StaticResultCache:
    """Static results for the project folder `project`, stored in one file in `folder`.

    A `fresh` cache replaces entries instead of reusing them.
    """

    def __init__(self, folder: Path, project: Path, *, fresh: bool = False) -> None:
        name = hashlib.sha256(os.fsencode(project)).hexdigest()[:16]
        self._path = folder / f"{name}.msgpack"
        self._entries: dict[str, bytes] = {}  # with checksums
        try:
            self._entries = msgspec.msgpack.decode(read_limited(self._path, MAX_FILE_BYTES), type=dict[str, bytes])
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError, UnicodeError, ValueError, RecursionError):
            record_damage(str(self._path))
        self._fresh = fresh
        self._changed = False

    @property
    def has_entries(self) -> bool:
        """Whether the cache has entries."""
        return bool(self._entries) and not self._fresh

    def find(self, key: str, kind: type[ResultType]) -> ResultType | None:
        """Return the entry, or None if it is missing or damaged."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        if self._fresh:
            self._changed = True  # remove the entry, even if no result replaces it
            return None
        decoded = decode_entry(key, entry, kind)
        if decoded is None:
            self._changed = True
            record_damage(f"{self._path}: {key}")
            return None
        self._entries[key] = entry  # sorted by age, newest last
        return decoded

    def keep(self, key: str, value: object) -> None:
        """Add an entry."""
        entry = encode_entry(key, value, type(value))
        if entry is not None:
            self._entries[key] = entry
            self._changed = True

    def save(self) -> None:
        """Write the file if entries changed; write errors are ignored."""
        if not self._changed:
            return

        newest = dict(list(self._entries.items())[-MAX_ENTRIES:])
        content = msgspec.msgpack.encode(newest)
        if len(content) > MAX_FILE_BYTES:
            return
        with contextlib.suppress(OSError, RuntimeError):
            write_entry_file(self._path, content)
            files = self._path.parent.glob(f"*{self._path.suffix}")
            for path in sorted(files, key=lambda path: -path.stat().st_mtime_ns)[MOST_PROJECTS:]:
                path.unlink(missing_ok=True)


def digest_static_key(*parts: object) -> str:
    """Return the key of a result that depends on these values and on the code of onnxgate."""
    text = msgspec.json.encode((_digest_program(), *parts), order="sorted")
    return hashlib.sha256(text).hexdigest()


@functools.cache
def _digest_program() -> tuple[str, ...]:
    """Digest the files of onnxgate and of the packages that read models, as code can change without a new version."""
    package = os.fspath(Path(__file__).parents[1])
    specs = filter(None, map(find_spec, _READING_PACKAGES))
    theirs = [folder for spec in specs for folder in list(spec.submodule_search_locations or ())[:1]]
    files = [file for folder in (package, *theirs) for file in _identify_files(folder, nested=False)]
    files += [file for name in _JUDGING_FOLDERS for file in _identify_files(f"{package}/{name}", nested=True)]
    return str(ENTRY_LAYOUT), hashlib.sha256(repr(sorted(files)).encode()).hexdigest(), sys.version


def _identify_files(folder: str, *, nested: bool) -> Iterator[tuple[str, Identity]]:
    """Yield the path and identity of each file in a folder and, if `nested`, in its subfolders."""
    for entry in os.scandir(folder):
        if entry.is_file():
            yield entry.path, file_identity(entry.stat())
        elif nested and entry.name != "__pycache__":
            yield from _identify_files(entry.path, nested=True)


DIGESTS_FILE_NAME = "digests.json"
MAX_REMEMBERED_FILES = 10_000
"""Maximum number of files with stored digests; the least recently used digests are removed first."""
MIN_GIT_QUERY_BYTES = 64 * 2**20
"""Total size of files in bytes from which a git query is faster than hashing."""


class FileDigestCache:
    """Cache of file digests in `folder`. A `fresh` cache ignores stored digests."""

    def __init__(self, folder: Path, *, fresh: bool = False) -> None:
        self._path = folder / DIGESTS_FILE_NAME
        self._fresh = fresh
        self._began_ns = time.time_ns()
        self._files: dict[str, tuple[Identity, str]] = {}
        self._loaded = False
        self._changed = False

    def recall(self, files: Iterable[Path], root: Path) -> None:
        """Load the digests of these files; `root` is the repository root."""
        if self._fresh:
            return
        large = {path: status for path in files if (status := _stat_large_file(path)) is not None}
        if not large:
            return
        self._load()
        for path, status in large.items():
            identity, digest = self._files.get(str(path), (None, ""))
            if identity == file_identity(status):
                remember_digests({identity: digest})
        unknown = {path: status for path, status in large.items() if known_digest(status) is None}
        if sum(status.st_size for status in unknown.values()) >= MIN_GIT_QUERY_BYTES:
            for path, pointer in find_lfs_contents(root, unknown).items():
                if pointer.size_bytes == unknown[path].st_size and is_settled(unknown[path], self._began_ns):
                    remember_digests({file_identity(unknown[path]): pointer.sha256})

    def keep(self, files: Iterable[Path]) -> None:
        """Store the digests of these files, except files that changed."""
        for path in files:
            status = _stat_large_file(path)
            digest = known_digest(status) if status is not None else None
            if status is not None and digest is not None:
                self._load()
                entry = (file_identity(status), digest)
                if self._files.pop(str(path), None) != entry:
                    self._changed = True
                self._files[str(path)] = entry  # sorted by age, newest last
        if self._changed:
            newest = dict(list(self._files.items())[-MAX_REMEMBERED_FILES:])
            with contextlib.suppress(OSError):
                write_entry_file(self._path, add_checksum(DIGESTS_FILE_NAME, msgspec.json.encode(newest)))

    def _load(self) -> None:
        """Read the digests of earlier runs on the first call."""
        if self._loaded:
            return
        self._loaded = True
        try:
            entry = read_limited(self._path, MAX_FILE_BYTES)
        except FileNotFoundError:
            return
        except OSError:
            entry = b""
        files = decode_entry(DIGESTS_FILE_NAME, entry, dict[str, tuple[Identity, str]], msgspec.json)
        if files is None:
            record_damage(str(self._path))
        else:
            self._files = files


def _stat_large_file(path: Path) -> os.stat_result | None:
    """Return the `stat` result of a large regular file; None for all other files."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status if stat.S_ISREG(status.st_mode) and status.st_size >= REMEMBERED_BYTES else None


REGISTRY_SINCE = "1.16.0"
"""First release that lists its kernels. For older releases, only their version limits are shipped with onnxgate."""
UNREADABLE_BUILD = (
    "support data could not be collected: the libraries of this ONNX Runtime "
    "build are missing, duplicated or unreadable"
)


def find_unknown_builds(planned: Iterable[PlannedRuntime]) -> tuple[PlannedRuntime, ...]:
    """Select the runtimes from which support data must be collected, because onnxgate does not ship it.

    GPU builds are included only in custom environments.

    Source: harvesting onnxruntime-gpu 1.23.2 without a GPU causes a segmentation fault.
    """
    unknown = []
    for planned_runtime in planned:
        runtime = planned_runtime.runtime
        if runtime.environment:
            is_unknown = runtime.engine in (ONNXRUNTIME, GPU_ENGINE)
        elif runtime.engine == ONNXRUNTIME and operators.get_implementation(runtime.release) is None:
            is_registry_listed = version_sort_key(runtime.release) >= version_sort_key(REGISTRY_SINCE)
            is_unknown = limits.get_limits(runtime.release) is None or is_registry_listed
        else:
            is_unknown = False
        if is_unknown:
            unknown.append(planned_runtime)
    return tuple(unknown)


class HarvestedBuilds(msgspec.Struct):
    """Support data of custom builds, by runtime name."""

    supports: dict[str, BuildSupport] = msgspec.field(default_factory=dict)
    skipped: list[IncompleteCheck] = msgspec.field(default_factory=list)


class CustomBuilds:
    """Custom builds in a project and its lock, with a cache of their support data.

    The cache key is the digest of the locked wheel, or of the libraries of a custom build.
    """

    def __init__(self, folder: Path, lock: Lock, project_folder: Path) -> None:
        self._harvests = HarvestCache(folder)
        self._lock = lock
        self._folder = project_folder
        self._sources: dict[str, TableSource | None] = {}

    def load(self, planned: Sequence[PlannedRuntime]) -> HarvestedBuilds:
        """Return the cached support data."""
        builds = HarvestedBuilds()
        for runtime in planned:
            source = self._source(runtime)
            support = self._harvests.get(_harvest_key(runtime, source)) if source is not None else None
            if support is not None:
                builds.supports[runtime.name] = support
        return builds

    def harvest(self, planned: Sequence[PlannedRuntime], host: WorkerPool) -> HarvestedBuilds:
        """Return the support data; collect and cache missing data."""
        builds = self.load(planned)
        for runtime in planned:
            source, environment = self._source(runtime), runtime.runtime.environment
            if runtime.name in builds.supports:
                continue
            if source is not None:
                self._harvest(runtime, source, host, builds)
            elif (
                environment and environment_path(self._folder, environment).exists()
            ):  # a missing environment is reported by the runtime stage
                builds.skipped.append(IncompleteCheck(Stage.SUPPORT, "", runtime.name, UNREADABLE_BUILD))
        return builds

    def _harvest(self, planned: PlannedRuntime, source: TableSource, host: WorkerPool, builds: HarvestedBuilds) -> None:
        spec = WorkerSpec.of_runtime(planned.runtime, self._lock.packages, self._folder)
        key = _harvest_key(planned, source)
        reason = ""
        try:
            if self._harvests.get(key) is None:
                self._harvests.put(key, harvest_build(host, spec, source))
        except HarvestError as error:
            reason = f"support data could not be collected: {error}" if str(error) else ""
        except OSError as error:
            reason = f"support data could not be cached: {error.strerror}"
        if reason:
            builds.skipped.append(IncompleteCheck(Stage.SUPPORT, "", planned.name, reason))
        support = self._harvests.get(key)
        if support is not None:
            builds.supports[planned.name] = support

    def _source(self, planned: PlannedRuntime) -> TableSource | None:
        """Identify the build by its locked wheel for this machine or by its libraries; None if unknown."""
        if planned.name not in self._sources:
            find = self._find_libraries if planned.runtime.environment else self._find_wheel
            self._sources[planned.name] = find(planned.runtime)
        return self._sources[planned.name]

    def _find_libraries(self, runtime: LockedRuntime) -> TableSource | None:
        from onnxgate.runtimes.environments.user_environment import build_identity

        try:
            identity = build_identity(environment_path(self._folder, runtime.environment))
        except OSError:
            return None
        return TableSource(release=runtime.release, wheel="", sha256=identity) if identity else None

    def _find_wheel(self, runtime: LockedRuntime) -> TableSource | None:
        from onnxgate.runtimes.environments.wheels import rank_wheels

        for package in self._lock.packages:
            if (package.name, package.version, package.python) == (runtime.engine, runtime.release, runtime.python):
                hashes = {wheel.sha256 for wheel in rank_wheels(package)}
                wheel = next((wheel for wheel in package.wheels if wheel.sha256 in hashes), None)
                if wheel is not None:
                    return TableSource(release=runtime.release, wheel=wheel.file, sha256=wheel.sha256)
                break
        return None


def _harvest_key(planned: PlannedRuntime, source: TableSource) -> str:
    return make_harvest_key(planned.runtime.engine, source.release, source.sha256)


KERNEL_QUERY = "the kernel query"


class HarvestError(Exception):
    """Support data cannot be collected from the build. The message is the reason; "" if the build is unavailable."""


def harvest_build(pool: WorkerPool, spec: WorkerSpec, source: TableSource) -> HarvestRecord:
    """Run the build in a worker, and return its operator support. `source` identifies the build.

    Raises:
        HarvestError: the build does not list its kernels, or the probe results are inconsistent.
    """
    from onnxgate.support import probes

    with temporary_folder() as scratch:
        output = Path(scratch).absolute() / "dump.json"
        pool.show(output.parent)  # some probes have data outside their folders
        if _is_refused(pool.submit(spec, Harvest(output=str(output))).result(), KERNEL_QUERY):
            raise HarvestError(f"the build does not support {KERNEL_QUERY}")
        try:
            dump = decode_dump(output.read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeError) as error:
            raise HarvestError(f"the result of {KERNEL_QUERY} is invalid: {type(error).__name__}") from error
        folder = output.with_name("probes")
        folder.mkdir()
        futures = {}
        for name, path in probes.write_probes(folder).items():  # each in a process with its environment variables
            environment = tuple(probes.get_probe_environment(name).items())
            futures[name] = pool.submit(replace(spec, environment=environment), Load(model=str(path)))
        loads = {name: not _is_refused(future.result(), f"the probe `{name}`") for name, future in futures.items()}
    try:
        derived = probes.derive_limits(loads)
    except probes.ProbeError as error:
        raise HarvestError(str(error)) from error
    return make_harvest_record(dump, derived, msgspec.structs.replace(source, commit=dump.commit))


def _is_refused(observation: Observation, what: str) -> bool:
    """Return whether the engine refused the job. Raise `HarvestError` if the job neither completed nor was refused."""
    match observation:
        case Completed():
            return False
        case Refused():
            return True
        case Crashed(signal=signal):
            raise HarvestError(f"the build crashed during {what}: {signal}")
        case TimedOut(limit_s=limit_s):
            raise HarvestError(f"{what} timed out after {limit_s:g} s")
        case _:
            raise HarvestError
