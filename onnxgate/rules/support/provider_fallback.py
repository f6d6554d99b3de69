"""The rule `provider-fallback`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.advice import Action, ConfigEdit
from onnxgate.core.findings import Hit, Level, OnRuntime, strip_versions
from onnxgate.evidence.support import ProviderFallback
from onnxgate.rules.definition import rule


@rule(ProviderFallback, "provider-fallback", level=Level.WARNING, since="0.1.0")
def provider_fallback(subject: ProviderFallback) -> Iterator[Hit]:
    """
    A required provider has no kernel for some nodes.

    ## Why it matters
    Another provider runs these nodes, and copying tensors between devices takes time. This rule applies only to ONNX
    Runtime builds that the runtime stage has inspected.

    ## What to do
    - Export with operators and types that the provider supports.
    - If the copying time does not matter, add an `[[ignore]]` entry.
    """
    operators = ", ".join(
        f"{count} x `{name}`" if count > 1 else f"`{name}`" for name, count in sorted(subject.operators.items())
    )
    yield Hit(
        subject.place,
        f"runs {operators} on `{subject.runs_on}` instead of `{subject.provider}`: {subject.nodes.words}",
        model=subject.model,
        node=subject.nodes.name,
        fix=(
            Action(f"export with operators and types that `{subject.provider}` supports"),
            ConfigEdit("accept the finding with an `[[ignore]]` entry if the copying time does not matter"),
        ),
        on=OnRuntime(subject.runtime),
        identity=f"{subject.provider} {subject.runs_on} {strip_versions(' '.join(sorted(subject.operators)))}",
    )
