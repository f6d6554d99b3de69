"""Small valid models without external data, from which the mutants for whole commands are derived."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import onnx.parser
from onnx import ModelProto, TensorProto, helper, numpy_helper

_HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
_NEWER = '<ir_version: 9, opset_import: ["" : 20]>\n'
_OLDER = '<ir_version: 6, opset_import: ["" : 11]>\n'
_LEARNED = '<ir_version: 8, opset_import: ["" : 15, "ai.onnx.ml" : 3]>\n'
_CONTRIB = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\n'
_LOCAL = '<ir_version: 8, opset_import: ["" : 17, "here" : 1]>\n'

_TEXTS = {
    "add": _HEAD + "g (float[2, 3] a, float[3] b) => (float[2, 3] y) { y = Add (a, b) }",
    "scalar": _HEAD + "g (float x) => (float y) <float half = {0.5}> { y = Pow (x, half) }",
    "chain": _HEAD + "g (float[N] x) => (float[N] y) { a = Abs (x)  b = Sqrt (a)  c = Log (b)  y = Sin (c) }",
    "gemm": _HEAD
    + """g (float[N, 3] x) => (float[N, 2] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, -1}>
    { y = Gemm <transB = 1, alpha = 0.5> (x, w, b) }""",
    "matmul": _HEAD + "g (float[B, M, 4] a, float[4, K] b) => (float[B, M, K] y) { y = MatMul (a, b) }",
    "einsum": _HEAD
    + 'g (float[2, 3] a, float[3, 4] b) => (float[2, 4] y) { y = Einsum <equation = "ij,jk->ik"> (a, b) }',
    "conv1d": _HEAD
    + """g (float[N, 1, T] x) => (float[N, 1, U] y) <float[1, 1, 3] w = {1, 0, -1}>
    { y = Conv <dilations = [2], strides = [1], group = 1> (x, w) }""",
    "conv_transpose": _HEAD
    + """g (float[1, 1, 3, 3] x) => (float[1, 1, h, w] y) <float[1, 1, 2, 2] k = {1, 2, 3, 4}>
    { y = ConvTranspose <strides = [2, 2], output_padding = [1, 1]> (x, k) }""",
    "pool": _HEAD
    + """g (float[1, 2, 6, 6] x) => (float[1, 2, 3, 3] y, float[1, 2, 1, 1] z)
    { y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)  z = GlobalAveragePool (x) }""",
    "batch_norm": _HEAD
    + """g (float[N, 2, 3] x) => (float[N, 2, 3] y)
    <float[2] s = {1, 1}, float[2] b = {0, 0}, float[2] m = {0, 0}, float[2] v = {1, 1}>
    { y = BatchNormalization <epsilon = 0.001> (x, s, b, m, v) }""",
    "layer_norm": _HEAD
    + """g (float[N, 4] x) => (float[N, 4] y) <float[4] s = {1, 1, 1, 1}, float[4] b = {0, 0, 0, 0}>
    { y = LayerNormalization <axis = -1> (x, s, b) }""",
    "group_norm": '<ir_version: 10, opset_import: ["" : 21]>\n'
    + """g (float[1, 4, 2] x) => (float[1, 4, 2] y) <float[4] s = {1, 1, 1, 1}, float[4] b = {0, 0, 0, 0}>
    { y = GroupNormalization <num_groups = 2> (x, s, b) }""",
    "gelu": _NEWER + 'g (float[N] x) => (float[N] y) { y = Gelu <approximate = "tanh"> (x) }',
    "softmax": _HEAD + "g (float[2, N] x) => (float[2, N] y) { y = Softmax <axis = 1> (x) }",
    "reduce": _HEAD
    + """g (float[2, 3, 4] x) => (float[2, 4] y, float[a, b, c] z) <int64[1] axes = {1}>
    { y = ReduceSum <keepdims = 0> (x, axes)  z = ReduceMax <axes = [0], keepdims = 1> (x) }""",
    "argmax": _HEAD + "g (float[N, 5] x) => (int64[N] y) { y = ArgMax <axis = 1, keepdims = 0> (x) }",
    "topk": _HEAD
    + """g (float[N, 6] x) => (float[N, 2] v, int64[N, 2] i) <int64[1] k = {2}> { v, i = TopK <axis = 1> (x, k) }""",
    "split": _HEAD
    + """g (float[6, 2] x) => (float[2, 2] a, float[4, 2] b) <int64[2] sizes = {2, 4}>
    { a, b = Split <axis = 0> (x, sizes) }""",
    "split_even": _NEWER + "g (float[4, N] x) => (float[2, N] a, float[2, N] b) { a, b = Split <num_outputs = 2> (x) }",
    "concat": _HEAD + "g (float[N, 2] a, float[N, 3] b) => (float[N, 5] y) { y = Concat <axis = 1> (a, b) }",
    "reshape": _HEAD + """g (float[N, 6] x) => (float[N, 2, 3] y) <int64[3] to = {0, 2, -1}> { y = Reshape (x, to) }""",
    "reshape_input": _HEAD + "g (float[2, 6] x, int64[2] to) => (float[a, b] y) { y = Reshape (x, to) }",
    "computed_reshape": _HEAD
    + """g (float[N, 4] x) => (float[M] y) <int64 zero = {0}, int64[1] axes = {0}, int64[1] four = {4}>
    { s = Shape (x)  n = Gather (s, zero)  u = Unsqueeze (n, axes)  m = Mul (u, four)  y = Reshape (x, m) }""",
    "transpose": _HEAD + "g (float[A, B, C] x) => (float[C, A, B] y) { y = Transpose <perm = [2, 0, 1]> (x) }",
    "slice": _HEAD
    + """g (float[4, N] x) => (float[2, N] y) <int64[1] from = {1}, int64[1] to = {3}, int64[1] axes = {0}>
    { y = Slice (x, from, to, axes) }""",
    "gather": _HEAD
    + """g (int64[N] ids) => (float[N, 2] y) <float[3, 2] table = {1, 2, 3, 4, 5, 6}>
    { y = Gather <axis = 0> (table, ids) }""",
    "gather_nd": _HEAD + "g (float[2, 3] x, int64[N, 2] at) => (float[N] y) { y = GatherND (x, at) }",
    "scatter": _HEAD
    + """g (float[4, 2] x, int64[2, 1] at, float[2, 2] u) => (float[4, 2] y)
    { y = ScatterND (x, at, u) }""",
    "scatter_elements": _HEAD
    + """g (float[3, 3] x, int64[2, 3] i, float[2, 3] u) => (float[3, 3] y)
    { y = ScatterElements <axis = 0> (x, i, u) }""",
    "pad": _HEAD
    + """g (float[2, 3] x) => (float[a, b] y) <int64[4] pads = {0, 1, 0, 1}, float v = {0.5}>
    { y = Pad <mode = "constant"> (x, pads, v) }""",
    "tile": _HEAD + "g (float[N, 2] x) => (float[M, 4] y) <int64[2] r = {1, 2}> { y = Tile (x, r) }",
    "expand": _HEAD + "g (float[1, 3] x, int64[2] to) => (float[a, b] y) { y = Expand (x, to) }",
    "range": _HEAD
    + """g (int64 limit) => (int64[N] y) <int64 zero = {0}, int64 one = {1}> { y = Range (zero, limit, one) }""",
    "one_hot": _HEAD
    + """g (int64[N] i) => (float[N, 4] y) <int64 depth = {4}, float[2] values = {0, 1}>
    { y = OneHot <axis = -1> (i, depth, values) }""",
    "resize": _HEAD
    + """g (float[1, 1, H, W] x) => (float[1, 1, h, w] y) <float[4] scales = {1, 1, 2, 2}>
    { y = Resize <mode = "linear", coordinate_transformation_mode = "asymmetric"> (x, , scales) }""",
    "resize_sizes": _HEAD
    + """g (float[1, 2, 3, 3] x, int64[4] sizes) => (float[a, b, c, d] y)
    { y = Resize <mode = "nearest"> (x, , , sizes) }""",
    "upsample": '<ir_version: 4, opset_import: ["" : 9]>\n'
    + """g (float[1, 1, 2, 2] x) => (float[1, 1, h, w] y) <float[4] scales = {1, 1, 2, 2}>
    { y = Upsample <mode = "nearest"> (x, scales) }""",
    "where": _HEAD
    + """g (float[N, 2] x) => (float[N, 2] y) <float zero = {0}>
    { c = Greater (x, zero)  y = Where (c, x, zero) }""",
    "compare": _HEAD
    + """g (int64[N] a, int64[N] b) => (bool[N] y)
    { e = Equal (a, b)  l = Less (a, b)  y = Or (e, l) }""",
    "nonzero": _HEAD + "g (float[2, 3] x) => (int64[2, n] y) { y = NonZero (x) }",
    "unique": _HEAD + "g (int64[N] x) => (int64[M] y, int64[M] i) { y, i = Unique <sorted = 1> (x) }",
    "suppression": _HEAD
    + """g (float[1, n, 4] boxes, float[1, 1, n] scores) => (int64[k, 3] y)
    <int64 most = {3}, float iou = {0.5}, float least = {0.1}>
    { y = NonMaxSuppression (boxes, scores, most, iou, least) }""",
    "dropout": _HEAD
    + """g (float[N, 2] x) => (float[N, 2] y) <float ratio = {0.5}, bool training = {0}>
    { y, mask = Dropout (x, ratio, training) }""",
    "cast": _HEAD
    + """g (float[N] x) => (int32[N] y, float16[N] h) { y = Cast <to = 6> (x)  h = Cast <to = 10> (x) }""",
    "cumsum": _HEAD + "g (double[N, 3] x) => (double[N, 3] y) <int64 axis = {1}> { y = CumSum (x, axis) }",
    "strings": _LEARNED
    + """g (string[N] words) => (int64[N] y)
    { y = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_int64s = [1, 2], default_int64 = -1> (words) }""",
    "normalizer": _HEAD
    + """g (string[N] x) => (string[M] y)
    { y = StringNormalizer <case_change_action = "LOWER", stopwords = ["the"]> (x) }""",
    "vectorizer": _HEAD
    + """g (string[3] x) => (float[4] y)
    { y = TfIdfVectorizer <mode = "TF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 0,
      ngram_counts = [0], ngram_indexes = [0, 1, 2, 3], pool_strings = ["a", "b", "c", "d"]> (x) }""",
    "scaler": _LEARNED
    + """g (float[N, 2] x) => (float[N, 2] y)
    { y = ai.onnx.ml.Scaler <offset = [0.5, 0.5], scale = [2.0, 2.0]> (x) }""",
    "svm": _LEARNED
    + """g (float[N, 2] x) => (float[N, 1] y)
    { y = ai.onnx.ml.SVMRegressor <coefficients = [1.0, -1.0], kernel_params = [0.5, 0.0, 3.0], kernel_type = "RBF",
      n_supports = 2, rho = [0.25], support_vectors = [1.0, 2.0, 3.0, 4.0]> (x) }""",
    "tree": _LEARNED
    + """g (float[N, 1] x) => (int64[N] label, float[N, 2] p)
    { label, p = ai.onnx.ml.TreeEnsembleClassifier <classlabels_int64s = [0, 1], class_ids = [0, 1],
      class_nodeids = [1, 2], class_treeids = [0, 0], class_weights = [1.0, 1.0], nodes_treeids = [0, 0, 0],
      nodes_nodeids = [0, 1, 2], nodes_featureids = [0, 0, 0], nodes_values = [0.5, 0.0, 0.0],
      nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids = [1, 0, 0],
      nodes_falsenodeids = [2, 0, 0], post_transform = "NONE"> (x) }""",
    "dictionary": _LEARNED
    + """g (float[N, 2] x) => (seq(map(string, float)) y)
    { y = ai.onnx.ml.ZipMap <classlabels_strings = ["no", "yes"]> (x) }""",
    "sequence": _HEAD
    + """g (float[2] a, float[3] b) => (float[5] y, int64 n)
    { s = SequenceConstruct (a, b)  y = ConcatFromSequence <axis = 0> (s)  n = SequenceLength (s) }""",
    "sequence_input": _HEAD
    + """g (seq(float[2]) s, int64 i) => (float[2] y) { e = SequenceErase (s, i)  y = SequenceAt (e, i) }""",
    "sequence_split": _HEAD
    + """g (float[6, 2] x) => (seq(float[2, 2]) y) <int64 each = {2}> { y = SplitToSequence (x, each) }""",
    "sequence_map": _HEAD
    + """g (seq(float[2]) s) => (seq(float[2]) y)
    { y = SequenceMap <body = b (float[2] a) => (float[2] c) { c = Neg (a) }> (s) }""",
    "optional_input": _HEAD + """g (optional(float[2]) o) => (bool y) { y = OptionalHasElement (o) }""",
    "optional": _HEAD + "g (float[2] x) => (float[2] y) { o = Optional (x)  y = OptionalGetElement (o) }",
    "if_shape": _HEAD
    + """g (float[N, 2] x) => (float[M, 2] y) <int64 zero = {0}, int64 two = {2}>
    { s = Shape (x)  n = Gather (s, zero)  c = Greater (n, two)
      y = If (c) <then_branch = t () => (float[P, 2] a) { a = Identity (x) },
                  else_branch = e () => (float[Q, 2] b) { b = Concat <axis = 0> (x, x) }> }""",
    "if_equal": _HEAD
    + """g (int64 rate, float[N] x) => (float[N] y) <int64 known = {16000}>
    { c = Equal (rate, known)
      y = If (c) <then_branch = t () => (float[N] a) { a = Neg (x) },
                  else_branch = e () => (float[N] b) { b = Abs (x) }> }""",
    "if_nested": _HEAD
    + """g (bool c, bool d, float[2] x) => (float[2] y)
    { y = If (c) <then_branch = t () => (float[2] a)
        { a = If (d) <then_branch = tt () => (float[2] p) { p = Exp (x) },
                      else_branch = te () => (float[2] q) { q = Neg (x) }> },
                  else_branch = e () => (float[2] b) { b = Identity (x) }> }""",
    "loop": _HEAD
    + """g (int64 n, float[2] x) => (float[2] y) <bool go = {1}>
    { y = Loop (n, go, x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w)
      { d = Identity (c)  w = Add (v, x) }> }""",
    "loop_scan": _HEAD
    + """g (int64 n, bool go, float x) => (float[k] all)
    { last, all = Loop (n, go, x) <body = b (int64 i, bool c, float v) => (bool d, float w, float s)
      { d = Identity (c)  w = Mul (v, v)  s = Identity (w) }> }""",
    "scan": _HEAD
    + """g (float s, float[T] xs) => (float f, float[T] ys)
    { f, ys = Scan <num_scan_inputs = 1, body = b (float a, float x) => (float c, float d)
      { c = Add (a, x)  d = Identity (c) }> (s, xs) }""",
    "function": _LOCAL
    + """g (float[N, 2] x) => (float[N, 2] y) { y = here.scaled <by = 2.0> (x) }
    <domain: "here", opset_import: ["" : 17]> scaled <by> (a) => (b)
    { k = Constant <value_float : float = @by> ()  b = Mul (a, k) }""",
    "function_nested": _LOCAL
    + """g (float[2] x) => (float[2] y) { y = here.outer (x) }
    <domain: "here", opset_import: ["" : 17]> inner (a) => (b) { b = Tanh (a) }
    <domain: "here", opset_import: ["" : 17, "here" : 1]> outer (a) => (c)
    { t = here.inner (a)  c = here.inner (t) }""",
    "function_if": _LOCAL
    + """g (bool c, float[2] x) => (float[2] y) { y = here.either (c, x) }
    <domain: "here", opset_import: ["" : 17]> either (c, x) => (y)
    { y = If (c) <then_branch = t () => (a) { a = Neg (x) }, else_branch = e () => (b) { b = Abs (x) }> }""",
    "qdq": _HEAD
    + """g (float[N, 2] x) => (float[N, 2] y) <float s = {0.05}, int8 z = {0}, int8[2, 2] w = {1, -2, 3, -4}>
    { q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  v = DequantizeLinear (w, s, z)
      y = MatMul (d, v) }""",
    "qdq_channels": _HEAD
    + """g (float[N, 2, 3] x) => (float[N, 2, 3] y) <float[2] s = {0.05, 0.1}, uint8[2] z = {128, 127}>
    { q = QuantizeLinear <axis = 1> (x, s, z)  y = DequantizeLinear <axis = 1> (q, s, z) }""",
    "qlinear_conv": _HEAD
    + """g (uint8[1, 1, 3, 3] x) => (uint8[1, 1, 2, 2] y)
    <float s = {0.1}, uint8 z = {0}, uint8[1, 1, 2, 2] w = {1, 2, 3, 4}>
    { y = QLinearConv (x, s, z, w, s, z, s, z) }""",
    "dynamic_quantize": _HEAD
    + """g (float[N, 2] x) => (int32[N, 2] y) <uint8[2, 2] w = {1, 2, 3, 4}>
    { q, s, z = DynamicQuantizeLinear (x)  y = MatMulInteger (q, w, z) }""",
    "lstm": _HEAD
    + """g (float[T, N, 1] x) => (float[T, 1, N, 1] y)
    <float[1, 4, 1] w = {1, 2, 3, 4}, float[1, 4, 1] r = {4, 3, 2, 1}> { y = LSTM <hidden_size = 1> (x, w, r) }""",
    "gru": _HEAD
    + """g (float[T, N, 2] x, float[1, N, 1] h) => (float[T, 1, N, 1] y, float[1, N, 1] z)
    <float[1, 3, 2] w = {1, 2, 3, 4, 5, 6}, float[1, 3, 1] r = {1, 2, 3}>
    { y, z = GRU <hidden_size = 1, linear_before_reset = 1> (x, w, r, , , h) }""",
    "text_model": _HEAD
    + """g (int64[batch, sequence] input_ids, int64[batch, sequence] attention_mask) => (float[batch, sequence, 2] y)
    <float[4, 2] table = {1, 2, 3, 4, 5, 6, 7, 8}, int64[1] last = {-1}>
    { e = Gather (table, input_ids)  m = Cast <to = 1> (attention_mask)  u = Unsqueeze (m, last)  y = Mul (e, u) }""",
    "contrib": _CONTRIB + "g (float[N, 4] x) => (float[N, 4] y) { y = com.microsoft.Gelu (x) }",
    "contrib_norm": _CONTRIB
    + """g (float[N, 2, 4] x, float[N, 2, 4] r) => (float[N, 2, 4] y) <float[4] s = {1, 1, 1, 1}>
    { y, a, b, c = com.microsoft.SkipLayerNormalization <epsilon = 0.00001> (x, r, s) }""",
    "random": _HEAD + "g (float[2] x) => (float[2] y) { r = RandomNormalLike <seed = 1.0> (x)  y = Add (x, r) }",
    "constant_of_shape": _HEAD
    + """g (int64[2] shape) => (float[a, b] y) { y = ConstantOfShape <value = float[1] {0.5}> (shape) }""",
    "old_slice": '<ir_version: 4, opset_import: ["" : 9]>\n'
    + "g (float[4, 3] x) => (float[2, 3] y) { y = Slice <axes = [0], starts = [1], ends = [3]> (x) }",
    "old_resize": _OLDER
    + """g (float[1, 1, 2, 2] x) => (float[1, 1, 4, 4] y) <float[0] roi = {}, float[4] scales = {1, 1, 2, 2}>
    { y = Resize <mode = "nearest"> (x, roi, scales) }""",
    "dft": _NEWER + """g (float[1, n, 1] x) => (float[1, n, 2] y) <int64 axis = {1}> { y = DFT (x, , axis) }""",
    "grid": _NEWER
    + """g (float[1, 1, 4, 4] x, float[1, 2, 2, 2] at) => (float[1, 1, 2, 2] y)
    { y = GridSample <mode = "linear"> (x, at) }""",
    "names": _HEAD + 'g (float["2 * n"] x, float["n + 1"] z) => (float[m] y) { y = Concat <axis = 0> (x, z) }',
}


@functools.cache
def seed_models() -> dict[str, bytes]:
    """Return the models as bytes, by name; each passes `onnx.checker`."""
    models = {name: onnx.parser.parse_model(text) for name, text in _TEXTS.items()}
    models |= {"raw": _create_raw(), "sparse": _create_sparse(), "types": _create_types(), "annotated": _annotate()}
    models |= {"initialized_input": _create_initialized_input(), "shadowed": _create_shadowed()}
    return {name: model.SerializeToString(deterministic=True) for name, model in sorted(models.items())}


def _create_raw() -> ModelProto:
    """Return a model with weights in `raw_data`, one per type."""
    types = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.FLOAT16, TensorProto.BOOL)
    nodes = [helper.make_node("Cast", ["x"], ["last0"], to=TensorProto.FLOAT)]
    weights = []
    for number, kind in enumerate(types, 1):
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        weights.append(numpy_helper.from_array(np.arange(1, 5).astype(dtype).reshape(2, 2), f"w{number}"))
        nodes.append(helper.make_node("Cast", [f"w{number}"], [f"cast{number}"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [f"last{number - 1}", f"cast{number}"], [f"last{number}"]))
    graph = helper.make_graph(
        nodes,
        "raw",
        [helper.make_tensor_value_info("x", TensorProto.INT32, ["N", 2, 2])],
        [helper.make_tensor_value_info(f"last{len(types)}", TensorProto.FLOAT, ["N", 2, 2])],
        weights,
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def _create_sparse() -> ModelProto:
    model = onnx.parser.parse_model(
        _HEAD + "g (float[N, 3] x) => (float[N, 3] y) <float[3] w = {1, 0, 2}> { y = Mul (x, w) }"
    )
    del model.graph.initializer[:]
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [2], [0, 2])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))
    return model


def _create_types() -> ModelProto:
    """Return a model whose inputs have many types."""
    kinds = ("INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "UINT64", "FLOAT16", "DOUBLE", "BOOL")
    inputs = [helper.make_tensor_value_info(kind.lower(), getattr(TensorProto, kind), ["N"]) for kind in kinds]
    nodes = [helper.make_node("Cast", [kind.lower()], [f"{kind.lower()}_"], to=TensorProto.FLOAT) for kind in kinds]
    nodes.append(helper.make_node("Sum", [f"{kind.lower()}_" for kind in kinds], ["y"]))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])
    graph = helper.make_graph(nodes, "types", inputs, [output])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def _annotate() -> ModelProto:
    """Return a model with documentation, metadata, declared inner shapes and a quantization annotation."""
    model = onnx.parser.parse_model(_TEXTS["chain"])
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, ["N"]))
    model.graph.value_info.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, None))
    helper.set_model_props(model, {"source": "net.py", "sizes": "N=3"})
    model.producer_name, model.graph.doc_string = "exporter", "the graph"
    model.graph.node[1].doc_string = 'File "net.py", line 7, in forward'
    annotation = model.graph.quantization_annotation.add(tensor_name="b")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="a")
    return model


def _create_initialized_input() -> ModelProto:
    """Return a model with an input that has a default value."""
    model = onnx.parser.parse_model(_TEXTS["gemm"])
    model.graph.input.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [2]))
    return model


def _create_shadowed() -> ModelProto:
    """Return a model with a constant in a branch."""
    model = onnx.parser.parse_model(_TEXTS["if_equal"])
    branch = model.graph.node[1].attribute[0].g
    branch.initializer.append(numpy_helper.from_array(np.array([2.0], dtype=np.float32), "factor"))
    branch.node[0].op_type = "Mul"
    branch.node[0].input.append("factor")
    return model
