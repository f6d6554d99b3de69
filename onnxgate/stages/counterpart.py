"""What a model is held against value by value: a fresh export of its source, or the source's own program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.model.matching import Matching, WeightPair
from onnxgate.model.structure import UnreadableModel, read_structure
from onnxgate.model.weights import UnreadableWeightError, difference
from onnxgate.runtimes.jobs import Completed, Export, ExportResult, Job, Observation, Trace, TraceResult
from onnxgate.stages.beginning import AtNoNodeError, Begun, Reference, SearchError, Side, gap, search

if TYPE_CHECKING:
    from onnx import ModelProto

Ask = Callable[[Job], Observation]  # the toolchain
TRACE_BYTES = 4 * 1024 * 1024 * 1024
"""So much of the source's values is written down."""
ALIKE = 1e-4
"""Outputs nearer than this, as a share of their largest value, are alike but for rounding in single precision."""
OTHERWISE = "what it computes is what the exported program computes: its source takes another way where it is exported"


@dataclass(frozen=True, slots=True)
class Fresh:
    """A fresh export beside the committed model."""

    path: Path
    proto: ModelProto
    names: Mapping[str, str]  # value of the committed model -> what the fresh one calls it
    weights: tuple[WeightPair, ...]
    whole: bool  # the graphs are the same but for weights

    def reference(self, side: Side) -> Reference:
        """The values of the fresh export under the committed model's names; `side` runs the fresh one."""

        def values(names: Sequence[str]) -> Mapping[str, Path]:
            got = side.values([self.names[name] for name in names])
            return {name: got[self.names[name]] for name in names if self.names[name] in got}

        return values


def fresh_of(committed: ModelProto, path: Path) -> Fresh | None:
    """The export at `path` matched with the committed model; None where it is no model."""
    try:
        proto = read_structure(path)
    except (OSError, UnreadableModel):
        return None
    matching = Matching(committed, proto)
    return Fresh(path, proto, matching.values, tuple(matching.weights), not matching.found)


def said_weight(fresh: Fresh, committed: ModelProto, path: Path, begun: Begun | None) -> str:
    """In words, the weight of the node that is not the source's; "" where none differs."""
    if begun is None:
        return ""
    used = set(constants(committed, begun.node))
    for pair in fresh.weights:
        if pair.old.name in used and _differs(pair, path, fresh.path):
            return f"whose weight `{pair.old.name}` is not the source's"
    return ""


def _differs(pair: WeightPair, old: Path, new: Path) -> bool:
    if pair.old.data_type != pair.new.data_type or list(pair.old.dims) != list(pair.new.dims):
        return True
    try:
        return difference(pair.old, old, pair.new, new) is not None
    except UnreadableWeightError:
        return False


def constants(proto: ModelProto, index: int) -> Iterator[str]:
    """The weights that a node uses, be it through nodes that depend on nothing else."""
    from onnxgate.model.cutting import needed
    from onnxgate.model.exposing import live

    alive = live(proto.graph)
    made = {name: node for node in proto.graph.node for name in node.output if name}
    weights = {tensor.name for tensor in proto.graph.initializer}
    ahead = [*needed(proto.graph.node[index])]
    while ahead:
        name = ahead.pop()
        if name in weights:
            yield name
        elif name in made and name not in alive:
            ahead += needed(made[name])


def exported_anew(source: Export, ask: Ask, folder: Path) -> Path | None:
    """A fresh export of a source of which only outputs were asked for before; None where it fails."""
    folder.mkdir(parents=True)
    job = msgspec.structs.replace(source, output=str(folder), cases=(), export=True, eager=False, float64=False)
    match ask(job):
        case Completed(result=ExportResult(model=str(path))):
            return Path(path)
        case _:
            return None


def search_trace(source: Export, ask: Ask, side: Side, fresh: Fresh | None, output: str, folder: Path) -> Begun | None:
    """Where an output begins to differ from the source's own program, as far as values are named alike.

    Raises:
        SearchError: it cannot be done.
        AtNoNodeError: it does not differ from that program, which is not what the source computes by itself.
    """
    names = _names(side.proto, fresh)
    folder.mkdir(parents=True)
    holder = fresh.proto if fresh else side.proto
    asked = Trace(
        source=source.source,
        folder=source.folder,
        opset=source.opset,
        case=side.case,
        names=tuple(names.values()),
        outputs=tuple(value.name for value in holder.graph.output),
        output=str(folder),
        limit_bytes=TRACE_BYTES,
    )
    values = _answered(ask(asked))
    there = {name: Path(values[other]) for name, other in names.items() if other in values}
    inner = there.keys() - {value.name for value in side.proto.graph.output}
    if not inner:
        raise SearchError("no inner value of the model is called as the exported program of its source calls it")
    begun = search(side, lambda wanted: {name: there[name] for name in wanted}, there, [output], exact=False)
    if begun is None and output in there and gap(side.value(output), there[output]).relative < ALIKE:
        raise AtNoNodeError(OTHERWISE)
    return begun


def _names(proto: ModelProto, fresh: Fresh | None) -> Mapping[str, str]:
    if fresh is not None:
        return fresh.names
    return {name: name for node in proto.graph.node for name in node.output if name}


def _answered(observation: Observation) -> dict[str, str]:
    match observation:
        case Completed(result=TraceResult(failure=None, values=values)):
            return values
        case Completed(result=TraceResult(failure=failure)) if failure is not None:
            said = failure.text.strip().partition("\n")[0]
            raise SearchError(f"the program of its source gives no values: {failure.type}: {said}")
        case other:
            raise SearchError(f"the program of its source gives no values ({type(other).__name__.lower()})")
