"""What became of each weight, as a reader is told it."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.model.difference import WeightChange
from onnxgate.model.drift import Drift, drift, numbers
from onnxgate.model.pairing import Models, WeightMatch
from onnxgate.model.types import STRING, count_of, element_name
from onnxgate.model.weights import UnreadableWeightError
from onnxgate.model.wiring import Weight

_BOOL = 9
SMALL = 8
"""Weights of so many elements and less are shown with what they hold."""


def weight_changes(models: Models) -> Iterator[WeightChange]:
    """Each weight that is not as it was."""
    held = {pair.old.content: pair.old.name for pair in models.weights if pair.old is not None}
    for pair in models.weights:
        if not pair.same:
            yield _change(pair, held)


def _change(pair: WeightMatch, held: dict[tuple[object, ...], str]) -> WeightChange:
    if pair.old is None:
        assert pair.new is not None
        name = pair.copy_of.name if pair.copy_of is not None else ""
        return _after(pair.new, "copied" if pair.copy_of is not None else "added", was=name)
    if pair.new is None:
        return _removed(pair.old)
    return _moved(pair.old, pair.new, held)


def _after(weight: Weight, change: str, **more: object) -> WeightChange:
    return WeightChange(
        change=change,  # type: ignore[arg-type]
        name=weight.name,
        type=element_name(weight.type),
        shape=weight.dims,
        sha256=weight.digest,
        values=values_text(weight),
        text=weight.problem,
        **more,  # type: ignore[arg-type]
    )


def _removed(weight: Weight) -> WeightChange:
    return WeightChange(
        change="removed",
        name=weight.name,
        was_type=element_name(weight.type),
        was_shape=weight.dims,
        was_sha256=weight.digest,
        was_values=values_text(weight),
        text=weight.problem,
    )


def _moved(old: Weight, new: Weight, held: dict[tuple[object, ...], str]) -> WeightChange:
    before: dict[str, object] = {
        "was": old.name if old.name != new.name else "",
        "was_type": element_name(old.type),
        "was_shape": old.dims,
        "was_sha256": old.digest,
        "was_values": values_text(old),
    }
    unread = [it for it in (old, new) if not it.digest]
    if unread:
        return _noted(_after(new, "unreadable", **before), text=f"cannot be compared: {unread[0].problem}")
    try:
        found = drift(old, new)
    except (UnreadableWeightError, OSError) as reason:
        return _noted(_after(new, "unreadable", **before), text=f"cannot be compared: {reason}")
    if found is not None:
        before |= {"elements": found.elements, "total": found.total, "largest": found.largest}
        before |= {"relative": found.relative}
    return _noted(_after(new, "changed", **before), text="; ".join(_else(new, found, held)))


def _else(new: Weight, found: Drift | None, held: dict[tuple[object, ...], str]) -> Iterator[str]:
    elsewhere = held.get(new.content, "")
    if elsewhere and count_of(new.dims) > 1:
        yield f"holds what `{elsewhere}` held"
    if found is not None and found.unbounded:
        several = "1 element is, or was," if found.unbounded == 1 else f"{found.unbounded:,} elements are, or were,"
        yield f"{several} NaN or infinite"


def _noted(change: WeightChange, *, text: str) -> WeightChange:
    """The change with what else there is to say of it."""
    import msgspec

    return msgspec.structs.replace(change, text=text)


def values_text(weight: Weight) -> str:
    """What a small weight holds: `[1, -1]`, `0.5`; "" of all others."""
    total = count_of(weight.dims)
    if not 0 < total <= SMALL or len(weight.tensors) != 1 or not weight.digest:
        return ""
    if weight.type == STRING:
        texts = [f'"{text.decode(errors="replace")}"' for text in weight.tensors[0].string_data]
        return texts[0] if not weight.dims and texts else f"[{', '.join(texts)}]"
    found = numbers(weight)
    if found is None:
        return ""
    shown = [str(value) for stretch in found for value in stretch]  # as few digits as tell it from its neighbours
    if weight.type == _BOOL:
        shown = ["true" if value != "0" else "false" for value in shown]
    return shown[0] if not weight.dims and shown else f"[{', '.join(shown)}]"
