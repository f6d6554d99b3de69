"""Ranked outputs: items match by value, and only items that rounding errors decide about are accepted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from onnxgate.numerics.items import ItemBound, count_unexplained, find_counterparts, find_layout
from onnxgate.numerics.ranking import ItemAgreement, compare_items

Array = NDArray[Any]
BOUNDS = {"boxes": ItemBound(1e-4, 1e-5), "scores": ItemBound(1e-4, 1e-5), "labels": ItemBound(0.0, 0.0)}
AXES = dict.fromkeys(BOUNDS)


def detections(count: int = 6) -> dict[str, Array]:
    """Return boxes, scores in descending order and labels."""
    generator = np.random.default_rng(0)
    return {
        "boxes": generator.uniform(0, 300, (count, 4)).astype(np.float32),
        "scores": np.linspace(0.9, 0.4, count, dtype=np.float32),
        "labels": np.arange(count) % 3,
    }


def pick(outputs: dict[str, Array], *items: int) -> dict[str, Array]:
    """Return some items, in this order."""
    return {name: array[list(items)] for name, array in outputs.items()}


def compare(
    candidate: dict[str, Array], reference: dict[str, Array], runs: Sequence[dict[str, Array]] = ()
) -> ItemAgreement:
    """Compare detections; `runs` are the candidate's outputs for nearly equal inputs."""
    layout = find_layout(reference, AXES)
    assert layout is not None
    agreement = compare_items(layout, candidate, reference, BOUNDS, lambda level: runs if level == 0 else ())
    assert agreement is not None
    return agreement


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ({"boxes": (7, 4), "scores": (7,), "labels": (7,)}, (0, ("boxes", "scores", "labels"))),
        ({"boxes": (2, 9, 4), "scores": (2, 9)}, (1, ("boxes", "scores"))),
        ({"boxes": (1, 300, 6)}, (1, ("boxes",))),
        ({"boxes": (5, 4), "masks": (5, 1, 28, 28), "labels": (5,)}, (0, ("boxes", "masks", "labels"))),
    ],
)
def test_axis_of_the_items(shapes: dict[str, tuple[int, ...]], expected: tuple[int, tuple[str, ...]]) -> None:
    """The items lie on the last axis that the outputs share, except the axis of the values of one item."""
    layout = find_layout({name: np.zeros(shape) for name, shape in shapes.items()}, dict.fromkeys(shapes))

    assert layout is not None
    assert (layout.axis, layout.outputs) == expected


def test_known_axis_of_the_items() -> None:
    """Values and indices of a `TopK` have no axis for the values of one item."""
    values = {"values": np.zeros((2, 5)), "indices": np.zeros((2, 5), np.int64)}
    layout = find_layout(values, {"values": -1, "indices": -1})

    assert layout is not None
    assert layout.axis == 1


def test_nearest_items_match() -> None:
    """A near duplicate does not take the counterpart of another item."""
    items, others = np.array([[1.0], [0.0]]), np.array([[3.0], [3.0], [0.1], [0.9]])
    found = find_counterparts(items, others, np.full((2, 1), 0.95))

    assert found.tolist() == [3, 2]


@pytest.mark.parametrize(
    ("output", "change", "detail"),
    [
        ("boxes", 1.0, "in `boxes`"),
        ("labels", 1, "in `labels`"),
        ("scores", 0.01, "in `scores`"),
    ],
)
def test_wrong_values_are_found(output: str, change: float, detail: str) -> None:
    """A box moved by a pixel, a wrong class and a wrong score are named, and only in the outputs that differ."""
    reference, candidate = detections(), detections()
    candidate[output][2] += np.array(change).astype(candidate[output].dtype)
    agreement = compare(candidate, reference, [candidate] * 4)

    assert agreement.wrong == 1
    assert agreement.differing == {output}
    assert detail in agreement.detail


@pytest.mark.parametrize("output", ["labels", "scores"])
def test_swapped_values_are_found(output: str) -> None:
    """Labels and scores that belong to other boxes differ, although each output has the right set of values."""
    reference, candidate = detections(), detections()
    candidate[output][[0, 1]] = candidate[output][[1, 0]]
    agreement = compare(candidate, reference, [candidate])

    assert agreement.wrong == 2
    assert agreement.differing == {output}


@pytest.mark.parametrize("items", [(0, 2, 3, 4, 5), (0, 1, 2, 3, 4)], ids=["in the middle", "at the end"])
def test_missing_box_is_found(items: tuple[int, ...]) -> None:
    """A box that no run on nearly equal inputs lists is missing."""
    agreement = compare(pick(detections(), *items), detections(), [pick(detections(), *items)] * 4)

    assert agreement.wrong == 1
    assert "is missing" in agreement.detail


def test_additional_box_is_found() -> None:
    """A box that all runs on nearly equal inputs list is wrong if the reference does not list it."""
    agreement = compare(detections(), pick(detections(), 0, 1, 2, 4, 5), [detections()] * 4)

    assert agreement.wrong == 1
    assert "is not in the reference" in agreement.detail


