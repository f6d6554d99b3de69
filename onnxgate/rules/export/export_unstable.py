"""The rule `export-unstable`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, mask_numbers
from onnxgate.evidence.export import Reexport
from onnxgate.rules.definition import rule

MAX_SHOWN = 3


@rule(Reexport, "export-unstable", level=Level.ERROR, since="0.1.0")
def export_unstable(subject: Reexport) -> Iterator[Hit]:
    """
    Exporting the same source twice gives two models.

    ## Why it matters
    Nobody can tell whether the committed file is what the source says: it is the result of one run. Every model is
    exported a second time, with other seeds (`PYTHONHASHSEED`, and the generators of Python, NumPy and the framework)
    and from another folder. Names of values, metadata and rounding do not count.

    ## What to do
    Load weights instead of drawing them, or seed the generator in the source itself; sort what comes from a `set` or
    from `os.listdir`; leave clocks and paths out of what is exported.
    """
    if subject.second.differences:
        shown = "; ".join(subject.second.differences[:MAX_SHOWN])
        more = len(subject.second.differences) - MAX_SHOWN
        text = f"exporting `{subject.source}` twice gives two models: {shown}"
        text += f"; and {more} more" if more > 0 else ""
    elif subject.second.failure:
        text = f"`{subject.source}` is exported once, and fails when that is repeated: "
        text += f"{subject.second.failure.type}: {subject.second.failure.text}"
    else:
        return
    yield Hit(
        subject.place,
        text,
        model=subject.model,
        fix="load weights or seed the generator in the source, and sort what comes from sets and folders",
        identity=mask_numbers(text.partition(": ")[0]),
    )
