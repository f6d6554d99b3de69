"""The rule `input-type-changed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.evidence.breaks import breaks
from onnxgate.evidence.changes import ModelChange
from onnxgate.evidence.interfaces import fed_pairs
from onnxgate.evidence.narrowing import same_kind, widened
from onnxgate.findings import Hit, Level
from onnxgate.rules.registry import rule


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
    for pair in fed_pairs(subject):
        if not widened(pair.before.type, pair.after.type):
            yield breaks(
                subject,
                f"input `{pair.after.name}` takes `{pair.after.type}`; it took `{pair.before.type}` {subject.baseline}",
                f"take `{pair.before.type}`{' and cast it inside' if same_kind(pair) else ''}",
            )
