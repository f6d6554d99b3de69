"""Models with isolated nodes or additional outputs, which run instead of the original; replacement of model files."""

from __future__ import annotations

import math
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto

from onnxgate.core.files import follow_links, link_or_copy, replace_atomically
from onnxgate.core.process_pool import FailedCallError
from onnxgate.model.onnx_functions import OnnxError, ignore_error, infer_shapes
from onnxgate.model.reading.external_data import inspect_data_file, iter_data_locations
from onnxgate.model.reading.fact_extraction import list_inputs
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.structure import FIRST_IR_WITHOUT_INPUTS, read_structure
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.reduced_models import declare_input, has_data_elsewhere, list_needed_values

if TYPE_CHECKING:
    from onnx import NodeProto


ISOLATED_SUFFIX = "#apart"


@dataclass(frozen=True, slots=True)
class KnownValue:
    """Type and shape of a value in a model. Only values with a known type and shape can become inputs."""

    element: int  # `TensorProto.DataType`
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsolatedNodes:
    """A model that consists of isolated nodes, and the names of its inputs and outputs."""

    model: ModelProto
    values: tuple[str, ...]  # values of the original model that are inputs
    weights: tuple[TensorProto, ...]  # weights without data, which are also inputs
    outputs: dict[str, str]  # output of a node -> name in this model


def isolate_nodes(proto: ModelProto, targets: Sequence[int], values: Mapping[str, KnownValue]) -> IsolatedNodes:
    """Build a model from the nodes at `targets`. Values of known type and shape become inputs.

    Other inputs of a node are computed by copies of the nodes that produce them.
    """
    graph = proto.graph
    needed_values, needed_weights, inner = _find_needed(graph, targets, values)
    model = ModelProto(ir_version=max(proto.ir_version, FIRST_IR_WITHOUT_INPUTS))
    model.graph.name = "apart"
    model.opset_import.extend(proto.opset_import)
    model.functions.extend(proto.functions)
    for name in needed_values:
        declare_input(model.graph, name, values[name].element, values[name].shape)
    fed = [tensor for tensor in needed_weights if has_data_elsewhere(tensor)]
    for tensor in fed:
        declare_input(model.graph, tensor.name, tensor.data_type, tensor.dims)
    model.graph.initializer.extend(tensor for tensor in needed_weights if not has_data_elsewhere(tensor))
    model.graph.sparse_initializer.extend(graph.sparse_initializer)
    for index in inner:
        _add_inner(model.graph, graph.node[index], needed_values)
    outputs = {}
    for index in targets:
        added = model.graph.node.add()
        added.CopyFrom(graph.node[index])
        for position, name in enumerate(graph.node[index].output):
            if name:
                added.output[position] = outputs[name] = f"{name}{ISOLATED_SUFFIX}"
                model.graph.output.add(name=outputs[name])
    return IsolatedNodes(model, tuple(needed_values), tuple(fed), outputs)


def _find_needed(
    graph: GraphProto, targets: Sequence[int], known: Collection[str]
) -> tuple[dict[str, None], list[TensorProto], list[int]]:
    """Return the known values, the weights and the nodes (in graph order) on which the target nodes depend."""
    producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    values: dict[str, None] = {}
    weights: list[TensorProto] = []
    inner: set[int] = set()
    ahead = list(dict.fromkeys(name for index in targets for name in list_needed_values(graph.node[index])))
    reached: set[str] = set()
    while ahead:
        name = ahead.pop()
        if name in reached:
            continue
        reached.add(name)
        if name in known:
            values[name] = None
        elif name in initializers:
            weights.append(initializers[name])
        elif name in producers:
            inner.add(producers[name])
            ahead += list_needed_values(graph.node[producers[name]])
    return values, weights, sorted(inner)


