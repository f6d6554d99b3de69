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
    - Create a session with this provider in the environment of the target, and read the log, which names the missing
      library: `python -c "import onnxruntime; onnxruntime.InferenceSession('MODEL', providers=['PROVIDER'])"`.
    - Install this library. For CUDA, install the CUDA and cuDNN versions that the release requires. onnxgate does not
      call `onnxruntime.preload_dlls()`, so the system must find them, for example through `LD_LIBRARY_PATH`.
    - If the check also runs on machines without the device, set `required = false` for the target.
    """
    if not subject.unused_providers:
        return
    named = join_quoted(subject.unused_providers)
    yield Hit(
        subject.place,
        f"does not run on {named}: the session silently uses other providers",
        model=subject.model,
        fix="install the libraries that the provider needs (`onnxgate explain provider-not-used` shows how to find "
        "out which), or set `required = false` for the target if this machine has no such device",
        on=OnRuntime(subject.runtime),
        identity=" ".join(subject.unused_providers),
    )
