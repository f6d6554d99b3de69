"""The rule `input-removed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_breaking_hit, match_inputs, quote_names


@rule(ModelChange, "input-removed", level=Level.ERROR, since="0.1.0")
def input_removed(subject: ModelChange) -> Iterator[Hit]:
    """
    An input has been removed since the baseline.

    ## Why it matters
    Callers that still pass the input get the error `Invalid input name`. Exporters remove inputs that no node uses,
    such as `token_type_ids`. For an input with a default value, this is a warning.

    ## What to do
    - Keep the input, for example with an `Identity` node whose output is unused.
    - To accept the change, run the same check with `--show-ignores`, and add the printed entry to `onnxgate.toml`.
    """
    for single in match_inputs(subject).removed:
        name = single.value.name
        yield create_breaking_hit(
            subject,
            f"no longer has input `{name}`, which it had {subject.baseline}",
            f"export with input `{name}`",
            identity=name,
        )
    remaining = {value.name for value in (*subject.after.inputs, *subject.after.optional_inputs)}
    removed = [value.name for value in subject.before.optional_inputs if value.name not in remaining]
    if removed:
        noun, default = ("input", "a default") if len(removed) == 1 else ("inputs", "defaults")
        yield create_breaking_hit(
            subject,
            f"no longer has {noun} {quote_names(removed)}, which had {default} {subject.baseline}",
            f"export with {quote_names(removed)} as graph {noun}",
            identity=" ".join(removed),
            level=Level.WARNING,
        )
