"""Which releases read external data that do not lie in the model's folder."""

from __future__ import annotations

from onnxgate.model.external import Layout
from onnxgate.support import limits
from onnxgate.support.limits import Limits
from onnxgate.support.spans import span


def takes(known: Limits, layout: Layout) -> bool | None:
    """Whether a release reads data that lie so; None where that was not measured."""
    if layout == "inside":
        return True
    if known.external_data is None:
        return None
    return bool(getattr(known.external_data, layout.replace("-", "_")))


def works(layout: Layout) -> tuple[str, str]:
    """From which measured release on data that lie so are read, and up to which one they were."""
    measured = {
        name: answer for name, row in limits.table().releases.items() if (answer := takes(row, layout)) is not None
    }
    return span(list(measured), list(measured.values()))
