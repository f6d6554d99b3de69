"""Rounding errors of a model, measured by running it with weights and inputs that are rounded to neighboring numbers.

Each weight and input changes by one unit in the last place, up or down at random. This is about as much as the rounding
in each node, and reaches the outputs in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from onnx import TensorProto, numpy_helper

from onnxgate.core.jobs import Completed, InputCase, Observation, Run, RunResult
from onnxgate.core.text import join_phrases
from onnxgate.gate.execution.source_noise import UnmeasurableError
from onnxgate.inputs.cases import draw_bits
from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.model.subgraphs.widened_models import list_tensors, load_with_weights
from onnxgate.numerics.agreement import NoiseMeasurement, measure_noise
from onnxgate.numerics.quantization import measure_quantization
from onnxgate.numerics.streams import load_array
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.parity.stage import RunOutputs, list_outputs
from onnxgate.stages.runtime import ObservedRun, plan_run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

SAMPLES = 2
"""Number of runs with different rounding.

Source: in 7 networks, optimization levels differ by 0.5 to 0.9 times the noise of two runs; measured 2026-11-28."""
MAX_MODEL_BYTES = 1 << 30
MIN_WEIGHT_ELEMENTS = 9
"""Minimum size of a changed weight. Smaller tensors may be parameters, such as the scales of `Resize`."""
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


@dataclass(frozen=True, slots=True)
class ModelNoise:
    """Measures the noise of a model; `submit` runs a job on a runtime, `place` returns an unused path."""

    submit: Callable[[PlannedRuntime, Run], Future[Observation]]
    place: Callable[[], Path]

    def measure_on_any(
        self, model: Path, runtimes: Sequence[PlannedRuntime], ran: Sequence[ObservedRun], traits: NumericTraits
    ) -> NoiseMeasurement:
        """Return the noise of each output on the first runtime where it can be measured.

        The noise is the difference to the run in `ran` without optimization, or to another if there is none.
        For a quantized model, the noise is measured as accuracy.

        Raises:
            UnmeasurableError: it cannot be measured on any of the runtimes; the message contains all reasons.
        """
        reasons = []
        for planned in runtimes:
            runs = [run for run in ran if run.runtime == planned.name and isinstance(run.observation, Completed)]
            if not runs:
                reasons.append(f"it did not run on {planned.name}")
                continue
            usual = next((run for run in runs if run.job.optimization == "disabled"), runs[-1])
            try:
                return self._measure(model, planned, usual, traits)
            except UnmeasurableError as error:
                reasons.append(str(error))
        raise UnmeasurableError(join_phrases(list(dict.fromkeys(reasons))))

    def _measure(
        self, model: Path, planned: PlannedRuntime, usual: ObservedRun, traits: NumericTraits
    ) -> NoiseMeasurement:
        outputs = _list_run_outputs(usual.job.cases, usual.observation)
        runs = [self._start(model, planned, usual.job, seed) for seed in range(SAMPLES)]
        samples = [_list_run_outputs(job.cases, answer.result()) for job, answer in runs]
        pairs = [pair for sample in samples for pair in _pair(sample, outputs)]
        if traits.quantized:
            measurement = NoiseMeasurement(accuracy=measure_quantization(pairs, "", planned.name, allow_spread=False))
        else:
            measurement = measure_noise(pairs, half=traits.half)
        if measurement == NoiseMeasurement():
            raise UnmeasurableError("no output can be compared between runs with different rounding")
        return measurement

    def _start(self, model: Path, planned: PlannedRuntime, usual: Run, seed: int) -> tuple[Run, Future[Observation]]:
        folder = self.place()
        (folder / "outputs").mkdir(parents=True)
        path = write_changed_model(model, folder / "model.onnx", seed)
        cases = [_change_case(case, folder / str(index), seed) for index, case in enumerate(usual.cases)]
        job = msgspec.structs.replace(
            plan_run(path, cases, planned, usual.optimization, folder / "outputs"), again=False
        )
        return job, self.submit(planned, job)


def _list_run_outputs(cases: Sequence[InputCase], answer: Observation) -> RunOutputs:
    match answer:
        case Completed(result=RunResult() as result):
            return list_outputs(cases, result)
        case _:
            raise UnmeasurableError(f"the model with changed weights did not run ({type(answer).__name__.lower()})")


def _pair(sample: RunOutputs, usual: RunOutputs) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
    """Yield the outputs of both runs for each case, the usual outputs as float64."""
    for case in dict.fromkeys(case for case, _ in usual.paths):
        names = [name for name in usual.names if sample.paths.get((case, name)) and usual.paths.get((case, name))]
        changed = {name: load_array(str(sample.paths[case, name])) for name in names}
        expected = {name: load_array(str(usual.paths[case, name])) for name in names}
        yield (
            changed,
            {name: array.astype("f8") if array.dtype.kind == "f" else array for name, array in expected.items()},
        )


def write_changed_model(model: Path, path: Path, seed: int) -> Path:
    """Write a copy with other rounding of the weights, and return its path.

    Raises:
        UnmeasurableError: the model cannot be copied.
    """
    try:
        proto = load_with_weights(model, MAX_MODEL_BYTES)
        if proto is None:
            raise UnmeasurableError("the model is larger than 1 GiB")
        for position, tensor in enumerate(list_tensors(proto.graph)):
            if tensor.data_type in _FLOATS and math.prod(tensor.dims) >= MIN_WEIGHT_ELEMENTS:
                _change_weight(tensor, f"{tensor.name or position}\0{seed}")
        path.write_bytes(proto.SerializeToString())
    except (OSError, ValueError) as error:
        raise UnmeasurableError(f"the model cannot be copied: {error}") from error
    return path


def _change_weight(tensor: TensorProto, seed: str) -> None:
    if tensor.data_type == TensorProto.BFLOAT16:
        bits = np.frombuffer(tensor.raw_data, "<u2") if tensor.raw_data else np.array(tensor.int32_data, np.uint16)
        # The upper half of a float32 number; a step of the lower half is not visible.
        wide = (bits.astype(np.uint32) << 16).view(np.float32)
        up = change_rounding(wide, seed) > wide
        is_number = (bits & 0x7FFF != 0) & (bits & 0x7F80 != 0x7F80)
        step = np.where(up == (wide > 0), 1, -1) * is_number
        tensor.ClearField("int32_data")
        tensor.raw_data = (bits.astype(np.int32) + step).astype("<u2").tobytes()
        return
    changed = change_rounding(numpy_helper.to_array(tensor), seed)
    tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))


def _change_case(case: InputCase, folder: Path, seed: int) -> InputCase:
    """Return the case with changed floating-point inputs."""
    folder.mkdir()
    inputs = dict(case.inputs)
    for index, (name, file) in enumerate(case.inputs.items()):
        array = load_array(file)
        if array.dtype.kind == "f":
            inputs[name] = str((folder / f"{index}.npy").absolute())
            np.save(inputs[name], change_rounding(array, f"{name}\0{seed}"), allow_pickle=False)
    return msgspec.structs.replace(case, inputs=inputs)


def change_rounding(array: Array, seed: str) -> Array:
    """Return the array with each finite number except 0 replaced by one of its two neighbors."""
    bits = np.unpackbits(draw_bits(seed, -(-array.size // 64)).view(np.uint8))[: array.size].reshape(array.shape)
    target = np.where(bits, np.inf, -np.inf).astype(array.dtype)
    with np.errstate(over="ignore", under="ignore"):
        neighbor = np.nextafter(array, target)
    return np.asarray(np.where((array != 0) & np.isfinite(array) & np.isfinite(neighbor), neighbor, array))
