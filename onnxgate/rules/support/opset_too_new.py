"""The rule `opset-too-new`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.advice import Action, Advice, Repair
from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.support import ModelOnRuntime
from onnxgate.rules.definition import rule


@rule(ModelOnRuntime, "opset-too-new", level=Level.ERROR, since="0.1.0")
def opset_too_new(subject: ModelOnRuntime) -> Iterator[Hit]:
    """
    A runtime does not support an imported opset.

    ## Why it matters
    Loading fails with `Opset 28 is under development and support for this is limited`, even if no operator requires the
    newer opset.

    ## What to do
    - Run `onnxgate fix MODEL`, which converts the model and verifies its outputs, or
    - export at an older opset, or
    - raise the target's `runtime`, and run `onnxgate lock`.
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
                f"supports up to {newest}",
                works_since=subject.opset_works_since.get(domain, ""),
            ),
            fix=_suggest_fix(subject, domain),
            identity=f"{domain} {version}",
        )


def _suggest_fix(subject: ModelOnRuntime, domain: str) -> Advice:
    convertible = domain == "ai.onnx" and subject.is_convertible and not subject.model.function_opsets
    convert = (Repair(subject.model.path, "to convert the model"),) if convertible else ()
    of_domain = "" if domain == "ai.onnx" else f" of `{domain}`"
    export = f"export at opset {subject.common_opsets[domain]}{of_domain}, the newest that {subject.required}"
    return *convert, Action(export)
