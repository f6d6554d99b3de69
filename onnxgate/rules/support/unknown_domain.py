"""The rule `unknown-domain`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.advice import Action, ConfigEdit
from onnxgate.core.findings import Hit, Level
from onnxgate.core.text import join_quoted
from onnxgate.evidence.support import RefusedOperation
from onnxgate.project.engines import has_providers, parse_engine
from onnxgate.rules.definition import rule
from onnxgate.rules.support._refusals import create_refusal_hits


@rule(RefusedOperation, "unknown-domain", level=Level.ERROR, since="0.1.0")
def unknown_domain(subject: RefusedOperation) -> Iterator[Hit]:
    """
    A runtime does not support an operator domain, or the model does not import the domain.

    ## Why it matters
    Loading fails with `acme.ops:FusedGelu(-1) is not a registered function/op`. The domain requires a custom operator
    library, is misspelled, or belongs to another engine.

    ## What to do
    - Add the package or library to the target: `extensions = ["onnxruntime-extensions"]`, or
    - export without the operator, or
    - if only the opset import is missing, add it to the model.
    """
    fix = "add the package that registers the operator to the target's `extensions`"
    if subject.extensions:
        fix = f"add a package that registers the operator next to {join_quoted(subject.extensions)} in `extensions`"
    export = Action("export the model without the operator")
    can_extend = has_providers(parse_engine(subject.runtimes[0]))
    default_fix = (ConfigEdit(fix, essential=True), export) if can_extend else (export,)
    yield from create_refusal_hits(subject, "unknown-domain", default_fix)
