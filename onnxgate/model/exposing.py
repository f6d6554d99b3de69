"""A model that gives intermediate values as outputs too: the same file, with a few bytes behind it.

A protobuf message may come in pieces: a second `graph` that holds outputs alone is merged into the first. So neither
nodes nor weights are read or written anew, however large the file is. The added outputs say no type: each is inferred.
Source: protobuf's encoding, "Last One Wins"; ONNX Runtime 1.16 to 1.31 load it, measured.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.model.cutting import needed
from onnxgate.model.external import data_file, entries, is_external
from onnxgate.model.linking import link
from onnxgate.model.reading import inputs
from onnxgate.model.structure import tensors

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

UNKNOWN_BYTES = 64 * 1024
"""What a value is taken to need where its shape is not known."""


@dataclass(frozen=True, slots=True)
class Step:
    """A node of the main graph as a search sees it; subgraphs and local functions are part of their node."""

    index: int
    inputs: tuple[str, ...]  # values that depend on what the model is fed; constants and weights are left out
    outputs: tuple[str, ...]


def steps(proto: ModelProto, outputs: Collection[str]) -> tuple[Step, ...]:
    """The nodes that these outputs need and that depend on what is fed, in the order of the file."""
    wanted, found = set(outputs), []
    alive = live(proto.graph)
    for index in range(len(proto.graph.node) - 1, -1, -1):
        node = proto.graph.node[index]
        taken = needed(node)
        if wanted.isdisjoint(node.output):
            continue
        wanted.update(taken)
        if not alive.isdisjoint(taken):
            kept = tuple(name for name in taken if name in alive)
            found.append(Step(index, kept, tuple(filter(None, node.output))))
    return tuple(reversed(found))


def live(graph: GraphProto) -> set[str]:
    """The values that depend on what the model is fed; nodes are in topological order."""
    alive = {value.name for value in inputs(graph)}
    for node in graph.node:
        if not alive.isdisjoint(needed(node)):
            alive.update(filter(None, node.output))
    return alive


def expose(proto: ModelProto, model: Path, names: Iterable[str], folder: Path) -> Path:
    """Write the model at `model` with these values as outputs behind its own into `folder`, which must not exist.

    `proto` is its structure. External data are linked there, or copied where that is not possible.

    Raises:
        OSError: the data cannot be read, or there is no room.
    """
    from onnx import GraphProto, ModelProto

    own = {value.name for value in proto.graph.output}
    added = GraphProto(output=[_output(name) for name in names if name not in own])
    folder.mkdir(parents=True)
    path = folder / "model.onnx"
    shutil.copyfile(model, path)
    with path.open("ab") as file:
        file.write(ModelProto(graph=added).SerializeToString())
    link_data(proto, model, folder)
    return path


def _output(name: str) -> ValueInfoProto:
    from onnx import ValueInfoProto

    return ValueInfoProto(name=name)


def link_data(proto: ModelProto, model: Path, folder: Path) -> None:
    """Have the external data of a model beside a copy of it. Runtimes refuse links that are not hard ones."""
    locations = {entries(tensor).get("location", "") for _, tensor in tensors(proto) if is_external(tensor)}
    for location in sorted(filter(None, locations)):
        file = data_file(model, location)
        if file.problem:
            raise OSError(f"its external data `{location}` are not there")
        target = folder / location
        target.parent.mkdir(parents=True, exist_ok=True)
        link(file.path, target)


def portions(proto: ModelProto, names: Sequence[str], sizes: Mapping[str, int], most_bytes: int) -> list[list[str]]:
    """The names in portions whose values take no more than `most_bytes` together, as far as shapes are known."""
    known = {value.name: value for value in (*proto.graph.value_info, *proto.graph.output)}
    found: list[list[str]] = [[]]
    filled = 0
    for name in names:
        size = _size_bytes(known.get(name), sizes)
        if found[-1] and filled + size > most_bytes:
            found.append([])
            filled = 0
        found[-1].append(name)
        filled += size
    return found


def _size_bytes(value: ValueInfoProto | None, sizes: Mapping[str, int]) -> int:
    if value is None or not value.type.tensor_type.HasField("shape"):
        return UNKNOWN_BYTES
    count = 4
    for dim in value.type.tensor_type.shape.dim:
        count *= max(dim.dim_value or sizes.get(dim.dim_param, 1), 1)
    return count
