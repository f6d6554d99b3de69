"""Which input cases a command asks for: others are left out, and generated values may be drawn otherwise."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnxgate.core.errors import UsageError
from onnxgate.core.findings import join_phrases
from onnxgate.core.jobs import InputCase
from onnxgate.inputs.axis_sizes import list_named_axes, name_axes
from onnxgate.model.facts import ModelFacts, ValueInfo

MAX_NEAREST_NAMES = 5
"""So many names are listed where one is unknown."""


@dataclass(frozen=True, slots=True)
class CaseSelection:
    """All cases, drawn as always; or only those named, or with a `seed` of their own."""

    seed: int = 0
    cases: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        """Whether a case is asked for."""
        return not self.cases or name in self.cases

    def settings(self, inputs: Sequence[ValueInfo]) -> Iterator[dict[str, int]]:
        """The sizes that named cases give the axes of a model: also such as are not tried by themselves."""
        axes = list_named_axes(inputs)
        form = re.compile("sizes " + " ".join(f"{re.escape(axis)}=(\\d+)" for axis in axes))
        for name in self.cases if axes else ():
            match = form.fullmatch(name)
            if match is not None:
                yield dict(zip(axes, map(int, match.groups()), strict=True))


ALL_CASES = CaseSelection()


def require_known_cases(selection: CaseSelection, existing: Iterable[str], sourced: bool) -> None:
    """
    Raise where a named case is none of the `known` ones of any model, nor the example of a source.

    Raises:
        UsageError: it lists the nearest names.
    """
    names = dict.fromkeys([*existing, *([EXAMPLE_CASE_NAME] if sourced else [])])
    for name in selection.cases:
        if name not in names:
            raise UsageError(f"no selected model has the input case `{name}`", hint=_suggest_nearest_names(name, names))


def _suggest_nearest_names(name: str, names: Collection[str]) -> str | None:
    import difflib

    near = difflib.get_close_matches(name, names, MAX_NEAREST_NAMES, 0.3) or sorted(names)[:MAX_NEAREST_NAMES]
    return f"there is {join_phrases([f'`{candidate}`' for candidate in near])}" if near else None


EXAMPLE_CASE_NAME = "the source's example"


def make_example_case(facts: ModelFacts, names: Sequence[str], paths: Sequence[str]) -> InputCase | None:
    """The example as a case of the committed model; None where its arrays are not what the model takes.

    `names` are the inputs of the fresh export and `paths` their `.npy` files, in the source's order. Names that the
    committed model shares decide; where it names its inputs differently, their order does.
    """
    inputs = [value.name for value in facts.inputs]
    order = list(names) if sorted(names) == sorted(inputs) else inputs
    if not len(inputs) == len(paths) == len(order):
        return None
    arrays = dict(zip(order, paths, strict=True))
    sizes: dict[str, int] = {}
    for value in facts.inputs:
        axis_sizes = _read_axis_sizes(value, arrays[value.name])
        if axis_sizes is None or any(sizes.get(axis, size) != size for axis, size in axis_sizes.items()):
            return None
        sizes.update(axis_sizes)
    return InputCase(
        name=EXAMPLE_CASE_NAME, origin="source", inputs={name: arrays[name] for name in inputs}, sizes=sizes
    )


def _read_axis_sizes(value: ValueInfo, path: str) -> Mapping[str, int] | None:
    """The sizes that an array gives the dynamic axes of an input; None where it does not fit."""
    import numpy as np

    from onnxgate.inputs.values import DTYPES

    array = np.load(path, mmap_mode="r", allow_pickle=False)
    element = value.type.removeprefix("tensor(").removesuffix(")")
    dims = name_axes(value)
    if array.dtype != DTYPES.get(element) or (value.shape is not None and len(dims) != array.ndim):
        return None
    pairs = list(zip(dims, array.shape, strict=False))
    if any(isinstance(dim, int) and dim != size for dim, size in pairs):
        return None
    return {dim: int(size) for dim, size in pairs if isinstance(dim, str)}
