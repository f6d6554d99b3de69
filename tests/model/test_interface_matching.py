"""Matching of inputs and outputs, including renamed ones."""

from __future__ import annotations

import itertools

import pytest

from onnxgate.model import interface_matching
from onnxgate.model.facts import ValueInfo
from onnxgate.model.interface_matching import MAX_PAIRINGS, match_values

FLOAT = "tensor(float)"


def value(spelled: str) -> ValueInfo:
    """Parse "x:int64[N,4]" or "x:[N,4]"; the default is a float of rank 1."""
    name, _, rest = spelled.partition(":")
    element, _, shape = rest.partition("[")
    dims = tuple(int(dim) if dim.isdigit() else dim for dim in shape.rstrip("]").split(",")) if shape else ("N",)
    return ValueInfo(name, f"tensor({element or 'float'})", None if shape == "none]" else dims)


@pytest.mark.parametrize(
    ("before", "after", "renamed", "added", "removed"),
    [
        ("a", "b", "a=b", "", ""),
        ("a x", "b x", "a=b", "", ""),
        ("x a y", "x b y", "a=b", "", ""),
        ("a b c", "d e f", "a=d b=e c=f", "", ""),  # each in its position
        ("a b:int64", "c:int64 d", "a=d b=c", "", ""),  # no position matches; each has one match
        ("a b:int64 c", "d e f:int64", "a=d b=f c=e", "", ""),  # the match by position leaves one match for the others
        ("a:int64 x", "x b:int64", "a=b", "", ""),  # in another position, but the only match
        ("a:int64 x b:int64", "x c:int64", "b=c", "", "a"),  # between its neighbors
        ("a x", "x b:int64", "", "b", "a"),
        ("a:[N,4]", "b:[N,5]", "", "b", "a"),
        ("a:[N,4]", "b:[1,4]", "a=b", "", ""),  # also narrowed, which is a separate finding
        ("a:[N,4]", "b:[N]", "", "b", "a"),
        ("a:[none]", "b:[3]", "a=b", "", ""),
        ("a", "b c", "a=b", "c", ""),  # the same distance from the front
        ("a x", "x b c", "", "b c", "a"),  # one of two, ambiguous
        ("a b x", "x c", "", "c", "a b"),  # from one of two, also ambiguous
        ("a", "b:int64 c", "a=c", "b", ""),
        ("", "a", "", "a", ""),
        ("a", "", "", "", "a"),
    ],
)
def test_renamed(before: str, after: str, renamed: str, added: str, removed: str) -> None:
    """Values are renamed if position, type and shape match unambiguously."""
    values = match_values([value(each) for each in before.split()], [value(each) for each in after.split()])

    assert renamed.split() == [f"{pair.before.name}={pair.after.name}" for pair in values.pairs if pair.renamed]
    assert (added.split(), removed.split()) == tuple(
        [single.value.name for single in side] for side in (values.added, values.removed)
    )


def test_many_renamed_values_are_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of renamed inputs take linear time."""
    tried = itertools.count()
    monkeypatch.setattr(interface_matching, "is_compatible", lambda before, after: next(tried) < 0)
    side = [value(f"a{index}") for index in range(1000)]

    match_values(side, [value(f"b{index}") for index in range(1000)])

    assert next(tried) < MAX_PAIRINGS
