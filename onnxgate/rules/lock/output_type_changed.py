"""The rule `output-type-changed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_breaking_hit, is_accepted_type, is_same_kind, match_outputs


@rule(ModelChange, "output-type-changed", level=Level.ERROR, since="0.1.0")
def output_type_changed(subject: ModelChange) -> Iterator[Hit]:
    """
    An output of a model has another type than at the baseline.

    ## Why it matters
    C, C++ and C# callers read the bytes as the type that they were written for, and get garbage; Python callers
    compute with another precision. A list of maps instead of a tensor (`ZipMap` of the scikit-learn converter) breaks
    every caller.

    An output that was `optional` and always is there now is no break.

    ## What to do
    Keep the type of the interface and cast inside (`keep_io_types=True` of the float16 converters, `zipmap=False`). If
    the callers are changed together with the model, accept the break with an `[[ignore]]` that has this content's
    `sha256`.
    """
    for pair in match_outputs(subject).pairs:
        if not is_accepted_type(pair.after.type, pair.before.type):
            fix = f"export `{pair.before.type}`{' and cast to it at the end' if is_same_kind(pair) else ''}"
            if "map(" in pair.after.type:
                fix = f"export `{pair.before.type}` (`zipmap=False` of the scikit-learn converter)"
            yield create_breaking_hit(
                subject,
                f"output `{pair.after.name}` is `{pair.after.type}`; it was `{pair.before.type}` {subject.baseline}",
                fix,
            )
