"""Models of which one dimension has a chosen size, to measure how time and memory grow with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnx import AttributeProto, GraphProto, ModelProto, SparseTensorProto, TensorProto, TypeProto, helper

from campaigns.fuzz.extreme_models import FLOATS, function, model_of, node

BOOL = helper.make_tensor_type_proto(TensorProto.BOOL, [])
TRACE = "pkg.torch.onnx.stack_trace"


def _relu() -> ModelProto:
    return model_of([node("Relu", ["x"], ["y"], name="relu")])


def _chain_names(count: int) -> list[str]:
    return ["x", *(f"v{index}" for index in range(count - 1)), "y"]


def nodes_in_chain(count: int) -> ModelProto:
    """A chain of nodes."""
    names = _chain_names(count)
    return model_of(node("Relu", [names[i]], [names[i + 1]], name=f"n{i}") for i in range(count))


def nodes_of_one_name(count: int) -> ModelProto:
    """A chain of nodes that share their name."""
    names = _chain_names(count)
    return model_of(node("Relu", [names[i]], [names[i + 1]], name="n") for i in range(count))


def nodes_without_name(count: int) -> ModelProto:
    """A chain of nodes without names."""
    names = _chain_names(count)
    return model_of(node(("Relu", "Abs")[i % 2], [names[i]], [names[i + 1]]) for i in range(count))


def nodes_in_fan(count: int) -> ModelProto:
    """Nodes that all read the same value."""
    return model_of([*(node("Relu", ["x"], [f"o{i}"], name=f"n{i}") for i in range(count)), node("Relu", ["x"], ["y"])])


def nodes_unknown(count: int) -> ModelProto:
    """Nodes whose operators onnx does not define, each with its own name."""
    names = _chain_names(count)
    return model_of(node(f"Unknown{i}", [names[i]], [names[i + 1]], name=f"n{i}") for i in range(count))


def nodes_of_own_domain(count: int) -> ModelProto:
    """Nodes of one custom operator."""
    names = _chain_names(count)
    model = model_of(node("Own", [names[i]], [names[i + 1]], "own.domain", name=f"n{i}") for i in range(count))
    model.opset_import.add(domain="own.domain", version=1)
    return model


def nodes_invalid(count: int) -> ModelProto:
    """Nodes that all violate their schema."""
    return model_of(node("Relu", ["x", "x"], [f"o{i}"], name=f"n{i}", wrong=1) for i in range(count))


def nodes_of_own_attribute(count: int) -> ModelProto:
    """Nodes with an attribute of their own that their operator does not define."""
    return model_of(node("Relu", ["x"], [f"o{i}"], "", **{f"a{i}": 1}) for i in range(count))


def nodes_unsorted(count: int) -> ModelProto:
    """A chain of nodes in reverse order."""
    names = _chain_names(count)
    return model_of(node("Relu", [names[i]], [names[i + 1]], name=f"n{i}") for i in reversed(range(count)))


def nodes_reshaping(count: int) -> ModelProto:
    """A chain of Shape, Gather and Reshape, whose shapes must be computed."""
    model = model_of()
    model.graph.initializer.add(name="zero", data_type=7, dims=[1], int64_data=[0])
    value = "x"
    for i in range(count // 3):
        model.graph.node.extend(
            [
                node("Shape", [value], [f"s{i}"]),
                node("Gather", [f"s{i}", "zero"], [f"g{i}"]),
                node("Reshape", [value, f"g{i}"], [f"r{i}"]),
            ]
        )
        value = f"r{i}"
    model.graph.node.append(node("Relu", [value], ["y"]))
    return model


def nodes_constant(count: int) -> ModelProto:
    """Constant nodes that are added one after the other."""
    model, value = model_of(), "x"
    for i in range(count // 2):
        tensor = TensorProto(data_type=1, dims=[2], float_data=[i, i])
        model.graph.node.extend(
            [node("Constant", [], [f"c{i}"], value=tensor), node("Add", [value, f"c{i}"], [f"a{i}"])]
        )
        value = f"a{i}"
    model.graph.node.append(node("Relu", [value], ["y"]))
    return model


def nodes_quantized(count: int) -> ModelProto:
    """A chain of QuantizeLinear, DequantizeLinear and Relu."""
    model, value = model_of(), "x"
    model.graph.initializer.add(name="scale", data_type=1, float_data=[0.5])
    model.graph.initializer.add(name="zero", data_type=2, int32_data=[1])
    for i in range(count // 3):
        model.graph.node.extend(
            [
                node("QuantizeLinear", [value, "scale", "zero"], [f"q{i}"]),
                node("DequantizeLinear", [f"q{i}", "scale", "zero"], [f"d{i}"]),
                node("Relu", [f"d{i}"], [f"r{i}"]),
            ]
        )
        value = f"r{i}"
    model.graph.node.append(node("Relu", [value], ["y"]))
    return model


def nodes_of_own_scale(count: int) -> ModelProto:
    """Quantized weights and values, each with a scale of its own."""
    model, value = model_of(), "x"
    model.graph.initializer.add(name="zero", data_type=3, int32_data=[0])
    for i in range(count // 4):
        model.graph.initializer.add(name=f"s{i}", data_type=1, float_data=[0.5])
        model.graph.initializer.add(name=f"w{i}", data_type=3, dims=[2], raw_data=b"ab")
        model.graph.node.extend(
            [
                node("DequantizeLinear", [f"w{i}", f"s{i}", "zero"], [f"d{i}"]),
                node("Add", [value, f"d{i}"], [f"a{i}"]),
                node("QuantizeLinear", [f"a{i}", f"s{i}", "zero"], [f"q{i}"]),
                node("DequantizeLinear", [f"q{i}", f"s{i}", "zero"], [f"r{i}"]),
            ]
        )
        value = f"r{i}"
    model.graph.node.append(node("Relu", [value], ["y"]))
    return model


def attributes_unknown(count: int) -> ModelProto:
    """Attributes of one node that the operator does not have."""
    model = _relu()
    for i in range(count):
        model.graph.node[0].attribute.add(name=f"a{i}", type=AttributeProto.INT, i=i)
    return model


def attributes_repeated(count: int) -> ModelProto:
    """One attribute repeated in one node."""
    model = _relu()
    for _ in range(count):
        model.graph.node[0].attribute.add(name="alpha", type=AttributeProto.FLOAT, f=1)
    return model


def attributes_of_own_operator(count: int) -> ModelProto:
    """Attributes of one node of a custom operator."""
    model = model_of([node("Own", ["x"], ["y"], "own.domain", name="n")])
    model.opset_import.add(domain="own.domain", version=1)
    for i in range(count):
        model.graph.node[0].attribute.add(name=f"a{i}", type=AttributeProto.STRING, s=b"v")
    return model


def attribute_integers(count: int) -> ModelProto:
    """Integers of one attribute."""
    model = model_of([node("Transpose", ["x"], ["y"])])
    model.graph.node[0].attribute.add(name="perm", type=AttributeProto.INTS, ints=range(count))
    return model


def attribute_strings(count: int) -> ModelProto:
    """Strings of one attribute of a custom operator."""
    model = attributes_of_own_operator(0)
    model.graph.node[0].attribute.add(
        name="words", type=AttributeProto.STRINGS, strings=[b"word %d" % i for i in range(count)]
    )
    return model


def attribute_graphs(count: int) -> ModelProto:
    """Graphs of one attribute of a custom operator."""
    model = attributes_of_own_operator(0)
    attribute = model.graph.node[0].attribute.add(name="bodies", type=AttributeProto.GRAPHS)
    for i in range(count // 4):
        graph = attribute.graphs.add(name=f"g{i}", node=[node("Relu", ["x"], [f"i{i}"])])
        graph.output.add(name=f"i{i}")
    return model


def inputs_of_node(count: int) -> ModelProto:
    """Inputs of one node."""
    return model_of([node("Sum", ["x"] * count, ["y"], name="sum")])


def inputs_of_node_distinct(count: int) -> ModelProto:
    """Distinct values that one node reads."""
    made = [node("Relu", ["x"], [f"v{i}"]) for i in range(count)]
    return model_of([*made, node("Concat", [f"v{i}" for i in range(count)], ["y"], axis=0)])


def outputs_of_node(count: int) -> ModelProto:
    """Outputs of one node."""
    return model_of([node("Split", ["x"], ["y", *(f"o{i}" for i in range(count))], axis=0), node("Relu", ["x"], ["z"])])


def inputs_of_graph(count: int) -> ModelProto:
    """Inputs of the model."""
    model = _relu()
    for i in range(count):
        model.graph.input.add(name=f"i{i}", type=FLOATS)
    return model


def inputs_of_refused_type(count: int) -> ModelProto:
    """Inputs of the model, of a type that runtimes refuse."""
    model = _relu()
    for i in range(count):
        model.graph.input.add(name=f"i{i}", type=helper.make_tensor_type_proto(TensorProto.COMPLEX64, [1]))
    return model


def inputs_of_symbolic_axes(count: int) -> ModelProto:
    """Inputs of the model, each with its own symbolic axis."""
    model = _relu()
    for i in range(count):
        model.graph.input.add(name=f"i{i}", type=helper.make_tensor_type_proto(1, [f"N{i}", f"2*N{i}"]))
    return model


def outputs_of_graph(count: int) -> ModelProto:
    """Outputs of the model."""
    model = _relu()
    for i in range(count):
        model.graph.node.append(node("Relu", ["x"], [f"o{i}"]))
        model.graph.output.add(name=f"o{i}", type=FLOATS)
    return model


def outputs_of_one_name(count: int) -> ModelProto:
    """One output repeated."""
    model = _relu()
    for _ in range(count):
        model.graph.output.add(name="y", type=FLOATS)
    return model


def value_infos(count: int) -> ModelProto:
    """Types declared for values."""
    model = nodes_in_chain(count)
    for i in range(count - 1):
        model.graph.value_info.add(name=f"v{i}", type=FLOATS)
    return model


def value_infos_wrong(count: int) -> ModelProto:
    """Wrong types declared for values."""
    model = nodes_in_chain(count)
    for i in range(count - 1):
        model.graph.value_info.add(name=f"v{i}", type=helper.make_tensor_type_proto(7, [3, 4]))
    return model


def initializers(count: int) -> ModelProto:
    """Weights, each of which is read."""
    model, value = model_of(), "x"
    for i in range(count):
        model.graph.initializer.add(name=f"w{i}", data_type=1, dims=[2], raw_data=b"abcdefgh")
        model.graph.node.append(node("Add", [value, f"w{i}"], [f"a{i}"]))
        value = f"a{i}"
    model.graph.node.append(node("Relu", [value], ["y"]))
    return model


def initializers_unused(count: int) -> ModelProto:
    """Weights that are not read."""
    model = _relu()
    for i in range(count):
        model.graph.initializer.add(name=f"w{i}", data_type=1, dims=[2], raw_data=b"abcdefgh")
    return model


def initializers_of_one_name(count: int) -> ModelProto:
    """Weights that share their name."""
    model = _relu()
    for _ in range(count):
        model.graph.initializer.add(name="w", data_type=1, dims=[2], raw_data=b"abcdefgh")
    return model


def initializers_sparse(count: int) -> ModelProto:
    """Sparse weights."""
    model = _relu()
    for i in range(count):
        sparse = SparseTensorProto(dims=[4])
        sparse.values.CopyFrom(TensorProto(name=f"w{i}", data_type=1, dims=[1], float_data=[1]))
        sparse.indices.CopyFrom(TensorProto(data_type=7, dims=[1], int64_data=[2]))
        model.graph.sparse_initializer.append(sparse)
    return model


def external_tensors(count: int) -> ModelProto:
    """Weights in one missing data file."""
    model = _relu()
    for i in range(count):
        tensor = model.graph.initializer.add(name=f"w{i}", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="data.bin")
    return model


def external_files(count: int) -> ModelProto:
    """Weights in one missing data file each."""
    model = external_tensors(count)
    for i, tensor in enumerate(model.graph.initializer):
        tensor.external_data[0].value = f"data{i}.bin"
    return model


def external_entries(count: int) -> ModelProto:
    """Entries of the external data of one weight."""
    model = external_tensors(1)
    for i in range(count):
        model.graph.initializer[0].external_data.add(key=f"k{i}", value="v")
    return model


def tensor_strings(count: int) -> ModelProto:
    """Strings of one tensor."""
    model = _relu()
    strings = [b"word %d" % i for i in range(count)]
    model.graph.initializer.add(name="w", data_type=8, dims=[count], string_data=strings)
    return model


def tensor_integers(count: int) -> ModelProto:
    """Integers of one tensor that determines a shape."""
    model = model_of([node("Reshape", ["x", "w"], ["y"])])
    model.graph.initializer.add(name="w", data_type=7, dims=[count], int64_data=[1] * count)
    return model


def tensor_dims(count: int) -> ModelProto:
    """Axes of one weight."""
    model = model_of([node("Add", ["x", "w"], ["y"])])
    model.graph.initializer.add(name="w", data_type=1, dims=[1] * count, raw_data=b"abcd")
    return model


def input_dims(count: int) -> ModelProto:
    """Axes of one input."""
    model = _relu()
    model.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(1, [1] * count))
    return model


def input_dims_symbolic(count: int) -> ModelProto:
    """Symbolic axes of one input."""
    model = _relu()
    model.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(1, [f"N{i}" for i in range(count)]))
    return model


def functions(count: int) -> ModelProto:
    """Local functions that are called once each."""
    names = _chain_names(count)
    model = model_of(node(f"f{i}", [names[i]], [names[i + 1]], "local") for i in range(count))
    for i in range(count):
        function(model, f"f{i}", [node("Relu", ["a"], ["b"])])
    return model


def functions_of_one_name(count: int) -> ModelProto:
    """Local functions that share their name."""
    model = model_of([node("f", ["x"], ["y"], "local")])
    for _ in range(count):
        function(model, "f", [node("Relu", ["a"], ["b"])])
    return model


def function_calls(count: int) -> ModelProto:
    """Calls of one local function."""
    names = _chain_names(count)
    model = model_of(node("f", [names[i]], [names[i + 1]], "local") for i in range(count))
    function(model, "f", [node("Relu", ["a"], ["b"])])
    return model


def function_nodes(count: int) -> ModelProto:
    """Nodes of one local function."""
    model = model_of([node("f", ["x"], ["y"], "local")])
    names = ["a", *(f"v{i}" for i in range(count - 1)), "b"]
    function(model, "f", [node("Relu", [names[i]], [names[i + 1]]) for i in range(count)])
    return model


def function_attributes(count: int) -> ModelProto:
    """Attributes of one local function."""
    model = model_of([node("f", ["x"], ["y"], "local", **{f"a{i}": i for i in range(count)})])
    function(model, "f", [node("Relu", ["a"], ["b"])], [f"a{i}" for i in range(count)])
    return model


def function_values(count: int) -> ModelProto:
    """Inputs and outputs of one local function."""
    model = model_of([node("f", ["x"] * count, ["y", *(f"o{i}" for i in range(count - 1))], "local")])
    made = model.functions.add(name="f", domain="local", input=[f"a{i}" for i in range(count)])
    made.output.extend(f"b{i}" for i in range(count))
    made.opset_import.add(domain="", version=18)
    made.node.extend(node("Relu", [f"a{i}"], [f"b{i}"]) for i in range(count))
    return model


def opset_imports(count: int) -> ModelProto:
    """Imported opsets of different domains."""
    model = _relu()
    for i in range(count):
        model.opset_import.add(domain=f"domain{i}", version=1)
    return model


def opset_imports_of_one_domain(count: int) -> ModelProto:
    """Imports of one domain."""
    model = _relu()
    for _ in range(count):
        model.opset_import.add(domain="own.domain", version=1)
    return model


def operator_domains(count: int) -> ModelProto:
    """Domains of nodes."""
    model = opset_imports(count)
    model.graph.node.extend(node("Own", ["x"], [f"o{i}"], f"domain{i}") for i in range(count))
    return model


def metadata_of_model(count: int) -> ModelProto:
    """Metadata of the model."""
    model = _relu()
    for i in range(count):
        model.metadata_props.add(key=f"key{i}", value=f"value {i}")
    return model


def metadata_of_model_one_key(count: int) -> ModelProto:
    """One key of the model's metadata repeated."""
    model = _relu()
    for _ in range(count):
        model.metadata_props.add(key="key", value="value")
    return model


