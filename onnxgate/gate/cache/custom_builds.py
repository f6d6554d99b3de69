"""Support data of builds that the shipped data do not cover: harvested if the runtime stage runs, and cached.

A static check only reads the cache. The key is the locked wheel, or the libraries of a custom build, so that
one build is never mistaken for another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.core.findings import IncompleteCheck, Stage, version_sort_key
from onnxgate.project.lock.types import Lock, LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.support import GPU_ENGINE
from onnxgate.support import limits, operators
from onnxgate.support.operators import TableSource

if TYPE_CHECKING:
    from onnxgate.runtimes.pool import WorkerPool
    from onnxgate.support.harvest import BuildSupport

REGISTRY_SINCE = "1.16.0"
"""Older wheels do not list their kernels; only limits could be harvested, and those are shipped."""
HARVESTABLE_ENGINES = ("onnxruntime", GPU_ENGINE)
UNREADABLE_BUILD = (
    "what it implements is not harvested: its libraries cannot be read, or are not in one folder of site-packages"
)


def find_unknown_builds(planned: Iterable[PlannedRuntime]) -> tuple[PlannedRuntime, ...]:
    """Select the runtimes to harvest: releases without shipped data, and GPU builds only in custom environments.

    Source: onnxruntime-gpu 1.23.2 ends with a segmentation fault when it is harvested without a GPU.
    """
    return tuple(runtime for runtime in planned if _is_unknown_build(runtime))


def _is_unknown_build(planned: PlannedRuntime) -> bool:
    runtime = planned.runtime
    if runtime.environment:
        return runtime.engine in HARVESTABLE_ENGINES
    if runtime.engine != "onnxruntime" or operators.get_implementation(runtime.release) is not None:
        return False
    return limits.get_limits(runtime.release) is None or version_sort_key(runtime.release) >= version_sort_key(
        REGISTRY_SINCE
    )


@dataclass(slots=True)
class HarvestedBuilds:
    """Support data of custom builds, by runtime."""

    kept: dict[str, BuildSupport] = field(default_factory=dict)  # by the runtime's name
    skipped: list[IncompleteCheck] = field(default_factory=list)


class CustomBuilds:
    """The builds of a lock and a project, with the cache of their support data."""

    def __init__(self, folder: Path, lock: Lock, project_folder: Path) -> None:
        from onnxgate.support.harvest import HarvestCache

        self._harvests = HarvestCache(folder)
        self._lock = lock
        self._folder = project_folder
        self._sources: dict[str, TableSource | None] = {}

    def kept(self, planned: Sequence[PlannedRuntime]) -> HarvestedBuilds:
        """Return the cached support data."""
        supports = {runtime.name: self._kept(runtime) for runtime in planned}
        return HarvestedBuilds({name: support for name, support in supports.items() if support is not None})

    def harvest(self, planned: Sequence[PlannedRuntime], host: WorkerPool) -> HarvestedBuilds:
        """Return the support data; harvest and cache those that are not cached yet."""
        gleaned = self.kept(planned)
        for runtime in planned:
            source = self._source(runtime)
            if runtime.name in gleaned.kept:
                continue
            if source is not None:
                self._ask(runtime, source, host, gleaned)
            elif self._is_here(runtime.runtime):
                gleaned.skipped.append(IncompleteCheck(Stage.SUPPORT, "", runtime.name, UNREADABLE_BUILD))
        return gleaned

    def _is_here(self, runtime: LockedRuntime) -> bool:
        """True for an existing custom environment; the runtime stage reports one that is absent."""
        from onnxgate.runtimes.worker_spec import environment_path

        return bool(runtime.environment) and environment_path(self._folder, runtime.environment).exists()

    def _ask(self, planned: PlannedRuntime, source: TableSource, host: WorkerPool, gleaned: HarvestedBuilds) -> None:
        from onnxgate.runtimes.support_harvest import HarvestError, harvest_build
        from onnxgate.runtimes.worker_spec import WorkerSpec

        spec = WorkerSpec.of_runtime(planned.runtime, self._lock.packages, self._folder)
        key = _harvest_key(planned, source)
        reason = ""
        try:
            if self._harvests.get(key) is None:
                self._harvests.put(key, harvest_build(host, spec, source))
        except HarvestError as error:
            reason = f"what it implements cannot be harvested: {error}" if str(error) else ""
        except OSError as error:
            reason = f"what it implements cannot be kept for the next run: {error.strerror}"
        if reason:
            gleaned.skipped.append(IncompleteCheck(Stage.SUPPORT, "", planned.name, reason))
        support = self._harvests.get(key)
        if support is not None:
            gleaned.kept[planned.name] = support

    def _kept(self, planned: PlannedRuntime) -> BuildSupport | None:
        source = self._source(planned)
        return self._harvests.get(_harvest_key(planned, source)) if source is not None else None

    def _source(self, planned: PlannedRuntime) -> TableSource | None:
        """Identify the build by its locked wheel for this machine, or by its libraries; None if neither is known."""
        runtime = planned.runtime
        if planned.name not in self._sources:
            source = self._own(runtime) if runtime.environment else self._locked(runtime)
            self._sources[planned.name] = source
        return self._sources[planned.name]

    def _own(self, runtime: LockedRuntime) -> TableSource | None:
        from onnxgate.runtimes.environments.user_environment import build_identity
        from onnxgate.runtimes.worker_spec import environment_path

        try:
            identity = build_identity(environment_path(self._folder, runtime.environment))
        except OSError:
            return None
        return TableSource(release=runtime.release, wheel="", sha256=identity) if identity else None

    def _locked(self, runtime: LockedRuntime) -> TableSource | None:
        from onnxgate.runtimes.environments.wheels import compatible_hashes

        wanted = (runtime.engine, runtime.release, runtime.python)
        for package in self._lock.packages:
            if (package.name, package.version, package.python) == wanted:
                here = compatible_hashes(package)
                wheels = [wheel for wheel in package.wheels if wheel.sha256 in here]
                return (
                    TableSource(release=runtime.release, wheel=wheels[0].file, sha256=wheels[0].sha256)
                    if wheels
                    else None
                )
        return None


def _harvest_key(planned: PlannedRuntime, source: TableSource) -> str:
    from onnxgate.support.harvest import make_harvest_key

    return make_harvest_key(planned.runtime.engine, source.release, source.sha256)
