"""Where a mismatch begins, in words that are the same for every runtime, and in this runtime's figures."""

from __future__ import annotations

import math

from onnxgate.evidence.parity import Comparison, FirstDifference
from onnxgate.findings import Place


def said_first(comparison: Comparison) -> str:
    """ "; first at node `x` (MatMul)", "" where it is not known."""
    first = comparison.first
    if first is None:
        return f"; {comparison.at_no_node}" if comparison.at_no_node else ""
    return f"; first at {_node(first)}{f', {first.detail}' if first.detail else ''}"


def _node(first: FirstDifference) -> str:
    return (
        f"node `{first.node}` ({first.operator})" if first.node else f"the {first.operator} that makes `{first.output}`"
    )


def first_figure(comparison: Comparison) -> str:
    """ "; at that node the inputs are equal, and the output `v` is off by 0.3", "" where it is not known."""
    first = comparison.first
    if first is None:
        return ""
    inputs = f"agree to {first.before_share:.1g} of their largest value" if first.before else "are equal"
    output = f"is off by {first.value:.2g}, {first.share:.1g} of its largest value"
    if math.isfinite(first.value) and not math.isfinite(first.share):
        output = f"is off by {first.value:.2g} where the other is 0 throughout"
    elif not math.isfinite(first.share):
        output = "cannot be subtracted from the other"
    return f"; at that node the inputs {inputs}, and the output `{first.output}` {output}"


def first_place(comparison: Comparison) -> Place:
    """The source line that made the node, else the comparison's own place."""
    place = comparison.first.place if comparison.first else None
    return place or comparison.place


def first_node(comparison: Comparison) -> str:
    """The node's name, "" where it is not known."""
    return comparison.first.node if comparison.first else ""
