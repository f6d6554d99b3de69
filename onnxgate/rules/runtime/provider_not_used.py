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
    A session does not use a required provider.

    ## Why it matters
    The libraries of the provider are missing or have the wrong version. ONNX Runtime only logs this problem and runs
    the model on the slower CPU.

    ## What to do
    - Install the libraries of the provider. For CUDA, install the CUDA and cuDNN versions that the release requires.
    - If the check also runs on machines without the device, set `required = false` for the target.
    """
    if not subject.unused_providers:
        return
    named = join_quoted(subject.unused_providers)
    yield Hit(
        subject.place,
        f"does not run on {named}: the session silently uses other providers",
        model=subject.model,
        fix="install the libraries that the provider needs, or set `required = false` for the target",
        on=OnRuntime(subject.runtime),
        identity=" ".join(subject.unused_providers),
    )