def test_reversed_order_is_found() -> None:
    """Items that are not sorted by their score are in the wrong place."""
    candidate = pick(detections(), 5, 4, 3, 2, 1, 0)

    assert compare(candidate, detections(), [candidate]).wrong > 0


def test_unstable_items_are_accepted() -> None:
    """An item that nearly equal inputs add or remove is not compared; the number of items may differ."""
    fewer = pick(detections(), 0, 1, 3, 4, 5)
    for candidate, reference in ((fewer, detections()), (detections(), fewer)):
        agreement = compare(candidate, reference, [detections(), fewer])

        assert agreement.wrong == 0
        assert agreement.unstable == 1
        assert agreement.matched == 5
        assert agreement.top_score == pytest.approx(0.7)


def test_order_of_equal_scores_is_ignored() -> None:
    """Items with scores within the tolerance may have any order."""
    reference = {**detections(), "scores": np.full(6, 0.5, np.float32)}
    reference["scores"][:3] += np.float32(1e-5)
    candidate = pick(reference, 2, 1, 0, 3, 5, 4)
    agreement = compare(candidate, reference)

    assert agreement.wrong == 0
    assert agreement.matched == 6


@pytest.mark.parametrize("has_equal_scores", [True, False])
def test_order_of_only_equal_scores_is_ignored(has_equal_scores: bool) -> None:
    """If all scores are equal, the order is arbitrary; equal coordinates or labels are no scores."""
    reference = {**detections(), "labels": np.zeros(6, np.int64)}
    reference["boxes"][:, 0] = 0
    scores = reference.pop("scores")
    if has_equal_scores:
        reference["output"] = np.full_like(scores, 0.2)
    layout = find_layout(reference, dict.fromkeys(reference))
    assert layout is not None
    bounds = {**BOUNDS, "output": BOUNDS["scores"]}
    agreement = compare_items(layout, pick(reference, 3, 1, 0, 2, 5, 4), reference, bounds, lambda _: ())

    assert agreement is not None
    assert has_equal_scores == (agreement.wrong == 0)


def test_equal_scores_replace_each_other() -> None:
    """Items with equal scores may be selected or not."""
    every = {**detections(8), "scores": np.array([0.9, 0.8, *[0.5] * 6], np.float32)}
    agreement = compare(pick(every, 0, 1, 2, 3, 4), pick(every, 0, 1, 2, 6, 7), [pick(every, 0, 1, 2, 5)])

    assert agreement.wrong == 0
    assert agreement.matched == 3


@pytest.mark.parametrize(("output", "change"), [("boxes", 1.0), ("labels", 3)])
def test_all_wrong_items_with_equal_scores_are_found(output: str, change: float) -> None:
    """If all scores are equal, the runs must list the boxes of the reference as often as those of the candidate."""
    generator = np.random.default_rng(1)
    every = {**detections(60), "scores": np.full(60, 0.2, np.float32)}
    every["scores"][0] = 0.20001
    wrong = {**every, output: every[output] + np.array(change).astype(every[output].dtype)}

    def draw(outputs: dict[str, Array]) -> dict[str, Array]:
        return pick(outputs, 0, *np.sort(generator.permutation(np.arange(1, 60))[:20]))

    assert compare(draw(every), draw(every), [draw(every) for _ in range(20)]).wrong == 0
    assert compare(draw(wrong), draw(every), [draw(wrong) for _ in range(20)]).wrong > 10


def test_elements_that_change_with_rounding_errors() -> None:
    """A label is accepted if a run on nearly equal inputs has the label of the reference."""
    reference, candidate = np.array([1, 2, 3]), np.array([1, 5, 3])

    assert count_unexplained(candidate, reference, ItemBound(0.0, 0.0), [np.array([7, 2, 3])]) == (0, 1)
    assert count_unexplained(candidate, reference, ItemBound(0.0, 0.0), [np.array([1, 5, 3])]) == (1, 1)


def test_equal_scores_alone_prove_nothing() -> None:
    """If nearly equal inputs never change the selection, a wrong box is found although all scores are equal."""
    reference = {**detections(), "scores": np.array([0.6, *[0.5] * 5], np.float32)}
    candidate = {**reference, "boxes": reference["boxes"] + np.eye(6, 4, dtype=np.float32)[[5, 5, 0, 5, 5, 5]]}

    assert compare(candidate, reference, [candidate] * 4).wrong == 1


@pytest.mark.parametrize(("change", "is_hollow"), [(1.0, True), (1.01, False)])
def test_chaotic_selection_is_not_compared(change: float, is_hollow: bool) -> None:
    """If each run lists other items, only the scores can be compared, and there is no verdict if they agree."""
    every = {**detections(60), "scores": np.tile(detections()["scores"], 10)}
    candidate, reference, *runs = (pick(every, *range(6 * start, 6 * start + 6)) for start in range(10))
    agreement = compare(candidate, {**reference, "scores": reference["scores"] * np.float32(change)}, runs)

    assert agreement.is_hollow == is_hollow
    assert (agreement.wrong, agreement.unstable) == ((0, 6) if is_hollow else (6, 0))