def _add_inner(graph: GraphProto, node: NodeProto, known: Collection[str]) -> None:
    """Add a copy of a node that computes inputs of other nodes.

    Outputs of known type and shape are renamed, because the other nodes use the model input of that name instead.
    """
    added = graph.node.add()
    added.CopyFrom(node)
    added.name = f"{node.name}#inner" if node.name else ""
    for position, name in enumerate(node.output):
        if name in known:
            added.output[position] = f"{name}#inner"


ASSUMED_BYTES = 64 * 1024
"""Assumed size in bytes of a value whose shape is unknown."""


@dataclass(frozen=True, slots=True)
class SearchNode:
    """A node of the main graph that the search for differences checks, with its subgraphs and local functions."""

    index: int
    inputs: tuple[str, ...]  # inputs that depend on model inputs, without constants and weights
    outputs: tuple[str, ...]


def list_search_nodes(proto: ModelProto, outputs: Collection[str]) -> tuple[SearchNode, ...]:
    """Return the nodes between the model inputs and these outputs, in file order."""
    needed, nodes = set(outputs), []
    alive = find_live_values(proto.graph)
    for index in range(len(proto.graph.node) - 1, -1, -1):
        node = proto.graph.node[index]
        inputs = list_needed_values(node)
        if needed.isdisjoint(node.output):
            continue
        needed.update(inputs)
        if names := tuple(name for name in inputs if name in alive):
            nodes.append(SearchNode(index, names, tuple(filter(None, node.output))))
    return tuple(reversed(nodes))


def find_live_values(graph: GraphProto) -> set[str]:
    """Return the names of the values that depend on model inputs. Nodes must be in topological order."""
    alive = {value.name for value in list_inputs(graph)}
    for node in graph.node:
        if not alive.isdisjoint(list_needed_values(node)):
            alive.update(filter(None, node.output))
    return alive


def find_token_values(graph: GraphProto, mask: str) -> frozenset[str]:
    """Return the names of the values that depend on elements of other inputs than `mask`, not only on their shapes."""
    found = {value.name for value in list_inputs(graph)} - {mask}
    for node in graph.node:
        if node.op_type not in ("Shape", "Size") and not found.isdisjoint(list_needed_values(node)):
            found.update(filter(None, node.output))
    return frozenset(found)


def expose_values(proto: ModelProto, model: Path, names: Iterable[str], folder: Path) -> Path:
    """Write a copy of the model at `model`, with these values as additional outputs, to the new folder `folder`.

    `proto` is the parsed model. External data is linked, or copied if it cannot be linked.

    Raises:
        OSError: the data cannot be read, or the disk is full.
    """
    own = {value.name for value in proto.graph.output}
    added = GraphProto(output=[ValueInfoProto(name=name) for name in names if name not in own])
    folder.mkdir(parents=True)
    path = folder / "model.onnx"
    shutil.copyfile(model, path)
    with path.open("ab") as file:
        file.write(ModelProto(graph=added).SerializeToString())
    link_data(proto, model, folder)
    return path


def link_data(proto: ModelProto, model: Path, folder: Path) -> None:
    """Hard-link or copy the external data of a model to the folder of its copy. Runtimes refuse symbolic links."""
    for location in filter(None, sorted(set(iter_data_locations(ModelView(proto))))):
        file = inspect_data_file(model, location)
        if file.problem:
            raise OSError(f"external data `{location}` is missing")
        target = folder / location
        target.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(file.path, target)


SELECTION_NOISE = "onnxgate:selection noise"
"""Additional input of a model with noise: size of the noise, relative to each element."""
SMALL_SCORE = 0.1
"""Score with the same noise as all smaller scores, because a sigmoid or softmax has absolute rounding errors.

Source: with noise of 1e-6, these scores change by up to 1e-7, about one ULP of 1 in float32; not measured.
"""
SELECTION_INPUTS = {"TopK": (0,), "NonMaxSuppression": (0, 1), "ArgMax": (0,), "ArgMin": (0,)}
"""Inputs of selecting operators that contain scores or boxes."""


