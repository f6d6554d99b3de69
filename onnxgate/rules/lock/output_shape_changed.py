"""The rule `output-shape-changed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.evidence.breaks import breaks
from onnxgate.evidence.changes import ModelChange
from onnxgate.evidence.interfaces import fed_pairs, match_outputs
from onnxgate.evidence.narrowing import reshaped, spell, unfixed
from onnxgate.findings import Hit, Level
from onnxgate.rules.registry import rule

NO_SHAPE = "of no known shape"


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
    inputs = fed_pairs(subject)
    for pair in match_outputs(subject).pairs:
        changed = reshaped(pair)
        if changed or unfixed(pair, inputs):
            yield breaks(
                subject,
                f"output `{pair.after.name}` is {spell(pair.after, unknown=NO_SHAPE)}; it was {spell(pair.before)} "
                f"{subject.baseline}",
                f"export it as {spell(pair.before)}",
                level=None if changed else Level.WARNING,
            )
