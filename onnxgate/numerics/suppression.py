"""Verification of which boxes non-maximum suppression keeps, except for choices that rounding errors decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUNDING_STEPS = 8
"""Maximum rounding error of a coordinate or a score, in float32 steps of the largest one.

Source: chosen; torchvision moves the boxes of each class, which rounds each coordinate once.
"""
MIN_OVERLAP_ERROR = 1e-5
"""Maximum rounding error of an overlap whose boxes are exact. Source: chosen, about 100 float32 steps of 1."""


@dataclass(frozen=True, slots=True)
class SuppressionLimits:
    """Parameters of a `NonMaxSuppression` node."""

    most: float  # maximum number of boxes to keep
    overlap: float  # minimum overlap of a box that is suppressed, as intersection over union
    score: float = -np.inf  # minimum score


@dataclass(frozen=True, slots=True)
class WrongChoices:
    """Boxes that are kept or suppressed, although the limits require the opposite; `detail` describes one of them."""

    count: int
    detail: str


def find_wrong_choices(
    boxes: NDArray[Any], scores: NDArray[Any], kept: NDArray[Any], limits: SuppressionLimits
) -> WrongChoices | None:
    """Compare a choice of boxes with what suppression with these limits returns; None if it is one of the results.

    `boxes` has the shape (boxes, 4) and contains two opposite corners of each box; `kept` contains indices of boxes, in
    the order of their choice.
    """
    corners, values = boxes.astype(np.float64), scores.astype(np.float64)
    low, high = np.minimum(corners[:, :2], corners[:, 2:]), np.maximum(corners[:, :2], corners[:, 2:])
    step = ROUNDING_STEPS * float(np.finfo(np.float32).eps)
    near = step * float(np.abs(values).max(initial=0.0))
    with np.errstate(divide="ignore"):
        errors = step * float(np.abs(corners).max(initial=0.0)) * (1 / (high - low)).sum(axis=1)
    areas = (high - low).prod(axis=1)
    is_kept = np.zeros(len(values), bool)
    is_kept[kept] = True
    is_explained = is_kept | (values <= limits.score + near)  # boxes that need not be kept
    faults = [f"box {box} is not listed once" for box in _find_repeated(kept)]
    for position, box in enumerate(kept.tolist()):
        shared = (np.minimum(high, high[box]) - np.maximum(low, low[box])).clip(0).prod(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            overlap = np.nan_to_num(shared / (areas + areas[box] - shared))
        error = MIN_OVERLAP_ERROR + errors + errors[box]
        is_explained |= (overlap + error >= limits.overlap) & (values <= values[box] + near)
        earlier = kept[:position]
        beyond = earlier[overlap[earlier] > limits.overlap + error[earlier]]
        if values[box] < limits.score - near:
            faults.append(f"box {box} is listed, but its score {values[box]:.3g} is below {limits.score:.3g}")
        elif len(beyond):
            share = overlap[beyond[0]]
            faults.append(
                f"box {box} is listed, but it overlaps box {beyond[0]} by {share:.3g} (limit {limits.overlap:.3g})"
            )
    if len(kept) > limits.most:
        faults.append(f"{len(kept)} boxes are listed (limit {limits.most:.0f})")
    last = values[kept].min(initial=np.inf)
    if len(kept) >= limits.most:
        is_explained |= values <= last + near
    faults += [f"box {box} is not listed" for box in np.flatnonzero(~is_explained)]
    return WrongChoices(len(faults), faults[0]) if faults else None


def _find_repeated(kept: NDArray[Any]) -> list[int]:
    listed, counts = np.unique(kept, return_counts=True)
    return [int(box) for box in listed[counts > 1]]
