"""The rule `unknown-domain`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.support import RefusedOperation
from onnxgate.rules.definition import rule
from onnxgate.rules.support._refusals import create_refusal_hits


@rule(RefusedOperation, "unknown-domain", level=Level.ERROR, since="0.1.0")
def unknown_domain(subject: RefusedOperation) -> Iterator[Hit]:
    """
    A model uses an operator of a domain that a locked runtime does not know, or that the model does not import.

    ## Why it matters
    The runtime refuses the whole model when it is loaded. Such an operator is a custom one, which a library must
    register, or the domain is misspelled, or belongs to another engine.

    Where the target names `extensions`, this is not predicted: the runtime stage looks whether they register it.

    ## What to do
    Name the package or library that registers the domain in the target's `extensions`, or export without the operator.
    A domain that is used and not imported must be imported.
    """
    yield from create_refusal_hits(
        subject,
        "unknown-domain",
        "name the package that registers it in the target's `extensions`, or export without it",
    )
