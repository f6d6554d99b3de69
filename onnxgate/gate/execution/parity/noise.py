"""Rounding errors of a source or, if an output exceeds a default tolerance, of a model.

A source runs in its own precision and in float64. A model without a source runs with weights and inputs that are
rounded to neighboring numbers: each changes by one unit in the last place, up or down at random. This is about as much
as the rounding in each node, and reaches the outputs in the same way. In a quantized model, the quantization steps of
the activations also change, so that each quantized value is rounded differently.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from onnx import TensorProto, numpy_helper

from onnxgate.core.jobs import CaseResult, Completed, ExportResult, InputCase, Observation
from onnxgate.core.text import first_line, join_phrases
from onnxgate.gate.execution.parity.extra_runs import (
    ExtraRun,
    ExtraRuns,
    NoOutputsError,
    SourceRuns,
    UnmeasurableError,
    list_run_outputs,
)
from onnxgate.inputs.values import draw_bits
from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.model.quantization_consistency import list_slots
from onnxgate.model.reading.tensor_data import read_array
from onnxgate.model.subgraphs.widened_models import list_tensors, load_with_weights
from onnxgate.numerics.quantization import measure_quantization
from onnxgate.numerics.streams import load_array
from onnxgate.numerics.tolerance import NoiseMeasurement, measure_noise
from onnxgate.stages.parity.run_outputs import RunOutputs
from onnxgate.stages.runtime import ObservedRun

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

    Array = NDArray[Any]
    Arrays = dict[str, Array]

SAMPLES = 2
"""Number of runs with different rounding.

Source: in 7 networks, optimization levels differ by 0.5 to 0.9 times the noise of two runs; measured 2026-11-28."""
MAX_MODEL_BYTES = 1 << 30
MIN_WEIGHT_ELEMENTS = 9
"""Minimum size of a changed weight. Smaller tensors may be parameters, such as the scales of `Resize`."""
STEP_GROWTH = (1 / 64, 1 / 32)
"""Minimum and maximum growth of the quantization step of an activation. A smaller step would clip values.

