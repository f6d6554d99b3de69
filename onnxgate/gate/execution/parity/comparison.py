"""Compare outputs with the source, across optimization levels and runtimes, and with the float model.

This is the parity stage of one model. Most models need no runs in addition to those of the runtime stage. The others
are in modules of their own: rounding errors of the source, or of a model that exceeds a default tolerance (`noise`), a
fresh export for differences within the default tolerance (`small_differences`), slightly changed inputs for ranked
outputs (`nearby_runs`), the items that the source selects (`replayed_selections`), the input of an
activation instead of its output (`saturated_outputs`), a float16 model in float32 (`widened_comparison`), the first
differing node (`mismatch_search`), and the float model of a quantized one (`float_comparison`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from onnxgate.core.findings import IncompleteCheck, Stage, runtime_sort_key
from onnxgate.core.jobs import Completed, ExportResult, Job, Observation
from onnxgate.core.report import RATIO_METRICS, Measured
from onnxgate.evidence.parity import SOURCE, Comparison, Difference, FirstDifference, find_mismatches
from onnxgate.evidence.runtime import ModelRuns, find_not_finite
from onnxgate.gate.execution import failed_runs
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns, SourceRuns, UnmeasurableError
from onnxgate.gate.execution.parity.float_comparison import FloatComparison, QuantizedModel
from onnxgate.gate.execution.parity.mismatch_search import MismatchSearch, create_searched_model
from onnxgate.gate.execution.parity.nearby_runs import NearbyRuns
from onnxgate.gate.execution.parity.noise import NoiseMeter
from onnxgate.gate.execution.parity.replayed_selections import ReplayedComparison, ReplayedRuns
from onnxgate.gate.execution.parity.saturated_outputs import SaturatedComparison
from onnxgate.gate.execution.parity.small_differences import Compare, FreshRuns, SmallDifferences
from onnxgate.gate.execution.parity.widened_comparison import MAX_DIFFERING, WidenedComparison
from onnxgate.gate.execution.started_models import StartedModel
from onnxgate.gate.request import ExecutionSettings, StepResult
from onnxgate.model.reading.fact_extraction import ParsedModel
from onnxgate.model.reading.structure import read_view
from onnxgate.model.subgraphs.widened_models import hash_half_weights, hash_weight
from onnxgate.numerics.tolerance import NoiseMeasurement, choose_bound
from onnxgate.stages.parity import stage as parity_stage
from onnxgate.stages.parity.dequantized_weights import has_dequantized_weights
from onnxgate.stages.parity.differing_weights import WeightComparison, compare_weights, locate_differing_weight
from onnxgate.stages.parity.first_difference import create_first_difference
from onnxgate.stages.parity.output_comparison import FAINT, SAME_FILE_PAIRS, ParityModel, create_parity_model
from onnxgate.stages.parity.source_difference import match_fresh_export
from onnxgate.stages.parity.stage import ParityEvidence
from onnxgate.stages.runtime import ObservedRun


@dataclass(frozen=True, slots=True)
class OutputComparer:
    """Compares the outputs of one model. `run_in_toolchain` runs a job of its source."""

    settings: ExecutionSettings
    started: StartedModel
    reading: ParsedModel
    extra: ExtraRuns
    run_in_toolchain: Callable[[Job], Observation]

    def compare(self, ran: Sequence[ObservedRun], runs: Sequence[ModelRuns]) -> StepResult:
        """Compare the outputs with the source, across levels and runtimes, and with the float model."""
        model, started, file = self._create_model(runs), self.started, self._file
        if self.settings.watch is not None:
            self.settings.watch(model, ran)
        eager, unread = started.sourced.eager, started.prepared.fed.unread
        unusable = () if failed_runs.explain_no_completed_run(runs)[0] else failed_runs.find_undecided_cases(runs)
        nearby = NearbyRuns(self.extra, file, started.cases, model.comparability.half)
        compare = partial(parity_stage.collect_evidence, eager=eager, unusable=unusable, run_nearby=nearby.run)
        model, (comparisons, reasons) = self._compare_runs(model, file, ran, compare, self._source)
        if eager is None:
            saturated = SaturatedComparison(self.extra, self._compare_values)
            more, reasons = saturated.compare(model, file, self.reading.proto, ran, reasons)
            comparisons = (*comparisons, *more)
        comparison = self._create_replayed_comparison()
        (more, reasons), replayed = comparison.compare(model, file, self.reading.proto, ran, reasons)
        is_quantized = model.comparability.quantized
        if replayed is None and not is_quantized and any(map(find_other_items, comparisons)):  # for the first node
            replayed = comparison.run(file, self.reading.proto, ran)
        comparisons, unfound = self._locate(model, ran, comparisons, more, replayed)
        widened, limited = self._compare_widened(model, comparisons)
        quantized = QuantizedModel(started.prepared.planned.model, self.reading, started.cases)
        with_float, unlike = FloatComparison(self.settings.project, self.extra).compare(quantized, model, ran)
        comparisons = (*comparisons, *widened, *with_float)
        reasons = (*reasons, *unfound, *limited, *unlike)
        skipped = (IncompleteCheck(Stage.PARITY, model.path, "", unread),) if unread else ()
        return StepResult(
            subjects=comparisons,
            undone=tuple(reason for reason in reasons if not reason.by_design),
            skipped=(*skipped, *(reason for reason in reasons if reason.by_design)),
            measured=tuple(figure for comparison in comparisons for figure in report_measurements(comparison)),
        )

    def _locate(
        self,
        model: ParityModel,
        ran: Sequence[ObservedRun],
        comparisons: Sequence[Comparison],
        more: Sequence[Comparison],
        replayed: ReplayedRuns | None,
    ) -> ParityEvidence:
        """Add the origin to each mismatch; `more` comparisons are those of `replayed` runs if there are any."""
        if not any(map(find_mismatches, (*comparisons, *more))):
            return (*comparisons, *more), ()
        search = MismatchSearch(self.extra, self.run_in_toolchain)
        searched = create_searched_model(self.settings, self.started, ran, model.masks)
        if replayed is None:
            return search.locate(searched, (*comparisons, *more))
        located, unfound = search.locate(searched, [it for it in comparisons if not find_other_items(it)])
        listing = [replayed.add_wrong_selections(it, output) for it in comparisons for output in find_other_items(it)]
        others, also_unfound = search.locate(searched.select_as_source(replayed), (*listing, *more))
        return (*located, *others), (*unfound, *also_unfound)

    @property
    def _file(self) -> Path:
        return self.started.prepared.planned.model.absolute

    @property
    def _source(self) -> SourceRuns | None:
        """Additional runs of the source; None if it has no outputs."""
        prepared = self.started.prepared
        if self.started.sourced.eager is None:
            return None
        job = prepared.exporting.planned.source if prepared.exporting is not None else None
        return SourceRuns(job, self._exported, prepared.fed.cases, self.run_in_toolchain, self.extra.create_folder)

    @property
    def _exported(self) -> ExportResult | None:
        """Result of the job that exported the model in this check, and ran its source."""
        exporting = self.started.prepared.exporting
        answer = exporting.source.result() if exporting is not None and exporting.source is not None else None
        result = answer.result if isinstance(answer, Completed) else None
        return result if isinstance(result, ExportResult) else None

    def _create_model(self, runs: Sequence[ModelRuns]) -> ParityModel:
        prepared, settings = self.started.prepared, self.settings
        model, locked = prepared.planned.model, settings.lock.models.get(prepared.path)
        parity = create_parity_model(model, model.absolute, self.reading, self.started.cases, locked)
        return replace(
            parity,
            place=prepared.runnable.place,
            has_same_weights=parity.comparability.weights_only and self._has_same_weights(),
            not_finite=find_not_finite(runs) if Stage.RUNTIME in settings.stages else frozenset(),
        )

    def _has_same_weights(self) -> bool:
        """Return whether a fresh export of the source contains the dequantized weights of the model."""
        if (exported := self._exported) is None or exported.model is None:
            return False
        path = Path(exported.model)
        return has_dequantized_weights(self.reading.view, self._file, read_view(path), path)

    def _compare_runs(
        self,
        model: ParityModel,
        file: Path,
        ran: Sequence[ObservedRun],
        compare: Compare,
        source: SourceRuns | None = None,
    ) -> tuple[ParityModel, ParityEvidence]:
        """Compare runs of `file`. If rounding errors may matter, measure them, and compare with the measured tolerance.

        Also return the model with the measured rounding errors. They are those of `source` if it has the same outputs.
        They always matter if there is a source.
        """
        usual = compare(model, ran)
        beyond = [comparison for comparison in usual[0] if exceeds_default(comparison) or is_faint(comparison)]
        small = self._create_small_differences(model) if source is not None else None
        try:
            noise, notes = self._measure_noise(model, file, ran, beyond, source), tuple[IncompleteCheck, ...]()
        except UnmeasurableError as error:
            reason = f"the rounding errors could not be measured: {error}"
            unmeasured = IncompleteCheck(Stage.PARITY, model.path, "", reason, by_design=True)
            noise, notes = None, (unmeasured,) if beyond else ()
        evidence = usual
        if noise is not None:
            model = replace(model, noise=noise if source is None else noise.relax())
            evidence = compare(model, ran) if beyond else usual
            notes = tuple(report_loosened(model, beyond))
        if small is not None:
            bounds = noise.tight if noise is not None else {}
            model, evidence = small.compare(model, bounds, ran, compare, evidence)
        return model, (evidence[0], (*evidence[1], *notes))

    def _measure_noise(
        self,
        model: ParityModel,
        file: Path,
        ran: Sequence[ObservedRun],
        beyond: Sequence[Comparison],
        source: SourceRuns | None,
    ) -> NoiseMeasurement | None:
        """Measure rounding errors; without comparisons `beyond` a default, only those known from the export.

        Raises:
            UnmeasurableError: they cannot be measured.
        """
        names, known = [value.name for value in self.reading.facts.outputs], self.extra.runtimes
        meter = NoiseMeter(source, names, self.extra, model.comparability)
        if beyond:
            runtimes = dict.fromkeys(it.reference if it.reference in known else it.runtime for it in beyond)
            return meter.measure(file, ran, runtimes)
        is_needed = not model.comparability.quantized and has_default_tolerance(model, names)
        return meter.measure_exported() if is_needed else None

    def _create_small_differences(self, model: ParityModel) -> SmallDifferences | None:
        """Create the comparison of small differences; None without a fresh export, or for a quantized model."""
        exported = self._exported
        if exported is None or exported.model is None or model.comparability.quantized:
            return None
        return SmallDifferences(FreshRuns(self.extra, Path(exported.model), self.reading.proto, self.started.cases))

    def _compare_values(self, model: ParityModel, file: Path, ran: Sequence[ObservedRun]) -> ParityEvidence:
        """Compare runs of a copy of a model without a source."""
        compare = partial(parity_stage.collect_evidence, eager=None, unusable=())
        return self._compare_runs(model, file, ran, compare)[1]

    def _create_replayed_comparison(self) -> ReplayedComparison:
        """Return the comparison of unstable ranked outputs after selecting the same items."""

        def compare_runs(model: ParityModel, replayed: ReplayedRuns) -> ParityEvidence:
            nearby = NearbyRuns(self.extra, replayed.path, replayed.cases, model.comparability.half)
            compare = partial(parity_stage.collect_evidence, eager=replayed.eager, unusable=(), run_nearby=nearby.run)
            measured, evidence = self._compare_runs(model, replayed.path, replayed.runs, compare)
            is_unknown = measured.noise is None and any(map(exceeds_default, evidence[0]))
            return ((), ()) if is_unknown else evidence

        return ReplayedComparison(self.extra, self._source, compare_runs)

    def _compare_widened(self, model: ParityModel, comparisons: Sequence[Comparison]) -> ParityEvidence:
        """Compare a float16 model with its source without most rounding, unless they already differ."""
        traits, source = model.comparability, self._source
        with_source = [it for it in comparisons if it.reference == SOURCE and it.pair == "source"]
        if not traits.half or traits.bfloat16 or traits.quantized or traits.random or not with_source:
            return (), ()
        if source is None or model.tolerance or any(map(find_mismatches, with_source)):
            return (), ()
        latest = max(with_source, key=lambda comparison: runtime_sort_key(comparison.runtime))
        try:
            weights = self._compare_weights()
            hashes = set(hash_half_weights(self._file)).union(*(hash_weight(it.fresh) for it in weights.differing))
            observation = source.run_in_float64(tuple(sorted(hashes)))
            ranked = {name for it in model.ranked for name in it.axes}
            widened = WidenedComparison(self.extra, latest.runtime, weights, ranked)
            differences, limits, wrong = widened.compare(self._file, source.cases, observation)
        except (UnmeasurableError, OSError, ValueError) as error:
            reason = f"differences within float16 rounding were not examined: {error}"
            return (), (IncompleteCheck(Stage.PARITY, model.path, latest.runtime, reason, by_design=True),)
        reasons = (explain_limit(model, output, limit) for output, limit in limits.items())
        limited = (IncompleteCheck(Stage.PARITY, model.path, latest.runtime, it, by_design=True) for it in reasons)
        if not differences:
            return (), tuple(limited)
        compared = msgspec.structs.replace(latest, differences=differences)
        if wrong and find_mismatches(compared):
            compared = msgspec.structs.replace(compared, first=self._locate_weight(wrong, differences))
        return (compared,), tuple(limited)

    def _compare_weights(self) -> WeightComparison:
        """Compare the weights of the model with those of the export of this check, if there is one."""
        path = self._exported.model if self._exported is not None else None
        fresh = match_fresh_export(self.reading.proto, self._file, Path(path)) if path is not None else None
        return compare_weights(fresh, self._file, MAX_DIFFERING) if fresh is not None else WeightComparison()

    def _locate_weight(self, names: Collection[str], differences: Sequence[Difference]) -> FirstDifference | None:
        """Return the first node that uses one of these weights, which differ from the source."""
        project, proto = self.settings.project, self.reading.proto
        located = locate_differing_weight(proto, names)
        if located is None:
            return None
        detail = f"whose weight `{located[1]}` differs from the source"
        return create_first_difference(proto, located[0], differences[0].case, project.root, project.folder, detail)


def explain_limit(model: ParityModel, output: str, limit_db: float) -> str:
    """Return why an output of a float16 model was not compared in float32, in which it has this SNR."""
    is_ranked = any(output in ranked.axes for ranked in model.ranked)
    cause = "another selection of items" if is_ranked else "rounding of computed weights"
    return (
        f"output `{output}` was compared in float16 only, because {cause} limits a comparison in float32 to "
        f"{limit_db:.3g} dB"
    )


def has_default_tolerance(model: ParityModel, outputs: Sequence[str]) -> bool:
    """Return whether neither the config nor the lock sets the tolerance of some output."""
    bounds = (choose_bound(model.tolerance, model.locked, it, np.dtype(np.float32), half=False) for it in outputs)
    return any(bound.bound_from == "type" for bound in bounds)


def exceeds_default(comparison: Comparison) -> bool:
    """Return whether an output differs by more than a default tolerance, perhaps because of rounding."""
    metrics = {"worst_abs"} | (set(RATIO_METRICS) if comparison.pair in SAME_FILE_PAIRS else set())
    return any(
        mismatch.bound_from == "type" and mismatch.metric in metrics and mismatch.bound > 0
        for mismatch in find_mismatches(comparison)
    )


def find_other_items(comparison: Comparison) -> tuple[str, ...]:
    """Return a ranked output that differs, of a model that is not quantized; empty if there is none."""
    differing = [mismatch for mismatch in find_mismatches(comparison) if mismatch.metric == "differing items"]
    return tuple(mismatch.output for mismatch in differing[:1] if comparison.pair != "quantized")


def is_faint(comparison: Comparison) -> bool:
    """Return whether an output is so small that the default tolerance may hide a fault."""
    return any(difference.note == FAINT for difference in comparison.differences)


def report_loosened(model: ParityModel, beyond: Sequence[Comparison]) -> Iterator[IncompleteCheck]:
    """Report the outputs whose measured tolerance is larger than the default, which they exceed."""
    noise = model.noise.tolerances if model.noise is not None else {}
    mismatches = (mismatch for comparison in beyond for mismatch in find_mismatches(comparison))
    defaults = {it.output: it.bound for it in mismatches if it.metric == "worst_abs"}
    for output in sorted(defaults.keys() & noise.keys()):
        measured = noise[output]
        if measured.bound > defaults[output]:
            reason = (
                f"output `{output}` was compared with a tolerance of {measured.bound:.2g}, which exceeds the default "
                f"({defaults[output]:.2g}), because rounding errors change it by {measured.noise:.2g}"
            )
            yield IncompleteCheck(Stage.PARITY, model.path, "", reason, by_design=True)


def report_measurements(comparison: Comparison) -> list[Measured]:
    """Return the measurements of one comparison as report rows, starting with the deciding metric."""
    return [
        Measured(
            model=comparison.model,
            output=difference.compared or difference.output,
            pair=f"{comparison.runtime} against {comparison.reference}",
            case=f"{difference.case}, optimization {difference.optimization}",
            metric=metric,
            value=value if math.isfinite(value) else None,
            bound=bound,
            bound_from=difference.bound_from if bound is not None else "",
        )
        for difference in comparison.differences
        for metric, value, bound in (
            (difference.metric, difference.value, difference.bound),
            *((it.metric, it.value, it.bound) for it in difference.figures if it.metric != difference.metric),
        )
    ]
