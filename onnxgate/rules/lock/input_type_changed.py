"""The rule `input-type-changed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_breaking_hit, is_accepted_type, is_same_kind, match_fed_inputs


@rule(ModelChange, "input-type-changed", level=Level.ERROR, since="0.1.0")
def input_type_changed(subject: ModelChange) -> Iterator[Hit]:
    """
    The type of an input has changed since the baseline.

    ## Why it matters
    Callers that pass the old type get the error `Unexpected input data type`. A typical cause is a conversion to
    float16.

    ## What to do
    - Keep the type of the input and cast inside the model (`keep_io_types=True` in float16 converters).
    - To accept the change, run the same check with `--show-ignores`, and add the printed entry to `onnxgate.toml`.
    """
    for pair in match_fed_inputs(subject):
        if not is_accepted_type(pair.before.type, pair.after.type):
            yield create_breaking_hit(
                subject,
                f"input `{pair.after.name}` has type `{pair.after.type}`; "
                f"it was `{pair.before.type}` {subject.baseline}",
                f"export it as `{pair.before.type}`{' and cast inside the model' if is_same_kind(pair) else ''}",
                identity=f"{pair.after.name} {pair.after.type}",
            )
