"""Families of models in the corpora. Each adds blocks until the model has the requested number of nodes."""

from __future__ import annotations

from collections.abc import Callable

from onnx import GraphProto, TensorProto, helper

from bench.corpora.draft import FLOAT, INT8, Draft

Family = Callable[[Draft, int, int], None]
"""Takes a draft, the minimum number of nodes to add, and the width of the layers."""
_LOCAL = "bench.local"
_HEADS = 4
_CLASSES = 10


def cnn(draft: Draft, nodes: int, width: int) -> None:
    """Add residual blocks of convolutions, with normalization and pooling."""
    x = draft.input("images", FLOAT, ["batch", 3, 32, 32])
    x = draft.node("Conv", x, draft.weight(width, 3, 3, 3), draft.weight(width), pads=[1, 1, 1, 1])
    while len(draft.nodes) < nodes - 3:
        x = _residual(draft, x, width)
    _classifier(draft, x, width)


def _residual(draft: Draft, x: str, width: int) -> str:
    y = draft.node("Conv", x, draft.weight(width, width, 3, 3), draft.weight(width), pads=[1, 1, 1, 1])
    normal = [draft.weight(width) for _ in range(4)]
    y = draft.node("Relu", draft.node("BatchNormalization", y, *normal, epsilon=1e-5))
    y = draft.node("Conv", y, draft.weight(width, width, 1, 1))
    y = draft.node("Add", x, y)
    return draft.node("MaxPool", y, kernel_shape=[3, 3], pads=[1, 1, 1, 1])


def _classifier(draft: Draft, x: str, width: int) -> None:
    x = draft.node("Flatten", draft.node("GlobalAveragePool", x))
    x = draft.node("Gemm", x, draft.weight(_CLASSES, width), draft.weight(_CLASSES), transB=1)
    draft.output(x, FLOAT, ["batch", _CLASSES])


def transformer(draft: Draft, nodes: int, width: int) -> None:
    """Add attention and feed-forward layers for token ids, with lengths that are computed in the graph."""
    width = max(_HEADS, width - width % _HEADS)
    tokens = draft.input("tokens", TensorProto.INT64, ["batch", "time"])
    x = draft.node("Gather", draft.weight(256, width), tokens)
    while len(draft.nodes) < nodes - 1:
        x = _feed_forward(draft, _attention(draft, x, width), width)
    x = draft.node("MatMul", x, draft.weight(width, _CLASSES))
    draft.output(x, FLOAT, ["batch", "time", _CLASSES])


def _attention(draft: Draft, x: str, width: int) -> str:
    y = draft.node("LayerNormalization", x, draft.weight(width), draft.weight(width))
    split = _split_shape(draft, y, width)
    q, k, v = (_heads(draft, y, split, width) for _ in range(3))
    scores = draft.node("MatMul", q, draft.node("Transpose", k, perm=[0, 1, 3, 2]))
    scores = draft.node("Mul", scores, draft.constant("scale", (width / _HEADS) ** -0.5, "float32"))
    y = draft.node("MatMul", draft.node("Softmax", scores, axis=-1), v)
    y = draft.node("Transpose", y, perm=[0, 2, 1, 3])
    y = draft.node("Reshape", y, draft.constant("join", [0, 0, width], "int64"))
    return draft.node("Add", x, draft.node("MatMul", y, draft.weight(width, width)))


