"""The rule `opset-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelLockComparison
from onnxgate.rules.definition import rule


@rule(ModelLockComparison, "opset-mismatch", level=Level.ERROR, since="0.1.0")
def opset_mismatch(subject: ModelLockComparison) -> Iterator[Hit]:
    """
    A model imports another opset version than `opset` in `onnxgate.toml` pins.

    ## Why it matters
    Exporters choose an opset of their own when they are not told, and another one after an upgrade. A pinned opset
    keeps the models of a project alike, and within what its runtimes implement.

    ## What to do
    Export the model at the pinned opset, or change the pin. A pinned domain that a model does not import is no
    mismatch. `onnxgate fix` converts it with onnx's converter, and writes what is proven to compute the same.
    """
    place = subject.place if subject.entry is not None else subject.opset_place
    for domain, pinned in sorted(subject.pinned_opsets.items()):
        version = subject.facts.opsets.get(domain)
        if version is not None and version != pinned:
            yield Hit(
                place,
                f"imports opset {version} of `{domain}`; `{subject.opset_place.path}` pins {pinned}",
                model=subject.facts.path,
                fix=f"export it at opset {pinned}, or change the pin",
            )