@pytest.mark.parametrize(("change", "expected"), [(2.0, 0), (100.0, 3)])
def test_values_that_change_with_rounding_errors(change: float, expected: int) -> None:
    """Boxes may exceed their tolerance a little if rounding errors move them as far, but not by a pixel."""
    reference, candidate = detections(), detections()
    tolerance = 1e-5 + 1e-4 * reference["boxes"][:, 0]
    candidate["boxes"][:3, 0] += change * tolerance[:3]
    runs = [{**candidate, "boxes": candidate["boxes"].copy()} for _ in range(3)]
    for item, run in enumerate(runs):
        run["boxes"][item, 0] += 2.0 * tolerance[item]

    assert compare(candidate, reference, runs).wrong == expected


def test_missing_item_above_unstable_ones_is_found() -> None:
    """Unstable items do not excuse that an item with a higher score is missing."""
    every = detections(20)
    low = [pick(every, *range(1, 9), 9 + index) for index in range(9)]
    agreement = compare(low[0], pick(every, *range(9), 19), low[1:])

    assert agreement.wrong == 1
    assert "item 0" in agreement.detail


@pytest.mark.parametrize(("wrong", "unstable"), [(1, 1), (2, 1), (20, 10)])
def test_wrong_item_before_unstable_ones_is_found(wrong: int, unstable: int) -> None:
    """In a list without scores, unstable items do not excuse wrong items that are listed before them."""
    reference = np.stack([np.zeros(50), np.arange(50) % 5, np.arange(50)], axis=1).astype(np.int64)
    candidate = reference.copy()
    candidate[:wrong, 1] += 9
    noisy = candidate.copy()
    noisy[50 - unstable :, 2] += 100
    layout = find_layout({"indices": reference}, {"indices": -2})
    assert layout is not None
    runs = [{"indices": run} for run in (noisy, *[candidate] * 7)]
    agreement = compare_items(
        layout, {"indices": candidate}, {"indices": reference}, {"indices": BOUNDS["labels"]}, lambda _: runs
    )

    assert agreement is not None
    assert agreement.wrong == wrong


def test_wrong_box_among_ties_is_found() -> None:
    """A box is compared although other items with the same score are unstable."""
    every = {**detections(12), "scores": np.full(12, 0.5, np.float32)}
    wrong = {**every, "boxes": every["boxes"] + np.eye(12, 4, dtype=np.float32)}
    runs = [pick(wrong, *range(5), 5 + index % 7) for index in range(9)]
    agreement = compare(runs[0], pick(every, *range(5), 7), runs[1:])

    assert agreement.wrong == 4
    assert agreement.differing == {"boxes"}


def test_many_short_lists_are_fast() -> None:
    """Lists that agree by position are compared at once."""
    generator = np.random.default_rng(0)
    reference = {"values": -np.sort(-generator.uniform(size=(5000, 5))), "indices": np.tile(np.arange(5), (5000, 1))}
    candidate = {name: array.copy() for name, array in reference.items()}
    candidate["indices"][17, 3] = 9
    layout = find_layout(reference, {"values": -1, "indices": -1})
    assert layout is not None
    bounds = {"values": BOUNDS["scores"], "indices": BOUNDS["labels"]}
    start = time.process_time()
    agreement = compare_items(layout, candidate, reference, bounds, lambda _: [candidate] * 8)

    assert agreement is not None
    assert agreement.wrong == 1
    assert time.process_time() - start < 1.0


def test_other_ties_are_not_a_difference() -> None:
    """The reference may always select other ones of many equal items than the runs, which select them at random."""
    generator = np.random.default_rng(0)
    every = {**detections(200), "scores": np.full(200, 0.5, np.float32)}
    wrong = {**every, "boxes": every["boxes"] + 1}
    chosen = [range(100, 140), *(np.sort(generator.permutation(160)[:40]) for _ in range(8))]
    candidate, *runs = (pick(every, *items) for items in chosen)

    assert compare(candidate, pick(every, *range(5, 20), *range(170, 195)), runs).is_hollow
    assert compare(candidate, pick(wrong, *range(5, 45)), runs).wrong == 40


def test_stable_item_of_a_chaotic_selection_is_found() -> None:
    """A wrong box that all runs list is found, although all other items depend on rounding errors."""
    generator = np.random.default_rng(0)
    every = {**detections(1000), "scores": np.array([0.9, *[0.5] * 999], np.float32)}
    candidate, *runs = (pick(every, 0, *np.sort(generator.permutation(range(1, 1000))[:40])) for _ in range(9))
    reference = pick(every, 0, *range(900, 940))
    reference["boxes"][0, 0] += 1
    agreement = compare(candidate, reference, runs)

    assert agreement.wrong == 1
    assert agreement.differing >= {"boxes"}