def _split_shape(draft: Draft, x: str, width: int) -> str:
    """Add nodes that compute, from the shape of `x`, the shape that splits it into heads, as exporters do."""
    shape = draft.node("Shape", x)
    sizes = [draft.node("Gather", shape, draft.constant(f"axis_{axis}", [axis], "int64"), axis=0) for axis in range(2)]
    heads = draft.constant("heads", [_HEADS, width // _HEADS], "int64")
    return draft.node("Concat", *sizes, heads, axis=0)


def _heads(draft: Draft, x: str, split: str, width: int) -> str:
    y = draft.node("Add", draft.node("MatMul", x, draft.weight(width, width)), draft.weight(width))
    return draft.node("Transpose", draft.node("Reshape", y, split), perm=[0, 2, 1, 3])


def _feed_forward(draft: Draft, x: str, width: int) -> str:
    y = draft.node("LayerNormalization", x, draft.weight(width), draft.weight(width))
    y = draft.node("Add", draft.node("MatMul", y, draft.weight(width, 4 * width)), draft.weight(4 * width))
    half = draft.node("Mul", y, draft.constant("half", 0.5, "float32"))
    error = draft.node("Erf", draft.node("Div", y, draft.constant("root", 2**0.5, "float32")))
    y = draft.node("Mul", half, draft.node("Add", error, draft.constant("one", 1, "float32")))
    y = draft.node("Add", draft.node("MatMul", y, draft.weight(4 * width, width)), draft.weight(width))
    return draft.node("Add", x, y)


def mlp(draft: Draft, nodes: int, width: int) -> None:
    """Add dense layers, each with a different activation."""
    x = draft.input("features", FLOAT, ["batch", width])
    activations = ("Relu", "Sigmoid", "Tanh", "Elu", "Softplus", "HardSigmoid")
    while len(draft.nodes) < nodes - 1:
        x = draft.node("Gemm", x, draft.weight(width, width), draft.weight(width))
        x = draft.node(activations[len(draft.nodes) // 2 % len(activations)], x)
    x = draft.node("Gemm", x, draft.weight(width, _CLASSES))
    draft.output(x, FLOAT, ["batch", _CLASSES])


def quantized(draft: Draft, nodes: int, width: int) -> None:
    """Add convolutions between QuantizeLinear and DequantizeLinear, with 8-bit weights and a scale per channel."""
    x = _quantize(draft, draft.input("images", FLOAT, ["batch", width, 16, 16]))
    while len(draft.nodes) < nodes - 4:
        x = _quantize(draft, draft.node("Relu", _quantized_conv(draft, x, width)))
    _classifier(draft, _dequantize(draft, x), width)


def _quantized_conv(draft: Draft, x: str, width: int) -> str:
    scales = draft.constant("scales", [0.01 + channel / 10_000 for channel in range(width)], "float32")
    zeros = draft.constant("zeros", [0] * width, "int8")
    weight = draft.weight(width, width, 3, 3, data_type=INT8)
    weight = draft.node("DequantizeLinear", weight, scales, zeros, axis=0)
    return draft.node("Conv", _dequantize(draft, x), weight, draft.weight(width), pads=[1, 1, 1, 1])


def _step(draft: Draft) -> tuple[str, str]:
    return draft.constant("step", 0.02, "float32"), draft.constant("zero", 3, "uint8")


def _quantize(draft: Draft, x: str) -> str:
    return draft.node("QuantizeLinear", x, *_step(draft))


def _dequantize(draft: Draft, x: str) -> str:
    return draft.node("DequantizeLinear", x, *_step(draft))


def branching(draft: Draft, nodes: int, width: int) -> None:
    """Add subgraphs with layers between them: an If whose branches use outer values, and a Loop with a state."""
    x = draft.input("features", FLOAT, ["batch", width])
    flag = draft.input("flag", TensorProto.BOOL, [])
    count = draft.constant("count", 3, "int64")
    always = draft.constant("always", True, "bool")
    while len(draft.nodes) < nodes - 3:
        number = len(draft.nodes)
        branches = {f"{name}_branch": _branch(f"{name}_{number}", x, name) for name in ("then", "else")}
        x = draft.node("If", flag, **branches)
        x = draft.node("Loop", count, always, x, body=_body(f"body_{number}"))
        x = draft.node("Gemm", x, draft.weight(width, width), draft.weight(width))
    x = draft.node("Gemm", x, draft.weight(width, _CLASSES))
    draft.output(x, FLOAT, ["batch", _CLASSES])


def _branch(name: str, outer: str, which: str) -> GraphProto:
    made = [helper.make_node("Relu" if which == "then" else "Tanh", [outer], [f"{name}_a"])]
    made.append(helper.make_node("Add", [f"{name}_a", outer], [f"{name}_b"]))
    return helper.make_graph(made, name, [], [helper.make_tensor_value_info(f"{name}_b", FLOAT, None)])


def _body(name: str) -> GraphProto:
    value = helper.make_tensor_value_info
    inputs = [value(f"{name}_i", TensorProto.INT64, []), value(f"{name}_more", TensorProto.BOOL, [])]
    inputs.append(value(f"{name}_x", FLOAT, None))
    made = [helper.make_node("Sigmoid", [f"{name}_x"], [f"{name}_s"])]
    made.append(helper.make_node("Mul", [f"{name}_s", f"{name}_x"], [f"{name}_y"]))
    made.append(helper.make_node("Identity", [f"{name}_more"], [f"{name}_go"]))
    return helper.make_graph(
        made, name, inputs, [value(f"{name}_go", TensorProto.BOOL, []), value(f"{name}_y", FLOAT, None)]
    )


def functional(draft: Draft, nodes: int, width: int) -> None:
    """Add calls to two local functions, one of which calls the other."""
    imports = [helper.make_opsetid("", draft.opset), helper.make_opsetid(_LOCAL, 1)]
    swish = [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Mul", ["x", "s"], ["y"])]
    dense = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Swish", ["a"], ["y"], domain=_LOCAL),
    ]
    draft.functions.append(helper.make_function(_LOCAL, "Swish", ["x"], ["y"], swish, imports))
    draft.functions.append(helper.make_function(_LOCAL, "Dense", ["x", "w", "b"], ["y"], dense, imports))
    x = draft.input("features", FLOAT, ["batch", width])
    while len(draft.nodes) < nodes - 1:
        x = draft.node("Dense", x, draft.weight(width, width), draft.weight(width), domain=_LOCAL)
        x = draft.node("Softmax", x, axis=-1)
    x = draft.node("Gemm", x, draft.weight(width, _CLASSES))
    draft.output(x, FLOAT, ["batch", _CLASSES])


FAMILIES: dict[str, Family] = {
    "cnn": cnn,
    "transformer": transformer,
    "mlp": mlp,
    "quantized": quantized,
    "branching": branching,
    "functional": functional,
}
