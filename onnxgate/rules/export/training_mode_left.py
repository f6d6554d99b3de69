"""The rule `training-mode-left`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.export import Reexport
from onnxgate.rules.definition import rule


@rule(Reexport, "training-mode-left", level=Level.ERROR, since="0.1.0")
def training_mode_left(subject: Reexport) -> Iterator[Hit]:
    """
    An exported model contains a node in training mode.

    ## Why it matters
    `Dropout` returns random values, and `BatchNormalization` normalizes by the current batch. By default, ONNX Runtime
    removes such a `Dropout`; other engines keep it. For a module in `train()` mode, this is a note; it is exported in
    `eval()` mode.

    ## What to do
    - Return the module after `.eval()`.
    - Pass `training=self.training` to functions such as `dropout`.
    """
    for node in subject.behaviour.training_nodes:
        yield Hit(
            node.place or subject.place,
            f"export with `{subject.source}`: `{node.operator}` is in training mode",
            model=subject.model,
            node=node.node,
            fix="pass `training=self.training` where the source calls it, or remove it",
            identity=node.operator,
        )
    if subject.behaviour.was_training:
        yield Hit(
            subject.place,
            f"`{subject.source}` returns a module in `train()` mode; it is exported and compared in `eval()` mode",
            model=subject.model,
            fix="return the module after `.eval()`",
            level=Level.NOTE,
        )
