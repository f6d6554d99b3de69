"""Which sizes the dynamic axes take: one setting per case, equal names equal sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxgate.inputs.formulas import evaluate, names_in, parse
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

INTEGERS = ("int", "uint", "bool")


def axis_names(value: ValueInfo) -> tuple[Dim, ...]:
    """The shape with a name for each dynamic axis; one that the file leaves unnamed is called `x[1]`."""
    shape = value.shape or ()
    return tuple(f"{value.name}[{i}]" if dim == "?" else dim for i, dim in enumerate(shape))


def size_settings(inputs: Sequence[ValueInfo], sizes: Mapping[str, Sequence[int]]) -> tuple[dict[str, int], ...]:
    """One mapping of axis to size per case, in the order of the graph; one empty mapping where no axis is dynamic.

    `sizes` is the config's; its values are taken side by side, shorter rows again from their start. To them the first
    default of each other axis is added, and two cases of the first row that differ from it in nothing but the other
    leading axes, or in nothing but the rest: so a failure tells the axis. An axis whose name is a sum of others
    (`past + sequence`) follows from them.
    """
    guessed = guessed_axes(inputs, sizes)
    first, second = ({name: default_sizes(name, inputs)[index] for name in guessed} for index in (0, 1))
    leading = leading_axes(inputs)
    settings = settings_at(inputs, sizes, first)
    for changed in ({*guessed} & {*leading}, {*guessed} - {*leading}):
        settings += settings_at(inputs, sizes, first | {name: second[name] for name in changed})[:1]
    return tuple({tuple(each.items()): each for each in settings}.values())


def settings_at(
    inputs: Sequence[ValueInfo], sizes: Mapping[str, Sequence[int]], guesses: Mapping[str, int]
) -> tuple[dict[str, int], ...]:
    """The rows of the config's sizes, with these sizes of the axes that it does not name."""
    names = named_axes(inputs)
    given = {name: sizes[name] for name in names if sizes.get(name)}
    settings = []
    for index in range(max(map(len, given.values()), default=1)):
        known = {**guesses, **{name: values[index % len(values)] for name, values in given.items()}}
        settings.append({name: known[name] if name in known else evaluate(name, known) for name in names})
    return tuple(settings)


def guessed_axes(inputs: Sequence[ValueInfo], sizes: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """The dynamic axes whose size neither the config tells nor a formula."""
    names = named_axes(inputs)
    return tuple(name for name in names if not sizes.get(name) and not _is_formula(name, names))


def leading_axes(inputs: Sequence[ValueInfo]) -> tuple[str, ...]:
    """The dynamic axes that are the first of some input: batches, of which any size should do."""
    first = (axis_names(value)[0] for value in inputs if value.shape)
    return tuple(dict.fromkeys(name for name in first if isinstance(name, str)))


def named_axes(inputs: Sequence[ValueInfo]) -> list[str]:
    """The dynamic axes of all inputs, each once, in the order of the graph."""
    return list(dict.fromkeys(dim for value in inputs for dim in axis_names(value) if isinstance(dim, str)))


def default_sizes(name: str, inputs: Sequence[ValueInfo]) -> tuple[int, int]:
    """Depends on position and type alone: exporters often give axes that must be equal different names.

    Axes without a name have one size where they stand at the same position, whatever their input's type and rank.
    """
    if name in leading_axes(inputs):
        return LEADING
    uses = _uses(name, inputs)
    if any(value.type.removeprefix("tensor(").startswith(INTEGERS) for value, _ in uses):
        return TOKENS
    if all(len(value.shape or ()) == 2 for value, _ in uses):
        return SAMPLES
    return SPATIAL[uses[0][1] % 2]


def _uses(name: str, inputs: Sequence[ValueInfo]) -> list[tuple[ValueInfo, int]]:
    """The inputs that have the axis, and where; of one without a name, all that have one such at its position."""
    every = [(value, position, dim) for value in inputs for position, dim in enumerate(axis_names(value))]
    uses = [(value, position) for value, position, dim in every if dim == name]
    value, position = uses[0]
    if (value.shape or ())[position] != "?":
        return uses
    return [(other, at) for other, at, _ in every if at == position and (other.shape or ())[at] == "?"]


def _is_formula(name: str, names: Sequence[str]) -> bool:
    tree = parse(name)
    used = names_in(tree) if tree is not None else set()
    return bool(used) and name not in used and used <= set(names)
