"""The rule `no-support-data`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.evidence.support import UnpredictedRuntime
from onnxgate.findings import Hit, Level
from onnxgate.rules.registry import rule


@rule(UnpredictedRuntime, "no-support-data", level=Level.NOTE, since="0.1.0")
def no_support_data(subject: UnpredictedRuntime) -> Iterator[Hit]:
    """
    Nothing is predicted for a runtime, because onnxgate has no measured data of that release.

    ## Why it matters
    The static stages say nothing about this runtime: their pass is not a pass there. The runtime stage still loads
    and runs every model on it.

    ## What to do
    Update onnxgate, or run the runtime stage.
    """
    yield Hit(
        subject.place,
        "nothing is predicted",
        runtime=subject.runtime,
        detail=subject.reason,
        fix="update onnxgate, and rely on the runtime stage until then",
    )
