"""Static checks leave large texts in the file, and report the same as for a model that is read completely."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import ModelProto, helper

from onnxgate.model.reading import structure
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.omitted_data import restore_lists
from onnxgate.model.reading.omitted_texts import LARGE_TEXT_BYTES, find_home_paths
from onnxgate.model.reading.structure import read_light_view, read_view
from onnxgate.model.validity import find_fault, find_leaked_paths
from onnxgate.support.matching.type_inference import infer_model_types
from tests.harness.models import write

SIZE = 3 * 1024 * 1024
"""Size of a large text: several of the pieces in which it is read."""
PATHS = ("/home/alice/run.py", "/Users/bob/a/b.py", "C:\\Users\\carol\\m.py")
SPACED = " ".join([PATHS[0], "x" * 1100000, PATHS[1], "é" * 600000, PATHS[2], "/home/runner/work"])
DENSE = ("y" * (1024 * 1024 - 8) + PATHS[0] + ",").ljust(SIZE - 10, "z") + PATHS[1]
"""Text without a space, with a path across the end of the first piece."""
PLACES: dict[str, Callable[[ModelProto], object]] = {
    "model": lambda model: model,
    "graph": lambda model: model.graph,
    "node": lambda model: model.graph.node[0],
    "function": lambda model: model.functions[0],
    "initializer": lambda model: model.graph.initializer[0],
    "input": lambda model: model.graph.input[0],
    "value": lambda model: model.graph.value_info[0],
}


def make_model(text: str = "") -> ModelProto:
    """Return a model with a string attribute, an initializer, a declared value and a local function."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Mine", ["x"], ["h"], domain="mine", text=text),
        helper.make_node("Add", ["h", "w"], ["y"], name="add"),
    ]
    graph = helper.make_graph(
        nodes, "g", [value("x", 1, [2])], [value("y", 1, [2])], [helper.make_tensor("w", 1, [2], [1.0, 2.0])]
    )
    graph.value_info.append(value("h", 1, [2]))
    function = helper.make_function(
        "own", "Other", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1), helper.make_opsetid("own", 1)]
    model: ModelProto = helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=8)
    return model


@pytest.fixture(autouse=True)
def small_models_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let static checks read small models as large ones."""
    monkeypatch.setattr(structure, "LIGHT_BYTES", 1000)


def compare_results(path: Path) -> int:
    """Compare what static checks find with and without texts, and return the size of the model without texts."""
    light, whole = read_light_view(path), read_view(path)

    assert find_leaked_paths(whole) == find_leaked_paths(light)
    assert find_fault(whole, path) == find_fault(light, path)
    assert [it.operation for it in infer_model_types(whole).nodes] == [
        it.operation for it in infer_model_types(light).nodes
    ]
    assert [it.key for it in whole.proto.metadata_props] == [it.key for it in light.proto.metadata_props]
    return light.proto.ByteSize()


@pytest.mark.parametrize("text", [SPACED, DENSE, "x" * SIZE])
@pytest.mark.parametrize("place", PLACES)
def test_documentation_stays_in_the_file(tmp_path: Path, place: str, text: str) -> None:
    """Paths in documentation are found without reading it as a whole, also across the pieces that are read."""
    model = make_model()
    PLACES[place](model).doc_string = text
    path = write(tmp_path / "m.onnx", model)
    found = set(find_leaked_paths(read_view(path)))

    assert compare_results(path) < 10_000
    if place not in ("input", "initializer", "value"):  # static checks do not search their documentation
        assert {SPACED: {*PATHS}, DENSE: {*PATHS[:2]}}.get(text, set()) == found


@pytest.mark.parametrize("place", PLACES)
def test_metadata_stays_in_the_file(tmp_path: Path, place: str) -> None:
    """Keys of metadata are read, and paths in the values are found."""
    model = make_model()
    for index in range(3):
        PLACES[place](model).metadata_props.add(key=f"key{index}", value=SPACED)
    path = write(tmp_path / "m.onnx", model)

    assert compare_results(path) < 10_000


def test_many_values_of_metadata_stay_in_the_file(tmp_path: Path) -> None:
    """The metadata of a model may be large because it has many entries."""
    model = make_model()
    for index in range(3000):
        model.metadata_props.add(key=f"key{index}", value=f"/home/user{index % 5}/x " + "v" * 1000)
    path = write(tmp_path / "m.onnx", model)

    assert compare_results(path) < 100_000


def test_text_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    """Metadata that is not valid UTF-8 is a fault of the model, however long it is."""
    model = make_model()
    model.metadata_props.add(key="k", value="v" * SIZE + "end?")
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString().replace(b"end?", b"end\xff"))

    with pytest.raises(UnreadableModel, match="not valid UTF-8"):
        read_light_view(path)


def test_large_strings_stay_in_the_file(tmp_path: Path) -> None:
    """A large string keeps its first bytes, and is restored where a runtime needs it."""
    model = make_model("s" * SIZE)
    path = write(tmp_path / "m.onnx", model)

    assert compare_results(path) < 10_000
    light = read_light_view(path).proto
    assert light.graph.node[0].attribute[0].s == b"s" * 8192
    restore_lists((light.graph,), path)
    assert model == light


def test_strings_that_onnx_reads_are_complete(tmp_path: Path) -> None:
    """Shape inference parses the equation of an Einsum, and calls of local functions pass their strings on."""
    model = make_model("s" * SIZE)
    model.graph.node.add(op_type="Einsum", input=["h"], output=["e"]).attribute.append(
        helper.make_attribute("equation", "i" * LARGE_TEXT_BYTES)
    )
    model.graph.node[0].domain, model.graph.node[0].op_type = "own", "own"
    model.functions[0].name, model.functions[0].domain = "own", "own"
    model.functions[0].attribute.append("text")
    path = write(tmp_path / "m.onnx", model)

    assert model == read_light_view(path).proto


def test_paths_of_service_accounts_are_not_found() -> None:
    """Home directories of CI images are not personal, and long paths are cut."""
    text = f"/home/runner/x /home/alice/{'p' * 9000}"

    assert {f"/home/alice/{'p' * 9000}"[:4096]} == find_home_paths(text)
