"""The step of `action.yml` that says what is to be restored, and how the gate's step uses what was.

Wheels are kept, and npm's cache: what the lock has hashes of. Where nothing is to be kept, the outputs are empty.
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

FOLDER_VARIABLE = "ONNXGATE_ACTION_KEPT"
"""The folder that was restored, as the gate's step is told; "" where nothing is kept."""
LONGEST_KEY = 512
"""Characters of a key. Source: GitHub's documentation, 2026-08."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `actions/cache/restore` is asked for."""

    path: str = ""
    key: str = ""
    restore_keys: str = ""


def wanted(environment: Mapping[str, str]) -> Wanted:
    """What this run may use of earlier ones; nothing where it makes no environments, or cannot run at all."""
    try:
        inputs = read_inputs(environment)
        lock = _lock(inputs) if _makes_environments(inputs) else None
    except OnnxgateError:
        return Wanted()  # the gate's own step says it
    if lock is None or not any(target.runtimes for target in lock.targets.values()):
        return Wanted()
    common = "-".join(["onnxgate", _word(environment, "RUNNER_OS"), _word(environment, "RUNNER_ARCH"), _python()])
    pinned = f"{common}-{__version__}-{_digest(lock)}"
    return Wanted(
        path=str(Path(environment.get("RUNNER_TEMP") or tempfile.gettempdir()) / "onnxgate-kept"),
        key=f"{pinned}-{_selection(inputs)}"[:LONGEST_KEY],
        restore_keys=f"{pinned}-\n{common}-",
    )


def _makes_environments(inputs: Inputs) -> bool:
    asked = inputs.stages and set(inputs.stages) <= {stage.value for stage in STATIC_STAGES}
    return inputs.cache and inputs.command == "check" and not asked and "--static" not in inputs.args


def _lock(inputs: Inputs) -> Lock | None:
    from onnxgate.config.discovery import find_config
    from onnxgate.config.project import LOCK_NAME
    from onnxgate.lock.loading import load_lock

    config = inputs.folder / inputs.config if inputs.config else find_config(inputs.folder)
    return load_lock(config.with_name(LOCK_NAME)) if config else None


def _word(environment: Mapping[str, str], name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "_", environment.get(name, ""))[:40] or "unknown"


def _python() -> str:
    return f"py{sys.version_info[0]}.{sys.version_info[1]}"


def _digest(lock: Lock) -> str:
    """Of the packages that the lock pins: models come and go, and their wheels stay."""
    import msgspec

    return hashlib.sha256(msgspec.json.encode(lock.pinned)).hexdigest()[:16]


def _selection(inputs: Inputs) -> str:
    """Of what was asked for: runs that need other wheels of one lock do not save theirs under one key."""
    words = [inputs.config, *inputs.stages, *inputs.args, inputs.directory, *inputs.paths]
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{digest}-{part(inputs.shard)}" if inputs.shard else digest


def use(inputs: Inputs, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with which the gate uses what was restored: what the lock does not vouch for is gone before."""
    from onnxgate.runtimes.store import KEPT_VARIABLE

    folder = environment.get(FOLDER_VARIABLE, "")
    if not folder or not sweep(inputs, folder):
        return {}
    # Who can write a restored archive can write beside it too, but to no folder whose name was not known.
    own = {} if environment.get("ONNXGATE_CACHE_DIR") else {"ONNXGATE_CACHE_DIR": tempfile.mkdtemp(prefix="onnxgate-")}
    return {KEPT_VARIABLE: folder, **own}


def sweep(inputs: Inputs, folder: str) -> bool:
    """Whether the folder holds nothing but what the lock vouches for; a warning names what claimed to be that."""
    from onnxgate.runtimes import keeping

    try:
        lock = _lock(inputs)
        forged = keeping.sweep(Path(folder), lock.pinned if lock else ())
    except (OnnxgateError, OSError):
        return False
    if forged:
        named = ", ".join(f"`{name}`" for name in forged[:5]) + (f" and {len(forged) - 5} more" if forged[5:] else "")
        annotate(
            "warning",
            f"the cache holds wheels that are not the locked ones, which were removed and are fetched again: {named}",
            "hint: delete the repository's caches whose key begins with `onnxgate-`, and see who could write them",
        )
    return True


def is_worth_saving(inputs: Inputs, folder: str) -> bool:
    """Whether there is something to keep, all of which the lock vouches for."""
    return bool(folder) and sweep(inputs, folder) and any(Path(folder).glob("*/*"))


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
