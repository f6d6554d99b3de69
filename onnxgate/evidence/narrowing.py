"""What a model's types and shapes no longer accept, and what they no longer promise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from onnxgate.evidence.interfaces import Pair
from onnxgate.model.facts import Dim, ValueInfo

UNNAMED = "?"


class OneSize(msgspec.Struct, frozen=True):
    """Axes that are declared to be of one size, and were not; an axis is the name of its input and its number."""

    symbol: str
    axes: tuple[tuple[str, int], ...]
    were_named: bool  # the file said before that they are different ones, by number or name


def widened(before: str, after: str) -> bool:
    """Whether what had the one type has the other.

    Source: ONNX Runtime 1.23 takes a tensor for an `optional(tensor)`.
    """
    return after in (before, f"optional({before})")


def same_kind(pair: Pair) -> bool:
    """Whether shapes can be compared: both are tensors, or both sequences."""
    return pair.before.type.partition("(")[0] == pair.after.type.partition("(")[0]


def ranks_differ(pair: Pair) -> bool:
    """Whether both ranks are known, and another one each."""
    before, after = pair.before.shape, pair.after.shape
    return before is not None and after is not None and len(before) != len(after)


def narrowed(pair: Pair) -> bool:
    """Whether an input refuses a shape that it accepted, whatever the other inputs are given."""
    before, after = pair.before.shape, pair.after.shape
    if after is None or not same_kind(pair):
        return False
    if before is None or len(before) != len(after):
        return True
    return any(isinstance(now, int) and was != now for was, now in zip(before, after, strict=True))


def newly_of_one_size(pairs: Iterable[Pair]) -> Iterator[OneSize]:
    """Axes of inputs that have one symbol, where sizes that differ were accepted: in the order of the symbols."""
    found: dict[str, list[tuple[str, int, Dim]]] = {}
    for pair in pairs:
        for axis, (was, now) in enumerate(_axes(pair)):
            if isinstance(now, str) and now != UNNAMED:
                found.setdefault(now, []).append((pair.after.name, axis, was))
    for symbol, axes in sorted(found.items()):
        named = {was for _, _, was in axes if _is_said(was)}
        unnamed = sum(not _is_said(was) for _, _, was in axes)
        if len(named) + unnamed > 1:
            yield OneSize(symbol, tuple((name, axis) for name, axis, _ in axes), were_named=len(named) > 1)


def _axes(pair: Pair) -> Sequence[tuple[Dim, Dim]]:
    before, after = pair.before.shape, pair.after.shape
    if before is None or after is None or len(before) != len(after) or not same_kind(pair):
        return ()
    return tuple(zip(before, after, strict=True))


def _is_said(dim: Dim) -> bool:
    """Whether a file says by it what other axis it equals.

    Source: names that torch.onnx (`x_dynamic_axes_1`) and tf2onnx (`unk__6`) make up, another one for each axis.
    """
    if isinstance(dim, int):
        return True
    return dim != UNNAMED and "_dynamic_axes_" not in dim and not dim.startswith("unk__")


def reshaped(pair: Pair) -> bool:
    """Whether an output has another rank, or another size where its size was known."""
    before, after = pair.before.shape, pair.after.shape
    if before is None or after is None or not same_kind(pair):
        return False
    return len(before) != len(after) or any(
        isinstance(was, int) and isinstance(now, int) and was != now for was, now in _axes(pair)
    )


def unfixed(pair: Pair, inputs: Sequence[Pair]) -> bool:
    """Whether an output's rank or a size of it was known, and is not.

    A size that follows one of the inputs, which had this very size, is known to whoever feeds what they fed.
    """
    if pair.after.shape is None and same_kind(pair):
        return pair.before.shape is not None
    followed = {(was, now) for each in inputs for was, now in _axes(each)}
    return any(
        isinstance(was, int) and isinstance(now, str) and (now == UNNAMED or (was, now) not in followed)
        for was, now in _axes(pair)
    )


def spell(value: ValueInfo, *, unknown: str = "any shape") -> str:
    """A shape in words: "[N, 4]"."""
    return unknown if value.shape is None else f"[{', '.join(map(str, value.shape))}]"


def typed(value: ValueInfo) -> str:
    """Type and shape in words: "`tensor(float)` [N, 4]"."""
    return f"`{value.type}` {spell(value, unknown='')}".rstrip()
