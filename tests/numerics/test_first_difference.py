"""Distances between values, and the first differing node derived from them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxgate.model.subgraphs.instrumented_models import SearchNode
from onnxgate.numerics.first_difference import (
    NO_DISTANCE,
    Distance,
    Suspect,
    find_first_difference,
    find_suspects,
    find_token_elements,
    longest_path,
    measure_distance,
)


def far(relative: float) -> Distance:
    """Return a float32 distance of this relative size."""
    return Distance(relative, relative, 4e-6)


CHAIN = (SearchNode(0, ("x",), ("a",)), SearchNode(1, ("a",), ("b",)), SearchNode(2, ("b",), ("c",)))


def test_distance_is_relative_to_the_largest_value() -> None:
    """The distance is relative to the largest value."""
    distance = measure_distance(np.array([4, 1], np.float32), np.array([4, 2], np.float32))

    assert (distance.largest, distance.relative) == (1.0, 0.25)


def test_mask_fills_are_not_a_magnitude() -> None:
    """The lowest float32, which fills masks, does not reduce the relative distance of other elements."""
    lowest = np.finfo(np.float32).min
    distance = measure_distance(np.array([lowest, 1], np.float32), np.array([lowest, 2], np.float32))

    assert distance.relative == 0.5


LOWEST = float(np.finfo(np.float32).min)


@pytest.mark.parametrize(
    ("candidate", "reference"),
    [
        ([0, -1e4], [0, LOWEST]),
        ([0, -65504, -65504], [0, -math.inf, LOWEST]),
        ([1, -math.inf], [1, LOWEST]),
        ([1, -math.inf, -math.inf], [1, -65504, -65540]),
        ([-9990, -10010], [LOWEST, LOWEST]),
    ],
)
def test_other_fill_values_of_a_mask_are_equal(candidate: list[float], reference: list[float]) -> None:
    """Masked elements do not differ if a converter replaced the fill value, such as -1e4 in float16."""
    assert measure_distance(np.array(candidate, np.float32), np.array(reference, np.float32)).relative == 0


@pytest.mark.parametrize(
    ("candidate", "reference"),
    [
        ([0, 0], [0, LOWEST]),
        ([0, -100], [0, -math.inf]),
        ([0, 65504], [0, LOWEST]),
        ([1, math.inf, math.inf], [1, 70000, 70000]),
        ([1, -math.inf, -math.inf], [1, -70000, -90000]),
    ],
)
def test_wrong_fill_values_and_overflows_differ(candidate: list[float], reference: list[float]) -> None:
    """An element that only one run masks differs, as does an overflow in float16."""
    assert measure_distance(np.array(candidate, np.float32), np.array(reference, np.float32)).largest > 0


@pytest.mark.parametrize(
    ("candidate", "reference"),
    [
        (np.zeros(2, np.float32), np.zeros(3, np.float32)),
        (np.zeros(2, np.float32), np.zeros(2, np.int64)),
        (np.array([np.nan]), np.array([1.0])),
        (np.array([np.inf]), np.array([-np.inf])),
        (np.array(["a"]), np.array(["b"])),
    ],
)
def test_incomparable_values_are_infinitely_far(candidate: np.ndarray, reference: np.ndarray) -> None:
    """Different shapes, kinds or strings, and values that are finite on one side only, are infinitely far apart."""
    assert measure_distance(candidate, reference).relative == math.inf


TOKENS = np.array([[False, True, True], [True, True, True]])


@pytest.mark.parametrize(
    ("shape", "masked"),
    [
        ((2, 3), [(0, 0)]),
        ((2, 3, 1), [(0, 0, 0)]),
        ((2, 1, 3, 3), [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 0, 2)]),
        ((2, 3, 3, 1), [(0, 0, 0, 0), (0, 1, 0, 0), (0, 2, 0, 0)]),
        ((4, 3, 1), [(0, 0, 0), (1, 0, 0)]),
        ((3, 2, 1), [(0, 0, 0)]),
        ((6, 1), [(0, 0)]),
        ((6,), [(0,)]),
    ],
)
def test_elements_of_masked_tokens(shape: tuple[int, ...], masked: list[tuple[int, ...]]) -> None:
    """Tokens are found in the usual layouts: with heads, time first, and with batch and time in one axis."""
    compared = find_token_elements(TOKENS, shape)

    assert compared is not None
    assert [tuple(map(int, at)) for at in np.argwhere(~compared)] == masked


@pytest.mark.parametrize("shape", [(2, 1, 1, 3), (1, 3, 4), (2, 4), (5, 7), ()])
def test_values_without_an_axis_of_tokens(shape: tuple[int, ...]) -> None:
    """Attention keys on the last axis, values that all rows share and other shapes are compared completely."""
    assert find_token_elements(TOKENS, shape) is None


def test_masked_tokens_do_not_count() -> None:
    """Neither the difference nor the magnitude of a masked token counts."""
    reference = np.ones((2, 3, 4), np.float32)
    candidate = reference.copy()
    candidate[0, 0] = 1e6
    assert measure_distance(candidate, reference, TOKENS) == NO_DISTANCE

    candidate[1, 0, 0] = 1.5
    assert measure_distance(candidate, reference, TOKENS).relative == 0.5


def test_equal_values_have_no_distance() -> None:
    """Equal NaN values, infinities, strings and integers have no distance."""
    values = [np.array([np.nan, np.inf, 1.0]), np.array(["a"]), np.array([2**62], np.int64), np.zeros(0, np.float32)]

    assert [measure_distance(value, value.copy()) for value in values] == [NO_DISTANCE] * 4


def test_distance_of_more_than_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst element and the largest value may be in different chunks."""
    monkeypatch.setattr("onnxgate.numerics.streams.CHUNK_ELEMENTS", 2)
    reference = np.array([[1, 2], [3, 8]], np.float32)
    distance = measure_distance(reference + np.array([[0, 2], [0, 0]], np.float32), reference)

    assert (distance.largest, distance.relative) == (2.0, 0.25)


