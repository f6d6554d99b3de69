"""Search for the first node that differs from a reference.

Both sides compute every value that the differing outputs depend on. The nodes at which the distance grows are then run
in isolation, with the values of the reference as inputs. The mismatch begins at the first node that still differs. The
reference is another run of the model, a fresh export of its source, or the exported program of the source.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

from onnxgate.core import jobs
from onnxgate.core.text import first_line
from onnxgate.evidence.parity import FirstDifference
from onnxgate.model.reading.fact_extraction import format_operator_name
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.omitted_data import restore_lists
from onnxgate.model.reading.tensor_data import UnreadableWeightError, read_chunks
from onnxgate.model.subgraphs.instrumented_models import (
    KnownValue,
    SearchNode,
    expose_values,
    find_token_values,
    isolate_nodes,
    list_search_nodes,
    split_by_size,
)
from onnxgate.model.subgraphs.node_context import find_source_line
from onnxgate.numerics.first_difference import (
    MIN_GROWTH,
    NO_DISTANCE,
    Distance,
    Suspect,
    find_first_difference,
    find_suspects,
    longest_path,
    measure_distance,
)
from onnxgate.numerics.streams import iter_parts, load_array, save_chunks
from onnxgate.stages.parity.output_comparison import OutputMask

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto, NodeProto, TensorProto

MAX_PORTION_BYTES = 512 * 1024 * 1024
"""Maximum total size in bytes of the values that both sides store at the same time."""

RunCase = Callable[[Path, jobs.InputCase], jobs.Observation]  # model and inputs
ReferenceValues = Callable[[Sequence[str]], Mapping[str, Path]]  # values of the reference, by name in the candidate


class SearchError(Exception):
    """The search failed; the message is the reason."""


@dataclass(frozen=True, slots=True)
class DifferenceOrigin:
    """Node at which a mismatch starts, with the distances between candidate and reference before and after this node.

    The distances are measured in runs of the whole model.
    """

    node: int  # index in the candidate's main graph
    output: str
    before: Distance
    after: Distance
    within: tuple[int, ...] = ()  # preceding nodes without reference values, any of which may be the origin
    since: str = ""  # an equal value before these nodes; "" for the model inputs
    fused: bool = False  # the node differs only if the optimizer fuses it with other nodes


@dataclass(frozen=True, slots=True)
class SearchMask:
    """Tokens of a case to compare (batch, time), and the values that contain tokens, not only the mask itself."""

    tokens: NDArray[np.bool_]
    values: frozenset[str]


def create_search_mask(proto: ModelProto, case: jobs.InputCase, mask: OutputMask | None) -> SearchMask | None:
    """Create the mask for intermediate values from the mask of an output; None if no token is masked."""
    tokens = mask.tokens() if mask is not None else None
    if mask is None or tokens is None:
        return None
    names = [name for name, path in case.inputs.items() if path == mask.path]
    return SearchMask(tokens, find_token_values(proto.graph, names[0])) if names else None


@dataclass(slots=True)
class SearchSide:
    """A model on one runtime at one optimization level, with one case."""

    model: Path
    proto: ModelProto
    case: jobs.InputCase
    run: RunCase
    folder: Path  # folder for written files; created when needed
    mask: SearchMask | None = None
    _count: Iterator[int] = field(default_factory=itertools.count)

    def values(self, names: Sequence[str]) -> dict[str, Path]:
        """Return the files with the values of these names, except values of types that NumPy does not support.

        Raises:
            SearchError: the model does not run with these values as outputs.
        """
        try:
            path = expose_values(self.proto, self.model, names, self.folder / str(next(self._count)) / "model")
        except OSError as error:
            raise SearchError(f"the model cannot be copied: {error}") from error
        requested = set(names)
        return {name: file for name, file in self.outputs(path, self.case).items() if name in requested}

    def outputs(self, model: Path, case: jobs.InputCase) -> dict[str, Path]:
        """Run a model on this side and return its output files by name."""
        prefix = "with intermediate values as outputs, the model does not"
        match self.run(model, case):
            case jobs.Completed(result=jobs.RunResult(outputs=names, cases=(result,))) if result.failure is None:
                return {name: Path(at) for name, at in zip(names, result.outputs, strict=True) if at is not None}
            case jobs.Completed(result=jobs.RunResult(cases=(result,))) if result.failure is not None:
                raise SearchError(f"{prefix} run: {first_line(result.failure.text)}")
            case jobs.Refused(failure=failure):
                raise SearchError(f"{prefix} load: {first_line(failure.text)}")
            case observation:
                raise SearchError(f"{prefix} run ({type(observation).__name__.lower()})")

    def value(self, name: str, others: Sequence[str] = ()) -> Path:
        """Return the file with one value, from a run in which `others` are also outputs."""
        values = self.values([*others, name])
        if name not in values:
            raise SearchError(f"NumPy does not support the type of `{name}`")
        return values[name]

    def compare(self, name: str, value: Path, reference: Path) -> Distance:
        """Return the distance of a value in a file from its reference. Masked tokens are ignored."""
        tokens = self.mask.tokens if self.mask is not None and name in self.mask.values else None
        return measure_distance(load_array(value), load_array(reference), tokens)

    def create_folder(self) -> Path:
        """Create an empty folder."""
        folder = self.folder / str(next(self._count))
        folder.mkdir(parents=True)
        return folder


def search_origin(
    side: SearchSide,
    reference: ReferenceValues,
    available: Collection[str] | None,
    outputs: Collection[str],
    *,
    exact: bool,
) -> DifferenceOrigin | None:
    """Find the first node whose output differs from the reference; None if no node differs in isolation.

    `available` contains the names of the reference values; None if all are available. With `exact`, both sides compute
    identically.

    Raises:
        SearchError: the search failed.
    """
    nodes = list_search_nodes(side.proto, outputs)
    distances: dict[str, Distance] = {}
    compared: dict[str, Path] = {}  # values of the reference
    feeds = {name: Path(path) for name, path in side.case.inputs.items()}  # the same in the types of the candidate
    names = [name for node in nodes for name in node.outputs if available is None or name in available]
    for portion in split_by_size(side.proto, names, side.case.sizes, MAX_PORTION_BYTES):
        candidate, expected = side.values(portion), reference(portion)
        for name, path in candidate.items():
            if name in expected:
                distances[name] = side.compare(name, path, expected[name])
                compared[name] = expected[name]
                feeds[name] = _narrow_reference(expected[name], path)
            path.unlink()
        suspects = find_suspects(nodes, distances)
        own = _measure_own_distances(side, suspects, feeds, compared) if suspects else {}
        is_exact = exact and all(feeds[name] == path for name, path in compared.items())
        first = find_first_difference(suspects, own, exact=is_exact)
        if first is not None:
            within, since = _find_uncompared(nodes, first.step, compared)
            return DifferenceOrigin(first.step.index, first.output, first.before, first.after, within, since)
    return None


def _narrow_reference(reference: Path, candidate: Path) -> Path:
    """Return the reference in the precision of the candidate if that is lower, such as float16. Numbers stay finite."""
    array, kind = load_array(reference), load_array(candidate).dtype
    if array.dtype.kind != "f" or kind.kind != "f" or kind.itemsize >= array.dtype.itemsize:
        return reference
    limit = float(np.finfo(kind).max)
    path = reference.with_name(f"{reference.stem}.{kind}.npy")
    parts = (np.where(np.isfinite(part), part.clip(-limit, limit), part) for part in iter_parts(array))
    save_chunks(path, (part.astype(kind).tobytes() for part in parts), kind, array.shape)
    return path


def _measure_own_distances(
    side: SearchSide, suspects: Sequence[Suspect], feeds: Mapping[str, Path], reference: Mapping[str, Path]
) -> dict[str, Distance]:
    """Run each suspect in isolation with the reference values as inputs, and measure the distances of its outputs."""
    types = {name: value for name, path in feeds.items() if (value := _read_value_type(path)) is not None}
    isolated = isolate_nodes(side.proto, [suspect.step.index for suspect in suspects], types)
    folder = side.create_folder()
    inputs = {name: str(feeds[name]) for name in isolated.values}
    for number, tensor in enumerate(isolated.weights):  # the structure does not contain weights
        inputs[tensor.name] = str(_write_weight(tensor, side.model, folder / f"{number}.npy"))
    path = folder / "model.onnx"
    try:
        restore_lists((isolated.model.graph, *isolated.model.functions), side.model)
    except (OSError, UnreadableModel) as reason:
        raise SearchError(f"node attributes cannot be read: {reason}") from reason
    path.write_bytes(isolated.model.SerializeToString())
    outputs = side.outputs(path, jobs.InputCase(name="apart", origin="generated", inputs=inputs))
    own = {name: outputs[output] for name, output in isolated.outputs.items() if output in outputs}
    distances = {name: side.compare(name, path, reference[name]) for name, path in own.items() if name in reference}
    nodes = (side.proto.graph.node[suspect.step.index] for suspect in suspects)
    tied = (node.output[1] for node in nodes if _selects_equal_scores(node, feeds, own, reference))
    return distances | dict.fromkeys(tied, NO_DISTANCE)


def _selects_equal_scores(
    node: NodeProto, feeds: Mapping[str, Path], own: Mapping[str, Path], reference: Mapping[str, Path]
) -> bool:
    """Return whether a `TopK` node selects the same scores as the reference, perhaps those of other items."""
    if node.op_type != "TopK" or not node.output[1:] or node.input[0] not in feeds:
        return False
    ours, theirs = own.get(node.output[1]), reference.get(node.output[1])
    if ours is None or theirs is None:
        return False
    axis, is_sorted = (_read_int(node, name, default) for name, default in (("axis", -1), ("sorted", 1)))
    scores = load_array(feeds[node.input[0]])
    try:
        left, right = (np.take_along_axis(scores, load_array(path), axis) for path in (ours, theirs))
    except (IndexError, ValueError):
        return False
    return np.array_equal(left, right) if is_sorted else np.array_equal(np.sort(left, axis), np.sort(right, axis))


def _read_int(node: NodeProto, name: str, default: int) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == name), default)


def _write_weight(tensor: TensorProto, model: Path, path: Path) -> Path:
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if dtype.kind not in "fiubc":
        raise SearchError(f"NumPy does not support the type of weight `{tensor.name}`")
    try:
        data = b"".join(read_chunks(tensor, model))
    except UnreadableWeightError as reason:
        raise SearchError(f"weight `{tensor.name}` cannot be read: {reason}") from reason
    np.save(path, np.frombuffer(data, dtype).reshape(tuple(tensor.dims)), allow_pickle=False)
    return path


def _read_value_type(path: Path) -> KnownValue | None:
    array = load_array(path)
    dtype = array.dtype if array.dtype.kind != "U" else np.dtype("O")
    try:
        return KnownValue(int(helper.np_dtype_to_tensor_dtype(dtype)), array.shape)
    except (KeyError, ValueError):
        return None


def _find_uncompared(
    nodes: Sequence[SearchNode], first: SearchNode, compared: Collection[str]
) -> tuple[tuple[int, ...], str]:
    """Return the preceding nodes whose values were not compared, and the last compared value before these nodes."""
    makers = {name: node for node in nodes for name in node.outputs}
    within: set[int] = set()
    since: list[str] = []
    ahead = list(first.inputs)
    while ahead:
        name = ahead.pop()
        maker = makers.get(name)
        if name in compared:
            since.append(name)
        elif maker is not None and maker.index not in within:
            within.add(maker.index)
            ahead += maker.inputs
    order = {name: maker.index for name, maker in makers.items()}
    return tuple(sorted(within)), max(since, key=lambda name: order.get(name, -1), default="")


def search_across_levels(plain: SearchSide, optimised: SearchSide, output: str) -> DifferenceOrigin | None:
    """Find where an output begins to differ between two optimization levels of one runtime.

    If the mismatch remains when every value is an output, compare node by node; otherwise search for a wrong fusion.

    Raises:
        SearchError: the search failed.
    """
    names = [name for node in list_search_nodes(plain.proto, [output]) for name in node.outputs]
    right = plain.value(output)
    distance = optimised.compare(output, optimised.value(output), right)
    if distance.relative <= distance.rounding:
        return None
    limit = min(distance.relative, 1.0) / 8
    origin = None
    # Some releases cannot load a model with so many outputs at this level.
    with contextlib.suppress(SearchError):
        if optimised.compare(output, optimised.value(output, names), right).relative > limit:
            origin = search_origin(optimised, plain.values, None, [output], exact=False)
    return origin or _search_fusion(plain, optimised, output, limit)


def _search_fusion(plain: SearchSide, optimised: SearchSide, output: str, limit: float) -> DifferenceOrigin | None:
    """Find a wrong fusion; None if all nodes only accumulate rounding errors.

    The search follows the longest path to `output`. If another input of the node that it finds differs too, the search
    continues on the longest path to that input. `limit` is the largest relative difference that is treated as equal.
    """
    makers = {name: node for node in list_search_nodes(plain.proto, [output]) for name in node.outputs}
    target = output
    visited: set[str] = set()
    while True:
        visited.add(target)
        origin = _bisect_path(plain, optimised, target, output, limit)
        if origin.fused:
            return origin
        inputs = [name for name in makers[origin.output].inputs if name in makers and name not in visited]
        distances = _measure_values(plain, optimised, inputs)
        target = max(distances, key=lambda name: distances[name].relative, default="")
        before = distances.get(target, NO_DISTANCE)
        if before.relative <= limit:
            is_rounding = origin.after.relative <= max(origin.after.rounding, MIN_GROWTH * before.relative)
            return None if is_rounding else replace(origin, before=before)


def _measure_values(plain: SearchSide, optimised: SearchSide, names: Sequence[str]) -> dict[str, Distance]:
    """Return the distances of values that are all outputs of the same run."""
    if not names:
        return {}
    right, values = plain.values(names), optimised.values(names)
    return {name: optimised.compare(name, values[name], right[name]) for name in names if name in values}


def _bisect_path(plain: SearchSide, optimised: SearchSide, target: str, output: str, limit: float) -> DifferenceOrigin:
    """Find the first differing value on the longest path to `target`, by bisection.

    A value that is made an output is not fused. If this corrects `output`, the fusion of this value is wrong.
    """
    nodes = list_search_nodes(plain.proto, [output])
    makers = {name: node.index for node in reversed(nodes) for name in node.outputs}
    path = longest_path(nodes, target)
    right = plain.values([*path, output])
    low, high = -1, len(path) - 1
    before, after = NO_DISTANCE, NO_DISTANCE
    while high - low > 1:
        middle = (low + high) // 2
        name = path[middle]
        values = optimised.values([name, output])
        distance = optimised.compare(name, values[name], right[name])
        end = optimised.compare(output, values[output], right[output])
        if end.relative <= limit and distance.relative <= limit:
            return DifferenceOrigin(makers[name], name, distance, after, fused=True)
        if distance.relative > limit:
            high, after = middle, distance
        else:
            low, before = middle, distance
    if high == len(path) - 1:
        after = optimised.compare(target, optimised.value(target), right[target])
    return DifferenceOrigin(makers[path[high]], path[high], before, after)


def create_first_difference(
    proto: ModelProto, origin: DifferenceOrigin, case: str, root: Path, folder: Path, detail: str = ""
) -> FirstDifference:
    """Create the evidence. Places are relative to the config folder `folder`."""
    node = proto.graph.node[origin.node]
    if origin.fused:
        detail = "when the optimizer fuses this node with others"
    elif not detail and len(origin.within) == 1:
        detail = f"or at the preceding {format_operator_name(proto.graph.node[origin.within[0]])}"
    elif not detail and origin.within:
        since = f" after `{origin.since}`" if origin.since else ""
        detail = f"or at one of the {len(origin.within)} preceding nodes{since}"
    return FirstDifference(
        node=node.name,
        operator=format_operator_name(node),
        output=origin.output,
        place=find_source_line(node, root, folder),
        case=case,
        value=origin.after.largest,
        before=origin.before.largest,
        share=origin.after.relative,
        before_share=origin.before.relative,
        detail=detail,
    )
