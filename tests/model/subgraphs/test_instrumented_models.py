"""Models with intermediate values as outputs, and with nodes that have their own inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import external_data_helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from onnxgate.model.reading.structure import read_structure
from onnxgate.model.subgraphs.instrumented_models import (
    ISOLATED_SUFFIX,
    KnownValue,
    SearchNode,
    expose_values,
    isolate_nodes,
    list_search_nodes,
    split_by_size,
)

FLOAT = onnx.TensorProto.FLOAT
BRANCHED = """<ir_version: 8, opset_import: ["" : 18]>
g (float[N, 2] x, float[N, 2] other) => (float[N, 2] y, float[N, 2] z)
<float[2] w = {3, 5}, int64[1] axes = {0}> {
  constant = Identity(w)
  a = Mul(x, constant)
  b = Neg(a)
  y = Add(b, a)
  z = Neg(other)
}"""
NESTED = """<ir_version: 8, opset_import: ["" : 18]>
g (float[2] x, bool go) => (float[2] y) {
  a = Neg(x)
  y = If (go) <then_branch = t () => (float[2] p) { p = Exp(a) }, else_branch = e () => (float[2] q) { q = Neg(a) }>
}"""


def written(text: str, folder: Path) -> tuple[onnx.ModelProto, Path]:
    """Return a model with this text, and its file."""
    model = parser.parse_model(text)
    onnx.save(model, str(folder / "m.onnx"))
    return model, folder / "m.onnx"


def test_steps_are_the_nodes_an_output_depends_on() -> None:
    """Only nodes that the output depends on are listed, without those that depend only on weights."""
    model = parser.parse_model(BRANCHED)

    assert list_search_nodes(model, ["y"]) == (
        SearchNode(1, ("x",), ("a",)),
        SearchNode(2, ("a",), ("b",)),
        SearchNode(3, ("b", "a"), ("y",)),
    )


def test_steps_include_values_used_in_subgraphs() -> None:
    """A value that only a branch uses is one of the node's inputs."""
    assert list_search_nodes(parser.parse_model(NESTED), ["y"])[-1] == SearchNode(1, ("go", "a"), ("y",))


def test_exposed_values_follow_the_original_outputs(tmp_path: Path) -> None:
    """The new file begins with the original bytes, has the same outputs and adds the exposed values."""
    model, path = written(BRANCHED, tmp_path)
    exposed = expose_values(model, path, ["a", "b", "y"], tmp_path / "exposed")

    x, other = np.array([[1, 2]], np.float32), np.array([[7, 8]], np.float32)
    session = ReferenceEvaluator(onnx.load(str(exposed)))
    values = dict(zip(session.output_names, session.run(None, {"x": x, "other": other}), strict=True))

    assert exposed.read_bytes().startswith(path.read_bytes())
    assert session.output_names == ["y", "z", "a", "b"]
    assert {name: value.tolist() for name, value in values.items()} == {
        "y": [[0, 0]],
        "z": [[-7, -8]],
        "a": [[3, 10]],
        "b": [[-3, -10]],
    }


def test_external_data_is_next_to_the_copy(tmp_path: Path) -> None:
    """External data is placed next to the copy, as a hard link if possible, and never modified."""
    model, path = written(BRANCHED, tmp_path)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([3, 5], np.float32), "w"))
    external_data_helper.convert_model_to_external_data(model, location="d/m.data", size_threshold=0)
    (tmp_path / "d").mkdir()
    onnx.save(model, str(path))
    exposed = expose_values(read_structure(path), path, ["a"], tmp_path / "exposed")

    assert (exposed.parent / "d" / "m.data").read_bytes() == (tmp_path / "d" / "m.data").read_bytes()


def test_missing_external_data_is_reported(tmp_path: Path) -> None:
    """If external data is missing, no model is created."""
    model, path = written(BRANCHED, tmp_path)
    tensor = model.graph.initializer[0]
    tensor.external_data.add(key="location", value="gone.data")
    tensor.data_location = onnx.TensorProto.EXTERNAL

    with pytest.raises(OSError, match=r"`gone\.data` is missing"):
        expose_values(model, path, ["a"], tmp_path / "exposed")


def test_portions_keep_to_the_limit() -> None:
    """Portions use the case's sizes of dynamic axes; a value larger than the limit is a portion of its own."""
    model = parser.parse_model(BRANCHED)
    for name, width in (("a", 4), ("b", 4), ("c", 100)):
        value = onnx.helper.make_tensor_value_info(name, FLOAT, ["N", width])
        model.graph.value_info.append(value)

    assert split_by_size(model, ["a", "b", "c", "a"], {"N": 2}, 64) == [["a", "b"], ["c"], ["a"]]


def run_isolated(text: str, targets: list[int], fed: dict[str, np.ndarray]) -> dict[str, list[object]]:
    """Return the outputs of nodes that are run in isolation with these values."""
    model = parser.parse_model(text)
    known = {
        name: KnownValue(onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for name, value in fed.items()
    }
    made = isolate_nodes(model, targets, known)
    session = ReferenceEvaluator(made.model)
    values = session.run(None, {name: fed[name] for name in made.values})
    given = dict(zip(session.output_names, values, strict=True))
    return {name: given[named].tolist() for name, named in made.outputs.items()}


def test_isolated_nodes_get_known_values() -> None:
    """Each isolated node gets the known values, not the results of other nodes."""
    fed = {name: np.array([[number, number]], np.float32) for number, name in enumerate(("x", "a", "b"), 1)}

    assert run_isolated(BRANCHED, [1, 2, 3], fed) == {"a": [[3, 5]], "b": [[-2, -2]], "y": [[5, 5]]}


def test_unknown_inputs_are_computed() -> None:
    """If an input is unknown, the nodes that compute it are included."""
    fed = {"x": np.array([[1, 2]], np.float32), "a": np.array([[7, 7]], np.float32)}

    assert run_isolated(BRANCHED, [3], fed) == {"y": [[0, 0]]}


def test_branches_use_the_given_values() -> None:
    """A subgraph uses the given value under its own name."""
    fed = {"a": np.array([0, 0], np.float32), "go": np.array(True), "x": np.array([1, 1], np.float32)}

    assert run_isolated(NESTED, [0, 1], fed) == {"a": [-1, -1], "y": [1, 1]}


def test_weights_that_are_not_at_hand_are_fed(tmp_path: Path) -> None:
    """Weights that the structure omits are listed, so that they can be read from the file."""
    model = parser.parse_model(BRANCHED)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((64, 64), np.float32), "w"))
    onnx.save(model, str(tmp_path / "m.onnx"))
    proto = read_structure(tmp_path / "m.onnx", large_bytes=0)
    made = isolate_nodes(proto, [1], {"x": KnownValue(FLOAT, (1, 2))})

    assert [tensor.name for tensor in made.weights] == ["w"]
    assert [value.name for value in made.model.graph.input] == ["x", "w"]
    assert list(made.outputs.items()) == [("a", f"a{ISOLATED_SUFFIX}")]
