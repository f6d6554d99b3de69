"""The rule `export-stale`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.core.text import quote_path
from onnxgate.evidence.export import Reexport
from onnxgate.rules.definition import rule

MAX_SHOWN = 3


@rule(Reexport, "export-stale", level=Level.ERROR, since="0.1.0")
def export_stale(subject: Reexport) -> Iterator[Hit]:
    """
    The committed file differs from a new export of its source.

    ## Why it matters
    The deployed model is not the model that the source describes. Names of intermediate values, attributes with default
    values, metadata and the IR version are not compared.

    ## What to do
    - Run `onnxgate export MODEL`, then `onnxgate lock MODEL`.
    - If the committed file is correct, fix the source.
    - If `toolchain-drift` is also reported, export with the locked package versions.
    """
    if not subject.committed.differences:
        return
    shown = "; ".join(subject.committed.differences[:MAX_SHOWN])
    more = len(subject.committed.differences) - MAX_SHOWN
    model = quote_path(subject.model)
    yield Hit(
        subject.place,
        f"differs from the export of `{subject.source}`: {shown}" + (f"; and {more} more" if more > 0 else ""),
        model=subject.model,
        fix=f"run `onnxgate export {model}`, then `onnxgate lock {model}`",
    )
