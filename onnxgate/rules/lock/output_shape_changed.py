"""The rule `output-shape-changed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import (
    create_breaking_hit,
    format_shape,
    has_lost_size,
    is_reshaped,
    match_fed_inputs,
    match_outputs,
)

UNKNOWN_SHAPE = "of no known shape"


@rule(ModelChange, "output-shape-changed", level=Level.ERROR, since="0.1.0")
def output_shape_changed(subject: ModelChange) -> Iterator[Hit]:
    """
    An output of a model has another rank or size than at the baseline, or a size is no longer said.

    ## Why it matters
    Callers index axes, split channels and count classes. Another rank or another fixed size breaks them, or worse,
    does not. A size that was fixed and is dynamic is a warning: callers who allocate what the model declares no longer
    know how much.

    No change is a size that follows an input's and is the same for whoever feeds what they fed, another name of an
    axis, and a dynamic size that is fixed now: what is given was always allowed.

    ## What to do
    Export with the old shape: keep the axis that was squeezed, tell the exporter the static size. If the callers are
    changed together with the model, accept the break with an `[[ignore]]` that has this content's `sha256`.
    """
    inputs = match_fed_inputs(subject)
    for pair in match_outputs(subject).pairs:
        changed = is_reshaped(pair)
        if changed or has_lost_size(pair, inputs):
            yield create_breaking_hit(
                subject,
                f"output `{pair.after.name}` is {format_shape(pair.after, unknown=UNKNOWN_SHAPE)}; "
                f"it was {format_shape(pair.before)} {subject.baseline}",
                f"export it as {format_shape(pair.before)}",
                level=None if changed else Level.WARNING,
            )
