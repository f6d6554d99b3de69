"""The repository's cache on GitHub: keys for restoring and saving, and removal of untrusted content."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from onnxgate import __version__
from onnxgate.core.errors import OnnxgateError
from onnxgate.core.files import remove_path
from onnxgate.core.findings import STATIC_STAGES
from onnxgate.core.text import join_phrases
from onnxgate.gate.result_cache import MAX_ENTRY_BYTES, MAX_RUN_BYTES, identify_machine
from onnxgate.gate.sharding import plan
from onnxgate.gate.sharding.plan import digest_text_file
from onnxgate.github.runner import annotate, write_outputs
from onnxgate.github.step import Inputs, ResultFiles, read_inputs, shard_suffix
from onnxgate.project.config.loader import find_config
from onnxgate.project.config.project import LOCK_NAME
from onnxgate.project.lock.lock_file import load_lock
from onnxgate.project.lock.types import Lock
from onnxgate.runtimes.environments.storage import SHARED_CACHE_VARIABLE
from onnxgate.runtimes.environments.wheels import (
    COSTS_FOLDER,
    NPM_FOLDER,
    RESULTS_FOLDER,
    WHEELS_FOLDER,
    remove_unlocked,
)

FOLDER_VARIABLE = "ONNXGATE_ACTION_KEPT"
"""Environment variable that contains the path of the restored folder; "" if caching is off."""
KEY_VARIABLE = "ONNXGATE_ACTION_RESULTS_KEY"
"""Environment variable that contains the prefix of the cache key for results and costs."""
TAMPERING_HINT = (
    "hint: delete the repository's caches whose keys start with `onnxgate-`, and check who can write to the caches"
)


def use_restored_cache(inputs: Inputs, environment: Mapping[str, str]) -> dict[str, str]:
    """Clean the restored folder. Return the environment variables that make the command use it."""
    folder = environment.get(FOLDER_VARIABLE, "")
    if not folder or not clean_restored_cache(inputs, folder):
        return {}
    try:
        mark_all_unused(Path(folder))
    except OSError:
        return {}
    # A manipulated archive can also write outside the cache folder, but cannot know a random folder name.
    own = {} if environment.get("ONNXGATE_CACHE_DIR") else {"ONNXGATE_CACHE_DIR": tempfile.mkdtemp(prefix="onnxgate-")}
    return {SHARED_CACHE_VARIABLE: folder, **own}


def clean_restored_cache(inputs: Inputs, folder: str) -> bool:
    """Remove untrusted files from the restored cache and warn about them. Return whether the cache can be used.

    Files without a hash in the lock are verified when they are used.
    """
    try:
        path = lock_path(inputs)
        lock = load_lock(path) if path else None
        forged = remove_unlocked(Path(folder), lock.pinned if lock else ())
        contents = {model.sha256 for model in lock.models.values()} if lock else set()
        invalid = remove_untrusted_entries(Path(folder), contents)
    except (OnnxgateError, OSError):
        return False
    _warn_removed("wheels in the cache did not match the lock; they were removed and will be downloaded again", forged)
    _warn_removed("results in the cache were invalid; they were removed and will be computed again", invalid)
    return True


def _warn_removed(problem: str, names: list[str]) -> None:
    if names:
        shown = [f"`{name}`" for name in names[:5]] + ([f"{len(names) - 5} more"] if names[5:] else [])
        annotate("warning", f"{problem}: {join_phrases(shown)}", TAMPERING_HINT)


def has_wheels(folder: str) -> bool:
    """Return whether the cache contains wheels to save."""
    return any(any((Path(folder) / name).glob("*")) for name in (WHEELS_FOLDER, NPM_FOLDER))


def make_results_key(inputs: Inputs, environment: Mapping[str, str]) -> str:
    """Return the cache key for the results and costs of this run; "" if there is nothing to save.

    Equal results have equal keys and are saved once. Costs are different in each run.
    """
    folder, start = Path(environment.get(FOLDER_VARIABLE, "")), environment.get(KEY_VARIABLE, "")
    try:
        if not start or inputs.command == "plan":
            return ""
        if inputs.command == "check":
            digest = remove_unused_results(folder)
            return f"{start}{digest}" if digest else ""
        numbers = (environment.get(name, "") for name in ("GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT"))
        run = "-".join("".join(filter(str.isdecimal, number))[:20] or "0" for number in numbers)
        return f"{start}{run}" if any((folder / COSTS_FOLDER).glob("*")) else ""
    except OSError:
        return ""


def copy_costs(results: ResultFiles, environment: Mapping[str, str]) -> str:
    """Copy the measured costs to a folder next to the report, where `merge` reads them.

    Return the folder, or "" if there are no costs.
    """
    folder = environment.get(FOLDER_VARIABLE, "")
    if not folder or not results.shard:
        return ""
    target = results.folder / COSTS_FOLDER
    try:
        plan.copy_costs(Path(folder) / COSTS_FOLDER, target, list_measured_contents(Path(folder)))
    except OSError:
        return ""
    return str(target) if any(target.glob("*")) else ""


MAX_KEY_LENGTH = 512
"""Maximum length of a cache key. Source: GitHub's documentation, 2026-08."""
PYTHON_TAG = f"py{sys.version_info[0]}.{sys.version_info[1]}"
SHARDING_COMMANDS = ("plan", "merge")
"""Commands that do not need wheels, but use or save costs."""


