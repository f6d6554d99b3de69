"""What two sequences have in common, in order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

_MOST_EDITS = 1000
"""Above so many differences the shortest script is no longer looked for. It takes their square in steps and memory."""


def increasing(numbers: Sequence[int]) -> list[int]:
    """The places of a longest increasing part of distinct numbers."""
    ends: list[int] = []
    places: list[int] = []
    before = [-1] * len(numbers)
    for place, number in enumerate(numbers):
        at = bisect_left(ends, number)
        before[place] = places[at - 1] if at else -1
        ends[at : at + 1] = [number]
        places[at : at + 1] = [place]
    found: list[int] = []
    place = places[-1] if places else -1
    while place >= 0:
        found.append(place)
        place = before[place]
    return found[::-1]


def common(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Places of a longest common part (Myers 1986); where the sequences differ too much, of a long one."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        yield start, start
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
        yield len(old) - end, len(new) - end
    inner = old[start : len(old) - end], new[start : len(new) - end]
    if inner[0] and inner[1]:
        for i, j in _myers(*inner):
            yield i + start, j + start


def _myers(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[int, int]]:
    trace = _trace(old, new)
    if trace is None:
        yield from _blocks(old, new)
        return
    x, y = len(old), len(new)
    for edits in range(len(trace) - 1, -1, -1):
        furthest, k = trace[edits], x - y
        k += 1 if _down(furthest, edits, k) else -1
        start = furthest[k + edits + 1]
        while x > start and y > start - k:
            x, y = x - 1, y - 1
            yield x, y
        x, y = start, start - k


def _down(furthest: Sequence[int], edits: int, k: int) -> bool:
    """The path to diagonal `k` comes from the one above it; `furthest` begins with diagonal `-edits - 1`."""
    at = k + edits + 1
    return k == -edits or (k != edits and furthest[at - 1] < furthest[at + 1])


def _trace(old: Sequence[int], new: Sequence[int]) -> list[list[int]] | None:
    """How far each diagonal reaches before each further edit; None where there are too many."""
    most = min(len(old) + len(new), _MOST_EDITS)
    middle = most + 1
    furthest = [-1] * (2 * most + 3)
    furthest[middle + 1] = 0
    trace: list[list[int]] = []
    for edits in range(most + 1):
        seen = furthest[middle - edits - 1 : middle + edits + 2]
        trace.append(seen)
        for k in range(-edits, edits + 1, 2):
            x = seen[k + edits + 2] if _down(seen, edits, k) else seen[k + edits] + 1
            while x < len(old) and x - k < len(new) and old[x] == new[x - k]:
                x += 1
            furthest[middle + k] = x
            if x >= len(old) and x - k >= len(new):
                return trace
    return None


def _blocks(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[int, int]]:
    import difflib

    for block in difflib.SequenceMatcher(None, old, new, autojunk=True).get_matching_blocks():
        for place in range(block.size):
            yield block.a + place, block.b + place
