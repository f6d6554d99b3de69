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
    Calling the source changes its state; the exported model does not include this change.

    ## Why it matters
    Exporters omit in-place updates of buffers, so only the first call of the exported model returns correct outputs. If
    calling the source twice returns the same outputs, this is a warning.

    ## What to do
    - Pass the state as an input and return the new state as an output, or
    - do not change the state in `eval()` mode.
    """
    mutated = subject.behaviour.mutated
    if not mutated and not subject.behaviour.remembers:
        return
    shown = [f"`{name}`" for name in mutated[:MAX_SHOWN]]
    if len(mutated) > MAX_SHOWN:
        shown.append(f"{len(mutated) - MAX_SHOWN} more")
    state = f"buffer{'s' if len(mutated) > 1 else ''} {join_phrases(shown)}" if mutated else "the state of the module"
    effect = ", and a second call returns different outputs" if subject.behaviour.remembers else ""
    yield Hit(
        subject.place,
        f"calling `{subject.source}` changes {state}{effect}; the exported model does not include this change",
        model=subject.model,
        fix="pass the state as an input and return the new state as an output, "
        "or do not change the state in `eval()` mode",
        level=None if subject.behaviour.remembers else Level.WARNING,
        identity=" ".join(mutated),
    )
