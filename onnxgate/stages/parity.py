"""The parity stage: outputs held against the source, else across optimisation levels and runtimes.

One fault speaks once. An output that the source computed is held against the source alone; of the others, what differs
between the levels of one runtime is left to that comparison, and only the rest is held against the reference runtime.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onnxgate.agreement.comparability import Comparability
from onnxgate.config.types import Tolerance
from onnxgate.evidence.parity import Comparison, Difference
from onnxgate.findings import Place, Stage, Undone, runtime_order
from onnxgate.lock.types import LockedModel
from onnxgate.runtimes.jobs import Case, CaseResult, Completed, RunResult
from onnxgate.stages.differences import TOO_FEW, Key, Pair, Yardstick, difference
from onnxgate.stages.known_limits import limit_of_values
from onnxgate.stages.masks import Kept
from onnxgate.stages.runtime import Ran
from onnxgate.stages.standing import family, is_onnxruntime, standing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxgate.agreement.quantized import Scale


@dataclass(frozen=True, slots=True)
class ParityModel:
    """The model whose outputs are compared, and what says how near they must be."""

    path: str
    place: Place
    comparability: Comparability
    tolerance: Mapping[str, float | Tolerance] | None
    locked: LockedModel | None
    steps: Mapping[str, float] = field(default_factory=dict)  # output -> largest step that it is quantized in
    kept: Mapping[Key, Kept] = field(default_factory=dict)  # positions that no mask drops
    operators: frozenset[str] = frozenset()
    not_finite: frozenset[Key] = frozenset()  # of which the runtime stage says that they are


@dataclass(frozen=True, slots=True)
class Outputs:
    """What one run gave: paths of `.npy` files by case and output, None for what numpy cannot hold."""

    names: tuple[str, ...]
    paths: dict[Key, str | None]


@dataclass(slots=True)
class Gathered:
    """Comparisons as they are made, with what could not be compared."""

    model: ParityModel
    yardstick: Yardstick
    comparisons: list[Comparison] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # why something could not be compared -> hint
    by_design: set[str] = field(default_factory=set)  # those of the reasons that nothing could change
    covered: set[tuple[str, str, str]] = field(default_factory=set)  # runtime, case, output: held against the source
    uncertain: set[tuple[str, str]] = field(default_factory=set)  # output, level: labels that are too few to judge
    faint: dict[tuple[Pair, str], str] = field(default_factory=dict)  # outputs of which zeros would agree, in words
    told: set[tuple[Pair, str]] = field(default_factory=set)  # outputs of which something else was compared, too


def gather(
    model: ParityModel,
    ran: Sequence[Ran],
    eager: Mapping[str, CaseResult] | None,
    unusable: Collection[str],
) -> tuple[tuple[Comparison, ...], tuple[Undone, ...]]:
    """Every comparison of one model, and what could not be compared, with the reason.

    `eager` is what the source gave, by case; None where the model has no source. `unusable` names the cases whose
    inputs cannot be run.
    """
    runs = runs_of(ran)
    gathered = Gathered(model, yardstick(model, runs))
    reason, hint = _meaningless(model, runs)
    if reason:
        return (), (Undone(Stage.PARITY, model.path, "", reason, hint, by_design=not hint),)
    if eager is not None:
        _against_source(gathered, runs, eager)
    unequal = _across_levels(gathered, runs)
    _across_runtimes(gathered, runs, unequal)
    _note_labels(gathered)
    _note_faint(gathered)
    for case in sorted(unusable):
        gathered.reasons[f"the inputs of `{case}` cannot be run"] = 'give real inputs: `inputs = "samples/*.npz"`'
    return tuple(gathered.comparisons), _undone(gathered)


def _undone(gathered: Gathered) -> tuple[Undone, ...]:
    return tuple(
        Undone(Stage.PARITY, gathered.model.path, "", reason, hint, by_design=reason in gathered.by_design)
        for reason, hint in gathered.reasons.items()
    )


Levels = dict[str, Outputs]  # optimisation level -> what was given at it
Runs = dict[str, Levels]  # by runtime


def against_float(
    model: ParityModel, ran: Sequence[Ran], real: Outputs, name: str
) -> tuple[tuple[Comparison, ...], tuple[Undone, ...]]:
    """A quantized model's outputs against those of the float model of that name, by output name or else by position."""
    runs = runs_of(ran)
    gathered = Gathered(model, yardstick(model, runs))
    for runtime, levels in runs.items():
        found = [each for level, outputs in levels.items() for each in _of_float(gathered, level, outputs, real, name)]
        _add(gathered, "quantized", runtime, name, found)
    _note_labels(gathered)
    return tuple(gathered.comparisons), _undone(gathered)


def between(model: ParityModel, runtime: str, new: Levels, reference: str, old: Levels) -> tuple[Comparison, ...]:
    """What a runtime gives, against what another one gives at the same levels."""
    gathered = Gathered(model, yardstick(model, {runtime: new, reference: old}))
    levels = [level for level in new if level in old]
    found = [each for level in levels for each in _pairs(gathered, "runtime", runtime, level, new[level], old[level])]
    _add(gathered, "runtime", runtime, reference, found)
    return tuple(gathered.comparisons)


