"""The rule `operators-changed`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_note_hit, limit_list


@rule(ModelChange, "operators-changed", level=Level.NOTE, since="0.1.0")
def operators_changed(subject: ModelChange) -> Iterator[Hit]:
    """
    The operators or their counts have changed since the baseline.

    ## Why it matters
    Retraining does not change operators, but a different architecture or exporter does.

    ## What to do
    No action is required if the change is intended. If only the weights should have changed, compare the versions of
    the export packages.
    """
    changes = list(_list_changes(subject.before.operators, subject.after.operators))
    if changes:
        text = ", ".join(limit_list(changes))
        yield create_note_hit(subject, f"operators differ from those {subject.baseline}: {text}")


def _list_changes(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[str]:
    yield from (f"{after[name]} `{name}` added" for name in sorted(after.keys() - before.keys()))
    yield from (f"{before[name]} `{name}` removed" for name in sorted(before.keys() - after.keys()))
    for name in sorted(after.keys() & before.keys()):
        if before[name] != after[name]:
            yield f"{after[name]} `{name}` instead of {before[name]}"
