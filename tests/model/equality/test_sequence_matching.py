"""What two sequences have in common, against the textbook's table."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxgate.model.equality import node_matching
from onnxgate.model.equality.node_matching import common_subsequence, longest_increasing_subsequence

LETTERS = st.lists(st.integers(0, 3), max_size=14)


def longest(old: list[int], new: list[int]) -> int:
    """How long a longest common part is."""
    lengths = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i, a in enumerate(old):
        for j, b in enumerate(new):
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if a == b else max(lengths[i][j + 1], lengths[i + 1][j])
    return lengths[-1][-1]


@given(old=LETTERS, new=LETTERS)
def test_common(old: list[int], new: list[int]) -> None:
    """Equal elements, each once, in order in both, and as many as there can be."""
    pairs = sorted(common_subsequence(old, new))

    assert all(old[i] == new[j] for i, j in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))
    assert len(pairs) == longest(old, new)


@given(old=LETTERS, new=LETTERS)
def test_common_of_what_differs_too_much(old: list[int], new: list[int]) -> None:
    """Above a number of differences it need not be the longest, and is still in order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_matching, "_MAX_EDITS", 1)
        pairs = sorted(common_subsequence(old, new))

    assert all(old[i] == new[j] for i, j in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))


@given(numbers=st.permutations(range(9)))
def test_increasing(numbers: list[int]) -> None:
    """Increasing, and as many as the sorted numbers have in common with them."""
    places = longest_increasing_subsequence(numbers)

    assert places == sorted(places)
    assert [numbers[place] for place in places] == sorted(numbers[place] for place in places)
    assert len(places) == longest(numbers, sorted(numbers))
