"""Mutations of a model's structure: nodes, names, attributes, types of all values, subgraphs and functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from random import Random

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, defs, helper

Mutation = Callable[[ModelProto, Random], bool]
SIZES = (-1, 0, 1, 2, 3, 5, 8)
MODES = (
    *("SAME", "SAME_UPPER", "VALID", "NOTSET", "valid", "nonsense", "", "constant", "reflect", "nearest", "linear"),
    *("cubic", "bilinear", "zeros", "border", "forward", "reverse", "bidirectional", "Tanh", "sum", "mean", "none"),
    *("DCR", "LEFT", "half_pixel", "align_corners", "floor", "tanh", "add", "mul", "NONE", "SOFTMAX", "avg", "max"),
)
ELEMENTS = (
    *(TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT8),
    *(TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING),
    *(TensorProto.INT16, TensorProto.UINT32, TensorProto.FLOAT8E4M3FN, TensorProto.INT4, TensorProto.COMPLEX64),
)
BINARY = ("Add", "Mul", "MatMul", "Concat", "Gather", "Pow", "Where", "Equal", "Less", "Expand", "Reshape", "Gemm")
UNARY = (
    *("Relu", "Neg", "Abs", "Not", "Cast", "Identity", "Flatten", "Transpose", "Squeeze", "Shape", "Size", "Softmax"),
    *("ReduceMean", "Sigmoid", "Split", "Unsqueeze", "ArgMax", "NonZero", "LogSoftmax", "Dropout", "GlobalMaxPool"),
)
_MAX_AXES = 8


def graphs(model: ModelProto) -> list[GraphProto]:
    """Return the graph of the model and all subgraphs."""
    found = [model.graph]
    for graph in found:
        for node in graph.node:
            for attribute in node.attribute:
                found += [attribute.g] if attribute.HasField("g") else []
                found += attribute.graphs
    return found


def nodes(model: ModelProto) -> list[NodeProto]:
    """Return all nodes, including those of subgraphs and local functions."""
    return [*(node for graph in graphs(model) for node in graph.node), *_function_nodes(model)]


def _function_nodes(model: ModelProto) -> Iterator[NodeProto]:
    for function in model.functions:
        yield from function.node


def _pick(values: object, random: Random) -> object | None:
    listed = list(values)  # type: ignore[call-overload]
    return random.choice(listed) if listed else None


@functools.cache
def _attributes_of(name: str, domain: str) -> tuple[tuple[str, str], ...]:
    """Return the name and kind of each attribute of each version of an operator."""
    found = {
        (attribute.name, str(attribute.type).rpartition(".")[2])
        for schema in defs.get_all_schemas_with_history()
        if schema.name == name and schema.domain == domain
        for attribute in schema.attributes.values()
    }
    return tuple(sorted(found))


def attribute_added(model: ModelProto, random: Random) -> bool:
    """Set an attribute of any version of the operator to a value of its kind."""
    candidates = [(node, found) for node in nodes(model) if (found := _attributes_of(node.op_type, node.domain))]
    if not candidates:
        return False
    node, declared = random.choice(candidates)
    name, kind = random.choice(declared)
    values: dict[str, Callable[[], object]] = {
        "INT": lambda: random.choice((*SIZES, -9, 4, 6, 7, 10, 99)),
        "FLOAT": lambda: random.choice((-1.0, 0.0, 0.5, 2.0, math.inf, math.nan)),
        "STRING": lambda: random.choice(MODES),
        "INTS": lambda: [random.choice(SIZES) for _ in range(random.choice((0, 1, 2, 2, 3, 4, 4, 6)))],
        "FLOATS": lambda: [random.choice((-1.0, 0.0, 0.5, 2.0)) for _ in range(random.choice((0, 1, 2, 4)))],
        "STRINGS": lambda: [random.choice(MODES) for _ in range(random.choice((0, 1, 2, 3)))],
        "TENSOR": lambda: _tensor(random),
    }
    if kind not in values:
        return False
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    value = values[kind]()
    if value == []:
        kept.append(AttributeProto(name=name, type=AttributeProto.AttributeType.Value(kind)))
    else:
        kept.append(helper.make_attribute(name, value))
    changed = NodeProto(attribute=kept)
    del node.attribute[:]
    node.attribute.extend(changed.attribute)
    return True


def _tensor(random: Random) -> TensorProto:
    element = random.choice((TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL))
    dims = [random.choice((0, 1, 2, 3)) for _ in range(random.choice((0, 1, 1, 2)))]
    return helper.make_tensor("t", element, dims, [random.choice((0, 1, 2)) for _ in range(math.prod(dims))])


def attribute_repeated(model: ModelProto, random: Random) -> bool:
    """Repeat an attribute, rename it, or refer to an attribute of a function."""
    node = _pick((node for node in nodes(model) if node.attribute), random)
    if not isinstance(node, NodeProto):
        return False
    attribute = random.choice(node.attribute)
    match random.randrange(4):
        case 0:
            node.attribute.add().CopyFrom(attribute)
        case 1:
            attribute.name = random.choice((attribute.name.upper(), "", "value", "axes", "axis"))
        case 2:
            attribute.ref_attr_name = random.choice(("alpha", attribute.name))
        case _:
            attribute.type = random.choice(range(15))
    return True


def node_removed(model: ModelProto, random: Random) -> bool:
    """Remove a node, so that its outputs are missing."""
    graph = random.choice(graphs(model))
    if graph.node:
        del graph.node[random.randrange(len(graph.node))]
        return True
    return False


def node_repeated(model: ModelProto, random: Random) -> bool:
    """Repeat a node, with the same outputs or with others."""
    graph = random.choice(graphs(model))
    if not graph.node:
        return False
    copy = graph.node.add()
    copy.CopyFrom(random.choice(graph.node[:-1]))
    if random.random() < 0.7:
        for index, name in enumerate(copy.output):
            copy.output[index] = f"{name}_again" if name else ""
    if random.random() < 0.5:
        copy.name = random.choice(("", "again"))
    return True


def nodes_reordered(model: ModelProto, random: Random) -> bool:
    """Reverse the nodes of a graph, or move one."""
    graph = random.choice(graphs(model))
    if len(graph.node) < 2:
        return False
    copies = list(GraphProto(node=graph.node).node)
    if random.random() < 0.5:
        copies.reverse()
    else:
        copies.insert(random.randrange(len(copies)), copies.pop(random.randrange(len(copies))))
    del graph.node[:]
    graph.node.extend(copies)
    return True


def node_added(model: ModelProto, random: Random) -> bool:
    """Add a node that takes existing values, and sometimes return its result."""
    graph = random.choice(graphs(model))
    names = [value.name for value in graph.input] + [tensor.name for tensor in graph.initializer]
    names += [name for node in graph.node for name in node.output if name]
    if not names:
        return False
    if random.random() < 0.5:
        node = graph.node.add(op_type=random.choice(UNARY), input=[random.choice(names)], output=["added"])
        if node.op_type == "Cast":
            node.attribute.append(helper.make_attribute("to", random.choice((1, 6, 7, 9, 10, 11, 14, 99))))
    else:
        graph.node.add(op_type=random.choice(BINARY), input=random.choices(names, k=2), output=["added"])
    if random.random() < 0.6:
        graph.output.add(name="added").type.tensor_type.elem_type = random.choice((1, 1, 7, 11))
    return True


def node_wrapped(model: ModelProto, random: Random) -> bool:
    """Put an operator before an input of a node: a cast, another shape, another rank."""
    graph = model.graph
    candidates = [index for index, node in enumerate(graph.node) if any(node.input)]
    if not candidates:
        return False
    index = random.choice(candidates)
    place = random.choice([place for place, name in enumerate(graph.node[index].input) if name])
    added = NodeProto(op_type=random.choice(UNARY), input=[graph.node[index].input[place]], output=["wrapped"])
    if added.op_type == "Cast":
        added.attribute.append(helper.make_attribute("to", random.choice((1, 6, 7, 9, 10, 11))))
    graph.node[index].input[place] = "wrapped"
    copies = list(GraphProto(node=graph.node).node)
    copies.insert(index, added)
    del graph.node[:]
    graph.node.extend(copies)
    return True


def operator_any(model: ModelProto, random: Random) -> bool:
    """Replace the operator of a node by any other operator."""
    node = _pick(nodes(model), random)
    if isinstance(node, NodeProto):
        node.op_type, node.domain = random.choice(_operators())
        return True
    return False


@functools.cache
def _operators() -> tuple[tuple[str, str], ...]:
    return tuple(sorted({(schema.name, schema.domain) for schema in defs.get_all_schemas_with_history()}))


def domain(model: ModelProto, random: Random) -> bool:
    """Change the domain of a node, or the imported domains."""
    node = _pick(nodes(model), random)
    match random.randrange(5):
        case 0 if isinstance(node, NodeProto):
            node.domain = random.choice(("ai.onnx", "ai.onnx.ml", "com.microsoft", "unknown", "", "ai.onnx.preview"))
        case 1 if model.opset_import:
            del model.opset_import[random.randrange(len(model.opset_import))]
        case 2:
            model.opset_import.add(domain=random.choice(("", "ai.onnx", "com.microsoft", "unknown")), version=17)
        case 3 if model.opset_import:
            random.choice(model.opset_import).domain = random.choice(("ai.onnx", "ai.onnx.ml", "unknown", ""))
        case _:
            model.ir_version = random.choice((0, 1, 2, 3, 4, 7, 9, 12, 13, 14, 99))
    return True


def names(model: ModelProto, random: Random) -> bool:
    """Change the name of a value, node, tensor or graph: a missing, empty or repeated one."""
    graph = random.choice(graphs(model))
    known = [value.name for value in (*graph.input, *graph.output)] + [name for it in graph.node for name in it.output]
    name = random.choice((*known, "", "missing"))
    value = _pick((*graph.input, *graph.output, *graph.value_info, *graph.initializer), random)
    node = _pick(graph.node, random)
    match random.randrange(5):
        case 0 if isinstance(node, NodeProto) and node.input:
            node.input[random.randrange(len(node.input))] = name
        case 1 if isinstance(node, NodeProto) and node.output:
            node.output[random.randrange(len(node.output))] = name
        case 2 if isinstance(node, NodeProto):
            for each in graph.node:
                each.name = "same"
        case 3:
            graph.name = ""
        case _ if value is not None:
            value.name = name  # type: ignore[attr-defined]
        case _:
            return False
    return True


def interface(model: ModelProto, random: Random) -> bool:
    """Remove, repeat or add an input or output of a graph."""
    graph = random.choice(graphs(model))
    values = random.choice((graph.input, graph.output, graph.output))
    match random.randrange(4):
        case 0 if values:
            del values[random.randrange(len(values))]
        case 1 if values:
            values.add().CopyFrom(random.choice(values[:-1] or [values[0]]))
        case 2:
            every_name = [name for node in graph.node for name in node.output if name] or ["x"]
            added = values.add(name=random.choice((*every_name, "added")))
            if random.random() < 0.8:
                added.type.tensor_type.elem_type = random.choice((1, 1, 7, 9, 0))
        case _ if len(values) > 1:
            first, last = ModelProto(), ModelProto()
            first.graph.input.add().CopyFrom(values[0])
            last.graph.input.add().CopyFrom(values[-1])
            values[0].CopyFrom(last.graph.input[0])
            values[-1].CopyFrom(first.graph.input[0])
        case _:
            return False
    return True


def type_everywhere(model: ModelProto, random: Random) -> bool:
    """Replace an element type by another one in all inputs, outputs, values and initializers."""
    types = [
        found for graph in graphs(model) for it in (*graph.input, *graph.output) for found in _tensor_types(it.type)
    ]
    if not types:
        return False
    old, new = random.choice(types).elem_type, random.choice(ELEMENTS)
    for graph in graphs(model):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for tensor_type in _tensor_types(value.type):
                if tensor_type.elem_type == old:
                    tensor_type.elem_type = new
        for tensor in graph.initializer:
            if tensor.data_type == old:
                size = math.prod(tensor.dims) if all(dim >= 0 for dim in tensor.dims) else 0
                if new != TensorProto.STRING and size < 4096:
                    values = [1] * size
                    tensor.CopyFrom(helper.make_tensor(tensor.name, new, tensor.dims, values))
    return True


def _tensor_types(value_type: TypeProto) -> list[TypeProto.Tensor]:
    for kind in ("sequence_type", "optional_type"):
        if value_type.HasField(kind):
            return _tensor_types(getattr(value_type, kind).elem_type)
    return [value_type.tensor_type] if value_type.HasField("tensor_type") else []


def rank_everywhere(model: ModelProto, random: Random) -> bool:
    """Add an axis to all inputs, remove one, or make sizes unknown; most outputs then have no declared shape."""
    change = random.choice(("first", "last", "fewer", "batch", "names", "unknown"))
    for value in model.graph.input:
        if not value.type.tensor_type.HasField("shape") or random.random() < 0.2:
            continue
        shape = value.type.tensor_type.shape
        dims = [(dim.dim_value, dim.dim_param) for dim in shape.dim]
        match change:
            case "first":
                dims.insert(0, (random.choice((1, 2)), ""))
            case "last":
                dims.append((random.choice((1, 3)), ""))
            case "fewer" if dims:
                dims.pop(random.randrange(len(dims)))
            case "batch" if dims:
                dims[0] = (0, "N")
            case "names":
                dims = [(0, f"d{index}") for index in range(len(dims))]
            case "unknown":
                value.type.tensor_type.ClearField("shape")
                continue
        del shape.dim[:]
        for size, name in dims:
            shape.dim.add(dim_param=name) if name else shape.dim.add(dim_value=size)
    for value in (*model.graph.output, *model.graph.value_info):
        if value.type.HasField("tensor_type") and random.random() < 0.9:
            value.type.tensor_type.ClearField("shape")
    return True


def constants(model: ModelProto, random: Random) -> bool:
    """Turn several inputs into initializers or constants with values like those of shapes, axes, scales or masks."""
    done = False
    for value in list(model.graph.input):
        element = value.type.tensor_type.elem_type
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        size = math.prod(dims)
        if element not in (1, 6, 7, 9, 2, 3) or not 0 <= size <= 64 or len(dims) > _MAX_AXES or random.random() < 0.3:
            continue
        if random.random() < 0.15:
            dims = random.choice(([], [size], [1, size], [0]))
            size = math.prod(dims)
        numbers = (0.5, 1.0, 2.0, 0.0, -1.0) if element == 1 else (-1, 0, 1, 2, 3, 4)
        small = (0, 1) if element in (2, 9) else numbers
        tensor = helper.make_tensor(value.name, element, dims, [random.choice(small) for _ in range(size)])
        if random.random() < 0.7:
            model.graph.initializer.append(tensor)
        else:
            copies = list(GraphProto(node=model.graph.node).node)
            node = helper.make_node("Constant", [], [value.name], value=tensor)
            del model.graph.node[:]
            model.graph.node.extend([node, *copies])
        if random.random() < 0.8 or not any(tensor.name == it.name for it in model.graph.initializer):
            model.graph.input.remove(value)
        done = True
    return done


def tensor_data(model: ModelProto, random: Random) -> bool:
    """Change the data of a tensor: too little, too much, in another field, or of a different rank."""
    tensors = [tensor for graph in graphs(model) for tensor in graph.initializer]
    tensors += [it.t for node in nodes(model) for it in node.attribute if it.HasField("t")]
    tensors += [it.values for graph in graphs(model) for it in graph.sparse_initializer]
    if not tensors:
        return False
    tensor = random.choice(tensors)
    match random.randrange(7):
        case 0:
            tensor.ClearField("raw_data")
        case 1:
            tensor.raw_data = tensor.raw_data[:-1] or b"\0" * random.choice((1, 4, 8))
        case 2:
            tensor.float_data.append(1.0)
        case 3:
            tensor.int32_data.append(1)
        case 4:
            tensor.dims.insert(0, random.choice((1, 1, 1, 2, 0)))
        case 5 if tensor.dims:
            del tensor.dims[random.randrange(len(tensor.dims))]
        case _:
            tensor.data_type = random.choice((0, *ELEMENTS, 23, 24, 25, 26, 40))
    return True


def subgraph(model: ModelProto, random: Random) -> bool:
    """Remove a subgraph, exchange it for another, or change its inputs and outputs."""
    holders = [(node, it) for node in nodes(model) for it in node.attribute if it.HasField("g")]
    if not holders:
        return False
    node, attribute = random.choice(holders)
    body = attribute.g
    match random.randrange(7):
        case 0:
            node.attribute.remove(attribute)
        case 1:
            other = GraphProto()
            other.CopyFrom(random.choice(holders)[1].g)  # a copy, because one may contain the other
            attribute.g.CopyFrom(other)
        case 2 if body.output:
            body.output.pop()
        case 3 if body.input:
            body.input.pop()
        case 4:
            body.output.add().CopyFrom(_pick((*body.output, *body.input), random) or body.output.add(name="o"))
        case 5 if body.node:
            del body.node[random.randrange(len(body.node))]
        case _:
            value = _pick((*body.input, *body.output), random)
            if value is None:
                return False
            tensor_type = value.type.tensor_type  # type: ignore[attr-defined]
            if random.random() < 0.5:
                tensor_type.elem_type = random.choice((0, 1, 6, 7, 9, 11))
            else:
                del tensor_type.shape.dim[:]
                for _ in range(random.choice((0, 1, 2, 3))):
                    tensor_type.shape.dim.add(dim_value=random.choice((1, 2, 3)))
    return True


def function(model: ModelProto, random: Random) -> bool:
    """Change a local function: its name, inputs, outputs, nodes, attributes or imports."""
    if not model.functions:
        return False
    changed = random.choice(model.functions)
    node = _pick(changed.node, random)
    match random.randrange(9):
        case 0 if changed.input:
            changed.input.pop()
        case 1 if changed.output:
            changed.output.pop()
        case 2 if isinstance(node, NodeProto):
            changed.node.remove(node)
        case 3 if isinstance(node, NodeProto) and node.input:
            node.input[random.randrange(len(node.input))] = random.choice((*changed.input, "missing", ""))
        case 4:
            del changed.opset_import[:]
        case 5 if changed.opset_import:
            random.choice(changed.opset_import).version = random.choice((1, 7, 13, 17, 20, 25))
        case 6:
            changed.name = random.choice(("Add", "other"))
        case 7:
            model.functions.remove(changed)
        case 8 if changed.attribute:
            changed.attribute.pop()
        case _:
            changed.output.append(random.choice((*changed.input, "missing")))
    return True


def into_function(model: ModelProto, random: Random) -> bool:
    """Move a node of the graph into a local function."""
    if not model.graph.node or any(imported.domain == "local" for imported in model.opset_import):
        return False
    node = random.choice([*model.graph.node])
    moved = NodeProto()
    moved.CopyFrom(node)
    inputs, outputs = [*dict.fromkeys(name for name in node.input if name)], [name for name in node.output if name]
    if any(attribute.HasField("g") for attribute in node.attribute):
        return False
    model.functions.add(
        name="moved", domain="local", node=[moved], input=inputs, output=outputs, opset_import=model.opset_import
    )
    model.opset_import.add(domain="local", version=1)
    node.op_type, node.domain = "moved", "local"
    del node.attribute[:], node.input[:], node.output[:]
    node.input.extend(inputs)
    node.output.extend(outputs)
    model.ir_version = max(model.ir_version, 8)
    return True


def into_branch(model: ModelProto, random: Random) -> bool:
    """Move all nodes of the graph into both branches of an If."""
    if not model.graph.node or len(model.graph.output) == 0:
        return False
    branch = GraphProto(name="branch", node=model.graph.node, output=model.graph.output)
    names_of = [value.name for value in model.graph.output]
    other = GraphProto()
    other.CopyFrom(branch)
    for each in (branch, other):
        for value in each.output if random.random() < 0.5 else ():
            value.type.tensor_type.ClearField("shape") if value.type.HasField("tensor_type") else None
    del model.graph.node[:]
    if random.random() < 0.5:
        condition = helper.make_tensor("condition", TensorProto.BOOL, [], [random.random() < 0.5])
        model.graph.initializer.append(condition)
    else:
        value = model.graph.input.add(name="condition").type.tensor_type
        value.elem_type = TensorProto.BOOL
        value.shape.SetInParent()
    outputs = [f"{name}_" for name in names_of] if random.random() < 0.7 else names_of
    for value, name in zip(model.graph.output, outputs, strict=True):
        value.name = name
    node = model.graph.node.add(op_type="If", input=["condition"], output=outputs)
    node.attribute.add(name="then_branch", type=AttributeProto.GRAPH).g.CopyFrom(branch)
    node.attribute.add(name="else_branch", type=AttributeProto.GRAPH).g.CopyFrom(other)
    return True


MUTATIONS: Mapping[str, Mutation] = {
    "attribute-added": attribute_added,
    "attribute-repeated": attribute_repeated,
    "node-removed": node_removed,
    "node-repeated": node_repeated,
    "nodes-reordered": nodes_reordered,
    "node-added": node_added,
    "node-wrapped": node_wrapped,
    "operator-any": operator_any,
    "domain": domain,
    "names": names,
    "interface": interface,
    "type-everywhere": type_everywhere,
    "rank-everywhere": rank_everywhere,
    "constants": constants,
    "tensor-data": tensor_data,
    "subgraph": subgraph,
    "function": function,
    "into-function": into_function,
    "into-branch": into_branch,
}
