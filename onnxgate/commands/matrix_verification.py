"""`onnxgate matrix --verify`: every model is really loaded, in a locked environment of each release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec
from packaging.requirements import Requirement
from packaging.version import Version

from onnxgate.cli.shared.options import CommonOptions
from onnxgate.cli.shared.worker_pool import LOOK_UP_ACTIVITY, CountingProgressBoard, open_host, open_progress
from onnxgate.core.errors import ConfigError, OnnxgateError, ResolutionError
from onnxgate.core.jobs import Completed, Crashed, Load, Observation, Refused, TimedOut, Unavailable
from onnxgate.core.matrix import Entry, MatrixModel, Observed
from onnxgate.diagnostics.short_texts import shorten_failure
from onnxgate.gate.request import GateRequest
from onnxgate.project.lock.index import Release, ReleaseNotFound, UvIndex
from onnxgate.project.lock.releases import PYTHONS, NumpyResolver, PackageIndex, runtime_from_release
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.runtimes.pool.monitoring import Progress
from onnxgate.runtimes.worker_spec import WorkerSpec

MAX_LOOKUPS = 4


def verify_matrix(
    models: Sequence[MatrixModel], request: GateRequest, options: CommonOptions
) -> tuple[MatrixModel, ...]:
    """The models with what came of loading them; nothing is written to any lock."""
    releases = [runtime for target in request.lock.targets.values() for runtime in target.runtimes]
    files = {model.path: model.absolute for model in request.models}
    board = CountingProgressBoard(len(releases) * len(files))
    with (
        open_progress(quiet=options.quiet, board=board) as progress,
        open_host(request.project, options, progress) as host,
    ):
        seats = _WheelResolver(UvIndex(offline=options.offline), progress).seats(releases)
        waiting = {
            (path, name): host.submit(seat, Load(model=str(file)))
            for name, seat in seats.items()
            if isinstance(seat, WorkerSpec)
            for path, file in files.items()
        }
        return tuple(_add_observations(model, seats, waiting) for model in models)


ModelAndRuntime = tuple[str, str]  # model, runtime


def _add_observations(
    model: MatrixModel,
    seats: Mapping[str, WorkerSpec | Unavailable],
    waiting: Mapping[ModelAndRuntime, Future[Observation]],
) -> MatrixModel:
    entries = []
    for entry in model.runtimes:
        seat = seats[entry.runtime]
        seen = seat if isinstance(seat, Unavailable) else waiting[model.path, entry.runtime].result()
        entries.append(_add_observation(entry, seen))
    return msgspec.structs.replace(model, runtimes=tuple(entries))


def _add_observation(entry: Entry, observation: Observation) -> Entry:
    seen, error = _describe_observation(observation)
    return msgspec.structs.replace(entry, observed=seen, error=error)


def _describe_observation(observation: Observation) -> tuple[Observed, str]:
    match observation:
        case Completed():
            return "loads", ""
        case Refused(failure=failure) if failure.memory:  # our own limit, and nothing of the model
            return "unavailable", f"a load takes more memory than one job may: {shorten_failure(failure)}"
        case Refused(failure=failure):
            return "refused", shorten_failure(failure)
        case Crashed(signal=signal, during=during):
            return "crashed", f"{signal} during {during}"
        case TimedOut(limit_s=limit_s):
            return "timed-out", f"it had not ended after {limit_s:g} s"
        case Unavailable(reason=reason, hint=hint):
            return "unavailable", f"{reason} ({hint})" if hint else reason


@dataclass(slots=True)
class _WheelResolver:
    """Finds wheels of exact releases, as `onnxgate lock` does."""

    index: PackageIndex
    progress: Progress
    unreachable: str = ""  # why the index cannot be asked; it is not asked again
    companions: NumpyResolver = field(init=False)

    def __post_init__(self) -> None:
        self.companions = NumpyResolver(self.index)

    def seats(self, runtimes: Sequence[LockedRuntime]) -> dict[str, WorkerSpec | Unavailable]:
        """Where each release can be asked, by its name; or why it cannot. The newest one alone is asked for first."""
        first = {runtime.name: self._seat(runtime) for runtime in runtimes[-1:]}
        with ThreadPoolExecutor(MAX_LOOKUPS) as threads:
            others = zip(
                (runtime.name for runtime in runtimes[:-1]), threads.map(self._seat, runtimes[:-1]), strict=True
            )
            return first | dict(others)

    def _seat(self, runtime: LockedRuntime) -> WorkerSpec | Unavailable:
        """Asked for once only, where no index answers."""
        if self.unreachable:
            return Unavailable(reason=self.unreachable)
        self.progress.started(runtime.name, LOOK_UP_ACTIVITY)
        seat = self._looked_up(runtime)
        self.progress.finished(
            runtime.name, LOOK_UP_ACTIVITY, "ready" if isinstance(seat, WorkerSpec) else "unavailable"
        )
        return seat

    def _looked_up(self, runtime: LockedRuntime) -> WorkerSpec | Unavailable:
        try:
            engine = self._release(runtime)
            numpy = self.companions.numpy(engine.version, engine.python)
        except ResolutionError as error:
            self.unreachable = error.message
            return _make_unavailable(error)
        except ConfigError as error:
            return _make_unavailable(error)
        locked = msgspec.structs.replace(runtime_from_release(engine), packages=tuple(sorted((engine.pin, numpy.pin))))
        return WorkerSpec.of_runtime(locked, (engine.locked, numpy.locked))

    def _release(self, runtime: LockedRuntime) -> Release:
        """The release for the first Python that it has wheels for."""
        requirement = Requirement(f"{runtime.engine}=={Version(runtime.release)}")
        for python in PYTHONS:
            answer = self.index.newest(requirement, python)
            if not isinstance(answer, ReleaseNotFound) and answer.wheels:
                return answer
        raise ConfigError(f"`{runtime.name}` has no wheels that the package index offers")


def _make_unavailable(error: OnnxgateError) -> Unavailable:
    return Unavailable(reason=error.message, hint=error.hint or "")
