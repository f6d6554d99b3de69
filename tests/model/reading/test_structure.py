"""Models read without weights: the same structure as onnx reads, and only `UnreadableModel` for damaged files."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

from onnxgate.model.reading import structure
from onnxgate.model.reading.external_data import check_external_data
from onnxgate.model.reading.fact_extraction import extract_facts
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type, encode_length_prefix, encode_varint
from onnxgate.model.reading.omitted_data import OMITTED_KEY, find_omitted_data
from onnxgate.model.reading.structure import DATA_FIELDS, read_light_view, read_structure, read_view
from onnxgate.model.reading.view import ModelView
from onnxgate.model.validity import find_fault
from tests.harness.models import parse, write

names = st.text("abcxyz./_", max_size=6)
numbers = st.integers(-(2**31), 2**31 - 1)
many = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def drawn_tensors(draw: st.DrawFn) -> TensorProto:
    """Draw a tensor with data of any size in any data field, regardless of its dims."""
    tensor = TensorProto(name=draw(names), dims=draw(st.lists(st.integers(0, 9), max_size=3)), data_type=1)
    match draw(st.sampled_from(["raw", "floats", "ints", "strings", "external", "none"])):
        case "raw":
            tensor.raw_data = draw(st.binary(max_size=200))
        case "floats":
            tensor.float_data.extend(draw(st.lists(st.floats(width=32, allow_nan=False), max_size=40)))
        case "ints":
            tensor.int64_data.extend(draw(st.lists(numbers, max_size=40)))
        case "strings":
            tensor.string_data.extend(draw(st.lists(st.binary(max_size=9), max_size=20)))
        case "external":
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=draw(names))
    return tensor


@st.composite
def drawn_attributes(draw: st.DrawFn, depth: int) -> AttributeProto:
    """Draw an attribute of any kind, with graphs down to `depth`."""
    attribute = AttributeProto(name=draw(names))
    kinds = ["int", "ints", "string", "floats", "tensor", "tensors", "sparse", *(["graph", "graphs"] if depth else [])]
    match draw(st.sampled_from(kinds)):
        case "int":
            attribute.type, attribute.i = AttributeProto.INT, draw(numbers)
        case "ints":
            attribute.type = AttributeProto.INTS
            attribute.ints.extend(draw(st.lists(numbers, max_size=400)))
        case "floats":
            attribute.type = AttributeProto.FLOATS
            attribute.floats.extend(draw(st.lists(st.just(0.5), max_size=400)))
        case "string":
            attribute.type, attribute.s = AttributeProto.STRING, draw(st.binary(max_size=100))
        case "tensor":
            attribute.type = AttributeProto.TENSOR
            attribute.t.CopyFrom(draw(drawn_tensors()))
        case "tensors":
            attribute.type = AttributeProto.TENSORS
            attribute.tensors.extend(draw(st.lists(drawn_tensors(), max_size=3)))
        case "sparse":
            attribute.type = AttributeProto.SPARSE_TENSOR
            sparse = SparseTensorProto(values=draw(drawn_tensors()), indices=draw(drawn_tensors()), dims=[9])
            attribute.sparse_tensor.CopyFrom(sparse)
        case "graph":
            attribute.type = AttributeProto.GRAPH
            attribute.g.CopyFrom(draw(drawn_graphs(depth - 1)))
        case "graphs":
            attribute.type = AttributeProto.GRAPHS
            attribute.graphs.extend([draw(drawn_graphs(depth - 1))])
    return attribute


@st.composite
def drawn_nodes(draw: st.DrawFn, depth: int) -> NodeProto:
    """Draw a node with an arbitrary operator."""
    node = NodeProto(op_type=draw(names), name=draw(names), input=draw(st.lists(names, max_size=2)), output=["y"])
    node.attribute.extend(draw(st.lists(drawn_attributes(depth), max_size=2)))
    node.metadata_props.add(key="trace", value=draw(st.text(max_size=100)))
    return node


@st.composite
def drawn_graphs(draw: st.DrawFn, depth: int = 2) -> GraphProto:
    """Draw a graph that need not be valid."""
    graph = GraphProto(name=draw(names))
    graph.node.extend(draw(st.lists(drawn_nodes(depth), max_size=3)))
    graph.initializer.extend(draw(st.lists(drawn_tensors(), max_size=3)))
    return graph


@st.composite
def drawn_models(draw: st.DrawFn) -> ModelProto:
    """Draw a model with nested graphs, a local function and metadata."""
    model = ModelProto(ir_version=draw(st.integers(0, 20)), producer_name=draw(names), graph=draw(drawn_graphs()))
    model.opset_import.add(domain="", version=18)
    model.metadata_props.add(key="note", value=draw(st.text(max_size=100)))
    model.functions.add(name="f", domain="local").node.extend(draw(st.lists(drawn_nodes(1), max_size=2)))
    return model


def restore(model: ModelProto, content: bytes) -> None:
    """Restore omitted data from its recorded position."""
    for _, tensor in ModelView(model).tensors:
        left_out = find_omitted_data(tensor)
        for entry in [it for it in tensor.external_data if it.key == OMITTED_KEY]:
            tensor.external_data.remove(entry)
        for piece in left_out:
            data = content[piece.offset : piece.offset + piece.length]
            tensor.MergeFromString(encode_length_prefix(piece.field, piece.length) + data)


@many
@given(model=drawn_models(), small=st.sampled_from([0, 16, 64, 1024]))
def test_own_reader_agrees_with_onnx(tmp_path: Path, model: ModelProto, small: int) -> None:
    """The structure equals what onnx reads, once the omitted weights are restored."""
    path = write(tmp_path / "model.onnx", model)

    structure = read_structure(path, large_bytes=0, small_bytes=small)
    held = [len(getattr(tensor, name)) for _, tensor in ModelView(structure).tensors for name in ("raw_data",)]
    restore(structure, path.read_bytes())

    assert (onnx.load(path, load_external_data=False), True) == (structure, all(size <= small for size in held))


def look_at_everything(path: Path, large_bytes: int) -> None:
    """Run the reading steps of the file stage, without rules."""
    detect_other_type(path)
    try:
        proto = read_structure(path, large_bytes=large_bytes, small_bytes=16)
    except UnreadableModel:
        return
    extract_facts(ModelView(proto), path, "model.onnx")
    check_external_data(ModelView(proto), path)
    find_fault(ModelView(proto), path)


@many
@given(content=st.binary(max_size=300), large_bytes=st.sampled_from([0, 10**9]))
def test_garbage_is_unreadable(tmp_path: Path, content: bytes, large_bytes: int) -> None:
    """Arbitrary bytes are either read or reported as unreadable, without another error."""
    path = tmp_path / "model.onnx"
    path.write_bytes(content)

    assert look_at_everything(path, large_bytes) is None


@many
@given(model=drawn_models(), data=st.data(), large_bytes=st.sampled_from([0, 10**9]))
def test_damage_is_unreadable(tmp_path: Path, model: ModelProto, data: st.DataObject, large_bytes: int) -> None:
    """Truncated or modified models are either read or reported as unreadable, without another error."""
    content = bytearray(model.SerializeToString())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "model.onnx"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])

    assert look_at_everything(path, large_bytes) is None


@pytest.mark.parametrize("large_bytes", [0, 10**9])
def test_deep_nesting_is_unreadable(tmp_path: Path, large_bytes: int) -> None:
    """Deeply nested graphs are reported as unreadable instead of crashing the process."""
    graph = b"".join([encode_length_prefix(2, 2000), b"x" * 2000])
    for _ in range(2000):
        attribute = encode_length_prefix(6, len(graph)) + graph
        node = encode_length_prefix(5, len(attribute)) + attribute
        graph = encode_length_prefix(1, len(node)) + node
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x08" + encode_length_prefix(7, len(graph)) + graph)

    with pytest.raises(UnreadableModel):
        read_structure(path, large_bytes=large_bytes)


def test_forged_marks_are_ignored(tmp_path: Path) -> None:
    """A file cannot contain forged marks of omitted data."""
    model = parse("g (float[1] x) => (float[1] y) <float[1] w = {1}> { y = Add (x, w) }")
    model.graph.initializer[0].external_data.add(key="onnxgate.omitted", value="9:0:999999999999")
    path = write(tmp_path / "model.onnx", model)

    assert [find_omitted_data(tensor) for _, tensor in read_view(path, large_bytes=0).tensors] == [()]


GROUP = bytes.fromhex("9b06a30608011200a4069c06")  # field 99, which contains field 100, which contains two fields


@pytest.mark.parametrize("large_bytes", [0, 10**9])
def test_groups_are_skipped(tmp_path: Path, large_bytes: int) -> None:
    """Unknown groups are skipped, as protobuf does."""
    content = parse().SerializeToString()
    (tmp_path / "m.onnx").write_bytes(GROUP * 3 + content + GROUP)

    read = read_structure(tmp_path / "m.onnx", large_bytes=large_bytes)
    assert (read.graph.node[0].op_type, read.ir_version) == ("Relu", 8)


@pytest.mark.parametrize("large_bytes", [0, 10**9])
@pytest.mark.parametrize(
    "group",
    [
        "9b06",
        "9b06a406",
        "9b060f9c06",
        "9c06",
        "9b06" * 101 + "9c06" * 101,
        "9b0612" + "ff" * 8 + "7f9c06",
        "9b0612" + "ff" * 4 + "0f9c06",
    ],
)
def test_damaged_groups(tmp_path: Path, group: str, large_bytes: int) -> None:
    """An unterminated, mismatched, invalid, too deep or truncated group makes the file unreadable."""
    content = parse().SerializeToString() + bytes.fromhex(group) + bytes(200_000)
    (tmp_path / "m.onnx").write_bytes(content)
    assert detect_other_type(tmp_path / "m.onnx")

    with pytest.raises(UnreadableModel):
        read_structure(tmp_path / "m.onnx", large_bytes=large_bytes)


def test_large_file_stays_on_disk(tmp_path: Path) -> None:
    """Reading a file of 55 MB needs almost no memory, and the shapes of the weights are known."""
    path = tmp_path / "model.onnx"
    tensor = TensorProto(name="w", dims=[14, 1024, 1024], data_type=TensorProto.FLOAT).SerializeToString()
    size = 14 * 1024 * 1024 * 4
    head = tensor + encode_length_prefix(9, size)
    inner = encode_length_prefix(2, 1) + b"g" + encode_length_prefix(5, len(head) + size) + head
    with path.open("wb") as file:
        file.write(b"\x08" + encode_varint(8) + encode_length_prefix(7, len(inner) + size) + inner)
        file.truncate(file.tell() + size)
    tracemalloc.start()

    structure = read_structure(path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    weight = structure.graph.initializer[0]
    assert ([14, 1024, 1024], size, True) == (
        list(weight.dims),
        find_omitted_data(weight)[0].length,
        peak_bytes < 2**20,
    )


def test_data_fields_are_those_of_onnx() -> None:
    """The numbers of the omitted fields match those of onnx."""
    numbers = {name: field.number for name, field in TensorProto.DESCRIPTOR.fields_by_name.items()}

    assert {number: name for name, number in numbers.items() if name in DATA_FIELDS.values()} == DATA_FIELDS


def large() -> TensorProto:
    """Return a tensor of 40 floats."""
    return TensorProto(name="w", dims=[40], data_type=TensorProto.FLOAT, raw_data=bytes(160))


def models_with_large_tensors() -> dict[str, ModelProto]:
    """Return one model for each possible place of a tensor."""
    attributes = {
        "t": AttributeProto(name="t", type=AttributeProto.TENSOR, t=large()),
        "tensors": AttributeProto(name="t", type=AttributeProto.TENSORS, tensors=[large()]),
        "sparse": AttributeProto(
            name="t", type=AttributeProto.SPARSE_TENSOR, sparse_tensor=SparseTensorProto(values=large())
        ),
        "sparses": AttributeProto(
            name="t", type=AttributeProto.SPARSE_TENSORS, sparse_tensors=[SparseTensorProto(indices=large())]
        ),
        "g": AttributeProto(name="t", type=AttributeProto.GRAPH, g=GraphProto(initializer=[large()])),
        "graphs": AttributeProto(name="t", type=AttributeProto.GRAPHS, graphs=[GraphProto(initializer=[large()])]),
    }
    models = {name: ModelProto(graph=GraphProto(node=[NodeProto(attribute=[it])])) for name, it in attributes.items()}
    models["initializer"] = ModelProto(graph=GraphProto(initializer=[large()]))
    models["sparse initializer"] = ModelProto(
        graph=GraphProto(sparse_initializer=[SparseTensorProto(values=large(), dims=[99])])
    )
    models["function"] = ModelProto(graph=GraphProto(name="g"))
    models["function"].functions.add(node=[NodeProto(attribute=[attributes["t"]])])
    return models


@pytest.mark.parametrize("place", models_with_large_tensors())
def test_large_tensors_are_left_out_everywhere(tmp_path: Path, place: str) -> None:
    """Large tensors are omitted in every place, with the right position."""
    path = write(tmp_path / "model.onnx", models_with_large_tensors()[place])
    content = path.read_bytes()

    structure = read_structure(path, large_bytes=0, small_bytes=64)
    left_out = [piece for _, tensor in ModelView(structure).tensors for piece in find_omitted_data(tensor)]

    assert [(9, content.index(bytes(160)), 160)] == [(it.field, it.offset, it.length) for it in left_out]


def weights(size_bytes: int) -> TensorProto:
    """Return one tensor of bytes."""
    return TensorProto(name="w", dims=[size_bytes], data_type=TensorProto.UINT8, raw_data=bytes(size_bytes))


ODD = {
    "an input too": lambda model: model.graph.input.add(name="w"),
    "in a node": lambda model: model.graph.node[0].attribute.add(name="value").t.CopyFrom(weights(9000)),
    "sparse": lambda model: model.graph.sparse_initializer.add().indices.CopyFrom(weights(9000)),
    "of strings": lambda model: setattr(model.graph.initializer[0], "data_type", TensorProto.STRING),
    "of no type": lambda model: setattr(model.graph.initializer[0], "data_type", 0),
    "before inputs were optional": lambda model: setattr(model, "ir_version", 3),
}


@pytest.mark.parametrize("odd", ["", *ODD])
def test_omitted_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    """Plain weights are omitted, but not tensors that onnx's checker reads, unless the file is too large."""
    model = parse()
    model.graph.initializer.add().CopyFrom(weights(100_000))
    if odd:
        ODD[odd](model)
    path = write(tmp_path / "m.onnx", model)
    monkeypatch.setattr(structure, "LIGHT_BYTES", 1000)

    assert bool(find_omitted_data(read_light_view(path).proto.graph.initializer[0])) == (not odd)
    monkeypatch.setattr(structure, "LARGE_BYTES", 1000)
    assert find_omitted_data(read_light_view(path).proto.graph.initializer[0])


