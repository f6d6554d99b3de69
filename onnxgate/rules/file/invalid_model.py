"""The rule `invalid-model`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, follows_from, mask_numbers
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule

RULES_BY_SUBJECT = {
    "operator": ("unknown-operator",),
    "domain": ("unknown-domain",),
    "deprecated": ("deprecated-operator",),
    "attribute": ("attribute-unsupported",),
    "arguments": ("attribute-unsupported",),
    "type": ("type-mismatch",),
}
"""What it is about -> the rules of the support stage that say it of each release, with all such nodes and ways out."""

_FIXES = {
    "output shape": "run `onnxgate fix`: it fills in what shape inference proves; or export the model with it",
    "input shape": "say it: export the model with the input's rank, with names for the axes that are dynamic",
}


@rule(ModelFile, "invalid-model", level=Level.ERROR, since="0.1.0")
def invalid_model(subject: ModelFile) -> Iterator[Hit]:
    """
    A model breaks the rules of ONNX itself.

    `onnx.checker` with full shape inference is the judge, and beside it what every runtime refuses and the checker
    does not look at: two nodes of one name, data of another size than shape and type need. A model that is newer than
    the installed `onnx` package is not held to that package's rules.

    Where the support stage finds that a locked runtime refuses the model for the same (an operator that the opset does
    not have, an attribute, a type), its finding stands in the place of this one: it knows the releases.

    ## Why it matters
    No runtime promises to load such a model, and those that do may read it differently. Where every release that we
    know of loads it all the same (a declared shape that is not the inferred one, an input without a rank), this is a
    warning.

    ## What to do
    Look at the node that is named. The usual causes are an exporter that wrote a lower opset than its operators
    belong to, and a model that was edited or converted by hand. Export again at the opset that the exporter supports
    best, and look at its warnings. `onnxgate fix` fills in types and shapes that are missing, where inference proves
    them.
    """
    fault = subject.graph.invalid
    if fault is None:
        return
    named = f"node `{fault.node}`: " if fault.node else ""
    yield Hit(
        subject.graph.place or subject.place,
        f"is not valid ONNX: {named}{fault.message}",
        model=subject.path,
        node=fault.node,
        fix=_FIXES.get(fault.about, "export the model again; if the exporter wrote this, ask it for another opset"),
        level=Level.WARNING if fault.harmless else None,
        relations=follows_from(*RULES_BY_SUBJECT.get(fault.about, ())),
        identity=fault.about if fault.about in RULES_BY_SUBJECT else mask_numbers(fault.message),
    )
