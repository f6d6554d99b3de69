"""Other sizes to try where the first guesses do not fit a model, and what to change in those that do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnxgate.inputs.sizes import axis_names, default_sizes, guessed_axes, leading_axes, settings_at
from onnxgate.model.facts import ValueInfo
from onnxgate.model.types import count_of

ALIKE = (8, 16, 32, 64, 128, 256, 4096)
"""Sizes for all axes but the leading ones: short enough for a table, or a multiple of what halvings need, or a wave."""

BATCHES = (2, 4, 8)
"""Sizes of a leading axis where 1 does not fit."""

LARGEST = 1 << 22
"""So many elements at most has an input that is made to find out which sizes fit."""

Setting = dict[str, int]


def other_guesses(inputs: Sequence[ValueInfo], sizes: Mapping[str, Sequence[int]]) -> Iterator[Setting]:
    """Settings to try one after another, in each the first row of the config's sizes."""
    guessed, leading = guessed_axes(inputs, sizes), leading_axes(inputs)
    first = [name for name in guessed if name in leading]
    rest = [name for name in guessed if name not in leading]
    defaults = {name: default_sizes(name, inputs)[0] for name in rest}
    guesses = [dict.fromkeys(first, 1) | dict.fromkeys(rest, size) for size in ALIKE if rest]
    for batch in BATCHES if first else ():
        guesses += [dict.fromkeys(first, batch) | others for others in (defaults, dict.fromkeys(rest, 8))]
    guesses += [dict.fromkeys(guessed, size) for size in (1, 2)]
    for guess in guesses:
        setting = settings_at(inputs, sizes, guess)[0]
        if max(elements(value, setting) for value in inputs) <= LARGEST:
            yield setting


def settings_around(
    inputs: Sequence[ValueInfo], sizes: Mapping[str, Sequence[int]], base: Mapping[str, int]
) -> tuple[Setting, ...]:
    """The base, the other rows of the config's sizes beside it, and the base with another size of its leading axes.

    An axis that is as large as a leading one in the base may have to be: it changes with it.
    """
    guesses = {name: base[name] for name in guessed_axes(inputs, sizes)}
    tied = {guesses[name] for name in leading_axes(inputs) if name in guesses}
    changed = {name: 3 if size == 1 else 2 * size for name, size in guesses.items() if size in tied}
    settings = settings_at(inputs, sizes, guesses)
    return (*settings, *(settings_at(inputs, sizes, guesses | changed)[:1] if changed else ()))


def elements(value: ValueInfo, sizes: Mapping[str, int]) -> int:
    """How many elements an input has in a setting."""
    return count_of(sizes[dim] if isinstance(dim, str) else dim for dim in axis_names(value))
