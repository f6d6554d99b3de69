"""Cases made from what a model's file says: seeded values that mean something to the graph, at each size to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.errors import OnnxgateError
from onnxgate.inputs.sizes import axis_names, guessed_axes, leading_axes, size_settings
from onnxgate.model.facts import ModelFacts, ValueInfo
from onnxgate.model.types import count_of
from onnxgate.runtimes.jobs import Case

if TYPE_CHECKING:
    import onnx

    from onnxgate.inputs.graph import Graph

FIXED = "generated inputs"
"""Name of the only case of a model without dynamic axes."""

MOST_ELEMENTS = 2**27
"""No input of more elements is generated: a volume of 512 x 512 x 512 has so many."""
MOST_AXES = 32
"""No array has more. Source: numpy below 2."""
HINT = 'give real inputs: `inputs = "samples/*.npz"`'


class Unfeedable(OnnxgateError):  # noqa: N818 - a property of a model, not a fault
    """No inputs can be generated for a model: nothing can be said of how it runs without the user's own."""


def make_cases(
    facts: ModelFacts,
    proto: onnx.ModelProto,
    sizes: Mapping[str, Sequence[int]],
    folder: Path,
    settings: Sequence[Mapping[str, int]] = (),
    seed: int = 0,
) -> tuple[Case, ...]:
    """One case per size setting, its arrays written below `folder` as `.npy` files.

    `proto` is the model's structure; large weights may be without data. `sizes` are the config's for this model;
    `settings` are those to use in place of the first ones that are tried. Another `seed` draws other values.

    Raises:
        Unfeedable: an input has a type or a shape for which no values can be made.
    """
    from onnxgate.inputs.graph import Graph

    _check_feedable(facts.inputs)
    graph = Graph(proto)
    chosen = settings or size_settings(facts.inputs, sizes)
    guessed, leading = guessed_axes(facts.inputs, sizes), leading_axes(facts.inputs)
    first = tuple(name for name in guessed if name in leading)
    cases = (_case(facts, graph, setting, folder / str(index), seed) for index, setting in enumerate(chosen))
    return tuple(msgspec.structs.replace(case, guessed=guessed, leading=first) for case in cases)


def why_untakeable(inputs: Sequence[ValueInfo]) -> str:
    """Why a model cannot be fed at all, neither with generated values nor with the user's; "" where it can."""
    from onnxgate.inputs.values import DTYPES

    for value in inputs:
        if _element(value) not in DTYPES:
            return f"input `{value.name}` of type `{value.type}` cannot be fed: no array of onnxgate can hold it"
    return ""


def generated_names(facts: ModelFacts, sizes: Mapping[str, Sequence[int]]) -> list[str]:
    """What the cases of a model are called that are generated without being asked for."""
    return [case_name(setting) for setting in size_settings(facts.inputs, sizes)]


def _check_feedable(inputs: Sequence[ValueInfo]) -> None:
    """Raise Unfeedable where no values can be made; with a hint where the user can help."""
    reason = why_untakeable(inputs)
    if reason:
        raise Unfeedable(reason)
    for value in inputs:
        if value.shape is None:
            reason = f"no values can be generated for input `{value.name}`"
            raise Unfeedable(f"{reason}: the file does not say how many axes it has", hint=HINT)


def case_name(sizes: Mapping[str, int]) -> str:
    """`sizes batch=3 time=16`."""
    return f"sizes {' '.join(f'{name}={size}' for name, size in sizes.items())}" if sizes else FIXED


def _case(facts: ModelFacts, graph: Graph, sizes: Mapping[str, int], folder: Path, seed: int) -> Case:
    import numpy as np

    from onnxgate.inputs.roles import Control, role_of
    from onnxgate.inputs.values import DTYPES, make_values

    folder.mkdir(parents=True)
    name = case_name(sizes)
    paths = {}
    for index, value in enumerate(facts.inputs):
        shape = [sizes[dim] if isinstance(dim, str) else dim for dim in axis_names(value)]
        _check_size(value, shape)
        role = role_of(value, facts.inputs, graph, sizes)
        if isinstance(role, Control):
            reason = f"input `{value.name}` decides a shape, an axis or a size of `{role.operator}`"
            raise Unfeedable(f"no values can be generated: {reason}", hint=HINT)
        path = folder / f"{index}.npy"
        array = make_values(role, DTYPES[_element(value)], shape, _stream(value.name, name, seed))
        np.save(path, array, allow_pickle=False)
        paths[value.name] = str(path.absolute())
    return Case(name=name, origin="generated", inputs=paths, sizes=dict(sizes))


def _check_size(value: ValueInfo, shape: Sequence[int]) -> None:
    """Raise Unfeedable where an array of the shape would be larger than what is generated; empty ones count too."""
    if len(shape) > MOST_AXES:
        raise Unfeedable(f"no values can be generated for input `{value.name}`: it has {len(shape)} axes", hint=HINT)
    if count_of(max(size, 1) for size in shape) > MOST_ELEMENTS:
        reason = f"no values are generated for input `{value.name}`: it has more than {MOST_ELEMENTS:,} elements"
        raise Unfeedable(reason, hint=HINT)


def _stream(value: str, case: str, seed: int) -> str:
    """What the values of one input in one case are drawn from."""
    return f"{value}\0{case}\0{seed}" if seed else f"{value}\0{case}"


def _element(value: ValueInfo) -> str:
    return value.type.removeprefix("tensor(").removesuffix(")")
