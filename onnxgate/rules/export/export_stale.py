"""The rule `export-stale`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, mask_numbers
from onnxgate.evidence.export import Reexport
from onnxgate.rules.definition import rule

MAX_SHOWN = 3


@rule(Reexport, "export-stale", level=Level.ERROR, since="0.1.0")
def export_stale(subject: Reexport) -> Iterator[Hit]:
    """
    The committed file is not what its source exports now.

    ## Why it matters
    The source was changed, or the file was: what is tested, reviewed and deployed is not what the code says. Graphs are
    compared normalised (names of values, default attributes, metadata and document strings do not count), weights by
    their content. The IR version is no difference: `ir-version-too-new` and `ir-version-mismatch` judge that.

    ## What to do
    Export the model again and lock it: `onnxgate export MODEL`, then `onnxgate lock MODEL`. If the file is the one that
    is right, correct the source. If only the toolchain changed, `toolchain-drift` says so: export with the locked one.
    """
    if not subject.committed.differences:
        return
    shown = "; ".join(subject.committed.differences[:MAX_SHOWN])
    more = len(subject.committed.differences) - MAX_SHOWN
    yield Hit(
        subject.place,
        f"the committed file is not what `{subject.source}` exports: {shown}"
        + (f"; and {more} more" if more > 0 else ""),
        model=subject.model,
        fix=f"run `onnxgate export {subject.model}`, then `onnxgate lock {subject.model}`",
        identity=mask_numbers(shown),
    )
