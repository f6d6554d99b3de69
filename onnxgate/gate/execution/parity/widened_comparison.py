"""Comparison of float16 models with their source without most rounding: the model in float32, the source in float64.

Rounding in float16 hides small faults, such as a weight that is 1 % off. Weights that the model stores in float16 are
rounded in the source as well. The remaining differences are float32 rounding, and the rounding of constants and weights
that a tool computed, such as convolutions with folded normalizations. Runs in which both are changed at random show the
effect of this rounding. A weight of the source that differs from a fresh export is not changed, because its difference
is not rounding. It is changed if the outputs are farther from the source with the exported weight in its place, because
a tool then combined it with another weight.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from onnxgate.core.jobs import CaseResult, Completed, ExportResult, InputCase, Observation
from onnxgate.evidence.parity import IN_FLOAT32, Difference
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns, NoOutputsError, UnmeasurableError
from onnxgate.gate.execution.parity.noise import computes_in_half
from onnxgate.model.subgraphs.widened_models import ROUNDED_ONCE, Rounding, contains_weight, write_widened_model
from onnxgate.numerics.metrics import OutputScale, compute_snr_db
from onnxgate.numerics.streams import load_array
from onnxgate.stages.parity.differing_weights import DifferingWeight, WeightComparison
from onnxgate.stages.parity.output_comparison import CaseOutput
from onnxgate.stages.parity.run_outputs import RunOutputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

MAX_WIDENED_DB = 105.0
"""Maximum required SNR in dB, which is an error of about 6e-6. Faults with a smaller effect are not found.

For example, with the tanh approximation of one GELU, BERT and ViT with small random weights have an SNR of 105 to
116 dB. With weights that are three times as large, they have 81 to 84 dB, and the fault is found. Measured 2026-11-28.
"""
MARGIN_DB = 10.0
"""The bound is this much below the SNR of runs with other rounding.

Source: 43 architectures converted from float32 by onnxconverter-common, and 20 exported in float16, with 3 inputs each.
The SNR of correct outputs is up to 5 dB lower than that of these runs if that is at least 55 dB, and up to 10 dB below.
With 1 % of a query or value weight in BERT and ViT, it is 20 to 35 dB lower. In ELECTRA, it is less than 10 dB lower:
this fault is found only because the weight differs from a fresh export. Measured 2026-11-28.
"""
MIN_NOISE_DB = 55.0
"""Minimum SNR of runs with other rounding. Otherwise, the bound would not exceed that of float16 outputs (45 dB)."""
SAMPLES = 2
"""Number of runs with other rounding."""
FLOAT_STEPS, HALF_STEPS = ROUNDED_ONCE, 2.0
"""Maximum change of computed weights in float16 steps: they are rounded once after computing in float32, but several
times in float16, unless computing does not change them."""


MAX_DIFFERING = 8
"""Maximum number of weights that differ from a fresh export.

If more differ, the outputs differ in float16 as well, or a tool combined weights.
"""
MAX_LOSS_DB = 1.0
"""Maximum decrease of the lowest SNR with an exported weight in place of a wrong one.

