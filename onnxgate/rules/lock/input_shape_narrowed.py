"""The rule `input-shape-narrowed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.core.text import join_phrases
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import (
    create_breaking_hit,
    find_new_shared_sizes,
    format_shape,
    has_different_rank,
    is_narrowed,
    limit_list,
    match_fed_inputs,
    pair_axes,
)


@rule(ModelChange, "input-shape-narrowed", level=Level.ERROR, since="0.1.0")
def input_shape_narrowed(subject: ModelChange) -> Iterator[Hit]:
    """
    An input of a model no longer accepts shapes that it accepted at the baseline.

    ## Why it matters
    A caller who feeds another batch, length or image size than the one at the export gets `Got invalid dimensions for
    input`. An exporter makes an axis static when it is not told that it is dynamic, or when the code of the model
    specialises it: a sample batch of 1 is the usual cause.

    Narrowed is a dynamic axis that has a fixed size now, a fixed size that is another, another rank, and a shape where
    there was none. Axes that have one name now and had two are narrowed too: ONNX says that they are of one size, and
    runtimes reuse memory by it. Where the file did not name them before, that is a warning. Other names for axes, and
    axes that became dynamic, narrow nothing. What is inside of sequences and optionals is not compared.

    ## What to do
    Export with the axis dynamic: `dynamic_shapes`, or `dynamic_axes` of the older exporter, with a sample of at least
    2. If the callers are changed together with the model, accept the break with an `[[ignore]]` that has this
    content's `sha256`.
    """
    pairs = match_fed_inputs(subject)
    for pair in filter(is_narrowed, pairs):
        fix = f"export it with {format_shape(pair.before)}"
        if not has_different_rank(pair):
            is_fixed = any(isinstance(was, str) and isinstance(now, int) for was, now in pair_axes(pair))
            fix = f"{fix} (`dynamic_shapes`)" if is_fixed else "keep the sizes"
        yield create_breaking_hit(
            subject,
            f"input `{pair.after.name}` takes {format_shape(pair.after)}; "
            f"it took {format_shape(pair.before)} {subject.baseline}",
            fix,
        )
    for axes in find_new_shared_sizes(pairs):
        names = [f"axis {axis} of `{name}`" for name, axis in axes.axes]
        yield create_breaking_hit(
            subject,
            f"{join_phrases(limit_list(names))} are declared to be of one size, `{axes.symbol}`; "
            f"{'they were independent' if axes.were_named else 'nothing was said of that'} {subject.baseline}",
            "give axes that may differ names of their own",
            level=None if axes.were_named else Level.WARNING,
        )
