"""The rule `opset-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelLockComparison
from onnxgate.rules.definition import rule


@rule(ModelLockComparison, "opset-mismatch", level=Level.ERROR, since="0.1.0")
def opset_mismatch(subject: ModelLockComparison) -> Iterator[Hit]:
    """
    A model does not import the opset version that `opset` in `onnxgate.toml` pins.

    ## Why it matters
    The default opset of an exporter changes with upgrades. A pinned opset stays within the versions that the runtimes
    support.

    ## What to do
    - Export the model at the pinned opset, or
    - run `onnxgate fix MODEL`, which converts the model and verifies that it computes the same, or
    - change the pin.
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
                identity=f"{domain} {version}",
            )
