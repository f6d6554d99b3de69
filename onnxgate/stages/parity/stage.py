"""Parity stage: compare outputs with the source, or across optimisation levels and runtimes.

One fault speaks once. An output that the source computed is held against the source alone; of the others, what differs
between the levels of one runtime is left to that comparison, and only the rest is held against the reference runtime.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from packaging.version import Version

from onnxgate.core.findings import IncompleteCheck, Place, Stage, runtime_sort_key
from onnxgate.core.jobs import CaseResult, Completed, InputCase, RunResult
from onnxgate.core.spelling import join_quoted
from onnxgate.diagnostics.engine_limits import find_value_limit
from onnxgate.evidence.parity import Comparison, Difference
from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.numerics.agreement import DEFAULT_BOUNDS, are_both_nan, is_negligible
from onnxgate.numerics.quantization import measure_scale
from onnxgate.project.config.schema import Tolerance
from onnxgate.project.engines import ENGINES, ONNXRUNTIME, engine_family, parse_engine
from onnxgate.project.lock.types import LockedModel
from onnxgate.stages.parity.output_comparison import (
    TOO_FEW_LABELS,
    AgreementCriteria,
    CaseOutput,
    OutputMask,
    PairKind,
    measure_difference,
)
from onnxgate.stages.runtime.stage import ObservedRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxgate.numerics.quantization import OutputScale


@dataclass(frozen=True, slots=True)
class ParityModel:
    """The model whose outputs are compared, and its criteria."""

    path: str
    place: Place
    comparability: NumericTraits
    tolerance: Mapping[str, float | Tolerance] | None
    locked: LockedModel | None
    steps: Mapping[str, float] = field(default_factory=dict)  # output -> largest step that it is quantized in
    kept: Mapping[CaseOutput, OutputMask] = field(default_factory=dict)  # positions that no mask drops
    operators: frozenset[str] = frozenset()
    not_finite: frozenset[CaseOutput] = frozenset()  # of which the runtime stage says that they are


@dataclass(frozen=True, slots=True)
class RunOutputs:
    """What one run gave: paths of `.npy` files by case and output, None for what numpy cannot hold."""

    names: tuple[str, ...]
    paths: dict[CaseOutput, str | None]


@dataclass(slots=True)
class ComparisonCollector:
    """Comparisons as they are made, with what could not be compared."""

    model: ParityModel
    yardstick: AgreementCriteria
    comparisons: list[Comparison] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # why something could not be compared -> hint
    by_design: set[str] = field(default_factory=set)  # those of the reasons that nothing could change
    covered: set[tuple[str, str, str]] = field(default_factory=set)  # runtime, case, output: compared with the source
    uncertain: set[tuple[str, str]] = field(default_factory=set)  # output, level: labels that are too few to judge
    faint: dict[tuple[PairKind, str], str] = field(default_factory=dict)  # outputs of which zeros would agree, in words
    told: set[tuple[PairKind, str]] = field(default_factory=set)  # outputs of which something else was compared, too


def collect_evidence(
    model: ParityModel,
    ran: Sequence[ObservedRun],
    eager: Mapping[str, CaseResult] | None,
    unusable: Collection[str],
) -> tuple[tuple[Comparison, ...], tuple[IncompleteCheck, ...]]:
    """Every comparison of one model, and what could not be compared, with the reason.

    `eager` is what the source gave, by case; None where the model has no source. `unusable` names the cases whose
    inputs cannot be run.
    """
    runs = collect_outputs(ran)
    gathered = ComparisonCollector(model, create_criteria(model, runs))
    reason, hint = _explain_no_comparison(model, runs)
    if reason:
        return (), (IncompleteCheck(Stage.PARITY, model.path, "", reason, hint, by_design=not hint),)
    if eager is not None:
        _compare_with_source(gathered, runs, eager)
    unequal = _compare_levels(gathered, runs)
    _compare_with_reference(gathered, runs, unequal)
    _report_few_labels(gathered)
    _report_negligible(gathered)
    for case in sorted(unusable):
        gathered.reasons[f"the inputs of `{case}` cannot be run"] = 'give real inputs: `inputs = "samples/*.npz"`'
    return tuple(gathered.comparisons), _incomplete_checks(gathered)


def _incomplete_checks(gathered: ComparisonCollector) -> tuple[IncompleteCheck, ...]:
    return tuple(
        IncompleteCheck(Stage.PARITY, gathered.model.path, "", reason, hint, by_design=reason in gathered.by_design)
        for reason, hint in gathered.reasons.items()
    )


OutputsByLevel = dict[str, RunOutputs]  # optimisation level -> what was given at it
OutputsByRuntime = dict[str, OutputsByLevel]  # by runtime


def compare_with_float(
    model: ParityModel, ran: Sequence[ObservedRun], real: RunOutputs, name: str
) -> tuple[tuple[Comparison, ...], tuple[IncompleteCheck, ...]]:
    """A quantized model's outputs against those of the float model of that name, by output name or else by position."""
    runs = collect_outputs(ran)
    gathered = ComparisonCollector(model, create_criteria(model, runs))
    for runtime, levels in runs.items():
        found = [
            each
            for level, outputs in levels.items()
            for each in _compare_level_with_float(gathered, level, outputs, real, name)
        ]
        _add_comparison(gathered, "quantized", runtime, name, found)
    _report_few_labels(gathered)
    return tuple(gathered.comparisons), _incomplete_checks(gathered)


