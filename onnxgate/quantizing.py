"""Quantized models beside the float models that they came from: the same cases, and the layers that lose most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from onnxgate.config.project import Project, SelectedModel
from onnxgate.evidence.mismatches import mismatches, worst
from onnxgate.evidence.parity import Comparison, Difference, Layer
from onnxgate.findings import Stage, Undone, runtime_order
from onnxgate.model.exposing import expose, portions
from onnxgate.model.facts import ModelFacts
from onnxgate.model.identify import really
from onnxgate.model.pointer import read_pointer
from onnxgate.model.reading import Reading, read
from onnxgate.model.structure import UnreadableModel
from onnxgate.plan import PlannedRuntime
from onnxgate.runtimes.jobs import (
    Case,
    Completed,
    Crashed,
    Observation,
    Optimization,
    Refused,
    Run,
    RunResult,
    TimedOut,
    Unavailable,
)
from onnxgate.stages.layers import Counterpart, Places, counterparts, worst_layers
from onnxgate.stages.parity import Outputs, ParityModel, against_float, outputs_of
from onnxgate.stages.runtime import Ran

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

    Values = Mapping[str, NDArray[Any]]

Submit = Callable[[PlannedRuntime, Run], Future[Observation]]
ENGINE = "onnxruntime"
MOST_EXPOSED_BYTES = 256 * 1024 * 1024
"""Values are exposed in portions of this size, as far as shapes are known."""


class UnfitError(Exception):
    """A float model with which a quantized one cannot be compared; the message says why."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantized model, what it is fed, and where it is run."""

    model: SelectedModel
    reading: Reading
    cases: tuple[Case, ...]
    runtimes: tuple[PlannedRuntime, ...]


@dataclass(frozen=True, slots=True)
class Real:
    """The float model, and what it gave at full optimisation on its newest ONNX Runtime."""

    path: Path
    reading: Reading
    runtime: PlannedRuntime
    outputs: Outputs


