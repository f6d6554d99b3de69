"""Contents of the cache: the environments of a lock, and data that can be removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import filelock
from msgspec.structs import replace

from onnxgate.core.errors import UnavailableError
from onnxgate.core.files import remove_path
from onnxgate.core.findings import version_sort_key
from onnxgate.core.inventory import Environment, Interpreter, Inventory
from onnxgate.project.lock.types import Lock, LockedRuntime
from onnxgate.runtimes.environments import leases
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.environments.toolchain import interpreter_in
from onnxgate.runtimes.worker_spec import environment_path

ENVIRONMENTS_FOLDER = "environments"
PRUNABLE_FOLDERS = ("results", "static", "support", "inputs", "costs", "bugs")
"""Cache folders whose content can be recreated. Folders not listed here, such as backups of models, are kept."""
COMPANION_SUFFIXES = (".lock", ".uses")
PREPARE_HINT = "run `onnxgate runtimes prepare`"


def targets_of(lock: Lock) -> dict[LockedRuntime, tuple[str, ...]]:
    """Return each locked runtime with the names of its targets."""
    targets_by_runtime: dict[LockedRuntime, list[str]] = {}
    for name, target in sorted(lock.targets.items()):
        for runtime in target.runtimes:
            targets_by_runtime.setdefault(runtime, []).append(name)
    return {runtime: tuple(names) for runtime, names in targets_by_runtime.items()}


def list_environments(lock: Lock, folder: Path, cache: Path, environments: Environments) -> Inventory:
    """Return the state of each locked runtime's environment. Nothing is created or downloaded.

    `folder` is the folder of the config.
    """
    together = DiskUsage()
    runtimes = targets_of(lock)
    environment_list = [
        _inspect_environment(runtime, names, lock, folder, environments, together)
        for runtime, names in runtimes.items()
    ]
    interpreters = []
    for python in sorted({runtime.python for runtime in runtimes if runtime.python}, key=version_sort_key):
        try:
            interpreters.append(Interpreter(python=python, path=str(environments.interpreter(python))))
        except UnavailableError as error:
            interpreters.append(Interpreter(python=python, hint=error.hint or ""))
    return Inventory(
        cache=str(cache),
        runtimes=tuple(environment_list),
        interpreters=tuple(interpreters),
        size_bytes=together.size_bytes,
        freed_bytes=together.freed_bytes,
    )


def _inspect_environment(
    runtime: LockedRuntime,
    targets: tuple[str, ...],
    lock: Lock,
    folder: Path,
    environments: Environments,
    together: DiskUsage,
) -> Environment:
    environment_state = Environment(
        runtime=runtime.name,
        targets=targets,
        engine=runtime.engine,
        release=runtime.release,
        python=runtime.python,
        state="unavailable",
    )
    if runtime.environment:
        path = environment_path(folder, runtime.environment)
        reason = "it has no Python interpreter" if interpreter_in(path) is None else ""
        return replace(environment_state, state="own", folder=str(path), reason=reason)
    try:
        slot = environments.slot_of(runtime, lock.pinned)
    except UnavailableError as error:
        return replace(environment_state, reason=error.message, hint=error.hint or "")
    size = DiskUsage()
    size.add(slot.folder)
    together.add(slot.folder)
    if slot.ready() is not None:
        environment_state = replace(environment_state, state="ready")
    elif slot.folder.exists():
        reason = "its files have changed" if slot.is_marked else "incomplete"
        environment_state = replace(environment_state, state="broken", reason=reason, hint=PREPARE_HINT)
    else:
        environment_state = replace(environment_state, state="not-prepared", hint=PREPARE_HINT)
    return replace(
        environment_state,
        folder=str(slot.folder),
        size_bytes=size.size_bytes,
        freed_bytes=size.freed_bytes,
    )


@dataclass(frozen=True, slots=True)
class PruneResult:
    """Which cached data was removed and kept or, in a dry run, would be."""

    removed: Mapping[str, int]  # environments by name, and the number of removed files by folder
    in_use: tuple[str, ...]  # environments that a running command uses or creates
    kept_count: int  # environments in a lock, or used recently
    size_bytes: int
    freed_bytes: int


def remove_unused(cache: Path, *, named: Collection[Path], before: float, really: bool) -> PruneResult:
    """Remove unused data from all known folders of a cache.

    Environments in `named` are kept, and so is all data used after `before` (seconds since the epoch).
    """
    removed: dict[str, int] = {}
    in_use: list[str] = []
    kept_count, sizes = 0, DiskUsage()
    environments = cache / ENVIRONMENTS_FOLDER
    for environment in sorted(environments.iterdir() if environments.is_dir() else ()):
        if not environment.is_dir() or environment.is_symlink() or environment.suffix in COMPANION_SUFFIXES:
            continue
        uses = (environment / "ready.json", leases.lease_folder(environment), environment)
        if environment in named or max(map(_modified_at, uses)) >= before:
            kept_count += 1
        elif _remove_environment(environment, sizes, really=really):
            removed[environment.name] = 1
        else:
            in_use.append(environment.name)
    for name in PRUNABLE_FOLDERS:
        folder = cache / name
        for entry in sorted(folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ()):
            if _modified_at(entry) >= before:
                continue
            sizes.add(entry)
            if really:
                with contextlib.suppress(OSError):
                    remove_path(entry)
            removed[name] = removed.get(name, 0) + 1
    return PruneResult(removed, tuple(in_use), kept_count, sizes.size_bytes, sizes.freed_bytes)


def _remove_environment(environment: Path, sizes: DiskUsage, *, really: bool) -> bool:
    """Remove an environment unless it is in use (only if `really`). Return False if it is in use."""
    ready = environment / "ready.json"
    with contextlib.suppress(filelock.Timeout), filelock.FileLock(f"{environment}.lock", timeout=0):
        if leases.is_in_use(environment):
            return False
        marker = ready.read_bytes() if really and ready.is_file() else None
        if really:
            ready.unlink(missing_ok=True)
            if leases.is_in_use(environment):  # it was leased after the first test
                if marker is not None:
                    ready.write_bytes(marker)
                return False
        sizes.add(environment)
        if really:
            with contextlib.suppress(OSError):
                remove_path(environment)
                remove_path(leases.lease_folder(environment))
        return True
    return False


def _modified_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def environment_folders(locks: Iterable[Lock], environments: Environments) -> set[Path]:
    """Return the folders that contain the environments of the runtimes in these locks."""
    folders = set()
    for lock in locks:
        for runtime in targets_of(lock):
            with contextlib.suppress(UnavailableError):
                if not runtime.environment:
                    folders.add(environments.slot_of(runtime, lock.pinned).folder)
    return folders


class DiskUsage:
    """Disk usage of files; a file with several hard links is counted once."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, int], list[int]] = {}  # bytes, hard links, hard links that were counted

    def add(self, path: Path) -> None:
        """Count a file, or all files in a folder. Symbolic links are not followed."""
        for file_stat in _walk_files(path):
            blocks = getattr(file_stat, "st_blocks", None)
            size = file_stat.st_size if blocks is None else int(blocks) * 512
            entry = self._files.setdefault((file_stat.st_dev, file_stat.st_ino), [size, file_stat.st_nlink, 0])
            entry[2] += 1

    @property
    def size_bytes(self) -> int:
        """Total disk usage of the counted files in bytes."""
        return sum(size for size, _, _ in self._files.values())

    @property
    def freed_bytes(self) -> int:
        """Disk space in bytes that removing the counted files frees. Files with hard links elsewhere do not count."""
        return sum(size for size, names, counted in self._files.values() if counted >= names)


def _walk_files(path: Path) -> Iterator[os.stat_result]:
    try:
        if path.is_dir() and not path.is_symlink():
            for entry in path.iterdir():
                yield from _walk_files(entry)
        else:
            yield path.lstat()
    except OSError:  # removed meanwhile, or not permitted
        return
