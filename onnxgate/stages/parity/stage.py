"""Parity stage: compare outputs with the source, or across optimization levels and runtimes.

Each fault is reported once. An output that the source computes is compared only with the source. Other outputs are
compared with the reference runtime only if they agree between the levels of their own runtime.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.jobs import CaseResult
from onnxgate.core.machine_faults import find_fault_in_text
from onnxgate.core.report import RATIO_METRICS
from onnxgate.core.text import join_quoted, pluralize
from onnxgate.diagnostics.catalogue.engines import find_value_limit
from onnxgate.evidence.parity import Comparison, Difference
from onnxgate.inputs.cases import REAL_INPUTS_HINT
from onnxgate.numerics.agreement import are_both_nan, is_negligible
from onnxgate.numerics.metrics import measure_scale
from onnxgate.numerics.streams import iter_parts, load_array
from onnxgate.numerics.tolerance import DEFAULT_BOUNDS, FAINT_LARGEST, FAINT_SHARE
from onnxgate.stages.parity.output_comparison import (
    FAINT,
    INT8_INPUTS,
    TOO_FEW_LABELS,
    CaseOutput,
    PairKind,
    ParityModel,
    measure_difference,
)
from onnxgate.stages.parity.ranked_comparison import RankedComparison, RunNearby
from onnxgate.stages.parity.run_outputs import (
    OutputsByLevel,
    OutputsByRuntime,
    RunOutputs,
    collect_outputs,
    is_onnxruntime,
    reference_rank,
    runtime_family,
)
from onnxgate.stages.runtime import ObservedRun

if TYPE_CHECKING:
    from onnxgate.numerics.metrics import OutputScale


NEGLIGIBLE = "negligible "
"""Start of the cause of an incomplete check of an output near zero; its name follows."""
MIN_ACCURACY_DB = 10.0
"""Minimum SNR in dB between runs with different rounding. Below, a third of the amplitude is noise."""

ParityEvidence = tuple[tuple[Comparison, ...], tuple[IncompleteCheck, ...]]


def collect_evidence(
    model: ParityModel,
    runs: Sequence[ObservedRun],
    eager: Mapping[str, CaseResult] | None,
    unusable: Collection[str],
    run_nearby: RunNearby | None = None,
) -> ParityEvidence:
    """Return all comparisons of one model, and the outputs that could not be compared, with reasons.

    `eager` are the outputs of the source, by case; None if the model has no source. `unusable` names the cases whose
    inputs cannot be run. Without `run_nearby`, all items of ranked outputs count as stable.
    """
    outputs = collect_outputs(runs)
    names = {name for levels in outputs.values() for run in levels.values() for name in run.names}
    if outputs and all(map(model.comparability.is_random, names)):
        random = join_quoted(model.comparability.random)
        reason = f"all outputs depend on random operators ({random})" if names else "the model has no outputs"
        return (), (IncompleteCheck(Stage.PARITY, model.path, "", reason, "", by_design=True),)
    comparer = _OutputComparer(_with_scales(model, outputs), run_nearby)
    if eager is not None:
        comparer.compare_with_source(outputs, eager)
    comparer.compare_with_reference(outputs, comparer.compare_levels(outputs))
    comparer.report_few_labels()
    comparer.report_negligible()
    for case in sorted(unusable):
        comparer.miss(f"case {case}", f"the model does not run on the inputs of `{case}`", REAL_INPUTS_HINT)
    return comparer.evidence()


def compare_with_float(model: ParityModel, runs: Sequence[ObservedRun], real: RunOutputs, name: str) -> ParityEvidence:
    """Compare a quantized model with its float model `name`; match outputs by name, or by position if names differ."""
    outputs = collect_outputs(runs)
    comparer = _OutputComparer(_with_scales(model, outputs))
    for runtime, levels in outputs.items():
        comparer.compare_with_float(runtime, levels, real, name)
    comparer.report_few_labels()
    return comparer.evidence()


def compare_runtimes(
    model: ParityModel, runtime: str, new: OutputsByLevel, reference: str, old: OutputsByLevel
) -> tuple[Comparison, ...]:
    """Compare the outputs of two runtimes at the same levels."""
    comparer = _OutputComparer(_with_scales(model, {runtime: new, reference: old}))
    differences = [
        difference
        for level in new
        if level in old
        for difference in comparer.compare_outputs("runtime", runtime, level, new[level], old[level])
    ]
    comparer.add("runtime", runtime, reference, differences)
    return tuple(comparer.comparisons)


def _with_scales(model: ParityModel, runs: OutputsByRuntime) -> ParityModel:
    """Add the usual scale of each output over all cases, for quantized and half-precision models.

    The smallest scale of all runs is used, since one run may be wrong.
    """
    scales: dict[str, list[OutputScale]] = {}
    if model.comparability.quantized or model.comparability.half:
        for run in (run for levels in runs.values() for run in levels.values()):
            for name in run.names:
                paths = [path for (_, output), path in run.paths.items() if output == name and path is not None]
                scale = measure_scale([load_array(path) for path in paths])
                scales.setdefault(name, []).append(scale)
    least = {name: min(of_runs, key=lambda scale: scale.power) for name, of_runs in scales.items()}
    return replace(model, scales=least)


@dataclass(slots=True)
class _OutputComparer:
    """Compares the outputs of one model, and collects the reasons for missing comparisons."""

    model: ParityModel
    run_nearby: RunNearby | None = None
    comparisons: list[Comparison] = field(default_factory=list)
    reasons: dict[str, tuple[str, str]] = field(default_factory=dict)  # why a comparison is missing -> hint and cause
    by_design: set[str] = field(default_factory=set)  # reasons that do not make the check undecided
    covered: set[tuple[str, str, str]] = field(default_factory=set)  # (runtime, case, output) compared with the source
    uncertain: set[str] = field(default_factory=set)  # outputs with too few labels for a verdict
    int8_inputs: dict[str, float] = field(default_factory=dict)  # output -> SNR in dB with inputs quantized to int8
    nan: dict[str, dict[str, None]] = field(default_factory=dict)  # output -> cases with only NaN
    zero: set[str] = field(default_factory=set)  # outputs that are zero in some case
    negligible: dict[tuple[PairKind, str], str] = field(default_factory=dict)  # outputs that zeros would match
    significant: set[tuple[PairKind, str]] = field(default_factory=set)  # outputs that are significant in some case
    ranked: RankedComparison = field(init=False)

    def __post_init__(self) -> None:
        """Create the comparison of ranked outputs."""
        self.ranked = RankedComparison(self.model, self.run_nearby)

    def evidence(self) -> ParityEvidence:
        """Return the comparisons and the incomplete checks."""
        self._report_nan()
        self._report_int8_inputs()
        self.reasons |= {note: ("", cause) for note, cause in self.ranked.notes.items()}
        self.by_design |= self.ranked.notes.keys()
        for reason, cause in self.ranked.hollow.items():
            self.miss(cause, reason, f"{REAL_INPUTS_HINT}, and use trained weights")
        return tuple(self.comparisons), tuple(
            IncompleteCheck(
                Stage.PARITY, self.model.path, "", reason, hint, by_design=reason in self.by_design, cause=cause
            )
            for reason, (hint, cause) in self.reasons.items()
        )

    def _report_nan(self) -> None:
        """Report outputs without numbers, all those with the same cases together."""
        by_cases: dict[tuple[str, ...], list[str]] = {}
        for output, nan_cases in self.nan.items():
            by_cases.setdefault(tuple(nan_cases), []).append(output)
        for cases, outputs in by_cases.items():
            of = f"output{'s' if len(outputs) > 1 else ''} {join_quoted(outputs)}"
            reason = f"{of} cannot be compared: all elements are NaN in both results with {join_quoted(cases)}"
            self.miss(f"nan {' '.join(outputs)}", reason, REAL_INPUTS_HINT)

    def _report_int8_inputs(self) -> None:
        for output, snr_db in self.int8_inputs.items():
            reason = (
                f"output `{output}` at optimization level `all` was compared by SNR only ({snr_db:.0f} dB), because "
                "ONNX Runtime rounds the inputs of `MatMul` and `Gemm` nodes with quantized weights to int8 "
                "(since 1.25; for `MatMul` with 4-bit weights since 1.19)"
            )
            self.miss(f"int8 {output}", reason)
            self.by_design.add(reason)

    def miss(self, cause: str, reason: str, hint: str = "") -> None:
        """Record why a comparison is missing. `cause` is the stable name of the reason, see `IncompleteCheck`."""
        self.reasons[reason] = (hint, cause)

    def compare_with_float(self, runtime: str, levels: OutputsByLevel, real: RunOutputs, name: str) -> None:
        """Compare each level of one runtime with the float model `name`."""
        differences: list[Difference] = []
        for level, outputs in levels.items():
            has_same_names = set(outputs.names) == set(real.names)
            names = dict(zip(outputs.names, outputs.names if has_same_names else real.names, strict=False))
            for (case, output), path in outputs.paths.items():
                reference = (case, names.get(output, ""))
                if reference in real.paths:
                    differences += self._compare((case, output), level, "quantized", path, real.paths[reference])
                else:
                    self.miss(f"float {case}", f"the float model `{name}` has no result for `{case}`")
        self.add("quantized", runtime, name, differences)

    def compare_with_source(self, runs: OutputsByRuntime, eager: Mapping[str, CaseResult]) -> None:
        """Compare each runtime at each level with the source."""
        for runtime, levels in runs.items():
            differences = [
                difference
                for level, outputs in levels.items()
                for case in dict.fromkeys(case for case, _ in outputs.paths)
                for difference in self._compare_case(runtime, level, outputs, case, eager.get(case))
            ]
            self.add("source" if is_onnxruntime(runtime) else "engine", runtime, "the source", differences)

    def _compare_case(
        self, runtime: str, level: str, outputs: RunOutputs, case: str, source: CaseResult | None
    ) -> Iterator[Difference]:
        if source is None or source.failure is not None:
            why, failure = "", source.failure if source is not None else None
            if failure is not None:
                why = f": {failure.summary}" + (f" (`{failure.source}`)" if failure.source else "")
            self.miss(_name_source_cause(case, source), f"the source has no result for `{case}`{why}")
            return
        count, expected = len(outputs.names), len(source.outputs)
        if count != expected:
            yield Difference(
                output="",
                case=case,
                optimization=level,
                agrees=False,
                metric="outputs",
                value=float(abs(count - expected)),
                bound=0.0,
                bound_from="type",
                detail=f"{pluralize(count, 'output')} instead of {expected}",
            )
            return
        pair: PairKind = "source" if is_onnxruntime(runtime) else "engine"
        references = dict(zip(outputs.names, source.outputs, strict=True))
        for difference in self._compare_run(pair, runtime, level, case, outputs, references):
            self.covered.add((runtime, case, difference.output))
            yield difference

    def compare_levels(self, runs: OutputsByRuntime) -> set[tuple[str, str, str]]:
        """Compare `all` with `disabled` on each runtime; return the (runtime, case, output) triples that differ."""
        unequal = set()
        for runtime, levels in runs.items():
            if "all" in levels and "disabled" in levels:
                compared = self.compare_outputs("optimization", runtime, "all", levels["all"], levels["disabled"])
                differences = list(compared)
                mismatches = (difference for difference in differences if not difference.agrees)
                unequal |= {(runtime, mismatch.case, mismatch.output) for mismatch in mismatches}
                self.add("optimization", runtime, "optimization disabled", differences)
        return unequal

    def compare_with_reference(self, runs: OutputsByRuntime, unequal: set[tuple[str, str, str]]) -> None:
        """Compare each runtime with the reference at the same level.

        At level `all`, outputs that differ between levels are left out. The reference is the newest ONNX Runtime
        release; if there is none, it is the newest release of the first engine in `ENGINES`.
        """
        for runtime, levels in runs.items():
            by_reference: dict[str, list[Difference]] = {}
            for level, outputs in levels.items():
                reference = max((name for name in runs if level in runs[name]), key=reference_rank)
                if reference == runtime:
                    continue
                skipped = {
                    (case, name) for who, case, name in unequal if who in (runtime, reference) and level == "all"
                }
                rest = {key: path for key, path in outputs.paths.items() if key not in skipped}
                by_reference.setdefault(reference, []).extend(
                    self.compare_outputs(
                        _pair_kind(runtime, reference),
                        runtime,
                        level,
                        RunOutputs(outputs.names, rest),
                        runs[reference][level],
                    )
                )
            for reference, differences in by_reference.items():
                self.add(_pair_kind(runtime, reference), runtime, reference, differences)

    def compare_outputs(
        self, pair: PairKind, runtime: str, level: str, outputs: RunOutputs, reference: RunOutputs
    ) -> Iterator[Difference]:
        """Compare the outputs that both runs have, except outputs compared with the source."""
        for case in dict.fromkeys(case for case, _ in outputs.paths):
            references = {
                name: path
                for (of_case, name), path in reference.paths.items()
                if of_case == case and (runtime, case, name) not in self.covered
            }
            yield from self._compare_run(pair, runtime, level, case, outputs, references)

    def _compare_run(
        self,
        pair: PairKind,
        runtime: str,
        level: str,
        case: str,
        outputs: RunOutputs,
        references: Mapping[str, str | None],
    ) -> list[Difference]:
        """Compare the outputs of one case with references that have the same names."""
        candidate = {name: path for (of_case, name), path in outputs.paths.items() if of_case == case}
        differences = [
            difference
            for name, path in candidate.items()
            if name in references
            for difference in self._compare((case, name), level, pair, path, references[name])
        ]
        if self.model.ranked:
            ours, theirs = ({name: path for name, path in it.items() if path} for it in (candidate, references))
            differences = self.ranked.settle(runtime, differences, ours, theirs)
        return [difference for difference in differences if not self._is_lost_in_noise(difference)]

    def add(self, pair: PairKind, runtime: str, reference: str, differences: Sequence[Difference]) -> None:
        """Add a comparison, unless nothing was compared."""
        if not differences:
            return
        model = self.model
        self.comparisons.append(
            Comparison(
                model=model.path,
                place=model.place,
                pair=pair,
                runtime=runtime,
                reference=reference,
                differences=tuple(differences),
                known_limit=find_value_limit(runtime, model.comparability, model.operators) if pair == "engine" else "",
            )
        )

    def _compare(
        self, key: CaseOutput, level: str, pair: PairKind, candidate: str | None, reference: str | None
    ) -> Iterator[Difference]:
        """Compare one output with its reference; record the reason if it cannot be compared."""
        case, output = key
        traits = self.model.comparability
        if traits.is_random(output):
            reason = f"output `{output}` depends on random operators ({join_quoted(traits.random)})"
            self.miss("", reason)
            self.by_design.add(reason)
            return
        if candidate is None or reference is None:
            self.miss(f"type {output}", f"output `{output}` cannot be compared: NumPy does not support its type")
            return
        array, expected = load_array(candidate), load_array(reference)
        if are_both_nan(array, expected):
            if key not in self.model.not_finite:
                self.nan.setdefault(output, {})[case] = None
            return
        difference = measure_difference(self.model, key, level, pair, array, expected)
        if difference.note == TOO_FEW_LABELS:
            self.uncertain.add(output)
        if difference.note == INT8_INPUTS:
            self.int8_inputs[output] = min(difference.value, self.int8_inputs.get(output, difference.value))
        if difference.agrees and difference.metric == "worst_abs" and difference.bound_from != "config":
            precision = "half" if traits.half or array.dtype.itemsize == 2 else "single"
            if is_negligible(array, expected, difference.bound, DEFAULT_BOUNDS[precision][0]):
                reason = f"output `{output}` differs from zero by less than its tolerance ({difference.bound:.2g})"
                self.negligible.setdefault((pair, output), f"{reason}, so any output near zero would pass")
            elif any(part.any() for part in iter_parts(expected)):
                self.significant.add((pair, output))
            elif expected.size and expected.dtype.kind == "f":
                self.zero.add(output)
            is_default = precision == "single" and difference.bound_from == "type"
            if is_default and is_negligible(array, expected, FAINT_LARGEST, FAINT_SHARE):
                difference = msgspec.structs.replace(difference, note=FAINT)
        yield difference

    def _is_lost_in_noise(self, difference: Difference) -> bool:
        """Return whether a mismatch may be rounding in an ill-conditioned output; if so, record it as a reason."""
        if self._is_inaccurate(difference):
            return True
        noise = self.model.noise.ill_conditioned if self.model.noise is not None else {}
        measured = noise.get(difference.output)
        if measured is None or difference.agrees or difference.metric != "worst_abs":
            return False
        if (
            max((figure.value for figure in difference.figures if figure.metric == "max_abs"), default=0.0)
            > measured.bound
        ):
            return False
        reason = f"output `{difference.output}` is ill-conditioned: rounding errors change it by {measured.noise:.2g}"
        self.miss(f"ill-conditioned {difference.output}", f"{reason}, so it cannot be compared", REAL_INPUTS_HINT)
        return True

    def _is_inaccurate(self, difference: Difference) -> bool:
        """Return whether rounding alone makes an output of a quantized model useless; if so, record it as a reason."""
        noise = self.model.noise.accuracy.get(difference.output) if self.model.noise is not None else None
        if noise is None or difference.bound_from != "measured" or noise.sqnr_db >= MIN_ACCURACY_DB:
            return False
        if difference.metric not in RATIO_METRICS:  # rounding does not change a shape, or make values infinite
            return False
        reason = (
            f"output `{difference.output}` is ill-conditioned: rounding alone limits its SNR to {noise.sqnr_db:g} dB"
        )
        self.miss(f"ill-conditioned {difference.output}", f"{reason}, so it cannot be compared", REAL_INPUTS_HINT)
        return True

    def report_few_labels(self) -> None:
        """Report outputs with too few labels; the check is not undecided if numeric outputs were also compared."""
        differences = (difference for comparison in self.comparisons for difference in comparison.differences)
        figures = (figure for difference in differences for figure in difference.figures)
        has_numbers = any(figure.metric == "sqnr_db" for figure in figures)
        for output in sorted(self.uncertain):
            reason = f"labels of output `{output}` differ, but there are too few labels to assess a quantized model"
            hint = 'add real inputs with `inputs = "samples/*.npz"`, or set `tolerance` for this output'
            self.miss(f"labels {output}", reason, hint)
            if has_numbers:
                self.by_design.add(reason)

    def report_negligible(self) -> None:
        """Report outputs whose nonzero results are negligible in every case, or that are zero in every case.

        A constant output is zero by construction.
        """
        hint = "set `tolerance` for this output: a smaller `atol`, or the current `atol` if values near 0 are expected"
        for key, reason in self.negligible.items():
            if key not in self.significant:
                self.miss(f"{NEGLIGIBLE}{key[1]}", reason, hint)
        compared = {output for _, output in {*self.significant, *self.negligible}}
        for output in sorted(self.zero - compared - self.model.comparability.constant_outputs):
            reason = f"output `{output}` is zero in all cases, so faults in the nodes before it may not change it"
            self.miss(f"{NEGLIGIBLE}{output}", reason, REAL_INPUTS_HINT)
            self.by_design.add(reason)


def _name_source_cause(case: str, source: CaseResult | None) -> str:
    """Name the cause of a missing result of the source; "" if it may be the machine."""
    failure = source.failure if source is not None else None
    if failure is not None and find_fault_in_text(f"{failure.type}: {failure.text}", is_trusted=True):
        return ""
    return f"source {case}"


def _pair_kind(runtime: str, reference: str) -> PairKind:
    return "runtime" if runtime_family(runtime) == runtime_family(reference) else "engine"
