"""Text description of a model: small changes of the model are small changes of the text."""

from __future__ import annotations

import difflib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxgate.model.diff.text_description import describe_model, find_user_given_name
from tests.harness.models import make_external, parse, write
from tests.model.diff.test_model_diff import FUNCTIONS, INSIDE, NET, net, put_in

EXPORTED = """g (float[N, 8] x) => (float[N, 8] y)
{
  [node_0] val_0 = MatMul (x, layers.0.weight)
  [node_1] relu = Relu (val_0)
  [node_2] val_1 = MatMul (relu, layers.1.weight)
  [node_3] relu_1 = Relu (val_1)
  [node_4] val_2 = MatMul (relu_1, layers.2.weight)
  [node_5] relu_2 = Relu (val_2)
  [node_6] y = Add (relu_2, relu)
}"""


def text(folder: Path, model: onnx.ModelProto) -> list[str]:
    """Return the model's description."""
    return list(describe_model(write(folder / "model.onnx", model)))


def changed(old: list[str], new: list[str]) -> list[str]:
    """Return the lines that a diff of the two texts shows."""
    return [line for line in difflib.unified_diff(old, new, n=0, lineterm="") if line[:2] not in ("--", "++", "@@")]


def exported(lines: str = EXPORTED) -> onnx.ModelProto:
    """Return a model with value names like those of exporters."""
    model = parse(lines.replace("layers.", "layers_").replace(".weight", "_w"))
    for index in range(3):
        values = np.random.default_rng(index).standard_normal((8, 8)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, f"layers_{index}_w"))
    return model


def test_a_small_model(tmp_path: Path) -> None:
    """The description of a small model is complete."""
    model = parse("g (float[N, 4] x) => (float[N, 4] y) <int64[2] shape = {-1, 4}> { y = Reshape (x, shape) }")
    model.metadata_props.add(key="author", value="someone")

    assert text(tmp_path, model) == [
        "ONNX model, text format 1",
        "ir version 8",
        "opset ai.onnx 18",
        "metadata author = someone",
        "input x: tensor(float) [N, 4]",
        "output y: tensor(float) [N, 4]",
        "",
        "operators",
        "  Reshape 1",
        "",
        "nodes",
        "  y = Reshape(x, shape)",
        "",
        "weights",
        "  shape int64[2] = [-1, 4]",
    ]


def test_numbers_of_an_exporter_do_not_show(tmp_path: Path) -> None:
    """Renumbered values, as after adding a node in front, do not change the text."""
    renumbered = EXPORTED
    numbers = {"val_2": "val_9", "val_1": "val_8", "val_0": "val_7", "relu_2": "relu_6", "relu_1": "relu_5"}
    for old, new in {**numbers, "node_": "n_"}.items():
        renumbered = renumbered.replace(old, new)

    first = renumbered.replace("relu =", "relu_4 =").replace("(relu,", "(relu_4,").replace(" relu)", " relu_4)")

    assert changed(text(tmp_path, exported()), text(tmp_path, exported(renumbered))) == []
    assert changed(text(tmp_path, exported()), text(tmp_path, exported(first))) == []


def test_the_order_of_nodes_does_not_show(tmp_path: Path) -> None:
    """The order of the nodes in the file does not change the text."""
    new = net()
    left = new.graph.node[1]
    new.graph.node.insert(3, left)
    new.graph.node.pop(1)

    assert changed(text(tmp_path, net()), text(tmp_path, new)) == []


def test_a_node_put_in_is_a_few_lines(tmp_path: Path) -> None:
    """The diff shows the node, its reader, and the new count of its operator."""
    lines = changed(text(tmp_path, exported()), text(tmp_path, put_in(exported(), "Neg", "node_2")))

    assert len(lines) <= 8
    assert "+  Neg 1" in lines
    assert any(line.startswith("+  between = Neg(MatMul.") for line in lines)


