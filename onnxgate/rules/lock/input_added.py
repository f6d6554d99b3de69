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
    A model requires an input that it did not require at the baseline.

    ## Why it matters
    Existing callers get `Required inputs ([…]) are missing from input feed`. A new input appears when a constant
    becomes an argument, or when an optional argument of `forward` is passed during the export.

    ## What to do
    - Export without the new argument, or give the input a default: an initializer of the same name.
    - If callers change together with the model, accept the finding: `onnxgate check --show-ignores` prints the
      `[[ignore]]` entry to paste.
    """
    had_default = {value.name for value in subject.before.optional_inputs}
    inputs = {value.name for value in subject.after.inputs}
    for single in match_inputs(subject).added:
        yield create_breaking_hit(
            subject,
            f"requires input `{single.value.name}` ({format_type(single.value)}); it had no such input "
            f"{subject.baseline}",
            f"export without `{single.value.name}`, or give it a default",
            identity=single.value.name,
        )
    for name in sorted(had_default & inputs):
        yield create_breaking_hit(
            subject,
            f"requires input `{name}`; it had a default {subject.baseline}",
            f"keep the initializer `{name}`",
            identity=name,
        )
