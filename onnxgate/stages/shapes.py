"""Shapes of outputs held against what the file declares of them.

A fixed size must be that size, and a name that an input's axis has must be that axis's size; so must a formula over
such names. A name that only outputs have says nothing: its size depends on the data.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnxgate.evidence.runtime import WrongShape
from onnxgate.inputs.formulas import TOTALS, evaluate, parse
from onnxgate.model.facts import Dim, ModelFacts, ValueInfo
from onnxgate.runtimes.jobs import Case

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLACEHOLDERS = frozenset({"?", "None", "-1", "unk", "unknown"})
"""Names that converters write for an axis of which they know nothing. Source: onnxmltools, tf2onnx."""

_FORMULA = (ast.BinOp, ast.Constant, ast.Name, ast.Load, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)


@dataclass(frozen=True, slots=True)
class Declared:
    """What the file says of its outputs in one case: by name, with the sizes that its inputs' axes have there."""

    outputs: Mapping[str, ValueInfo]
    sizes: Mapping[str, int]

    def wrong(self, output: str, array: NDArray[Any] | None) -> WrongShape | None:
        """How an output contradicts it; None where it does not."""
        value = self.outputs.get(output)
        if array is None or value is None or value.shape is None or not value.type.startswith("tensor("):
            return None
        if _fits(value.shape, array.shape, self.sizes):
            return None
        return WrongShape(output=output, declared=_said(value.shape), shape=_said(array.shape))


def declared(facts: ModelFacts, case: Case) -> Declared:
    """What the file says in a case, whose inputs are read for their shapes."""
    found: dict[str, set[int]] = {}
    for value in facts.inputs:
        path = case.inputs.get(value.name)
        for dim, size in zip(value.shape or (), _shape(path) if path else (), strict=False):
            if isinstance(dim, str):
                found.setdefault(dim, set()).add(size)
    sizes = {dim: sizes.pop() for dim, sizes in found.items() if len(sizes) == 1 and dim not in PLACEHOLDERS}
    return Declared({value.name: value for value in facts.outputs}, sizes)


def _shape(path: str) -> tuple[int, ...]:
    import numpy as np

    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array.shape


def _fits(dims: Sequence[Dim], shape: Sequence[int], sizes: Mapping[str, int]) -> bool:
    if len(dims) != len(shape):
        return False
    wanted = (_size(dim, sizes) for dim in dims)
    return all(want is None or want == size for want, size in zip(wanted, shape, strict=True))


def _size(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """The size that the file promises; None where it promises none, as old converters do with 0."""
    if isinstance(dim, int):
        return dim or None
    if dim in sizes:
        return sizes[dim]
    return evaluate(dim, sizes) or None if _is_formula(dim, sizes) else None


def _is_formula(dim: str, sizes: Mapping[str, int]) -> bool:
    """Whether `evaluate` can compute it from the inputs' sizes; a name that is a sum by custom only does not count."""
    if dim in TOTALS or dim in PLACEHOLDERS:
        return False
    tree = parse(dim)
    if tree is None:
        return False
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return bool(names) and names <= set(sizes) and all(isinstance(node, _FORMULA) and _divides(node) for node in nodes)


def _divides(node: ast.AST) -> bool:
    """Whether a division is one by a number that is not zero; true of what is no division."""
    match node:
        case ast.BinOp(op=ast.FloorDiv(), right=right):
            return isinstance(right, ast.Constant) and bool(right.value)
        case ast.Constant(value=value):
            return type(value) is int
        case _:
            return True


def _said(shape: Sequence[Dim]) -> str:
    return f"({', '.join(map(str, shape))})"
