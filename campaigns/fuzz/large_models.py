"""Regression models that are too large to store as files; they are generated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onnx import AttributeProto, ModelProto, TensorProto, helper

from campaigns.fuzz.extreme_models import function, model_of, nested, node

DOUBLING = 40


def _constants(*factors: float) -> ModelProto:
    names = ["x", *(f"v{index}" for index in range(len(factors) - 1)), "y"]
    model = model_of(node("Mul", [names[i], f"c{i}"], [names[i + 1]]) for i in range(len(factors)))
    for index, factor in enumerate(factors):
        model.graph.initializer.add(name=f"c{index}", data_type=TensorProto.FLOAT, dims=[1], float_data=[factor])
    return model


def _chain(operator: str, count: int) -> bytes:
    names = ["x", *(f"v{index}" for index in range(count - 1)), "y"]
    more: dict[str, Any] = {"to": 1} if operator == "Cast" else {}
    made = [node(operator, [names[index]], [names[index + 1]], **more) for index in range(count)]
    reshaped = node("Reshape", ["x", names[-2]], ["z"])
    return model_of([*made, reshaped]).SerializeToString()


def _tensor(dims: list[int]) -> bytes:
    model = model_of([node("Add", ["x", "w"], ["y"])])
    model.graph.initializer.add(name="w", data_type=1, dims=dims, raw_data=b"abcd")
    return model.SerializeToString()


def external_model(**said: str) -> bytes:
    """Return a model with external data."""
    model = model_of([node("Add", ["x", "w"], ["y"])])
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "data.bin", **said}.items():
        tensor.external_data.add(key=key, value=value)
    return model.SerializeToString()


def _input(*dims: int | str) -> bytes:
    model = model_of([node("Neg", ["x"], ["y"])])
    model.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, dims))
    return model.SerializeToString()


def _doubling(*, alike: bool) -> bytes:
    """Return a model with functions that each call the next one twice, 2^40 nodes in total."""
    model = model_of([node("f0", ["x"], ["y"], "local")])
    for index in range(DOUBLING):
        last = index == DOUBLING - 1
        calls = []
        for call, (given, made) in enumerate((("a", "t"), ("t", "b"))):
            more = {} if last or alike else {"alpha": float(call)}
            calls.append(node("Neg" if last else f"f{index + 1}", [given], [made], "" if last else "local", **more))
        function(model, f"f{index}", calls, ["alpha"])
    return model.SerializeToString()


def _tower() -> bytes:
    """Return a model with a chain of function calls that is deeper than any limit."""
    model = model_of([node("f0", ["x"], ["y"], "local")])
    for index in range(100):
        last = index == 99
        function(model, f"f{index}", [node("Neg" if last else f"f{index + 1}", ["a"], ["b"], "" if last else "local")])
    return model.SerializeToString()


def _quantized_ring() -> bytes:
    model = model_of([node("Relu", ["v"], ["y"]), node("Relu", ["y"], ["v"])])
    return model.SerializeToString()


def _deep_graphs() -> bytes:
    return b"\x08\x08" + nested([7, *([1, 5, 6] * 100_000)])


def _deep_types() -> bytes:
    value = b"\x0a\x01x" + nested([2, *([4, 1] * 100_000)])
    graph = nested([11], value)
    return b"\x08\x08" + nested([7], graph)


def _unread_attribute() -> bytes:
    model = model_of([node("Conv", ["x", "x"], ["y"])])
    model.graph.node[0].attribute.add(name="auto_pad", type=AttributeProto.STRING, s=b"\xff\xfe")
    return model.SerializeToString()


def _traced(path: str) -> bytes:
    model = model_of([node("Neg", ["x"], ["y"], name="n")])
    trace = f'File "{path}", line 1, in f\n    return x'
    model.graph.node[0].metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
    return model.SerializeToString()


def _packed() -> bytes:
    """Return a model with invalid numbers in stored data; found by coverage-guided fuzzing."""
    model = model_of([node("Add", ["x", "w"], ["y"])])
    model.graph.initializer.add(name="w", data_type=7, dims=[20])
    held = model.graph.initializer[0].SerializeToString() + b"\x3a\x14" + b"\xff" * 20
    return model.SerializeToString()[:2] + nested([7, 5], held)


def _split() -> bytes:
    """Return a model with a node for which onnx's inference lists more outputs than fit in memory."""
    model = model_of([node("Split", ["x"], ["y"], num_outputs=2**40)])
    return model.SerializeToString()


LARGER: Mapping[str, Callable[[], bytes]] = {
    "dims-without-end": lambda: _tensor([2**63 - 1] * 20_000),
    "dims-past-64-bits": lambda: _tensor([2**62, 2**62]),
    "dims-past-64-bits-and-none": lambda: _tensor([2**62, 2**62, 0]),
    "offset-of-5000-digits": lambda: external_model(offset="9" * 5000),
    "offset-of-4300-digits": lambda: external_model(offset="9" * 4300),
    "length-past-64-bits": lambda: external_model(length=str(2**64)),
    "location-longer-than-a-path": lambda: external_model(location="a/" * 5000),
    "input-of-16-eib": lambda: _input(2**31, 2**31),
    "empty-input-of-2-to-62": lambda: _input(0, 2**62),
    "input-of-64-axes": lambda: _input(*([1] * 64)),
    "axis-that-is-a-deep-formula": lambda: _input("N" + "+1" * 2000),
    "axis-of-many-brackets": lambda: _input("(" * 300),
    "axis-of-many-signs": lambda: _input("-" * 50_000 + "1"),
    "axis-of-a-tower-of-powers": lambda: _input("9**9**9**9", "9*" * 90 + "9"),
    "identities-in-a-long-chain": lambda: _chain("Identity", 1100),
    "casts-in-a-long-chain": lambda: _chain("Cast", 1100),
    "factors-in-a-long-chain": lambda: _constants(*([1e-30] * 1100)).SerializeToString(),
    "relus-in-a-ring": _quantized_ring,
    "functions-that-double": lambda: _doubling(alike=True),
    "functions-that-double-differently": lambda: _doubling(alike=False),
    "functions-100-deep": _tower,
    "graphs-100000-deep": _deep_graphs,
    "types-100000-deep": _deep_types,
    "string-that-is-no-text": _unread_attribute,
    "source-longer-than-a-name": lambda: _traced("x" * 1000),
    "source-of-many-folders": lambda: _traced("a/" * 20_000),
    "numbers-that-are-none": _packed,
    "split-into-2-to-40": _split,
}
