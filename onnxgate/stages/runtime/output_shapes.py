"""Compare shapes of outputs with the shapes that the file declares.

A fixed size must be that size, and a name that an input's axis has must be that axis's size; so must a formula over
such names. A name that only outputs have says nothing: its size depends on the data.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.core.jobs import InputCase
from onnxgate.evidence.runtime import WrongShape
from onnxgate.inputs.axis_sizes import TOTAL_FORMULAS, evaluate_formula, parse_formula
from onnxgate.model.facts import Dim, ModelFacts, ValueInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNKNOWN_AXIS_NAMES = frozenset({"?", "None", "-1", "unk", "unknown"})
"""Names that converters write for an axis of which they know nothing. Source: onnxmltools, tf2onnx."""

_FORMULA_NODES = (ast.BinOp, ast.Constant, ast.Name, ast.Load, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)


@dataclass(frozen=True, slots=True)
class DeclaredOutputs:
    """Declared shapes of outputs in one case, by name, with the sizes of the inputs' axes."""

    outputs: Mapping[str, ValueInfo]
    sizes: Mapping[str, int]

    def wrong(self, output: str, array: NDArray[Any] | None) -> WrongShape | None:
        """Return how an output contradicts the declaration; None if it does not."""
        value = self.outputs.get(output)
        if array is None or value is None or value.shape is None or not value.type.startswith("tensor("):
            return None
        if _matches_shape(value.shape, array.shape, self.sizes):
            return None
        return WrongShape(output=output, declared=_format_shape(value.shape), shape=_format_shape(array.shape))


def read_declared_outputs(facts: ModelFacts, case: InputCase) -> DeclaredOutputs:
    """Return the declared outputs in a case, whose inputs are read for their shapes."""
    found: dict[str, set[int]] = {}
    for value in facts.inputs:
        path = case.inputs.get(value.name)
        for dim, size in zip(value.shape or (), _read_shape(path) if path else (), strict=False):
            if isinstance(dim, str):
                found.setdefault(dim, set()).add(size)
    sizes = {dim: sizes.pop() for dim, sizes in found.items() if len(sizes) == 1 and dim not in UNKNOWN_AXIS_NAMES}
    return DeclaredOutputs({value.name: value for value in facts.outputs}, sizes)


def _read_shape(path: str) -> tuple[int, ...]:
    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array.shape


def _matches_shape(dims: Sequence[Dim], shape: Sequence[int], sizes: Mapping[str, int]) -> bool:
    if len(dims) != len(shape):
        return False
    wanted = (_declared_size(dim, sizes) for dim in dims)
    return all(want is None or want == size for want, size in zip(wanted, shape, strict=True))


def _declared_size(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """Return the declared size; None if there is none, which old converters write as 0."""
    if isinstance(dim, int):
        return dim or None
    if dim in sizes:
        return sizes[dim]
    return evaluate_formula(dim, sizes) or None if _is_formula(dim, sizes) else None


def _is_formula(dim: str, sizes: Mapping[str, int]) -> bool:
    """Whether `evaluate` can compute it from the inputs' sizes; a name that is a sum by custom only does not count."""
    if dim in TOTAL_FORMULAS or dim in UNKNOWN_AXIS_NAMES:
        return False
    tree = parse_formula(dim)
    if tree is None:
        return False
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return (
        bool(names)
        and names <= set(sizes)
        and all(isinstance(node, _FORMULA_NODES) and _is_safe_division(node) for node in nodes)
    )


def _is_safe_division(node: ast.AST) -> bool:
    """Return whether an operation is not a division by zero."""
    match node:
        case ast.BinOp(op=ast.FloorDiv(), right=right):
            return isinstance(right, ast.Constant) and bool(right.value)
        case ast.Constant(value=value):
            return type(value) is int
        case _:
            return True


def _format_shape(shape: Sequence[Dim]) -> str:
    return f"({', '.join(map(str, shape))})"
