"""The outputs of a model that was run, held against each other: what differs, where it begins, what rounding cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from onnxgate import followups
from onnxgate.agreement.comparability import comparability
from onnxgate.evidence.faults import not_finite
from onnxgate.evidence.parity import Comparison
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.findings import Stage, Undone
from onnxgate.locating import Locator, located
from onnxgate.model.quantization import output_steps
from onnxgate.plan import PlannedRuntime
from onnxgate.quantizing import Quantized, Quantizing
from onnxgate.runtimes.jobs import Job, Observation
from onnxgate.runtimes.seats import JobLimits
from onnxgate.stages import parity as parity_stage
from onnxgate.stages.masks import kept_positions
from onnxgate.stages.parity import ParityModel
from onnxgate.stages.runtime import Ran
from onnxgate.underway import Started, figures
from onnxgate.work import Execution, Work

Submit = Callable[[PlannedRuntime, Job, JobLimits | None], Future[Observation]]


class Comparing:
    """Compares, and follows up what differs; what comes of it goes into `done`.

    `submit` has a job done on a runtime, `ask` in the toolchain; `folder` gives an unused path for what is written.
    """

    def __init__(
        self, work: Work, done: Execution, submit: Submit, ask: Callable[[Job], Observation], folder: Callable[[], Path]
    ) -> None:
        self._work = work
        self._done = done
        self._submit = submit
        self._ask = ask
        self._folder = folder

    def judge(self, started: Started, ran: Sequence[Ran], runs: Sequence[ModelRuns]) -> None:
        """Hold the outputs of one model against its source, across levels and runtimes, and against its float model."""
        model = self._model(started, runs)
        if self._work.watch is not None:
            self._work.watch(model, ran)
        if unread := started.prepared.fed.unread:
            self._done.skipped.append(Undone(Stage.PARITY, model.path, "", unread))
        unusable = () if followups.why_nothing_ran(runs)[0] else followups.undecided_cases(runs)
        comparisons, undone = parity_stage.gather(model, ran, started.sourced.eager, unusable)
        locator = Locator(self._submit, self._ask, self._folder)
        comparisons, unfound = locator.locate(located(self._work, started, ran), comparisons)
        self._done.skipped += unfound
        self._done.compared |= {(each.model, each.runtime) for each in comparisons if each.reference == "the source"}
        self._note(comparisons, undone)
        self._note(*self._against_float(started, ran, model))

    def _model(self, started: Started, runs: Sequence[ModelRuns]) -> ParityModel:
        prepared, work = started.prepared, self._work
        return ParityModel(
            path=prepared.path,
            place=work.places[prepared.path],
            comparability=comparability(prepared.reading.facts, prepared.reading.proto),
            tolerance=prepared.planned.model.settings.tolerance,
            locked=work.lock.models.get(prepared.path),
            operators=frozenset(prepared.reading.facts.operators),
            steps=output_steps(prepared.reading.proto, prepared.planned.model.absolute),
            kept=kept_positions(prepared.reading, started.cases),
            not_finite=not_finite(runs) if Stage.RUNTIME in work.stages else frozenset(),
        )

    def _against_float(
        self, started: Started, ran: Sequence[Ran], model: ParityModel
    ) -> tuple[tuple[Comparison, ...], tuple[Undone, ...]]:
        """A quantized model against the float model that it came from."""
        prepared = started.prepared
        quantized = Quantized(prepared.planned.model, prepared.reading, started.cases, tuple(started.levels))
        quantizing = Quantizing(self._work.project, lambda where, job: self._submit(where, job, None), self._folder)
        return quantizing.examine(quantized, model, ran)

    def _note(self, comparisons: Sequence[Comparison], undone: Sequence[Undone]) -> None:
        self._done.subjects += comparisons
        self._done.undone += [each for each in undone if not each.by_design]
        self._done.skipped += [each for each in undone if each.by_design]
        self._done.measured += [figure for each in comparisons for figure in figures(each)]
