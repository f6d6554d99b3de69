"""Compare quantized models with their float models on the same cases, and find the layers that lose most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from onnx import numpy_helper

from onnxgate.core.findings import IncompleteCheck, Stage, runtime_sort_key
from onnxgate.core.jobs import (
    Completed,
    Crashed,
    InputCase,
    Observation,
    Optimization,
    Refused,
    Run,
    RunResult,
    TimedOut,
    Unavailable,
)
from onnxgate.core.text import first_line
from onnxgate.evidence.parity import Comparison, Difference, Layer, find_mismatches, find_worst
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.fact_extraction import ParsedModel, read_model
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type, read_pointer
from onnxgate.model.reading.tensor_data import UnreadableWeightError, read_chunks
from onnxgate.model.subgraphs.instrumented_models import expose_values, split_by_size
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.parity.quantized_layers import NodePlaces, TensorPair, find_worst_layers, pair_tensors
from onnxgate.stages.parity.stage import ParityModel, RunOutputs, compare_with_float, list_outputs
from onnxgate.stages.runtime.stage import ObservedRun

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

    Values = Mapping[str, NDArray[Any]]

SubmitRun = Callable[[PlannedRuntime, Run], Future[Observation]]
ENGINE = "onnxruntime"
MAX_EXPOSED_BYTES = 256 * 1024 * 1024
"""Values are exposed in portions of this size, as far as shapes are known."""


class IncomparableError(Exception):
    """A float model with which a quantized one cannot be compared; the message says why."""


@dataclass(frozen=True, slots=True)
class QuantizedModel:
    """A quantized model with its cases and runtimes."""

    model: SelectedModel
    reading: ParsedModel
    cases: tuple[InputCase, ...]
    runtimes: tuple[PlannedRuntime, ...]


@dataclass(frozen=True, slots=True)
class FloatRun:
    """The float model, and what it gave at full optimisation on its newest ONNX Runtime."""

    path: Path
    reading: ParsedModel
    runtime: PlannedRuntime
    outputs: RunOutputs


class FloatComparison:
    """Runs float models, and both models with their values exposed; `place` gives an unused path."""

    def __init__(self, project: Project, submit: SubmitRun, place: Callable[[], Path]) -> None:
        self._project, self._submit, self._place = project, submit, place

    def examine(
        self, quantized: QuantizedModel, parity: ParityModel, ran: Sequence[ObservedRun]
    ) -> tuple[tuple[Comparison, ...], tuple[IncompleteCheck, ...]]:
        """What was run, at each level, against its float model; nothing where the config names none."""
        if quantized.model.settings.quantized_from is None or not ran or not quantized.cases:
            return (), ()
        path = quantized.model.path
        try:
            real = self.run_float(quantized)
        except IncomparableError as reason:
            return (), (IncompleteCheck(Stage.PARITY, path, "", str(reason), "see `quantized-from`"),)
        name = quantized.model.settings.quantized_from
        comparisons, undone = compare_with_float(parity, ran, real.outputs, name)
        return tuple(self._with_layers(quantized, real, comparisons)), undone

    def run_float(self, quantized: QuantizedModel) -> FloatRun:
        """What the float model gives on the quantized one's cases.

        Raises:
            UnfitError: it is not there, takes or gives something else, or could not be run.
        """
        name = quantized.model.settings.quantized_from or ""
        path = self._project.folder / name
        reading = _read_float_model(path, name, quantized.model)
        _require_same_interface(quantized.reading.facts, reading.facts, name)
        runtime = _newest_onnxruntime(quantized.runtimes, name)
        answer = self.run(runtime, path, quantized.cases, "all").result()
        outputs = list_outputs(quantized.cases, require_run_result(answer, f"the float model `{name}`"))
        if not outputs.paths:
            raise IncomparableError(f"the float model `{name}` gives nothing on any case")
        return FloatRun(path, reading, runtime, outputs)

    def run(
        self, planned: PlannedRuntime, model: Path, cases: Sequence[InputCase], level: Optimization
    ) -> Future[Observation]:
        """Have a model run on the cases."""
        output = self._place()
        output.mkdir(parents=True)
        job = Run(
            model=str(model),
            cases=tuple(cases),
            output=str(output),
            optimization=level,
            providers=planned.providers,
            extensions=planned.extensions,
        )
        return self._submit(planned, job)

    # Layers

    def _with_layers(
        self, quantized: QuantizedModel, real: FloatRun, comparisons: Sequence[Comparison]
    ) -> Iterator[Comparison]:
        """Those that drift get the worst layers of the newest runtime on which the model does."""
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
        planned = next((runtime for runtime in quantized.runtimes if runtime.name == comparison.runtime), None)
        if case is None or planned is None or mismatch.metric in ("shape", "type", "outputs"):
            return ()
        pairs = pair_tensors(quantized.reading.proto, real.reading.proto)
        try:
            ours = self._values(
                planned,
                quantized.model.absolute,
                quantized.reading.proto,
                _quantized_value_names(pairs),
                case,
                _choose_level(comparison, mismatch),
            )
            theirs = self._values(
                real.runtime, real.path, real.reading.proto, _float_value_names(pairs), case, "disabled"
            )
        except (IncomparableError, OSError):
            return ()
        return find_worst_layers(
            pairs, ours, theirs, NodePlaces(real.reading.proto, self._project.root, self._project.folder)
        )

    def _values(
        self,
        planned: PlannedRuntime,
        path: Path,
        proto: ModelProto,
        names: Sequence[str],
        case: InputCase,
        level: Optimization,
    ) -> dict[str, NDArray[Any]]:
        """What the model computes of these values, those that it is fed and its own weights included."""
        computed = {name for node in proto.graph.node for name in node.output}
        wanted = [name for name in names if name in computed]
        values = {name: np.load(file) for name, file in case.inputs.items()}
        for portion in split_by_size(proto, wanted, case.sizes, MAX_EXPOSED_BYTES):
            exposed = expose_values(proto, path, portion, self._place())
            answer = self.run(planned, exposed, (case,), level).result()
            outputs = list_outputs((case,), require_run_result(answer, f"`{path.name}`"))
            values |= {name: np.load(file) for (_, name), file in outputs.paths.items() if file is not None}
        return {**_load_weights(proto, path, set(names)), **values}


def _quantized_value_names(pairs: Sequence[TensorPair]) -> list[str]:
    return list(dict.fromkeys(name for p in pairs for name in (p.after, p.before, p.scale, p.zero) if name))


def _float_value_names(pairs: Sequence[TensorPair]) -> list[str]:
    return list(dict.fromkeys(pair.tensor for pair in pairs))


def _choose_level(comparison: Comparison, found: Difference) -> Optimization:
    """Without optimisation where the model drifts there as well: nodes are then run as they are written."""
    levels = {mismatch.optimization for mismatch in find_mismatches(comparison)}
    return "disabled" if "disabled" in levels or found.optimization != "all" else "all"


def _load_weights(proto: ModelProto, path: Path, names: set[str]) -> dict[str, NDArray[Any]]:
    weights = {}
    for tensor in proto.graph.initializer:
        if tensor.name in names:
            try:
                stored = type(tensor)(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
                stored.raw_data = b"".join(read_chunks(tensor, path))
                weights[tensor.name] = numpy_helper.to_array(stored)
            except (UnreadableWeightError, OSError, ValueError, TypeError):
                continue
    return weights


# The float model


def _read_float_model(path: Path, name: str, model: SelectedModel) -> ParsedModel:
    if not path.is_file():
        raise IncomparableError(f"there is no float model `{name}`")
    if path.resolve() == model.absolute.resolve():
        raise IncomparableError(f"`{name}` is the model itself, and not what it came from")
    what = "a Git LFS pointer to content that is not here" if read_pointer(path) else detect_other_type(path)
    if what:
        raise IncomparableError(f"the float model `{name}` is {what}")
    try:
        return read_model(path, name)
    except UnreadableModel as error:
        raise IncomparableError(f"the float model `{name}` is {error}") from error


def _require_same_interface(quantized: ModelFacts, real: ModelFacts, name: str) -> None:
    ours, theirs = ({value.name: value.type for value in facts.inputs} for facts in (quantized, real))
    if ours != theirs:
        differing = sorted(
            input_name for input_name in {*ours, *theirs} if ours.get(input_name) != theirs.get(input_name)
        )
        raise IncomparableError(f"the float model `{name}` takes other inputs: `{'`, `'.join(differing)}`")
    if len(quantized.outputs) != len(real.outputs):
        raise IncomparableError(
            f"the float model `{name}` has {len(real.outputs)} outputs, the quantized one {len(quantized.outputs)}"
        )


def _newest_onnxruntime(runtimes: Sequence[PlannedRuntime], name: str) -> PlannedRuntime:
    """The newest ONNX Runtime among the model's; it runs float models as they were evaluated."""
    fit = [runtime for runtime in runtimes if runtime.runtime.engine.startswith(ENGINE)] or list(runtimes)
    if not fit:
        raise IncomparableError(f"there is no runtime to run the float model `{name}` on")
    return max(fit, key=lambda runtime: runtime_sort_key(runtime.name))


def require_run_result(answer: Observation, name: str) -> RunResult:
    """Return the result of a run.

    Raises:
        IncomparableError: there is none; `name` is the model's name in the message.
    """
    match answer:
        case Completed(result=RunResult() as result):
            failure = next((case.failure for case in result.cases if case.failure is not None), None)
            if failure is not None and all(case.failure is not None for case in result.cases):
                raise IncomparableError(f"{name} does not run: {failure.type}: {first_line(failure.text)}")
            return result
        case Refused(failure=failure):
            raise IncomparableError(f"{name} does not load: {failure.type}: {first_line(failure.text)}")
        case Crashed(signal=signal):
            raise IncomparableError(f"{name} crashed its runtime ({signal})")
        case TimedOut(limit_s=limit_s):
            raise IncomparableError(f"{name} gave nothing within {limit_s:g} s")
        case Unavailable(reason=reason):
            raise IncomparableError(f"{name} was not run: {reason}")
        case _:
            raise IncomparableError(f"{name} was not run")