def compare_runtimes(
    model: ParityModel, runtime: str, new: OutputsByLevel, reference: str, old: OutputsByLevel
) -> tuple[Comparison, ...]:
    """Compare the outputs of two runtimes at the same levels."""
    gathered = ComparisonCollector(model, create_criteria(model, {runtime: new, reference: old}))
    levels = [level for level in new if level in old]
    found = [
        compare_output
        for level in levels
        for compare_output in _compare_outputs(gathered, "runtime", runtime, level, new[level], old[level])
    ]
    _add_comparison(gathered, "runtime", runtime, reference, found)
    return tuple(gathered.comparisons)


def _compare_level_with_float(
    gathered: ComparisonCollector, level: str, outputs: RunOutputs, real: RunOutputs, name: str
) -> Iterator[Difference]:
    alike = set(outputs.names) == set(real.names)
    names = dict(zip(outputs.names, outputs.names if alike else real.names, strict=False))
    for (case, output), path in outputs.paths.items():
        reference = (case, names.get(output, ""))
        if reference not in real.paths:
            gathered.reasons[f"the float model `{name}` gives nothing for `{case}`"] = ""
            continue
        found = _compare_output(gathered, (case, output), level, "quantized", path, real.paths[reference])
        if found is not None:
            yield found


def _report_few_labels(gathered: ComparisonCollector) -> None:
    """A few labels that differ decide nothing if numbers were compared too."""
    figures = (
        figure for made in gathered.comparisons for difference in made.differences for figure in difference.figures
    )
    decided = any(figure.metric == "sqnr_db" for figure in figures)
    for output in sorted({output for output, _ in gathered.uncertain}):
        reason = f"the labels of output `{output}` differ, and are too few to judge a quantized model by"
        gathered.reasons[reason] = 'give more real inputs: `inputs = "samples/*.npz"`, or set `tolerance` for it'
        if decided:
            gathered.by_design.add(reason)


def _report_negligible(gathered: ComparisonCollector) -> None:
    """An output is too small if it is so in every case that gives more than zeros."""
    for key, said in gathered.faint.items():
        if key not in gathered.told:
            gathered.reasons[said] = (
                "set `tolerance` for this output by its name: a smaller `atol`, or this one if it is meant to be 0"
            )


def create_criteria(model: ParityModel, runs: OutputsByRuntime) -> AgreementCriteria:
    """Return the criteria of the model's outputs, for a quantized model with the usual scale of each."""
    scales = _measure_scales(runs) if model.comparability.quantized or model.comparability.half else {}
    return AgreementCriteria(model.comparability, model.tolerance, model.locked, model.steps, model.kept, scales)


def _measure_scales(runs: OutputsByRuntime) -> dict[str, OutputScale]:
    """What is usual for each output over its cases: of the run in which it is least, since one may be far off."""
    found: dict[str, list[OutputScale]] = {}
    for outputs in (outputs for levels in runs.values() for outputs in levels.values()):
        for name in outputs.names:
            paths = [path for (_, output), path in outputs.paths.items() if output == name and path is not None]
            found.setdefault(name, []).append(measure_scale(_load_array(path) for path in paths))
    return {name: min(scales, key=lambda scale: scale.power) for name, scales in found.items()}


