"""The rule `toolchain-drift`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.export import ToolchainState
from onnxgate.rules.definition import rule


@rule(ToolchainState, "toolchain-drift", level=Level.WARNING, since="0.1.0")
def toolchain_drift(subject: ToolchainState) -> Iterator[Hit]:
    """
    The toolchain's packages have other versions than the lock.

    ## Why it matters
    Another exporter may write another graph from the same source. Where it really does, that is the error
    `export-stale`; this warning then says where to look. Alone it breaks nothing, which is why it closes no gate: a
    colleague whose PyTorch is a patch release newer and writes the same graph is not in the wrong. Versions are
    compared without local suffix: `2.13.0+cpu` is `2.13.0`.

    ## What to do
    Install the locked versions where models are exported. To move to the new ones: `onnxgate lock`, after
    `onnxgate export --check` has shown what they change.
    """
    if subject.drift:
        drift = sorted(subject.drift.items())
        words = [f"{name} {locked} is locked and {present or 'none'} is there" for name, (locked, present) in drift]
        yield Hit(
            subject.place,
            f"the toolchain is not the locked one: {', '.join(words)}",
            fix=f"install {' '.join(f'{name}=={locked}' for name, (locked, _) in drift)}",
        )
