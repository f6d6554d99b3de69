"""Support data of required runtimes, and what cannot be predicted without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from onnxgate.core.findings import Place, version_sort_key
from onnxgate.evidence.support import PredictionGap
from onnxgate.project.plan import PlannedRuntime
from onnxgate.support import limits, operators
from onnxgate.support.limits import Limits
from onnxgate.support.operators import Implementation

if TYPE_CHECKING:
    from onnxgate.support.harvest import BuildSupport


ONNXRUNTIME = "onnxruntime"
GPU_ENGINE = "onnxruntime-gpu"
"""Build with the same limits and schemas as the CPU build of the same version, but different kernels."""
NO_HARVESTS: Mapping[str, BuildSupport] = {}
UPDATE_HINT = "update onnxgate"
RUN_HINT = "run `onnxgate check` without `--static`, which loads the model on this runtime"
HARVEST_HINT = "run `onnxgate check` once without `--static` to cache the support data of this build"
MISSING_PREDICTIONS = {"schemas": "kernel support is not predicted", "versions": "operator support is not predicted"}
"""Kind of available support data -> message that names the missing predictions."""


class RuntimeSupportData(msgspec.Struct, frozen=True):
    """Support data of one runtime."""

    planned: PlannedRuntime
    limits: Limits
    engine: str  # the engine whose table lists the runtime's releases
    implementation: Implementation | None = None
    depth: Literal["all", "schemas", "versions"] = "all"  # predictions that the data allows
    reason: str = ""  # why predictions are missing, as a phrase that continues the runtime name

    @property
    def name(self) -> str:
        """Name of the runtime in messages."""
        return self.planned.name

    @property
    def full_implementation(self) -> Implementation | None:
        """Implementation of the runtime, if its kernels are known."""
        return self.implementation if self.depth == "all" else None


def look_up_runtime(planned: PlannedRuntime, harvested: Mapping[str, BuildSupport]) -> RuntimeSupportData | None:
    """Return the support data of one runtime, or None. `harvested` contains collected data by runtime name."""
    runtime, engine = planned.runtime, find_table_engine(planned.runtime.engine)
    own = harvested.get(planned.name)
    if own is not None and own.implementation is not None:
        return RuntimeSupportData(planned, own.limits, ONNXRUNTIME, own.implementation)
    if own is not None:
        return RuntimeSupportData(planned, own.limits, ONNXRUNTIME, None, "versions", "does not report its kernels")
    release_limits = limits.get_limits(runtime.release, engine) if engine else None
    if release_limits is None:
        return None
    implementation = operators.get_implementation(runtime.release, engine)
    if runtime.environment:
        reason = "is a custom build with unknown kernels"
        return RuntimeSupportData(planned, release_limits, engine, None, "versions", reason)
    if implementation is None:
        oldest = operators.list_known_releases(engine)[0]
        reason = f"is older than {_shorten_release(oldest)}, the first release with kernel data"
        return RuntimeSupportData(planned, release_limits, engine, None, "versions", reason)
    if runtime.engine == GPU_ENGINE:
        reason = "is a build for which onnxgate has no kernel data"
        return RuntimeSupportData(planned, release_limits, engine, implementation, "schemas", reason)
    return RuntimeSupportData(planned, release_limits, engine, implementation)


def _shorten_release(release: str) -> str:
    """Return the minor release if this is its first patch: `1.16` for `1.16.0`."""
    return release.removesuffix(".0") if release.count(".") == 2 else release


def find_table_engine(engine: str) -> str:
    """Return the engine whose shipped table lists the releases of an engine or one of its builds; "" if none does."""
    engine = ONNXRUNTIME if engine == GPU_ENGINE else engine
    return engine if engine in limits.list_table_engines() else ""


def collect_prediction_gaps(
    runtimes: Sequence[PlannedRuntime],
    place: Place,
    harvested: Mapping[str, BuildSupport] = NO_HARVESTS,
    *,
    runs_models: bool = False,
) -> Iterator[PredictionGap]:
    """Yield a gap for each runtime without complete support data.

    With `runs_models`, the check also loads the models and collects missing support data, so this is not suggested.
    """
    for runtime in runtimes:
        data = look_up_runtime(runtime, harvested)
        engine = runtime.runtime.engine
        run_hint = HARVEST_HINT if engine == ONNXRUNTIME else RUN_HINT
        if data is None:
            has_table = engine in limits.list_table_engines()
            reason = "is unknown to this version of onnxgate" if has_table else "has no support data"
            ways = [UPDATE_HINT] if has_table else []
            oldest = next(iter(limits.load_limit_table(engine).releases), "0")
            if version_sort_key(runtime.runtime.release) < version_sort_key(oldest):
                reason, ways = f"is older than {oldest}, the first release with support data", []
            ways += [] if runs_models else [run_hint]
            fix = ", or ".join(ways)
            yield PredictionGap(place, "nothing can be predicted", reason, runtime.runtime.name, fix=fix)
        elif data.reason:
            is_collectable = runtime.name not in harvested and find_table_engine(engine) == ONNXRUNTIME
            fix = "" if runs_models else HARVEST_HINT if runtime.runtime.environment and is_collectable else RUN_HINT
            what = MISSING_PREDICTIONS[data.depth]
            yield PredictionGap(place, what, data.reason, runtime.runtime.name, fix=fix, about=data.depth)
