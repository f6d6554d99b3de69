"""The rule `export-rounding`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.export import Reexport
from onnxgate.rules.definition import rule

MAX_SHOWN = 3


@rule(Reexport, "export-rounding", level=Level.NOTE, since="0.1.0")
def export_rounding(subject: Reexport) -> Iterator[Hit]:
    """
    The committed weights differ from the export only by rounding.

    ## Why it matters
    Exporters fold constants into weights, and machines round the last bits differently. Floats that differ by at most
    4 ULP are treated as equal, so the file is not stale.

    ## What to do
    No action is required. To commit the weights that this machine computes, run `onnxgate export MODEL`.
    """
    if subject.committed.differences or not subject.committed.rounded:
        return
    more = len(subject.committed.rounded) - MAX_SHOWN
    yield Hit(
        subject.place,
        f"differs from the export of `{subject.source}` only by rounding (at most 4 ULP): "
        + ", ".join(subject.committed.rounded[:MAX_SHOWN])
        + (f" and {more} more" if more > 0 else ""),
        model=subject.model,
    )
