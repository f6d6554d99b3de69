"""The step of `action.yml` that says what is to be restored from the repository's cache.

There are two entries: wheels and npm's cache, what the lock has hashes of; and results with costs, which are small and
change with the models. Where nothing is to be kept, the outputs are empty.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate import __version__
from onnxgate.cli.action_inputs import Inputs, part, read_inputs
from onnxgate.cli.action_outputs import write_outputs
from onnxgate.cli.action_running import annotate
from onnxgate.errors import OnnxgateError
from onnxgate.findings import STATIC_STAGES

if TYPE_CHECKING:
    from onnxgate.lock.types import Lock

LONGEST_KEY = 512
"""Characters of a key. Source: GitHub's documentation, 2026-08."""
DIVIDING = ("plan", "merge")
"""Commands that need no wheels, and that use or keep costs."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `actions/cache/restore` is asked for, twice."""

    folder: str = ""
    path: str = ""
    key: str = ""
    restore_keys: str = ""
    results_path: str = ""
    results_key: str = ""  # what is saved has something behind it
    results_restore_keys: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the repository's cache: folders and keys, one a line."""

    path: str = ""
    key: str = ""
    restore_keys: str = ""


def wanted(environment: Mapping[str, str]) -> Wanted:
    """What this run may use of earlier ones; nothing where it makes no environments, or cannot run at all."""
    try:
        inputs = read_inputs(environment)
        path = lock_path(inputs) if _uses_a_cache(inputs) else None
        lock = read_lock(path)
    except OnnxgateError:
        return Wanted()  # the gate's own step says it
    if path is None or lock is None or not any(target.runtimes for target in lock.targets.values()):
        return Wanted()
    folder = Path(environment.get("RUNNER_TEMP") or tempfile.gettempdir()) / "onnxgate-kept"
    machine = f"{_word(environment, 'RUNNER_OS')}-{_word(environment, 'RUNNER_ARCH')}"
    if inputs.command in DIVIDING:
        wheels, results = Entry(), _costs(inputs, path, machine, folder)
    else:
        wheels, results = _wheels(inputs, lock, machine, folder), _results(inputs, path, machine, folder)
    kept = (each for entry in (wheels, results) for each in (entry.path, entry.key, entry.restore_keys))
    return Wanted(str(folder), *kept)


def _uses_a_cache(inputs: Inputs) -> bool:
    asked = inputs.stages and set(inputs.stages) <= {stage.value for stage in STATIC_STAGES}
    makes_environments = inputs.command == "check" and not asked and "--static" not in inputs.args
    return inputs.cache and (makes_environments or inputs.command in DIVIDING)


def lock_path(inputs: Inputs) -> Path | None:
    """Where the lock of the inputs' project is, or would be; None where there is no project."""
    from onnxgate.config.discovery import find_config
    from onnxgate.config.project import LOCK_NAME

    config = inputs.folder / inputs.config if inputs.config else find_config(inputs.folder)
    return config.with_name(LOCK_NAME) if config else None


def read_lock(path: Path | None) -> Lock | None:
    """The lock that is there.

    Raises: OnnxgateError.
    """
    from onnxgate.lock.loading import load_lock

    return load_lock(path) if path else None


def _wheels(inputs: Inputs, lock: Lock, machine: str, folder: Path) -> Entry:
    """Of the packages that the lock pins: models come and go, and their wheels stay."""
    import msgspec

    from onnxgate.runtimes.keeping import NPM, WHEELS

    common = f"onnxgate-{machine}-{_python()}-"
    pinned = f"{common}{__version__}-{hashlib.sha256(msgspec.json.encode(lock.pinned)).hexdigest()[:16]}-"
    return Entry(_paths(folder, WHEELS, NPM), f"{pinned}{_selection(inputs)}"[:LONGEST_KEY], f"{pinned}\n{common}")


def _results(inputs: Inputs, lock: Path, machine: str, folder: Path) -> Entry:
    """Of the whole lock, which has the models, and of the processor: another one may round otherwise."""
    from onnxgate.store import processor

    common = f"onnxgate-results-{machine}-{processor()[:8]}-{_python()}-{__version__}-"
    locked = f"{common}{_digest(lock)}-"
    key = f"{locked}{_selection(inputs)}-"
    return Entry(_small(folder), key, f"{key}\n{locked}\n{common}")


def _costs(inputs: Inputs, lock: Path, machine: str, folder: Path) -> Entry:
    """Of the project: a plan uses what the last merge left, whichever shards measured it."""
    project = hashlib.sha256(f"{inputs.directory}\0{inputs.config}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    common = f"onnxgate-costs-{machine}-{__version__}-{project}-"
    key = f"{common}{_digest(lock)}-"
    return Entry(_small(folder), key, f"{key}\n{common}")


def _small(folder: Path) -> str:
    from onnxgate.runtimes.keeping import COSTS, RESULTS

    return _paths(folder, RESULTS, COSTS)


def _paths(folder: Path, *names: str) -> str:
    return "\n".join(str(folder / name) for name in names)


def _word(environment: Mapping[str, str], name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "_", environment.get(name, ""))[:40] or "unknown"


def _python() -> str:
    return f"py{sys.version_info[0]}.{sys.version_info[1]}"


def _digest(lock: Path) -> str:
    from onnxgate.shards import text_digest

    return text_digest(lock)[:16]


def _selection(inputs: Inputs) -> str:
    """Of what was asked for: runs that need other wheels of one lock do not save theirs under one key."""
    words = [inputs.config, *inputs.stages, *inputs.args, inputs.directory, *inputs.paths]
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{digest}-{part(inputs.shard)}" if inputs.shard else digest


def main() -> None:
    """Say what to restore; a fault of ours costs time and no verdict."""
    try:
        found = wanted(os.environ)
    except Exception as error:  # noqa: BLE001 - the gate needs no cache
        annotate("warning", f"no cache is used: {type(error).__name__}: {error}")
        found = Wanted()
    write_outputs(Path(os.environ["GITHUB_OUTPUT"]), found)


if __name__ == "__main__":
    main()
