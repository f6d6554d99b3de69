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
    In training mode, `Dropout` returns random values, and `BatchNormalization` uses the statistics of the current
    batch. By default, ONNX Runtime removes `Dropout` nodes; other engines keep them. If only the module is in `train()`
    mode, this is a note, because onnxgate exports it in `eval()` mode.

    ## What to do
    - Call `.eval()` on the module before returning it.
    - Pass `training=self.training` to functions such as `dropout`.
    """
    for node in subject.behaviour.training_nodes:
        yield Hit(
            node.place or subject.place,
            f"export with `{subject.source}`: `{node.operator}` is in training mode",
            model=subject.model,
            node=node.node,
            fix="pass `training=self.training` to this function in the source, or remove the call",
            identity=node.operator,
        )
    if subject.behaviour.was_training:
        yield Hit(
            subject.place,
            f"`{subject.source}` returns a module in `train()` mode; onnxgate exports and compares the module in "
            "`eval()` mode",
            model=subject.model,
            fix="call `.eval()` on the module before returning it",
            level=Level.NOTE,
        )
