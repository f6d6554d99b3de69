"""Whether a repaired model computes what the old one did: both run on every runtime, on the same inputs.

What a runtime gave with the old file is what the new one is held to there, bit by bit, else within the model's
tolerance. Where the old file does not load, the outputs of another runtime, which loads it, stand in for that; where
none does, those of ONNX's reference evaluator in our own interpreter.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from onnxgate import followups
from onnxgate.agreement.comparability import comparability
from onnxgate.config.project import SelectedModel
from onnxgate.feeding import Fed, feed_at
from onnxgate.holding import Holding, Row, said_of
from onnxgate.lock.types import LockedModel
from onnxgate.model.quantization import output_steps
from onnxgate.model.reading import Reading, read
from onnxgate.plan import PlannedRuntime
from onnxgate.runtimes.host import Host
from onnxgate.runtimes.jobs import Case, Observation, Optimization, Run, Unavailable
from onnxgate.runtimes.seats import Seat
from onnxgate.stages.masks import kept_positions
from onnxgate.stages.parity import ParityModel, runs_of
from onnxgate.stages.runtime import Ran, runtime_jobs

Verdict = Literal["proven", "partly", "refuted", "unproven"]
"""Equal wherever it was promised; equal where it could be run, and not run everywhere; not equal; nothing is known."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Where the models are run."""

    name: str
    seat: Seat
    levels: tuple[Optimization, ...] = ("all",)
    providers: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    required: bool = True

    @classmethod
    def of_runtime(cls, planned: PlannedRuntime, seat: Seat) -> Stand:
        """A locked runtime, at all levels that its targets ask for."""
        return cls(planned.name, seat, planned.levels, planned.providers, planned.extensions, planned.required)

    @classmethod
    def of_evaluator(cls) -> Stand:
        """ONNX's reference evaluator under our own interpreter, in a process of its own."""
        name = f"onnx {version('onnx')}"
        return cls(name, Seat.of_interpreter(name, Path(sys.executable), engine="onnx"))


@dataclass(frozen=True, slots=True)
class Proof:
    """What running both models told."""

    rows: tuple[Row, ...] = ()
    cases: int = 0
    largest: float = 0.0  # the largest difference of one element, where the outputs are numbers
    reason: str = ""  # why nothing could be run
    hint: str = ""

    @property
    def verdict(self) -> Verdict:
        """What follows from the rows: one that differs is known, whatever is not."""
        states = {row.state for row in self.rows}
        if "differs" in states:
            return "refuted"
        if self.reason or "equal" not in states:
            return "unproven"
        return "partly" if any(row.state == "unknown" and row.required for row in self.rows) else "proven"


@dataclass(frozen=True, slots=True)
class Pair:
    """The old model and the new one. `old` may be a copy that runtimes can read."""

    model: SelectedModel
    old: Path
    new: Path
    renamed: Mapping[str, str]  # outputs: old name -> new name
    locked: LockedModel | None
    seed: int = 0


FeedUser = Callable[[Reading, Path], Fed]


def prove(pair: Pair, stands: Sequence[Stand], host: Host, feed: FeedUser, scratch: Path) -> Proof:
    """Run both and hold the one against the other. `feed` writes the first input cases into a folder."""
    return _Prover(pair, tuple(stands), host, feed, scratch).proof()


@dataclass(slots=True)
class _Prover:
    pair: Pair
    stands: tuple[Stand, ...]
    host: Host
    feed: FeedUser
    scratch: Path
    largest: float = 0.0
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def proof(self) -> Proof:
        reading = read(self.pair.old, self.pair.model.path)
        fed = self.feed(reading, self._folder())
        if not fed.cases:
            return Proof(reason=f"nothing can be fed to it: {fed.reason}", hint=fed.hint)
        old = self._results(self._begin(self.pair.old, fed.cases, self.stands))
        old, cases = self._at_other_sizes(reading, old, fed.cases)
        if not _gave(old):
            old += self._evaluated(cases)
        if not _gave(old):
            return Proof(cases=len(cases), reason=_why_nothing(old), hint="`onnxgate check` says what is wrong with it")
        new = self._results(self._begin(self.pair.new, cases, self.stands))
        holding = Holding(self._parity_model(reading, cases), self.pair.renamed, old, new)
        rows = tuple(holding.row(each.name, each.levels, required=each.required) for each in self.stands)
        return Proof(rows, len(cases), holding.largest)

    def _evaluated(self, cases: Sequence[Case]) -> list[Ran]:
        """What the reference evaluator gives, where it is none of the runtimes."""
        evaluator = Stand.of_evaluator()
        if any(each.name == evaluator.name for each in self.stands):
            return []
        self.stands = (*self.stands, evaluator)
        return self._results(self._begin(self.pair.old, cases, [evaluator]))

    def _folder(self) -> Path:
        return self.scratch / str(next(self.numbers))

    def _begin(
        self, model: Path, cases: Sequence[Case], stands: Sequence[Stand]
    ) -> list[tuple[str, Run, Future[Observation]]]:
        begun = []
        for stand in stands:
            jobs = runtime_jobs(model, cases, stand.levels, stand.providers, self._folder(), stand.extensions)
            begun += [(stand.name, job, self.host.submit(stand.seat, job)) for job in jobs]
        return begun

    def _results(self, begun: Sequence[tuple[str, Run, Future[Observation]]]) -> list[Ran]:
        return [Ran(name, job, future.result()) for name, job, future in begun]

    def _at_other_sizes(
        self, reading: Reading, ran: list[Ran], cases: tuple[Case, ...]
    ) -> tuple[list[Ran], tuple[Case, ...]]:
        """Where no size that was guessed fits the model, those that do."""
        if not followups.some_failed(ran) or not followups.needs_sizes(ran, None):
            return ran, cases
        newest = next(stand for stand in self.stands if stand.name == followups.newest(ran))

        def attempt(setting: Mapping[str, int]) -> list[Ran]:
            fed = feed_at(self.pair.model, reading, [setting], self._folder(), self.pair.seed)
            return self._results(self._begin(self.pair.old, fed.cases, [newest]))

        sizes = followups.find_sizes(reading.facts, self.pair.model, ran, attempt)
        fed = feed_at(self.pair.model, reading, sizes, self._folder(), self.pair.seed) if sizes else Fed(())
        if not fed.cases:
            return ran, cases
        return self._results(self._begin(self.pair.old, fed.cases, self.stands)), fed.cases

    def _parity_model(self, reading: Reading, cases: Sequence[Case]) -> ParityModel:
        model = self.pair.model
        return ParityModel(
            path=model.path,
            place=model.place,
            comparability=comparability(reading.facts, reading.proto),
            tolerance=model.settings.tolerance,
            locked=self.pair.locked,
            operators=frozenset(reading.facts.operators),
            steps=output_steps(reading.proto, self.pair.old),
            kept=kept_positions(reading, cases),
        )


def _gave(ran: Sequence[Ran]) -> bool:
    """Whether anything was computed anywhere."""
    return any(outputs.paths for levels in runs_of(ran).values() for outputs in levels.values())


def _why_nothing(ran: Sequence[Ran]) -> str:
    first = next((each for each in ran if not isinstance(each.observation, Unavailable)), ran[0])
    said = "the model as it is runs nowhere, so that there is nothing to compare with"
    return f"{said}: {first.runtime}: {said_of(first.observation)}"
