"""Whether two files hold the same model, and if not, what differs, in a reader's words.

Two models are the same when they compute the same from the same inputs by the same operators: metadata, document
strings, producer, names of nodes, of inner values and of graphs, and the order of nodes do not count, nor do numbers
that a converter gives to axes; defaults that one
of them spells out are filled in in the other; weights count by what they hold, wherever it lies. The IR version is how
a model is written down, not what it computes, and does not count either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.model.facts import Dim, ValueInfo
from onnxgate.model.hashing import sha256_of
from onnxgate.model.matching import Matching, WeightPair
from onnxgate.model.reading import inputs, operators, opsets, values
from onnxgate.model.structure import read_structure, tensors
from onnxgate.model.types import element_name
from onnxgate.model.weights import UnreadableWeightError, difference

if TYPE_CHECKING:
    from onnx import ModelProto

MOST = 10
MADE_UP = re.compile(r"unk__\d+")
"""Source: tf2onnx 1.17 names axes of unknown size by a number, which it goes on counting from export to export."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What differs between two models, the first few; both are the same model where nothing does."""

    differences: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()  # weights of which floats differ by at most 4 ULP, and nothing else does


def differences(old: Path, new: Path) -> tuple[str, ...]:
    """The first few differences of `new` from `old`; none where both are the same model.

    Raises:
        UnreadableModel: one of the files is no model.
    """
    return compare(old, new).differences


def compare(old: Path, new: Path) -> Compared:
    """The same, with what is equal only but for rounding.

    Raises:
        UnreadableModel: one of the files is no model.
    """
    first, second = read_structure(old), read_structure(new)
    if _same_bytes(first, old, second, new):
        return Compared()
    rounded: list[str] = []
    found = tuple(islice(_differences(first, old, second, new, rounded), MOST))
    return Compared(found, tuple(rounded[:MOST]))


def _same_bytes(first: ModelProto, old: Path, second: ModelProto, new: Path) -> bool:
    from onnxgate.model.external import is_external

    if old.stat().st_size != new.stat().st_size or any(is_external(tensor) for _, tensor in tensors(first)):
        return False
    return sha256_of(old) == sha256_of(new)


def _differences(first: ModelProto, old: Path, second: ModelProto, new: Path, rounded: list[str]) -> Iterator[str]:
    """Each difference in words; weights that are only rounded go to `rounded`."""
    said = False
    for text in (*_opsets(first, second), *_interface(first, second)):
        said = True
        yield text
    matching = Matching(first, second)
    for found in sorted(matching.found, key=lambda found: found.where):
        said = True
        yield found.text
    for pair in sorted(matching.weights, key=lambda pair: pair.where):
        if text := _weight(pair, old, new, rounded):
            said = True
            yield text
    if not said:
        yield from _leftovers(first, second)


def _opsets(first: ModelProto, second: ModelProto) -> Iterator[str]:
    before, after = opsets(first), opsets(second)
    for domain in sorted({*before, *after}):
        if domain not in before:
            yield f"opset {domain} {after[domain]}, was not imported"
        elif domain not in after:
            yield f"opset {domain} is not imported, was {before[domain]}"
        elif before[domain] != after[domain]:
            yield f"opset {domain} {after[domain]}, was {before[domain]}"


def _interface(first: ModelProto, second: ModelProto) -> Iterator[str]:
    (old_inputs, old_outputs), (new_inputs, new_outputs) = sides_of(first), sides_of(second)
    yield from _sides("input", old_inputs, new_inputs)
    yield from _sides("output", old_outputs, new_outputs)


def sides_of(model: ModelProto) -> tuple[tuple[ValueInfo, ...], tuple[ValueInfo, ...]]:
    """Inputs and outputs; names of axes that a converter made up are numbered from the first of them."""
    numbers: dict[Dim, str] = {}
    for value in (*(taken := values(inputs(model.graph))), *(given := values(model.graph.output))):
        for dim in value.shape or ():
            if isinstance(dim, str) and MADE_UP.fullmatch(dim):
                numbers.setdefault(dim, f"unk__{len(numbers)}")
    return _renumbered(taken, numbers), _renumbered(given, numbers)


