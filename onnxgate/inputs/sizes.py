"""Which sizes the dynamic axes take: one setting per case, equal names equal sizes."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from onnxgate.model.facts import Dim, ValueInfo

LEADING = (1, 3)
"""Default for a leading axis. A batch of 1 hides what is baked into a graph; 3 is no common batch size to bake."""

TOKENS = (8, 12)
"""Default for other axes of integer inputs: short enough for the position table of any transformer."""

SAMPLES = (1600, 2400)
"""Default for the second axis of a float matrix: usually a waveform; shorter ones vanish in the first convolutions."""

SPATIAL = ((64, 96), (96, 64))
"""Default for the other axes of larger float inputs, in turn: multiples of 32, that networks halve five times, and
unlike each other, so that height and width taken for one another show."""

TOTALS = {"total_sequence_length": "past_sequence_length + sequence_length"}
"""Axis names that mean a sum, as exporters of language models use them. Source: Optimum, ONNX Runtime GenAI."""

INTEGERS = ("int", "uint", "bool")


def axis_names(value: ValueInfo) -> tuple[Dim, ...]:
    """The shape with a name for each dynamic axis; one that the file leaves unnamed is called `x[1]`."""
    shape = value.shape or ()
    return tuple(f"{value.name}[{i}]" if dim == "?" else dim for i, dim in enumerate(shape))


def size_settings(inputs: Sequence[ValueInfo], sizes: Mapping[str, Sequence[int]]) -> tuple[dict[str, int], ...]:
    """One mapping of axis to size per case, in the order of the graph; one empty mapping where no axis is dynamic.

    `sizes` is the config's; its values are taken side by side, shorter rows again from their start. An axis whose name
    is a sum of others (`past + sequence`) follows from them.
    """
    choices = _choices(inputs, sizes)
    count = max((len(values) for values in choices.values() if values), default=1)
    return tuple(_setting(choices, index) for index in range(count))


def _choices(inputs: Sequence[ValueInfo], sizes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Axis -> the sizes to try; none where the name is a formula that its case computes."""
    names = list(dict.fromkeys(dim for value in inputs for dim in axis_names(value) if isinstance(dim, str)))
    choices: dict[str, tuple[int, ...]] = {}
    for name in names:
        if sizes.get(name):
            choices[name] = tuple(sizes[name])
        elif _is_formula(name, names):
            choices[name] = ()
        else:
            choices[name] = _default(name, inputs)
    return choices


def _setting(choices: Mapping[str, tuple[int, ...]], index: int) -> dict[str, int]:
    known = {name: values[index % len(values)] for name, values in choices.items() if values}
    return {name: known[name] if values else evaluate(name, known) for name, values in choices.items()}


def _default(name: str, inputs: Sequence[ValueInfo]) -> tuple[int, ...]:
    """Depends on position and type alone: exporters often give axes that must be equal different names."""
    uses = [(value, position) for value in inputs for position, dim in enumerate(axis_names(value)) if dim == name]
    if any(position == 0 for _, position in uses):
        return LEADING
    if any(value.type.removeprefix("tensor(").startswith(INTEGERS) for value, _ in uses):
        return TOKENS
    value, position = uses[0]
    if len(value.shape or ()) == 2:
        return SAMPLES
    return SPATIAL[position % 2]


def _is_formula(name: str, names: Sequence[str]) -> bool:
    tree = _parse(name)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} if tree else set()
    return bool(used) and name not in used and used <= set(names)


def _parse(name: str) -> ast.expr | None:
    try:
        return ast.parse(TOTALS.get(name, name), mode="eval").body
    except (SyntaxError, ValueError):
        return None


def evaluate(name: str, known: Mapping[str, int]) -> int:
    """The size of an axis whose name is a formula over `known` ones; at least 1 where it cannot be computed."""
    tree = _parse(name)
    found = _value(tree, known) if tree is not None else None
    return max(found, 0) if found is not None else 1


def _value(node: ast.expr, known: Mapping[str, int]) -> int | None:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=operator, right=right):
            return _binary(_value(left, known), operator, _value(right, known))
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