def metadata_of_node(count: int) -> ModelProto:
    """Metadata of one node."""
    model = _relu()
    for i in range(count):
        model.graph.node[0].metadata_props.add(key=f"key{i}", value="value")
    return model


def metadata_of_nodes(count: int) -> ModelProto:
    """Nodes with metadata."""
    model = nodes_in_chain(count)
    for made in model.graph.node:
        made.metadata_props.add(key="key", value="value")
    return model


def metadata_length(count: int) -> ModelProto:
    """Length of one value of the model's metadata."""
    model = _relu()
    model.metadata_props.add(key="key", value="/home/someone/" * count)
    return model


def trace_frames(count: int) -> ModelProto:
    """Frames of one stack trace."""
    model = _relu()
    trace = "".join(f'  File "/a/b/file{i}.py", line {i}, in f\n    return x\n' for i in range(count))
    model.graph.node[0].metadata_props.add(key=TRACE, value=trace)
    return model


def trace_of_many_nodes(count: int) -> ModelProto:
    """Invalid nodes with a stack trace each."""
    model = nodes_invalid(count)
    for i, made in enumerate(model.graph.node):
        made.metadata_props.add(key=TRACE, value=f'  File "export.py", line {i}, in f\n    return x\n' * 8)
    return model


def trace_folders(count: int) -> ModelProto:
    """Folders of one path in a stack trace."""
    model = nodes_invalid(1)
    model.graph.node[0].metadata_props.add(key=TRACE, value=f'  File "{"a/" * count}f.py", line 1, in f\n')
    return model


