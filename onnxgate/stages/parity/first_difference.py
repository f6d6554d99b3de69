"""The search for the first node that differs: what is run for it, and what is concluded.

Both sides give every value that the differing outputs depend on. The nodes at which the distance grows are then run
once more, each fed with the other side's values: the first that is off by itself is where the mismatch begins.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from onnxgate.core.jobs import Completed, InputCase, Observation, Refused, RunResult
from onnxgate.core.text import first_line
from onnxgate.evidence.parity import FirstDifference
from onnxgate.model.reading.fact_extraction import format_operator_name
from onnxgate.model.reading.tensor_data import UnreadableWeightError, read_chunks
from onnxgate.model.subgraphs.instrumented_models import (
    KnownValue,
    SearchNode,
    expose_values,
    isolate_nodes,
    list_search_nodes,
    split_by_size,
)
from onnxgate.model.subgraphs.node_context import find_source_line
from onnxgate.numerics.first_difference import (
    NO_DISTANCE,
    find_first_difference,
    find_suspects,
    longest_path,
    measure_distance,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

    from onnxgate.model.subgraphs.instrumented_models import IsolatedNodes
    from onnxgate.numerics.first_difference import Distance, Suspect

MAX_PORTION_BYTES = 512 * 1024 * 1024
"""So much of both sides' values is there at a time."""

RunCase = Callable[[Path, InputCase, Path], Observation]  # a model, what it is fed, an empty folder for its outputs
ValuePaths = dict[str, Path]
ReferenceValues = Callable[[Sequence[str]], Mapping[str, Path]]  # values of the candidate, as the other side has them


class SearchError(Exception):
    """The search cannot be done; the message says why."""


class NoFirstNodeError(Exception):
    """The mismatch does not begin at a node. The message describes where it begins."""


@dataclass(frozen=True, slots=True)
class DifferenceOrigin:
    """The origin of a mismatch, with the distances in the two complete computations."""

    node: int  # of the candidate's main graph
    output: str
    before: Distance
    after: Distance
    within: tuple[int, ...] = ()  # nodes before it whose values the other side has nothing for: it may be one of them
    since: str = ""  # an agreeing value before all of them; "" if these are the model's inputs
    fused: bool = False  # only while the optimiser may fuse the node with others


@dataclass(slots=True)
class SearchSide:
    """A model on one runtime at one level, with one case."""

    model: Path
    proto: ModelProto
    case: InputCase
    run: RunCase
    folder: Path  # for what is written; made as needed
    _count: Iterator[int] = field(default_factory=itertools.count)

    def values(self, names: Sequence[str]) -> ValuePaths:
        """The values of that name, as files; those that numpy cannot hold are left out.

        Raises:
            SearchError: it does not run with these values as outputs.
        """
        folder = self._place()
        try:
            path = expose_values(self.proto, self.model, names, folder / "model")
        except OSError as error:
            raise SearchError(f"a copy of the model cannot be made: {error}") from error
        wanted = set(names)
        return {name: at for name, at in self.outputs(path, self.case).items() if name in wanted}

    def outputs(self, model: Path, case: InputCase) -> ValuePaths:
        """Return the values of a model on this side."""
        folder = self._place()
        folder.mkdir(parents=True)
        match self.run(model, case, folder):
            case Completed(result=RunResult(outputs=names, cases=(got,))) if got.failure is None:
                return {name: Path(at) for name, at in zip(names, got.outputs, strict=True) if at is not None}
            case Completed(result=RunResult(cases=(got,))) if got.failure is not None:
                raise SearchError(f"with its values as outputs it does not run: {first_line(got.failure.text)}")
            case Refused(failure=failure):
                raise SearchError(f"with its values as outputs it does not load: {first_line(failure.text)}")
            case other:
                raise SearchError(f"with its values as outputs it does not run ({type(other).__name__.lower()})")

    def value(self, name: str, others: Sequence[str] = ()) -> Path:
        """One value, with others as outputs too."""
        got = self.values([*others, name])
        if name not in got:
            raise SearchError(f"numpy has no arrays of the type of `{name}`")
        return got[name]

    def _place(self) -> Path:
        return self.folder / str(next(self._count))


