"""Small valid models, from which hostile models are derived. Together, they contain every message type of ONNX."""

from __future__ import annotations

import functools
from pathlib import Path

import onnx
import onnx.parser
from onnx import AttributeProto, ModelProto, TensorProto

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
LOCAL = '<ir_version: 8, opset_import: ["" : 18, "local" : 1]>\n'
CONTRIB = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\n'
FOREST = '<ir_version: 10, opset_import: ["" : 18, "ai.onnx.ml" : 5]>\n'
CLASSIC = '<ir_version: 8, opset_import: ["" : 15, "ai.onnx.ml" : 3]>\n'
DATA = "data.bin"
DATA_BYTES = 96

TEXTS = {
    "relu": HEAD + "g (float[N, 4] x) => (float[N, 4] y) { [act] y = Relu (x) }",
    "passthrough": HEAD + "g (float[N, 4] x) => (float[N, 4] x, float[N, 4] y) { y = Neg (x) }",
    "conv": HEAD
    + """g (float[N, 1, 4, 4] x) => (float[N, 2, h, w] y)
    <float[2, 1, 3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}, float[2] b = {0.5, 1}>
    { c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w, b)  y = LeakyRelu <alpha = 0.1> (c) }""",
    "if": HEAD
    + """g (bool c, float[N] x) => (float[N] y)
    { y = If (c) <then_branch = t () => (float[N] a) { a = Neg (x) },
                  else_branch = e () => (float[N] b) { b = Abs (x) }> }""",
    "loop": HEAD
    + """g (int64 n, bool go, float[2] x) => (float[2] y, float[k, 2] all)
    { y, all = Loop (n, go, x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w, float[2] s)
      { d = Identity (c)  w = Add (v, x)  s = Mul (w, w) }> }""",
    "scan": HEAD
    + """g (float[2] s, float[5, 2] xs) => (float[2] f, float[5, 2] ys)
    { f, ys = Scan <num_scan_inputs = 1, body = b (float[2] a, float[2] x) => (float[2] c, float[2] d)
      { c = Add (a, x)  d = Identity (c) }> (s, xs) }""",
    "function": LOCAL
    + """g (float[N] x) => (float[N] y) { y = local.twice <alpha = 0.5> (x) }
    <domain: "local", opset_import: ["" : 18]> twice <alpha> (a) => (b)
    { t = LeakyRelu <alpha : float = @alpha> (a)  b = Add (t, t) }""",
    "functions": LOCAL
    + """g (float[N] x, float[N] z) => (float[N] y) { h = local.outer (x, z)  y = local.inner (h) }
    <domain: "local", opset_import: ["" : 18]> inner (a) => (b) { b = Exp (a) }
    <domain: "local", opset_import: ["" : 18, "local" : 1]> outer (a, c) => (b)
    { t = local.inner (a)  u = local.inner (c)  b = Sub (t, u) }""",
    "sequence": HEAD
    + """g (float[2] x, float[2] z) => (float[2] y, seq(float[2]) s)
    { s = SequenceConstruct (x, z)  i = Constant <value = int64 {0}> ()  y = SequenceAt (s, i) }""",
    "optional": HEAD + "g (float[2] x) => (bool y) { o = Optional (x)  y = OptionalHasElement (o) }",
    "qdq": HEAD
    + """g (float[N, 2] x) => (float[N, 2] y)
    <float s = {0.1}, uint8 z = {128}, float[2] sw = {0.1, 0.2}, int8[2] zw = {0, 0}, int8[2, 2] w = {1, 2, 3, 4}>
    { q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  v = DequantizeLinear <axis = 1> (w, sw, zw)
      y = MatMul (d, v) }""",
    "qlinear": HEAD
    + """g (uint8[N, 2] x) => (uint8[N, 2] y)
    <float s = {0.1}, uint8 z = {128}, uint8[2, 2] w = {1, 2, 3, 4}>
    { y = QLinearMatMul (x, s, z, w, s, z, s, z) }""",
    "language": HEAD
    + """g (int64[batch, seq] input_ids, int64[batch, seq] attention_mask) => (float[batch, seq, 2] y)
    <float[5, 2] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, float one = {1}, float low = {-10000}, int64[1] axes = {2}>
    { e = Gather (table, input_ids)  m = Cast <to = 1> (attention_mask)  k = Sub (one, m)  l = Mul (k, low)
      u = Unsqueeze (l, axes)  y = Add (e, u) }""",
    "formula": HEAD
    + """g (float[N, "past + seq"] x, int64[2] shape) => (float["2*N", M] y)
    { r = Reshape (x, shape)  y = Identity (r) }""",
    "contrib": CONTRIB
    + """g (float[N, 4] x) => (float[N, 4] y) <float[4] g1 = {1, 1, 1, 1}, float[4] b1 = {0, 0, 0, 0}>
    { a = com.microsoft.FastGelu (x, b1)  y, m, v = com.microsoft.SkipLayerNormalization (a, x, g1, b1) }""",
    "classic": CLASSIC
    + """g (float[N, 2] x) => (int64[N] label, seq(map(int64, float)) p)
    { label, s = ai.onnx.ml.LinearClassifier <coefficients = [1.0, 2.0, 3.0, 4.0], intercepts = [0.0, 0.0],
      classlabels_ints = [0, 1], post_transform = "SOFTMAX"> (x)
      p = ai.onnx.ml.ZipMap <classlabels_int64s = [0, 1]> (s) }""",
    "trees": CLASSIC
    + """g (float[N, 2] x) => (float[N, 1] y)
    { y = ai.onnx.ml.TreeEnsembleRegressor <n_targets = 1, nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2],
      nodes_featureids = [1, 0, 0], nodes_values = [0.5, 0.0, 0.0], nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"],
      nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0], target_treeids = [0, 0], target_nodeids = [1, 2],
      target_ids = [0, 0], target_weights = [1.0, 2.0]> (x) }""",
    "forest": FOREST
    + """g (float[N, 2] x) => (float[N, 1] y)
    { t = ai.onnx.ml.TreeEnsemble <n_targets = 1, tree_roots = [0, 3, 6],
      nodes_featureids = [1, 0, 1, 1, 0, 1, 1, 0, 1], nodes_splits = float[9] {1, 2, 3, 4, 5, 6, 7, 8, 9},
      nodes_modes = uint8[9] {0, 0, 0, 0, 0, 0, 0, 0, 0}, nodes_truenodeids = [1, 0, 2, 4, 0, 2, 7, 0, 2],
      nodes_falsenodeids = [2, 1, 3, 5, 1, 3, 8, 1, 3], nodes_trueleafs = [0, 1, 1, 0, 1, 1, 0, 1, 1],
      nodes_falseleafs = [0, 1, 1, 0, 1, 1, 0, 1, 1], leaf_targetids = [0, 0, 0, 0],
      leaf_weights = float[4] {1, 2, 3, 4}> (x)
      y = Identity (t) }""",
    "composed": HEAD
    + """g (float[N, 3] x, float[3] w) => (float[N, 3] y, float[N, 3] z)
    { y = LayerNormalization <axis = -1> (x, w)  m = Mish (y)  z = Softmax <axis = 1> (m) }""",
    "recurrent": HEAD
    + """g (float[5, N, 2] x) => (float[5, 1, N, 3] y)
    <float[1, 3, 2] w = {1, 2, 3, 4, 5, 6}, float[1, 3, 3] r = {1, 2, 3, 4, 5, 6, 7, 8, 9}>
    { y = RNN <hidden_size = 3, activations = ["Tanh"]> (x, w, r) }""",
    "resize": HEAD
    + """g (float[1, 1, H, W] x, float[4] scales) => (float[1, 1, h, w] y)
    { y = Resize <mode = "nearest"> (x, , scales) }""",
}