def trace_spaces(count: int) -> ModelProto:
    """Spaces and quotes of a stack trace without frames."""
    model = nodes_invalid(1)
    model.graph.node[0].metadata_props.add(key=TRACE, value='  File "' * count)
    return model


def documentation_length(count: int) -> ModelProto:
    """Length of a documentation string."""
    model = _relu()
    model.doc_string = "a word /home/x " * count
    model.graph.node[0].doc_string = "/a/b.py(12): f\n" * count
    return model


def name_length(count: int) -> ModelProto:
    """Length of the name of a value, which invalid nodes mention."""
    name = "v" * count
    return model_of([node("Relu", ["x"], [name]), *(node("Relu", [name, name], [f"o{i}"]) for i in range(8))])


def axis_name_length(count: int) -> ModelProto:
    """Length of the name of an axis."""
    model = _relu()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N+" * count + "1"
    return model


def subgraph_depth(count: int) -> ModelProto:
    """Nodes in nested subgraphs; the depth is limited by protobuf."""
    graph = GraphProto(name="g", node=[node("Relu", ["x"], ["o"])])
    graph.output.add(name="o")
    for level in range(24):
        outer = GraphProto(name=f"g{level}")
        outer.node.extend(node("Relu", ["x"], [f"v{level}_{i}"]) for i in range(count // 24))
        outer.node.append(helper.make_node("If", ["c"], ["o"], then_branch=graph, else_branch=GraphProto(name="e")))
        outer.output.add(name="o")
        graph = outer
    model = model_of(graph.node)
    model.graph.input.add(name="c", type=BOOL)
    return model


def branches(count: int) -> ModelProto:
    """If nodes, each with two branches."""
    model = model_of()
    model.graph.input.add(name="c", type=BOOL)
    for i in range(count // 4):
        graphs = []
        for suffix in "te":
            graph = GraphProto(name=f"{suffix}{i}", node=[node("Relu", ["x"], [f"{suffix}{i}o"])])
            graph.output.add(name=f"{suffix}{i}o", type=FLOATS)
            graphs.append(graph)
        model.graph.node.append(helper.make_node("If", ["c"], [f"o{i}"], then_branch=graphs[0], else_branch=graphs[1]))
    model.graph.node.append(node("Relu", ["x"], ["y"]))
    return model


def values_captured(count: int) -> ModelProto:
    """Values that one subgraph takes from the graph around it."""
    model = nodes_in_fan(count)
    model.graph.input.add(name="c", type=BOOL)
    graphs = [
        GraphProto(name="t", node=[node("Sum", [f"o{i}" for i in range(count)], ["t"])]),
        GraphProto(name="e", node=[node("Abs", ["x"], ["e"])]),
    ]
    for graph in graphs:
        graph.output.add(name=graph.name, type=FLOATS)
    model.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=graphs[0], else_branch=graphs[1]))
    return model


def quantization_annotations(count: int) -> ModelProto:
    """Annotations of quantized values."""
    model = _relu()
    for i in range(count):
        annotation = model.graph.quantization_annotation.add(tensor_name=f"x{i}")
        annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    return model


def trainings(count: int) -> ModelProto:
    """Training algorithms."""
    model = _relu()
    for i in range(count):
        model.training_info.add().algorithm.name = f"a{i}"
    return model


def type_depth(count: int) -> ModelProto:
    """Inputs of nested types."""
    kind = TypeProto()
    kind.CopyFrom(FLOATS)
    for _ in range(20):
        outer = TypeProto()
        outer.sequence_type.elem_type.CopyFrom(kind)
        kind = outer
    model = _relu()
    for i in range(count // 20):
        model.graph.input.add(name=f"i{i}", type=kind)
    return model


SCALED: Mapping[str, Callable[[int], ModelProto]] = {
    made.__name__: made
    for made in (
        nodes_in_chain,
        nodes_of_one_name,
        nodes_without_name,
        nodes_in_fan,
        nodes_unknown,
        nodes_of_own_domain,
        nodes_invalid,
        nodes_of_own_attribute,
        nodes_unsorted,
        nodes_reshaping,
        nodes_constant,
        nodes_quantized,
        nodes_of_own_scale,
        attributes_unknown,
        attributes_repeated,
        attributes_of_own_operator,
        attribute_integers,
        attribute_strings,
        attribute_graphs,
        inputs_of_node,
        inputs_of_node_distinct,
        outputs_of_node,
        inputs_of_graph,
        inputs_of_refused_type,
        inputs_of_symbolic_axes,
        outputs_of_graph,
        outputs_of_one_name,
        value_infos,
        value_infos_wrong,
        initializers,
        initializers_unused,
        initializers_of_one_name,
        initializers_sparse,
        external_tensors,
        external_files,
        external_entries,
        tensor_strings,
        tensor_integers,
        tensor_dims,
        input_dims,
        input_dims_symbolic,
        functions,
        functions_of_one_name,
        function_calls,
        function_nodes,
        function_attributes,
        function_values,
        opset_imports,
        opset_imports_of_one_domain,
        operator_domains,
        metadata_of_model,
        metadata_of_model_one_key,
        metadata_of_node,
        metadata_of_nodes,
        metadata_length,
        trace_frames,
        trace_of_many_nodes,
        trace_folders,
        trace_spaces,
        documentation_length,
        name_length,
        axis_name_length,
        subgraph_depth,
        branches,
        values_captured,
        quantization_annotations,
        trainings,
        type_depth,
    )
}
