"""The rule `opset-too-new`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.support import ModelOnRuntime
from onnxgate.rules.definition import rule

CONVERSION_HINT = "; `onnxgate fix` converts it where that is proven to compute the same"


@rule(ModelOnRuntime, "opset-too-new", level=Level.ERROR, since="0.1.0")
def opset_too_new(subject: ModelOnRuntime) -> Iterator[Hit]:
    """
    A model imports an opset newer than a locked runtime implements.

    ## Why it matters
    The runtime refuses the model when it is loaded, even if no operator that the newer opset changed is used. What the
    local functions of a model import counts as well, also of a function that nothing calls.

    ## What to do
    Export at the older opset, or raise the target's version in `onnxgate.toml`. `onnxgate fix` converts a model with
    onnx's converter where it can, and writes what is proven to compute the same.
    """
    for domain, version in subject.model.needed_opsets.items():
        newest = subject.runtime.newest_opsets.get(domain)
        if newest is None or version <= newest or domain in subject.experimental_opsets:
            continue
        in_function = " in a local function" if version > subject.model.opsets.get(domain, 0) else ""
        yield Hit(
            subject.place,
            f"imports opset {version} of `{domain}`{in_function}",
            model=subject.model.path,
            on=OnRuntime(
                subject.runtime.name,
                f"implements up to {newest}",
                works_since=subject.opset_works_since.get(domain, ""),
            ),
            fix=_suggest_fix(subject, domain),
        )


def _suggest_fix(subject: ModelOnRuntime, domain: str) -> str:
    since = subject.opset_works_since.get(domain, "")
    export = f"export at opset {subject.common_opsets[domain]}, the newest that all its runtimes implement"
    raised = f", or raise the target to {since}" if since else "; no release implements this one yet"
    convertible = domain == "ai.onnx" and not subject.model.function_opsets
    return f"{export}{raised}{CONVERSION_HINT if convertible else ''}"
