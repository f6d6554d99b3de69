"""The rule `output-added`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.evidence.breaks import tells
from onnxgate.evidence.changes import ModelChange
from onnxgate.evidence.interfaces import match_outputs
from onnxgate.evidence.narrowing import typed
from onnxgate.evidence.order import outputs_pushed_back
from onnxgate.findings import Claim, Hit, Level
from onnxgate.rules.registry import rule


@rule(ModelChange, "output-added", level=Level.NOTE, since="0.1.0")
def output_added(subject: ModelChange) -> Iterator[Hit]:
    """
    A model has an output that it did not have at the baseline.

    ## Why it matters
    Callers who ask for outputs by name notice nothing; those who unpack all of them get one more. One that stands
    before others moves them: `io-reordered` says that, and says it alone.

    ## What to do
    Nothing, if it is meant. A training output or a hidden state that slipped in costs time at each run: export without
    it.
    """
    moved = outputs_pushed_back(subject)
    for single in match_outputs(subject).added:
        before_others = any(single.position < pair.now for pair in moved)
        yield tells(
            subject,
            f"output `{single.value.name}` ({typed(single.value)}) is new; there was no such output {subject.baseline}",
            f"output {single.value.name}",
            unless=(Claim("io-reordered", "outputs"),) if before_others else (),
        )
