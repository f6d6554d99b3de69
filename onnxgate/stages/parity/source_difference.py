"""Search for the first node that differs from the source of a model.

The source is represented by a fresh export, whose values are matched with those of the committed model, or by its
exported program, whose values have the names that the exporter also writes to the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core import jobs
from onnxgate.core.text import first_line
from onnxgate.model.equality.model_comparison import GraphComparison, WeightPair
from onnxgate.model.reading.fact_extraction import list_inputs
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.structure import read_view
from onnxgate.model.reading.tensor_data import UnreadableWeightError, compare_tensors
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.instrumented_models import find_live_values
from onnxgate.model.subgraphs.reduced_models import list_needed_values
from onnxgate.stages.parity.first_difference import (
    DifferenceOrigin,
    ReferenceValues,
    SearchError,
    SearchSide,
    search_origin,
)

if TYPE_CHECKING:
    from onnx import ModelProto

MAX_TRACE_BYTES = 4 * 1024 * 1024 * 1024
"""Maximum total size in bytes of the values that the source writes."""
MAX_ROUNDING_RATIO = 1e-4
"""Differences below this share of the largest output value are treated as single-precision rounding."""
SAME_AS_PROGRAM = (
    "the model matches the exported program of its source, so the source behaves differently during export"
)

SubmitToolchainJob = Callable[[jobs.Job], jobs.Observation]


class NoFirstNodeError(Exception):
    """No node causes the mismatch; the message describes its origin."""


@dataclass(frozen=True, slots=True)
class FreshExport:
    """Fresh export whose values are matched with those of the committed model."""

    path: Path
    proto: ModelProto
    names: Mapping[str, str]  # value in the committed model -> value in the fresh export
    weights: tuple[WeightPair, ...]

    def reference(self, side: SearchSide) -> ReferenceValues:
        """Return a function that runs the fresh export and returns its outputs, by their committed names."""

        def values(names: Sequence[str]) -> Mapping[str, Path]:
            fresh = side.values([self.names[name] for name in names])
            return {name: fresh[self.names[name]] for name in names if self.names[name] in fresh}

        return values


def match_fresh_export(committed: ModelProto, model: Path, path: Path) -> FreshExport | None:
    """Match the export at `path` with the committed model; None if the export is not a model."""
    try:
        view = read_view(path)
    except (OSError, UnreadableModel):
        return None
    matching = GraphComparison(ModelView(committed), model, view, path)
    names = matching.values | _match_changed_nodes(committed, view.proto, matching.values)
    names |= _match_outputs(committed, view.proto)
    return FreshExport(path, view.proto, names, tuple(matching.weights))


def rename_inputs(case: jobs.InputCase, committed: ModelProto, fresh: ModelProto) -> jobs.InputCase:
    """Return a case of the committed model with the inputs of a fresh export.

    As for the source, inputs are matched by name if the names are the same, and otherwise by position. One of both
    exports may lack unused inputs.
    """
    names, others = ([value.name for value in list_inputs(proto.graph)] for proto in (committed, fresh))
    if set(others).issubset(names):
        return msgspec.structs.replace(case, inputs={it: path for it, path in case.inputs.items() if it in others})
    if set(names).issubset(others) or len(names) != len(others):
        return case
    renamed = dict(zip(names, others, strict=True))
    return msgspec.structs.replace(case, inputs={renamed.get(it, it): path for it, path in case.inputs.items()})


def _match_outputs(committed: ModelProto, fresh: ModelProto) -> dict[str, str]:
    """Match outputs by position, as they are compared with the source.

    A node that was added before an output does not match any node, and swapped outputs match others by name.
    """
    outputs, others = ([value.name for value in proto.graph.output] for proto in (committed, fresh))
    return dict(zip(outputs, others, strict=True)) if len(outputs) == len(others) else {}


def _match_changed_nodes(committed: ModelProto, fresh: ModelProto, matched: Mapping[str, str]) -> dict[str, str]:
    """Match outputs of nodes that differ, such as another operator: they have the same name and a common input."""
    makers = {name: node for node in fresh.graph.node for name in node.output if name}
    for name in matched.values():
        makers.pop(name, None)
    alive = find_live_values(fresh.graph)
    return {
        name: name
        for node in committed.graph.node
        for name in node.output
        if name in makers
        and name not in matched
        and not alive.intersection(makers[name].input).isdisjoint(map(matched.get, node.input))
    }


def describe_differing_weight(
    fresh: FreshExport, committed: ModelProto, path: Path, origin: DifferenceOrigin | None
) -> str:
    """Describe the first weight of the node that differs from the fresh export; "" if no weight differs."""
    names = set(find_node_weights(committed, origin.node)) if origin is not None else set()
    for pair in fresh.weights:
        old, new = pair.old, pair.new
        if old.name not in names:
            continue
        try:
            is_changed = (
                old.data_type != new.data_type
                or list(old.dims) != list(new.dims)
                or compare_tensors(old, path, new, fresh.path) is not None
            )
        except UnreadableWeightError:
            continue
        if is_changed:
            return f"whose weight `{old.name}` differs from the source"
    return ""


def find_node_weights(proto: ModelProto, index: int) -> Iterator[str]:
    """Yield the weights that a node uses directly, or through nodes that depend only on weights."""
    alive = find_live_values(proto.graph)
    makers = {name: node for node in proto.graph.node for name in node.output if name}
    weights = {tensor.name for tensor in proto.graph.initializer}
    ahead = [*list_needed_values(proto.graph.node[index])]
    visited: set[str] = set()
    while ahead:
        name = ahead.pop()
        if name in visited:
            continue
        visited.add(name)
        if name in weights:
            yield name
        elif name in makers and name not in alive:
            ahead += list_needed_values(makers[name])


def create_fresh_export(source: jobs.Export, submit: SubmitToolchainJob, folder: Path) -> Path | None:
    """Export a source that has so far only computed outputs; None if the export fails."""
    folder.mkdir(parents=True)
    job = msgspec.structs.replace(source, output=str(folder), cases=(), export=True, eager=False, float64=False)
    match submit(job):
        case jobs.Completed(result=jobs.ExportResult(model=str(path))):
            return Path(path)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class SourceProgram:
    """The exported program of a source, which runs in the toolchain and writes its values to the new `folder`."""

    source: jobs.Export
    submit: SubmitToolchainJob
    folder: Path

    def trace(self, case: jobs.InputCase, names: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
        """Run the program, and return the files with its values of these names.

        Raises:
            SearchError: the program does not run.
        """
        self.folder.mkdir(parents=True)
        trace = jobs.Trace(
            source=self.source.source,
            folder=self.source.folder,
            opset=self.source.opset,
            case=case,
            names=tuple(names),
            outputs=tuple(outputs),
            output=str(self.folder),
            limit_bytes=MAX_TRACE_BYTES,
            committed=self.source.committed,
        )
        return _require_values(self.submit(trace))


def search_program_values(
    program: SourceProgram,
    side: SearchSide,
    fresh: FreshExport | None,
    searched: Sequence[str],
    added: Collection[str] = (),
) -> DifferenceOrigin | None:
    """Find where outputs begin to differ from the exported program of the source, by comparing values by name.

    The program has no inputs and outputs of the names in `added`.

    Raises:
        SearchError: the search failed.
        NoFirstNodeError: the model matches the exported program, but that program differs from the source.
    """
    own_names = {name: name for node in side.proto.graph.node for name in node.output if name}
    names, exported = (fresh.names, fresh.proto) if fresh is not None else (own_names, side.proto)
    inputs = {name: path for name, path in side.case.inputs.items() if name not in added}
    outputs = [value.name for value in exported.graph.output if value.name not in added]
    values = program.trace(msgspec.structs.replace(side.case, inputs=inputs), [*names.values()], outputs)
    reference = {name: Path(values[traced]) for name, traced in names.items() if traced in values}
    if not reference.keys() - {value.name for value in side.proto.graph.output}:
        raise SearchError(
            "no intermediate value has the same name in the model and in the exported program of its source"
        )
    origin = search_origin(
        side, lambda portion: {name: reference[name] for name in portion}, reference, searched, exact=False
    )
    compared = [it for it in searched if it in reference] if origin is None else []
    distances = [side.compare(output, side.value(output), reference[output]).relative for output in compared]
    if any(distance < MAX_ROUNDING_RATIO for distance in distances):
        raise NoFirstNodeError(SAME_AS_PROGRAM)
    return origin


def _require_values(observation: jobs.Observation) -> dict[str, str]:
    prefix = "the exported program of the source could not be run"
    match observation:
        case jobs.Completed(result=jobs.TraceResult(failure=None, values=values)):
            return values
        case jobs.Completed(result=jobs.TraceResult(failure=failure)) if failure is not None:
            raise SearchError(f"{prefix}: {failure.type}: {first_line(failure.text)}")
        case _:
            raise SearchError(f"{prefix} ({type(observation).__name__.lower()})")
