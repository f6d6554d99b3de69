"""Small differences from the source: within the default tolerance, but beyond the rounding errors of the source.

A default tolerance must allow for the rounding errors of any model, so that it hides small faults, such as a weight
that is 1 % off. The rounding errors of a source are therefore measured in each check, unless the lock contains them.
Those of a runtime may be larger, because its kernels approximate functions, so a small difference is a fault only if a
fresh export of the source is much closer to the source on the same runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.findings import IncompleteCheck, Stage, runtime_sort_key
from onnxgate.core.jobs import Completed, InputCase, RunResult
from onnxgate.evidence.parity import Comparison, Difference, find_mismatches
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.structure import read_structure
from onnxgate.stages.parity.output_comparison import ParityModel
from onnxgate.stages.parity.source_difference import rename_inputs
from onnxgate.stages.parity.stage import ParityEvidence
from onnxgate.stages.runtime import ObservedRun

if TYPE_CHECKING:
    from onnx import ModelProto

MIN_RATIO = 4.0
"""Minimum ratio of a fault to the difference of the fresh export.

Source: chosen. With it, all of 85 faults in float32 models of common architectures are found, and none of 44 correct
models with approximated functions, such as `silu(x - 8)`, is accused; measured 2026-11-28.
"""
NOT_CLOSER = "a fresh export is not closer to the source, so the runtime or the exporter causes the difference"

Compare = Callable[[ParityModel, Sequence[ObservedRun]], ParityEvidence]


@dataclass(frozen=True, slots=True)
class FreshRuns:
    """Starts runs of the export of this check, whose outputs have the same order as those of `model`."""

    extra: ExtraRuns
    path: Path
    model: ModelProto
    cases: Sequence[InputCase]

    def run(self, runtime: str, level: str) -> ObservedRun | None:
        """Run the export with the output names of the model; None if it does not run or has other outputs."""
        outputs = tuple(value.name for value in self.model.graph.output)
        try:
            fresh = read_structure(self.path)
        except (OSError, UnreadableModel):
            return None
        cases = [rename_inputs(case, self.model, fresh) for case in self.cases]
        run = self.extra.start(runtime, self.path, cases, "all" if level == "all" else "disabled").observe()
        match run.observation:
            case Completed(result=RunResult() as result) if len(result.outputs) == len(outputs):
                result = msgspec.structs.replace(result, outputs=outputs)
                return replace(run, observation=msgspec.structs.replace(run.observation, result=result))
            case _:
                return None


@dataclass(frozen=True, slots=True)
class SmallDifferences:
    """Compares outputs with bounds below the default tolerance."""

    fresh: FreshRuns

    def compare(
        self,
        model: ParityModel,
        bounds: Mapping[str, float],
        ran: Sequence[ObservedRun],
        compare: Compare,
        usual: ParityEvidence,
    ) -> tuple[ParityModel, ParityEvidence]:
        """Compare with these bounds. `usual` is the evidence without them, but with the tolerances in the lock.

        Also return the model with the bounds that were used: those of outputs without unconfirmed differences.
        """
        ranked = {name for it in model.ranked for name in it.axes}
        tight = {name: bound for name, bound in bounds.items() if name not in ranked}
        tightened, evidence = model, usual
        if tight and model.noise is not None:
            tightened = replace(model, noise=replace(model.noise, tight=tight))
            evidence = compare(tightened, ran)
        if any(mismatch.bound_from == "lock" for it in usual[0] for mismatch in find_mismatches(it)):
            usual = compare(_relax(model), ran)
        small = [it for it in _list_small_mismatches(usual[0], evidence[0]) if it[1].output not in ranked]
        unconfirmed = dict(self._find_unconfirmed(tightened, small, compare))
        if not unconfirmed:
            return tightened, evidence
        relaxed = _relax(tightened, unconfirmed)
        comparisons, reasons = compare(relaxed, ran)
        worst = _select_worst(small, unconfirmed)
        notes = (_describe(model, mismatch, unconfirmed[mismatch.output]) for mismatch in worst)
        return relaxed, (comparisons, (*reasons, *notes))

    def _find_unconfirmed(
        self, model: ParityModel, small: Sequence[tuple[str, Difference]], compare: Compare
    ) -> Iterator[tuple[str, str]]:
        """Yield the outputs for which the fresh export is not closer to the source or does not run, and which it is.

        Each output is judged on one runtime: the newest, without optimization if it differs there.
        """
        order = sorted(small, key=lambda it: (runtime_sort_key(it[0]), it[1].optimization == "disabled"))
        chosen = {mismatch.output: (runtime, mismatch.optimization) for runtime, mismatch in order}
        for runtime, level in dict.fromkeys(chosen.values()):
            run = self.fresh.run(runtime, level)
            compared = compare(replace(model, ranked=()), [run])[0] if run is not None else ()
            near = {_locate(difference): difference for it in compared for difference in it.differences}
            for output in (output for output, at in chosen.items() if at == (runtime, level)):
                own = [it for name, it in small if (name, it.optimization, it.output) == (runtime, level, output)]
                if not all(_is_much_closer(near.get(_locate(mismatch)), mismatch) for mismatch in own):
                    yield output, NOT_CLOSER if near else f"a fresh export does not run on {runtime}"


def _relax(model: ParityModel, outputs: Collection[str] | None = None) -> ParityModel:
    """Return the model without measured bounds below the default, of these outputs or of all."""
    noise = model.noise.relax(outputs) if model.noise is not None else None
    recorded = model.locked.tolerance if model.locked is not None else {}
    if not recorded or model.locked is None:
        return replace(model, noise=noise)
    kept = {} if outputs is None else {name: it for name, it in recorded.items() if name not in outputs}
    return replace(model, noise=noise, locked=msgspec.structs.replace(model.locked, tolerance=kept))


def _is_much_closer(fresh: Difference | None, own: Difference) -> bool:
    if fresh is None or own.metric != "worst_abs" or fresh.metric != "worst_abs":
        return fresh is not None and fresh.agrees
    return own.value > MIN_RATIO * fresh.value


def _list_small_mismatches(
    usual: Sequence[Comparison], tight: Sequence[Comparison]
) -> Iterator[tuple[str, Difference]]:
    """Yield runtime and difference of the mismatches in `tight` that agree in `usual`."""
    known = {(it.runtime, *_locate(mismatch)) for it in usual for mismatch in find_mismatches(it)}
    for comparison in tight:
        for mismatch in find_mismatches(comparison):
            if (comparison.runtime, *_locate(mismatch)) not in known:
                yield comparison.runtime, mismatch


def _locate(difference: Difference) -> tuple[str, str, str]:
    """Return case, output and optimization level."""
    return difference.case, difference.output, difference.optimization


def _select_worst(small: Sequence[tuple[str, Difference]], outputs: Collection[str]) -> list[Difference]:
    """Return the largest of the differences of each of these outputs."""
    of_output = {it.output: it for _, it in sorted(small, key=lambda it: it[1].value) if it.output in outputs}
    return [of_output[output] for output in sorted(of_output)]


def _describe(model: ParityModel, mismatch: Difference, why: str) -> IncompleteCheck:
    reason = (
        f"output `{mismatch.output}` differs from the source by {mismatch.value:.2g}, beyond the tolerance measured "
        f"from the source ({mismatch.bound:.2g}) but within the default tolerance; {why}"
    )
    return IncompleteCheck(Stage.PARITY, model.path, "", reason, by_design=True)