def collect_outputs(ran: Sequence[ObservedRun]) -> OutputsByRuntime:
    """What each runtime gave at each level, in the order of releases."""
    runs: OutputsByRuntime = {}
    for each in ran:
        match each.observation:
            case Completed(result=RunResult() as result) if each.job.cases:
                runs.setdefault(each.runtime, {})[each.job.optimization] = list_outputs(each.job.cases, result)
            case _:
                pass
    return dict(sorted(runs.items(), key=lambda item: runtime_sort_key(item[0])))


def list_outputs(cases: Sequence[InputCase], result: RunResult) -> RunOutputs:
    """What one run gave on the cases that did not fail."""
    paths = {
        (case.name, name): path
        for case, got in zip(cases, result.cases, strict=True)
        if got.failure is None
        for name, path in zip(result.outputs, got.outputs, strict=True)
    }
    return RunOutputs(result.outputs, paths)


def _explain_no_comparison(model: ParityModel, runs: OutputsByRuntime) -> tuple[str, str]:
    """Return why no element of the outputs can be compared, with a hint; ("", "") if they can."""
    if not runs:
        return "", ""
    random = model.comparability.random
    if all(model.comparability.is_random(name) for name in _output_names(runs)):
        return f"its outputs are random by design ({join_quoted(random)})", ""
    return "", ""


def _output_names(runs: OutputsByRuntime) -> set[str]:
    return {name for levels in runs.values() for outputs in levels.values() for name in outputs.names}


def _compare_with_source(
    gathered: ComparisonCollector, runs: OutputsByRuntime, eager: Mapping[str, CaseResult]
) -> None:
    for runtime, levels in runs.items():
        differences = [
            difference
            for level, outputs in levels.items()
            for case in dict.fromkeys(case for case, _ in outputs.paths)
            for difference in _compare_case_with_source(gathered, runtime, level, outputs, case, eager.get(case))
        ]
        _add_comparison(gathered, "source" if is_onnxruntime(runtime) else "engine", runtime, "the source", differences)


def _compare_case_with_source(
    gathered: ComparisonCollector, runtime: str, level: str, outputs: RunOutputs, case: str, source: CaseResult | None
) -> Iterator[Difference]:
    if source is None or source.failure is not None:
        why = f": {source.failure.type}" if source is not None and source.failure is not None else ""
        gathered.reasons[f"the source gives nothing for `{case}`{why}"] = ""
        return
    if len(source.outputs) != len(outputs.names):
        yield _create_count_difference(case, level, len(outputs.names), len(source.outputs))
        return
    for name, reference in zip(outputs.names, source.outputs, strict=True):
        pair: PairKind = "source" if is_onnxruntime(runtime) else "engine"
        found = _compare_output(gathered, (case, name), level, pair, outputs.paths[case, name], reference)
        if found is not None:
            gathered.covered.add((runtime, case, name))
            yield found


def _compare_levels(gathered: ComparisonCollector, runs: OutputsByRuntime) -> set[tuple[str, str, str]]:
    """Compare `all` with `disabled` on each runtime; returns what differs: runtime, case, output."""
    unequal = set()
    for runtime, levels in runs.items():
        if "all" not in levels or "disabled" not in levels:
            continue
        differences = list(
            _compare_outputs(gathered, "optimization", runtime, "all", levels["all"], levels["disabled"])
        )
        unequal |= {
            (runtime, difference.case, difference.output) for difference in differences if not difference.agrees
        }
        _add_comparison(gathered, "optimization", runtime, "optimization disabled", differences)
    return unequal


def _compare_with_reference(
    gathered: ComparisonCollector, runs: OutputsByRuntime, unequal: set[tuple[str, str, str]]
) -> None:
    """Compare each runtime with the reference of the same level; at `all`, not what its levels disagree on."""
    for runtime, levels in runs.items():
        found: dict[str, list[Difference]] = {}
        for level, outputs in levels.items():
            reference = _choose_reference(runs, level)
            if reference == runtime:
                continue
            skipped = {(case, name) for who, case, name in unequal if who in (runtime, reference) and level == "all"}
            kind: PairKind = "runtime" if runtime_family(runtime) == runtime_family(reference) else "engine"
            pairs = _compare_outputs(gathered, kind, runtime, level, outputs, runs[reference][level], skipped)
            found.setdefault(reference, []).extend(pairs)
        for reference, differences in found.items():
            same = runtime_family(runtime) == runtime_family(reference)
            _add_comparison(gathered, "runtime" if same else "engine", runtime, reference, differences)


