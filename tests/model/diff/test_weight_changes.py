"""Size of weight changes, with weights matched by structure."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgate.model.diff.model_diff import measure_weight_changes
from onnxgate.model.diff.result import WeightChanges
from onnxgate.model.reading.graph import build_graphs
from onnxgate.model.reading.structure import read_view
from onnxgate.model.reading.tensor_data import UnreadableWeightError
from tests.harness.models import make_external, write

NAMES = ("a", "b", "c")


def chain(*weights: np.ndarray, names: tuple[str, ...] = NAMES) -> onnx.ModelProto:
    """Return a model that multiplies `x` by each weight in turn."""
    values = ["x", *(f"{name}_out" for name in names[: len(weights)])]
    nodes = [
        helper.make_node("MatMul", [values[i], names[i]], [values[i + 1]], name=f"{names[i]}_node")
        for i in range(len(weights))
    ]
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 8]) for name in (values[0], values[-1])]
    tensors = [numpy_helper.from_array(each, name) for name, each in zip(names, weights, strict=False)]
    graph = helper.make_graph(nodes, "g", sides[:1], sides[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def random_weights(count: int = 3, seed: int = 0) -> list[np.ndarray]:
    """Return random square weights."""
    random = np.random.default_rng(seed)
    return [random.standard_normal((8, 8)).astype(np.float32) for _ in range(count)]


def moved(tmp_path: Path, old: onnx.ModelProto, new: onnx.ModelProto) -> WeightChanges | None:
    """Return the weight changes from `old` to `new`."""
    return measure(write(tmp_path / "old.onnx", old), write(tmp_path / "new.onnx", new))


def measure(old: Path, new: Path) -> WeightChanges | None:
    """Compare the weights of two files."""
    return measure_weight_changes(*(build_graphs(read_view(path), path) for path in (old, new)))


def test_names_do_not_count(tmp_path: Path) -> None:
    """Renamed weights with the same values are unchanged."""
    assert moved(tmp_path, chain(*random_weights()), chain(*random_weights(), names=("p", "q", "r"))) is None


def test_one_element(tmp_path: Path) -> None:
    """The weight with the largest change is named as in the new model."""
    old, new = random_weights(), random_weights()
    new[0][1, 1] += 0.25
    new[1][0, 0] -= 0.5

    assert moved(tmp_path, chain(*old), chain(*new, names=("p", "q", "r"))) == WeightChanges(
        changed=2, of=3, largest=0.5, name="q"
    )


def test_added_and_removed(tmp_path: Path) -> None:
    """An inserted weight does not change the others."""
    first, second, third = random_weights()

    assert moved(tmp_path, chain(first, third), chain(first, second, third)) == WeightChanges(changed=0, of=3, added=1)
    assert moved(tmp_path, chain(first, second, third), chain(first, third)) == WeightChanges(
        changed=0, of=2, removed=1
    )


def test_swapped(tmp_path: Path) -> None:
    """Two swapped weights count as two changed weights."""
    first, second, third = random_weights()
    actual = moved(tmp_path, chain(first, second, third), chain(second, first, third))

    assert actual is not None
    assert (actual.changed, actual.added, actual.removed) == (2, 0, 0)


def test_another_type(tmp_path: Path) -> None:
    """A weight converted to float16 has changed by the rounding error."""
    old = random_weights(1)
    actual = moved(tmp_path, chain(*old), chain(old[0].astype(np.float16)))

    assert actual is not None
    assert actual.changed == 1
    assert actual.largest == pytest.approx(np.abs(old[0] - old[0].astype(np.float16)).max())


def test_external_data(tmp_path: Path) -> None:
    """External storage is not a change; missing external data is an error."""
    old, new = chain(*random_weights()), chain(*random_weights())
    data = make_external(new, "weights.bin")
    (tmp_path / "weights.bin").write_bytes(data)

    assert moved(tmp_path, old, new) is None

    (tmp_path / "weights.bin").unlink()
    with pytest.raises(UnreadableWeightError, match=r"`weights\.bin` is missing"):
        moved(tmp_path, old, new)


def test_constants(tmp_path: Path) -> None:
    """A weight in a `Constant` equals the same weight in an initializer."""
    old, new = chain(*random_weights()), chain(*random_weights())
    tensor = new.graph.initializer.pop(0)
    new.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))

    assert moved(tmp_path, old, new) is None


def test_the_largest_of_all_stretches(tmp_path: Path) -> None:
    """The largest change is found in a weight of several megabytes, which is read in chunks."""
    old = np.ones((1500, 1000), np.float32)
    new = old.copy()
    new[0, 0], new[-1, -1] = 3, 1.5

    assert moved(tmp_path, chain(old), chain(new)) == WeightChanges(changed=1, of=1, largest=2.0, name="a")


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Two files of 120 MB are compared in a fraction of the memory that one of them takes."""
    weights = [np.full((1900, 8000), seed, np.float32) for seed in (1, 2)]
    (old := tmp_path / "old.onnx").write_bytes(chain(*weights).SerializeToString())
    weights[1][5, 5] = 4
    (new := tmp_path / "new.onnx").write_bytes(chain(*weights).SerializeToString())
    tracemalloc.start()
    actual = measure(old, new)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert actual == WeightChanges(changed=1, of=2, largest=2.0, name="b")
    assert peak_bytes < 48 * 1024 * 1024


@pytest.mark.parametrize("broken", [np.nan, np.inf])
@pytest.mark.parametrize("backwards", [False, True])
def test_non_finite_elements_have_no_bound(tmp_path: Path, broken: float, backwards: bool) -> None:
    """If an element is or was NaN or infinite, no largest change is reported."""
    old, new = random_weights(), random_weights()
    new[0][1, 1] = broken
    new[0][2, 2] += 0.125
    new[1][0, 0] += 0.25
    sides = (new, old) if backwards else (old, new)

    assert moved(tmp_path, *(chain(*side) for side in sides)) == WeightChanges(changed=2, of=3)
