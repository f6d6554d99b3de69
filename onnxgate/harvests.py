"""Builds of ONNX Runtime that the shipped data do not know: harvested where they are run anyway, and kept.

Whoever starts nothing reads only what is kept: it is found by the locked wheel, or by the libraries of a build of one's
own, so that another build is never taken for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.findings import Stage, Undone, version_order
from onnxgate.lock.types import Lock, LockedRuntime
from onnxgate.plan import PlannedRuntime
from onnxgate.stages.supported import GPU
from onnxgate.support import limits, releases

if TYPE_CHECKING:
    from onnxgate.runtimes.host import Host
    from onnxgate.support.harvested import Kept
    from onnxgate.support.table import Source

REGISTRY_SINCE = "1.16.0"
"""Older wheels do not say their kernels, so that there is nothing to harvest but limits, which are shipped."""
FAMILY = ("onnxruntime", GPU)
UNTOLD = "what it implements is not harvested: its libraries cannot be read, or are not in one folder of site-packages"


def lacking(planned: Iterable[PlannedRuntime]) -> tuple[PlannedRuntime, ...]:
    """The runtimes that could be harvested: no release whose data are shipped, and no GPU build but one's own.

    Source: onnxruntime-gpu 1.23.2 ends with a segmentation fault when it is asked where there is no GPU.
    """
    return tuple(each for each in planned if _is_lacking(each))


def _is_lacking(planned: PlannedRuntime) -> bool:
    runtime = planned.runtime
    if runtime.environment:
        return runtime.engine in FAMILY
    if runtime.engine != "onnxruntime" or releases.implementation(runtime.release) is not None:
        return False
    return limits.limits_of(runtime.release) is None or version_order(runtime.release) >= version_order(REGISTRY_SINCE)


@dataclass(slots=True)
class Gleaned:
    """What is known of such runtimes by now."""

    kept: dict[str, Kept] = field(default_factory=dict)  # by the runtime's name
    skipped: list[Undone] = field(default_factory=list)


class Builds:
    """The builds that a lock and a project name, and where their harvests are kept."""

    def __init__(self, folder: Path, lock: Lock, project_folder: Path) -> None:
        from onnxgate.support.harvested import Harvests

        self._harvests = Harvests(folder)
        self._lock = lock
        self._folder = project_folder
        self._sources: dict[str, Source | None] = {}

    def kept(self, planned: Sequence[PlannedRuntime]) -> Gleaned:
        """What is kept of them."""
        found = {each.name: self._kept(each) for each in planned}
        return Gleaned({name: kept for name, kept in found.items() if kept is not None})

    def harvest(self, planned: Sequence[PlannedRuntime], host: Host) -> Gleaned:
        """The same with what those say of themselves of which nothing is kept; that is kept, too."""
        gleaned = self.kept(planned)
        for each in planned:
            source = self._source(each)
            if each.name in gleaned.kept:
                continue
            if source is not None:
                self._ask(each, source, host, gleaned)
            elif self._is_here(each.runtime):
                gleaned.skipped.append(Undone(Stage.SUPPORT, "", each.name, UNTOLD))
        return gleaned

    def _is_here(self, runtime: LockedRuntime) -> bool:
        """Whether it is an environment of the user's own that exists; of others the runtime stage speaks."""
        from onnxgate.runtimes.seats import environment_path

        return bool(runtime.environment) and environment_path(self._folder, runtime.environment).exists()

    def _ask(self, planned: PlannedRuntime, source: Source, host: Host, gleaned: Gleaned) -> None:
        from onnxgate.runtimes.seats import Seat
        from onnxgate.stages.harvest import UntoldError, ask

        seat = Seat.of_runtime(planned.runtime, self._lock.packages, self._folder)
        key = _key(planned, source)
        reason = ""
        try:
            if self._harvests.get(key) is None:
                self._harvests.put(key, ask(host, seat, source))
        except UntoldError as error:
            reason = f"what it implements cannot be harvested: {error}" if str(error) else ""
        except OSError as error:
            reason = f"what it implements cannot be kept for the next run: {error.strerror}"
        if reason:
            gleaned.skipped.append(Undone(Stage.SUPPORT, "", planned.name, reason))
        kept = self._harvests.get(key)
        if kept is not None:
            gleaned.kept[planned.name] = kept

    def _kept(self, planned: PlannedRuntime) -> Kept | None:
        source = self._source(planned)
        return self._harvests.get(_key(planned, source)) if source is not None else None

    def _source(self, planned: PlannedRuntime) -> Source | None:
        """The build: its locked wheel for this machine, or its libraries; None where that cannot be told."""
        runtime = planned.runtime
        if planned.name not in self._sources:
            found = self._own(runtime) if runtime.environment else self._locked(runtime)
            self._sources[planned.name] = found
        return self._sources[planned.name]

    def _own(self, runtime: LockedRuntime) -> Source | None:
        from onnxgate.runtimes.builds import build_identity
        from onnxgate.runtimes.seats import environment_path
        from onnxgate.support.table import Source

        try:
            identity = build_identity(environment_path(self._folder, runtime.environment))
        except OSError:
            return None
        return Source(release=runtime.release, wheel="", sha256=identity) if identity else None

    def _locked(self, runtime: LockedRuntime) -> Source | None:
        from onnxgate.runtimes.wheels import fitting
        from onnxgate.support.table import Source

        wanted = (runtime.engine, runtime.release, runtime.python)
        for package in self._lock.packages:
            if (package.name, package.version, package.python) == wanted:
                here = fitting(package)
                wheels = [each for each in package.wheels if each.sha256 in here]
                return (
                    Source(release=runtime.release, wheel=wheels[0].file, sha256=wheels[0].sha256) if wheels else None
                )
        return None


def _key(planned: PlannedRuntime, source: Source) -> str:
    from onnxgate.support.harvest import key

    return key(planned.runtime.engine, source.release, source.sha256)
