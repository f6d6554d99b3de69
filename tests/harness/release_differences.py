"""Single-operator models and their observed behavior on each release, run from its own wheel."""

from __future__ import annotations


def node(opset: int, inputs: str, outputs: str, call: str, *, microsoft: bool = False) -> str:
    """Return a model of one node as ONNX text."""
    domain = ', "com.microsoft" : 1' if microsoft else ""
    return f'<ir_version: 8, opset_import: ["" : {opset}{domain}]> g ({inputs}) => ({outputs}) {{ {call} }}'


MUL = node(14, "uint16[N] x", "uint16[N] y", "y = Mul (x, x)")
CONV = node(11, "double[N, 1, L] x, double[1, 1, 3] w", "double[a, b, c] y", "y = Conv (x, w)")
DET = node(11, "float16[N, N] x", "float16 y", "y = Det (x)")
HARD_SWISH = node(14, "float[N] x", "float[N] y", "y = HardSwish (x)")
HARD_SWISH_DOUBLE = node(14, "double[N] x", "double[N] y", "y = HardSwish (x)")
CAST_LIKE = node(15, "float[N] x, double[N] t", "double[N] y", "y = CastLike (x, t)")
NMS = node(11, "float[1, N, 4] b, float[1, 1, N] s", "int64[K, 3] y", "y = NonMaxSuppression (b, s)")
MAT_MUL_N_BITS = node(
    17,
    "float[1, 16] a, uint8[8, 1, 8] b, float[8] s",
    "float[1, 8] y",
    "y = com.microsoft.MatMulNBits <K: int = 16, N: int = 8, bits: int = 4, block_size: int = 16> (a, b, s)",
    microsoft=True,
)
MOE = node(
    17,
    "float[2, 4] x, float[2, 3] r, float[3, 8, 4] f, float[3, 4, 8] h",
    "float[2, 4] y",
    "y = com.microsoft.MoE (x, r, f, , h)",
    microsoft=True,
)
LINEAR_ATTENTION = node(
    17,
    "float[1, 2, 8] q, float[1, 2, 8] k, float[1, 2, 8] v",
    "float[1, 2, 8] y, float[1, 2, 4, 4] s",
    'y, s = com.microsoft.LinearAttention <q_num_heads: int = 2, kv_num_heads: int = 2, update_rule: string = "linear">'
    " (q, k, v)",
    microsoft=True,
)
SHAPE_DYNAMIC = node(19, "float8e4m3fn[N] x", "int64[1] y", "y = Shape (x)")
SHAPE_STATIC = node(19, "float8e4m3fn[2] x", "int64[1] y", "y = Shape (x)")

NAMED = [
    (MUL, "1.20.1", "refused"),
    (MUL, "1.21.1", "loads"),
    (CONV, "1.16.3", "refused"),
    (CONV, "1.31.1", "refused"),
    (DET, "1.16.3", "loads"),
    (DET, "1.31.1", "loads"),
    (HARD_SWISH, "1.16.3", "loads"),
    (HARD_SWISH, "1.31.1", "loads"),
    (HARD_SWISH_DOUBLE, "1.16.3", "refused"),
    (HARD_SWISH_DOUBLE, "1.31.1", "refused"),
    (CAST_LIKE, "1.16.3", "loads"),
    (CAST_LIKE, "1.31.1", "loads"),
    (NMS, "1.16.3", "loads"),
    (NMS, "1.31.1", "loads"),
    (MAT_MUL_N_BITS, "1.16.1", "refused"),
    (MAT_MUL_N_BITS, "1.16.3", "loads"),
    (MOE, "1.23.0", "refused"),
    (MOE, "1.23.1", "loads"),
    (LINEAR_ATTENTION, "1.25.0", "refused"),
    (LINEAR_ATTENTION, "1.25.1", "loads"),
    (SHAPE_DYNAMIC, "1.18.1", "refused"),
    (SHAPE_DYNAMIC, "1.31.1", "refused"),
    (SHAPE_STATIC, "1.18.1", "loads"),
    (SHAPE_STATIC, "1.31.1", "loads"),
]
"""Model, release, observed behavior."""
