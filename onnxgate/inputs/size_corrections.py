"""Sizes of dynamic axes that the error text of a failed run suggests."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

MAX_SIZE = 1 << 16
"""Maximum size that is suggested for an axis."""

_ORIENTED = tuple(
    re.compile(pattern)
    for pattern in (
        r"Got: (?P<actual>\d+),? Expected: (?P<required>\d+)",
        r"C: (?P<actual>\d+) kernel channels: (?P<required>\d+) group: (?P<group>\d+)",
        r"W: ?\{(?P<required>\d+),(?P<n>\d+)\} K: (?P<actual>\d+) N: ?(?P=n)\b",
        r"W: ?\{(?P<n>\d+),(?P<required>\d+)\} K: (?P<actual>\d+) N: ?(?P=n)\b",
        r"\[axis:\] == (?P<actual>\d+)\..* scale size of (?P<required>\d+)",
        r"X\.shape=\{[\d,]*?(?P<actual>\d+)\} scale\.shape=\{(?P<required>\d+)\}",
    )
)
"""Patterns with the actual and the required size, which is a multiple if there is a group.

Source: inputs, Conv, Gemm and LayerNormalization of ONNX Runtime 1.19 and 1.31.
"""
_UNORIENTED = tuple(
    re.compile(pattern)
    for pattern in (
        r"mismatched dimensions of (\d+) and (\d+)",
        r"dimension other than 1\. (\d+) by (\d+)",
        r"(\d+) (?:!=|vs\.?|and) (\d+)",
        *(
            rf"in the dimension {axis}\. The shape is: \{{(?:\d+,){{{axis}}}(\d+)[,}}].*has a dim value of (\d+)"
            for axis in range(4)
        ),
    )
)
"""Patterns with two sizes that must be equal. Source: Concat, Einsum and elementwise operators of 1.19 and 1.31."""
_TOO_SMALL = re.compile(r"Invalid input shape: \{(\d+(?:,\d+)*)\}")
"""Spatial sizes that are smaller than a kernel. Source: Conv and pooling of 1.18 and 1.31."""
_GROWTH = 4
"""Factor for sizes that are too small."""
_UPDATES = re.compile(r"updates shape: \{([\d,]+)\}, indices shape: \{([\d,]+)\}, data shape: \{([\d,]+)\}")
"""Shapes of ScatterND of 1.18 and 1.31."""
_OUTSIDE = re.compile(
    r"invalid ind\w+ found, ind\w+ = (\d+)|idx=(\d+) must be within the inclusive range \[-?\d+,\d+\]"
)
"""An index that requires a larger axis. Source: ScatterND, GatherND and Gather of 1.18 and 1.31."""
_RESHAPED = re.compile(r"Input shape:\{(\d+(?:,\d+)*)\}, requested shape:\{(-?\d+(?:,-?\d+)*)\}")
"""Shapes of `Reshape` of 1.18 and 1.31."""
_SHAPE = re.compile(r"[{\[(](\d+(?:, ?\d+)*),?[}\])]")
_REQUIRED_FIRST = re.compile(r"must have shape|[Ee]xpected(?: shape)?:? ?[{\[(]")


class Corrections(NamedTuple):
    """Settings that may prevent an error, by the way in which they are found, most likely ones first.

    `replaced` replace a size in the error text. The others change sizes from which a size in the text may be computed:
    `areas` as an area, `scaled` as a multiple, `shifted` as a sum.
    """

    replaced: list[dict[str, int]]
    areas: list[dict[str, int]]
    scaled: list[dict[str, int]]
    shifted: list[dict[str, int]]

    def take(self) -> dict[str, int] | None:
        """Remove and return the most likely setting; None if there is none."""
        return next((settings.pop(0) for settings in self if settings), None)


def list_corrections(
    text: str, setting: Mapping[str, int], axes: Sequence[str], leading: Sequence[str] = ()
) -> Corrections:
    """Return settings that may prevent the error of a run with `setting`. Only `axes` are changed.

    A size is not computed from `leading` axes, such as batches, if there are others.
    """
    pairs = _find_pairs(text)
    computed = [(a, b) for a, b in pairs if a and all(setting[name] != a for name in axes)]
    larger = [name for name in axes if setting[name] > 1]
    larger = [name for name in larger if name not in leading] or larger
    kinds = (
        [
            *_list_squares(setting, larger, pairs),
            *_list_replacements(setting, axes, pairs),
            *_list_larger(text, setting, axes),
        ],
        [it for a, b in computed for it in _list_areas(setting, larger, b / a)],
        [{name: round(setting[name] * b / a)} for a, b in computed for name in larger],
        [{name: setting[name] + b - a} for a, b in computed for name in larger],
    )
    return Corrections(*(_apply(changes, setting) for changes in kinds))


def _apply(changes: Sequence[Mapping[str, int]], setting: Mapping[str, int]) -> list[dict[str, int]]:
    """Return changed settings without duplicates and without sizes that are too large."""
    changed = [{**setting, **sizes} for sizes in changes if all(0 < size <= MAX_SIZE for size in sizes.values())]
    return [it for index, it in enumerate(changed) if it != setting and it not in changed[:index]]


def _list_replacements(
    setting: Mapping[str, int], axes: Sequence[str], pairs: Sequence[tuple[int, int]]
) -> Iterator[dict[str, int]]:
    """Yield the required size for axes of the actual size, for each of them and for all."""
    for actual, required in pairs:
        equal = [name for name in axes if setting[name] == actual]
        for name in equal:
            yield {name: required}
        yield dict.fromkeys(equal, required)


def _list_larger(text: str, setting: Mapping[str, int], axes: Sequence[str]) -> Iterator[dict[str, int]]:
    """Yield larger sizes if the text reports that sizes are too small."""
    if match := _TOO_SMALL.search(text):
        sizes = {*map(int, match[1].split(","))}
        matching = [name for name in axes if setting[name] in sizes] or [name for name in axes if setting[name] > 1]
        yield {name: _GROWTH * setting[name] for name in matching}
    if match := _OUTSIDE.search(text):
        index = int(match[1] or match[2])
        small = sorted((name for name in axes if setting[name] <= index), key=lambda name: -setting[name])
        pairs = sorted(itertools.combinations(axes, 2), key=lambda pair: -sum(setting[name] for name in pair))
        for name, pair in itertools.product(small, pairs):
            total = sum(setting[other] for other in pair)  # such as past and new tokens
            yield {name: total} if total > index and name not in pair else {}
        yield from ({name: index + 1} for name in small)


def _list_areas(setting: Mapping[str, int], axes: Sequence[str], ratio: float) -> Iterator[dict[str, int]]:
    """Yield sizes of the two largest axes that change their product by a ratio: equal sizes, then scaled ones."""
    if len(axes) > 1:
        first, second = sorted(axes, key=lambda name: setting[name])[-2:]
        yield dict.fromkeys((first, second), round(math.sqrt(ratio * setting[first] * setting[second])))
        yield {name: round(math.sqrt(ratio) * setting[name]) for name in (first, second)}


def _list_squares(
    setting: Mapping[str, int], axes: Sequence[str], pairs: Sequence[tuple[int, int]]
) -> Iterator[dict[str, int]]:
    """Yield equal sizes of the two largest axes if their area has the required ratio exactly.

    A size in the text may be a number of patches that is equal to the size of an axis by chance.
    """
    if len(axes) < 2:
        return
    first, second = sorted(axes, key=lambda name: setting[name])[-2:]
    for actual, required in pairs:
        area, rest = divmod(setting[first] * setting[second] * required, max(actual, 1))
        if setting[first] != setting[second] == actual and not rest and math.isqrt(area) ** 2 == area:
            yield dict.fromkeys((first, second), math.isqrt(area))


def _find_pairs(text: str) -> list[tuple[int, int]]:
    """Return pairs of an actual and a required size that the text contains, without duplicates."""
    matches = (match for form in _ORIENTED for match in form.finditer(text))
    pairs = [
        (int(match["actual"]), int(match["required"]) * int(match.groupdict().get("group") or 1)) for match in matches
    ]
    if match := _RESHAPED.search(text):
        count, required = (abs(math.prod(map(int, sizes.split(",")))) for sizes in match.groups())
        multiple = required * -(-count // required) if required and "-" in match[2] else required
        pairs += [(count, multiple)] if multiple else []
    shapes = [tuple(map(int, sizes.split(","))) for sizes in _SHAPE.findall(text)]
    if match := _UPDATES.search(text):
        updates, indices, data = (tuple(map(int, sizes.split(","))) for sizes in match.groups())
        shapes = [updates, (*indices[:-1], *data[indices[-1] :])]
    for first, second in itertools.pairwise(shapes):
        if len(first) == len(second):
            differing = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
            pairs += () if _REQUIRED_FIRST.search(text) else differing
            pairs += [(b, a) for a, b in differing]
    for a, b in (sizes for form in _UNORIENTED for sizes in form.findall(text)):
        pairs += [(int(a), int(b)), (int(b), int(a))]
    return [pair for pair in dict.fromkeys(pairs) if pair[0] != pair[1]]
