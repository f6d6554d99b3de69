"""The rule `domain-added`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._hits import create_breaking_hit, quote_names
from onnxgate.rules.lock._model_content import find_added_domains

STANDARD_DOMAIN = "ai.onnx.ml"
OPTIMIZED_DOMAINS = ("com.microsoft.nchwc", "com.ms.internal.nhwc")
"""Source: ONNX Runtime puts these into models that it saves after optimising them."""


@rule(ModelChange, "domain-added", level=Level.ERROR, since="0.1.0")
def domain_added(subject: ModelChange) -> Iterator[Hit]:
    """
    A model uses operators of a domain that it did not use at the baseline.

    ## Why it matters
    A runtime that knows only ONNX's own operators refuses the model. `com.microsoft` is ONNX Runtime's: other engines,
    and ONNX Runtime's reduced builds, lack it. Any other domain needs a library that registers it. The domains of
    layouts (`com.microsoft.nchwc`) mean that an optimised model was saved, which runs only on machines like this one.

    `ai.onnx.ml` is ONNX's, and a warning: small builds and many engines lack it. A domain that is imported and not
    used breaks nobody, and neither does one of which the file itself defines every function that it uses.

    ## What to do
    Export without these operators: optimise for a machine when the model is loaded, not when it is committed. If every
    deployment has them, accept the break with an `[[ignore]]` that has this content's `sha256`.
    """
    for domain, operators in find_added_domains(subject.before, subject.after).items():
        yield create_breaking_hit(
            subject,
            f"uses {quote_names(operators)} of the domain `{domain}`; it used none of this domain {subject.baseline}",
            _suggest_fix(domain),
            level=Level.WARNING if domain == STANDARD_DOMAIN else None,
        )


def _suggest_fix(domain: str) -> str:
    if domain in OPTIMIZED_DOMAINS:
        return "commit the model as it was before it was optimised"
    if domain == "com.microsoft" or domain == STANDARD_DOMAIN:
        return "export without these operators"
    return "export without these operators, or ship the library that registers them"
