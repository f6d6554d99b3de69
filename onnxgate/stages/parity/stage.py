"""Parity stage: compare outputs with the source, or across optimisation levels and runtimes.

One fault is reported once. An output that the source computed is compared with the source alone; of the others, only
what agrees between the levels of one runtime is compared with the reference runtime.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from onnxgate.core.findings import IncompleteCheck, Stage, runtime_sort_key
from onnxgate.core.jobs import CaseResult, Completed, InputCase, RunResult
from onnxgate.core.text import join_quoted
from onnxgate.diagnostics.catalogue.engines import find_value_limit
from onnxgate.evidence.parity import Comparison, Difference
from onnxgate.inputs.cases import REAL_INPUTS_HINT
from onnxgate.numerics.agreement import DEFAULT_BOUNDS, are_both_nan, is_negligible
from onnxgate.numerics.quantization import measure_scale
from onnxgate.numerics.streams import iter_parts, load_array
from onnxgate.project.engines import ENGINES, ONNXRUNTIME, engine_family, parse_engine
from onnxgate.stages.parity.output_comparison import (
    TOO_FEW_LABELS,
    CaseOutput,
    PairKind,
    ParityModel,
    measure_difference,
)
from onnxgate.stages.runtime import ObservedRun

if TYPE_CHECKING:
    from onnxgate.numerics.quantization import OutputScale


@dataclass(frozen=True, slots=True)
class RunOutputs:
    """Outputs of one run: paths of `.npy` files by case and output, None for types that numpy does not have."""

    names: tuple[str, ...]
    paths: dict[CaseOutput, str | None]


OutputsByLevel = dict[str, RunOutputs]  # by optimisation level
OutputsByRuntime = dict[str, OutputsByLevel]
ParityEvidence = tuple[tuple[Comparison, ...], tuple[IncompleteCheck, ...]]


def collect_evidence(
    model: ParityModel,
    runs: Sequence[ObservedRun],
    eager: Mapping[str, CaseResult] | None,
    unusable: Collection[str],
) -> ParityEvidence:
    """Return every comparison of one model, and what could not be compared, with the reason.

    `eager` are the outputs of the source, by case; None if the model has no source. `unusable` names the cases whose
    inputs cannot be run.
    """
    outputs = collect_outputs(runs)
    names = {name for levels in outputs.values() for run in levels.values() for name in run.names}
    if outputs and all(map(model.comparability.is_random, names)):
        reason = f"its outputs are random by design ({join_quoted(model.comparability.random)})"
        return (), (IncompleteCheck(Stage.PARITY, model.path, "", reason, "", by_design=True),)
    comparer = _OutputComparer(_with_scales(model, outputs))
    if eager is not None:
        comparer.compare_with_source(outputs, eager)
    comparer.compare_with_reference(outputs, comparer.compare_levels(outputs))
    comparer.report_few_labels()
    comparer.report_negligible()
    for case in sorted(unusable):
        comparer.reasons[f"the inputs of `{case}` cannot be run"] = REAL_INPUTS_HINT
    return comparer.evidence()


def compare_with_float(model: ParityModel, runs: Sequence[ObservedRun], real: RunOutputs, name: str) -> ParityEvidence:
    """Compare a quantized model with the float model of that name, by the names of outputs or else by position."""
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
    """Return the model with the usual scale of each output over its cases, if it is quantized or in half precision.

    A scale is that of the run in which it is least, since one may be far off.
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


def collect_outputs(runs: Iterable[ObservedRun]) -> OutputsByRuntime:
    """Return the outputs by runtime and level, in the order of releases."""
    outputs: OutputsByRuntime = {}
    for run in runs:
        match run.observation:
            case Completed(result=RunResult() as result) if run.job.cases:
                outputs.setdefault(run.runtime, {})[run.job.optimization] = list_outputs(run.job.cases, result)
            case _:
                pass
    return dict(sorted(outputs.items(), key=lambda item: runtime_sort_key(item[0])))


def list_outputs(cases: Sequence[InputCase], result: RunResult) -> RunOutputs:
    """Return the outputs of one run on the cases that did not fail."""
    paths = {
        (case.name, name): path
        for case, case_result in zip(cases, result.cases, strict=True)
        if case_result.failure is None
        for name, path in zip(result.outputs, case_result.outputs, strict=True)
    }
    return RunOutputs(result.outputs, paths)


