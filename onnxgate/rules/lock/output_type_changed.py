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
    The type of an output has changed since the baseline.

    ## Why it matters
    Callers in C, C++ and C# may interpret the bytes as the old type. If a tensor becomes a list of dictionaries
    (`ZipMap` of scikit-learn converters), every caller breaks.

    ## What to do
    - Keep the type: `keep_io_types=True` in float16 converters, `zipmap=False` in the scikit-learn converter.
    - To accept the change, run the same check with `--show-ignores`, and add the printed entry to `onnxgate.toml`.
    """
    for pair in match_outputs(subject).pairs:
        if not is_accepted_type(pair.after.type, pair.before.type):
            fix = f"export it as `{pair.before.type}`{' and cast at the end' if is_same_kind(pair) else ''}"
            if "map(" in pair.after.type:
                fix = f"export it as `{pair.before.type}` (`zipmap=False` in the scikit-learn converter)"
            yield create_breaking_hit(
                subject,
                f"output `{pair.after.name}` has type `{pair.after.type}`; "
                f"it was `{pair.before.type}` {subject.baseline}",
                fix,
                identity=f"{pair.after.name} {pair.after.type}",
            )