def _choose_reference(runs: OutputsByRuntime, level: str) -> str:
    """Return the reference runtime: the newest ONNX Runtime, or else the newest of the best known engine."""
    return max((name for name in runs if level in runs[name]), key=reference_rank)


def _compare_outputs(
    gathered: ComparisonCollector,
    pair: PairKind,
    runtime: str,
    level: str,
    outputs: RunOutputs,
    reference: RunOutputs,
    skipped: Collection[CaseOutput] = (),
) -> Iterator[Difference]:
    for key, path in outputs.paths.items():
        if key in reference.paths and key not in skipped and (runtime, *key) not in gathered.covered:
            found = _compare_output(gathered, key, level, pair, path, reference.paths[key])
            if found is not None:
                yield found


def _add_comparison(
    gathered: ComparisonCollector, pair: PairKind, runtime: str, reference: str, differences: Sequence[Difference]
) -> None:
    if differences:
        model = gathered.model
        comparison = Comparison(
            model=model.path,
            place=model.place,
            pair=pair,
            runtime=runtime,
            reference=reference,
            differences=tuple(differences),
            known_limit=find_value_limit(runtime, model.comparability, model.operators) if pair == "engine" else "",
        )
        gathered.comparisons.append(comparison)


def _compare_output(
    gathered: ComparisonCollector,
    key: CaseOutput,
    level: str,
    pair: PairKind,
    candidate: str | None,
    reference: str | None,
) -> Difference | None:
    """Compare one output with its reference; None, with the reason recorded, if it cannot be compared."""
    output = key[1]
    if gathered.model.comparability.is_random(output):
        drawn = join_quoted(gathered.model.comparability.random)
        reason = f"output `{output}` is random by design ({drawn})"
        gathered.reasons[reason] = ""
        gathered.by_design.add(reason)
        return None
    if candidate is None or reference is None:
        gathered.reasons[f"output `{output}` cannot be compared: numpy has no arrays of its type"] = ""
        return None
    array, other = _load_array(candidate), _load_array(reference)
    if are_both_nan(array, other) and key in gathered.model.not_finite:
        return None
    if are_both_nan(array, other):
        reason = f"output `{output}` of `{key[0]}` is NaN everywhere, on both sides: nothing can be compared"
        gathered.reasons[reason] = 'give real inputs: `inputs = "samples/*.npz"`'
        return None
    found = measure_difference(gathered.yardstick, key, level, pair, array, other)
    if found.note == TOO_FEW_LABELS:
        gathered.uncertain.add((output, level))
    if found.agrees and found.metric == "worst_abs" and found.bound_from != "config":
        _check_magnitude(gathered, (pair, output), found, array, other)
    return found


def _check_magnitude(
    gathered: ComparisonCollector,
    key: tuple[PairKind, str],
    found: Difference,
    array: NDArray[Any],
    other: NDArray[Any],
) -> None:
    """Note whether what agrees is large enough to say so."""
    half = gathered.model.comparability.half or array.dtype.itemsize == 2
    if is_negligible(array, other, found.bound, DEFAULT_BOUNDS["half" if half else "single"][0]):
        said = f"output `{key[1]}` is so small that zeros would agree with it: {found.bound:.2g} may differ"
        gathered.faint.setdefault(key, said)
    elif other.any():
        gathered.told.add(key)


def _create_count_difference(case: str, level: str, count: int, wanted: int) -> Difference:
    return Difference(
        output="",
        case=case,
        optimization=level,
        agrees=False,
        metric="outputs",
        value=float(abs(count - wanted)),
        bound=0.0,
        bound_from="type",
        detail=f"{count} outputs against {wanted}",
    )


def _load_array(path: str) -> NDArray[Any]:
    array: NDArray[Any] = np.load(path, allow_pickle=False)
    return array


def reference_rank(runtime: str) -> tuple[bool, int, Version]:
    """What to sort runtimes by: ONNX Runtime last, before it the engines that are known best; newer ones later."""
    engine = parse_engine(runtime)
    known = ENGINES.index(engine) if engine in ENGINES else len(ENGINES)
    return is_onnxruntime(runtime), -known, runtime_sort_key(runtime)[1]


def runtime_family(runtime: str) -> str:
    """The engine, whatever build of it."""
    return engine_family(parse_engine(runtime))


def is_onnxruntime(runtime: str) -> bool:
    """Return whether it is ONNX Runtime, in any build."""
    return runtime_family(runtime) == ONNXRUNTIME