class Quantizing:
    """Runs float models, and both models with their values exposed; `place` gives an unused path."""

    def __init__(self, project: Project, submit: Submit, place: Callable[[], Path]) -> None:
        self._project, self._submit, self._place = project, submit, place

    def examine(
        self, quantized: Quantized, parity: ParityModel, ran: Sequence[Ran]
    ) -> tuple[tuple[Comparison, ...], tuple[Undone, ...]]:
        """What was run, at each level, against its float model; nothing where the config names none."""
        if quantized.model.settings.quantized_from is None or not ran or not quantized.cases:
            return (), ()
        path = quantized.model.path
        try:
            real = self.run_float(quantized)
        except UnfitError as reason:
            return (), (Undone(Stage.PARITY, path, "", str(reason), "see `quantized-from`"),)
        name = quantized.model.settings.quantized_from
        comparisons, undone = against_float(parity, ran, real.outputs, name)
        return tuple(self._with_layers(quantized, real, comparisons)), undone

    def run_float(self, quantized: Quantized) -> Real:
        """What the float model gives on the quantized one's cases.

        Raises:
            UnfitError: it is not there, takes or gives something else, or could not be run.
        """
        name = quantized.model.settings.quantized_from or ""
        path = self._project.folder / name
        reading = _read(path, name, quantized.model)
        _require_same_interface(quantized.reading.facts, reading.facts, name)
        runtime = _newest(quantized.runtimes, name)
        answer = self.run(runtime, path, quantized.cases, "all").result()
        outputs = outputs_of(quantized.cases, completed(answer, f"the float model `{name}`"))
        if not outputs.paths:
            raise UnfitError(f"the float model `{name}` gives nothing on any case")
        return Real(path, reading, runtime, outputs)

    def run(
        self, planned: PlannedRuntime, model: Path, cases: Sequence[Case], level: Optimization
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

    def _with_layers(self, quantized: Quantized, real: Real, comparisons: Sequence[Comparison]) -> Iterator[Comparison]:
        """Those that drift get the worst layers of the newest runtime on which the model does."""
        drifting = [each for each in comparisons if mismatches(each)]
        if not drifting:
            yield from comparisons
            return
        layers = self._layers(quantized, real, max(drifting, key=lambda each: runtime_order(each.runtime)))
        for each in comparisons:
            yield msgspec.structs.replace(each, layers=layers) if mismatches(each) else each

    def _layers(self, quantized: Quantized, real: Real, comparison: Comparison) -> tuple[Layer, ...]:
        found = worst(mismatches(comparison))
        case = next((each for each in quantized.cases if each.name == found.case), None)
        planned = next((each for each in quantized.runtimes if each.name == comparison.runtime), None)
        if case is None or planned is None or found.metric in ("shape", "type", "outputs"):
            return ()
        pairs = counterparts(quantized.reading.proto, real.reading.proto)
        try:
            ours = self._values(
                planned,
                quantized.model.absolute,
                quantized.reading.proto,
                _ours(pairs),
                case,
                _level(comparison, found),
            )
            theirs = self._values(real.runtime, real.path, real.reading.proto, _theirs(pairs), case, "disabled")
        except (UnfitError, OSError):
            return ()
        return worst_layers(pairs, ours, theirs, Places(real.reading.proto, self._project.root, self._project.folder))

    def _values(
        self,
        planned: PlannedRuntime,
        path: Path,
        proto: ModelProto,
        names: Sequence[str],
        case: Case,
        level: Optimization,
    ) -> dict[str, NDArray[Any]]:
        """What the model computes of these values, those that it is fed and its own weights included."""
        import numpy as np

        made = {name for node in proto.graph.node for name in node.output}
        wanted = [name for name in names if name in made]
        values = {name: np.load(found) for name, found in case.inputs.items()}
        for portion in portions(proto, wanted, case.sizes, MOST_EXPOSED_BYTES):
            exposed = expose(proto, path, portion, self._place())
            answer = self.run(planned, exposed, (case,), level).result()
            outputs = outputs_of((case,), completed(answer, f"`{path.name}`"))
            values |= {name: np.load(found) for (_, name), found in outputs.paths.items() if found is not None}
        return {**_weights(proto, path, set(names)), **values}


def _ours(pairs: Sequence[Counterpart]) -> list[str]:
    return list(dict.fromkeys(name for p in pairs for name in (p.after, p.before, p.scale, p.zero) if name))


def _theirs(pairs: Sequence[Counterpart]) -> list[str]:
    return list(dict.fromkeys(each.tensor for each in pairs))


def _level(comparison: Comparison, found: Difference) -> Optimization:
    """Without optimisation where the model drifts there as well: nodes are then run as they are written."""
    levels = {each.optimization for each in mismatches(comparison)}
    return "disabled" if "disabled" in levels or found.optimization != "all" else "all"


def _weights(proto: ModelProto, path: Path, names: set[str]) -> dict[str, NDArray[Any]]:
    from onnx import numpy_helper

    from onnxgate.model.weights import UnreadableWeightError, chunks

    found = {}
    for tensor in proto.graph.initializer:
        if tensor.name in names:
            try:
                whole = type(tensor)(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
                whole.raw_data = b"".join(chunks(tensor, path))
                found[tensor.name] = numpy_helper.to_array(whole)
            except (UnreadableWeightError, OSError, ValueError, TypeError):
                continue
    return found


# The float model


def _read(path: Path, name: str, model: SelectedModel) -> Reading:
    if not path.is_file():
        raise UnfitError(f"there is no float model `{name}`")
    if path.resolve() == model.absolute.resolve():
        raise UnfitError(f"`{name}` is the model itself, and not what it came from")
    what = "a Git LFS pointer to content that is not here" if read_pointer(path) else really(path)
    if what:
        raise UnfitError(f"the float model `{name}` is {what}")
    try:
        return read(path, name)
    except UnreadableModel as error:
        raise UnfitError(f"the float model `{name}` is {error}") from error


def _require_same_interface(quantized: ModelFacts, real: ModelFacts, name: str) -> None:
    ours, theirs = ({value.name: value.type for value in facts.inputs} for facts in (quantized, real))
    if ours != theirs:
        differing = sorted(each for each in {*ours, *theirs} if ours.get(each) != theirs.get(each))
        raise UnfitError(f"the float model `{name}` takes other inputs: `{'`, `'.join(differing)}`")
    if len(quantized.outputs) != len(real.outputs):
        raise UnfitError(
            f"the float model `{name}` has {len(real.outputs)} outputs, the quantized one {len(quantized.outputs)}"
        )


def _newest(runtimes: Sequence[PlannedRuntime], name: str) -> PlannedRuntime:
    """The newest ONNX Runtime among the model's; it runs float models as they were evaluated."""
    fit = [each for each in runtimes if each.runtime.engine.startswith(ENGINE)] or list(runtimes)
    if not fit:
        raise UnfitError(f"there is no runtime to run the float model `{name}` on")
    return max(fit, key=lambda each: runtime_order(each.name))


def completed(answer: Observation, name: str) -> RunResult:
    """What a run gave.

    Raises:
        UnfitError: it gave nothing; `name` is what the message calls the model.
    """
    match answer:
        case Completed(result=RunResult() as result):
            failure = next((each.failure for each in result.cases if each.failure is not None), None)
            if failure is not None and all(each.failure is not None for each in result.cases):
                raise UnfitError(f"{name} does not run: {failure.type}: {_line(failure.text)}")
            return result
        case Refused(failure=failure):
            raise UnfitError(f"{name} does not load: {failure.type}: {_line(failure.text)}")
        case Crashed(signal=signal):
            raise UnfitError(f"{name} crashed its runtime ({signal})")
        case TimedOut(limit_s=limit_s):
            raise UnfitError(f"{name} gave nothing within {limit_s:g} s")
        case Unavailable(reason=reason):
            raise UnfitError(f"{name} was not run: {reason}")
        case _:
            raise UnfitError(f"{name} was not run")


def _line(text: str) -> str:
    return text.partition("\n")[0]