@dataclass(slots=True)
class _OutputComparer:
    """Compares outputs of one model, and collects what could not be compared."""

    model: ParityModel
    comparisons: list[Comparison] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # why something could not be compared -> hint
    by_design: set[str] = field(default_factory=set)  # those of the reasons that nothing could change
    covered: set[tuple[str, str, str]] = field(default_factory=set)  # runtime, case, output: compared with the source
    uncertain: set[str] = field(default_factory=set)  # outputs with labels that are too few to judge
    negligible: dict[tuple[PairKind, str], str] = field(default_factory=dict)  # outputs of which zeros would agree
    significant: set[tuple[PairKind, str]] = field(default_factory=set)  # outputs with other values in some case

    def evidence(self) -> ParityEvidence:
        """Return the comparisons, and what could not be compared."""
        return tuple(self.comparisons), tuple(
            IncompleteCheck(Stage.PARITY, self.model.path, "", reason, hint, by_design=reason in self.by_design)
            for reason, hint in self.reasons.items()
        )

    def compare_with_float(self, runtime: str, levels: OutputsByLevel, real: RunOutputs, name: str) -> None:
        """Compare the levels of one runtime with the float model of that name."""
        differences: list[Difference] = []
        for level, outputs in levels.items():
            has_same_names = set(outputs.names) == set(real.names)
            names = dict(zip(outputs.names, outputs.names if has_same_names else real.names, strict=False))
            for (case, output), path in outputs.paths.items():
                reference = (case, names.get(output, ""))
                if reference in real.paths:
                    differences += self._compare((case, output), level, "quantized", path, real.paths[reference])
                else:
                    self.reasons[f"the float model `{name}` gives nothing for `{case}`"] = ""
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
            why = f": {source.failure.type}" if source is not None and source.failure is not None else ""
            self.reasons[f"the source gives nothing for `{case}`{why}"] = ""
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
                detail=f"{count} outputs against {expected}",
            )
            return
        pair: PairKind = "source" if is_onnxruntime(runtime) else "engine"
        for name, reference in zip(outputs.names, source.outputs, strict=True):
            for difference in self._compare((case, name), level, pair, outputs.paths[case, name], reference):
                self.covered.add((runtime, case, name))
                yield difference

    def compare_levels(self, runs: OutputsByRuntime) -> set[tuple[str, str, str]]:
        """Compare `all` with `disabled` on each runtime; return runtime, case and output of what differs."""
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
        """Compare each runtime with the reference of the same level; at `all`, not what its levels disagree on.

        The reference is the newest ONNX Runtime, or else the newest of the best known engine.
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
        """Compare the outputs that the reference has, too, and that were not compared with the source."""
        for key, path in outputs.paths.items():
            if key in reference.paths and (runtime, *key) not in self.covered:
                yield from self._compare(key, level, pair, path, reference.paths[key])

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
            reason = f"output `{output}` is random by design ({join_quoted(traits.random)})"
            self.reasons[reason] = ""
            self.by_design.add(reason)
            return
        if candidate is None or reference is None:
            self.reasons[f"output `{output}` cannot be compared: numpy has no arrays of its type"] = ""
            return
        array, expected = load_array(candidate), load_array(reference)
        if are_both_nan(array, expected):
            if key not in self.model.not_finite:
                reason = f"output `{output}` of `{case}` is NaN everywhere, on both sides: nothing can be compared"
                self.reasons[reason] = REAL_INPUTS_HINT
            return
        difference = measure_difference(self.model, key, level, pair, array, expected)
        if difference.note == TOO_FEW_LABELS:
            self.uncertain.add(output)
        if difference.agrees and difference.metric == "worst_abs" and difference.bound_from != "config":
            precision = "half" if traits.half or array.dtype.itemsize == 2 else "single"
            if is_negligible(array, expected, difference.bound, DEFAULT_BOUNDS[precision][0]):
                reason = f"output `{output}` is so small that zeros would agree with it"
                self.negligible.setdefault((pair, output), f"{reason}: {difference.bound:.2g} may differ")
            elif any(part.any() for part in iter_parts(expected)):
                self.significant.add((pair, output))
        yield difference

    def report_few_labels(self) -> None:
        """A few labels that differ decide nothing if numbers were compared too."""
        differences = (difference for comparison in self.comparisons for difference in comparison.differences)
        figures = (figure for difference in differences for figure in difference.figures)
        has_numbers = any(figure.metric == "sqnr_db" for figure in figures)
        for output in sorted(self.uncertain):
            reason = f"the labels of output `{output}` differ, and are too few to judge a quantized model by"
            self.reasons[reason] = 'give more real inputs: `inputs = "samples/*.npz"`, or set `tolerance` for it'
            if has_numbers:
                self.by_design.add(reason)

    def report_negligible(self) -> None:
        """An output is too small if it is so in every case that gives more than zeros."""
        hint = "set `tolerance` for this output by its name: a smaller `atol`, or this one if it is meant to be 0"
        self.reasons |= {reason: hint for key, reason in self.negligible.items() if key not in self.significant}


def _pair_kind(runtime: str, reference: str) -> PairKind:
    return "runtime" if runtime_family(runtime) == runtime_family(reference) else "engine"


def reference_rank(runtime: str) -> tuple[bool, int, Version]:
    """Return a sort key: ONNX Runtime last, before it the engines that are known best; newer releases later."""
    engine = parse_engine(runtime)
    position = ENGINES.index(engine) if engine in ENGINES else len(ENGINES)
    return is_onnxruntime(runtime), -position, runtime_sort_key(runtime)[1]


def runtime_family(runtime: str) -> str:
    """Return the engine, whatever build of it."""
    return engine_family(parse_engine(runtime))


def is_onnxruntime(runtime: str) -> bool:
    """Return whether it is ONNX Runtime, in any build."""
    return runtime_family(runtime) == ONNXRUNTIME