_REAL_TYPES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE})
_INTEGER_TYPES = frozenset(
    {
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
    }
)


def add_selection_noise(model: Path, folder: Path, seed: int) -> Path | None:
    """Write a copy of a model that adds noise to the scores of each selection, to the new folder `folder`.

    Return None if no node of the main graph selects items by scores. The copy has the additional input
    `SELECTION_NOISE`, a float32 scalar. Small scores get at least the noise of `SMALL_SCORE`. Noise only
    decides which of several equal integers are selected.

    Raises:
        OSError: the data cannot be read, or the disk is full.
    """
    structure = read_structure(model)
    kinds = _infer_element_types(structure)
    noisy = {
        name: kind
        for node in structure.graph.node
        for position in SELECTION_INPUTS.get(node.op_type, ())
        if position < len(node.input)
        and (kind := kinds.get(name := node.input[position], TensorProto.FLOAT)) in _REAL_TYPES | _INTEGER_TYPES
    }
    if not noisy:
        return None
    proto = onnx.load(str(model), load_external_data=False)
    nodes = [*proto.graph.node]
    del proto.graph.node[:]
    declare_input(proto.graph, SELECTION_NOISE, TensorProto.FLOAT, ())
    proto.graph.node.append(
        onnx.helper.make_node(
            "Constant",
            [],
            [f"{SELECTION_NOISE} least"],
            value=onnx.helper.make_tensor("least", TensorProto.FLOAT, [], [SMALL_SCORE]),  # `value_float` is newer
        )
    )
    added: set[str] = set()
    for node in nodes:
        reading = []
        for position in SELECTION_INPUTS.get(node.op_type, ()):
            if position < len(node.input) and (name := node.input[position]) in noisy:
                if name not in added:
                    proto.graph.node.extend(_create_noise_nodes(name, noisy[name], seed))
                    added.add(name)
                node.input[position] = f"{name} with noise"
                reading = (
                    [_read_selected(node, name)] if node.op_type == "TopK" and noisy[name] in _INTEGER_TYPES else []
                )
        proto.graph.node.extend([node, *reading])
    folder.mkdir(parents=True)
    onnx.save(proto, str(folder / "model.onnx"))
    link_data(structure, model, folder)
    return folder / "model.onnx"


def _read_selected(node: NodeProto, name: str) -> NodeProto:
    """Return a node that reads the selected values of `name`, instead of the `TopK` node, which gets another type."""
    values, indices = node.output[0], node.output[1] or f"{node.output[0]} indices"
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), -1)
    node.output[:] = [f"{indices} of values with noise", indices]
    return onnx.helper.make_node("GatherElements", [name, indices], [values or f"{indices} of values"], axis=axis)


def _create_noise_nodes(name: str, kind: int, seed: int) -> list[NodeProto]:
    """Return the nodes that add noise to scores of an element type.

    Noise of integers is smaller than their distance. The result is float64, which represents them exactly.
    """
    make = onnx.helper.make_node
    exact, uniform, noise, changed = (f"{name} {part}" for part in ("in float", "uniform", "noise", "changed"))
    if kind in _INTEGER_TYPES:
        return [
            make("Cast", [name], [exact], to=TensorProto.DOUBLE),
            make("RandomUniformLike", [exact], [uniform], low=-0.4, high=0.4, seed=float(seed)),
            make("Add", [exact, uniform], [f"{name} with noise"]),
        ]
    exact, changed = (name, f"{name} with noise") if kind == TensorProto.FLOAT else (exact, changed)
    size, scaled = f"{name} size", f"{name} scaled"
    nodes = [
        make("Abs", [exact], [f"{name} magnitude"]),
        make("Add", [f"{name} magnitude", f"{SELECTION_NOISE} least"], [size]),
        make("RandomUniformLike", [exact], [uniform], low=-1.0, high=1.0, seed=float(seed)),
        make("Mul", [uniform, SELECTION_NOISE], [scaled]),
        make("Mul", [scaled, size], [noise]),
        make("Add", [exact, noise], [changed]),
    ]
    if exact == name:
        return nodes
    widen = make("Cast", [name], [exact], to=TensorProto.FLOAT)
    return [widen, *nodes, make("Cast", [changed], [f"{name} with noise"], to=kind)]


