"""References for a comparison value by value: a fresh export of the source, or the source's own program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.jobs import Completed, Export, ExportResult, Job, Observation, Trace, TraceResult
from onnxgate.model.equality.model_comparison import GraphComparison, WeightPair
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.structure import read_structure
from onnxgate.model.reading.tensor_data import UnreadableWeightError, compare_tensors
from onnxgate.model.subgraphs.instrumented_models import find_live_values
from onnxgate.model.subgraphs.reduced_models import list_needed_values
from onnxgate.stages.parity.first_difference import (
    DifferenceOrigin,
    NoFirstNodeError,
    ReferenceValues,
    SearchError,
    SearchSide,
    compare_files,
    search_origin,
)

if TYPE_CHECKING:
    from onnx import ModelProto

SubmitToolchainJob = Callable[[Job], Observation]  # the toolchain
MAX_TRACE_BYTES = 4 * 1024 * 1024 * 1024
"""So much of the source's values is written down."""
MAX_ROUNDING_RATIO = 1e-4
"""Outputs nearer than this, as a share of their largest value, are alike but for rounding in single precision."""
SAME_AS_PROGRAM = (
    "what it computes is what the exported program computes: its source takes another way where it is exported"
)


@dataclass(frozen=True, slots=True)
class FreshExport:
    """A fresh export matched with the committed model."""

    path: Path
    proto: ModelProto
    names: Mapping[str, str]  # value of the committed model -> what the fresh one calls it
    weights: tuple[WeightPair, ...]

    def reference(self, side: SearchSide) -> ReferenceValues:
        """The values of the fresh export under the committed model's names; `side` runs the fresh one."""

        def values(names: Sequence[str]) -> Mapping[str, Path]:
            got = side.values([self.names[name] for name in names])
            return {name: got[self.names[name]] for name in names if self.names[name] in got}

        return values


def match_fresh_export(committed: ModelProto, model: Path, path: Path) -> FreshExport | None:
    """Match the export at `path` with the committed model at `model`; None if it is not a model."""
    try:
        proto = read_structure(path)
    except (OSError, UnreadableModel):
        return None
    matching = GraphComparison(committed, model, proto, path)
    return FreshExport(path, proto, matching.values, tuple(matching.weights))


def describe_differing_weight(
    fresh: FreshExport, committed: ModelProto, path: Path, begun: DifferenceOrigin | None
) -> str:
    """Describe the weight of the node that differs from the source's; "" if none does."""
    if begun is None:
        return ""
    used = set(find_node_weights(committed, begun.node))
    for pair in fresh.weights:
        if pair.old.name in used and _is_weight_changed(pair, path, fresh.path):
            return f"whose weight `{pair.old.name}` is not the source's"
    return ""


def _is_weight_changed(pair: WeightPair, old: Path, new: Path) -> bool:
    if pair.old.data_type != pair.new.data_type or list(pair.old.dims) != list(pair.new.dims):
        return True
    try:
        return compare_tensors(pair.old, old, pair.new, new) is not None
    except UnreadableWeightError:
        return False


def find_node_weights(proto: ModelProto, index: int) -> Iterator[str]:
    """The weights that a node uses, be it through nodes that depend on nothing else."""
    alive = find_live_values(proto.graph)
    makers = {name: node for node in proto.graph.node for name in node.output if name}
    weights = {tensor.name for tensor in proto.graph.initializer}
    ahead = [*list_needed_values(proto.graph.node[index])]
    while ahead:
        name = ahead.pop()
        if name in weights:
            yield name
        elif name in makers and name not in alive:
            ahead += list_needed_values(makers[name])


def create_fresh_export(source: Export, ask: SubmitToolchainJob, folder: Path) -> Path | None:
    """Export a source of which only outputs were computed before; None if it fails."""
    folder.mkdir(parents=True)
    job = msgspec.structs.replace(source, output=str(folder), cases=(), export=True, eager=False, float64=False)
    match ask(job):
        case Completed(result=ExportResult(model=str(path))):
            return Path(path)
        case _:
            return None


def search_program_values(
    source: Export, ask: SubmitToolchainJob, side: SearchSide, fresh: FreshExport | None, output: str, folder: Path
) -> DifferenceOrigin | None:
    """Find where an output begins to differ from the source's own program, by values of equal names.

    Raises:
        SearchError: it cannot be done.
        AtNoNodeError: it does not differ from that program, which is not what the source computes by itself.
    """
    names = _value_names(side.proto, fresh)
    folder.mkdir(parents=True)
    holder = fresh.proto if fresh else side.proto
    trace = Trace(
        source=source.source,
        folder=source.folder,
        opset=source.opset,
        case=side.case,
        names=tuple(names.values()),
        outputs=tuple(value.name for value in holder.graph.output),
        output=str(folder),
        limit_bytes=MAX_TRACE_BYTES,
    )
    values = _require_values(ask(trace))
    there = {name: Path(values[other]) for name, other in names.items() if other in values}
    inner = there.keys() - {value.name for value in side.proto.graph.output}
    if not inner:
        raise SearchError("no inner value of the model is called as the exported program of its source calls it")
    begun = search_origin(side, lambda wanted: {name: there[name] for name in wanted}, there, [output], exact=False)
    if (
        begun is None
        and output in there
        and compare_files(side.value(output), there[output]).relative < MAX_ROUNDING_RATIO
    ):
        raise NoFirstNodeError(SAME_AS_PROGRAM)
    return begun


def _value_names(proto: ModelProto, fresh: FreshExport | None) -> Mapping[str, str]:
    if fresh is not None:
        return fresh.names
    return {name: name for node in proto.graph.node for name in node.output if name}


def _require_values(observation: Observation) -> dict[str, str]:
    match observation:
        case Completed(result=TraceResult(failure=None, values=values)):
            return values
        case Completed(result=TraceResult(failure=failure)) if failure is not None:
            text = failure.text.strip().partition("\n")[0]
            raise SearchError(f"the program of its source gives no values: {failure.type}: {text}")
        case other:
            raise SearchError(f"the program of its source gives no values ({type(other).__name__.lower()})")
