"""Verification of which boxes non-maximum suppression keeps."""

from __future__ import annotations

import numpy as np
import pytest

from onnxgate.numerics.suppression import SuppressionLimits, find_wrong_choices

BOXES = np.array([[0, 0, 10, 10], [0, 0, 10, 8], [20, 20, 30, 30], [30, 30, 20, 20.0]], np.float32)
"""The second box overlaps the first one by 0.8; the last one is the third one with exchanged corners."""
SCORES = np.array([0.9, 0.8, 0.7, 0.7], np.float32)
LIMITS = SuppressionLimits(10, 0.5)


def judge(kept: list[int], limits: SuppressionLimits = LIMITS) -> tuple[int, str] | None:
    """Return the number of wrong choices, and the description of one of them."""
    wrong = find_wrong_choices(BOXES, SCORES, np.array(kept, np.int64), limits)
    return None if wrong is None else (wrong.count, wrong.detail)


@pytest.mark.parametrize(
    ("kept", "limits"),
    [
        ([0, 2], LIMITS),
        ([0, 3], LIMITS),  # both have the same score and the same place
        ([0, 1, 2], SuppressionLimits(10, 0.81)),
        ([0, 1, 3], SuppressionLimits(10, 0.8)),  # rounding errors decide
        ([0, 3], SuppressionLimits(10, 0.8)),
        ([0], SuppressionLimits(1, 0.5)),
        ([0], SuppressionLimits(10, 0.5, 0.7)),
        ([], SuppressionLimits(0, 0.5)),
    ],
)
def test_possible_results(kept: list[int], limits: SuppressionLimits) -> None:
    """Equal scores and overlaps near the limit allow several results."""
    assert judge(kept, limits) is None


@pytest.mark.parametrize(
    ("kept", "limits", "expected"),
    [
        ([0, 1, 2], LIMITS, (1, "box 1 is listed, but it overlaps box 0 by 0.8 (limit 0.5)")),
        ([0], LIMITS, (2, "box 2 is not listed")),
        ([1, 2], LIMITS, (1, "box 0 is not listed")),  # the lower score suppresses nothing
        ([0, 2], SuppressionLimits(10, 0.9), (1, "box 1 is not listed")),
        ([0, 2, 0], LIMITS, (2, "box 0 is not listed once")),
        ([0, 2], SuppressionLimits(1, 0.5), (1, "2 boxes are listed (limit 1)")),
        ([2], SuppressionLimits(1, 0.5), (2, "box 0 is not listed")),
        ([0, 2], SuppressionLimits(10, 0.5, 0.75), (1, "box 2 is listed, but its score 0.7 is below 0.75")),
    ],
)
def test_wrong_results(kept: list[int], limits: SuppressionLimits, expected: tuple[int, str]) -> None:
    """The boxes that the limits exclude or require are counted."""
    assert judge(kept, limits) == expected


def test_moved_boxes_are_rounded() -> None:
    """Small boxes of a class with a high number have large coordinates, whose rounding errors may decide."""
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 0.5]], np.float32)
    limits = SuppressionLimits(10, 0.501)
    scores, kept = SCORES[:2], np.array([0])

    assert find_wrong_choices(boxes, scores, kept, limits) is not None
    assert find_wrong_choices(boxes + np.float32(5000), scores, kept, limits) is None
