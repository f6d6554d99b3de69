"""The rule `runtime-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.parity import Comparison
from onnxgate.rules.definition import rule
from onnxgate.rules.parity._mismatches import create_mismatch_hits


@rule(Comparison, "runtime-mismatch", level=Level.ERROR, since="0.1.0")
def runtime_mismatch(subject: Comparison) -> Iterator[Hit]:
    """
    The outputs of a runtime differ from the outputs of the newest required runtime.

    ## Why it matters
    Upgrading the runtime changes results without an error. If the model has a `source`, each runtime is compared with
    the source instead.

    ## What to do
    - Replace the node at which outputs start to differ, or narrow the target to the releases that the finding names.
    - Configure a `source` to find out which release returns the correct outputs.
    - To accept the difference, set the model's `tolerance`.
    """
    yield from create_mismatch_hits(subject, "runtime", f"from {subject.reference}")
