"""Sizes of dynamic axes of model inputs. A setting maps each axis name to a size; each generated input case has one."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from onnxgate.model.facts import Dim, ValueInfo, count_elements

LEADING_SIZES = (1, 3)
"""Default sizes for the leading axis of an input.

Size 1 does not detect axes that an export fixed at 1; 3 usually does.
"""

TOKEN_SIZES = (8, 12)
"""Default sizes for the other axes of integer inputs.

They are small enough for the position table of any transformer.
"""

SAMPLE_SIZES = (1600, 2400)
"""Default sizes for the second axis of a float matrix.

It is usually a waveform, which must be long enough for convolutions.
"""

SPATIAL_SIZES = ((64, 96), (96, 64))
"""Default sizes for non-leading axes of float inputs with more than two axes.

The first pair is for axes at even positions, the second pair for axes at odd positions.

The sizes are multiples of 32, because networks halve them up to five times. Height and width differ, so that swapped
axes are detected.
"""

MAX_SPATIAL_AXES = 3
"""Maximum number of axes of an input that have `SPATIAL_SIZES`: four of them are 38 million elements."""

SMALL_SIZES = ((8, 12), (12, 8))
"""Default sizes of the axes of inputs with more dynamic axes."""

INTEGER_TYPES = ("int", "uint", "bool")


DTYPES = {
    "float16": "float16",
    "float": "float32",
    "double": "float64",
    "bool": "bool",
    "string": "str",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""NumPy type name for each element type in ONNX Runtime. Other types are not supported."""


UNKNOWN_AXIS_NAMES = frozenset({"?", "None", "-1", "unk", "unknown"})
"""Names that converters use for an unknown axis. Source: onnxmltools, tf2onnx."""
_NUMBERED_AXIS_NAMES = re.compile(r"unk__\d+|(?:p2o\.)?DynamicDimension\.\d+|.*\[\d+\]")
"""Names that converters, or `name_axes`, give to axes without a name. Source: models of tf2onnx and Paddle2ONNX."""


class StateAxes(msgspec.Struct, frozen=True):
    """Dynamic axes of inputs that are initial states of recurrent operators, which determine their sizes.

    `batch` are batch axes. `sizes` are required sizes. `inner` are all other axes of these inputs, which may include
    the first one.
    """

    batch: tuple[str, ...] = ()
    sizes: dict[str, int] = {}
    inner: frozenset[str] = frozenset()


NO_STATES = StateAxes()


def element_type(value: ValueInfo) -> str:
    """Return the element type of a tensor, such as `float` for `tensor(float)`."""
    return value.type.removeprefix("tensor(").removesuffix(")")


def name_axes(value: ValueInfo) -> tuple[Dim, ...]:
    """Return the shape of an input with a name for each dynamic axis. Unnamed axes get names such as `x[1]`."""
    shape = value.shape or ()
    return tuple(f"{value.name}[{i}]" if dim == "?" else dim for i, dim in enumerate(shape))


def has_declared_name(axis: str) -> bool:
    """Return whether the author of a model named an axis, and so declared that its size may vary."""
    return axis not in UNKNOWN_AXIS_NAMES and _NUMBERED_AXIS_NAMES.fullmatch(axis) is None


def match_axis_sizes(value: ValueInfo, shape: Sequence[int]) -> dict[str, int] | None:
    """Return the sizes that an array gives to the dynamic axes of an input; None if its shape does not match."""
    dims = name_axes(value)
    if value.shape is not None and len(dims) != len(shape):
        return None
    pairs = list(zip(dims, shape, strict=False))
    if any(isinstance(dim, int) and dim != size for dim, size in pairs):
        return None
    return {dim: int(size) for dim, size in pairs if isinstance(dim, str)}


def list_size_settings(
    inputs: Sequence[ValueInfo], sizes: Mapping[str, Sequence[int]], states: StateAxes = NO_STATES
) -> tuple[dict[str, int], ...]:
    """Return one setting of axis sizes for each generated input case; a single empty one if no axis is dynamic.

    A setting maps each axis name to a size, in graph order. `sizes` comes from the config: the n-th sizes of all axes
    form the n-th setting, and shorter lists are repeated. Axes without configured sizes have their first default size.
    Two more settings repeat the first one with the second default size, one for leading axes only, and one for other
    axes only, so that a failure shows which axis causes it. If the name of an axis is a formula (`past + sequence`),
    its size is computed from the other axes.
    """
    guessed = list_guessed_axes(inputs, sizes)
    first, second = ({name: get_default_sizes(name, inputs, states)[index] for name in guessed} for index in (0, 1))
    leading = list_leading_axes(inputs, states)
    settings = resolve_settings(inputs, sizes, first)
    for changed in ({*guessed} & {*leading}, {*guessed} - {*leading}):
        settings += resolve_settings(inputs, sizes, first | {name: second[name] for name in changed})[:1]
    return tuple({tuple(setting.items()): setting for setting in settings}.values())


