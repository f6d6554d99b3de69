"""The rule `opset-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.advice import Action, ConfigEdit, Repair
from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelLockComparison
from onnxgate.rules.definition import rule


@rule(ModelLockComparison, "opset-mismatch", level=Level.ERROR, since="0.1.0")
def opset_mismatch(subject: ModelLockComparison) -> Iterator[Hit]:
    """
    A model does not import the opset that `opset` pins.

    ## Why it matters
    An exporter upgrade may change the default opset to a version that is newer than the runtimes support.

    ## What to do
    - Export the model at the pinned opset, or
    - run `onnxgate fix MODEL`, which converts the model and verifies its outputs, or
    - change `opset` in `onnxgate.toml`.
    """
    place = subject.place if subject.entry is not None else subject.opset_place
    for domain, pinned in sorted(subject.pinned_opsets.items()):
        version = subject.facts.opsets.get(domain)
        if version is not None and version != pinned:
            is_convertible = domain == "ai.onnx" and not subject.facts.function_opsets
            yield Hit(
                place,
                f"imports opset {version} of `{domain}`; `{subject.opset_place.path}` pins {pinned}",
                model=subject.facts.path,
                fix=(
                    *([Repair(subject.facts.path, "to convert the model")] if is_convertible else []),
                    Action(f"export the model at opset {pinned}"),
                    ConfigEdit("change `opset`"),
                ),
                identity=f"{domain} {version}",
            )
