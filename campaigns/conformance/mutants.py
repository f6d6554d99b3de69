"""Mutants: backend models with one invalid or unusual detail, such as an attribute, a type, an input or an opset."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

MAX_BYTES = 64 * 1024
"""Larger backend models are not mutated: loading them would take most of the time."""
NUMBERS = (-(2**31), -99, -3, -2, -1, 0, 1, 2, 3, 5, 17, 99, 2**31 - 1)
WORDS = ("", "WRONG", "SAME", "constant", "linear", "x", "float")
EXAMPLES: dict[str, object] = {
    "f": 0.5,
    "i": 1,
    "s": "WRONG",
    "t": helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0]),
    "floats": [0.5, 2.0],
    "ints": [1, 2, 3],
    "strings": ["a"],
}
ELEMENT_TYPES = (0, 0, 0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 13, 14, 16, 17, 21, 99)
CONTAINERS = ("tensor_type", "sequence_type", "optional_type", "map_type")
Mutation = Callable[[ModelProto, Random], bool]


def every(
    models: Sequence[tuple[str, bytes]], count: int, seed: int = 0, mutations: Mapping[str, Mutation] | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield `count` different mutants with their names, such as `17/attribute-removed/1.23.2/node/test_gemm`."""
    mutations = MUTATIONS if mutations is None else mutations
    small = [(name, data) for name, data in models if len(data) <= MAX_BYTES]
    known: set[bytes] = set()
    index = 0
    while len(known) < count:
        random = Random(f"{seed}/{index}")
        index += 1
        name, original = random.choice(small)
        kind = random.choice([*mutations])
        model = ModelProto.FromString(original)
        if not mutations[kind](model, random):
            continue
        data = model.SerializeToString(deterministic=True)
        if data != original and data not in known:
            known.add(data)
            yield f"{index}/{kind}/{name}", data


