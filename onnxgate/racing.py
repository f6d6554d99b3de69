"""Budgets that are ratios: a model and its baseline run side by side, once all else is done."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onnxgate.baseline.past import write_past
from onnxgate.baseline.revisions import AbsentError, Revision
from onnxgate.config.types import Budget
from onnxgate.evidence.budget import Raced
from onnxgate.findings import Place, Stage, Undone, runtime_order
from onnxgate.model.external import external_files
from onnxgate.model.facts import ModelFacts
from onnxgate.model.hashing import sha256_of
from onnxgate.model.structure import read_structure
from onnxgate.plan import PlannedModel, PlannedRuntime
from onnxgate.report import Measured
from onnxgate.runtimes.jobs import (
    Case,
    Completed,
    Crashed,
    Observation,
    Race,
    RaceResult,
    Refused,
    TimedOut,
    Unavailable,
)
from onnxgate.work import Execution

ENGINE = "onnxruntime"
ROUNDS = 60
FEWEST = 8
"""With fewer rounds, quartiles mean nothing."""
TIME_S = 20.0
WEIGHINGS = 3
NOISE_MIB = 4.0
"""So much may two processes differ that do the same."""

NOT_ASKED = "its budget was not measured: no baseline was asked for"
NOT_ASKED_HINT = "give `--against REF`, or `quantized-from` where there is a float model"

Ask = Callable[[PlannedRuntime, Race], Observation]
Measure = Literal["time", "memory"]


@dataclass(frozen=True, slots=True)
class Entrant:
    """A model with a budget, and what it is raced on."""

    planned: PlannedModel
    place: Place
    facts: ModelFacts
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a model is raced against, in words and as a file; without a file it is the same content."""

    words: str
    file: Path | None


@dataclass(frozen=True, slots=True)
class Figures:
    """How many times as much, between what bounds."""

    ratio: float
    low: float
    high: float
    negligible: bool = False


@dataclass(slots=True)
class Races:
    """`ask` has a job done on a runtime and waits; `folder` gives one that does not exist yet."""

    base: Path  # the config's folder
    against: Revision | None
    ask: Ask
    folder: Callable[[], Path]

    def hold(self, entrant: Entrant, done: Execution) -> None:
        """Add to `done` what was measured, and what is undecided or skipped; nothing of a model without such a budget.

        What is measured of the same content is 1, and needs no race. A model that is new has no baseline, and need not;
        where no revision was named, a comparison with one was not asked for.
        """
        budget, path = entrant.planned.model.settings.budget, entrant.planned.path
        if budget is None or (budget.slower_than_baseline is None and budget.memory_over_baseline is None):
            return
        if self.against is None and entrant.planned.model.settings.quantized_from is None:
            done.skipped.append(Undone(Stage.RUNTIME, path, "", NOT_ASKED, NOT_ASKED_HINT))
            return
        try:
            baseline = self._baseline(entrant)
            raced = list(self._race(entrant, budget, baseline, baseline.file)) if baseline.file is not None else []
        except AbsentError as error:
            undone = Undone(Stage.RUNTIME, path, "", f"its budget: {error.reason}", error.hint)
            (done.skipped if error.is_new else done.undone).append(undone)
            return
        done.subjects += raced
        done.measured += [row for each in raced for row in figures(each)]
        done.undone += [_unclear(each) for each in raced if each.verdict == "unclear"]

    def _baseline(self, entrant: Entrant) -> Baseline:
        model = entrant.planned.model
        if model.settings.quantized_from is not None:
            return Baseline(f"`{model.settings.quantized_from}`", self.base / model.settings.quantized_from)
        assert self.against is not None
        root = self.against.root
        if not model.absolute.is_relative_to(root):
            raise AbsentError("the model lies outside of the repository")
        file = write_past(self.against, model.absolute.relative_to(root).as_posix(), self.folder())
        return Baseline(f"`{model.path}` at `{self.against.name}`", None if _is_same(entrant.facts, file) else file)

    def _race(self, entrant: Entrant, budget: Budget, baseline: Baseline, file: Path) -> Iterator[Raced]:
        planned = _newest(entrant.planned)
        job = Race(
            model=str(entrant.planned.model.absolute.absolute()),
            baseline=str(file.absolute()),
            cases=entrant.cases,
            rounds=ROUNDS if budget.slower_than_baseline is not None else 0,
            weighings=WEIGHINGS if budget.memory_over_baseline is not None else 0,
            time_s=TIME_S,
            providers=planned.providers,
            extensions=planned.extensions,
        )
        result = _result(self.ask(planned, job))
        by: tuple[tuple[Measure, float | None, Callable[[RaceResult, float], Figures]], ...] = (
            ("time", budget.slower_than_baseline, of_times),
            ("memory", budget.memory_over_baseline, of_weights),
        )
        for measure, allowed, figures in by:
            if allowed is not None:
                found = figures(result, allowed)
                yield Raced(
                    model=entrant.planned.path,
                    place=entrant.place,
                    runtime=planned.name,
                    measure=measure,
                    baseline=baseline.words,
                    case=result.case,
                    budget=allowed,
                    ratio=found.ratio,
                    low=found.low,
                    high=found.high,
                    negligible=found.negligible,
                )


