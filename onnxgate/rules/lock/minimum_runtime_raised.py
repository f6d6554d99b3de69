"""The rule `minimum-runtime-raised`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.evidence.breaks import breaks, tells
from onnxgate.evidence.changes import Minimum, ModelChange
from onnxgate.findings import Hit, Level, name_runtimes, version_order
from onnxgate.rules.registry import rule


@rule(ModelChange, "minimum-runtime-raised", level=Level.ERROR, since="0.1.0")
def minimum_runtime_raised(subject: ModelChange) -> Iterator[Hit]:
    """
    A model needs a newer ONNX Runtime than at the baseline.

    ## Why it matters
    A deployment that has not moved yet refuses the model: `Unsupported model IR version`, `Opset N is under
    development`, `Could not find an implementation`. A newer exporter stamps a newer opset and IR version by itself,
    though nothing in the model needs them.

    It is an error where releases are lost that a target of `onnxgate.toml` promises, and a note where they are not.
    What the lock pins is said by the rules of the support stage too, with the reason.

    ## What to do
    Export at the old opset and IR version, or raise the target's requirement and run `onnxgate lock`. The page of
    `opset-too-new` says how.
    """
    minimum = subject.minimum
    if minimum is None:
        return
    said = _said(minimum)
    if minimum.lost:
        lost = name_runtimes([f"onnxruntime {release}" for release in minimum.lost], ())
        yield breaks(
            subject,
            f"{said}{_was(minimum)} {subject.baseline}; lost of what the targets promise: {lost}",
            "export at the opset and IR version that it had, or raise the target's requirement",
        )
    elif _raised(minimum):
        yield tells(subject, f"{said}{_was(minimum)} {subject.baseline}", f"from {minimum.after} on")


def _raised(minimum: Minimum) -> bool:
    """A model that loaded nowhere has nothing to lose."""
    if not minimum.before or minimum.before == minimum.after:
        return False
    return not minimum.after or version_order(minimum.after) > version_order(minimum.before)


def _said(minimum: Minimum) -> str:
    if not minimum.after:
        return "is predicted to load on no known release of onnxruntime; "
    return f"is predicted to load from onnxruntime {minimum.after} on; "


def _was(minimum: Minimum) -> str:
    return f"it was {minimum.before}" if minimum.before else "it was none"
