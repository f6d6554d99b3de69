"""Check relative budgets: measure each model together with its baseline after all other jobs have completed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onnxgate.core.files import sha256_of
from onnxgate.core.findings import IncompleteCheck, Stage, runtime_sort_key
from onnxgate.core.jobs import (
    Benchmark,
    BenchmarkResult,
    Completed,
    Crashed,
    InputCase,
    Observation,
    Refused,
    TimedOut,
    Unavailable,
)
from onnxgate.core.report import Measured
from onnxgate.core.text import pluralize
from onnxgate.evidence.policy import Raced
from onnxgate.gate.request import RunnableModel, StepResult
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.external_data import hash_external_files
from onnxgate.project.config.project import SelectedModel
from onnxgate.project.config.schema import Budget
from onnxgate.project.git.revisions import MissingAtRevisionError, Revision, write_model_at_revision
from onnxgate.project.plan import PlannedRuntime

ENGINE = "onnxruntime"
ROUNDS = 60
MIN_ROUNDS = 8
"""Minimum number of rounds for meaningful quartiles."""
TIME_S = 20.0
MEMORY_RUNS = 3
NOISE_MIB = 4.0
"""Memory difference in MiB between two identical processes that is treated as noise."""

NO_BASELINE = "the relative budget was not checked: no baseline is selected"
NO_BASELINE_HINT = (
    "select a revision with `--against REF`, or set `quantized-from` to the float model of a quantized model"
)

Measure = Literal["time", "memory"]


@dataclass(frozen=True, slots=True)
class MeasuredRatio:
    """A measured ratio with its lower and upper bounds."""

    ratio: float
    low: float
    high: float
    negligible: bool = False


@dataclass(slots=True)
class Benchmarks:
    """Measurements of models and their baselines. `submit` runs a job on a runtime; `place` returns an unused path."""

    base: Path  # config folder
    against: Revision | None
    submit: Callable[[PlannedRuntime, Benchmark], Future[Observation]]
    place: Callable[[], Path]

    def measure(self, model: RunnableModel, cases: tuple[InputCase, ...]) -> StepResult:
        """If a model has a relative budget, compare its time and memory with those of its baseline.

        Models with unchanged content are not measured. The check is skipped for new models, and if no baseline is
        selected.
        """
        settings, path = model.planned.model.settings, model.path
        budget = settings.budget
        if budget is None or (budget.slower_than_baseline is None and budget.memory_over_baseline is None):
            return StepResult()
        if self.against is None and settings.quantized_from is None:
            return StepResult(skipped=(IncompleteCheck(Stage.RUNTIME, path, "", NO_BASELINE, NO_BASELINE_HINT),))
        try:
            name, file = self._find_baseline(model.planned.model, model.facts)
            raced = list(self._race(model, cases, budget, name, file)) if file is not None else []
        except MissingAtRevisionError as error:
            undone = IncompleteCheck(
                Stage.RUNTIME,
                path,
                "",
                f"the relative budget could not be checked: {error.reason}",
                error.hint,
                prevents_run=False,
            )
            return StepResult(skipped=(undone,)) if error.is_new else StepResult(undone=(undone,))
        return StepResult(
            subjects=tuple(raced),
            undone=tuple(_report_noise(evidence) for evidence in raced if evidence.verdict == "unclear"),
            measured=tuple(row for evidence in raced for row in report_ratio(evidence)),
        )

    def _find_baseline(self, model: SelectedModel, facts: ModelFacts) -> tuple[str, Path | None]:
        """Return the name and file of the baseline. The file is None if the content of the model is unchanged."""
        if model.settings.quantized_from is not None:
            return f"`{model.settings.quantized_from}`", self.base / model.settings.quantized_from
        assert self.against is not None
        root = self.against.root
        if not model.absolute.is_relative_to(root):
            raise MissingAtRevisionError("the model is outside the repository")
        old = write_model_at_revision(self.against, model.absolute.relative_to(root).as_posix(), self.place())
        file, external = old.path, hash_external_files(old.view, old.path)
        is_same = sha256_of(file) == facts.sha256 and sorted(external) == sorted(facts.external)
        return f"`{model.path}` at `{self.against.name}`", None if is_same else file

    def _race(
        self, model: RunnableModel, cases: tuple[InputCase, ...], budget: Budget, baseline: str, file: Path
    ) -> Iterator[Raced]:
        runtimes = [it for it in model.planned.runtimes if it.runtime.engine == ENGINE]
        if not runtimes:
            raise MissingAtRevisionError(f"budgets are measured on `{ENGINE}`, which no target of the model uses")
        planned = max(runtimes, key=lambda runtime: runtime_sort_key(runtime.name))
        job = Benchmark(
            model=str(model.planned.model.absolute.absolute()),
            baseline=str(file.absolute()),
            cases=cases,
            rounds=ROUNDS if budget.slower_than_baseline is not None else 0,
            memory_runs=MEMORY_RUNS if budget.memory_over_baseline is not None else 0,
            time_s=TIME_S,
            providers=planned.providers,
            extensions=planned.extensions,
        )
        result = _require_result(self.submit(planned, job).result())
        budgets: tuple[tuple[Measure, float | None, Callable[[BenchmarkResult, float], MeasuredRatio]], ...] = (
            ("time", budget.slower_than_baseline, compute_time_ratio),
            ("memory", budget.memory_over_baseline, compute_memory_ratio),
        )
        for measure, allowed, figures in budgets:
            if allowed is not None:
                measured = figures(result, allowed)
                yield Raced(
                    model=model.path,
                    place=model.place,
                    runtime=planned.name,
                    measure=measure,
                    baseline=baseline,
                    case=result.case,
                    budget=allowed,
                    ratio=measured.ratio,
                    low=measured.low,
                    high=measured.high,
                    negligible=measured.negligible,
                )


def _require_result(observation: Observation) -> BenchmarkResult:
    match observation:
        case Completed(result=BenchmarkResult(reason="") as result):
            return result
        case Completed(result=BenchmarkResult(reason=reason)) | Unavailable(reason=reason):
            raise MissingAtRevisionError(reason)
        case Refused(failure=failure):
            raise MissingAtRevisionError(f"the model does not load: {failure.type}")
        case Crashed(signal=signal, during=during):
            raise MissingAtRevisionError(f"the runtime crashed with {signal} during {during}")
        case TimedOut(limit_s=limit_s):
            raise MissingAtRevisionError(f"the measurement timed out after {limit_s:g} s")
        case _:
            raise TypeError(f"unexpected benchmark result: {type(observation).__name__}")


def compute_time_ratio(result: BenchmarkResult, _: float = 0.0) -> MeasuredRatio:
    """Return the median time ratio over all rounds, with its quartiles."""
    if len(result.model_s) < MIN_ROUNDS:
        rounds = pluralize(len(result.model_s), "round")
        raise MissingAtRevisionError(
            f"the model runs too slowly to be measured: only {rounds} finished within {TIME_S:g} s"
        )
    ratios = [model / baseline for model, baseline in zip(result.model_s, result.baseline_s, strict=True)]
    low, ratio, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return MeasuredRatio(ratio, low, high)


def compute_memory_ratio(result: BenchmarkResult, allowed: float) -> MeasuredRatio:
    """Return the ratio of the median memory values, with the smallest and largest ratio of any two processes."""
    model, baseline = (
        [max(used_mib, NOISE_MIB) for used_mib in mib] for mib in (result.model_mib, result.baseline_mib)
    )
    if not model:
        raise MissingAtRevisionError("memory use could not be measured")
    median, baseline_median = statistics.median(model), statistics.median(baseline)
    excess = median - allowed * baseline_median
    return MeasuredRatio(
        median / baseline_median, min(model) / max(baseline), max(model) / min(baseline), excess <= NOISE_MIB
    )


def _report_noise(raced: Raced) -> IncompleteCheck:
    what = "run time" if raced.measure == "time" else "peak memory"
    reason = f"measurements vary too much to check the limit of {raced.budget:g} times the {what} of {raced.baseline}"
    hint = "re-run the check on an idle machine"
    return IncompleteCheck(Stage.RUNTIME, raced.model, raced.runtime, reason, hint, prevents_run=False)


def report_ratio(raced: Raced) -> list[Measured]:
    """Return the ratio and its bounds as report rows."""
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
