"""The parity stage: outputs held against the source, else across optimisation levels and runtimes.

One fault speaks once. An output that the source computed is held against the source alone; of the others, what differs
between the levels of one runtime is left to that comparison, and only the rest is held against the reference runtime.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from onnxgate.agreement.comparability import Comparability
from onnxgate.config.types import Tolerance
from onnxgate.evidence.parity import Comparison, Difference
from onnxgate.findings import Place, Stage, Undone, runtime_order
from onnxgate.lock.types import LockedModel
from onnxgate.runtimes.jobs import CaseResult, Completed, RunResult
from onnxgate.stages.runtime import Ran

if TYPE_CHECKING:
    from numpy.typing import NDArray

Pair = Literal["source", "runtime", "optimization"]
Key = tuple[str, str]  # case, output


@dataclass(frozen=True, slots=True)
class ParityModel:
    """The model whose outputs are compared, and what says how near they must be."""

    path: str
    place: Place
    comparability: Comparability
    tolerance: Mapping[str, float | Tolerance] | None
    locked: LockedModel | None


@dataclass(frozen=True, slots=True)
class Outputs:
    """What one run gave: paths of `.npy` files by case and output, None for what numpy cannot hold."""

    names: tuple[str, ...]
    paths: dict[Key, str | None]


@dataclass(slots=True)
class Gathered:
    """Comparisons as they are made, with what could not be compared."""

    model: ParityModel
    comparisons: list[Comparison] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # why something could not be compared -> hint
    by_design: set[str] = field(default_factory=set)  # those of the reasons that nothing could change
    covered: set[tuple[str, str, str]] = field(default_factory=set)  # runtime, case, output: held against the source


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
    gathered = Gathered(model)
    runs = _outputs(ran)
    reason, hint = _meaningless(model, runs)
    if reason:
        return (), (Undone(Stage.PARITY, model.path, "", reason, hint, by_design=not hint),)
    if eager is not None:
        _against_source(gathered, runs, eager)
    unequal = _across_levels(gathered, runs)
    _across_runtimes(gathered, runs, unequal)
    for case in sorted(unusable):
        gathered.reasons[f"the inputs of `{case}` cannot be run"] = 'give real inputs: `inputs = "samples/*.npz"`'
    undone = [
        Undone(Stage.PARITY, model.path, "", reason, hint, by_design=reason in gathered.by_design)
        for reason, hint in gathered.reasons.items()
    ]
    return tuple(gathered.comparisons), tuple(undone)


Runs = dict[str, dict[str, Outputs]]  # runtime -> optimisation level -> what it gave


def _outputs(ran: Sequence[Ran]) -> Runs:
    runs: Runs = {}
    for each in ran:
        match each.observation:
            case Completed(result=RunResult() as result) if each.job.cases:
                paths = {
                    (case.name, name): path
                    for case, got in zip(each.job.cases, result.cases, strict=True)
                    if got.failure is None
                    for name, path in zip(result.outputs, got.outputs, strict=True)
                }
                runs.setdefault(each.runtime, {})[each.job.optimization] = Outputs(result.outputs, paths)
            case _:
                pass
    return dict(sorted(runs.items(), key=lambda item: runtime_order(item[0])))


def _meaningless(model: ParityModel, runs: Runs) -> tuple[str, str]:
    """Why no element of this model's outputs can be compared, and what would help; ("", "") where they can."""
    if not runs:
        return "", ""
    random, quantized = model.comparability.random, model.comparability.quantized
    if all(model.comparability.is_random(name) for name in _names(runs)):
        return f"its outputs are random by design ({_listed(random)})", ""
    if quantized and not model.tolerance:
        return (
            f"it is quantized ({_listed(quantized)}): its outputs are not held element by element to a default",
            "set `tolerance` for the model to hold them to that",
        )
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
        _add(gathered, "source", runtime, "the source", differences)


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
        difference = _difference(gathered, (case, name), level, outputs.paths[case, name], reference)
        if difference is not None:
            gathered.covered.add((runtime, case, name))
            yield difference


def _across_levels(gathered: Gathered, runs: Runs) -> set[tuple[str, str, str]]:
    """Compare `all` with `disabled` on each runtime; returns what differs: runtime, case, output."""
    unequal = set()
    for runtime, levels in runs.items():
        if "all" not in levels or "disabled" not in levels:
            continue
        differences = list(_pairs(gathered, runtime, "all", levels["all"], levels["disabled"]))
        unequal |= {(runtime, each.case, each.output) for each in differences if not each.agrees}
        _add(gathered, "optimization", runtime, "optimization disabled", differences)
    return unequal


def _across_runtimes(gathered: Gathered, runs: Runs, unequal: set[tuple[str, str, str]]) -> None:
    """Compare each runtime with the newest that has the same level; at `all`, not what its levels disagree on."""
    for runtime, levels in runs.items():
        found: dict[str, list[Difference]] = {}
        for level, outputs in levels.items():
            reference = next((name for name in reversed(runs) if level in runs[name]), runtime)
            if reference == runtime:
                continue
            skipped = {(case, name) for who, case, name in unequal if who in (runtime, reference) and level == "all"}
            pairs = _pairs(gathered, runtime, level, outputs, runs[reference][level], skipped)
            found.setdefault(reference, []).extend(pairs)
        for reference, differences in found.items():
            _add(gathered, "runtime", runtime, reference, differences)


def _pairs(
    gathered: Gathered,
    runtime: str,
    level: str,
    outputs: Outputs,
    reference: Outputs,
    skipped: Collection[Key] = (),
) -> Iterator[Difference]:
    for key, path in outputs.paths.items():
        if key in reference.paths and key not in skipped and (runtime, *key) not in gathered.covered:
            difference = _difference(gathered, key, level, path, reference.paths[key])
            if difference is not None:
                yield difference


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
        )
        gathered.comparisons.append(comparison)


def _difference(
    gathered: Gathered, key: Key, level: str, candidate: str | None, reference: str | None
) -> Difference | None:
    """One output held against its reference; None, with the reason noted, where one of them is no array."""
    from onnxgate.agreement.compare import compare
    from onnxgate.agreement.tolerance import choose

    case, output = key
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
    model = gathered.model
    bound = choose(model.tolerance, model.locked, output, array.dtype, half=model.comparability.half)
    found = compare(array, other, bound.rtol, bound.atol, bound.share)
    return Difference(
        output=output,
        case=case,
        optimization=level,
        agrees=found.agrees,
        metric=found.metric,
        value=found.value,
        bound=found.bound,
        bound_from=bound.bound_from,
        detail=found.detail,
    )


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