def _renumbered(side: tuple[ValueInfo, ...], numbers: dict[Dim, str]) -> tuple[ValueInfo, ...]:
    shapes = [value.shape and tuple(numbers.get(dim, dim) for dim in value.shape) for value in side]
    return tuple(msgspec.structs.replace(it, shape=shape) for it, shape in zip(side, shapes, strict=True))


def _sides(role: str, before: tuple[ValueInfo, ...], after: tuple[ValueInfo, ...]) -> Iterator[str]:
    old, new = {it.name: it for it in before}, {it.name: it for it in after}
    if [*old] != [*new]:
        yield from _names(role, [*old], [*new])
    for name in new:
        if name in old:
            yield from value_words(f"{role} `{name}`", old[name], new[name])


def _names(role: str, old: list[str], new: list[str]) -> Iterator[str]:
    if sorted(old) == sorted(new):
        yield f"{role}s are in the order {_listed(new)}, were {_listed(old)}"
        return
    if len(old) == len(new):
        yield from (f"{role} `{b}`, was `{a}`" for a, b in zip(old, new, strict=True) if a != b)
        return
    yield from (f"{role} `{name}` is new" for name in new if name not in old)
    yield from (f"{role} `{name}` is gone" for name in old if name not in new)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def value_words(label: str, old: ValueInfo, new: ValueInfo) -> Iterator[str]:
    """What differs between two inputs or outputs, each beginning with the label."""
    if old.type != new.type:
        yield f"{label} is {new.type or 'of no type'}, was {old.type or 'of no type'}"
    if old.shape is None or new.shape is None or len(old.shape) != len(new.shape):
        if old.shape != new.shape:
            yield f"{label} has {_rank(new.shape)}, had {_rank(old.shape)}"
        return
    for axis, (a, b) in enumerate(zip(old.shape, new.shape, strict=True)):
        if a != b:
            yield f"{label}: axis {axis} is {_dim(b)}, was {_dim(a)}"


def _rank(shape: tuple[Dim, ...] | None) -> str:
    return "no shape" if shape is None else f"{len(shape)} {'axis' if len(shape) == 1 else 'axes'}"


def _dim(dim: Dim) -> str:
    return f"`{dim}`" if isinstance(dim, str) else str(dim)


def _weight(pair: WeightPair, old: Path, new: Path, rounded: list[str]) -> str:
    if pair.old.data_type != pair.new.data_type:
        return f"{pair.label} is {element_name(pair.new.data_type)}, was {element_name(pair.old.data_type)}"
    if list(pair.old.dims) != list(pair.new.dims):
        return f"{pair.label} has shape {list(pair.new.dims)}, had {list(pair.old.dims)}"
    try:
        delta = difference(pair.old, old, pair.new, new)
    except UnreadableWeightError as reason:
        return f"{pair.label} cannot be compared: {reason}"
    if delta is not None and not delta.elements:
        rounded.append(f"{pair.label} in {delta.rounded:,} of {delta.total:,} elements")
    if delta is None or not delta.elements:
        return ""
    largest = f", by up to {delta.largest:.3g}" if delta.largest is not None else ""
    return f"{pair.label} differs in {delta.elements:,} of {delta.total:,} elements{largest}"


def _leftovers(first: ModelProto, second: ModelProto) -> Iterator[str]:
    """What no output needs, and is in one of the models only."""
    before, after = operators(first), operators(second)
    for name in sorted({*before, *after}):
        if before.get(name, 0) != after.get(name, 0):
            yield f"{after.get(name, 0)} `{name}` nodes, was {before.get(name, 0)}"
    counts = len(first.graph.initializer), len(second.graph.initializer)
    if counts[0] != counts[1]:
        yield f"{counts[1]} weights, was {counts[0]}"
