"""Comparison of float16 models with their source without most rounding: the model in float32, the source in float64.

Rounding in float16 hides a weight that is 1 % off or another approximation of an activation. The weights are the same
in all types, so that the remaining differences are float32 rounding, and the rounding of constants and weights that an
exporter computes in float16, such as convolutions with folded normalizations. A run in which these are changed by one
float16 step shows the effect of their rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from onnxgate.core.jobs import CaseResult, Completed, ExportResult, InputCase, Observation, Run, RunResult
from onnxgate.evidence.parity import Difference
from onnxgate.gate.execution.source_noise import UnmeasurableError
from onnxgate.model.subgraphs.widened_models import write_widened_model
from onnxgate.numerics.quantization import OutputScale, compute_snr_db
from onnxgate.numerics.streams import load_array
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.parity.stage import RunOutputs, list_outputs
from onnxgate.stages.runtime import plan_run

MIN_WIDENED_DB = 85.0
"""Required SNR in dB of a float16 model that computes in float32, compared with its source in float64.

Source: 35 small architectures with random weights of two scales, in 105 exports by torch 2.13, with 3 inputs each.
Correct outputs for which the bound is not lower reach 111 to 140 dB. With 1 % of a value weight, 202 of 213 outputs are
found (SNR of 40 to 78 dB); of a query weight, 87 of 213 (43 to 111 dB); with another approximation of one GELU, 18 of
150 (65 to 132 dB). Measured 2026-11-28.
"""
CONSTANT_MARGIN_DB = 10.0
"""The bound is at least this much below the SNR of two runs whose computed constants and weights differ by one unit in
the last place.

Source: for the exports above, correct outputs are at least as close to the source as these runs to each other, except
for ShuffleNet: 0.2 dB less, or up to 3 dB with other random changes, because normalizations are rounded per channel.
"""
MIN_NOISE_DB = 60.0
"""Minimum SNR of these two runs; outputs with a lower one are not compared.

The bound would hardly exceed the minimum of the comparison in float16 (45 dB). Source: 42 to 55 dB in MobileNetV3,
EfficientNet, RegNet and ResNet-18 with default weights, which have 20 to 81 convolutions; measured 2026-11-28.
"""


@dataclass(frozen=True, slots=True)
class WidenedComparison:
    """Compares a model on one runtime; `submit` runs a job on a runtime, `place` returns an unused path."""

    submit: Callable[[PlannedRuntime, Run], Future[Observation]]
    place: Callable[[], Path]

    def compare(
        self, model: Path, planned: PlannedRuntime, cases: Sequence[InputCase], source: Observation
    ) -> tuple[Difference, ...]:
        """Return the differences in the outputs that the source computes in float16; `source` ran in float64 as well.

        Raises:
            UnmeasurableError: the model does not run in float32, or the source not in float64.
        """
        result = source.result if isinstance(source, Completed) else None
        if not isinstance(result, ExportResult) or not result.eager64:
            raise UnmeasurableError("the source does not run in float64")
        if not any(_is_half(path) for case in result.eager for path in case.outputs):
            return ()
        outputs, shifted = (self._run(model, planned, cases, exact) for exact in (None, frozenset(result.half_weights)))
        return tuple(
            difference
            for case, narrow, wide in zip(cases, result.eager, result.eager64, strict=False)
            for difference in _compare_case(outputs, shifted, case.name, narrow, wide)
        )

    def _run(
        self, model: Path, planned: PlannedRuntime, cases: Sequence[InputCase], exact: Collection[str] | None
    ) -> RunOutputs:
        folder = self.place()
        (folder / "outputs").mkdir(parents=True)
        try:
            if not write_widened_model(model, folder / "model.onnx", exact):
                raise UnmeasurableError("it is too large for a copy in float32")
        except (OSError, ValueError) as error:
            raise UnmeasurableError(f"it cannot be copied: {error}") from error
        fed = [_widen_case(case, folder / str(index)) for index, case in enumerate(cases)]
        job = plan_run(folder / "model.onnx", fed, planned, "disabled", folder / "outputs")
        match self.submit(planned, msgspec.structs.replace(job, again=False)).result():
            case Completed(result=RunResult() as result):
                return list_outputs(fed, result)
            case answer:
                raise UnmeasurableError(
                    f"it does not run in float32 on {planned.name} ({type(answer).__name__.lower()})"
                )


def _is_half(path: str | None) -> bool:
    return path is not None and load_array(path).dtype == np.float16


def _widen_case(case: InputCase, folder: Path) -> InputCase:
    folder.mkdir()
    inputs = dict(case.inputs)
    for index, (name, path) in enumerate(case.inputs.items()):
        if _is_half(path):
            inputs[name] = str((folder / f"{index}.npy").absolute())
            np.save(inputs[name], load_array(path).astype(np.float32), allow_pickle=False)
    return msgspec.structs.replace(case, inputs=inputs)


def _compare_case(
    outputs: RunOutputs, shifted: RunOutputs, case: str, narrow: CaseResult, wide: CaseResult
) -> Iterator[Difference]:
    for name, half, path in zip(outputs.names, narrow.outputs, wide.outputs, strict=False):
        candidate, other = (run.paths.get((case, name)) for run in (outputs, shifted))
        if candidate is None or other is None or path is None or not _is_half(half):
            continue
        a, b = load_array(candidate), load_array(path)
        if a.shape != b.shape or a.dtype.kind != "f" or np.abs(b[np.isfinite(b)]).max(initial=0.0) > np.finfo("f2").max:
            continue
        snr_db, noise_db = compute_snr_db(a, b, OutputScale()), compute_snr_db(load_array(other), a, OutputScale())
        if noise_db < MIN_NOISE_DB:
            continue
        bound = min(MIN_WIDENED_DB, noise_db - CONSTANT_MARGIN_DB)
        yield Difference(
            output=name,
            case=case,
            optimization="disabled",
            agrees=snr_db >= bound,
            metric="sqnr_db",
            value=snr_db,
            bound=bound,
            bound_from="type",
            detail="in float32",
        )
