"""Comparison of float16 models with their source without most rounding: the model in float32, the source in float64.

Rounding in float16 hides small faults, such as a weight that is 1 % off. Weights that the model stores in float16 are
rounded in the source as well. The remaining differences are float32 rounding, and the rounding of constants and weights
that a tool computed, such as convolutions with folded normalizations. Runs in which both are changed at random show the
effect of this rounding. A wrong weight is changed as well, because it resembles a computed one: its fault is found only
if it has a larger effect than this rounding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from onnxgate.core.jobs import CaseResult, Completed, ExportResult, InputCase, Observation
from onnxgate.evidence.parity import IN_FLOAT32, Difference
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns, NoOutputsError, UnmeasurableError
from onnxgate.gate.execution.parity.noise import computes_in_half
from onnxgate.model.subgraphs.widened_models import ROUNDED_ONCE, Rounding, write_widened_model
from onnxgate.numerics.quantization import OutputScale, compute_snr_db
from onnxgate.numerics.streams import load_array
from onnxgate.stages.parity.output_comparison import CaseOutput
from onnxgate.stages.parity.run_outputs import RunOutputs

MAX_WIDENED_DB = 105.0
"""Maximum required SNR in dB, which is an error of about 6e-6. Faults with a smaller effect are not found.

For example, with the tanh approximation of one GELU, BERT and ViT with small random weights have an SNR of 105 to
116 dB. With weights that are three times as large, they have 81 to 84 dB, and the fault is found. Measured 2026-11-28.
"""
MARGIN_DB = 10.0
"""The bound is this much below the SNR of runs with other rounding.

Source: 43 architectures converted from float32 by onnxconverter-common, and 20 exported in float16, with 3 inputs each.
The SNR of correct outputs is up to 5 dB lower than that of these runs if that is at least 55 dB, and up to 10 dB below.
With 1 % of a query or value weight in BERT and ViT, it is 20 to 35 dB lower. In models where it is less than 10 dB
lower, as in ELECTRA with 1 % of a query weight, the fault is not found. Measured 2026-11-28.
"""
MIN_NOISE_DB = 55.0
"""Minimum SNR of runs with other rounding. Otherwise, the bound would not exceed that of float16 outputs (45 dB)."""
SAMPLES = 2
"""Number of runs with other rounding."""
FLOAT_STEPS, HALF_STEPS = ROUNDED_ONCE, 2.0
"""Maximum change of computed weights in float16 steps: they are rounded once after computing in float32, but several
times in float16, unless computing does not change them."""


class WidenedDifferences(NamedTuple):
    """Differences in the outputs, and the SNR of outputs that cannot be compared because rounding changes them."""

    differences: tuple[Difference, ...]
    limits: Mapping[str, float]  # output -> SNR in dB


@dataclass(frozen=True, slots=True)
class WidenedComparison:
    """Compares a model on one runtime."""

    extra: ExtraRuns
    runtime: str

    def compare(self, model: Path, cases: Sequence[InputCase], source: Observation) -> WidenedDifferences:
        """Compare the outputs; `source` ran in float64 as well, with the weights of the model.

        Raises:
            UnmeasurableError: the model does not run in float32, or the source not in float64.
        """
        result = source.result if isinstance(source, Completed) else None
        if not isinstance(result, ExportResult) or not result.eager64:
            raise UnmeasurableError("the source does not run in float64")
        steps = HALF_STEPS if computes_in_half(result) else FLOAT_STEPS
        run = partial(self._run, model, cases, exact=frozenset(result.half_weights))
        folded = frozenset(result.folded_weights)
        changed = [run(restore=True, rounding=Rounding(steps, seed, folded)) for seed in range(SAMPLES)]
        found = _compare_cases(run(restore=True), changed, cases, result.eager64)
        if all(difference.agrees for difference in found.differences):
            return found
        return _compare_cases(run(), changed, cases, result.eager64)  # a restored constant may be wrong

    def _run(
        self,
        model: Path,
        cases: Sequence[InputCase],
        exact: Collection[str],
        *,
        restore: bool = False,
        rounding: Rounding | None = None,
    ) -> RunOutputs:
        folder = self.extra.create_folder()
        try:
            if not write_widened_model(model, folder / "model.onnx", exact, restore=restore, rounding=rounding):
                raise UnmeasurableError("it is too large for a copy in float32")
        except (OSError, ValueError) as error:
            raise UnmeasurableError(f"it cannot be copied: {error}") from error
        fed = [_widen_case(case, folder / str(index)) for index, case in enumerate(cases)]
        try:
            return self.extra.start(self.runtime, folder / "model.onnx", fed, "disabled").outputs()
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


def _compare_cases(
    outputs: RunOutputs, changed: Sequence[RunOutputs], cases: Sequence[InputCase], source: Sequence[CaseResult]
) -> WidenedDifferences:
    differences: list[Difference] = []
    limits: dict[str, float] = {}
    for case, wide in zip(cases, source, strict=False):
        for name, path in zip(outputs.names, wide.outputs, strict=False):
            key = (case.name, name)
            candidate = outputs.paths.get(key)
            others = [load_array(other) for run in changed if (other := run.paths.get(key))]
            if candidate is None or path is None:
                continue
            a, b = load_array(candidate), load_array(path)
            is_comparable = a.shape == b.shape and a.dtype.kind == b.dtype.kind == "f"
            if is_comparable and np.abs(b[np.isfinite(b)]).max(initial=0.0) <= np.finfo("f2").max:
                noise_db = min((compute_snr_db(other, a, OutputScale()) for other in others), default=0.0)
                if noise_db < MIN_NOISE_DB:
                    limits[name] = min(noise_db, limits.get(name, noise_db))
                else:
                    differences.append(_create_difference(key, compute_snr_db(a, b, OutputScale()), noise_db))
    return WidenedDifferences(tuple(differences), limits)


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
