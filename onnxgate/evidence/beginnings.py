"""Where a mismatch begins, in words that are the same for every runtime, and in this runtime's figures."""

from __future__ import annotations

import math

from onnxgate.evidence.parity import Comparison, FirstDifference
from onnxgate.findings import Place


def said_first(comparison: Comparison) -> str:
    """ "; first at node `x` (MatMul)", "" where it is not known."""
    first = comparison.first
    if first is None:
        return ""
    return f"; first at {_node(first)}{f', {first.detail}' if first.detail else ''}"


def _node(first: FirstDifference) -> str:
    return (
        f"node `{first.node}` ({first.operator})" if first.node else f"the {first.operator} that makes `{first.output}`"
    )


def first_figure(comparison: Comparison) -> str:
    """ "; at that node the inputs differ by 1e-07 and the output by 0.3", "" where it is not known."""
    first = comparison.first
    if first is None:
        return ""
    inputs = f"its inputs agree to {first.before:.1g}" if first.before else "its inputs are equal"
    output = f"its output `{first.output}` is off by {first.value:.2g}"
    if not math.isfinite(first.value):
        output = f"its output `{first.output}` is no such number, or of another shape"
    return f"; at that node {inputs} and {output}"


def first_place(comparison: Comparison) -> Place:
    """The source line that made the node, else the comparison's own place."""
    place = comparison.first.place if comparison.first else None
    return place or comparison.place


def first_node(comparison: Comparison) -> str:
    """The node's name, "" where it is not known."""
    return comparison.first.node if comparison.first else ""
