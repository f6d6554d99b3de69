"""Structural mutations of valid models: wrong wiring, declarations, attributes, weights, scopes and versions.

The mutants stay readable models in most cases, so that they reach the code behind the reader and the checker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, defs, helper

from campaigns.commands.seed_models import seed_models

__all__ = ["mutate", "seed_models"]

_Mutator = Callable[[ModelProto, Random], None]
_SIZES = (0, 1, 2, 3, 5, 7, 64, 4096, 100_000, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -1, -2, -(2**63))
_DIMENSION_NAMES = ("N", "M", "", "N*2", "N - 1", "floor(N/2)", "1/N", "batch size", "?", "unk__1", "N N", "-1", "0")
_VALUE_NAMES = ("", "x", "y", "a", "a:0", "a/b", "--help", "é", "a b", "a,b", "\N{BOM}", "y" * 200)
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "here", "ai.onnx.training", "ai.onnx.preview.training", "no")
_TYPES = (*range(27), 99)
_SPREAD = (1, 1, 1, 2, 3)
"""Numbers of mutations of one mutant."""


def mutate(seed_model: bytes, rng: Random) -> bytes:
    """Return a mutant of a serialized model; equal arguments give equal bytes."""
    mutant = seed_model
    while mutant == seed_model:  # not every mutator applies to every model
        model = ModelProto.FromString(seed_model)
        for _ in range(rng.choice(_SPREAD)):
            rng.choice(_MUTATORS)(model, rng)
        mutant = model.SerializeToString(deterministic=True)
    return mutant


def _graphs(model: ModelProto) -> list[GraphProto]:
    """Return the graph and all nested graphs, including those of local functions."""
    graphs = [model.graph]
    pending = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while pending:
        for attribute in pending.pop().attribute:
            for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                graphs.append(graph)
                pending.extend(graph.node)
    return graphs


def _nodes(model: ModelProto) -> list[NodeProto]:
    return [node for graph in _graphs(model) for node in graph.node] + [
        node for function in model.functions for node in function.node
    ]


def _values(model: ModelProto) -> list[ValueInfoProto]:
    return [value for graph in _graphs(model) for value in (*graph.input, *graph.output, *graph.value_info)]


def _tensors(model: ModelProto) -> list[TensorProto]:
    weights = [tensor for graph in _graphs(model) for tensor in graph.initializer]
    attributes = [attribute for node in _nodes(model) for attribute in node.attribute]
    return weights + [attribute.t for attribute in attributes if attribute.HasField("t")]


def _attributes(model: ModelProto) -> list[tuple[NodeProto, AttributeProto]]:
    return [(node, attribute) for node in _nodes(model) for attribute in node.attribute]


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _names(model: ModelProto) -> list[str]:
    names = [name for node in _nodes(model) for name in (*node.input, *node.output)]
    return names + [value.name for value in _values(model)]


# Wiring


def _swap_inputs(model: ModelProto, rng: Random) -> None:
    node = rng.choice(_nodes(model) or [NodeProto()])
    inputs = list(node.input)
    rng.shuffle(inputs)
    node.input[:] = inputs


def _drop_input(model: ModelProto, rng: Random) -> None:
    node = rng.choice(_nodes(model) or [NodeProto()])
    if node.input:
        position = rng.randrange(len(node.input))
        if rng.random() < 0.5:
            node.input[position] = ""
        else:
            del node.input[position]


def _add_input(model: ModelProto, rng: Random) -> None:
    if nodes := _nodes(model):
        rng.choice(nodes).input.extend(rng.choices(_names(model), k=rng.choice((1, 2, 9))))


def _reconnect(model: ModelProto, rng: Random) -> None:
    """Feed a node with any value of the model: of another scope, of a later node, or of itself."""
    node = rng.choice(_nodes(model) or [NodeProto()])
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice([*_names(model), "missing"])


def _change_outputs(model: ModelProto, rng: Random) -> None:
    node = rng.choice(_nodes(model) or [NodeProto()])
    match rng.randrange(4):
        case 0:
            node.output.append(f"extra{rng.randrange(9)}")
        case 1:
            del node.output[-1:]
        case 2 if node.output:
            node.output[rng.randrange(len(node.output))] = rng.choice(_names(model))
        case _ if node.output:
            node.output[rng.randrange(len(node.output))] = ""


def _make_cycle(model: ModelProto, rng: Random) -> None:
    graph = rng.choice(_graphs(model))
    wired = [node for node in graph.node if node.input and node.output]
    if wired:
        first, last = rng.choice(wired), rng.choice(wired)
        first.input[rng.randrange(len(first.input))] = rng.choice(last.output)


def _reverse_nodes(model: ModelProto, rng: Random) -> None:
    graph = rng.choice(_graphs(model))
    nodes = [_copy(node) for node in reversed(graph.node)]
    del graph.node[:]
    graph.node.extend(nodes)


def _repeat_node(model: ModelProto, rng: Random) -> None:
    graph = rng.choice(_graphs(model))
    if graph.node:
        node = _copy(rng.choice(graph.node))
        if rng.random() < 0.7:
            node.output[:] = [f"{name}_copy" for name in node.output]
        graph.node.append(node)


def _remove_node(model: ModelProto, rng: Random) -> None:
    graph = rng.choice(_graphs(model))
    if graph.node:
        del graph.node[rng.randrange(len(graph.node))]


def _insert_node(model: ModelProto, rng: Random) -> None:
    """Put an operator between a value and its users."""
    graph = rng.choice(_graphs(model))
    users = [node for node in graph.node if any(node.input)]
    if not users:
        return
    user = rng.choice(users)
    position = rng.choice([index for index, name in enumerate(user.input) if name])
    operator, attributes = rng.choice(_INSERTED)
    node = helper.make_node(operator, [user.input[position]], [f"inserted{rng.randrange(99)}"], **attributes)
    user.input[position] = node.output[0]
    at = list(graph.node).index(user)
    nodes = [*map(_copy, graph.node)]
    nodes.insert(at, node)
    del graph.node[:]
    graph.node.extend(nodes)


_INSERTED: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("Identity", {}), ("Cast", {"to": TensorProto.INT64}), ("Cast", {"to": TensorProto.STRING}), ("Shape", {})),
    *(("Size", {}), ("Flatten", {"axis": 7}), ("Transpose", {}), ("Not", {}), ("SequenceConstruct", {})),
    *(("Optional", {}), ("NonZero", {}), ("Squeeze", {}), ("EyeLike", {}), ("Softmax", {"axis": -9})),
)


# Operators


def _change_operator(model: ModelProto, rng: Random) -> None:
    node = rng.choice(_nodes(model) or [NodeProto()])
    schema = rng.choice(_SCHEMAS)
    node.op_type, node.domain = schema.name, schema.domain


def _change_domain(model: ModelProto, rng: Random) -> None:
    rng.choice(_nodes(model) or [NodeProto()]).domain = rng.choice(_DOMAINS)


_SCHEMAS = sorted(defs.get_all_schemas(), key=lambda schema: (schema.domain, schema.name))


# Attributes


def _drop_attribute(model: ModelProto, rng: Random) -> None:
    if found := _attributes(model):
        node, attribute = rng.choice(found)
        node.attribute.remove(attribute)


def _repeat_attribute(model: ModelProto, rng: Random) -> None:
    if found := _attributes(model):
        node, attribute = rng.choice(found)
        node.attribute.append(_copy(attribute))


def _retype_attribute(model: ModelProto, rng: Random) -> None:
    """Change the type that an attribute declares, or replace its value by one of another type."""
    if not (found := _attributes(model)):
        return
    _, attribute = rng.choice(found)
    if rng.random() < 0.4:
        attribute.type = rng.choice(AttributeProto.AttributeType.values())
        return
    value = rng.choice((0, 1.5, "text", [1, 2], [0.5], ["a"], [], helper.make_tensor("t", TensorProto.INT64, [1], [1])))
    attribute.CopyFrom(
        helper.make_attribute(attribute.name, value, attr_type=AttributeProto.INTS if value == [] else None)
    )


def _change_attribute(model: ModelProto, rng: Random) -> None:
    """Change the value of an attribute, which keeps its type."""
    if not (found := _attributes(model)):
        return
    _, attribute = rng.choice(found)
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = rng.choice(_SIZES)
        case AttributeProto.FLOAT:
            attribute.f = rng.choice((0.0, -1.0, 1e38, float("nan"), float("inf"), 1e-45))
        case AttributeProto.STRING:
            attribute.s = rng.choice((b"", b"nearest", b"\xff", b"NOTSET", b"ij->ji", b"a" * 500, b"SAME_UPPER"))
        case AttributeProto.INTS:
            attribute.ints[:] = rng.choices(_SIZES, k=rng.choice((0, 1, len(attribute.ints), 3, 50)))
        case AttributeProto.FLOATS:
            attribute.floats[:] = rng.choices((0.0, -1.0, float("nan"), 3e38), k=rng.choice((0, 1, 3, 50)))
        case AttributeProto.STRINGS:
            attribute.strings[:] = rng.choices((b"", b"a", b"\xff\xfe", b"Tanh"), k=rng.choice((0, 1, 3)))


def _add_attribute(model: ModelProto, rng: Random) -> None:
    """Add an attribute that some operator has, or that no operator has."""
    if nodes := _nodes(model):
        name = rng.choice(
            ("axis", "axes", "to", "keepdims", "perm", "value", "body", "then_branch", "", "auto_pad", "no")
        )
        value = rng.choice((1, -1, 2**40, 0.5, "NOTSET", [1, 0], [0.5], model.graph))
        if not (value is model.graph and model.ByteSize() > 20_000):
            rng.choice(nodes).attribute.append(
                helper.make_attribute(name, _copy(value) if value is model.graph else value)
            )


def _reference_attribute(model: ModelProto, rng: Random) -> None:
    """Make an attribute refer to one of the function, also outside of functions."""
    if found := _attributes(model):
        _, attribute = rng.choice(found)
        attribute.ref_attr_name = rng.choice(("by", "missing", attribute.name))
        if rng.random() < 0.7:
            name, kind = attribute.name, attribute.type
            reference = AttributeProto(name=name, type=kind, ref_attr_name=attribute.ref_attr_name)
            attribute.CopyFrom(reference)


# Declared types and shapes


def _declare_rank(model: ModelProto, rng: Random) -> None:
    """Declare another rank."""
    value = rng.choice(_values(model) or [ValueInfoProto()])
    shape = value.type.tensor_type.shape
    if rng.random() < 0.5 and shape.dim:
        del shape.dim[rng.randrange(len(shape.dim))]
    else:
        shape.dim.add(dim_value=rng.choice((1, 2, 3)))


def _declare_size(model: ModelProto, rng: Random) -> None:
    """Declare another size or name of an axis, or none."""
    value = rng.choice(_values(model) or [ValueInfoProto()])
    if dims := value.type.tensor_type.shape.dim:
        dim = rng.choice(dims)
        match rng.randrange(3):
            case 0:
                dim.dim_value = rng.choice(_SIZES)
            case 1:
                dim.dim_param = rng.choice(_DIMENSION_NAMES)
            case _:
                dim.Clear()


def _declare_type(model: ModelProto, rng: Random) -> None:
    value = rng.choice(_values(model) or [ValueInfoProto()])
    match rng.randrange(6):
        case 0:
            element = _copy(value.type)
            value.type.Clear()
            value.type.sequence_type.elem_type.CopyFrom(element)
        case 1:
            element = _copy(value.type)
            value.type.Clear()
            value.type.optional_type.elem_type.CopyFrom(element)
        case 2:
            value.type.Clear()
            value.type.map_type.key_type = TensorProto.INT64
            value.type.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
        case 3:
            value.type.Clear()
        case _:
            value.type.tensor_type.elem_type = rng.choice(_TYPES)


def _undeclare(model: ModelProto, rng: Random) -> None:
    """Remove shapes of inputs or outputs, or all declared inner values."""
    if rng.random() < 0.3:
        for graph in _graphs(model):
            del graph.value_info[:]
        return
    value = rng.choice(_values(model) or [ValueInfoProto()])
    value.type.tensor_type.ClearField("shape")


def _declare_inner(model: ModelProto, rng: Random) -> None:
    """Declare an inner value, usually wrongly."""
    graph = rng.choice(_graphs(model))
    names = [name for node in graph.node for name in (*node.output, *node.input) if name]
    if names:
        rank = rng.choice((0, 1, 2, 3, 4, 9))
        shape = [rng.choice((*_SIZES[:6], "N", "K", None)) for _ in range(rank)]
        kind = rng.choice((TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL, 99, 0))
        graph.value_info.append(helper.make_tensor_value_info(rng.choice(names), kind, rng.choice((shape, None))))


def _change_interface(model: ModelProto, rng: Random) -> None:
    """Remove, repeat, rename or add an input or an output of a graph."""
    graph = rng.choice(_graphs(model))
    interface = rng.choice((graph.input, graph.output))
    match rng.randrange(5):
        case 0 if interface:
            del interface[rng.randrange(len(interface))]
        case 1 if interface:
            interface.append(_copy(rng.choice(interface)))
        case 2 if interface:
            rng.choice(interface).name = rng.choice([*_VALUE_NAMES, *_names(model)])
        case 3:
            interface.add(name=rng.choice([*_VALUE_NAMES, *_names(model)]))
        case _:
            interface.append(helper.make_tensor_value_info(rng.choice(_names(model) or ["x"]), 1, [2]))


def _promote(model: ModelProto, rng: Random) -> None:
    """Make a weight an input, or an input a weight."""
    graph = rng.choice(_graphs(model))
    if graph.initializer and rng.random() < 0.6:
        weight = rng.choice(graph.initializer)
        if weight.data_type in set(range(1, 23)):
            graph.input.append(helper.make_tensor_value_info(weight.name, weight.data_type, list(weight.dims)))
        if rng.random() < 0.5:
            graph.initializer.remove(weight)
    elif graph.input:
        value = rng.choice(graph.input)
        shape = rng.choice(((), (1,), (2,), (2, 2), (0,)))
        count = 1 if not shape else int(shape[0] * (shape[1] if len(shape) > 1 else 1))
        kind = rng.choice((TensorProto.FLOAT, TensorProto.INT64))
        graph.initializer.append(helper.make_tensor(value.name, kind, shape, [1] * count))


# Weights


def _resize_data(model: ModelProto, rng: Random) -> None:
    """Change the number of elements, but not the shape."""
    tensor = rng.choice(_tensors(model) or [TensorProto()])
    for field in (tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data):
        if field:
            if rng.random() < 0.5:
                del field[: rng.choice((1, len(field)))]
            else:
                field.extend([field[0]] * rng.choice((1, 7)))
    if tensor.HasField("raw_data"):
        tensor.raw_data = rng.choice((tensor.raw_data[:-1], tensor.raw_data + b"\0", b"", tensor.raw_data * 3))


def _move_data(model: ModelProto, rng: Random) -> None:
    """Store the elements in another field, or in two."""
    tensor = rng.choice(_tensors(model) or [TensorProto()])
    if rng.random() < 0.5:
        tensor.raw_data = rng.randbytes(rng.choice((0, 1, 4, 8, 16, 64)))
    else:
        tensor.string_data.extend([b"a", b"\xff"])
    if rng.random() < 0.5:
        for name in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
            tensor.ClearField(name)


def _reshape_weight(model: ModelProto, rng: Random) -> None:
    """Change the shape of a weight: scalar, empty, huge, negative."""
    tensor = rng.choice(_tensors(model) or [TensorProto()])
    tensor.dims[:] = rng.choice(
        (
            [],
            [0],
            [1],
            [0, 3],
            [1, 1, 1, 1, 1],
            [2**40],
            [2**62, 2**62],
            [-1],
            [1, -4],
            list(tensor.dims)[::-1],
            [1] * 64,
        )
    )


def _empty_weight(model: ModelProto, rng: Random) -> None:
    """Make a weight a valid scalar or a valid empty tensor."""
    tensor = rng.choice(_tensors(model) or [TensorProto()])
    kind = tensor.data_type if tensor.data_type in (1, 6, 7, 11) else TensorProto.INT64
    shape, values = rng.choice((([], [rng.choice((0, 1, -1, 5, 1000))]), ([0], []), ([0, 2], []), ([1, 1], [3])))
    tensor.CopyFrom(helper.make_tensor(tensor.name, kind, shape, values))


def _change_elements(model: ModelProto, rng: Random) -> None:
    """Change elements, which may be sizes, axes or indices."""
    tensor = rng.choice(_tensors(model) or [TensorProto()])
    for field in (tensor.int64_data, tensor.int32_data):
        if field:
            limit = 2**63 if field is tensor.int64_data else 2**31
            field[rng.randrange(len(field))] = max(-limit, min(limit - 1, rng.choice(_SIZES)))
    if tensor.float_data:
        odd = rng.choice((0.0, -1.0, 1e9, float("nan"), float("inf"), 0.3))
        tensor.float_data[rng.randrange(len(tensor.float_data))] = odd


def _retype_weight(model: ModelProto, rng: Random) -> None:
    rng.choice(_tensors(model) or [TensorProto()]).data_type = rng.choice(_TYPES)


def _externalize(model: ModelProto, rng: Random) -> None:
    """Let a weight refer to a data file that does not exist, or in an odd way."""
    tensor = rng.choice(_tensors(model) or [TensorProto()])
    tensor.data_location = TensorProto.EXTERNAL
    places = ("missing.bin", "", ".", "model.onnx", "../x", "/etc/hostname", "a/../b", "missing.bin/", "https://x/y")
    for key, values in (("location", places), ("offset", ("0", "+0", "-1", "")), ("length", ("8", "", "x", "4e9"))):
        if rng.random() < 0.8:
            tensor.external_data.add(key=key, value=rng.choice(values))
    if rng.random() < 0.5:
        for name in ("raw_data", "float_data", "int32_data", "int64_data"):
            tensor.ClearField(name)


def _add_sparse(model: ModelProto, rng: Random) -> None:
    """Replace a weight by a sparse one: with its values, out of range, of another rank, or without name."""
    graph = rng.choice(_graphs(model))
    if graph.initializer:
        weight = _copy(rng.choice(graph.initializer))
        graph.initializer.remove(weight)
        if rng.random() < 0.5:
            count = min(math.prod(weight.dims), 64) if all(dim >= 0 for dim in weight.dims) else 0
            indices = helper.make_tensor("", TensorProto.INT64, [count], range(count))
            sparse = helper.make_sparse_tensor(weight, indices, list(weight.dims))
            sparse.values.dims[:] = [count]
            graph.sparse_initializer.append(sparse)
            return
        count = rng.choice((0, 1, 2))
        values = helper.make_tensor(rng.choice((weight.name, "")), TensorProto.FLOAT, [count], [1.0] * count)
        indices = helper.make_tensor("", TensorProto.INT64, [count], [rng.choice((0, 1, 99, -1))] * count)
        graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, list(weight.dims)))


# Names, scopes and functions


def _rename(model: ModelProto, rng: Random) -> None:
    """Give elements equal, empty or odd names."""
    named = [*_graphs(model), *_nodes(model), *_values(model), *_tensors(model), *model.functions]
    rng.choice(named).name = rng.choice([*_VALUE_NAMES, *_names(model)])


def _repeat_weight(model: ModelProto, rng: Random) -> None:
    if weights := [(graph, weight) for graph in _graphs(model) for weight in graph.initializer]:
        _, weight = rng.choice(weights)
        rng.choice(_graphs(model)).initializer.append(_copy(weight))


def _nest(model: ModelProto, rng: Random) -> None:
    """Move a node into both branches of an `If`, which reads the values of the outer graph."""
    graph = rng.choice(_graphs(model))
    if not graph.node or model.ByteSize() > 20_000:
        return
    position = rng.randrange(len(graph.node))
    inner = _copy(graph.node[position])
    outputs = list(inner.output)
    inner.output[:] = [f"inner_{name}" for name in outputs]
    declared = [helper.make_empty_tensor_value_info(name) for name in inner.output]
    branch = helper.make_graph([inner], "branch", [], declared)
    condition = rng.choice(_names(model))
    chosen = helper.make_node("If", [condition], outputs, then_branch=branch, else_branch=branch)
    graph.node[position].CopyFrom(chosen)


def _outline(model: ModelProto, rng: Random) -> None:
    """Move a node of the graph into a local function."""
    if not model.graph.node:
        return
    node = rng.choice(model.graph.node)
    inputs, outputs = (
        [f"i{index}" for index, _ in enumerate(node.input)],
        [f"o{index}" for index, _ in enumerate(node.output)],
    )
    body = _copy(node)
    body.input[:], body.output[:] = inputs, outputs
    opsets = [helper.make_opsetid(opset.domain, opset.version) for opset in model.opset_import]
    function = helper.make_function("outlined", f"Moved{len(model.functions)}", inputs, outputs, [body], opsets)
    if rng.random() < 0.3:
        del function.opset_import[:]
    model.functions.append(function)
    call = helper.make_node(function.name, list(node.input), list(node.output), domain="outlined")
    if rng.random() < 0.2:
        call.overload = "other"
    node.CopyFrom(call)
    if rng.random() < 0.8:
        model.opset_import.append(helper.make_opsetid("outlined", 1))


def _change_function(model: ModelProto, rng: Random) -> None:
    if not model.functions:
        return
    function = rng.choice(model.functions)
    match rng.randrange(7):
        case 0:
            function.node.append(
                helper.make_node(function.name, list(function.input), list(function.output), domain=function.domain)
            )
        case 1:
            model.functions.append(_copy(function))
        case 2:
            del function.input[-1:]
        case 3:
            function.output.append("nowhere")
        case 4:
            function.attribute.append(rng.choice(("by", "axis", "")))
        case 5:
            del function.node[:]
        case _:
            function.domain = rng.choice(_DOMAINS)


# Versions


def _change_versions(model: ModelProto, rng: Random) -> None:
    match rng.randrange(5):
        case 0:
            model.ir_version = rng.choice((0, 1, 3, 4, 7, 10, 13, 99, -1, 2**40))
        case 1 if model.opset_import:
            rng.choice(model.opset_import).version = rng.choice((0, 1, 5, 9, 12, 13, 16, 18, 21, 24, 99, -1, 2**62))
        case 2:
            model.opset_import.append(helper.make_opsetid(rng.choice(_DOMAINS), rng.choice((1, 5, 17))))
        case 3:
            del model.opset_import[:]
        case _:
            model.ClearField("ir_version")


_MUTATORS: tuple[_Mutator, ...] = (
    *(_swap_inputs, _drop_input, _add_input, _reconnect, _change_outputs, _make_cycle, _reverse_nodes, _repeat_node),
    *(_remove_node, _insert_node, _change_operator, _change_domain, _drop_attribute, _repeat_attribute),
    *(_retype_attribute, _change_attribute, _change_attribute, _add_attribute, _reference_attribute, _declare_rank),
    *(_declare_rank, _declare_size, _declare_size, _declare_type, _undeclare, _declare_inner, _declare_inner),
    *(_change_interface, _promote, _resize_data, _move_data, _reshape_weight, _empty_weight, _change_elements),
    *(_change_elements, _retype_weight, _externalize, _add_sparse, _rename, _repeat_weight, _nest, _outline),
    *(_change_function, _change_versions),
)


def create_mutants(seed: int, count: int) -> Iterator[bytes]:
    """Yield mutants of all seed models in turn."""
    models = list(seed_models().values())
    for number in range(count):
        yield mutate(models[number % len(models)], Random(f"{seed} {number}"))