def test_a_weight_is_one_line(tmp_path: Path) -> None:
    """A changed weight changes only its own line."""
    new = exported()
    values = numpy_helper.to_array(new.graph.initializer[1]) + np.float32(1)
    new.graph.initializer[1].CopyFrom(numpy_helper.from_array(values, "layers_1_w"))
    lines = changed(text(tmp_path, exported()), text(tmp_path, new))

    assert [line.split("[")[0] for line in lines] == ["-  layers_1_w float", "+  layers_1_w float"]


def test_an_attribute_is_one_line(tmp_path: Path) -> None:
    """A changed attribute changes only the line of its node."""
    old, new = (
        parse("g (float[4] x) => (float[4] y) { y = Elu <alpha = 0.1> (x) }"),
        parse("g (float[4] x) => (float[4] y) { y = Elu <alpha = 0.2> (x) }"),
    )

    assert changed(text(tmp_path, old), text(tmp_path, new)) == ["-  y = Elu(x) alpha=0.1", "+  y = Elu(x) alpha=0.2"]


def test_types_of_small_constants_show(tmp_path: Path) -> None:
    """The text distinguishes int32 from int64, 1.0 from 1, and adjacent floats."""
    said = []
    for value in (np.int64(1), np.int32(1), np.float32(1), np.nextafter(np.float32(1), np.float32(2)), np.float64(1)):
        model = parse("g (float[4] x) => (float[4] y) { y = my.Thing (x, val_3) }")
        model.graph.initializer.append(numpy_helper.from_array(np.array(value), "val_3"))
        said += [line for line in text(tmp_path, model) if "Thing(" in line]

    assert said == [f"  y = my.Thing(x, {it})" for it in ("1", "int32 1", "1.0", "1.0000001", "double 1.0")]


def test_graphs_inside_and_functions(tmp_path: Path) -> None:
    """Subgraphs are described below their node, and functions after the main graph."""
    inside = text(tmp_path, parse(INSIDE))
    functions = text(tmp_path, onnx.parser.parse_model(FUNCTIONS))
    start = inside.index("  y = If(p)")
    names = [line.split()[0] for line in inside[start + 1 : start + 7]]

    assert inside[start + 1 : start + 7] == [
        "    else_branch ()",
        f"      {names[1]} = Relu(a)",
        f"      e2 = Neg({names[1]})",
        "    then_branch ()",
        f"      {names[4]} = Sigmoid(a)",
        f"      t2 = Neg({names[4]})",
    ]
    assert functions[-6:] == ["", "local function my.twice", "  u = Relu(v)", "  z = Add(u, u)", "", "weights"]


def test_external_data_are_named_and_not_read(tmp_path: Path) -> None:
    """The text does not depend on the content of external data, because git passes only the model file."""
    model = net()
    data = make_external(model, "weights.bin")
    without = text(tmp_path, model)
    (tmp_path / "weights.bin").write_bytes(data)

    assert text(tmp_path, model) == without
    assert any(line.endswith("external location=weights.bin offset=256 length=256") for line in without)


def test_weights_in_their_order(tmp_path: Path) -> None:
    """Weights are sorted by name, with numbers in numerical order."""
    model = parse(NET)
    for name in ("w10", "w2", "w1"):
        model.graph.initializer.append(numpy_helper.from_array(np.zeros((8, 8), np.float32), f"layer.{name}.weight"))
    lines = text(tmp_path, model)

    assert [line.split()[0] for line in lines[lines.index("weights") + 1 :]] == [
        "layer.w1.weight",
        "layer.w2.weight",
        "layer.w10.weight",
    ]


@pytest.mark.parametrize(
    "name", ["val_72", "relu_1", "/Add_5_output_0", "onnx::Conv_123", "Relu__5:0", "v12", "123", "", "node.3"]
)
def test_numbered(name: str) -> None:
    """Names that contain an exporter's counter are not treated as chosen by the user."""
    assert find_user_given_name(name) == ""


@pytest.mark.parametrize(
    "name", ["conv1", "/layer1/relu/Relu_output_0", "model/dense/BiasAdd:0", "x", "layer.0.weight"]
)
def test_user_given_names_are_kept(name: str) -> None:
    """Names without an exporter's counter are kept."""
    assert find_user_given_name(name) == name
