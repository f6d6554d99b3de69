"""Equality of two model files, and messages about their differences.

Two models are the same when they compute the same from the same inputs by the same operators: metadata, document
strings, producer, names of nodes, of inner values and of graphs, and the order of nodes do not count, nor do numbers
that a converter gives to axes; defaults that one of them omits are filled in; weights are compared by content, wherever
they are stored. The IR version does not affect what a model computes, and is not compared either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.files import sha256_of
from onnxgate.core.text import join_quoted
from onnxgate.model.equality.graph_comparison import GraphComparison, WeightPair
from onnxgate.model.facts import Dim, ValueInfo, element_name
from onnxgate.model.reading.external_data import is_external
from onnxgate.model.reading.fact_extraction import count_operators, list_inputs, read_opsets, read_value_infos
from onnxgate.model.reading.structure import iter_tensors, read_structure
from onnxgate.model.reading.tensor_data import UnreadableWeightError, compare_tensors

if TYPE_CHECKING:
    from onnx import ModelProto

MAX_DIFFERENCES = 10
GENERATED_AXIS_NAME = re.compile(r"unk__\d+")
"""Source: tf2onnx 1.17 names axes of unknown size by a number, which it goes on counting from export to export."""


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """List the first differences between two models; empty if they are the same model."""

    differences: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()  # weights of which floats differ by at most 4 ULP, and nothing else does


def list_differences(old: Path, new: Path) -> tuple[str, ...]:
    """The first few differences of `new` from `old`; none where both are the same model.

    Raises:
        UnreadableModel: one of the files is not a model.
    """
    return compare_models(old, new).differences


def compare_models(old: Path, new: Path) -> ComparisonResult:
    """Compare two models, and list separately what differs only by rounding.

    Raises:
        UnreadableModel: one of the files is not a model.
    """
    first, second = read_structure(old), read_structure(new)
    if _has_same_bytes(first, old, second, new):
        return ComparisonResult()
    rounded: list[str] = []
    differences = tuple(islice(_iter_differences(first, old, second, new, rounded), MAX_DIFFERENCES))
    return ComparisonResult(differences, tuple(rounded[:MAX_DIFFERENCES]))


def _has_same_bytes(first: ModelProto, old: Path, second: ModelProto, new: Path) -> bool:
    if old.stat().st_size != new.stat().st_size or any(is_external(tensor) for _, tensor in iter_tensors(first)):
        return False
    return sha256_of(old) == sha256_of(new)


def _iter_differences(first: ModelProto, old: Path, second: ModelProto, new: Path, rounded: list[str]) -> Iterator[str]:
    """Each difference in words; weights that are only rounded go to `rounded`."""
    has_differences = False
    for text in (*_compare_opsets(first, second), *_compare_interfaces(first, second)):
        has_differences = True
        yield text
    graphs = GraphComparison(first, old, second, new)
    for comparison in sorted(graphs.found, key=lambda comparison: comparison.where):
        has_differences = True
        yield comparison.text
    for pair in sorted(graphs.weights, key=lambda pair: pair.where):
        if text := _compare_weight(pair, old, new, rounded):
            has_differences = True
            yield text
    if not has_differences:
        yield from _compare_unused_parts(first, second)


def _compare_opsets(first: ModelProto, second: ModelProto) -> Iterator[str]:
    before, after = read_opsets(first), read_opsets(second)
    for domain in sorted({*before, *after}):
        if domain not in before:
            yield f"opset {domain} {after[domain]}, was not imported"
        elif domain not in after:
            yield f"opset {domain} is not imported, was {before[domain]}"
        elif before[domain] != after[domain]:
            yield f"opset {domain} {after[domain]}, was {before[domain]}"


def _compare_interfaces(first: ModelProto, second: ModelProto) -> Iterator[str]:
    (old_inputs, old_outputs), (new_inputs, new_outputs) = read_interface(first), read_interface(second)
    yield from _compare_values("input", old_inputs, new_inputs)
    yield from _compare_values("output", old_outputs, new_outputs)


def read_interface(model: ModelProto) -> tuple[tuple[ValueInfo, ...], tuple[ValueInfo, ...]]:
    """Inputs and outputs; names of axes that a converter made up are numbered from the first of them."""
    numbers: dict[Dim, str] = {}
    for value in (
        *(taken := read_value_infos(list_inputs(model.graph))),
        *(outputs := read_value_infos(model.graph.output)),
    ):
        for dim in value.shape or ():
            if isinstance(dim, str) and GENERATED_AXIS_NAME.fullmatch(dim):
                numbers.setdefault(dim, f"unk__{len(numbers)}")
    return _renumber_axes(taken, numbers), _renumber_axes(outputs, numbers)


def _renumber_axes(side: tuple[ValueInfo, ...], numbers: dict[Dim, str]) -> tuple[ValueInfo, ...]:
    shapes = [value.shape and tuple(numbers.get(dim, dim) for dim in value.shape) for value in side]
    return tuple(msgspec.structs.replace(it, shape=shape) for it, shape in zip(side, shapes, strict=True))


def _compare_values(role: str, before: tuple[ValueInfo, ...], after: tuple[ValueInfo, ...]) -> Iterator[str]:
    old, new = {it.name: it for it in before}, {it.name: it for it in after}
    if [*old] != [*new]:
        yield from _compare_names(role, [*old], [*new])
    for name in new:
        if name in old:
            yield from describe_value_change(f"{role} `{name}`", old[name], new[name])


def _compare_names(role: str, old: list[str], new: list[str]) -> Iterator[str]:
    if sorted(old) == sorted(new):
        yield f"{role}s are in the order {join_quoted(new)}, were {join_quoted(old)}"
        return
    if len(old) == len(new):
        yield from (f"{role} `{b}`, was `{a}`" for a, b in zip(old, new, strict=True) if a != b)
        return
    yield from (f"{role} `{name}` is new" for name in new if name not in old)
    yield from (f"{role} `{name}` is gone" for name in old if name not in new)


def describe_value_change(label: str, old: ValueInfo, new: ValueInfo) -> Iterator[str]:
    """What differs between two inputs or outputs, each beginning with the label."""
    if old.type != new.type:
        yield f"{label} is {new.type or 'of no type'}, was {old.type or 'of no type'}"
    if old.shape is None or new.shape is None or len(old.shape) != len(new.shape):
        if old.shape != new.shape:
            yield f"{label} has {_format_rank(new.shape)}, had {_format_rank(old.shape)}"
        return
    for axis, (a, b) in enumerate(zip(old.shape, new.shape, strict=True)):
        if a != b:
            yield f"{label}: axis {axis} is {_format_dim(b)}, was {_format_dim(a)}"


def _format_rank(shape: tuple[Dim, ...] | None) -> str:
    return "no shape" if shape is None else f"{len(shape)} {'axis' if len(shape) == 1 else 'axes'}"


def _format_dim(dim: Dim) -> str:
    return f"`{dim}`" if isinstance(dim, str) else str(dim)


def _compare_weight(pair: WeightPair, old: Path, new: Path, rounded: list[str]) -> str:
    if pair.old.data_type != pair.new.data_type:
        return f"{pair.label} is {element_name(pair.new.data_type)}, was {element_name(pair.old.data_type)}"
    if list(pair.old.dims) != list(pair.new.dims):
        return f"{pair.label} has shape {list(pair.new.dims)}, had {list(pair.old.dims)}"
    try:
        delta = compare_tensors(pair.old, old, pair.new, new)
    except UnreadableWeightError as reason:
        return f"{pair.label} cannot be compared: {reason}"
    if delta is not None and not delta.elements:
        rounded.append(f"{pair.label} in {delta.rounded:,} of {delta.total:,} elements")
    if delta is None or not delta.elements:
        return ""
    largest = f", by up to {delta.largest:.3g}" if delta.largest is not None else ""
    return f"{pair.label} differs in {delta.elements:,} of {delta.total:,} elements{largest}"


def _compare_unused_parts(first: ModelProto, second: ModelProto) -> Iterator[str]:
    """What no output needs, and is in one of the models only."""
    before, after = count_operators(first), count_operators(second)
    for name in sorted({*before, *after}):
        if before.get(name, 0) != after.get(name, 0):
            yield f"{after.get(name, 0)} `{name}` nodes, was {before.get(name, 0)}"
    counts = len(first.graph.initializer), len(second.graph.initializer)
    if counts[0] != counts[1]:
        yield f"{counts[1]} weights, was {counts[0]}"
