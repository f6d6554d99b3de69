"""The rule `output-removed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_breaking_hit, match_outputs


@rule(ModelChange, "output-removed", level=Level.ERROR, since="0.1.0")
def output_removed(subject: ModelChange) -> Iterator[Hit]:
    """
    A model has an output no longer that it had at the baseline.

    ## Why it matters
    A caller who asks for it by name gets `Invalid output name`; one who takes outputs by position gets another one in
    its place, and no error.

    ## What to do
    Export with the output. If no caller needs it, accept the break with an `[[ignore]]` that has this content's
    `sha256`.
    """
    for single in match_outputs(subject).removed:
        name = single.value.name
        yield create_breaking_hit(
            subject, f"output `{name}` is gone; it was there {subject.baseline}", f"export with `{name}` as an output"
        )