def _of_float(gathered: Gathered, level: str, outputs: Outputs, real: Outputs, name: str) -> Iterator[Difference]:
    alike = set(outputs.names) == set(real.names)
    names = dict(zip(outputs.names, outputs.names if alike else real.names, strict=False))
    for (case, output), path in outputs.paths.items():
        reference = (case, names.get(output, ""))
        if reference not in real.paths:
            gathered.reasons[f"the float model `{name}` gives nothing for `{case}`"] = ""
            continue
        found = _difference(gathered, (case, output), level, "quantized", path, real.paths[reference])
        if found is not None:
            yield found


def _note_labels(gathered: Gathered) -> None:
    """A few labels that differ decide nothing; numbers that were compared beside them do."""
    figures = (figure for made in gathered.comparisons for each in made.differences for figure in each.figures)
    decided = any(figure.metric == "sqnr_db" for figure in figures)
    for output in sorted({output for output, _ in gathered.uncertain}):
        reason = f"the labels of output `{output}` differ, and are too few to judge a quantized model by"
        gathered.reasons[reason] = 'give more real inputs: `inputs = "samples/*.npz"`, or set `tolerance` for it'
        if decided:
            gathered.by_design.add(reason)


def _note_faint(gathered: Gathered) -> None:
    """An output is too small where it is so in every case that does not give zeros alone."""
    for key, said in gathered.faint.items():
        if key not in gathered.told:
            gathered.reasons[said] = (
                "set `tolerance` for this output by its name: a smaller `atol`, or this one if it is meant to be 0"
            )


def yardstick(model: ParityModel, runs: Runs) -> Yardstick:
    """What the model's outputs are held to; of a quantized one, what is usual for each output is part of that."""
    scales = _scales(runs) if model.comparability.quantized or model.comparability.half else {}
    return Yardstick(model.comparability, model.tolerance, model.locked, model.steps, model.kept, scales)


def _scales(runs: Runs) -> dict[str, Scale]:
    """What is usual for each output over its cases: of the run in which it is least, since one may be far off."""
    from onnxgate.agreement.quantized import scale_of

    found: dict[str, list[Scale]] = {}
    for outputs in (outputs for levels in runs.values() for outputs in levels.values()):
        for name in outputs.names:
            paths = [path for (_, output), path in outputs.paths.items() if output == name and path is not None]
            found.setdefault(name, []).append(scale_of(_load(path) for path in paths))
    return {name: min(scales, key=lambda scale: scale.power) for name, scales in found.items()}


def runs_of(ran: Sequence[Ran]) -> Runs:
    """What each runtime gave at each level, in the order of releases."""
    runs: Runs = {}
    for each in ran:
        match each.observation:
            case Completed(result=RunResult() as result) if each.job.cases:
                runs.setdefault(each.runtime, {})[each.job.optimization] = outputs_of(each.job.cases, result)
            case _:
                pass
    return dict(sorted(runs.items(), key=lambda item: runtime_order(item[0])))


def outputs_of(cases: Sequence[Case], result: RunResult) -> Outputs:
    """What one run gave on the cases that did not fail."""
    paths = {
        (case.name, name): path
        for case, got in zip(cases, result.cases, strict=True)
        if got.failure is None
        for name, path in zip(result.outputs, got.outputs, strict=True)
    }
    return Outputs(result.outputs, paths)


def _meaningless(model: ParityModel, runs: Runs) -> tuple[str, str]:
    """Why no element of this model's outputs can be compared, and what would help; ("", "") where they can."""
    if not runs:
        return "", ""
    random = model.comparability.random
    if all(model.comparability.is_random(name) for name in _names(runs)):
        return f"its outputs are random by design ({_listed(random)})", ""
    return "", ""


def _names(runs: Runs) -> set[str]:
    return {name for levels in runs.values() for outputs in levels.values() for name in outputs.names}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _against_source(gathered: Gathered, runs: Runs, eager: Mapping[str, CaseResult]) -> None:
    for runtime, levels in runs.items():
        differences = [
            difference
            for level, outputs in levels.items()
            for case in dict.fromkeys(case for case, _ in outputs.paths)
            for difference in _case_against_source(gathered, runtime, level, outputs, case, eager.get(case))
        ]
        _add(gathered, "source" if is_onnxruntime(runtime) else "engine", runtime, "the source", differences)


def _case_against_source(
    gathered: Gathered, runtime: str, level: str, outputs: Outputs, case: str, source: CaseResult | None
) -> Iterator[Difference]:
    if source is None or source.failure is not None:
        why = f": {source.failure.type}" if source is not None and source.failure is not None else ""
        gathered.reasons[f"the source gives nothing for `{case}`{why}"] = ""
        return
    if len(source.outputs) != len(outputs.names):
        yield _miscounted(case, level, len(outputs.names), len(source.outputs))
        return
    for name, reference in zip(outputs.names, source.outputs, strict=True):
        pair: Pair = "source" if is_onnxruntime(runtime) else "engine"
        found = _difference(gathered, (case, name), level, pair, outputs.paths[case, name], reference)
        if found is not None:
            gathered.covered.add((runtime, case, name))
            yield found


