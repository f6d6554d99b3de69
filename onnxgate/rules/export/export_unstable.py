"""The rule `export-unstable`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.export import Reexport
from onnxgate.rules.definition import rule

MAX_SHOWN = 3


@rule(Reexport, "export-unstable", level=Level.ERROR, since="0.1.0")
def export_unstable(subject: Reexport) -> Iterator[Hit]:
    """
    Exporting the same source twice produces two different models.

    ## Why it matters
    The committed file cannot be reproduced. The second export runs with different seeds and in a different folder.
    Names of values, metadata and rounding differences are ignored.

    ## What to do
    - Load trained weights, or set the random seed in the source.
    - Sort the items of a `set` and the result of `os.listdir`.
    - Do not write timestamps or paths into the model.
    """
    if subject.second.differences:
        shown = "; ".join(subject.second.differences[:MAX_SHOWN])
        more = len(subject.second.differences) - MAX_SHOWN
        text = f"exporting `{subject.source}` twice produces two different models: {shown}"
        text += f"; and {more} more" if more > 0 else ""
    elif subject.second.failure:
        text = f"exporting `{subject.source}` a second time failed: "
        text += subject.second.failure.summary
    else:
        return
    yield Hit(
        subject.place,
        text,
        model=subject.model,
        fix="load trained weights or set the random seed in the source, and sort sets and directory listings",
        identity="" if subject.second.differences else "failure",
    )
