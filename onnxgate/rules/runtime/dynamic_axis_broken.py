"""The rule `dynamic-axis-broken`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime, mask_numbers
from onnxgate.core.text import join_phrases
from onnxgate.evidence.runtime import ModelRuns, has_refused_sizes, select_worst_attempts
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import (
    describe_failure,
    find_broken_sizes,
    find_failing_node,
    find_failing_place,
    format_sizes,
    suggest_sizes,
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

    If the sizes were guessed, this is a warning: onnxgate found one size at which the model runs, and the model rejects
    all other sizes that were tried. To accept that, configure the size: `sizes = { height = [224] }`.
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
    yield from _find_single_sizes(subject)


def _find_single_sizes(subject: ModelRuns) -> Iterator[Hit]:
    """Yield a hit for axes of which a search found only one valid size."""
    if select_worst_attempts(subject):
        return
    attempts = [attempt for attempt in subject.attempts if has_refused_sizes(attempt, subject)]
    good = next((attempt for attempt in subject.attempts if attempt.outcome == "completed"), None)
    if not attempts or good is None:
        return
    axes = attempts[0].case.refused
    fails_at, runs_at = ({axis: case.sizes[axis] for axis in axes} for case in (attempts[0].case, good.case))
    node = find_failing_node(attempts)
    at_node = f" (node `{node}`)" if node else ""
    yield Hit(
        find_failing_place(subject, node),
        f"runs at {format_sizes(runs_at)} but fails at all other tested sizes of {_name_axes(runs_at)}, such as "
        f"{format_sizes(fails_at)}{at_node}",
        model=subject.model,
        node=node,
        fix=f"export the model with {'a fixed size' if len(axes) == 1 else 'fixed sizes'}, or compute shapes from the "
        f"inputs (`x.shape[0]`, `-1`); to accept it, {suggest_sizes(runs_at)}",
        on=OnRuntime(subject.runtime, describe_failure(attempts, subject)),
        level=Level.WARNING,
        identity=f"single size {' '.join(axes)}",
    )


def _name_axes(sizes: dict[str, int]) -> str:
    return join_phrases([f"`{axis}`" for axis in sizes])
