"""Compare the shapes of outputs with those that the model declares."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.evidence.runtime import WrongShape
from onnxgate.inputs.axis_sizes import (
    TOTAL_FORMULAS,
    UNKNOWN_AXIS_NAMES,
    compute_formula,
    list_formula_names,
    parse_formula,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxgate.core.jobs import InputCase
    from onnxgate.model.facts import Dim, ModelFacts, ValueInfo
    from onnxgate.model.reading.view import ModelView


@dataclass(frozen=True, slots=True)
class DeclaredOutputs:
    """Declared shapes of the outputs, by name, and the axis sizes of the inputs in one case.

    An output axis is checked if its size is fixed, if an input axis has the same name, or if its name is a formula over
    names of input axes. The size of any other axis depends on the data and is not checked.
    """

    outputs: Mapping[str, ValueInfo]
    sizes: Mapping[str, int]
    read: frozenset[str] = frozenset()  # outputs that a node also reads
    inputs: tuple[tuple[Dim, ...], ...] = ()  # declared shapes of the inputs
    counts_data: bool = False  # sizes may depend on the elements of inputs

    def find_contradiction(self, output: str, array: NDArray[Any]) -> WrongShape | None:
        """Return the difference between the actual and the declared shape of an output; None if they agree."""
        value = self.outputs.get(output)
        if value is None or value.shape is None or not value.type.startswith("tensor("):
            return None
        declared = [self._declared_size(dim) for dim in value.shape]
        if len(declared) == array.ndim and all(
            size in (None, actual) for size, actual in zip(declared, array.shape, strict=True)
        ):
            return None
        wrong = [
            (index, dim)
            for index, (dim, size, actual) in enumerate(zip(value.shape, declared, array.shape, strict=False))
            if isinstance(dim, str) and size not in (None, actual) and len(declared) == array.ndim
        ]
        is_renamed = any(dim in self.sizes and not self._is_kept(dim, index, array.ndim) for index, dim in wrong)
        same_rank = is_renamed and self.counts_data
        return WrongShape(
            output=output,
            declared=_format_shape(value.shape),
            shape=_format_shape(array.shape),
            axes=tuple(sorted({axis for _, dim in wrong for axis in self._list_axes(dim)})),
            misnamed=all(
                dim in self.sizes and not self._is_kept(dim, index, array.ndim, same_rank=same_rank)
                for index, dim in wrong
            ),
            is_read=output in self.read,
        )

    def _is_kept(self, dim: Dim, index: int, rank: int, *, same_rank: bool = False) -> bool:
        """Return whether a model seems to keep an axis: the first one, or one at the same place as in an input.

        The input must have as many axes unless the axis is the first one and `same_rank` is false.
        """
        ranks = {len(shape) for shape in self.inputs if len(shape) > index and shape[index] == dim}
        return rank in ranks or (bool(ranks) and index == 0 and not same_rank)

    def _list_axes(self, dim: str) -> Iterable[str]:
        """Return the input axes to which the declared size refers."""
        tree = None if dim in self.sizes else parse_formula(dim)
        return (dim,) if tree is None else list_formula_names(tree)

    def _declared_size(self, dim: Dim) -> int | None:
        """Return the declared size; None if it is unknown. Old converters write 0 for an unknown size.

        Names such as `total_sequence_length`, which stand for a sum only by convention, are not evaluated. Divisions
        are evaluated only if the divisor is a number.
        """
        if isinstance(dim, int):
            return dim or None
        if dim in self.sizes:
            return self.sizes[dim]
        if dim in TOTAL_FORMULAS or dim in UNKNOWN_AXIS_NAMES or (tree := parse_formula(dim)) is None:
            return None
        divisions = [
            node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)
        ]
        if not list_formula_names(tree) or not all(isinstance(node.right, ast.Constant) for node in divisions):
            return None
        return compute_formula(dim, self.sizes) or None


def find_read_outputs(facts: ModelFacts, view: ModelView) -> frozenset[str]:
    """Return the outputs that a node also reads. A runtime may use their declared shapes for this node."""
    names = {value.name for value in facts.outputs}
    return frozenset(name for node in view.nodes() for name in node.proto.input if name in names)


def read_declared_outputs(
    facts: ModelFacts, case: InputCase, read: frozenset[str] = frozenset(), *, counts_data: bool = False
) -> DeclaredOutputs:
    """Return the declared outputs of a case. Its input files are read to get their shapes."""
    sizes: dict[str, set[int]] = {}
    for value in facts.inputs:
        path = case.inputs.get(value.name)
        shape = np.load(path, mmap_mode="r", allow_pickle=False).shape if path else ()
        for dim, size in zip(value.shape or (), shape, strict=False):
            if isinstance(dim, str) and dim not in UNKNOWN_AXIS_NAMES:
                sizes.setdefault(dim, set()).add(size)
    definite = {dim: next(iter(values)) for dim, values in sizes.items() if len(values) == 1}
    shapes = tuple(value.shape for value in facts.inputs if value.shape)
    return DeclaredOutputs({value.name: value for value in facts.outputs}, definite, read, shapes, counts_data)


def _format_shape(shape: Sequence[Dim]) -> str:
    return f"({', '.join(map(str, shape))})"
