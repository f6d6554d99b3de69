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
    A required input has been added since the baseline.

    ## Why it matters
    Existing callers get the error `Required inputs ([…]) are missing from input feed`. A typical cause is a constant
    that became an argument of `forward`.

    ## What to do
    - Export without the argument, or store a default value in an initializer with the name of the input.
    - To accept the change, run the same check with `--show-ignores`, and add the printed entry to `onnxgate.toml`.
    """
    had_default = {value.name for value in subject.before.optional_inputs}
    inputs = {value.name for value in subject.after.inputs}
    for single in match_inputs(subject).added:
        yield create_breaking_hit(
            subject,
            f"requires input `{single.value.name}` ({format_type(single.value)}); it had no such input "
            f"{subject.baseline}",
            f"export without `{single.value.name}`, or give this input a default value",
            identity=single.value.name,
        )
    for name in sorted(had_default & inputs):
        yield create_breaking_hit(
            subject,
            f"requires input `{name}`, which had a default value {subject.baseline}",
            f"keep the initializer `{name}`",
            identity=name,
        )
