"""Names of axes that are formulas over others, as exporters write them: `past + sequence`, `2*N`."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping

TOTALS = {"total_sequence_length": "past_sequence_length + sequence_length"}
"""Axis names that mean a sum, as exporters of language models use them. Source: Optimum, ONNX Runtime GenAI."""
LONGEST = 200
"""Characters of a formula; a longer name is only a name. It bounds how deep brackets nest, too."""
LARGEST = 2**63 - 1
"""No axis is longer."""


def parse(name: str) -> ast.expr | None:
    """The formula that a name is; None where it is none. A total's is the sum that it means."""
    text = TOTALS.get(name, name)
    if len(text) > LONGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a name is no program whose author could mend it
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def names_in(tree: ast.expr) -> set[str]:
    """The names that a formula is made of."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def evaluate(name: str, known: Mapping[str, int]) -> int:
    """The size of an axis whose name is a formula over `known` ones; at least 1 where it cannot be computed."""
    tree = parse(name)
    found = _value(tree, known) if tree is not None else None
    return max(found, 0) if found is not None else 1


def _value(node: ast.expr, known: Mapping[str, int]) -> int | None:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=operator, right=right):
            found = _binary(_value(left, known), operator, _value(right, known))
            return None if found is None or abs(found) > LARGEST else found
        case _:
            return None


def _binary(left: int | None, operator: ast.operator, right: int | None) -> int | None:
    if left is None or right is None:
        return None
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv() if right:
            return left // right
        case _:
            return None
