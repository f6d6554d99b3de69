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
    A model fails for some sizes of a dynamic axis.

    ## Why it matters
    Usually, the size of the example input is hard-coded in the graph, often in a `Reshape`.

    ## What to do
    - Declare the axis in `dynamic_shapes`, and export with an example input of size 2 or more on this axis.
    - Compute shapes from tensors (`x.shape[0]`, `-1`) instead of constants.
    - If the size should be fixed, do not declare the axis as dynamic.
    """
    for broken in find_broken_sizes(subject):
        node = find_failing_node(broken.attempts)
        at_node = f" (node `{node}`)" if node else ""
        yield Hit(
            find_failing_place(subject, node),
            f"runs at {format_sizes(broken.runs_at)} but fails at {format_sizes(broken.fails_at)}{at_node}",
            model=subject.model,
            node=node,
            fix="compute shapes from the inputs (`x.shape[0]`, `-1`), "
            f"or give {_name_axes(broken.fails_at)} a fixed size",
            on=OnRuntime(subject.runtime, describe_failure(broken.attempts, subject)),
            topic=broken.topic,
            identity=f"{broken.topic} {mask_numbers(node)}",
        )


def _name_axes(sizes: dict[str, int]) -> str:
    return " and ".join(f"`{axis}`" for axis in sizes)
