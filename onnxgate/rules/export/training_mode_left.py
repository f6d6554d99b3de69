"""The rule `training-mode-left`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.export import Reexport
from onnxgate.rules.definition import rule


@rule(Reexport, "training-mode-left", level=Level.ERROR, since="0.1.0")
def training_mode_left(subject: Reexport) -> Iterator[Hit]:
    """
    An export computes as in training.

    ## Why it matters
    A `Dropout` in training mode draws numbers at inference, a `BatchNormalization` in training mode normalises by the
    batch that it is given. ONNX Runtime removes such a `Dropout` at its usual optimisation level, so that nobody sees
    it until the model runs without optimisation, or elsewhere.

    That a module was handed over in `train()` is a note: it is put in `eval()` before it is exported, and what the
    source computes is compared in `eval()`, too.

    ## What to do
    Return the module after `.eval()`, and pass `training=self.training` to functions such as `dropout`.
    """
    for node in subject.behaviour.training_nodes:
        yield Hit(
            node.place or subject.place,
            f"export by `{subject.source}`: `{node.operator}` is left in training mode",
            model=subject.model,
            node=node.node,
            fix="pass `training=self.training` where the source calls it, or leave it out",
            identity=node.operator,
        )
    if subject.behaviour.was_training:
        yield Hit(
            subject.place,
            f"`{subject.source}` returns a module in `train()`; it is exported and compared in `eval()`",
            model=subject.model,
            fix="return the module after `.eval()`",
            level=Level.NOTE,
        )
