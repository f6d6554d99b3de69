"""The rule `minimum-runtime-raised`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.evidence.breaks import breaks, tells
from onnxgate.evidence.changes import Minimum, ModelChange
from onnxgate.findings import Hit, Level, listed, version_order
from onnxgate.rules.registry import rule

RELEASES_SAID = 6


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
    said = _said(minimum, subject.baseline)
    if minimum.lost:
        yield breaks(
            subject,
            f"{said}; of what the targets promise, it loses {_releases(minimum.lost)}",
            "export at the opset and IR version that it had, or raise the target's requirement",
        )
    elif _raised(minimum):
        yield tells(subject, said, f"needs {minimum.after}")


def _raised(minimum: Minimum) -> bool:
    """A model that loaded nowhere has nothing to lose."""
    if not minimum.before or minimum.before == minimum.after:
        return False
    return not minimum.after or version_order(minimum.after) > version_order(minimum.before)


def _said(minimum: Minimum, baseline: str) -> str:
    if not _raised(minimum):
        return f"is predicted to load on fewer releases of onnxruntime than {baseline}"
    if not minimum.after:
        return f"is predicted to load on no known release of onnxruntime; it did from {minimum.before} on {baseline}"
    return f"is predicted to need onnxruntime {minimum.after}; {minimum.before} was enough {baseline}"


def _releases(releases: Sequence[str]) -> str:
    ordered = sorted(releases, key=version_order)
    more = len(ordered) - RELEASES_SAID
    return listed([*ordered[:RELEASES_SAID], f"{more} more"] if more > 0 else ordered)
