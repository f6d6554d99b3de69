"""Float models that contain the dequantized weights of a model whose weights alone are quantized."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxgate.model.reading.structure import read_view
from onnxgate.stages.parity.dequantized_weights import has_dequantized_weights

Arrays = Mapping[str, Any]
WEIGHTS = {f"w{i}": np.random.default_rng(i).integers(-127, 128, (6, 8)).astype(np.int8) for i in range(4)}
SCALES = {f"w{i}": np.random.default_rng(9 + i).uniform(0.01, 0.02, 8).astype(np.float32) for i in range(4)}


def save(path: Path, nodes: list[onnx.NodeProto], tensors: Arrays) -> Path:
    """Save a model that consists of these nodes and weights."""
    graph = helper.make_graph(nodes, "g", [], [], [numpy_helper.from_array(it, name) for name, it in tensors.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def is_same(folder: Path, floats: Arrays, weights: Arrays = WEIGHTS) -> bool:
    """Compare a model with these quantized weights with a model with these float weights."""
    nodes = [helper.make_node("DequantizeLinear", [name, f"{name}_s"], [f"{name}_f"], axis=1) for name in weights]
    quantized = save(folder / "q.onnx", nodes, {**weights, **{f"{name}_s": SCALES[name] for name in weights}})
    real = save(folder / "f.onnx", [], floats)
    return has_dequantized_weights(read_view(quantized), quantized, read_view(real), real)


def dequantize(weights: Arrays = WEIGHTS) -> dict[str, Any]:
    """Return the dequantized weights, with other names and in another layout."""
    return {f"other.{name}": (weight * SCALES[name]).astype(np.float32).T.copy() for name, weight in weights.items()}


def test_dequantized_weights_are_found_by_their_values(tmp_path: Path) -> None:
    """Exporters rename and transpose weights."""
    assert is_same(tmp_path, {"bias": np.ones(48, np.float32), **dequantize()})


@pytest.mark.parametrize(("changed", "expected"), [(1, True), (2, True), (3, False)])
def test_some_weights_may_differ(tmp_path: Path, changed: int, expected: bool) -> None:
    """A wrong weight must not make the comparison less strict."""
    floats = dequantize()
    for name in sorted(floats)[:changed]:
        floats[name] = floats[name] * np.float32(1.01)

    assert expected == is_same(tmp_path, floats)


def test_weights_before_quantization_differ(tmp_path: Path) -> None:
    """Rounding to 8 bits changes weights by more than rounding in float32."""
    random = np.random.default_rng(5)
    floats = {
        name: it + random.uniform(-0.005, 0.005, it.shape).astype(np.float32) for name, it in dequantize().items()
    }

    assert not is_same(tmp_path, floats)


def test_constant_weights_may_be_equal_by_chance(tmp_path: Path) -> None:
    """A weight with few different values shows nothing."""
    weights = {"w0": np.zeros((6, 8), np.int8)}

    assert not is_same(tmp_path, dequantize(weights), weights)
