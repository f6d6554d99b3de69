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
    An output has been removed since the baseline.

    ## Why it matters
    Callers that request the output by name get the error `Invalid output name`. Callers that select outputs by position
    silently get a different output.

    ## What to do
    - Export the model with this output.
    - To accept the change, run the same check with `--show-ignores`, and add the printed entry to `onnxgate.toml`.
    """
    for single in match_outputs(subject).removed:
        name = single.value.name
        yield create_breaking_hit(
            subject,
            f"no longer has output `{name}`, which it had {subject.baseline}",
            f"export with output `{name}`",
            identity=name,
        )
