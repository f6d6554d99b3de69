"""The rule `export-drops-mutation`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.core.text import join_phrases
from onnxgate.evidence.export import Reexport
from onnxgate.rules.definition import rule

MAX_SHOWN = 3


@rule(Reexport, "export-drops-mutation", level=Level.ERROR, since="0.1.0")
def export_drops_mutation(subject: Reexport) -> Iterator[Hit]:
    """
    The source changes its own state when it is called, and an export has none.

    ## Why it matters
    A buffer that is updated in place, a counter, a cache: the exporter leaves the update out and reports success. The
    first call of the model gives what the source gives, each later one does not. Where a second call of the source with
    the same inputs gives the same outputs all the same, the state is only kept: that is a warning.

    ## What to do
    Give the state as an input and return the new one as an output, or do not change it in `eval()`.
    """
    mutated = subject.behaviour.mutated
    if not mutated and not subject.behaviour.remembers:
        return
    names = join_phrases([f"`{name}`" for name in mutated[:MAX_SHOWN]])
    what = f"buffer{'s' if len(mutated) > 1 else ''} {names}" if mutated else "what the module holds"
    if len(mutated) > MAX_SHOWN:
        what += f" and {len(mutated) - MAX_SHOWN} more"
    effect = ", and a second call gives other outputs" if subject.behaviour.remembers else ""
    yield Hit(
        subject.place,
        f"a call of `{subject.source}` changes {what}{effect}; the export drops the change",
        model=subject.model,
        fix="take the state as an input and return the new one, or leave it as it is in `eval()`",
        level=None if subject.behaviour.remembers else Level.WARNING,
        identity=" ".join(mutated),
    )
