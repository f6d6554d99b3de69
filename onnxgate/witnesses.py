"""Nodes of refused models, loaded alone: each once on a runtime, and no more than help to say what is wrong."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, TimeoutError
from dataclasses import dataclass, field
from pathlib import Path

from onnxgate.evidence.runtime import Alone
from onnxgate.findings import Stage, Undone
from onnxgate.plan import PlannedRuntime
from onnxgate.runtimes.jobs import Crashed, Load, Observation, Optimization, TimedOut
from onnxgate.stages import witness
from onnxgate.stages.alone import Single, singles
from onnxgate.stages.runtime import RunModel
from onnxgate.stages.witness import Loaded, Refusing

MOST = 200
"""So many kinds of nodes of one model are loaded alone on one runtime."""
PATIENCE_S = 60.0
"""So long one model's nodes may take on one runtime, once the first of them was answered."""
NODE_TIME_S = 30.0
"""So long one node may take."""
FATAL_MOST = 3
"""After so many that crash or hang, no more are tried: each costs a new process."""
OLDEST_IR = 7
"""Stamped on nodes of a model whose IR version is refused. Source: every ONNX Runtime since 1.3 takes it."""

Submit = Callable[[PlannedRuntime, Load], Future[Observation]]
Asked = tuple[Single, tuple[Future[Observation], ...]]


@dataclass(slots=True)
class Examined:
    """What came of it."""

    alone: dict[str, tuple[Alone, ...]] = field(default_factory=dict)  # by runtime
    skipped: list[Undone] = field(default_factory=list)


@dataclass(slots=True)
class Witnesses:
    """Asks runtimes; `folder` is where the models of nodes are written to."""

    submit: Submit
    folder: Path
    _asked: dict[tuple[str, str, str], Future[Observation]] = field(default_factory=dict)

    def examine(self, model: RunModel, refusing: Mapping[PlannedRuntime, Refusing]) -> Examined:
        """Load the nodes of a model alone on each runtime that refuses it: those predicted first, then what is left."""
        examined = Examined()
        worth = {planned: each for planned, each in refusing.items() if not each.is_hopeless}
        if not worth:
            return examined
        kinds = singles(model.proto)
        first = {planned: witness.predicted(each, kinds) for planned, each in worth.items()}
        seen = self._round(worth, first, model.proto.ir_version)
        rest = {planned: witness.unpredicted(each, kinds, seen[planned]) for planned, each in worth.items()}
        more = self._round(worth, rest, model.proto.ir_version)
        for planned, each in worth.items():
            both = {**seen[planned], **more[planned]}
            wanted = len(first[planned]) + len(rest[planned])
            examined.alone[planned.name] = witness.judge(each, kinds, both, model)
            examined.skipped += _left_out(model.path, planned.name, len(both), wanted)
        return examined

    def _round(
        self,
        refusing: Mapping[PlannedRuntime, Refusing],
        wanted: Mapping[PlannedRuntime, Sequence[Single]],
        ir_version: int,
    ) -> dict[PlannedRuntime, dict[Single, Loaded]]:
        """What became of nodes, of all runtimes at the same time; one that was not tried is not there."""
        asked = {
            planned: list(self._ask(planned, refusing[planned], kinds[:MOST], ir_version))
            for planned, kinds in wanted.items()
        }
        return {planned: dict(_answers(each)) for planned, each in asked.items()}

    def _ask(
        self, planned: PlannedRuntime, refusing: Refusing, kinds: Iterable[Single], ir_version: int
    ) -> Iterator[Asked]:
        stamped = min(ir_version, OLDEST_IR) if refusing.is_ir_refused else ir_version
        for kind in kinds:
            data = kind.model(stamped)
            if data is not None:
                yield kind, tuple(self._load(planned, data, level) for level in refusing.levels)

    def _load(self, planned: PlannedRuntime, data: bytes, level: Optimization) -> Future[Observation]:
        digest = hashlib.sha256(data).hexdigest()
        key = (planned.name, digest, level)
        if key not in self._asked or self._asked[key].cancelled():
            job = Load(
                model=str(self._file(digest, data)),
                optimization=level,
                providers=planned.providers,
                extensions=planned.extensions,
            )
            self._asked[key] = self.submit(planned, job)
        return self._asked[key]

    def _file(self, digest: str, data: bytes) -> Path:
        """Written once: another runtime may be reading it."""
        path = (self.folder / digest[:32] / "node.onnx").absolute()
        if not path.exists():
            path.parent.mkdir(parents=True)
            path.write_bytes(data)
        return path


def _left_out(model: str, runtime: str, tried: int, wanted: int) -> list[Undone]:
    if tried == wanted:
        return []
    reason = f"{tried} of {wanted} kinds of nodes could be loaded alone to find all that is refused"
    return [Undone(Stage.RUNTIME, model, runtime, reason)]


def _answers(asked: Sequence[Asked]) -> Iterator[tuple[Single, Loaded]]:
    """The outcome of each, in order, until patience ends; what waits then is not done."""
    ends_at, fatal = float("inf"), 0
    for index, (kind, futures) in enumerate(asked):
        try:
            observations = [each.result(_left(ends_at)) for each in futures]
        except TimeoutError:
            return _cancel(asked[index:])
        ends_at = min(ends_at, time.monotonic() + PATIENCE_S)
        yield kind, witness.loaded(observations)
        fatal += any(isinstance(each, Crashed | TimedOut) for each in observations)
        if fatal == FATAL_MOST:
            return _cancel(asked[index + 1 :])


def _left(ends_at: float) -> float | None:
    return None if ends_at == float("inf") else max(0.0, ends_at - time.monotonic())


def _cancel(asked: Sequence[Asked]) -> None:
    for _, futures in asked:
        for each in futures:
            each.cancel()