def test_last_data_count(tmp_path: Path) -> None:
    """If data is given twice, the last one counts, as in protobuf."""
    tensor = b"".join(encode_length_prefix(9, 160) + bytes([value]) * 160 for value in (1, 2))
    graph = encode_length_prefix(5, len(tensor)) + tensor
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x08" + encode_length_prefix(7, len(graph)) + graph)

    whole = onnx.load(path, load_external_data=False)
    structure = read_structure(path, large_bytes=0, small_bytes=64)
    (piece,) = find_omitted_data(structure.graph.initializer[0])

    assert whole.graph.initializer[0].raw_data == path.read_bytes()[piece.offset : piece.offset + piece.length]


def test_names_are_text(tmp_path: Path) -> None:
    """Names that are not UTF-8 make the file unreadable."""
    path = tmp_path / "model.onnx"
    path.write_bytes(parse().SerializeToString().replace(b"Relu", b"Re\xff\xfe"))

    with pytest.raises(UnreadableModel, match="is not valid UTF-8"):
        read_structure(path)


def test_two_gib(tmp_path: Path) -> None:
    """A file of 2 GiB or more is unreadable, because no protobuf library can read it."""
    path = write(tmp_path / "model.onnx")
    with path.open("ab") as file:
        file.truncate(2**31)

    with pytest.raises(UnreadableModel, match="2,147,483,648 bytes"):
        read_structure(path)