def resolve_settings(
    inputs: Sequence[ValueInfo], sizes: Mapping[str, Sequence[int]], guesses: Mapping[str, int]
) -> tuple[dict[str, int], ...]:
    """Return one setting for each row of axis sizes in the config.

    Axes without configured sizes have those in `guesses`.
    """
    names = list_named_axes(inputs)
    configured = {name: sizes[name] for name in names if sizes.get(name)}
    settings = []
    for index in range(max(map(len, configured.values()), default=1)):
        axis_sizes = {**guesses, **{name: values[index % len(values)] for name, values in configured.items()}}
        settings.append({name: resolve_dim(name, axis_sizes) for name in names})
    return tuple(settings)


def list_guessed_axes(inputs: Sequence[ValueInfo], sizes: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """Return the dynamic axes whose size is given neither by the config nor by a formula."""
    names = list_named_axes(inputs)
    return tuple(name for name in names if not sizes.get(name) and not _is_formula(name, names))


def list_leading_axes(inputs: Sequence[ValueInfo], states: StateAxes = NO_STATES) -> tuple[str, ...]:
    """Return the dynamic axes that are the first axis of an input, or the batch axis of a recurrent state.

    These are batch axes, which should support any size.
    """
    first = (name_axes(value)[0] for value in inputs if value.shape)
    names = (name for name in first if isinstance(name, str) and name not in states.inner)
    return tuple(dict.fromkeys((*names, *states.batch)))


def list_named_axes(inputs: Sequence[ValueInfo]) -> list[str]:
    """Return the dynamic axes of all inputs without duplicates, in graph order."""
    return list(dict.fromkeys(dim for value in inputs for dim in name_axes(value) if isinstance(dim, str)))


def get_default_sizes(name: str, inputs: Sequence[ValueInfo], states: StateAxes = NO_STATES) -> tuple[int, int]:
    """Return the first and the second default size of a dynamic axis.

    Except for recurrent states, they depend only on position and type, since exporters often give different names to
    axes that must be equal. Unnamed axes at the same position have the same size, regardless of the type and rank of
    their inputs.
    """
    if name in states.sizes:
        return (states.sizes[name], states.sizes[name])
    if name in list_leading_axes(inputs, states):
        return LEADING_SIZES
    uses = _find_axis_positions(name, inputs, states)
    if any(element_type(value).startswith(INTEGER_TYPES) for value, _ in uses):
        return TOKEN_SIZES
    if all(len(value.shape or ()) == 2 for value, _ in uses):
        return SAMPLE_SIZES
    is_large = any(_count_inner_axes(value, inputs, states) > MAX_SPATIAL_AXES for value, _ in uses)
    return (SMALL_SIZES if is_large else SPATIAL_SIZES)[uses[0][1] % 2]


def _count_inner_axes(value: ValueInfo, inputs: Sequence[ValueInfo], states: StateAxes) -> int:
    """Return the number of dynamic axes of an input that are neither leading nor of a state."""
    known = {*list_leading_axes(inputs, states), *states.sizes}
    return sum(isinstance(dim, str) and dim not in known for dim in name_axes(value))


def _find_axis_positions(name: str, inputs: Sequence[ValueInfo], states: StateAxes) -> list[tuple[ValueInfo, int]]:
    """Return the inputs whose shapes contain the dynamic axis, each with the position of the axis.

    Unnamed axes at the same position are treated as one axis, except those of recurrent states.
    """
    known = {*states.batch, *states.inner} - {name}
    axes = [(value, position) for value in inputs for position, dim in enumerate(name_axes(value)) if dim not in known]
    uses = [(value, position) for value, position in axes if name_axes(value)[position] == name]
    first, index = uses[0]
    if (first.shape or ())[index] != "?":
        return uses
    return [(value, position) for value, position in axes if position == index and (value.shape or ())[index] == "?"]


def _is_formula(name: str, names: Sequence[str]) -> bool:
    tree = parse_formula(_expand_total(name, names))
    used = list_formula_names(tree) if tree is not None else set()
    return bool(used) and name not in used and used <= set(names)


TOTAL_FORMULAS = {"total_sequence_length": "past_sequence_length + sequence_length"}
"""Formulas for axis names in language models whose size is the sum of two other axes.

Source: Optimum, ONNX Runtime GenAI.
"""
MAX_FORMULA_LENGTH = 200
"""Maximum number of characters in a formula; longer names are not parsed. This also limits nested parentheses."""
MAX_AXIS_SIZE = 2**63 - 1
"""Maximum size of an axis."""


def _expand_total(name: str, names: Iterable[str]) -> str:
    """Return the sum of past and new tokens as a formula if an axis seems to be their total; else its name.

    The other axes must have clear names: one with `past`, and one with `seq`, `cur` or `new`.
    """
    if "total" not in name.lower() or name in TOTAL_FORMULAS:
        return name
    others = [other for other in names if other.isidentifier() and "total" not in other.lower()]
    past = [other for other in others if "past" in other.lower()]
    new = [other for other in others if other not in past and re.search("seq|cur|new", other.lower())]
    return f"{past[0]} + {new[0]}" if len(past) == len(new) == 1 else name


def parse_formula(name: str) -> ast.expr | None:
    """Parse the name of an axis as a formula; None if it is not one. Names in `TOTAL_FORMULAS` are replaced first."""
    text = TOTAL_FORMULAS.get(name, name)
    if len(text) > MAX_FORMULA_LENGTH:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # users cannot fix syntax warnings about an axis name
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def list_formula_names(tree: ast.expr) -> set[str]:
    """Return the names of the axes that occur in a formula."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def compute_formula(name: str, axis_sizes: Mapping[str, int]) -> int | None:
    """Return the size of an axis whose name is a formula of other axis names; None if it cannot be computed."""
    tree = parse_formula(name)
    size = _evaluate_node(tree, axis_sizes) if tree is not None else None
    return max(size, 0) if size is not None else None


def _evaluate_node(node: ast.expr, axis_sizes: Mapping[str, int]) -> int | None:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return axis_sizes.get(name)
        case ast.BinOp(left=left, op=operation, right=right):
            compute = _ARITHMETIC.get(type(operation))
            a, b = _evaluate_node(left, axis_sizes), _evaluate_node(right, axis_sizes)
            if compute is None or a is None or b is None or (compute is operator.floordiv and b == 0):
                return None
            size = compute(a, b)
            return size if abs(size) <= MAX_AXIS_SIZE else None
    return None


_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}

EQUAL_SIZES = (8, 16, 32, 64, 128, 224, 256, 4096)
"""Sizes to try for all axes except leading axes.

They suit models with position tables, repeated halving or waveforms.
"""

BATCH_SIZES = (2, 4, 8)
"""Sizes to try for leading axes if the model fails with size 1."""

MAX_SINGLE_AXES = 4
"""Maximum number of axes that are tried at size 1 while the others have their default sizes."""

MAX_PROBE_ELEMENTS = 1 << 22
"""Maximum number of elements of an input when sizes are tried; settings with larger inputs are skipped."""


def list_alternative_settings(
    inputs: Sequence[ValueInfo], sizes: Mapping[str, Sequence[int]], states: StateAxes = NO_STATES
) -> Iterator[dict[str, int]]:
    """Yield settings of axis sizes in the order in which they should be tried.

    In each of them, axes with configured sizes have the first of these sizes.
    """
    guessed, leading = list_guessed_axes(inputs, sizes), list_leading_axes(inputs, states)
    first = [name for name in guessed if name in leading]
    rest = [name for name in guessed if name not in leading]
    defaults = {name: get_default_sizes(name, inputs, states)[0] for name in rest}
    guesses = [dict.fromkeys(first, 1) | dict.fromkeys(rest, size) for size in EQUAL_SIZES if rest]
    for batch in BATCH_SIZES if first else ():
        guesses += [dict.fromkeys(first, batch) | others for others in (defaults, dict.fromkeys(rest, 8))]
    guesses += [dict.fromkeys(guessed, size) for size in (1, 2)]
    guesses += [dict.fromkeys(first, 1) | defaults | {name: 1} for name in rest[:MAX_SINGLE_AXES] if len(rest) > 1]
    for guess in guesses:
        setting = resolve_settings(inputs, sizes, {**guess, **states.sizes})[0]
        if is_small(inputs, setting):
            yield setting


def is_small(inputs: Sequence[ValueInfo], setting: Mapping[str, int]) -> bool:
    """Return whether inputs of these sizes are small enough for an attempt."""
    return max(count_elements(resolve_shape(value, setting)) for value in inputs) <= MAX_PROBE_ELEMENTS


def vary_setting(
    inputs: Sequence[ValueInfo],
    sizes: Mapping[str, Sequence[int]],
    base: Mapping[str, int],
    states: StateAxes = NO_STATES,
) -> tuple[dict[str, int], ...]:
    """Return the setting `base`, those for the other configured sizes, and `base` with other sizes of the leading axes.

    Axes with the same size as a leading axis also change, because the model may require equal sizes. A leading axis
    without a name that requires another size than 1 is not a batch axis.
    """
    guesses = {name: base[name] for name in list_guessed_axes(inputs, sizes)}
    leading = [name for name in list_leading_axes(inputs, states) if name in guesses]
    named = {dim for value in inputs for dim in value.shape or ()}
    tied = {guesses[name] for name in leading if name in named or guesses[name] == LEADING_SIZES[0]}
    free = {name: size for name, size in guesses.items() if name not in states.sizes}
    changed = {name: 3 if size == 1 else 2 * size for name, size in free.items() if size in tied}
    settings = resolve_settings(inputs, sizes, guesses)
    return (*settings, *(resolve_settings(inputs, sizes, guesses | changed)[:1] if changed else ()))


def resolve_shape(value: ValueInfo, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of an input if its dynamic axes have these sizes."""
    return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in name_axes(value))


def resolve_dim(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Return the size of an axis if dynamic axes have these sizes.

    Formulas are evaluated; an unknown size is treated as 1.
    """
    size = find_dim(dim, sizes)
    return 1 if size is None else size


def find_dim(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """Return the size of an axis if dynamic axes have these sizes; None if it is unknown."""
    if isinstance(dim, int):
        return dim
    return sizes[dim] if dim in sizes else compute_formula(_expand_total(dim, sizes), sizes)
