"""The rule `input-added`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_breaking_hit, format_type, match_inputs


@rule(ModelChange, "input-added", level=Level.ERROR, since="0.1.0")
def input_added(subject: ModelChange) -> Iterator[Hit]:
    """
    A model asks for an input that it did not ask for at the baseline.

    ## Why it matters
    A caller who feeds what the model took yesterday gets `Required inputs ([…]) are missing from input feed`: every
    graph input must be fed, except one that an initializer gives a default. An exporter adds one when a constant
    becomes an argument, or when an optional argument of `forward` is given at the export.

    ## What to do
    Export without the new argument, or give the input a default: an initializer of the same name. If the callers are
    changed together with the model, accept the break with an `[[ignore]]` that has this content's `sha256`: it ends
    with the next change of the model.
    """
    had_default = {value.name for value in subject.before.optional_inputs}
    inputs = {value.name for value in subject.after.inputs}
    for single in match_inputs(subject).added:
        yield create_breaking_hit(
            subject,
            f"input `{single.value.name}` ({format_type(single.value)}) must be fed; there was no such input "
            f"{subject.baseline}",
            f"export without `{single.value.name}`, or give it a default",
        )
    for name in sorted(had_default & inputs):
        yield create_breaking_hit(
            subject,
            f"input `{name}` must be fed; it had a default {subject.baseline}",
            f"keep the initializer `{name}`",
        )
