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
    Weights of the committed file differ from those of the export by rounding alone.

    ## Why it matters
    An exporter folds weights into each other (a batch normalisation into the convolution before it), and another
    machine may round the last bits otherwise. Floats that lie at most 4 representable numbers apart are taken for the
    same: the file is not stale. Its bytes are not those that this machine writes, which is why it is said.

    ## What to do
    Nothing. To have the bytes of one machine, export the model there: `onnxgate export MODEL`.
    """
    if subject.committed.differences or not subject.committed.rounded:
        return
    more = len(subject.committed.rounded) - MAX_SHOWN
    yield Hit(
        subject.place,
        f"the committed file is what `{subject.source}` exports but for rounding of at most 4 ULP: "
        + ", ".join(subject.committed.rounded[:MAX_SHOWN])
        + (f" and {more} more" if more > 0 else ""),
        model=subject.model,
        identity="rounding",
    )
