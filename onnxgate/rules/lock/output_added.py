"""The rule `output-added`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, HitReference, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_note_hit, find_shifted_outputs, format_type, match_outputs


@rule(ModelChange, "output-added", level=Level.NOTE, since="0.1.0")
def output_added(subject: ModelChange) -> Iterator[Hit]:
    """
    An output has been added since the baseline.

    ## Why it matters
    Callers that unpack all outputs get one more output than they expect. If the new output precedes existing outputs,
    `io-reordered` is reported instead.

    ## What to do
    No action is required if the change is intended. Otherwise, remove the output, because computing it takes time.
    """
    moved = find_shifted_outputs(subject)
    for single in match_outputs(subject).added:
        before_others = any(single.position < pair.now for pair in moved)
        yield create_note_hit(
            subject,
            f"has new output `{single.value.name}` ({format_type(single.value)}); "
            f"it had no such output {subject.baseline}",
            identity=single.value.name,
            unless=HitReference("io-reordered", "outputs") if before_others else None,
        )
