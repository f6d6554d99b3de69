"""Compare outputs with the source, across optimization levels and runtimes, and with the float model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
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
    Job,
    Observation,
    Optimization,
    Refused,
    Run,
    RunResult,
    TimedOut,
    Unavailable,
)
from onnxgate.core.report import RATIO_METRICS, Measured
from onnxgate.core.text import first_line, join_phrases, pluralize
from onnxgate.evidence.parity import SOURCE, Comparison, Layer, find_mismatches, find_worst
from onnxgate.evidence.runtime import ModelRuns, find_not_finite
from onnxgate.gate.execution import failed_runs
from onnxgate.gate.execution.mismatch_search import MismatchSearch, create_searched_model
from onnxgate.gate.execution.model_noise import ModelNoise
from onnxgate.gate.execution.nearby_runs import NearbyRuns
from onnxgate.gate.execution.saturated_outputs import SaturatedComparison
from onnxgate.gate.execution.source_noise import UnmeasurableError, read_source_noise
from onnxgate.gate.execution.toolchain import StartedModel
from onnxgate.gate.execution.widened_comparison import WidenedComparison
from onnxgate.gate.request import ExecutionSettings, StepResult
from onnxgate.model.facts import ELEMENT_TYPES, ModelFacts, required_bytes
from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.model.reading.fact_extraction import ParsedModel, read_model
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type, read_pointer
from onnxgate.model.reading.structure import read_view
from onnxgate.model.reading.tensor_data import UnreadableWeightError, read_chunks
from onnxgate.model.subgraphs.instrumented_models import expose_values, split_by_size
from onnxgate.model.subgraphs.node_context import find_source_line
from onnxgate.model.subgraphs.widened_models import hash_half_weights
from onnxgate.numerics.agreement import NoiseMeasurement
from onnxgate.numerics.streams import MAPPED_BYTES, load_array, save_chunks
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.worker_spec import JobLimits
from onnxgate.stages.parity import stage as parity_stage
from onnxgate.stages.parity.output_comparison import FAINT, SAME_FILE_PAIRS, ParityModel, create_parity_model
from onnxgate.stages.parity.quantized_layers import find_worst_layers, pair_tensors
from onnxgate.stages.parity.quantized_weights import find_wrong_weights
from onnxgate.stages.parity.stage import ParityEvidence, RunOutputs, compare_with_float, list_outputs
from onnxgate.stages.runtime import ObservedRun, plan_run

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto, TensorProto

    Values = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class OutputComparer:
    """Comparison of outputs, including the search for the origin of mismatches.

    `submit` runs a job on a runtime, `run_in_toolchain` in the toolchain; `place` returns an unused path for files.
    """

    settings: ExecutionSettings
    submit: Callable[[PlannedRuntime, Job, JobLimits | None], Future[Observation]]
    run_in_toolchain: Callable[[Job], Observation]
    place: Callable[[], Path]

    def compare(
        self, started: StartedModel, reading: ParsedModel, ran: Sequence[ObservedRun], runs: Sequence[ModelRuns]
    ) -> StepResult:
        """Compare the outputs of one model with its source, across levels and runtimes, and with its float model."""
        model = self._model(started, reading, runs)
        if self.settings.watch is not None:
            self.settings.watch(model, ran)
        unread = started.prepared.fed.unread
        skipped = (IncompleteCheck(Stage.PARITY, model.path, "", unread),) if unread else ()
        unusable = () if failed_runs.explain_no_completed_run(runs)[0] else failed_runs.find_undecided_cases(runs)
        file = started.prepared.planned.model.absolute
        nearby = NearbyRuns(
            self.submit, self.place, file, started.cases, tuple(started.levels), model.comparability.half
        )
        collect = partial(parity_stage.collect_evidence, eager=started.sourced.eager, run_nearby=nearby.run)
        comparisons, undone = collect(model, ran, unusable=unusable)
        beyond = [comparison for comparison in comparisons if exceeds_default(comparison) or is_faint(comparison)]
        if beyond:
            model, unmeasured = self._measure_noise(model, file, started, reading, ran, beyond)
            skipped = (*skipped, *unmeasured, *report_loosened(model, beyond))
            comparisons, undone = collect(model, ran, unusable=unusable)
        if started.sourced.eager is None:
            saturated, undone = self._compare_saturated(model, started, reading, ran, undone)
            comparisons = (*comparisons, *saturated)
        unfound: tuple[IncompleteCheck, ...] = ()
        if any(map(find_mismatches, comparisons)):
            search = MismatchSearch(self.submit, self.run_in_toolchain, self.place)
            searched = create_searched_model(self.settings, started, ran, model.masks)
            comparisons, unfound = search.locate(searched, comparisons)
        widened, unwidened = self._compare_widened(model, started, comparisons)
        comparisons, skipped = (*comparisons, *widened), (*skipped, *unwidened)
        selected = started.prepared.planned.model
        quantized = QuantizedModel(selected, reading, started.cases, tuple(started.levels))
        with_float = FloatComparison(
            self.settings.project, lambda planned, job: self.submit(planned, job, None), self.place
        )
        float_comparisons, undone_float = with_float.compare(quantized, model, ran)
        comparisons, undone = (*comparisons, *float_comparisons), (*undone, *undone_float)
        return StepResult(
            subjects=comparisons,
            undone=tuple(reason for reason in undone if not reason.by_design),
            skipped=(*skipped, *unfound, *(reason for reason in undone if reason.by_design)),
            measured=tuple(figure for comparison in comparisons for figure in report_measurements(comparison)),
        )

    def _compare_saturated(
        self,
        model: ParityModel,
        started: StartedModel,
        reading: ParsedModel,
        ran: Sequence[ObservedRun],
        undone: tuple[IncompleteCheck, ...],
    ) -> ParityEvidence:
        """Compare the inputs of saturated activations; return `undone` without the outputs that were compared."""

        def collect(model: ParityModel, path: Path, runs: Sequence[ObservedRun]) -> ParityEvidence:
            comparisons, missing = parity_stage.collect_evidence(model, runs, None, ())
            beyond = [comparison for comparison in comparisons if exceeds_default(comparison) or is_faint(comparison)]
            if not beyond:
                return comparisons, missing
            model, unmeasured = self._measure_noise(model, path, started, reading, runs, beyond)
            comparisons, missing = parity_stage.collect_evidence(model, runs, None, ())
            return comparisons, (*missing, *unmeasured, *report_loosened(model, beyond))

        comparison = SaturatedComparison(lambda planned, job: self.submit(planned, job, None), self.place, collect)
        runtimes = {planned.name: planned for planned in started.levels}
        path = started.prepared.planned.model.absolute
        return comparison.compare(model, path, reading.proto, runtimes, ran, undone)

    def _measure_noise(
        self,
        model: ParityModel,
        path: Path,
        started: StartedModel,
        reading: ParsedModel,
        ran: Sequence[ObservedRun],
        beyond: Sequence[Comparison],
    ) -> tuple[ParityModel, tuple[IncompleteCheck, ...]]:
        """Measure the rounding errors of a model whose outputs exceed a default tolerance."""
        reasons = []
        if started.sourced.eager is not None and not model.comparability.quantized:
            try:
                return replace(model, noise=self._measure_source(started, reading, half=model.comparability.half)), ()
            except UnmeasurableError as error:
                reasons.append(f"of the source ({error})")
        try:
            noise = self._measure_model(path, started, ran, beyond, model.comparability)
        except UnmeasurableError as error:
            reasons.append(f"of the model ({error})")
            reason = f"the rounding errors could not be measured: {join_phrases(reasons)}"
            return model, (IncompleteCheck(Stage.PARITY, model.path, "", reason, by_design=True),)
        return replace(model, noise=noise), ()

    def _measure_source(self, started: StartedModel, reading: ParsedModel, *, half: bool) -> NoiseMeasurement:
        names = [value.name for value in reading.facts.outputs]
        return read_source_noise(names, self._run_in_float64(started), half=half)

    def _compare_widened(
        self, model: ParityModel, started: StartedModel, comparisons: Sequence[Comparison]
    ) -> tuple[tuple[Comparison, ...], tuple[IncompleteCheck, ...]]:
        """Compare a float16 model with its source without most rounding, unless they already differ."""
        traits = model.comparability
        with_source = [it for it in comparisons if it.reference == SOURCE and it.pair == "source"]
        if not traits.half or traits.bfloat16 or traits.quantized or traits.random or not with_source:
            return (), ()
        if model.tolerance or any(map(find_mismatches, with_source)):
            return (), ()
        latest = max(with_source, key=lambda comparison: runtime_sort_key(comparison.runtime))
        planned = next(planned for planned in started.levels if planned.name == latest.runtime)
        widened = WidenedComparison(lambda planned, job: self.submit(planned, job, None), self.place)
        path, cases = started.prepared.planned.model.absolute, started.prepared.fed.cases
        try:
            source = self._run_in_float64(started, hash_half_weights(path))
            differences, limits = widened.compare(path, planned, cases, source)
        except (UnmeasurableError, OSError, ValueError) as error:
            reason = f"differences within float16 rounding were not examined: {error}"
            return (), (IncompleteCheck(Stage.PARITY, model.path, latest.runtime, reason, by_design=True),)
        reasons = (
            f"output `{output}` was compared in float16 only, because rounding of computed weights limits a comparison "
            f"in float32 to {limit:.3g} dB"
            for output, limit in limits.items()
        )
        limited = (IncompleteCheck(Stage.PARITY, model.path, latest.runtime, it, by_design=True) for it in reasons)
        compared = (msgspec.structs.replace(latest, differences=differences),) if differences else ()
        return compared, tuple(limited)

    def _run_in_float64(self, started: StartedModel, half_weights: tuple[str, ...] = ()) -> Observation:
        """Run the source in its own precision and in float64; in float64, with the float16 weights of the model."""
        exporting = started.prepared.exporting
        if exporting is None or exporting.planned.source is None:
            raise UnmeasurableError("it was not exported in this check")
        folder = self.place()
        folder.mkdir(parents=True)
        job = msgspec.structs.replace(
            exporting.planned.source,
            output=str(folder),
            cases=started.prepared.fed.cases,
            export=False,
            eager=True,
            float64=True,
            half_weights=half_weights,
        )
        return self.run_in_toolchain(job)

    def _measure_model(
        self,
        path: Path,
        started: StartedModel,
        ran: Sequence[ObservedRun],
        beyond: Sequence[Comparison],
        traits: NumericTraits,
    ) -> NoiseMeasurement:
        """Measure on the first possible runtime: on a reference if it is one, without optimization if possible."""
        planned = {planned.name: planned for planned in started.levels}
        names = dict.fromkeys(it.reference if it.reference in planned else it.runtime for it in beyond)
        noise = ModelNoise(lambda planned, job: self.submit(planned, job, None), self.place)
        return noise.measure_on_any(path, [planned[name] for name in names], ran, traits)

    def _model(self, started: StartedModel, reading: ParsedModel, runs: Sequence[ModelRuns]) -> ParityModel:
        prepared, settings = started.prepared, self.settings
        model, locked = prepared.planned.model, settings.lock.models.get(prepared.path)
        return replace(
            create_parity_model(model, model.absolute, reading, started.cases, locked),
            place=prepared.runnable.place,
            not_finite=find_not_finite(runs) if Stage.RUNTIME in settings.stages else frozenset(),
        )


def exceeds_default(comparison: Comparison) -> bool:
    """Return whether an output differs by more than a default tolerance, perhaps because of rounding."""
    metrics = {"worst_abs"} | (set(RATIO_METRICS) if comparison.pair in SAME_FILE_PAIRS else set())
    return any(
        mismatch.bound_from == "type" and mismatch.metric in metrics and mismatch.bound > 0
        for mismatch in find_mismatches(comparison)
    )


def is_faint(comparison: Comparison) -> bool:
    """Return whether an output is so small that the default tolerance may hide a fault."""
    return any(difference.note == FAINT for difference in comparison.differences)


def report_loosened(model: ParityModel, beyond: Sequence[Comparison]) -> Iterator[IncompleteCheck]:
    """Report the outputs whose measured tolerance is larger than the default, which they exceed."""
    noise = model.noise.tolerances if model.noise is not None else {}
    mismatches = (mismatch for comparison in beyond for mismatch in find_mismatches(comparison))
    defaults = {it.output: it.bound for it in mismatches if it.metric == "worst_abs"}
    for output in sorted(defaults.keys() & noise.keys()):
        measured = noise[output]
        if measured.bound > defaults[output]:
            reason = (
                f"output `{output}` was compared with a tolerance of {measured.bound:.2g}, which exceeds the default "
                f"({defaults[output]:.2g}), because rounding errors change it by {measured.noise:.2g}"
            )
            yield IncompleteCheck(Stage.PARITY, model.path, "", reason, by_design=True)


def report_measurements(comparison: Comparison) -> list[Measured]:
    """Return the measurements of one comparison as report rows, starting with the deciding metric."""
    return [
        Measured(
            model=comparison.model,
            output=difference.compared or difference.output,
            pair=f"{comparison.runtime} against {comparison.reference}",
            case=f"{difference.case}, optimization {difference.optimization}",
            metric=metric,
            value=value if math.isfinite(value) else None,
            bound=bound,
            bound_from=difference.bound_from if bound is not None else "",
        )
        for difference in comparison.differences
        for metric, value, bound in (
            (difference.metric, difference.value, difference.bound),
            *((it.metric, it.value, it.bound) for it in difference.figures if it.metric != difference.metric),
        )
    ]


# Quantized models

ENGINE = "onnxruntime"
MAX_EXPOSED_BYTES = 256 * 1024 * 1024
"""Maximum total size in bytes of the intermediate values that one run exposes; unknown sizes are estimated."""


class IncomparableError(Exception):
    """A quantized model cannot be compared with its float model; the message is the reason."""


@dataclass(frozen=True, slots=True)
class QuantizedModel:
    """A quantized model with its cases and runtimes."""

    model: SelectedModel
    reading: ParsedModel
    cases: tuple[InputCase, ...]
    runtimes: tuple[PlannedRuntime, ...]


@dataclass(frozen=True, slots=True)
class FloatRun:
    """The float model with its outputs at full optimization on the newest available ONNX Runtime release."""

    path: Path
    reading: ParsedModel
    runtime: PlannedRuntime
    outputs: RunOutputs


@dataclass(frozen=True, slots=True)
class FloatComparison:
    """Compares quantized models with float models, as a whole and by layer; `place` returns an unused path."""

    project: Project
    submit: Callable[[PlannedRuntime, Run], Future[Observation]]
    place: Callable[[], Path]

    def compare(
        self, quantized: QuantizedModel, parity: ParityModel, ran: Sequence[ObservedRun]
    ) -> tuple[tuple[Comparison, ...], tuple[IncompleteCheck, ...]]:
        """Compare the runs at each level with the float model, if the config names one."""
        if quantized.model.settings.quantized_from is None or not ran or not quantized.cases:
            return (), ()
        path = quantized.model.path
        try:
            real = self.run_float(quantized)
        except IncomparableError as reason:
            return (), (IncompleteCheck(Stage.PARITY, path, "", str(reason), "check `quantized-from` in the config"),)
        name = quantized.model.settings.quantized_from
        comparisons, undone = compare_with_float(parity, ran, real.outputs, name)
        ours, theirs = read_view(quantized.model.absolute), read_view(real.path)
        wrong = find_wrong_weights(ours, quantized.model.absolute, theirs, real.path)
        comparisons = tuple(msgspec.structs.replace(comparison, wrong_weights=wrong) for comparison in comparisons)
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
        runtimes = quantized.runtimes
        runtimes = tuple(it for it in runtimes if it.runtime.engine.startswith(ENGINE)) or runtimes
        if not runtimes:
            raise IncomparableError(f"no runtime is available for the float model `{name}`")
        runtime = max(runtimes, key=lambda planned: runtime_sort_key(planned.name))
        answer = self.run(runtime, path, quantized.cases, "all").result()
        outputs = list_outputs(quantized.cases, require_run_result(answer, f"the float model `{name}`"))
        if not outputs.paths:
            raise IncomparableError(f"the float model `{name}` produced no outputs for any input case")
        return FloatRun(path, reading, runtime, outputs)

    def run(
        self, planned: PlannedRuntime, model: Path, cases: Sequence[InputCase], level: Optimization
    ) -> Future[Observation]:
        """Run a model on the cases."""
        output = self.place()
        output.mkdir(parents=True)
        return self.submit(planned, plan_run(model, cases, planned, level, output))

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
        planned = next((runtime for runtime in quantized.runtimes if runtime.name == comparison.runtime), None)
        if case is None or planned is None or mismatch.metric in ("shape", "type", "outputs"):
            return ()
        pairs = pair_tensors(quantized.reading.proto, real.reading.proto)
        names = list(dict.fromkeys(it for p in pairs for it in (p.after, p.before, p.scale, p.zero) if it))
        float_names = list(dict.fromkeys(pair.tensor for pair in pairs))
        levels = {it.optimization for it in find_mismatches(comparison)}
        # If possible, use the level without optimization, at which nodes are not fused.
        level: Optimization = "disabled" if "disabled" in levels or mismatch.optimization != "all" else "all"
        model = (quantized.model.absolute, quantized.reading.proto)
        try:
            ours = self._values(planned, *model, names, case, level)
            theirs = self._values(real.runtime, real.path, real.reading.proto, float_names, case, "disabled")
        except (IncomparableError, OSError):
            return ()
        place_of = partial(find_source_line, root=self.project.root, folder=self.project.folder)
        return find_worst_layers(pairs, ours, theirs, real.reading.proto, place_of)

    def _values(
        self,
        planned: PlannedRuntime,
        path: Path,
        proto: ModelProto,
        names: Sequence[str],
        case: InputCase,
        level: Optimization,
    ) -> Values:
        """Return the values with these names: computed values, inputs and weights."""
        computed, needed = {name for node in proto.graph.node for name in node.output}, set(names)
        files = {name: Path(file) for name, file in case.inputs.items()}
        exposable = [name for name in names if name in computed]
        for portion in split_by_size(proto, exposable, case.sizes, MAX_EXPOSED_BYTES):
            exposed = expose_values(proto, path, portion, self.place())
            answer = self.run(planned, exposed, (case,), level).result()
            outputs = list_outputs((case,), require_run_result(answer, f"`{path.name}`"))
            files |= {name: Path(file) for (_, name), file in outputs.paths.items() if file is not None}
        weights = {tensor.name: tensor for tensor in proto.graph.initializer if tensor.name in needed}
        return ModelValues(files, weights, path, self.place)


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
            return np.asarray(numpy_helper.to_array(stored))
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


def require_run_result(answer: Observation, name: str) -> RunResult:
    """Return the result of a run.

    Raises:
        IncomparableError: there is no result. `name` is the model name in the message.
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
            raise IncomparableError(f"{name} crashed the runtime ({signal})")
        case TimedOut(limit_s=limit_s):
            raise IncomparableError(f"{name} timed out after {limit_s:g} s")
        case Unavailable(reason=reason):
            raise IncomparableError(f"{name} could not be run: {reason}")
        case _:
            raise IncomparableError(f"{name} could not be run")
