"""Function bodies of operators that ONNX Runtime adds to ONNX; no interface of it shows them.

Source: what they compute is in the operators' documentation; that they are expanded for types without a kernel was
measured by loading one node with tensor(double) on ONNX Runtime 1.16 to 1.31.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from onnxgate.findings import version_order

if TYPE_CHECKING:
    from onnx import FunctionProto

BODIES = {
    "LayerNormalization(1)": """
        <domain: "ai.onnx", opset_import: ["" : 13]> LayerNormalization <to> (X, Scale) => (Y) {
            Dims = Shape (X)
            Rank = Size (Dims)
            Axis = Neg (Rank)
            XU = Cast <to: int = 1> (X)
            Mean = ReduceMean (XU)
            Off = Sub (XU, Mean)
            Square = Mul (Off, Off)
            Deviation = Sqrt (Square)
            Normal = Div (Off, Deviation)
            Typed = Cast <to: int = @to> (Normal)
            Y = Mul (Typed, Scale)
        }
    """,
    "com.microsoft.FastGelu(1)": """
        <domain: "com.microsoft", opset_import: ["" : 13]> FastGelu (X) => (Y) {
            C = Mul (X, X)
            D = Mul (C, X)
            E = Add (X, D)
            T = Tanh (E)
            H = Mul (X, T)
            Y = Add (H, X)
        }
    """,
    "com.microsoft.QuickGelu(1)": """
        <domain: "com.microsoft", opset_import: ["" : 13]> QuickGelu (X) => (Y) {
            S = Sigmoid (X)
            Y = Mul (X, S)
        }
    """,
}
"""The operators that each body consists of, as far as their types matter: constants and biases are left out.

An attribute `to` is the element type of the second input, which results are cast to.
"""
FIRST = {"com.microsoft.QuickGelu(1)": "1.31.0"}
"""The first release that leaves the body expanded: older ones fuse it again, into an operator without a kernel."""


def has_body(name: str, release: str) -> bool:
    """Whether the release expands the operator."""
    return name in BODIES and version_order(release) >= version_order(FIRST.get(name, "0"))


@functools.cache
def body(name: str) -> FunctionProto:
    """The body of one of `BODIES`."""
    from onnx import parser

    return parser.parse_function(BODIES[name])