def _infer_element_types(proto: ModelProto) -> dict[str, int]:
    """Return the element types of the values of a model, as far as they are known."""
    try:
        proto = infer_shapes(proto)
    except (OnnxError, FailedCallError) as error:
        ignore_error(error)
    graph = proto.graph
    return {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output, *graph.input)}


def split_by_size(
    proto: ModelProto, names: Sequence[str], sizes: Mapping[str, int], most_bytes: int
) -> list[list[str]]:
    """Split the names of values into groups that need at most `most_bytes` of memory. Unknown sizes are estimated."""
    types = {value.name: value for value in (*proto.graph.value_info, *proto.graph.output)}
    portions: list[list[str]] = [[]]
    filled = 0
    for name in names:
        value = types.get(name)
        size = ASSUMED_BYTES
        if value is not None and value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            size = 4 * math.prod(max(dim.dim_value or sizes.get(dim.dim_param, 1), 1) for dim in dims)
        if portions[-1] and filled + size > most_bytes:
            portions.append([])
            filled = 0
        portions[-1].append(name)
        filled += size
    return portions


def replace_model(fresh: Path, committed: Path) -> None:
    """Replace `committed` (which may be missing) with the model at `fresh`.

    A single data file gets the name that the committed model uses or, without such a name, is named after the model.
    Several data files keep their names. Data files are replaced first, so that the model never refers to missing data.

    Raises:
        UsageError: `committed` is a link out of the repository.
    """
    target = follow_links(committed)
    target.parent.mkdir(parents=True, exist_ok=True)
    names = _choose_data_names(fresh, target)
    for location, name in names.items():
        with _atomic_replacement(target.parent / name) as temporary:
            shutil.copyfile(fresh.parent / location, temporary)
    with _atomic_replacement(target) as temporary:
        if all(location == name for location, name in names.items()):
            shutil.copyfile(fresh, temporary)
        else:
            model = onnx.load(str(fresh), load_external_data=False)
            entries = (entry for _, tensor in ModelView(model).tensors for entry in tensor.external_data)
            for entry in entries:
                if entry.key == "location":
                    entry.value = names[entry.value]
            temporary.write_bytes(model.SerializeToString())


def find_unused_data(before: tuple[str, ...], committed: Path) -> tuple[str, ...]:
    """Return those data files in `before` that the model no longer uses, sorted."""
    return tuple(sorted(set(before) - set(read_data_locations(committed))))


def read_data_locations(path: Path) -> tuple[str, ...]:
    """List the names of the data files of a model, sorted; empty if the model is unreadable."""
    try:
        structure = read_structure(path)
    except (OSError, UnreadableModel):
        return ()
    return tuple(sorted(set(iter_data_locations(ModelView(structure)))))


def _choose_data_names(fresh: Path, target: Path) -> dict[str, str]:
    """Map each data location in the freshly exported model to the name of the data file next to the committed model."""
    locations, previous = read_data_locations(fresh), read_data_locations(target)
    if len(locations) == 1:
        (own,) = previous if len(previous) == 1 and Path(previous[0]).name == previous[0] else (f"{target.name}.data",)
        return {locations[0]: own}
    return {location: location for location in locations}


@contextmanager
def _atomic_replacement(target: Path) -> Iterator[Path]:
    """Yield a temporary file. On exit, it atomically replaces the target file and gets the same permissions."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with replace_atomically(target) as temporary:
        yield temporary
        if target.exists():
            shutil.copymode(target, temporary)