def _across_levels(gathered: Gathered, runs: Runs) -> set[tuple[str, str, str]]:
    """Compare `all` with `disabled` on each runtime; returns what differs: runtime, case, output."""
    unequal = set()
    for runtime, levels in runs.items():
        if "all" not in levels or "disabled" not in levels:
            continue
        differences = list(_pairs(gathered, "optimization", runtime, "all", levels["all"], levels["disabled"]))
        unequal |= {(runtime, each.case, each.output) for each in differences if not each.agrees}
        _add(gathered, "optimization", runtime, "optimization disabled", differences)
    return unequal


def _across_runtimes(gathered: Gathered, runs: Runs, unequal: set[tuple[str, str, str]]) -> None:
    """Compare each runtime with the reference of the same level; at `all`, not what its levels disagree on."""
    for runtime, levels in runs.items():
        found: dict[str, list[Difference]] = {}
        for level, outputs in levels.items():
            reference = _reference(runs, level)
            if reference == runtime:
                continue
            skipped = {(case, name) for who, case, name in unequal if who in (runtime, reference) and level == "all"}
            kind: Pair = "runtime" if family(runtime) == family(reference) else "engine"
            pairs = _pairs(gathered, kind, runtime, level, outputs, runs[reference][level], skipped)
            found.setdefault(reference, []).extend(pairs)
        for reference, differences in found.items():
            same = family(runtime) == family(reference)
            _add(gathered, "runtime" if same else "engine", runtime, reference, differences)


def _reference(runs: Runs, level: str) -> str:
    """Whom all others are held against: the newest ONNX Runtime, else the newest of the engine that is known best."""
    return max((name for name in runs if level in runs[name]), key=standing)


def _pairs(
    gathered: Gathered,
    pair: Pair,
    runtime: str,
    level: str,
    outputs: Outputs,
    reference: Outputs,
    skipped: Collection[Key] = (),
) -> Iterator[Difference]:
    for key, path in outputs.paths.items():
        if key in reference.paths and key not in skipped and (runtime, *key) not in gathered.covered:
            found = _difference(gathered, key, level, pair, path, reference.paths[key])
            if found is not None:
                yield found


def _add(gathered: Gathered, pair: Pair, runtime: str, reference: str, differences: Sequence[Difference]) -> None:
    if differences:
        model = gathered.model
        comparison = Comparison(
            model=model.path,
            place=model.place,
            pair=pair,
            runtime=runtime,
            reference=reference,
            differences=tuple(differences),
            known_limit=limit_of_values(runtime, model.comparability, model.operators) if pair == "engine" else "",
        )
        gathered.comparisons.append(comparison)


def _difference(
    gathered: Gathered, key: Key, level: str, pair: Pair, candidate: str | None, reference: str | None
) -> Difference | None:
    """One output held against its reference; None, with the reason noted, where nothing can be compared."""
    from onnxgate.agreement.emptiness import tells_nothing

    output = key[1]
    if gathered.model.comparability.is_random(output):
        drawn = _listed(gathered.model.comparability.random)
        reason = f"output `{output}` is random by design ({drawn})"
        gathered.reasons[reason] = ""
        gathered.by_design.add(reason)
        return None
    if candidate is None or reference is None:
        gathered.reasons[f"output `{output}` cannot be compared: numpy has no arrays of its type"] = ""
        return None
    array, other = _load(candidate), _load(reference)
    if tells_nothing(array, other) and key in gathered.model.not_finite:
        return None
    if tells_nothing(array, other):
        reason = f"output `{output}` of `{key[0]}` is NaN everywhere, on both sides: nothing can be compared"
        gathered.reasons[reason] = 'give real inputs: `inputs = "samples/*.npz"`'
        return None
    found = difference(gathered.yardstick, key, level, pair, array, other)
    if found.note == TOO_FEW:
        gathered.uncertain.add((output, level))
    if found.agrees and found.metric == "worst_abs" and found.bound_from != "config":
        _weigh(gathered, (pair, output), found, array, other)
    return found


def _weigh(
    gathered: Gathered, key: tuple[Pair, str], found: Difference, array: NDArray[Any], other: NDArray[Any]
) -> None:
    """Note whether what agrees is large enough to say so."""
    from onnxgate.agreement.emptiness import is_faint
    from onnxgate.agreement.tolerance import BY_TYPE

    half = gathered.model.comparability.half or array.dtype.itemsize == 2
    if is_faint(array, other, found.bound, BY_TYPE["half" if half else "single"][0]):
        said = f"output `{key[1]}` is so small that zeros would agree with it: {found.bound:.2g} may differ"
        gathered.faint.setdefault(key, said)
    elif other.any():
        gathered.told.add(key)


def _miscounted(case: str, level: str, count: int, wanted: int) -> Difference:
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


def _load(path: str) -> NDArray[Any]:
    import numpy as np

    array: NDArray[Any] = np.load(path, allow_pickle=False)
    return array
