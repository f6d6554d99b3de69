"""The rule `size-over-budget`."""

from __future__ import annotations

import math
from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.policy import ModelSize
from onnxgate.rules.definition import rule

MIB = 2**20


@rule(ModelSize, "size-over-budget", level=Level.ERROR, since="0.1.0")
def size_over_budget(subject: ModelSize) -> Iterator[Hit]:
    """
    A model's file and its external data take more than `size-mib` of its `budget`.

    ## Why it matters
    Whoever set the budget has a limit in mind: an app's download, a function's package, a device's flash.

    ## What to do
    Look which weights take most; quantize them, keep them once, or drop what is not used. If the model may be that
    large, raise `size-mib`.
    """
    if subject.size_bytes > subject.budget_mib * MIB:
        size_mib = math.ceil(subject.size_bytes / MIB * 100) / 100
        yield Hit(
            subject.place,
            f"takes {size_mib:g} MiB with its external data; its budget is {subject.budget_mib:g} MiB",
            model=subject.model,
            fix="make it smaller, or raise `size-mib` in its `budget`",
            identity="size",
        )
