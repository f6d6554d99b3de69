"""The rule `load-failed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.evidence.faults import gravest, node_of, place_of, saying, within_memory
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.findings import Hit, Level
from onnxgate.rules.registry import rule

EXPLAINED_BY = {
    "ir": ("ir-version-too-new",),
    "opset": ("opset-too-new", "opset-experimental"),
    "no_kernel": ("missing-kernel",),
    "no_op": ("unknown-operator", "unknown-domain"),
    "no_import": ("unknown-domain",),
    "deprecated": ("deprecated-operator",),
    "type": ("type-mismatch",),
    "attribute": ("attribute-unsupported",),
    "arity": ("attribute-unsupported",),
    "constructor": ("attribute-unsupported",),
    "ext_policy": ("external-data-refused",),
    "ext_missing": ("external-data-refused",),
}
"""Family of the runtime's text -> the rules that predict it."""

FIXES = {
    "no_kernel": "cast to a type that every runtime implements there, or raise the target's version",
    "no_op": "export with operators that every runtime knows, or raise the target's version",
    "no_import": "import the operator's domain in the model",
    "protobuf": "look at what the file really is: `git lfs pull`, or write it again",
}


@rule(ModelRuns, "load-failed", level=Level.ERROR, since="0.1.0")
def load_failed(subject: ModelRuns) -> Iterator[Hit]:
    """
    A runtime refuses to load a model, and no prediction explains why.

    ## Why it matters
    Whoever uses the model on that release gets an exception in place of a session.

    ## What to do
    The runtime's own words are in the message, with the node and its source line where they name one. They are about
    the first thing only that the runtime does not take. `onnxgate explain --log FILE` translates a longer log.
    """
    attempts = gravest(subject)
    if not attempts or attempts[0].outcome != "load-refused":
        return
    node, family = node_of(attempts), attempts[0].family
    at_node = f": it stops at node `{node}`" if node else ""
    yield Hit(
        place_of(subject, node),
        f"does not load{within_memory(attempts, subject)}{at_node}",
        model=subject.model,
        node=node,
        fix=FIXES.get(family, ""),
        runtime=subject.runtime,
        detail=saying(attempts, subject),
        explained_by=EXPLAINED_BY.get(family, ()),
    )
