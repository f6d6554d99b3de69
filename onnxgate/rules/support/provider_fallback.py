"""The rule `provider-fallback`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime, strip_versions
from onnxgate.evidence.support import ProviderFallback
from onnxgate.rules.definition import rule


@rule(ProviderFallback, "provider-fallback", level=Level.WARNING, since="0.1.0")
def provider_fallback(subject: ProviderFallback) -> Iterator[Hit]:
    """
    A provider that a target asks for has no kernel for some of a model's nodes, and another provider runs them.

    ## Why it matters
    The model loads and computes, and says nothing. At each such node the values are copied to another device and back,
    which may cost more than the accelerator gains.

    It is judged where the kernels of that provider are known: for a build that was asked itself.

    ## What to do
    Export the named operators as others, or with types that the provider implements. Where the copies do not matter,
    ignore the finding with that reason.
    """
    operators = ", ".join(
        f"{count} x `{name}`" if count > 1 else f"`{name}`" for name, count in sorted(subject.operators.items())
    )
    yield Hit(
        subject.place,
        f"leaves `{subject.provider}` for `{subject.runs_on}` at {operators}: {subject.nodes.words}",
        model=subject.model,
        node=subject.nodes.name,
        fix=f"export them as operators and types that `{subject.provider}` implements",
        on=OnRuntime(subject.runtime),
        identity=f"{subject.provider} {subject.runs_on} {strip_versions(' '.join(sorted(subject.operators)))}",
    )