def test_suspects_are_where_the_distance_grows() -> None:
    """A node is suspected if the distance grows much more than by rounding."""
    suspects = find_suspects(CHAIN, {"a": far(1e-7), "b": far(1e-2), "c": far(1.5e-2)})

    assert [suspect.output for suspect in suspects] == ["a", "b"]


def test_missing_value_does_not_create_a_suspect() -> None:
    """A value that is missing on the other side does not make the following node a suspect."""
    suspects = find_suspects(CHAIN, {"a": far(1e-2), "c": far(1.5e-2)})

    assert [suspect.output for suspect in suspects] == ["a"]


def blamed(own: dict[str, Distance], *, exact: bool = False) -> str | None:
    """Return the output of the node that is found, with all nodes as suspects."""
    actual = [Suspect(step, step.outputs[0], NO_DISTANCE, far(1.0)) for step in CHAIN]
    first = find_first_difference(actual, own, exact=exact)
    return first.output if first else None


def test_a_node_that_only_passes_on_is_not_blamed() -> None:
    """A node that only amplifies an existing difference is correct with correct inputs, so it is not reported."""
    assert blamed({"a": far(1e-7), "b": far(3e-3), "c": far(1e-7)}) == "b"


def test_the_first_of_those_that_are_as_bad() -> None:
    """The first of several wrong nodes is reported, but not one whose difference is a hundredth of the worst."""
    assert blamed({"a": far(1e-5), "b": far(3e-3), "c": far(9e-3)}) == "b"


def test_rounding_is_not_reported() -> None:
    """Differences within rounding are not reported, except on the same engine, where nothing may differ."""
    own = {"a": far(1e-6), "b": far(2e-6), "c": far(1e-6)}

    assert (blamed(own), blamed(own, exact=True)) == (None, "a")


def test_path_to_an_output_is_the_longest() -> None:
    """The path to an output is the longest one."""
    steps = (*CHAIN, SearchNode(3, ("x",), ("short",)), SearchNode(4, ("short", "c"), ("y",)))

    assert longest_path(steps, "y") == ("a", "b", "c", "y")


def test_path_in_a_cycle_ends() -> None:
    """A runtime may load a graph whose nodes form a cycle."""
    steps = (SearchNode(0, ("b",), ("a",)), SearchNode(1, ("a",), ("b",)))

    assert longest_path(steps, "b") == ("a", "b")
