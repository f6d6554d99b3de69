"""The rule `provider-not-used`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.core.text import join_quoted
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.rules.definition import rule


@rule(ModelRuns, "provider-not-used", level=Level.ERROR, since="0.1.0")
def provider_not_used(subject: ModelRuns) -> Iterator[Hit]:
    """
    A target asks for a provider, and the session silently runs on another one.

    A build that does not have the provider at all is no finding: nothing can be decided with it. What is held to
    `providers` is the session as a whole; that single nodes are left to the processor is what `provider-fallback`
    predicts, where a build's kernels are known.

    ## Why it matters
    The provider is in the build and cannot start: its libraries are missing, or are of another version. ONNX Runtime
    prints that, runs everything on the processor, and reports success. The service works, ten times slower.

    ## What to do
    Install the libraries that this build's provider needs (for CUDA: the versions of CUDA and cuDNN that its release
    names). Set `required = false` for a target that need not run on every machine: there it is skipped, visibly.
    """
    if not subject.unused_providers:
        return
    named = join_quoted(subject.unused_providers)
    yield Hit(
        subject.place,
        f"is not run by {named}: the session silently takes other providers",
        model=subject.model,
        fix="install the libraries that the provider needs, or set `required = false` for the target",
        on=OnRuntime(subject.runtime),
    )