def compare_files(path: Path, other: Path) -> Distance:
    """Return the distance between two values in files."""
    return measure_distance(_load_array(path), _load_array(other))


def search_origin(
    side: SearchSide,
    reference: ReferenceValues,
    known: Collection[str] | None,
    outputs: Collection[str],
    *,
    exact: bool,
) -> DifferenceOrigin | None:
    """Find the first node whose output differs from the reference; None if no node differs by itself.

    `known` names the values that the reference has, None for all of them. `exact` says that both sides compute alike.

    Raises:
        SearchError: it cannot be done.
    """
    every = list_search_nodes(side.proto, outputs)
    distances: dict[str, Distance] = {}
    there: dict[str, Path] = {}
    names = [name for step in every for name in step.outputs if known is None or name in known]
    for portion in split_by_size(side.proto, names, side.case.sizes, MAX_PORTION_BYTES):
        _compare_values(side.values(portion), reference(portion), distances, there)
        suspects = find_suspects(every, distances)
        own = _measure_own_distances(side, suspects, there) if suspects else {}
        first = find_first_difference(suspects, own, exact=exact)
        if first is not None:
            within, since = _find_uncompared(every, first.step, there)
            return DifferenceOrigin(first.step.index, first.output, first.before, first.after, within, since)
    return None


def _compare_values(
    here: ValuePaths, there: Mapping[str, Path], distances: dict[str, Distance], kept: dict[str, Path]
) -> None:
    """Note how far apart the values are; the reference's are kept, to be fed."""
    for name, path in here.items():
        if name in there:
            distances[name] = measure_distance(_load_array(path), _load_array(there[name]))
            kept[name] = there[name]
        path.unlink()


def _measure_own_distances(
    side: SearchSide, suspects: Sequence[Suspect], there: Mapping[str, Path]
) -> dict[str, Distance]:
    """Measure how far each suspect is off when it is fed with the reference's values."""
    feeds = {**{name: Path(path) for name, path in side.case.inputs.items()}, **there}
    types = {name: types for name, path in feeds.items() if (types := _read_value_type(path)) is not None}
    isolated = isolate_nodes(side.proto, [suspect.step.index for suspect in suspects], types)
    case = InputCase(name="apart", origin="generated", inputs=_write_feeds(side, isolated, feeds))
    outputs = side.outputs(_write_model(side, isolated), case)
    return {
        name: measure_distance(_load_array(outputs[named]), _load_array(there[name]))
        for name, named in isolated.outputs.items()
        if named in outputs and name in there
    }


def _write_model(side: SearchSide, isolated: IsolatedNodes) -> Path:
    path = side._place() / "model.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(isolated.model.SerializeToString())
    return path


def _write_feeds(side: SearchSide, isolated: IsolatedNodes, there: Mapping[str, Path]) -> dict[str, str]:
    """Write the inputs of the nodes; weights that the structure left out are written as arrays."""
    folder = side._place()
    folder.mkdir(parents=True)
    weights = {
        tensor.name: _write_weight(tensor, side.model, folder / f"{number}.npy")
        for number, tensor in enumerate(isolated.weights)
    }
    return {name: str(path) for name, path in {**{name: there[name] for name in isolated.values}, **weights}.items()}


def _write_weight(tensor: Any, model: Path, path: Path) -> Path:
    kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if kind.kind not in "fiubc":
        raise SearchError(f"weight `{tensor.name}` is of a type that numpy does not have")
    try:
        data = b"".join(read_chunks(tensor, model))
    except UnreadableWeightError as reason:
        raise SearchError(f"weight `{tensor.name}`: {reason}") from reason
    np.save(path, np.frombuffer(data, kind).reshape(tuple(tensor.dims)), allow_pickle=False)
    return path


def _read_value_type(path: Path) -> KnownValue | None:
    array = _load_array(path)
    kind = array.dtype if array.dtype.kind != "U" else "O"
    try:
        return KnownValue(int(helper.np_dtype_to_tensor_dtype(_as_dtype(kind))), array.shape)
    except (KeyError, ValueError):
        return None


def _as_dtype(kind: Any) -> Any:
    return np.dtype(kind)