@dataclass(frozen=True, slots=True)
class CacheOutputs:
    """Inputs of both `actions/cache/restore` steps."""

    folder: str = ""
    path: str = ""
    key: str = ""
    restore_keys: str = ""
    results_path: str = ""
    results_key: str = ""  # prefix of the key to save
    results_restore_keys: str = ""


CacheEntry = tuple[str, str, str]
"""Folders, key and restore keys of one cache entry. Folders and restore keys are separated by newlines."""


def select_cache(environment: Mapping[str, str]) -> CacheOutputs:
    """Return the cache entries that this run can use; empty if it needs none, or if its inputs are invalid."""
    try:
        inputs = read_inputs(environment)
        only_static = inputs.stages and set(inputs.stages) <= {stage.value for stage in STATIC_STAGES}
        makes_environments = inputs.command == "check" and not only_static and "--static" not in inputs.args
        is_used = inputs.cache and (makes_environments or inputs.command in SHARDING_COMMANDS)
        path = lock_path(inputs) if is_used else None
        lock = load_lock(path) if path else None
    except OnnxgateError:
        return CacheOutputs()  # the next step reports the error
    if path is None or lock is None or not any(target.runtimes for target in lock.targets.values()):
        return CacheOutputs()
    folder = Path(environment.get("RUNNER_TEMP") or tempfile.gettempdir()) / "onnxgate-kept"
    machine = f"{_sanitized_variable(environment, 'RUNNER_OS')}-{_sanitized_variable(environment, 'RUNNER_ARCH')}"
    if inputs.command in SHARDING_COMMANDS:
        wheels, results = ("", "", ""), _cost_entry(inputs, path, machine, folder)
    else:
        wheels, results = _wheel_entry(inputs, lock, machine, folder), _result_entry(inputs, path, machine, folder)
    return CacheOutputs(str(folder), *wheels, *results)


def lock_path(inputs: Inputs) -> Path | None:
    """Return the path of the project's lock, which may not exist; None without a config."""
    config = inputs.folder / inputs.config if inputs.config else find_config(inputs.folder)
    return config.with_name(LOCK_NAME) if config else None


def _wheel_entry(inputs: Inputs, lock: Lock, machine: str, folder: Path) -> CacheEntry:
    """Return the cache entry for packages. Its key depends on the pins in the lock, but not on the models."""
    common = f"onnxgate-{machine}-{PYTHON_TAG}-"
    pinned = f"{common}{__version__}-{hashlib.sha256(msgspec.json.encode(lock.pinned)).hexdigest()[:16]}-"
    paths = f"{folder / WHEELS_FOLDER}\n{folder / NPM_FOLDER}"
    return paths, f"{pinned}{_selection_digest(inputs)}"[:MAX_KEY_LENGTH], f"{pinned}\n{common}"


def _result_entry(inputs: Inputs, lock: Path, machine: str, folder: Path) -> CacheEntry:
    """Return the cache entry for results. Its key depends on the lock, and on the processor, which affects rounding."""
    common = f"onnxgate-results-{machine}-{identify_machine()[:8]}-{PYTHON_TAG}-{__version__}-"
    locked = f"{common}{digest_text_file(lock)[:16]}-"
    key = f"{locked}{_selection_digest(inputs)}-"
    return _result_paths(folder), key, f"{key}\n{locked}\n{common}"


