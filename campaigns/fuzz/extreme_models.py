"""Small models that are expensive to process: deep nesting, large numbers, repetition, recursion, fan-out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper

from onnxgate.model.reading.file_format import encode_length_prefix, encode_varint

GRAPH, NODE, ATTRIBUTE, SUBGRAPH = 7, 1, 5, 6
FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])


def nested(numbers: Sequence[int], innermost: bytes = b"") -> bytes:
    """Return nested messages, with the outermost first; they are built from the inside out, in linear time."""
    heads: list[bytes] = []
    size = len(innermost)
    for number in reversed(numbers):
        heads.append(encode_length_prefix(number, size))
        size += len(heads[-1])
    return b"".join(reversed(heads)) + innermost


def model_of(nodes: Iterable[NodeProto] = (), **more: object) -> ModelProto:
    """Return a model of these nodes, from x to y."""
    model = ModelProto(ir_version=8)
    model.opset_import.add(domain="", version=18)
    model.opset_import.add(domain="local", version=1)
    model.graph.name = "g"
    model.graph.input.add(name="x", type=FLOATS)
    model.graph.output.add(name="y", type=FLOATS)
    model.graph.node.extend(nodes)
    return model


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **more: Any) -> NodeProto:
    """Return a node."""
    return helper.make_node(operator, inputs, outputs, domain=domain, **more)


def function(model: ModelProto, name: str, nodes: Iterable[NodeProto], attributes: Sequence[str] = ()) -> None:
    """Return a local function from `a` to `b`."""
    made = model.functions.add(name=name, domain="local", input=["a"], output=["b"], attribute=attributes)
    made.opset_import.add(domain="", version=18)
    made.opset_import.add(domain="local", version=1)
    made.node.extend(nodes)


def deep_graphs(random: Random) -> bytes:
    """Nest subgraphs."""
    levels = random.choice((10, 30, 32, 33, 34, 40, 1000, 100_000))
    return b"\x08\x08" + nested([GRAPH, *([NODE, ATTRIBUTE, SUBGRAPH] * levels)])


def deep_branches(random: Random) -> bytes:
    """Nest If as deeply as protobuf allows; each If uses a value of the outermost graph."""
    graph = GraphProto(name="g", node=[node("Neg", ["x"], ["o"])])
    graph.output.add(name="o")
    for level in range(random.choice((5, 20, 31))):
        outer = GraphProto(name=f"g{level}")
        outer.node.add(op_type="If", input=["c"], output=["o"])
        for name in ("then_branch", "else_branch") if level < random.choice((1, 8)) else ("then_branch",):
            outer.node[0].attribute.add(name=name, type=AttributeProto.GRAPH).g.CopyFrom(graph)
        outer.output.add(name="o")
        graph = outer
    model = model_of()
    model.graph.input.add(name="c", type=helper.make_tensor_type_proto(TensorProto.BOOL, []))
    model.graph.node.extend(graph.node)
    return model.SerializeToString()


def deep_types(random: Random) -> bytes:
    """Nest sequences, optionals and maps."""
    levels = random.choice((10, 40, 46, 47, 48, 49, 60, 10_000, 100_000))
    kinds = {"sequence": [4, 1], "optional": [9, 1], "map": [5, 2]}
    pair = kinds[random.choice(list(kinds))]
    value = b"\x0a\x01x" + nested([2, *(pair * levels)])
    graph = b"".join((model_of().graph.SerializeToString(), encode_length_prefix(11, len(value)), value))
    return b"\x08\x08" + encode_length_prefix(GRAPH, len(graph)) + graph


def groups(random: Random) -> bytes:
    """Nest groups, with or without end tags."""
    levels = random.choice((1, 99, 101, 10_000, 100_000))
    begin, end = encode_varint(99 << 3 | 3), encode_varint(99 << 3 | 4)
    inside = begin * levels + end * random.choice((levels, 0, levels - 1))
    return model_of([node("Neg", ["x"], ["y"])]).SerializeToString() + inside


def recursion(random: Random) -> bytes:
    """Add local functions that call themselves directly or indirectly, including from a subgraph."""
    count = random.choice((1, 2, 5))
    model = model_of([node("f0", ["x"], ["y"], "local")])
    for index in range(count):
        callee = f"f{(index + 1) % count}"
        calls = [node(callee, ["a"], [f"t{call}"], "local") for call in range(random.choice((1, 2)))]
        if random.random() < 0.3:
            then = GraphProto(name="t", node=[node(callee, ["a"], ["o"], "local")])
            then.output.add(name="o")
            calls = [node("If", ["a"], ["t0"], then_branch=then, else_branch=then)]
        function(model, f"f{index}", [*calls, node("Identity", ["t0"], ["b"])])
    return model.SerializeToString()


def laughs(random: Random) -> bytes:
    """Add functions that each call the next one twice or more, with equal or different attributes."""
    count, width, alike = random.choice((8, 20, 40, 70)), random.choice((2, 3, 10)), random.random() < 0.5
    model = model_of([node("f0", ["x"], ["y"], "local", alpha=0.0)])
    for index in range(count):
        names = ["a", *(f"t{call}" for call in range(width - 1)), "b"]
        last = index == count - 1
        calls = []
        for call in range(width):
            more = {} if last else {"alpha": 0.0 if alike else float(call)}
            callee = ("Neg", "") if last else (f"f{index + 1}", "local")
            calls.append(node(callee[0], [names[call]], [names[call + 1]], callee[1], **more))
        function(model, f"f{index}", calls, ["alpha"])
    return model.SerializeToString()


def call_chain(random: Random) -> bytes:
    """Add a chain of functions that each call the next one."""
    count = random.choice((60, 65, 70, 300, 2000))
    model = model_of([node("f0", ["x"], ["y"], "local")])
    for index in range(count):
        callee = ("Neg", "") if index == count - 1 else (f"f{index + 1}", "local")
        function(model, f"f{index}", [node(callee[0], ["a"], ["b"], callee[1])])
    return model.SerializeToString()


def long_chain(random: Random) -> bytes:
    """Add a chain of nodes."""
    count = random.choice((900, 1100, 3000))
    kinds = random.choice(
        (["Identity"], ["Cast"], ["Neg"], ["DequantizeLinear"], ["Reshape", "Not"], ["Squeeze", "Cast"])
    )
    names = ["x", *(f"v{index}" for index in range(count - 1)), "y"]
    more: dict[str, Any] = {"to": 1} if kinds == ["Cast"] else {}
    made = [
        node(
            kinds[index % len(kinds)],
            [names[index], *(["x"] if random.random() < 0.1 else [])],
            [names[index + 1]],
            **more,
        )
        for index in range(count)
    ]
    if random.random() < 0.3:
        made.reverse()
    return model_of(made).SerializeToString()


def long_cycle(random: Random) -> bytes:
    """Add a cycle of nodes."""
    count = random.choice((1, 2, 3, 50, 1200))
    kind = random.choice(("Identity", "Cast", "Add", "DequantizeLinear"))
    made = [node(kind, [f"v{(index - 1) % count}", "x"], [f"v{index}"]) for index in range(count)]
    return model_of([*made, node("Identity", ["v0"], ["y"])]).SerializeToString()


def diamonds(random: Random) -> bytes:
    """Add nodes whose number of paths doubles at each step."""
    count = random.choice((10, 40, 400))
    names = ["x", *(f"v{index}" for index in range(count - 1)), "y"]
    kind = random.choice(("Add", "Mul", "Concat", "Where", "Min"))
    return model_of([node(kind, [names[i]] * 3, [names[i + 1]]) for i in range(count)]).SerializeToString()


def empty_nodes(random: Random) -> bytes:
    """Add many nodes that take only two bytes each."""
    nodes = b"\x0a\x00" * random.choice((1000, 20_000))
    return b"\x08\x08\x42\x02\x10\x12" + encode_length_prefix(GRAPH, len(nodes)) + nodes


def many(random: Random) -> bytes:
    """Repeat one element many times."""
    count = random.choice((300, 3000))
    model = model_of([node("Neg", ["x"], ["y"])])
    match random.randrange(9):
        case 0:
            model.graph.node[0].input.extend(["x"] * count)
        case 1:
            for index in range(count):
                model.graph.input.add(name=f"i{index}", type=FLOATS)
        case 2:
            for index in range(count):
                model.opset_import.add(domain=f"d{index}", version=index)
        case 3:
            for index in range(count):
                model.metadata_props.add(key=f"k{index % 7}", value="v")
        case 4:
            for index in range(count):
                model.graph.initializer.add(name=f"w{index}", data_type=1, dims=[1], raw_data=b"abcd")
        case 5:
            for _ in range(count):
                model.graph.node[0].attribute.add(name="alpha", type=AttributeProto.FLOAT, f=1)
        case 6:
            for index in range(count // 10):
                function(model, f"f{index}", [node("Neg", ["a"], ["b"])])
        case 7:
            model.graph.node.extend(node("Neg", ["x"], [f"o{index}"]) for index in range(count))
        case _:
            model.graph.node[0].output.extend(f"o{index}" for index in range(count))
    return model.SerializeToString()


def many_dims(random: Random) -> bytes:
    """Add a tensor or value with many large axes."""
    count, size = random.choice((100, 2000, 200_000)), random.choice((0, 1, 2, 2**40, 2**63 - 1))
    model = model_of([node("Add", ["x", "w"], ["y"])])
    if random.random() < 0.6:
        model.graph.initializer.add(name="w", data_type=1, raw_data=b"abcd", dims=[size] * count)
    else:
        kind: TypeProto = model.graph.input[0].type
        for _ in range(min(count, 20_000)):
            kind.tensor_type.shape.dim.add(dim_value=size)
    return model.SerializeToString()


def vast(random: Random) -> bytes:
    """Declare inputs and weights larger than memory."""
    sizes = random.choice(([2**31], [2**20, 2**20], [2**40, 2**40], [2**63 - 1], [2**62, 4], [0, 2**62], [1] * 40))
    model = model_of([node(random.choice(("Add", "Gather", "Reshape", "Tile", "Expand")), ["x", "w"], ["y"])])
    model.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(random.choice((1, 7, 9, 10)), sizes))
    if random.random() < 0.5:
        model.graph.initializer.add(
            name="w", data_type=7, dims=[2], int64_data=random.choices((2**62, -1, 0, 2**31), k=2)
        )
    else:
        model.graph.input.add(name="w", type=helper.make_tensor_type_proto(7, [2]))
    return model.SerializeToString()


def folding(random: Random) -> bytes:
    """Add constants that make shape inference compute huge repeats, ranges and shapes."""
    big = random.choice((2**20, 2**31, 2**40, 2**62, -1))
    model = model_of()
    for name, values in (("s", [big, big]), ("n", [big]), ("z", [0])):
        model.graph.initializer.add(name=name, data_type=7, dims=[len(values)], int64_data=values)
    for name, value in (("b", big), ("o", 0), ("d", random.choice((1, 0, -1)))):
        model.graph.initializer.add(name=name, data_type=7, int64_data=[value])
    kinds = (
        node("Range", ["o", "b", "d"], ["y"]),
        node("ConstantOfShape", ["s"], ["y"]),
        node("Expand", ["x", "s"], ["y"]),
        node("Tile", ["x", "n"], ["y"]),
        node("Pad", ["x", "s"], ["y"]),
        node("Split", ["x"], ["y"] * random.choice((1, 3)), num_outputs=abs(big)),
        node("OneHot", ["x", "b", "s"], ["y"]),
        node("Slice", ["x", "z", "n"], ["y"]),
        node("Reshape", ["x", "s"], ["y"]),
        node("Squeeze", ["x", "n"], ["y"]),
        node("Concat", ["x", "x"], ["y"], axis=max(min(big, 2**62), -(2**62))),
        node("Transpose", ["x"], ["y"], perm=[big, 0]),
        node("MaxPool", ["x"], ["y"], kernel_shape=[0, 0], strides=[0, 0]),
        node("Conv", ["x", "x"], ["y"], strides=[0], kernel_shape=[big]),
    )
    model.graph.node.append(random.choice(kinds))
    return model.SerializeToString()


def long_name(random: Random) -> bytes:
    """Add a very long name."""
    name = random.choice(("x", "\u202e", "(", "/", "a b ", "/home/", "N+", "\0")) * random.choice((1000, 100_000))
    model = model_of([node("Neg", ["x"], ["y"], name=name)])
    match random.randrange(6):
        case 0:
            model.graph.node[0].op_type = name
        case 1:
            model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
        case 2:
            model.doc_string = name
        case 3:
            model.graph.initializer.add(name="w", data_type=1, dims=[1], data_location=1).external_data.add(
                key="location", value=name
            )
        case 4:
            model.graph.node[0].metadata_props.add(
                key="pkg.torch.onnx.stack_trace", value=f'File "{name}", line 1, in f'
            )
        case _:
            model.graph.input[0].name = name
    return model.SerializeToString()