@functools.cache
def seeds() -> dict[str, ModelProto]:
    """Return the models by name."""
    found = {name: onnx.parser.parse_model(text) for name, text in TEXTS.items()}
    found |= {"external": _external(), "sparse": _sparse(), "stamped": _with_versions(), "trained": _trained()}
    found |= {"types": _types(), "attributes": _attributes(), "raw": _raw(), "device": _device()}
    return found


@functools.cache
def contents() -> tuple[bytes, ...]:
    """Return the bytes of the models, ordered by name."""
    return tuple(model.SerializeToString(deterministic=True) for _, model in sorted(seeds().items()))


def furnish(folder: Path) -> None:
    """Write the external data of the models."""
    (folder / DATA).write_bytes(bytes(range(DATA_BYTES)))


def _external() -> ModelProto:
    model = onnx.parser.parse_model(TEXTS["conv"])
    offset = 0
    for tensor in model.graph.initializer:
        raw = onnx.numpy_helper.to_array(tensor).tobytes()
        tensor.ClearField("float_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", DATA), ("offset", str(offset)), ("length", str(len(raw)))):
            tensor.external_data.add(key=key, value=value)
        offset += len(raw)
    return model


def _sparse() -> ModelProto:
    model = onnx.parser.parse_model(TEXTS["relu"])
    sparse = model.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(TensorProto(name="w", data_type=1, dims=[2], float_data=[1, 2]))
    sparse.indices.CopyFrom(TensorProto(name="i", data_type=7, dims=[2], int64_data=[0, 3]))
    model.graph.node.add(op_type="Add", input=["x", "w"], output=["z"])
    node = model.graph.node.add(op_type="Constant", output=["k"])
    node.attribute.add(name="sparse_value", type=AttributeProto.SPARSE_TENSOR).sparse_tensor.CopyFrom(sparse)
    return model


