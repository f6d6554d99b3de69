"""Small models whose inputs need meaningful values: arbitrary random values fail or result in non-finite outputs."""

from __future__ import annotations

HEAD = '<ir_version: 8, opset_import: ["" : 17, "local" : 1, "com.microsoft" : 1, "ai.onnx.ml" : 2]>\n'

MODELS = {
    "index through a cast, a reshape and a shift": """
        g (int32[N, T] i) => (float[N, T, 2] y) <float[9, 2] t, int64 two = {2}>
        { c = Cast<to = 7>(i) s = Sub(c, two) a = Constant<value_ints = [0, -1]>() r = Reshape(s, a)
          y = Gather(t, r) }""",
    "index that is scaled": """
        g (int64[N] i) => (float[N, 2] y) <float[20, 2] t, int64 three = {3}, int64 one = {1}>
        { m = Mul(i, three) p = Add(m, one) y = Gather(t, p) }""",
    "index that is divided": """
        g (int64[N] i) => (float[N, 2] y, float[N, 2] z) <float[2, 2] t, float[14, 2] u, int64 seven = {7}>
        { d = Div(i, seven) y = Gather(t, d) z = Gather(u, i) }""",
    "index counted from the other end": """
        g (int64[N] i) => (float[N, 2] y) <float[20, 2] t, int64 last = {19}>
        { r = Sub(last, i) y = Gather(t, r) z = Gather(t, i) }""",
    "index through where and concat": """
        g (int64[N] i, bool[N] c) => (float[M, 2] y) <float[5, 2] t, int64[1] nil = {0}>
        { w = Where(c, i, nil) k = Concat<axis = 0>(w, nil) y = Gather(t, k) }""",
    "index that is a float": """
        g (float[N] i) => (float[N, 2] y) <float[5, 2] t> { c = Cast<to = 7>(i) y = Gather(t, c) }""",
    "index inside a branch": """
        g (int64[N] i, bool c) => (float[N, 2] y) <float[5, 2] t, float[7, 2] u>
        { y = If(c) <then_branch = a () => (float[N, 2] z) { z = Gather(t, i) },
                     else_branch = b () => (float[N, 2] w) { w = Gather(u, i) }> }""",
    "index that leaves a branch": """
        g (int64[N] i, bool c) => (float[N, 2] y) <float[5, 2] t, int64 one = {1}>
        { j = If(c) <then_branch = a () => (int64[N] z) { z = Identity(i) },
                     else_branch = b () => (int64[N] w) { w = Sub(i, one) }>  y = Gather(t, j) }""",
    "index in a local function": """
        g (int64[N] i) => (float[N, 2] y) <float[5, 2] t> { y = local.look(t, i) }
        <domain: "local", opset_import: ["" : 17]> look (a, b) => (c) { c = Gather(a, b) }""",
    "smallest of several tables": """
        g (int64[N, T] i) => (float[N, T, 2] y) <float[50, 2] t, float[4, 2] u>
        { a = Gather(t, i) b = Gather(u, i) y = Add(a, b) }""",
    "index of elements": """
        g (int64[3, T] i) => (float[3, T] y) <float[3, 7] t> { y = GatherElements<axis = 1>(t, i) }""",
    "index of n dimensions": """
        g (int64[N, 2] i) => (float[N] y) <float[3, 7] t> { y = GatherND(t, i) }""",
    "places to write": """
        g (int64[2, 1] i, float[2, 4] u) => (float[6, 4] y) <float[6, 4] t> { y = ScatterND(t, i, u) }""",
    "class of a one-hot": """
        g (int64[N] i) => (float[N, 7] y) <int64 depth = {7}, float[2] v = {0, 1}> { y = OneHot(i, depth, v) }""",
    "ids of a fused embedding": """
        g (int32[N, T] ids, int32[N, T] segments, int32[N, T] mask) => (float[N, T, 4] y, int32[N] m)
        <float[9, 4] w, float[64, 4] p, float[2, 4] s, float[4] gamma, float[4] beta>
        { y, m = com.microsoft.EmbedLayerNormalization(ids, segments, w, p, s, gamma, beta, mask) }""",
    "lengths of a recurrence": """
        g (float[N, 3, 2] x, int32[N] n) => (float[3, 1, N, 3] y) <float[1, 9, 2] w, float[1, 9, 3] r>
        { f = Transpose<perm = [1, 0, 2]>(x) y = GRU<hidden_size = 3>(f, w, r, , n) }""",
    "lengths of what is reversed": """
        g (float[T, N] x, int64[N] n) => (float[T, N] y)
        { y = ReverseSequence<batch_axis = 1, time_axis = 0>(x, n) }""",
    "mask that is subtracted from one": """
        g (float[N, T] x, int64[N, T] attention_mask) => (float[N, T] y) <float low = {-3.4e38}, float one = {1}>
        { f = Cast<to = 1>(attention_mask) d = Sub(one, f) b = Mul(d, low) s = Add(x, b) y = Softmax<axis = 1>(s) }""",
    "mask of what is dropped": """
        g (float[N, T] x, bool[N, T] m) => (float[N, T] y) <float low = {-inf}>
        { s = Where(m, low, x) y = Softmax<axis = 1>(s) }""",
    "mask whose sum divides": """
        g (float[N, T] x, int64[N, T] mask) => (float[N, 1] y) <int64[1] axes = {1}>
        { f = Cast<to = 1>(mask) k = Mul(x, f) s = ReduceSum(k, axes) n = ReduceSum(f, axes) y = Div(s, n) }""",
    "logarithm": "g (float[N] x) => (float[N] y) { y = Log(x) }",
    "logarithm of what is scaled and shifted": """
        g (float[N] x) => (float[N] y) <float a = {0.5}, float b = {-1}> { s = Mul(x, a) t = Add(s, b) y = Log(t) }""",
    "probability": """
        g (float[N] p) => (float[N] y) <float one = {1}>
        { l = Log(p) q = Sub(one, p) m = Log(q) y = Add(l, m) }""",
    "probability behind a clip": """
        g (float[N] p) => (float[N] y) <float one = {1}, float low = {0}, float high = {1}>
        { c = Clip(p, low, high) q = Sub(one, c) l = Log(c) m = Log(q) y = Add(l, m) }""",
    "what divides after a sum": """
        g (float[N, T] x) => (float[N, T] y) <int64[1] axes = {1}>
        { s = ReduceSum(x, axes) r = Sqrt(s) y = Div(x, r) }""",
    "power that is not a whole number": "g (float[N] x) => (float[N] y) <float e = {0.5}> { y = Pow(x, e) }",
    "arc": "g (float[N] x) => (float[N] y) <float two = {2}> { t = Mul(x, two) y = Acos(t) }",
    "divisor of whole numbers": "g (int64[N] a, int64[N] b) => (int64[N] y) { y = Div(a, b) }",
    "scale and zero point": """
        g (uint8[N] x, float s, uint8 z) => (uint8[N] y)
        { f = DequantizeLinear(x, s, z) y = QuantizeLinear(f, s, z) }""",
    "zero point of what is wide": "g (int32[N] x, float s, int32 z) => (float[N] y) { y = DequantizeLinear(x, s, z) }",
    "boxes and thresholds": """
        g (float[1, 8, 4] b, float[1, 2, 8] s, float[1] iou, float[1] least) => (int64[k, 3] y) <int64[1] n = {4}>
        { y = NonMaxSuppression(b, s, n, iou, least) }""",
    "category": """
        g (string[N] x) => (float[N, 3] y)
        { y = ai.onnx.ml.OneHotEncoder<cats_strings = ["a", "b", "c"], zeros = 0>(x) }""",
    "axes that are reduced": "g (float[N, 3, 5] x, int64[1] a) => (float[N, 1, 5] y) { y = ReduceSum(x, a) }",
    "shape": "g (float[N, 6] x, int64[3] s) => (float[N, 2, 3] y) { y = Reshape(x, s) }",
    "sizes of a picture": """
        g (float[1, 3, 8, 8] x, int64[4] s) => (float[1, 3, 12, 4] y) { y = Resize<mode = "nearest">(x, , , s) }""",
    "scales of a picture": """
        g (float[1, 3, 8, 8] x, float[4] s) => (float[1, 3, 16, 4] y) { y = Resize<mode = "nearest">(x, , s) }""",
    "where a slice begins and ends": """
        g (float[N, 8] x, int64[1] b, int64[1] e, int64[1] a) => (float[1, 8] y) { y = Slice(x, b, e, a) }""",
    "sizes of a picture as floats, after another size": """
        g (float[2] s, float[1, 3, 64, 64] x) => (float[1, 3, h, w] y)
        <float k = {64}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}>
        { m = ReduceMax<keepdims = 0>(s) r = Div(k, m) t = Mul(s, r) f = Floor(t) i = Cast<to = 7>(f)
          q = Slice(i, zero, one) p = Slice(x, zero, q, two) a = Shape(p) b = Slice(a, zero, two) c = Cast<to = 7>(s)
          n = Concat<axis = 0>(b, c) y = Resize<mode = "linear">(p, , , n) }""",
    "columns and rows as floats": """
        g (float[2] s, float[1, 3, 64] x) => (float[1, 3, h, w] y) <int64[2] o = {1, 3}>
        { c = Cast<to = 7>(s) n = Concat<axis = 0>(o, c) y = Reshape(x, n) }""",
    "end of a range that is a float": """
        g (float n, float[1] x) => (float[N] y) <float zero = {0}, float one = {1}>
        { r = Range(zero, n, one) y = Add(r, x) }""",
    "parts": "g (float[N, 6] x, int64[2] p) => (float[N, 2] y, float[N, 4] z) { y, z = Split<axis = 1>(x, p) }",
    "cumulated axis": "g (float[N, 6] x, int64 a) => (float[N, 6] y) { y = CumSum(x, a) }",
}
