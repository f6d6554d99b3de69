"""Weights of float16 models that differ from a fresh export."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxgate.stages.parity.differing_weights import WeightComparison, compare_weights, locate_differing_weight
from onnxgate.stages.parity.source_difference import match_fresh_export

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

WEIGHT = np.random.default_rng(0).normal(size=(32, 24)).astype(np.float32)
SHARED = np.random.default_rng(1).normal(size=(24, 32)).astype(np.float16)


def save(path: Path, weight: Array, middle: str = "Relu") -> Path:
    """Save a model with two weights: one that all models share, and `weight`."""
    nodes = [
        helper.make_node("MatMul", ["x", "shared"], ["a"], name="first"),
        helper.make_node(middle, ["a"], ["b"]),
        helper.make_node("Identity", ["w"], ["v"]),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="second"),
    ]
    kind = helper.np_dtype_to_tensor_dtype(weight.dtype)
    tensors = [numpy_helper.from_array(SHARED.astype(weight.dtype), "shared"), numpy_helper.from_array(weight, "w")]
    values = [helper.make_tensor_value_info(name, kind, ["n", 24]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def list_differing(folder: Path, weight: Array, fresh: Array, middle: str = "Relu") -> list[str]:
    """Return the names of the weights that differ."""
    model, exported = save(folder / "m.onnx", weight), save(folder / "fresh.onnx", fresh, middle)
    matched = match_fresh_export(onnx.load(model), model, exported)
    assert matched is not None
    return [it.name for it in compare_weights(matched, model, limit=1).differing]


def scale(rows: slice, columns: slice, factor: float) -> Array:
    """Return the weight in float16 with one part of it scaled."""
    weight = WEIGHT.copy()
    weight[rows, columns] *= factor
    return weight.astype(np.float16)


ALL = slice(None)


@pytest.mark.parametrize("kind", [np.float16, np.float32], ids=["float16", "float32"])
@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (scale(ALL, ALL, 1.0), []),
        (np.nextafter(WEIGHT.astype(np.float16), np.float16(np.inf)), []),
        (scale(ALL, ALL, 1.01), ["w"]),
        (scale(slice(1), slice(1), 1.01), ["w"]),
        (scale(ALL, ALL, 1.003), ["w"]),
    ],
    ids=["same", "rounded differently", "1 %", "1 % of one element", "0.3 %"],
)
def test_differences_beyond_rounding_are_found(
    tmp_path: Path, weight: Array, expected: list[str], kind: type[np.floating[Any]]
) -> None:
    """Rounding changes an element of a stored weight by one step at most."""
    assert expected == list_differing(tmp_path, weight, WEIGHT.astype(kind))


@pytest.mark.parametrize(("share", "expected"), [(0.0, False), (0.04, False), (0.06, True), (1.0, True)])
def test_weights_that_are_computed_in_float16_differ_slightly(tmp_path: Path, share: float, expected: bool) -> None:
    """If weights are computed in float32, they equal those of a fresh export after rounding."""
    weight = WEIGHT.astype(np.float16)
    count = int(share * weight.size)
    weight.flat[:count] = np.nextafter(weight.flat[:count], np.float16(np.inf))
    model, exported = save(tmp_path / "m.onnx", weight), save(tmp_path / "fresh.onnx", WEIGHT)
    matched = match_fresh_export(onnx.load(model), model, exported)
    assert matched is not None
    compared = compare_weights(matched, model, limit=1)
    shared, computed = (hashlib.sha256(it.tobytes()).hexdigest() for it in (SHARED, weight))

    assert expected == compared.is_computed_in_half([shared])
    assert not compared.is_computed_in_half([shared, computed])


def test_a_constant_that_differs_slightly_may_be_wrong() -> None:
    """For example, 1.7 in place of 1.702 differs by two float16 steps."""
    weights = {sha256: WeightComparison(unequal=((sha256, 1, size),)) for sha256, size in (("a", 1), ("b", 16))}

    assert [False, True] == [it.is_computed_in_half([]) for it in weights.values()]


def test_weights_are_left_out_if_many_differ(tmp_path: Path) -> None:
    """The cause is then probably not a wrong weight."""
    model, exported = save(tmp_path / "m.onnx", scale(ALL, ALL, 2)), save(tmp_path / "fresh.onnx", WEIGHT)
    matched = match_fresh_export(onnx.load(model), model, exported)
    assert matched is not None

    assert compare_weights(matched, model, limit=0).differing == ()


def test_numbers_below_the_float16_range_are_rounded_to_zero(tmp_path: Path) -> None:
    """A converter replaces the smallest numbers by 0 or by the smallest float16 number."""
    weight, fresh = WEIGHT.copy(), WEIGHT.copy()
    weight[0], fresh[0] = 0.0, 1e-7

    assert [] == list_differing(tmp_path, weight.astype(np.float16), fresh)


def test_weights_in_other_places_are_not_compared(tmp_path: Path) -> None:
    """Another operator before a node does not change which weight it uses."""
    assert ["w"] == list_differing(tmp_path, scale(ALL, ALL, 1.01), WEIGHT, middle="Sigmoid")
    assert [] == list_differing(tmp_path, WEIGHT[:, :20].astype(np.float16), WEIGHT)


def test_node_that_uses_a_weight_is_located(tmp_path: Path) -> None:
    """A node that depends only on weights is not the first node that differs."""
    proto = onnx.load(save(tmp_path / "m.onnx", WEIGHT.astype(np.float16)))
    located = locate_differing_weight(proto, {"w"})
    assert located is not None

    assert ("second", "w") == (proto.graph.node[located[0].node].name, located[1])
    assert locate_differing_weight(proto, {"other"}) is None