def _is_same(facts: ModelFacts, file: Path) -> bool:
    """Whether the model and all of its data are what they were."""
    if sha256_of(file) != facts.sha256:
        return False
    return tuple(sorted(external_files(read_structure(file), file))) == tuple(sorted(facts.external))


def _newest(planned: PlannedModel) -> PlannedRuntime:
    found = [each for each in planned.runtimes if each.runtime.engine == ENGINE]
    if not found:
        raise AbsentError(f"no target of the model has `{ENGINE}`, on which it is measured")
    return max(found, key=lambda each: runtime_order(each.name))


def _result(observation: Observation) -> RaceResult:
    match observation:
        case Completed(result=RaceResult(reason="") as result):
            return result
        case Completed(result=RaceResult(reason=reason)) | Unavailable(reason=reason):
            raise AbsentError(reason)
        case Refused(failure=failure):
            raise AbsentError(f"it does not load: {failure.type}")
        case Crashed(signal=signal, during=during):
            raise AbsentError(f"the runtime ended with {signal} during {during}")
        case TimedOut(limit_s=limit_s):
            raise AbsentError(f"it was not measured within {limit_s:g} s")
        case other:
            raise TypeError(f"{type(other).__name__} is no answer to a race")


def of_times(result: RaceResult, _: float = 0.0) -> Figures:
    """The median ratio of the rounds, with its quartiles."""
    if len(result.model_s) < FEWEST:
        raise AbsentError(f"one run takes too long to be timed: {len(result.model_s)} rounds in {TIME_S:g} s")
    ratios = [model / baseline for model, baseline in zip(result.model_s, result.baseline_s, strict=True)]
    low, ratio, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Figures(ratio, low, high)


def of_weights(result: RaceResult, allowed: float) -> Figures:
    """The ratio of the medians, with the least and the largest that the processes leave possible."""
    model, baseline = ([max(each, NOISE_MIB) for each in mib] for mib in (result.model_mib, result.baseline_mib))
    if not model:
        raise AbsentError("no process could be weighed")
    middle, beside = statistics.median(model), statistics.median(baseline)
    beyond = middle - allowed * beside
    return Figures(middle / beside, min(model) / max(baseline), max(model) / min(baseline), beyond <= NOISE_MIB)


def _unclear(raced: Raced) -> Undone:
    what = "long" if raced.measure == "time" else "much memory"
    reason = f"this machine is too noisy to tell whether it takes {raced.budget:g} times as {what} as {raced.baseline}"
    return Undone(Stage.RUNTIME, raced.model, raced.runtime, reason, "run it again, where nothing else runs")


def figures(raced: Raced) -> list[Measured]:
    """The ratio and its spread, as reports say them."""
    rows = (("", raced.ratio), (", low", raced.low), (", high", raced.high))
    return [
        Measured(
            model=raced.model,
            output="",
            pair=f"{raced.runtime} against {raced.baseline}",
            case=raced.case,
            metric=f"{raced.measure} ratio{part}",
            value=value,
            bound=raced.budget,
            bound_from="config",
        )
        for part, value in rows
    ]
