"""The rule `dynamic-axis-broken`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime, mask_numbers
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import (
    describe_failure,
    find_broken_sizes,
    find_failing_node,
    find_failing_place,
    format_sizes,
)


@rule(ModelRuns, "dynamic-axis-broken", level=Level.ERROR, since="0.1.0")
def dynamic_axis_broken(subject: ModelRuns) -> Iterator[Hit]:
    """
    A model runs at some sizes of an axis that it calls dynamic, and fails at others.

    ## Why it matters
    The size of the example input is baked into the graph, most often as a constant shape of a `Reshape`. Inputs and
    outputs say that any size is taken; the first batch of another size fails in production.

    ## What to do
    Export with an example whose batch is at least 2, declare the axis in `dynamic_shapes`, and compute shapes from
    tensors (`x.shape[0]`, `-1`) instead of writing numbers. If the axis has a fixed size, do not give it a name.
    """
    for broken in find_broken_sizes(subject):
        node = find_failing_node(broken.attempts)
        at_node = f"; it stops at node `{node}`" if node else ""
        computed = "compute shapes from the input where the node takes its own from"
        yield Hit(
            find_failing_place(subject, node),
            f"does not run at {format_sizes(broken.fails_at)}, runs at {format_sizes(broken.runs_at)}{at_node}",
            model=subject.model,
            node=node,
            fix=f"{computed}, or give {_name_axes(broken.fails_at)} a fixed size",
            on=OnRuntime(subject.runtime, describe_failure(broken.attempts, subject)),
            identity=f"{_name_axes(broken.fails_at)} {mask_numbers(node)}",
        )


def _name_axes(sizes: dict[str, int]) -> str:
    return " and ".join(f"`{axis}`" for axis in sizes)
