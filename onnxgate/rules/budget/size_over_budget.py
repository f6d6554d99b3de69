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
    The size of a model, including external data, exceeds `size-mib`.

    ## Why it matters
    App stores, serverless platforms and devices may have a hard size limit.

    ## What to do
    - Quantize the largest weights, or remove duplicate and unused weights.
    - If this size is acceptable, raise `size-mib`.
    """
    if subject.size_bytes > subject.budget_mib * MIB:
        size_mib = math.ceil(subject.size_bytes / MIB * 100) / 100
        yield Hit(
            subject.place,
            f"has a size of {size_mib:g} MiB including external data; its budget is {subject.budget_mib:g} MiB",
            model=subject.model,
            fix="reduce the model's size, or raise `size-mib` in its `budget`",
        )
