"""How the gate's step uses what was restored from the repository's cache, and what of it is worth saving."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from onnxgate.cli.action_cache import lock_path, read_lock
from onnxgate.cli.action_inputs import Inputs, Results
from onnxgate.cli.action_running import annotate
from onnxgate.errors import OnnxgateError
from onnxgate.findings import listed

FOLDER_VARIABLE = "ONNXGATE_ACTION_KEPT"
"""The folder that was restored, as the gate's step is told; "" where nothing is kept."""
KEY_VARIABLE = "ONNXGATE_ACTION_RESULTS_KEY"
"""How the key begins that results and costs are saved by."""
SUSPECT = "hint: delete the repository's caches whose key begins with `onnxgate-`, and see who could write them"


def use(inputs: Inputs, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with which the gate uses what was restored: what the lock does not vouch for is gone before."""
    from onnxgate import carrying
    from onnxgate.runtimes.store import KEPT_VARIABLE

    folder = environment.get(FOLDER_VARIABLE, "")
    if not folder or not sweep(inputs, folder):
        return {}
    try:
        carrying.forget_use(Path(folder))
    except OSError:
        return {}
    # Who can write a restored archive can write beside it too, but to no folder whose name was not known.
    own = {} if environment.get("ONNXGATE_CACHE_DIR") else {"ONNXGATE_CACHE_DIR": tempfile.mkdtemp(prefix="onnxgate-")}
    return {KEPT_VARIABLE: folder, **own}


def sweep(inputs: Inputs, folder: str) -> bool:
    """Whether the folder holds nothing but what the lock vouches for, and what is looked at where it is used.

    A warning names what claimed to be that.
    """
    from onnxgate import carrying
    from onnxgate.runtimes import keeping

    try:
        lock = read_lock(lock_path(inputs))
        forged = keeping.sweep(Path(folder), lock.pinned if lock else ())
        contents = {model.sha256 for model in lock.models.values()} if lock else set()
        strange = carrying.sweep(Path(folder), contents)
    except (OnnxgateError, OSError):
        return False
    _warn("wheels that are not the locked ones, which were removed and are fetched again", forged)
    _warn("results that onnxgate did not write, which were removed and are run again", strange)
    return True


def _warn(what: str, names: list[str]) -> None:
    if names:
        shown = [f"`{name}`" for name in names[:5]] + ([f"{len(names) - 5} more"] if names[5:] else [])
        annotate("warning", f"the cache holds {what}: {listed(shown)}", SUSPECT)


def has_wheels(folder: str) -> bool:
    """Whether there is something to keep of what the lock has hashes of."""
    from onnxgate.runtimes.keeping import NPM, WHEELS

    return any(path for name in (WHEELS, NPM) for path in (Path(folder) / name).glob("*"))


def results_key(inputs: Inputs, environment: Mapping[str, str]) -> str:
    """By which key the results and costs are to be saved that are worth it; "" where there are none.

    The same results have the same key, so that they are saved once. Costs differ from run to run.
    """
    from onnxgate import carrying
    from onnxgate.runtimes.keeping import COSTS

    folder, start = Path(environment.get(FOLDER_VARIABLE, "")), environment.get(KEY_VARIABLE, "")
    try:
        if not start or inputs.command == "plan":
            return ""
        if inputs.command == "check":
            left = carrying.drop_unused(folder)
            return f"{start}{left}" if left else ""
        return f"{start}{_this_run(environment)}" if any((folder / COSTS).glob("*")) else ""
    except OSError:
        return ""


def _this_run(environment: Mapping[str, str]) -> str:
    numbers = (environment.get(name, "") for name in ("GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT"))
    return "-".join("".join(each for each in number if each.isdecimal())[:20] or "0" for number in numbers)


def hand_over_costs(results: Results, environment: Mapping[str, str]) -> str:
    """Lay what this run measured beside its report, for who merges; the folder, "" where it is empty."""
    from onnxgate import carrying, costs
    from onnxgate.runtimes.keeping import COSTS

    folder = environment.get(FOLDER_VARIABLE, "")
    if not folder or not results.shard:
        return ""
    target = results.folder / COSTS
    try:
        costs.take(Path(folder) / COSTS, target, carrying.measured(Path(folder)))
    except OSError:
        return ""
    return str(target) if any(target.glob("*")) else ""