def _graphs(model: ModelProto) -> list[GraphProto]:
    graphs = [model.graph]
    for graph in graphs:
        for node in graph.node:
            graphs += [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    return graphs


def _node(model: ModelProto, random: Random) -> NodeProto | None:
    nodes = [node for graph in _graphs(model) for node in graph.node]
    return random.choice(nodes) if nodes else None


def _attribute(model: ModelProto, random: Random) -> tuple[NodeProto, AttributeProto] | None:
    pairs = [(node, attribute) for graph in _graphs(model) for node in graph.node for attribute in node.attribute]
    return random.choice(pairs) if pairs else None


def _attribute_removed(model: ModelProto, random: Random) -> bool:
    if pair := _attribute(model, random):
        pair[0].attribute.remove(pair[1])
    return pair is not None


def _attribute_unknown(model: ModelProto, random: Random) -> bool:
    if node := _node(model, random):
        value = random.choice([1, 1.0, "a", [1]])
        node.attribute.append(helper.make_attribute(random.choice(("unknown", "axis", "epsilon", "to")), value))
    return node is not None


def _attribute_type(model: ModelProto, random: Random) -> bool:
    if pair := _attribute(model, random):
        changed = helper.make_attribute(pair[1].name, EXAMPLES[random.choice([*EXAMPLES])])
        pair[1].CopyFrom(changed)
    return pair is not None


def _attribute_value(model: ModelProto, random: Random) -> bool:
    if (pair := _attribute(model, random)) is None:
        return False
    attribute = pair[1]
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = random.choice(NUMBERS)
        case AttributeProto.FLOAT:
            attribute.f = random.choice((-1.0, 0.0, 0.5, 2.0, math.nan))
        case AttributeProto.STRING:
            attribute.s = random.choice(WORDS).encode()
        case AttributeProto.INTS:
            _change_list(attribute.ints, random, NUMBERS)
        case AttributeProto.FLOATS:
            _change_list(attribute.floats, random, (-1.0, 0.0, 0.5, 3.0))
        case AttributeProto.STRINGS:
            _change_list(attribute.strings, random, [word.encode() for word in WORDS])
        case AttributeProto.TENSOR:
            _change_tensor(attribute.t, random)
        case _:
            return False
    return True


def _change_list(values: object, random: Random, choices: Sequence[object]) -> None:
    listed = list(values)  # type: ignore[call-overload]
    match random.randrange(4):
        case 0 if listed:
            listed.pop()
        case 1:
            listed.append(random.choice(choices))
        case 2:
            listed = []
        case _ if listed:
            listed[random.randrange(len(listed))] = random.choice(choices)
    del values[:]  # type: ignore[attr-defined]
    values.extend(listed)  # type: ignore[attr-defined]


def _change_tensor(tensor: TensorProto, random: Random) -> None:
    match random.randrange(4):
        case 0:
            tensor.data_type = random.choice(ELEMENT_TYPES)
        case 1:
            tensor.dims.append(random.choice((0, 1, 2, -1)))
        case 2 if tensor.dims:
            tensor.dims.pop()
        case _ if tensor.raw_data:
            data = bytearray(tensor.raw_data)
            data[random.randrange(len(data))] ^= random.choice((1, 0x80, 0xFF))
            tensor.raw_data = bytes(data)
        case _:
            tensor.int64_data.append(random.choice(NUMBERS))


def _tensor_changed(model: ModelProto, random: Random) -> bool:
    tensors = [tensor for graph in _graphs(model) for tensor in graph.initializer]
    if tensors:
        _change_tensor(random.choice(tensors), random)
    return bool(tensors)


def _input_removed(model: ModelProto, random: Random) -> bool:
    node = _node(model, random)
    if node is None or not node.input:
        return False
    if random.random() < 0.5:
        node.input.pop()
    else:
        node.input[random.randrange(len(node.input))] = ""
    return True


def _input_swapped(model: ModelProto, random: Random) -> bool:
    graph = random.choice(_graphs(model))
    names = [value.name for value in (*graph.input, *graph.value_info)]
    names += [name for node in graph.node for name in node.output]
    nodes = [node for node in graph.node if node.input]
    if not nodes or not names:
        return False
    node = random.choice(nodes)
    node.input[random.randrange(len(node.input))] = random.choice([*names, *node.input])
    return True


def _input_added(model: ModelProto, random: Random) -> bool:
    node = _node(model, random)
    if node is None or not node.input:
        return False
    node.input.append(random.choice(node.input))
    return True


def _outputs_changed(model: ModelProto, random: Random) -> bool:
    node = _node(model, random)
    if node is None or not node.output:
        return False
    match random.randrange(3):
        case 0:
            node.output.append("another")
        case 1:
            node.output.pop()
        case _:
            node.output[random.randrange(len(node.output))] = ""
    return True


def _values(model: ModelProto) -> list[ValueInfoProto]:
    return [value for graph in _graphs(model) for value in (*graph.input, *graph.output, *graph.value_info)]


def _element_type(model: ModelProto, random: Random) -> bool:
    values = [value for value in _values(model) if value.type.HasField("tensor_type")]
    if values:
        random.choice(values).type.tensor_type.elem_type = random.choice(ELEMENT_TYPES)
    return bool(values)


def _type_cleared(model: ModelProto, random: Random) -> bool:
    values = _values(model)
    if not values:
        return False
    value_type = random.choice(values).type
    for kind in ("sequence_type", "optional_type"):
        if value_type.HasField(kind) and random.random() < 0.8:
            value_type = getattr(value_type, kind).elem_type
    match random.randrange(3):
        case 0:
            value_type.Clear()
        case 1 if value_type.HasField("tensor_type"):
            value_type.tensor_type.Clear()
        case _:
            _make_container(value_type, random)
    return True


def _make_container(value_type: TypeProto, random: Random) -> None:
    """Replace a type by a container of it, or by one without an element type."""
    inner = TypeProto()
    inner.CopyFrom(value_type)
    kind = random.choice(CONTAINERS[1:])
    value_type.Clear()
    getattr(value_type, kind).SetInParent()
    if kind != "map_type" and random.random() < 0.5:
        getattr(value_type, kind).elem_type.CopyFrom(inner)


def _shape(model: ModelProto, random: Random) -> bool:
    values = [value for value in _values(model) if value.type.tensor_type.HasField("shape")]
    if not values:
        return False
    shape = random.choice(values).type.tensor_type.shape
    match random.randrange(5):
        case 0:
            shape.dim.add(dim_value=random.choice((0, 1, 2, 7)))
        case 1 if shape.dim:
            shape.dim.pop()
        case 2:
            del shape.dim[:]
        case _ if shape.dim:
            random.choice(shape.dim).dim_value = random.choice((-1, 0, 1, 2, 3, 7, 64))
        case _:
            shape.dim.add(dim_param="N")
    return True


def _shape_cleared(model: ModelProto, random: Random) -> bool:
    values = [value for value in _values(model) if value.type.tensor_type.HasField("shape")]
    if values:
        random.choice(values).type.tensor_type.ClearField("shape")
    return bool(values)


def _input_constant(model: ModelProto, random: Random) -> bool:
    """Replace a small input by an initializer, as for the shape of Reshape or the axes of Slice."""
    numbers = {TensorProto.INT64: NUMBERS, TensorProto.FLOAT: (0.5, 1.0, 2.0), TensorProto.INT32: NUMBERS}
    inputs = []
    for value in model.graph.input:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type in numbers and len(dims) < 2 and 0 <= math.prod(dims) <= 16:
            inputs.append((value, dims))
    if not inputs:
        return False
    value, dims = random.choice(inputs)
    element = value.type.tensor_type.elem_type
    content = [random.choice(numbers[element]) for _ in range(math.prod(dims))]
    model.graph.initializer.append(helper.make_tensor(value.name, element, dims, content))
    model.graph.input.remove(value)
    return True


def _opset(model: ModelProto, random: Random) -> bool:
    if not model.opset_import:
        return False
    random.choice(model.opset_import).version = random.choice((0, *range(1, 27)))
    return True


def _operator(model: ModelProto, random: Random) -> bool:
    node = _node(model, random)
    if node is not None:
        node.op_type = random.choice(("Add", "Concat", "Reshape", "Identity", "Conv", "Resize", "Softmax", "Gather"))
    return node is not None


def _several(model: ModelProto, random: Random) -> bool:
    single = [mutate for name, mutate in MUTATIONS.items() if name != "several"]
    done = [random.choice(single)(model, random) for _ in range(2)]
    return any(done)


MUTATIONS: dict[str, Mutation] = {
    "attribute-removed": _attribute_removed,
    "attribute-unknown": _attribute_unknown,
    "attribute-type": _attribute_type,
    "attribute-value": _attribute_value,
    "tensor-changed": _tensor_changed,
    "input-removed": _input_removed,
    "input-swapped": _input_swapped,
    "input-added": _input_added,
    "outputs-changed": _outputs_changed,
    "element-type": _element_type,
    "type-cleared": _type_cleared,
    "shape": _shape,
    "shape-cleared": _shape_cleared,
    "input-constant": _input_constant,
    "opset": _opset,
    "operator": _operator,
    "several": _several,
}
