"""Stored weights of quantized and float16 models, compared with their float model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxgate.evidence.parity import WrongWeight
from onnxgate.model.reading.structure import read_view
from onnxgate.stages.parity.quantized_weights import find_wrong_weights

WEIGHTS = {f"w{i}": np.random.default_rng(i).normal(size=(8, 8)).astype(np.float32) for i in range(5)}
Arrays = Mapping[str, Any]


def save(path: Path, nodes: list[onnx.NodeProto], tensors: Arrays) -> Path:
    """Save a model that consists of these nodes and weights."""
    stored = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    graph = helper.make_graph(nodes, "g", [], [], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def quantize(weights: Arrays, factors: Arrays) -> Arrays:
    """Quantize each row of each weight, and multiply the scales by the factors."""
    tensors = {}
    for name, weight in weights.items():
        scale = np.abs(weight).max(axis=1) / np.float32(127)
        tensors[f"{name}_quantized"] = np.round(weight / scale[:, None]).astype(np.int8)
        tensors[f"{name}_scale"] = (scale * factors.get(name, np.float32(1))).astype(np.float32)
    return tensors


def find_quantized(folder: Path, factors: Arrays, *, weights: Arrays = WEIGHTS) -> tuple[WrongWeight, ...]:
    """Find the wrong weights of a model with quantized weights."""
    nodes = [
        helper.make_node("DequantizeLinear", [f"{name}_quantized", f"{name}_scale"], [name], axis=0) for name in weights
    ]
    path, real = save(folder / "q.onnx", nodes, quantize(weights, factors)), save(folder / "f.onnx", [], WEIGHTS)
    return find_wrong_weights(read_view(path), path, read_view(real), real)


def find_quantized_blocks(folder: Path, operator: str, factors: Arrays) -> tuple[WrongWeight, ...]:
    """Find the wrong weights of a model whose columns are quantized to 4 bits in blocks of 16, padded to 48 rows."""
    weights = {f"w{i}": np.random.default_rng(i).normal(size=(40, 8)).astype(np.float32) for i in range(5)}
    nodes, tensors = [], []
    for name, weight in weights.items():
        blocks = np.pad(weight, ((0, 8), (0, 0))).reshape(3, 16, 8)
        scale = np.abs(blocks).max(axis=1) / np.float32(7)
        integers = np.round(blocks / scale[:, None]).astype(np.int8).reshape(48, 8)
        scale *= factors.get(name, np.float32(1))
        if operator == "DequantizeLinear":
            stored = f"{name}_DQ_Q4"
            tensors += [helper.make_tensor(stored, 22, (40, 8), integers[:40].flatten())]
            tensors += [numpy_helper.from_array(scale, f"{name}_scales")]
            nodes.append(helper.make_node(operator, [stored, f"{name}_scales"], [name], axis=0, block_size=16))
        else:
            unsigned = (integers.T + 8).astype(np.uint8).reshape(8, 3, 16)
            tensors += [numpy_helper.from_array(unsigned[..., ::2] | unsigned[..., 1::2] << 4, f"{name}_Q4")]
            tensors += [numpy_helper.from_array(scale.T.flatten(), f"{name}_scales")]
            tensors += [numpy_helper.from_array(np.full((8, 2), 0x88, np.uint8), f"{name}_zero_points")]
            inputs = ["x", f"{name}_Q4", f"{name}_scales", *([f"{name}_zero_points"] if name == "w1" else [])]
            sizes = {"K": 40, "N": 8, "bits": 4, "block_size": 16}
            nodes.append(helper.make_node(operator, inputs, [name], domain="com.microsoft", **sizes))
    graph = helper.make_graph(nodes, "g", [], [], tensors)
    path, real = folder / "q.onnx", save(folder / "f.onnx", [], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    return find_wrong_weights(read_view(path), path, read_view(real), real)


@pytest.mark.parametrize("operator", ["DequantizeLinear", "MatMulNBits"])
def test_weights_in_blocks_are_compared(tmp_path: Path, operator: str) -> None:
    """Each column of a matrix is a channel, also in `MatMulNBits`, which stores the columns in packed rows."""
    (wrong,) = find_quantized_blocks(tmp_path, operator, {"w1": one_channel(4.0)})

    assert ("w1", 3) == (wrong.weight, wrong.channel)
    assert pytest.approx(4.0, abs=0.1) == wrong.factor
    assert find_quantized_blocks(tmp_path, operator, {}) == ()


def one_channel(factor: float) -> Any:
    """Return factors of 1, except for one channel."""
    factors = np.ones(8, np.float32)
    factors[3] = factor
    return factors


def test_rounding_is_accepted(tmp_path: Path) -> None:
    """Weights that differ only by rounding are correct, also if they are stored transposed."""
    assert find_quantized(tmp_path, {}) == ()
    assert find_quantized(tmp_path, {}, weights={**WEIGHTS, "w0": WEIGHTS["w0"].T}) == ()


@pytest.mark.parametrize("factor", [4.0, 0.0, 0.5])
def test_scale_of_one_channel_is_wrong(tmp_path: Path, factor: float) -> None:
    """A wrong scale of one channel is found, even if it is 0."""
    (wrong,) = find_quantized(tmp_path, {"w2": one_channel(factor)})

    assert ("w2", 3, 0.0) == (wrong.weight, wrong.channel, wrong.shift)
    assert pytest.approx(factor, abs=0.02) == wrong.factor


def test_scale_of_a_weight_is_wrong(tmp_path: Path) -> None:
    """A weight whose scales are 5 % off is found if the other weights are correct."""
    (wrong,) = find_quantized(tmp_path, {"w2": 1.05})

    assert ("w2", None) == (wrong.weight, wrong.channel)


@pytest.mark.parametrize("channel", [None, 3])
def test_wrong_zero_point_is_found(tmp_path: Path, channel: int | None) -> None:
    """A zero point that is off by one shifts all elements by one step, which is less than the other limits."""
    tensors = {**quantize(WEIGHTS, {})}
    zero = np.zeros(8, np.int8)
    zero[slice(None) if channel is None else channel] = 1
    nodes = [
        helper.make_node(
            "DequantizeLinear", [f"{it}_quantized", f"{it}_scale", *(["zero"] if it == "w2" else [])], [it], axis=0
        )
        for it in WEIGHTS
    ]
    path, real = save(tmp_path / "q.onnx", nodes, {**tensors, "zero": zero}), save(tmp_path / "f.onnx", [], WEIGHTS)
    (wrong,) = find_wrong_weights(read_view(path), path, read_view(real), real)

    assert ("w2", channel) == (wrong.weight, wrong.channel)
    assert pytest.approx(-1, abs=0.2) == wrong.shift


def test_learned_rounding_is_accepted(tmp_path: Path) -> None:
    """Tools that learn whether to round up or down change elements by up to one step, in both directions."""
    tensors = {**quantize(WEIGHTS, {})}
    for index, name in enumerate(WEIGHTS):
        steps = WEIGHTS[name] / tensors[f"{name}_scale"][:, None]
        up = np.random.default_rng(index).random(steps.shape) < 0.5
        tensors[f"{name}_quantized"] = np.clip(np.where(up, np.ceil(steps), np.floor(steps)), -127, 127).astype(np.int8)
    nodes = [helper.make_node("DequantizeLinear", [f"{it}_quantized", f"{it}_scale"], [it], axis=0) for it in WEIGHTS]
    path, real = save(tmp_path / "q.onnx", nodes, tensors), save(tmp_path / "f.onnx", [], WEIGHTS)

    assert find_wrong_weights(read_view(path), path, read_view(real), real) == ()


def test_changed_weights_are_not_compared(tmp_path: Path) -> None:
    """If a tool rescaled or retrained most weights or channels, differences are not faults."""
    rescaled = dict(zip(WEIGHTS, (0.9, 1.1, 1.05, 1.2, 0.8), strict=True))

    assert find_quantized(tmp_path, rescaled) == ()
    assert find_quantized(tmp_path, dict.fromkeys(WEIGHTS, np.linspace(0.5, 2, 8, dtype=np.float32))) == ()


@pytest.mark.parametrize(("factor", "wrong"), [(1.0, []), (1.01, ["w1"])])
def test_float16_weights_are_rounded_float_weights(tmp_path: Path, factor: float, wrong: list[str]) -> None:
    """A float16 weight that is 1 % off is found."""
    halves = {name: (array * (factor if name == "w1" else 1)).astype(np.float16) for name, array in WEIGHTS.items()}
    path, real = save(tmp_path / "h.onnx", [], halves), save(tmp_path / "f.onnx", [], WEIGHTS)

    assert wrong == [each.weight for each in find_wrong_weights(read_view(path), path, read_view(real), real)]
