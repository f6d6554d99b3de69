"""Common subsequences and longest increasing subsequences."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxgate.model.equality import node_matching
from onnxgate.model.equality.node_matching import common_subsequence, longest_increasing_subsequence

LETTERS = st.lists(st.integers(0, 3), max_size=14)


@pytest.mark.parametrize("max_pairs", [1, 1_000_000])
@given(old=LETTERS, new=LETTERS)
def test_common(max_pairs: int, old: list[int], new: list[int]) -> None:
    """Equal elements, each once and in order in both sequences, and all of them if the sequences are equal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_matching, "_MAX_EXACT_PAIRS", max_pairs)
        pairs = list(common_subsequence(old, new))
        identical = list(common_subsequence(old, old))

    assert all(old[i] == new[j] for i, j in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))
    assert identical == [(index, index) for index in range(len(old))]


@given(numbers=st.permutations(range(7)))
def test_increasing(numbers: list[int]) -> None:
    """The selected elements increase, and no longer selection does."""
    places = longest_increasing_subsequence(numbers)
    selections = (it for size in range(8) for it in itertools.combinations(numbers, size))

    assert places == sorted(places)
    assert [numbers[place] for place in places] == sorted(numbers[place] for place in places)
    assert len(places) == max(len(it) for it in selections if list(it) == sorted(it))
