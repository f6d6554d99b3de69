"""Small networks with one node that some releases compute incorrectly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

CHANNELS = 16


def convolutions(path: Path, operator: str, size: int, attributes: Mapping[str, object]) -> Path:
    """Create a network of 12 nodes: four convolutions, with a pooling after the second one, and a head."""
    random = np.random.default_rng(0)
    nodes, weights, value, channels = [], [], "x", 3
    for index in range(4):
        shape = (CHANNELS, channels, 3, 3)
        array = random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        weights.append(numpy_helper.from_array(array.astype(np.float32), f"w{index}"))
        nodes += [
            helper.make_node("Conv", [value, f"w{index}"], [f"c{index}"], f"conv{index}", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"c{index}"], [f"r{index}"], f"relu{index}"),
        ]
        value, channels = f"r{index}", CHANNELS
        if index == 1:
            nodes.append(helper.make_node(operator, [value], ["pooled"], "pool", **attributes))
            value = "pooled"
    head = random.standard_normal((CHANNELS, 10)).astype(np.float32)
    weights.append(numpy_helper.from_array(head, "w"))
    nodes += [
        helper.make_node("GlobalAveragePool", [value], ["g"], "global"),
        helper.make_node("Flatten", ["g"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "w"], ["y"], "head"),
    ]
    taken = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 3, size, size])
    given = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 10])
    graph = helper.make_graph(nodes, "g", [taken], [given], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    return path
