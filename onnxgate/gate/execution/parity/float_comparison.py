"""Comparison of quantized models with their float models, as a whole and by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from onnxgate.core.findings import IncompleteCheck, Stage, runtime_sort_key
from onnxgate.core.jobs import (
    Completed,
    Crashed,
    InputCase,
    Optimization,
    Refused,
    RunResult,
    TimedOut,
    Unavailable,
)
from onnxgate.core.text import first_line, pluralize
from onnxgate.evidence.parity import Comparison, Layer, MissingActivation, find_mismatches, find_worst
from onnxgate.gate.execution.parity.extra_runs import ExtraRun, ExtraRuns
from onnxgate.model.facts import ELEMENT_TYPES, ModelFacts, required_bytes
from onnxgate.model.reading.fact_extraction import ParsedModel, read_model
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type, read_pointer
from onnxgate.model.reading.structure import read_view
from onnxgate.model.reading.tensor_data import UnreadableWeightError, read_array, read_chunks
from onnxgate.model.subgraphs.instrumented_models import expose_values, split_by_size
from onnxgate.model.subgraphs.node_context import find_source_line
from onnxgate.numerics.streams import MAPPED_BYTES, load_array, save_chunks
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.stages.parity.dequantized_weights import has_dequantized_weights
from onnxgate.stages.parity.output_comparison import ParityModel
from onnxgate.stages.parity.quantized_activations import RemovedActivation, find_removed_activations
from onnxgate.stages.parity.quantized_layers import find_worst_layers, pair_tensors
from onnxgate.stages.parity.quantized_weights import find_wrong_weights
from onnxgate.stages.parity.run_outputs import RunOutputs, list_outputs
from onnxgate.stages.parity.stage import ParityEvidence, compare_with_float
from onnxgate.stages.runtime import ObservedRun

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto, TensorProto

    Values = Mapping[str, NDArray[Any]]

ENGINE = "onnxruntime"
MAX_EXPOSED_BYTES = 256 * 1024 * 1024
"""Maximum total size in bytes of the intermediate values that one run exposes; unknown sizes are estimated."""
MAX_ACTIVATION_CASES = 3
"""Maximum number of cases that are run to see the values of removed activations."""


class IncomparableError(Exception):
    """A quantized model cannot be compared with its float model; the message is the reason."""


@dataclass(frozen=True, slots=True)
class QuantizedModel:
    """A quantized model with its cases."""

    model: SelectedModel
    reading: ParsedModel
    cases: tuple[InputCase, ...]


@dataclass(frozen=True, slots=True)
class FloatRun:
    """The float model with its outputs at full optimization on the newest available ONNX Runtime release."""

    path: Path
    reading: ParsedModel
    runtime: str
    outputs: RunOutputs


@dataclass(frozen=True, slots=True)
class ModelAtLevel:
    """A model on a runtime at an optimization level."""

    path: Path
    proto: ModelProto
    runtime: str
    level: Optimization


@dataclass(frozen=True, slots=True)
class FloatComparison:
    """Compares quantized models with float models, as a whole and by layer."""

    project: Project
    extra: ExtraRuns

    def compare(self, quantized: QuantizedModel, parity: ParityModel, ran: Sequence[ObservedRun]) -> ParityEvidence:
        """Compare the runs at each level with the float model, if the config names one."""
        if quantized.model.settings.quantized_from is None or not ran or not quantized.cases:
            return (), ()
        path = quantized.model.path
        try:
            real = self.run_float(quantized)
        except IncomparableError as reason:
            return (), (IncompleteCheck(Stage.PARITY, path, "", str(reason), "check `quantized-from` in the config"),)
        name = quantized.model.settings.quantized_from
        views = (read_view(quantized.model.absolute), quantized.model.absolute, read_view(real.path), real.path)
        is_same = parity.comparability.weights_only and has_dequantized_weights(*views)
        parity = replace(parity, has_same_weights=is_same)
        comparisons, undone = compare_with_float(parity, ran, real.outputs, name)
        wrong = find_wrong_weights(*views)
        missing = self._find_missing_activations(quantized, real.runtime, tuple(find_removed_activations(*views)))
        comparisons = tuple(
            msgspec.structs.replace(comparison, wrong_weights=wrong, missing_activations=missing)
            for comparison in comparisons
        )
        return tuple(self._with_layers(quantized, real, comparisons)), undone

    def run_float(self, quantized: QuantizedModel) -> FloatRun:
        """Run the float model on the cases of the quantized model.

        Raises:
            IncomparableError: the float model is missing, has a different interface or could not be run.
        """
        name = quantized.model.settings.quantized_from or ""
        path = self.project.folder / name
        reading = _read_float_model(path, name, quantized.model)
        _require_same_interface(quantized.reading.facts, reading.facts, name)
        runtimes = self.extra.runtimes
        names = [name for name, it in runtimes.items() if it.runtime.engine.startswith(ENGINE)] or [*runtimes]
        if not names:
            raise IncomparableError(f"no runtime is available for the float model `{name}`")
        runtime = max(names, key=runtime_sort_key)
        outputs = require_outputs(self.extra.start(runtime, path, quantized.cases, "all"), f"the float model `{name}`")
        if not outputs.paths:
            raise IncomparableError(f"the float model `{name}` produced no outputs for any input case")
        return FloatRun(path, reading, runtime, outputs)

    def _find_missing_activations(
        self, quantized: QuantizedModel, runtime: str, removed: Sequence[RemovedActivation]
    ) -> tuple[MissingActivation, ...]:
        """Return the removed activations that would change values. A few cases are run to see the values."""
        missing: dict[str, MissingActivation] = {}
        model = ModelAtLevel(quantized.model.absolute, quantized.reading.proto, runtime, "disabled")
        for case in quantized.cases[:MAX_ACTIVATION_CASES]:
            remaining = [activation for activation in removed if activation.tensor not in missing]
            if not remaining:
                break
            with suppress(IncomparableError, OSError):  # the runtime stage reports cases that fail
                values = self._values(model, [activation.value for activation in remaining], case)
                for activation in remaining:
                    excess = activation.find_excess(values[activation.value]) if activation.value in values else None
                    if excess is not None:
                        missing[activation.tensor] = excess
        return tuple(missing[it.tensor] for it in removed if it.tensor in missing)

    # Layers

    def _with_layers(
        self, quantized: QuantizedModel, real: FloatRun, comparisons: Sequence[Comparison]
    ) -> Iterator[Comparison]:
        """Yield the comparisons; add the worst layers to a mismatch on the newest affected runtime."""
        drifting = [comparison for comparison in comparisons if find_mismatches(comparison)]
        if not drifting:
            yield from comparisons
            return
        layers = self._layers(
            quantized, real, max(drifting, key=lambda comparison: runtime_sort_key(comparison.runtime))
        )
        for comparison in comparisons:
            yield msgspec.structs.replace(comparison, layers=layers) if find_mismatches(comparison) else comparison

    def _layers(self, quantized: QuantizedModel, real: FloatRun, comparison: Comparison) -> tuple[Layer, ...]:
        mismatch = find_worst(find_mismatches(comparison))
        case = next((candidate for candidate in quantized.cases if candidate.name == mismatch.case), None)
        if case is None or comparison.runtime not in self.extra.runtimes:
            return ()
        if mismatch.metric in ("shape", "type", "outputs"):
            return ()
        proto, float_proto = quantized.reading.proto, real.reading.proto
        pairs = pair_tensors(proto, float_proto)
        names = list(dict.fromkeys(it for p in pairs for it in (p.after, p.before, p.scale, p.zero) if it))
        float_names = list(dict.fromkeys(pair.tensor for pair in pairs))
        levels = {it.optimization for it in find_mismatches(comparison)}
        # If possible, use the level without optimization, at which nodes are not fused.
        level: Optimization = "disabled" if "disabled" in levels or mismatch.optimization != "all" else "all"
        try:
            ours = self._values(ModelAtLevel(quantized.model.absolute, proto, comparison.runtime, level), names, case)
            theirs = self._values(ModelAtLevel(real.path, float_proto, real.runtime, "disabled"), float_names, case)
        except (IncomparableError, OSError):
            return ()
        place_of = partial(find_source_line, root=self.project.root, folder=self.project.folder)
        return find_worst_layers(pairs, ours, theirs, float_proto, place_of)

    def _values(self, model: ModelAtLevel, names: Sequence[str], case: InputCase) -> Values:
        """Return the values with these names: computed values, inputs and weights."""
        proto, path = model.proto, model.path
        computed, needed = {name for node in proto.graph.node for name in node.output}, set(names)
        files = {name: Path(file) for name, file in case.inputs.items()}
        exposable = [name for name in names if name in computed]
        for portion in split_by_size(proto, exposable, case.sizes, MAX_EXPOSED_BYTES):
            exposed = expose_values(proto, path, portion, self.extra.place())
            outputs = require_outputs(self.extra.start(model.runtime, exposed, (case,), model.level), f"`{path.name}`")
            files |= {name: Path(file) for (_, name), file in outputs.paths.items() if file is not None}
        weights = {tensor.name: tensor for tensor in proto.graph.initializer if tensor.name in needed}
        return ModelValues(files, weights, path, self.extra.place)


@dataclass(slots=True, eq=False)
class ModelValues(Mapping[str, "NDArray[Any]"]):
    """Values of a model by name, read on each lookup.

    A large weight is copied to a temporary file at an unused path from `place`. The file is removed when the next large
    weight is written.
    """

    files: Mapping[str, Path]  # inputs and computed values
    weights: Mapping[str, TensorProto]
    model: Path
    place: Callable[[], Path]
    _file: Path | None = None

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a value; raise `KeyError` if it cannot be read."""
        try:
            return load_array(self.files[name]) if name in self.files else self._read_weight(self.weights[name])
        except (UnreadableWeightError, OSError, ValueError, TypeError) as error:
            raise KeyError(name) from error

    def __iter__(self) -> Iterator[str]:
        return iter({**self.weights, **self.files})

    def __len__(self) -> int:
        return len({**self.weights, **self.files})

    def _read_weight(self, tensor: TensorProto) -> NDArray[Any]:
        element, is_small = ELEMENT_TYPES.get(tensor.data_type), (required_bytes(tensor) or 0) <= MAPPED_BYTES
        if is_small or element is None or not element.numpy.startswith("<f"):
            stored = type(tensor)(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            stored.raw_data = b"".join(read_chunks(tensor, self.model))
            if (values := read_array(stored)) is None:
                raise UnreadableWeightError("its data does not fit its type and shape")
            return values
        if self._file is not None:
            with suppress(OSError):  # Windows does not remove mapped files
                self._file.unlink()
        self._file = self.place()
        save_chunks(self._file, read_chunks(tensor, self.model), np.dtype(element.numpy), tuple(tensor.dims))
        return load_array(self._file)


def _read_float_model(path: Path, name: str, model: SelectedModel) -> ParsedModel:
    if not path.is_file():
        raise IncomparableError(f"the float model `{name}` does not exist")
    if path.resolve() == model.absolute.resolve():
        raise IncomparableError(f"`{name}` is the quantized model itself")
    what = "a Git LFS pointer (content not fetched)" if read_pointer(path) else detect_other_type(path)
    if what:
        raise IncomparableError(f"the float model `{name}` is {what}")
    try:
        return read_model(path, name, lightly=True)
    except UnreadableModel as error:
        raise IncomparableError(f"the float model `{name}` is {error}") from error


def _require_same_interface(quantized: ModelFacts, real: ModelFacts, name: str) -> None:
    ours, theirs = ({value.name: value.type for value in facts.inputs} for facts in (quantized, real))
    if ours != theirs:
        differing = "`, `".join(sorted(it for it in {*ours, *theirs} if ours.get(it) != theirs.get(it)))
        raise IncomparableError(f"the float model `{name}` has different inputs: `{differing}`")
    sizes = len(real.outputs), len(quantized.outputs)
    if sizes[0] != sizes[1]:
        outputs = pluralize(sizes[0], "output")
        raise IncomparableError(f"the float model `{name}` has {outputs}, but the quantized model has {sizes[1]}")


def require_outputs(run: ExtraRun, name: str) -> RunOutputs:
    """Wait for the outputs of a run.

    Raises:
        IncomparableError: there are no outputs. `name` is the model name in the message.
    """
    match run.answer.result():
        case Completed(result=RunResult() as result):
            failure = next((case.failure for case in result.cases if case.failure is not None), None)
            if failure is not None and all(case.failure is not None for case in result.cases):
                raise IncomparableError(f"{name} does not run: {failure.type}: {first_line(failure.text)}")
            return list_outputs(run.job.cases, result)
        case Refused(failure=failure):
            raise IncomparableError(f"{name} does not load: {failure.type}: {first_line(failure.text)}")
        case Crashed(signal=signal):
            raise IncomparableError(f"{name} crashed the runtime ({signal})")
        case TimedOut(limit_s=limit_s):
            raise IncomparableError(f"{name} timed out after {limit_s:g} s")
        case Unavailable(reason=reason):
            raise IncomparableError(f"{name} could not be run: {reason}")
        case _:
            raise IncomparableError(f"{name} could not be run")
