"""`onnxgate matrix --verify`: every model is really loaded, in a locked environment of each release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec
from packaging.requirements import Requirement
from packaging.version import Version

from onnxgate.cli.hosting import open_host
from onnxgate.cli.options import CommonOptions
from onnxgate.cli.progress import LOOK_UP, Tally, display
from onnxgate.errors import ConfigError, OnnxgateError, ResolutionError
from onnxgate.evidence.faults import words
from onnxgate.lock.index import Index, NoRelease, Release
from onnxgate.lock.resolving import PYTHONS, AsksIndex, Companions, runtime_of
from onnxgate.lock.types import LockedRuntime
from onnxgate.matrix import Entry, MatrixModel, Observed
from onnxgate.request import Request
from onnxgate.runtimes.jobs import Completed, Crashed, Load, Observation, Refused, TimedOut, Unavailable
from onnxgate.runtimes.progress import Progress
from onnxgate.runtimes.seats import Seat

ASKED_AT_ONCE = 4


def observed(models: Sequence[MatrixModel], request: Request, options: CommonOptions) -> tuple[MatrixModel, ...]:
    """The models with what came of loading them; nothing is written to any lock."""
    releases = [runtime for target in request.lock.targets.values() for runtime in target.runtimes]
    files = {model.path: model.absolute for model in request.models}
    board = Tally(len(releases) * len(files))
    with (
        display(quiet=options.quiet, board=board) as progress,
        open_host(request.project, options, progress) as host,
    ):
        seats = _Resolver(Index(offline=options.offline), progress).seats(releases)
        waiting = {
            (path, name): host.submit(seat, Load(model=str(file)))
            for name, seat in seats.items()
            if isinstance(seat, Seat)
            for path, file in files.items()
        }
        return tuple(_with(model, seats, waiting) for model in models)


Key = tuple[str, str]  # model, runtime


def _with(
    model: MatrixModel, seats: Mapping[str, Seat | Unavailable], waiting: Mapping[Key, Future[Observation]]
) -> MatrixModel:
    entries = []
    for entry in model.runtimes:
        seat = seats[entry.runtime]
        seen = seat if isinstance(seat, Unavailable) else waiting[model.path, entry.runtime].result()
        entries.append(_seen(entry, seen))
    return msgspec.structs.replace(model, runtimes=tuple(entries))


def _seen(entry: Entry, observation: Observation) -> Entry:
    seen, error = _in_words(observation)
    return msgspec.structs.replace(entry, observed=seen, error=error)


def _in_words(observation: Observation) -> tuple[Observed, str]:
    match observation:
        case Completed():
            return "loads", ""
        case Refused(failure=failure) if failure.memory:  # our own limit, and nothing of the model
            return "unavailable", f"a load takes more memory than one job may: {words(failure)}"
        case Refused(failure=failure):
            return "refused", words(failure)
        case Crashed(signal=signal, during=during):
            return "crashed", f"{signal} during {during}"
        case TimedOut(limit_s=limit_s):
            return "timed-out", f"it had not ended after {limit_s:g} s"
        case Unavailable(reason=reason, hint=hint):
            return "unavailable", f"{reason} ({hint})" if hint else reason


@dataclass(slots=True)
class _Resolver:
    """Finds wheels of exact releases, as `onnxgate lock` does."""

    index: AsksIndex
    progress: Progress
    unreachable: str = ""  # why the index cannot be asked; it is not asked again
    companions: Companions = field(init=False)

    def __post_init__(self) -> None:
        self.companions = Companions(self.index)

    def seats(self, runtimes: Sequence[LockedRuntime]) -> dict[str, Seat | Unavailable]:
        """Where each release can be asked, by its name; or why it cannot. The newest one alone is asked for first."""
        first = {runtime.name: self._seat(runtime) for runtime in runtimes[-1:]}
        with ThreadPoolExecutor(ASKED_AT_ONCE) as threads:
            others = zip((each.name for each in runtimes[:-1]), threads.map(self._seat, runtimes[:-1]), strict=True)
            return first | dict(others)

    def _seat(self, runtime: LockedRuntime) -> Seat | Unavailable:
        """Asked for once only, where no index answers."""
        if self.unreachable:
            return Unavailable(reason=self.unreachable)
        self.progress.started(runtime.name, LOOK_UP)
        seat = self._looked_up(runtime)
        self.progress.finished(runtime.name, LOOK_UP, "ready" if isinstance(seat, Seat) else "unavailable")
        return seat

    def _looked_up(self, runtime: LockedRuntime) -> Seat | Unavailable:
        try:
            engine = self._release(runtime)
            numpy = self.companions.numpy(engine.version, engine.python)
        except ResolutionError as error:
            self.unreachable = error.message
            return _unavailable(error)
        except ConfigError as error:
            return _unavailable(error)
        locked = msgspec.structs.replace(runtime_of(engine), packages=tuple(sorted((engine.pin, numpy.pin))))
        return Seat.of_runtime(locked, (engine.locked, numpy.locked))

    def _release(self, runtime: LockedRuntime) -> Release:
        """The release for the first Python that it has wheels for."""
        requirement = Requirement(f"{runtime.engine}=={Version(runtime.release)}")
        for python in PYTHONS:
            answer = self.index.newest(requirement, python)
            if not isinstance(answer, NoRelease) and answer.wheels:
                return answer
        raise ConfigError(f"`{runtime.name}` has no wheels that the package index offers")


def _unavailable(error: OnnxgateError) -> Unavailable:
    return Unavailable(reason=error.message, hint=error.hint or "")