def _cost_entry(inputs: Inputs, lock: Path, machine: str, folder: Path) -> CacheEntry:
    """Return the cache entry for costs.

    All shards of a project share it, since `plan` uses the costs that the last `merge` collected from all shards.
    """
    project = hashlib.sha256(f"{inputs.directory}\0{inputs.config}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    common = f"onnxgate-costs-{machine}-{__version__}-{project}-"
    key = f"{common}{digest_text_file(lock)[:16]}-"
    return _result_paths(folder), key, f"{key}\n{common}"


def _result_paths(folder: Path) -> str:
    return f"{folder / RESULTS_FOLDER}\n{folder / COSTS_FOLDER}"


def _sanitized_variable(environment: Mapping[str, str], name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "_", environment.get(name, ""))[:40] or "unknown"


def _selection_digest(inputs: Inputs) -> str:
    """Return a digest of the inputs, since runs with different inputs may need different wheels from the same lock."""
    words = [inputs.config, *inputs.stages, *inputs.args, inputs.directory, *inputs.paths]
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{digest}-{shard_suffix(inputs.shard)}" if inputs.shard else digest


def main() -> None:
    """Write the cache keys to restore as outputs. An internal error must not change the verdict."""
    try:
        outputs = select_cache(os.environ)
    except Exception as error:  # noqa: BLE001 - the cache is optional
        annotate("warning", f"the cache is not used: {type(error).__name__}: {error}")
        outputs = CacheOutputs()
    write_outputs(Path(os.environ["GITHUB_OUTPUT"]), outputs)


MAX_CARRIED_BYTES = 512 * 2**20
"""Maximum size in bytes of the saved results. GitHub limits all caches of a repository to 10 GB in total."""
UNUSED_TIME_S = 0
"""Modification time that marks cached files as unused."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ENTRY_FILE = re.compile(r"entry\.json|outcome\.msgpack|\d{1,6}/\d{1,6}\.npy")


def remove_untrusted_entries(folder: Path, contents: Collection[str]) -> list[str]:
    """Remove invalid results from the restored cache, and costs that are invalid or not for a model in `contents`.

    Return the names of the removed results.
    """
    for file in _entries(folder / COSTS_FOLDER):
        if file.name not in contents or not plan.is_cost_file(file):
            remove_path(file)
    invalid = [entry for entry in _entries(folder / RESULTS_FOLDER) if not _is_result(entry)]
    for entry in invalid:
        remove_path(entry)
    return [entry.name for entry in invalid if _SHA256.fullmatch(entry.name)]


def mark_all_unused(folder: Path) -> None:
    """Mark all cached results and costs as unused."""
    for entry in (*_entries(folder / RESULTS_FOLDER), *_entries(folder / COSTS_FOLDER)):
        os.utime(entry, (UNUSED_TIME_S, UNUSED_TIME_S))


def remove_unused_results(folder: Path) -> str:
    """Remove unused results from the cache, and the largest ones if the size limit is exceeded.

    Return a digest of the names of the remaining results; "" if there are none.
    """
    names, total = [], 0
    for size, entry in sorted((_size_bytes(entry), entry) for entry in _entries(folder / RESULTS_FOLDER)):
        if _is_used(entry) and total + size <= MAX_CARRIED_BYTES:
            names.append(entry.name)
            total += size
        else:
            remove_path(entry)
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16] if names else ""


def list_measured_contents(folder: Path) -> list[str]:
    """Return the digests of the models whose costs were measured or used in this run."""
    return [file.name for file in _entries(folder / COSTS_FOLDER) if _is_used(file)]


def _is_used(entry: Path) -> bool:
    return entry.stat().st_mtime != UNUSED_TIME_S


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_result(entry: Path) -> bool:
    """Return whether a folder is a cached result: it contains only files with known names, and not too many bytes."""
    if not _SHA256.fullmatch(entry.name) or entry.is_symlink() or not entry.is_dir():
        return False
    files = list(_walk_entry(entry))
    plain = all(
        (stat.S_ISDIR(status.st_mode) and name.isdecimal())
        or (stat.S_ISREG(status.st_mode) and _ENTRY_FILE.fullmatch(name))
        for name, status in files
    )
    record_bytes = sum(status.st_size for name, status in files if name == "entry.json")
    return plain and record_bytes <= MAX_ENTRY_BYTES and _size_bytes(entry) - record_bytes <= MAX_RUN_BYTES


def _walk_entry(entry: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the relative path and `stat` result of everything below a folder. Symbolic links are not followed."""
    for parent, folders, files in os.walk(entry):
        for name in (*folders, *files):
            path = Path(parent) / name
            yield path.relative_to(entry).as_posix(), path.lstat()


def _size_bytes(entry: Path) -> int:
    return sum(status.st_size for _, status in _walk_entry(entry) if stat.S_ISREG(status.st_mode))


if __name__ == "__main__":
    main()