def _with_versions() -> ModelProto:
    model = onnx.parser.parse_model(TEXTS["relu"])
    model.producer_name, model.producer_version, model.doc_string = "pytorch", "2.13.0+cpu", "from /home/ann/x.py"
    onnx.helper.set_model_props(model, {"author": "ann", "path": "C:\\Users\\ann\\x.py"})
    trace = 'File "/src/net.py", line 3, in forward\n    return x.relu()'
    model.graph.node[0].metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
    model.graph.node[0].doc_string = "kept"
    model.graph.quantization_annotation.add(tensor_name="x").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="s"
    )
    return model


def _trained() -> ModelProto:
    model = onnx.parser.parse_model(TEXTS["conv"])
    info = model.training_info.add()
    info.algorithm.CopyFrom(model.graph)
    info.initialization.node.add(op_type="Constant", output=["i"])
    info.update_binding.add(key="w", value="y")
    return model


def _types() -> ModelProto:
    model = onnx.parser.parse_model(TEXTS["relu"])
    held = model.graph.input.add(name="s").type
    for _ in range(3):
        held = held.sequence_type.elem_type
    held.optional_type.elem_type.map_type.key_type = 8
    held.optional_type.elem_type.map_type.value_type.sparse_tensor_type.elem_type = 1
    model.graph.input.add(name="o").type.opaque_type.name = "thing"
    model.graph.input.add(name="t").type.tensor_type.elem_type = TensorProto.STRING
    model.graph.value_info.add(name="n").type.tensor_type.shape.dim.add(denotation="DATA_BATCH")
    return model


def _attributes() -> ModelProto:
    model = onnx.parser.parse_model(TEXTS["relu"])
    tensor = TensorProto(data_type=8, dims=[2], string_data=[b"a", b"\xff"])
    values = {"i": 1, "f": 1.5, "s": "text", "is": [1, 2], "fs": [1.0], "ss": ["a", "b"], "t": tensor, "ts": [tensor]}
    model.graph.node.append(
        onnx.helper.make_node("Odd", ["x"], ["q", ""], "odd", domain="own", overload="o", **values, g=model.graph)
    )
    model.graph.node[-1].attribute.add(name="tp", type=AttributeProto.TYPE_PROTO).tp.tensor_type.elem_type = 1
    model.opset_import.add(domain="own", version=1)
    return model


def _raw() -> ModelProto:
    model = onnx.parser.parse_model(TEXTS["relu"])
    for number, (name, kind, size) in enumerate((("a", 1, 1200), ("b", 22, 150), ("c", 17, 300), ("d", 10, 600))):
        tensor = model.graph.initializer.add(name=name, data_type=kind, dims=[300], raw_data=bytes(size))
        tensor.doc_string = f"weight {number}"
    model.graph.initializer.add(name="e", data_type=7, dims=[150], int64_data=range(150))
    model.graph.initializer.add(name="f", data_type=1, dims=[2], float_data=[1, 2]).segment.end = 2
    return model


def _device() -> ModelProto:
    model = onnx.parser.parse_model(TEXTS["function"])
    model.ir_version = 11
    model.configuration.add(name="two", num_devices=2, device=["cpu:0", "cpu:1"])
    placed = model.graph.node[0].device_configurations.add(configuration_id="two", pipeline_stage=1)
    placed.sharding_spec.add(tensor_name="x", device=[0, 1]).sharded_dim.add(axis=0)
    model.functions[0].value_info.add(name="t").type.tensor_type.elem_type = 1
    model.functions[0].attribute_proto.add(name="beta", type=AttributeProto.FLOAT, f=2.0)
    model.functions[0].metadata_props.add(key="k", value="v")
    return model
