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
    "com.microsoft.FastGelu": """
        <domain: "com.microsoft", opset_import: ["" : 13]> FastGelu (X) => (Y) {
            C = Mul (X, X)
            D = Mul (C, X)
            E = Add (X, D)
            T = Tanh (E)
            H = Mul (X, T)
            Y = Add (H, X)
        }
    """,
    "com.microsoft.QuickGelu": """
        <domain: "com.microsoft", opset_import: ["" : 13]> QuickGelu (X) => (Y) {
            S = Sigmoid (X)
            Y = Mul (X, S)
        }
    """,
}
"""The operators that each body consists of, as far as their types matter: constants and the bias are left out."""
FIRST = {"com.microsoft.QuickGelu": "1.31.0"}
"""The first release that leaves the body expanded: older ones fuse it again, into an operator without a kernel."""
UNKNOWN = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
"""Of ai.onnx before opset 17: they have bodies that depend on the context."""


def has_body(label: str, release: str) -> bool:
    """Whether the release expands the operator."""
    return label in BODIES and version_order(release) >= version_order(FIRST.get(label, "0"))


@functools.cache
def body(label: str) -> FunctionProto:
    """The body of one of `BODIES`."""
    from onnx import parser

    return parser.parse_function(BODIES[label])