Source: fused operators use other steps than the file (ONNX Runtime quantizes the output of `Softmax` with 1/256), so
optimization levels of two vision transformers differ by 16 to 23 dB. In 7 int8 networks, other steps change the outputs
by 0 to 3 dB more than the quantization itself does; measured 2026-11-28.
"""
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


@dataclass(frozen=True, slots=True)
class NoiseMeter:
    """Measures the rounding errors of a source or, if there is none or it cannot be measured, of its model."""

    source: SourceRuns | None
    outputs: Sequence[str]  # names of the outputs of the source, in order
    extra: ExtraRuns
    traits: NumericTraits

    def measure(self, model: Path, ran: Sequence[ObservedRun], runtimes: Iterable[str]) -> NoiseMeasurement:
        """Measure the noise of each output. The model was run in `ran`; it is measured on the first possible runtime.

        Raises:
            UnmeasurableError: neither can be measured; the message contains all reasons.
        """
        reasons = []
        if self.source is not None and not self.traits.quantized:
            try:
                return self.measure_source()
            except UnmeasurableError as error:
                reasons.append(f"of the source ({error})")
        try:
            return self._measure_on_any(model, ran, runtimes)
        except UnmeasurableError as error:
            reasons.append(f"of the model ({error})")
        raise UnmeasurableError(join_phrases(reasons))

    def measure_source(self) -> NoiseMeasurement:
        """Measure the noise of each output of the source.

        Raises:
            UnmeasurableError: there is no source, or it does not run in both precisions.
        """
        if self.source is None:
            raise UnmeasurableError("there is no source")
        return read_source_noise(self.outputs, self.source.run_in_float64(), half=self.traits.half)

    def measure_exported(self) -> NoiseMeasurement | None:
        """Measure the noise without another run of the source; None if its export did not run it in float64.

        Raises:
            UnmeasurableError: the noise cannot be measured.
        """
        exported = self.source.exported if self.source is not None else None
        return self.measure_source() if exported is not None and exported.eager64 else None

    def _measure_on_any(self, model: Path, ran: Sequence[ObservedRun], runtimes: Iterable[str]) -> NoiseMeasurement:
        """Compare with the run in `ran` without optimization, or with another if there is none."""
        reasons = []
        for runtime in runtimes:
            runs = [run for run in ran if run.runtime == runtime and isinstance(run.observation, Completed)]
            if not runs:
                reasons.append(f"it did not run on {runtime}")
                continue
            usual = next((run for run in runs if run.job.optimization == "disabled"), runs[-1])
            try:
                return self._measure_model(model, usual)
            except UnmeasurableError as error:
                reasons.append(str(error))
            except NoOutputsError as error:
                reasons.append(f"the model with changed weights did not run ({error})")
        raise UnmeasurableError(join_phrases(list(dict.fromkeys(reasons))))

    def _measure_model(self, model: Path, usual: ObservedRun) -> NoiseMeasurement:
        """Measure the noise as tolerances, or that of a quantized model as accuracy."""
        outputs = list_run_outputs(usual)
        runs = [self._start(model, usual, seed) for seed in range(SAMPLES)]
        pairs = [pair for run in runs for pair in _pair(run.outputs(), outputs)]
        if self.traits.quantized and not self.traits.weights_only:
            accuracy = measure_quantization(pairs, "", usual.runtime, allow_spread=False)
            measurement = NoiseMeasurement(accuracy=accuracy)
        else:
            measurement = measure_noise(pairs, half=self.traits.half)
        if measurement == NoiseMeasurement():
            raise UnmeasurableError("no output can be compared between runs with different rounding")
        return measurement

    def _start(self, model: Path, usual: ObservedRun, seed: int) -> ExtraRun:
        folder = self.extra.create_folder()
        path = write_changed_model(model, folder / "model.onnx", seed)
        cases = [_change_case(case, folder / str(index), seed) for index, case in enumerate(usual.job.cases)]
        return self.extra.start(usual.runtime, path, cases, usual.job.optimization)


def read_source_noise(outputs: Sequence[str], answer: Observation, *, half: bool) -> NoiseMeasurement:
    """Return the noise of each output from an observation of an `Export` job with `float64`.

    Raises:
        UnmeasurableError: the source did not run in both precisions, no output is numeric, or the model computes in 16
            bits (`half`) but the source does not.
    """
    match answer:
        case Completed(result=ExportResult(eager64=results) as result) if results:
            if half and not computes_in_half(result):
                raise UnmeasurableError("the source computes in float32, but the model in 16 bits")
            pairs = (
                (_load_outputs(outputs, narrow), _load_outputs(outputs, wide))
                for narrow, wide in zip(result.eager, results, strict=False)
                if narrow.failure is None and wide.failure is None
            )
            measurement = measure_noise(pairs, half=half, is_exact=True)
            if measurement != NoiseMeasurement():
                return measurement
            failures = [case.failure for case in (*result.eager, *results) if case.failure is not None]
            if failures:
                raise UnmeasurableError(first_line(failures[0].summary))
            raise UnmeasurableError("no output of the source is numeric and has the same shape in float32 and float64")
        case Completed(result=ExportResult(failure=failure)) if failure is not None:
            raise UnmeasurableError(first_line(failure.summary))
        case Completed(result=ExportResult(eager_reason=reason)) if reason:
            raise UnmeasurableError(reason)
        case Completed():
            raise UnmeasurableError("the source does not run in float64")
        case _:
            raise UnmeasurableError(f"the source did not complete ({type(answer).__name__.lower()})")


def computes_in_half(result: ExportResult) -> bool:
    """Return whether a source computes in 16 bits: it has such weights, or a float16 output."""
    paths = (path for case in result.eager for path in case.outputs if path is not None)
    return result.is_half or any(load_array(path).dtype == np.float16 for path in paths)


def _load_outputs(outputs: Sequence[str], case: CaseResult) -> Arrays:
    paths = zip(outputs, case.outputs, strict=False)
    return {name: load_array(path) for name, path in paths if path is not None}


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
        _change_steps(proto, seed)
        for position, tensor in enumerate(list_tensors(proto.graph)):
            if tensor.data_type in _FLOATS and math.prod(tensor.dims) >= MIN_WEIGHT_ELEMENTS:
                _change_weight(tensor, f"{tensor.name or position}\0{seed}")
        path.write_bytes(proto.SerializeToString())
    except (OSError, ValueError) as error:
        raise UnmeasurableError(f"the model cannot be copied: {error}") from error
    return path


def _change_steps(proto: ModelProto, seed: int) -> None:
    """Increase the stored quantization steps of activations. Equal steps remain equal."""
    constants = (node for node in proto.graph.node if node.op_type == "Constant" and node.output)
    values = {node.output[0]: it.t for node in constants for it in node.attribute if it.name == "value"}
    stored = {tensor.name: tensor for tensor in proto.graph.initializer} | values
    activations: set[str] = set()
    weights: set[str] = set()
    for node in proto.graph.node:
        for slot in (slot for slot in list_slots(node) if 0 <= slot.scale < len(node.input)):
            is_weight = slot.data >= 0 and node.input[slot.data] in stored
            (weights if is_weight else activations).add(node.input[slot.scale])
    for name in activations - weights:
        tensor = stored.get(name)
        if tensor is not None and tensor.data_type == TensorProto.FLOAT and math.prod(tensor.dims) == 1:
            step = read_array(tensor)
            if step is None:
                continue
            share = int(draw_bits(f"{step.tobytes().hex()}\0{seed}", 1)[0] & 0xFFFF) / 0xFFFF
            growth = STEP_GROWTH[0] + share * (STEP_GROWTH[1] - STEP_GROWTH[0])
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(step * np.float32(1 + growth)), tensor.name))


def _change_weight(tensor: TensorProto, seed: str) -> None:
    """Change a weight, unless its data does not fit its type and shape: runtimes load such a weight if it is unused."""
    values = read_array(tensor)
    if values is None:
        return
    if tensor.data_type == TensorProto.BFLOAT16:
        bits = np.frombuffer(tensor.raw_data, "<u2") if tensor.raw_data else np.array(tensor.int32_data).astype("<u2")
        # The upper half of a float32 number; a step of the lower half is not visible.
        wide = (bits.astype(np.uint32) << 16).view(np.float32)
        up = change_rounding(wide, seed) > wide
        is_number = (bits & 0x7FFF != 0) & (bits & 0x7F80 != 0x7F80)
        step = np.where(up == (wide > 0), 1, -1) * is_number
        tensor.ClearField("int32_data")
        tensor.raw_data = (bits.astype(np.int32) + step).astype("<u2").tobytes()
        return
    tensor.CopyFrom(numpy_helper.from_array(change_rounding(values, seed), tensor.name))


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