def _find_uncompared(
    every: Sequence[SearchNode], step: SearchNode, there: Collection[str]
) -> tuple[tuple[int, ...], str]:
    """The nodes before one whose values were never compared, and a compared value that they begin from."""
    makers = {name: step for step in every for name in step.outputs}
    inside: set[int] = set()
    since: list[str] = []
    ahead = list(step.inputs)
    while ahead:
        name = ahead.pop()
        maker = makers.get(name)
        if name in there:
            since.append(name)
        elif maker is not None and maker.index not in inside:
            inside.add(maker.index)
            ahead += maker.inputs
    order = {name: each.index for name, each in makers.items()}
    return tuple(sorted(inside)), max(since, key=lambda name: order.get(name, -1), default="")


def search_across_levels(plain: SearchSide, optimised: SearchSide, output: str) -> DifferenceOrigin | None:
    """Find where an output begins to differ between two optimisation levels of one runtime.

    Node by node, where the mismatch stays while every value is an output; else what is fused is looked for.

    Raises:
        SearchError: it cannot be done.
    """
    names = [name for step in list_search_nodes(plain.proto, [output]) for name in step.outputs]
    right = plain.value(output)
    limit = compare_files(optimised.value(output), right).relative / 8
    try:
        if compare_files(optimised.value(output, names), right).relative > limit:
            return search_origin(optimised, plain.values, None, [output], exact=False) or _search_fusion(
                plain, optimised, output, limit
            )
    except SearchError:  # some releases do not load a model with that many outputs at this level
        pass
    return _search_fusion(plain, optimised, output, limit)


def _search_fusion(plain: SearchSide, optimised: SearchSide, output: str, limit: float) -> DifferenceOrigin | None:
    """The same where only the optimiser's fusion is wrong: one value on the way at a time is made an output.

    That keeps the optimiser from fusing over it. `limit` is how far off a value may be, relative to its largest one.
    """
    every = list_search_nodes(plain.proto, [output])
    way = longest_path(every, output)
    right = plain.values([*way])
    low, high = -1, len(way) - 1
    before, after = NO_DISTANCE, NO_DISTANCE
    while high - low > 1:
        middle = (low + high) // 2
        got = optimised.values([way[middle], output])
        here, end = compare_files(got[way[middle]], right[way[middle]]), compare_files(got[output], right[output])
        if end.relative <= limit and here.relative <= limit:
            return DifferenceOrigin(_producer_index(every, way[middle]), way[middle], here, after, fused=True)
        if here.relative > limit:
            high, after = middle, here
        else:
            low, before = middle, here
    if high == len(way) - 1:
        after = compare_files(optimised.value(output), right[output])
    return DifferenceOrigin(_producer_index(every, way[high]), way[high], before, after)


def create_first_difference(
    proto: ModelProto, begun: DifferenceOrigin, case: str, root: Path, folder: Path, detail: str = ""
) -> FirstDifference:
    """Create the evidence. Places are relative to `folder`, the config's."""
    node = proto.graph.node[begun.node]
    if begun.fused:
        detail = "where the optimiser fuses it with others"
    elif not detail and begun.within:
        detail = _describe_uncompared(proto, begun)
    return FirstDifference(
        node=node.name,
        operator=format_operator_name(node),
        output=begun.output,
        place=find_source_line(node, root, folder),
        case=case,
        value=begun.after.largest,
        before=begun.before.largest,
        share=begun.after.relative,
        before_share=begun.before.relative,
        detail=detail,
    )


def _describe_uncompared(proto: ModelProto, begun: DifferenceOrigin) -> str:
    """Which other nodes it may be."""
    if len(begun.within) == 1:
        node = proto.graph.node[begun.within[0]]
        return f"or at the {format_operator_name(node)} before it"
    since = f"between `{begun.since}` and it" if begun.since else "before it"
    return f"or at one of the {len(begun.within)} nodes {since}"


def _producer_index(every: Sequence[SearchNode], name: str) -> int:
    return next(step.index for step in every if name in step.outputs)


def _load_array(path: Path) -> NDArray[Any]:
    array: NDArray[Any] = np.load(path, allow_pickle=False, mmap_mode="r" if path.stat().st_size > 1 << 20 else None)
    return array
