"""Comparison of the input of a saturated activation instead of its output.

Far below zero, a sigmoid returns zeros or rounding errors, which show nothing about the network before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.jobs import Completed, RunResult
from onnxgate.evidence.parity import Comparison
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns
from onnxgate.model.subgraphs.instrumented_models import expose_values
from onnxgate.numerics.streams import iter_parts, load_array
from onnxgate.numerics.tolerance import choose_bound
from onnxgate.stages.parity.output_comparison import ParityModel
from onnxgate.stages.parity.run_outputs import list_outputs
from onnxgate.stages.parity.stage import NEGLIGIBLE, ParityEvidence
from onnxgate.stages.runtime import ObservedRun

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

ACTIVATIONS = frozenset({"Exp", "HardSigmoid", "Sigmoid", "Softmax", "Softplus"})
"""Operators whose output is near zero for many inputs."""
_PASSING_OPERATORS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that do not change values."""


@dataclass(frozen=True, slots=True)
class SaturatedOutput:
    """An output near zero, and the activation that computes it."""

    name: str
    operator: str
    value: str  # input of the activation


CompareRuns = Callable[[ParityModel, Path, Sequence[ObservedRun]], ParityEvidence]
"""Compares all outputs of runs of the model at a path."""


@dataclass(frozen=True, slots=True)
class SaturatedComparison:
    """Compares the inputs of saturated activations of a model without a source."""

    extra: ExtraRuns
    compare_runs: CompareRuns

    def compare(
        self,
        model: ParityModel,
        path: Path,
        proto: ModelProto,
        ran: Sequence[ObservedRun],
        reasons: Sequence[IncompleteCheck],
    ) -> ParityEvidence:
        """Return the comparisons of the model at `path`, and `reasons` without the outputs that were compared.

        An output that cannot be compared in this way on each runtime remains undecided.
        """
        candidates = find_saturated_outputs(proto.graph)
        outputs = [output for output in candidates if _is_near_zero(model, output.name, ran)]
        if not outputs:
            return (), tuple(reasons)
        try:
            exposed = expose_values(proto, path, {output.value: None for output in outputs}, self.extra.place())
        except OSError:
            return (), tuple(reasons)
        runs = self.extra.repeat(self.extra.list_completed(ran), exposed, {})
        comparisons, left = list[Comparison](), list(reasons)
        for output in outputs:
            selected = [_select_value(run, output.value) for run in runs]
            if not _has_all_values(ran, selected, output):
                continue
            found, missing = self.compare_runs(_rename_in_model(model, output), exposed, selected)
            comparisons += (_name_output(comparison, output) for comparison in found)
            if found and all(entry.by_design for entry in missing):
                left = [entry for entry in left if entry.cause != f"{NEGLIGIBLE}{output.name}"]
                left += (_describe(model, output), *(_name_value(entry, output) for entry in missing))
        return tuple(comparisons), tuple(left)


def find_saturated_outputs(graph: GraphProto) -> Iterator[SaturatedOutput]:
    """Find the outputs that may be saturated: those of activations whose input is computed by a node."""
    producers = {name: node for node in graph.node for name in node.output if name}
    for name in (output.name for output in graph.output):
        node = producers.get(name)
        passed: set[str] = set()
        while node is not None and not node.domain and node.op_type in _PASSING_OPERATORS:
            if node.input[0] in passed:  # the graph is not acyclic
                node = None
                break
            passed.add(node.input[0])
            node = producers.get(node.input[0])
        if node is not None and not node.domain and node.op_type in ACTIVATIONS and node.input[0] in producers:
            yield SaturatedOutput(name, node.op_type, node.input[0])


def _is_near_zero(model: ParityModel, name: str, ran: Sequence[ObservedRun]) -> bool:
    """Return whether an output that is compared by element is zero within its tolerance in each run."""
    traits = model.comparability
    if traits.quantized or traits.is_random(name) or any(name in ranked.axes for ranked in model.ranked):
        return False
    paths = [path for *_, path in _iter_results(ran, name)]
    return bool(paths) and all(_is_file_near_zero(model, name, path) for path in paths)


def _is_file_near_zero(model: ParityModel, name: str, path: str) -> bool:
    array, half = load_array(path), model.comparability.half
    bound = choose_bound(model.tolerance, model.locked, name, array.dtype, half=half, noise=model.noise)
    if array.dtype.kind != "f" or not array.size or bound.bound_from == "config":
        return False
    return all(bool((np.abs(part) <= bound.atol).all()) for part in iter_parts(array))


def _select_value(run: ObservedRun, value: str) -> ObservedRun:
    """Return the run with this value as its only output."""
    match run.observation:
        case Completed(result=RunResult(outputs=names) as result) if value in names:
            at = names.index(value)
            cases = tuple(msgspec.structs.replace(case, outputs=case.outputs[at : at + 1]) for case in result.cases)
            result = msgspec.structs.replace(result, outputs=(value,), cases=cases)
            return replace(run, observation=msgspec.structs.replace(run.observation, result=result))
        case _:
            return run


def _has_all_values(ran: Sequence[ObservedRun], selected: Sequence[ObservedRun], output: SaturatedOutput) -> bool:
    """Return whether the value is known for each runtime, level and case for which the output is known."""
    expected, actual = _iter_results(ran, output.name), _iter_results(selected, output.value)
    return {tuple(key) for *key, _ in expected} == {tuple(key) for *key, _ in actual}


def _iter_results(runs: Sequence[ObservedRun], name: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield runtime, optimization level, case and file of the results of one output."""
    for run in runs:
        if isinstance(run.observation, Completed) and isinstance(run.observation.result, RunResult):
            for (case, output), path in list_outputs(run.job.cases, run.observation.result).paths.items():
                if output == name and path is not None:
                    yield run.runtime, run.job.optimization, case, path


def _rename_in_model(model: ParityModel, output: SaturatedOutput) -> ParityModel:
    """Return the model for a comparison of the value: masks are kept, and measurements of outputs are not used."""
    masks = {(case, output.value): mask for (case, name), mask in model.masks.items() if name == output.name}
    return replace(model, masks=masks, noise=None, ranked=())


def _name_output(comparison: Comparison, output: SaturatedOutput) -> Comparison:
    differences = tuple(
        msgspec.structs.replace(difference, output=output.name, compared=output.value)
        for difference in comparison.differences
    )
    return msgspec.structs.replace(comparison, differences=differences)


def _name_value(entry: IncompleteCheck, output: SaturatedOutput) -> IncompleteCheck:
    """Return the entry with the value named as such instead of as an output."""
    return replace(entry, reason=entry.reason.replace(f"output `{output.value}`", f"value `{output.value}`"))


def _describe(model: ParityModel, output: SaturatedOutput) -> IncompleteCheck:
    reason = (
        f"output `{output.name}` saturates near zero with these inputs, so the input of its `{output.operator}` was "
        f"compared instead"
    )
    return IncompleteCheck(Stage.PARITY, model.path, "", reason, by_design=True)
