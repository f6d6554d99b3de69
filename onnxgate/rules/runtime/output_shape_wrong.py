"""The rule `output-shape-wrong`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, HitReference, Level, OnRuntime, follows_from
from onnxgate.core.text import quote_path
from onnxgate.evidence.runtime import Attempt, ModelRuns, WrongShape, select_worst_attempts
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import describe_level, find_broken_sizes, format_sizes

NAMED_FIX = (
    "compute the shape from the input, or give the output axis a name that no input has (`dim_param` in the file); "
    "then save or export the model again"
)
DECLARATION_FIX = (
    "run `onnxgate fix --rule output-shape-wrong {model}` to correct the declared shape, or declare the output axis as "
    "dynamic and export the model again"
)


@rule(ModelRuns, "output-shape-wrong", level=Level.ERROR, since="0.1.0")
def output_shape_wrong(subject: ModelRuns) -> Iterator[Hit]:
    """
    An output does not have the declared shape.

    ## Why it matters
    Results are wrong for some input sizes, or callers that allocate memory for the declared shape fail. An output axis
    that shares a name with an input axis must have the same size.

    ## What to do
    - Compute shapes from tensors (`x.shape[0]` without `int()`), and declare dynamic input axes in `dynamic_shapes`.
    - Export with an example input of size 2 or more on this axis.
    - If the returned shape is correct, give the output axis a different name.
    - If only a fixed size in the declaration is wrong, run `onnxgate fix --rule output-shape-wrong MODEL`.

    If no node reads the output, a wrong fixed size is a warning: runtimes return the right shape, and at most log the
    difference. So is an axis that has the name of an input axis but another size, unless the model seems to keep this
    axis: it is at the same place in an input with as many axes, or the first axis of both. The first axis is not kept
    if the model counts elements, such as the boxes of a detector, and another axis of the output has a wrong name.
    """
    if select_worst_attempts(subject):
        return
    first: dict[str, tuple[Attempt, WrongShape]] = {}
    for attempt in subject.attempts:
        for wrong in attempt.outputs.wrong_shapes:
            first.setdefault(wrong.output, (attempt, wrong))
    for attempt, wrong in first.values():
        affected = [run for run in subject.attempts if wrong.output in {bad.output for bad in run.outputs.wrong_shapes}]
        at = describe_level(affected, subject)
        case = f"at {format_sizes(attempt.case.sizes)}" if attempt.case.sizes else f"with `{attempt.case.name}`"
        faults = [bad for run in affected for bad in run.outputs.wrong_shapes if bad.output == wrong.output]
        axes = {axis for bad in faults for axis in bad.axes}
        only_declared = all(not bad.axes for bad in faults)
        yield Hit(
            subject.place,
            f"output `{wrong.output}` is declared as {wrong.declared} but has shape {wrong.shape} {case}",
            model=subject.model,
            fix=DECLARATION_FIX.format(model=quote_path(subject.model)) if only_declared else NAMED_FIX,
            level=Level.WARNING if all((not bad.axes or bad.misnamed) and not bad.is_read for bad in faults) else None,
            on=OnRuntime(subject.runtime, f"is affected{at}" if at else ""),
            relations=follows_from(*_list_broken_sizes(subject, axes)),
            identity=wrong.output,
        )


def _list_broken_sizes(subject: ModelRuns, axes: set[str]) -> Iterator[HitReference]:
    """Yield the findings about a size of the axes if the model runs at only one size, as if it were fixed."""
    ran = {tuple(run.case.sizes.get(axis) for axis in axes) for run in subject.attempts if run.outcome == "completed"}
    for broken in find_broken_sizes(subject):
        if axes and axes <= broken.fails_at.keys() and len(ran) == 1:
            yield HitReference("dynamic-axis-broken", broken.topic)
