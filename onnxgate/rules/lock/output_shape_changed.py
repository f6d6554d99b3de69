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

UNKNOWN_SHAPE = "unknown"


@rule(ModelChange, "output-shape-changed", level=Level.ERROR, since="0.1.0")
def output_shape_changed(subject: ModelChange) -> Iterator[Hit]:
    """
    The shape of an output has changed since the baseline.

    ## Why it matters
    Callers that depend on the shape, for example on the number of classes, fail or return wrong results. If a fixed
    size has become dynamic, this is a warning.

    ## What to do
    - Export the output with its old shape: keep the axis, or declare a fixed size.
    - To accept the change, run the same check with `--show-ignores`, and add the printed entry to `onnxgate.toml`.
    """
    inputs = match_fed_inputs(subject)
    for pair in match_outputs(subject).pairs:
        changed = is_reshaped(pair)
        if changed or has_lost_size(pair, inputs):
            yield create_breaking_hit(
                subject,
                f"output `{pair.after.name}` has shape {format_shape(pair.after, unknown=UNKNOWN_SHAPE)}; "
                f"it was {format_shape(pair.before)} {subject.baseline}",
                f"export it with shape {format_shape(pair.before)}",
                identity=pair.after.name,
                level=None if changed else Level.WARNING,
            )
