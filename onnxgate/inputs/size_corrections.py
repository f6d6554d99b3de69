"""Sizes of dynamic axes that the error text of a failed run suggests."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

MAX_SIZE = 1 << 16
"""Maximum size that is suggested for an axis."""

_ORIENTED = tuple(
    re.compile(pattern)
    for pattern in (
        r"Got: (?P<actual>\d+),? Expected: (?P<required>\d+)",
        r"C: (?P<actual>\d+) kernel channels: (?P<required>\d+) group: 1\b",
        r"W: ?\{(?P<required>\d+),\d+\} K: (?P<actual>\d+)",
        r"\[axis:\] == (?P<actual>\d+)\..* scale size of (?P<required>\d+)",
        r"X\.shape=\{[\d,]*?(?P<actual>\d+)\} scale\.shape=\{(?P<required>\d+)\}",
    )
)
"""Patterns with the actual and the required size.

Source: inputs, Conv, Gemm and LayerNormalization of ONNX Runtime 1.19 and 1.31.
"""
_UNORIENTED = tuple(
    re.compile(pattern)
    for pattern in (
        r"mismatched dimensions of (\d+) and (\d+)",
        r"dimension other than 1\. (\d+) by (\d+)",
        r"(\d+) (?:!=|vs\.?|and) (\d+)",
    )
)
"""Patterns with two sizes that must be equal. Source: Concat and elementwise operators of 1.19 and 1.31."""
_SHAPE = re.compile(r"[{\[(](\d+(?:, ?\d+)*),?[}\])]")
_REQUIRED_FIRST = re.compile(r"must have shape|[Ee]xpected(?: shape)?:? ?[{\[(]")


def list_corrections(text: str, setting: Mapping[str, int], axes: Sequence[str]) -> list[dict[str, int]]:
    """Return settings that may prevent the error of a run with `setting`, best ones first. Only `axes` are changed."""
    corrections = [
        {**setting, **dict.fromkeys(names, size)}
        for actual, required in _find_pairs(text)
        for names, size in _list_changes(setting, axes, actual, required)
        if 0 < size <= MAX_SIZE
    ]
    return [it for index, it in enumerate(corrections) if it != setting and it not in corrections[:index]]


def _list_changes(
    setting: Mapping[str, int], axes: Sequence[str], actual: int, required: int
) -> Iterator[tuple[Sequence[str], int]]:
    """Yield axes and their size: axes of the actual size, or else axes from which this size may be computed."""
    equal = [name for name in axes if setting[name] == actual]
    for name in equal:
        yield [name], required
    if len(equal) > 1:
        yield equal, required
    for name in axes if not equal else ():
        size = setting[name]
        if size > 1 and actual and size * required % actual == 0:
            yield [name], size * required // actual
        elif size > 1:
            yield [name], size + required - actual


def _find_pairs(text: str) -> list[tuple[int, int]]:
    """Return pairs of an actual and a required size that the text contains, without duplicates."""
    matches = (match for form in _ORIENTED for match in form.finditer(text))
    pairs = [(int(match["actual"]), int(match["required"])) for match in matches]
    shapes = [tuple(map(int, sizes.split(","))) for sizes in _SHAPE.findall(text)]
    for first, second in itertools.pairwise(shapes):
        if len(first) == len(second):
            differing = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
            pairs += () if _REQUIRED_FIRST.search(text) else differing
            pairs += [(b, a) for a, b in differing]
    for a, b in (sizes for form in _UNORIENTED for sizes in form.findall(text)):
        pairs += [(int(a), int(b)), (int(b), int(a))]
    return [pair for pair in dict.fromkeys(pairs) if pair[0] != pair[1]]