Source: chosen; a weight that a tool combined with another one must not be replaced alone.
"""


class WidenedDifferences(NamedTuple):
    """Differences in the outputs, and the SNR of outputs that cannot be compared because rounding changes them."""

    differences: tuple[Difference, ...]
    limits: Mapping[str, float]  # output -> SNR in dB
    wrong_weights: tuple[str, ...] = ()  # names of weights that differ from the fresh export


@dataclass(frozen=True, slots=True)
class WidenedComparison:
    """Compares a model on one runtime. `weights` are its differences from a fresh export.

    The outputs `ranked` depend on a selection of items.
    """

    extra: ExtraRuns
    runtime: str
    weights: WeightComparison
    ranked: Collection[str] = ()

    def compare(self, model: Path, cases: Sequence[InputCase], source: Observation) -> WidenedDifferences:
        """Compare the outputs; `source` ran in float64 as well, with the weights of the model.

        Raises:
            UnmeasurableError: the model does not run in float32, or the source not in float64.
        """
        result = source.result if isinstance(source, Completed) else None
        if not isinstance(result, ExportResult) or not result.eager64:
            raise UnmeasurableError("the source does not run in float64")
        exact, in_half = frozenset(result.half_weights), computes_in_half(result)
        found = self._compare_with_rounding(model, cases, result, exact, in_half=in_half)
        if all(it.agrees and it.bound >= MAX_WIDENED_DB for it in found.differences) and not found.limits:
            return found
        wrong = self._find_wrong_weights(model, cases, result, exact)
        also_in_half = in_half or self.weights.is_computed_in_half(exact)
        if not wrong and also_in_half == in_half:
            return found
        exact = exact.union(it.sha256 for it in wrong)
        found = self._compare_with_rounding(model, cases, result, exact, in_half=also_in_half)
        return found._replace(wrong_weights=tuple(it.name for it in wrong))

    def _find_wrong_weights(
        self, model: Path, cases: Sequence[InputCase], source: ExportResult, exact: frozenset[str]
    ) -> list[DifferingWeight]:
        """Return weights of the source that differ from a fresh export, and are not combined with other weights."""
        chosen = [it for it in self.weights.differing if contains_weight(exact, it.fresh)]
        if not chosen:
            return []

        def measure(*replaced: DifferingWeight) -> float:
            try:
                outputs = self._run(model, cases, exact, restore=True, replaced=replaced)
            except UnmeasurableError:
                return -math.inf
            return min(_measure_snr(outputs, cases, source.eager64).values(), default=-math.inf)

        own_db = measure()
        return [it for it in chosen if measure(it) > own_db - MAX_LOSS_DB]

    def _compare_with_rounding(
        self, model: Path, cases: Sequence[InputCase], source: ExportResult, exact: frozenset[str], *, in_half: bool
    ) -> WidenedDifferences:
        """Compare with the source, with a bound from runs with other rounding of the weights that are not `exact`."""
        steps, folded = HALF_STEPS if in_half else FLOAT_STEPS, frozenset(source.folded_weights)
        roundings = [Rounding(steps, seed, folded) for seed in range(SAMPLES)]
        changed = [self._run(model, cases, exact, restore=True, rounding=rounding) for rounding in roundings]
        found = self._compare_cases(self._run(model, cases, exact, restore=True), changed, cases, source.eager64)
        if all(difference.agrees for difference in found.differences):
            return found
        # A restored constant may be wrong.
        return self._compare_cases(self._run(model, cases, exact), changed, cases, source.eager64)

    def _compare_cases(
        self,
        outputs: RunOutputs,
        changed: Sequence[RunOutputs],
        cases: Sequence[InputCase],
        source: Sequence[CaseResult],
    ) -> WidenedDifferences:
        differences: list[Difference] = []
        limits: dict[str, float] = {}
        for key, snr_db in _measure_snr(outputs, cases, source).items():
            own = load_array(outputs.paths[key] or "")
            others = [load_array(other) for run in changed if (other := run.paths.get(key))]
            noise_db = min((compute_snr_db(other, own, OutputScale()) for other in others), default=0.0)
            if key[1] in self.ranked and snr_db < MIN_NOISE_DB:
                noise_db = min(noise_db, snr_db)  # equal scores select other items; such a fault differs in float16
            if noise_db < MIN_NOISE_DB:
                limits[key[1]] = min(noise_db, limits.get(key[1], noise_db))
            else:
                differences.append(_create_difference(key, snr_db, noise_db))
        return WidenedDifferences(tuple(differences), limits)

    def _run(
        self,
        model: Path,
        cases: Sequence[InputCase],
        exact: Collection[str],
        *,
        restore: bool = False,
        rounding: Rounding | None = None,
        replaced: Sequence[DifferingWeight] = (),
    ) -> RunOutputs:
        folder = self.extra.create_folder()
        path = folder / "model.onnx"
        others = {(it.name, it.sha256): it.fresh for it in replaced}
        try:
            if not write_widened_model(model, path, exact, restore=restore, rounding=rounding, replaced=others):
                raise UnmeasurableError("it is too large for a copy in float32")
        except (OSError, ValueError) as error:
            raise UnmeasurableError(f"it cannot be copied: {error}") from error
        fed = [_widen_case(case, folder / str(index)) for index, case in enumerate(cases)]
        try:
            return self.extra.start(self.runtime, path, fed, "disabled").outputs()
        except NoOutputsError as error:
            raise UnmeasurableError(f"it does not run in float32 on {self.runtime} ({error})") from error


def _widen_case(case: InputCase, folder: Path) -> InputCase:
    folder.mkdir()
    inputs = dict(case.inputs)
    for index, (name, path) in enumerate(case.inputs.items()):
        if load_array(path).dtype == np.float16:
            inputs[name] = str((folder / f"{index}.npy").absolute())
            np.save(inputs[name], load_array(path).astype(np.float32), allow_pickle=False)
    return msgspec.structs.replace(case, inputs=inputs)


def _measure_snr(
    outputs: RunOutputs, cases: Sequence[InputCase], source: Sequence[CaseResult]
) -> dict[CaseOutput, float]:
    """Return the SNR in dB of each output that can be compared with the source."""
    measured: dict[CaseOutput, float] = {}
    for case, wide in zip(cases, source, strict=False):
        for name, path in zip(outputs.names, wide.outputs, strict=False):
            candidate = outputs.paths.get((case.name, name))
            if candidate is None or path is None:
                continue
            a, b = load_array(candidate), load_array(path)
            is_comparable = a.shape == b.shape and a.dtype.kind == b.dtype.kind == "f"
            if is_comparable and np.abs(b[np.isfinite(b)]).max(initial=0.0) <= np.finfo("f2").max:
                measured[case.name, name] = compute_snr_db(a, b, OutputScale())
    return measured


def _create_difference(key: CaseOutput, snr_db: float, noise_db: float) -> Difference:
    bound = min(MAX_WIDENED_DB, noise_db - MARGIN_DB)
    return Difference(
        output=key[1],
        case=key[0],
        optimization="disabled",
        agrees=snr_db >= bound,
        metric="sqnr_db",
        value=snr_db,
        bound=bound,
        bound_from="type" if bound == MAX_WIDENED_DB else "measured",
        detail=IN_FLOAT32,
    )
