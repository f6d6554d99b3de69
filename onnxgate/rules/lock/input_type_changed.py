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
    An input of a model has another type than at the baseline.

    ## Why it matters
    Runtimes cast nothing that is fed: an array of the old type gives `Unexpected input data type`. Converting a model
    to float16 does it, or an exporter that was shown `int32` where it was `int64`.

    An `optional` of the same type is no break: it takes what the input took.

    ## What to do
    Keep the type of the interface and cast inside (`keep_io_types=True` of the float16 converters). If the callers are
    changed together with the model, accept the break with an `[[ignore]]` that has this content's `sha256`.
    """
    for pair in match_fed_inputs(subject):
        if not is_accepted_type(pair.before.type, pair.after.type):
            yield create_breaking_hit(
                subject,
                f"input `{pair.after.name}` takes `{pair.after.type}`; it took `{pair.before.type}` {subject.baseline}",
                f"take `{pair.before.type}`{' and cast it inside' if is_same_kind(pair) else ''}",
            )
