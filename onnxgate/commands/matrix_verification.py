"""`onnxgate matrix --verify`: load each model on each release, in environments with pinned packages."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec
from packaging.requirements import Requirement
from packaging.version import Version

from onnxgate.core.bug_reports import ErrorBoundary
from onnxgate.core.errors import ConfigError, ResolutionError
from onnxgate.core.jobs import Completed, Crashed, Load, Observation, Refused, TimedOut, Unavailable
from onnxgate.core.matrix import Entry, MatrixModel, Observed
from onnxgate.diagnostics.classification import shorten_failure
from onnxgate.gate.request import GateRequest
from onnxgate.project.engines import ONNXRUNTIME, REQUIRED_DEPENDENCIES, engine_dependencies, runs_on_node
from onnxgate.project.lock.index import Release, ReleaseNotFound, UvIndex
from onnxgate.project.lock.npm import NpmResolver
from onnxgate.project.lock.releases import PYTHONS, NumpyResolver, runtime_from_release
from onnxgate.project.lock.types import Lock, LockedRuntime
from onnxgate.runtimes.pool import LOOK_UP_ACTIVITY, Progress, WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec

MAX_LOOKUPS = 4


def find_releases(request: GateRequest) -> list[LockedRuntime]:
    """Return the runtimes in the lock of a request, one for each release."""
    return [runtime for target in request.lock.targets.values() for runtime in target.runtimes]


def verify_matrix(
    models: Sequence[MatrixModel], request: GateRequest, pool: WorkerPool, progress: Progress, *, offline: bool
) -> tuple[MatrixModel, ...]:
    """Load each model on each release, and return the models with the results. No lock is written."""
    files = {model.path: model.absolute for model in request.models}
    index = UvIndex(offline=offline)
    npm = NpmResolver(Lock(targets={}), offline=offline)
    specs = ReleaseResolver(index, NumpyResolver(index), npm, progress).find_specs(find_releases(request))
    futures = {
        (path, name): pool.submit(spec, Load(model=str(file)))
        for name, spec in specs.items()
        if isinstance(spec, WorkerSpec)
        for path, file in files.items()
    }

    def verify_entry(path: str, entry: Entry) -> Entry:
        spec = specs[entry.runtime]
        observed: Observed = "unavailable"
        error = ""
        with ErrorBoundary() as caught:
            observation = spec if isinstance(spec, Unavailable) else futures[path, entry.runtime].result()
            observed, error = _describe_observation(observation)
        if caught.reason:
            error = f"`{path}`: {caught.text}"
        return msgspec.structs.replace(entry, observed=observed, error=error)

    return tuple(
        msgspec.structs.replace(model, runtimes=tuple(verify_entry(model.path, entry) for entry in model.runtimes))
        for model in models
    )


def _describe_observation(observation: Observation) -> tuple[Observed, str]:
    match observation:
        case Completed():
            return "loads", ""
        case Refused(failure=failure) if failure.memory:  # a limit of onnxgate, not a property of the model
            return "unavailable", f"loading the model exceeds the memory limit for a job: {shorten_failure(failure)}"
        case Refused(failure=failure):
            return "refused", shorten_failure(failure)
        case Crashed(signal=signal, during=during):
            return "crashed", f"{signal} during {during}"
        case TimedOut(limit_s=limit_s):
            return "timed-out", f"loading did not finish within {limit_s:g} s"
        case Unavailable(reason=reason, hint=hint):
            return "unavailable", f"{reason} ({hint})" if hint else reason


@dataclass(slots=True)
class ReleaseResolver:
    """Selects packages for exact releases in the same way as `onnxgate lock`."""

    index: UvIndex
    companions: NumpyResolver
    npm: NpmResolver
    progress: Progress
    unreachable: str = ""  # error of the package index, after which it is not contacted again

    def find_specs(self, runtimes: Sequence[LockedRuntime]) -> dict[str, WorkerSpec | Unavailable]:
        """Return a worker spec for each release, or the reason why it is unavailable.

        The newest release is resolved first.
        """
        newest = {runtime.name: self._find_spec(runtime) for runtime in runtimes[-1:]}
        older = {runtime.name: runtime for runtime in runtimes[:-1]}
        with ThreadPoolExecutor(MAX_LOOKUPS) as threads:
            return newest | dict(zip(older, threads.map(self._find_spec, older.values()), strict=True))

    def _find_spec(self, runtime: LockedRuntime) -> WorkerSpec | Unavailable:
        """Select packages for one release, unless the package index has already failed."""
        if self.unreachable:
            return Unavailable(reason=self.unreachable)
        self.progress.started(runtime.name, LOOK_UP_ACTIVITY)
        spec = self._look_up(runtime)
        outcome = "ready" if isinstance(spec, WorkerSpec) else "unavailable"
        self.progress.finished(runtime.name, LOOK_UP_ACTIVITY, outcome)
        return spec

    def _look_up(self, runtime: LockedRuntime) -> WorkerSpec | Unavailable:
        requirement = Requirement(f"{runtime.engine}=={Version(runtime.release)}")
        try:
            if runs_on_node(runtime.engine):
                (release,) = self.npm.find(requirement, "all")
                locked = self.npm.complete(runtime_from_release(release))
                return WorkerSpec.of_runtime(locked, self.npm.packages((locked,)))
            answers = (self.index.newest(requirement, python) for python in PYTHONS)
            engine = next((it for it in answers if not isinstance(it, ReleaseNotFound) and it.wheels), None)
            if engine is None:
                return Unavailable(reason=f"the package index has no `{runtime.name}` wheels for this system")
            dependencies = self._find_dependencies(engine)
        except ResolutionError as error:
            self.unreachable = error.message
            return Unavailable(reason=error.message, hint=error.hint or "")
        except ConfigError as error:
            return Unavailable(reason=error.message, hint=error.hint or "")
        pins = tuple(sorted((engine.pin, *(release.pin for release in dependencies))))
        locked = msgspec.structs.replace(runtime_from_release(engine), packages=pins)
        return WorkerSpec.of_runtime(locked, (engine.locked, *(release.locked for release in dependencies)))

    def _find_dependencies(self, engine: Release) -> list[Release]:
        """Return the releases of the packages that an engine needs.

        Raises:
            ConfigError: no compatible releases were found.
        """
        if engine.name == ONNXRUNTIME:
            return [self.companions.numpy(engine.version, engine.python)]
        names = engine_dependencies(engine.name)
        requirements = (Requirement(name) for name in REQUIRED_DEPENDENCIES[engine.name])
        found = self.index.together((Requirement(engine.pin), *requirements), engine.python)
        if isinstance(found, ReleaseNotFound):
            raise ConfigError(f"no compatible dependencies were found for `{engine.pin}`: {found.reason}")
        return [release for release in found if release.name in names and release.wheels]
