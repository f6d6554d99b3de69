"""What one model is fed: the user's own inputs where there are some, else generated ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from onnxgate.core.errors import OnnxgateError
from onnxgate.core.jobs import InputCase
from onnxgate.inputs.axis_sizes import list_guessed_axes, list_leading_axes, list_size_settings, name_axes
from onnxgate.inputs.case_files import find_unread_outputs, make_callable_cases, read_user_cases
from onnxgate.inputs.case_selection import ALL_CASES, CaseSelection
from onnxgate.inputs.dataflow import DataflowGraph
from onnxgate.inputs.roles import UnresolvedControl, find_role
from onnxgate.inputs.values import DTYPES, generate_values
from onnxgate.model.facts import ModelFacts, ValueInfo, count_elements
from onnxgate.model.reading.fact_extraction import ParsedModel
from onnxgate.project.config.project import Project, SelectedModel

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True)
class InputCases:
    """The cases of a model, or why there are none."""

    cases: tuple[InputCase, ...]
    reason: str = ""
    hint: str = ""
    names: tuple[str, ...] = ()  # of all cases that could be asked for
    unread: str = ""  # what lies beside the user's inputs and nothing is held to


CallInputs = Callable[[str, Path], "Sequence[Mapping[str, str]] | InputCases"]
"""Calls what gives inputs, `samples.py:batches`; says instead why it cannot be called here."""


def _refuse_call(source: str, _: Path) -> InputCases:
    return InputCases((), f"`{source}` is not called here")


def create_cases(
    project: Project,
    model: SelectedModel,
    reading: ParsedModel,
    folder: Path,
    selection: CaseSelection = ALL_CASES,
    call: CallInputs = _refuse_call,
) -> InputCases:
    """Write the model's cases below `folder`, those that are asked for.

    Raises:
        ConfigError: the user's own inputs are not what the model takes.
    """
    settings = model.settings
    untakeable = explain_unsupported_inputs(reading.facts.inputs)
    if untakeable:
        return InputCases((), untakeable)
    if settings.inputs is not None:
        unread = ""
        if settings.called_inputs:
            returned = call(settings.called_inputs, folder / "called")
            if isinstance(returned, InputCases):
                return returned
            cases = make_callable_cases(reading.facts, settings.called_inputs, returned, folder)
        else:
            cases = read_user_cases(reading.facts, settings.inputs, project.folder, folder)
            outputs = find_unread_outputs(settings.inputs, project.folder)
            unread = f"the outputs in `{outputs}` are not read: nothing is held to them" if outputs else ""
        taken = tuple(case for case in cases if selection.takes(case.name))
        return InputCases(taken, names=tuple(case.name for case in cases), unread=unread)
    return _create_generated_cases(model, reading, folder, selection)


def _create_generated_cases(
    model: SelectedModel, reading: ParsedModel, folder: Path, selection: CaseSelection
) -> InputCases:
    """Of the generated cases those that are asked for, also at sizes that are not tried by themselves."""
    usual = list_generated_names(reading.facts, model.settings.sizes)
    sizes = list(selection.settings(reading.facts.inputs))
    names = (*usual, *(format_case_name(setting) for setting in sizes))
    if selection.cases and not any(selection.takes(name) for name in names):
        return InputCases((), names=names)
    return replace(create_cases_at(model, reading, sizes, folder, selection.seed), names=names)


def create_cases_at(
    model: SelectedModel, reading: ParsedModel, sizes: Sequence[Mapping[str, int]], folder: Path, seed: int = 0
) -> InputCases:
    """Generated cases at these sizes of the dynamic axes; without any, at those that are tried first."""
    try:
        return InputCases(generate_cases(reading.facts, reading.proto, model.settings.sizes, folder, sizes, seed))
    except InputGenerationError as reason:
        return InputCases((), reason.message, reason.hint or "")


FIXED_CASE_NAME = "generated inputs"
"""Name of the only case of a model without dynamic axes."""

MAX_ELEMENTS = 2**27
"""No input of more elements is generated: a volume of 512 x 512 x 512 has so many."""
MAX_AXES = 32
"""No array has more. Source: numpy below 2."""
REAL_INPUTS_HINT = 'give real inputs: `inputs = "samples/*.npz"`'


class InputGenerationError(OnnxgateError):
    """No inputs can be generated for a model: nothing can be said of how it runs without the user's own."""


def generate_cases(
    facts: ModelFacts,
    proto: onnx.ModelProto,
    sizes: Mapping[str, Sequence[int]],
    folder: Path,
    settings: Sequence[Mapping[str, int]] = (),
    seed: int = 0,
) -> tuple[InputCase, ...]:
    """One case per size setting, its arrays written below `folder` as `.npy` files.

    `proto` is the model's structure; large weights may be without data. `sizes` are the config's for this model;
    `settings` are those to use in place of the first ones that are tried. Another `seed` draws other values.

    Raises:
        Unfeedable: an input has a type or a shape for which no values can be made.
    """
    _check_generatable(facts.inputs)
    graph = DataflowGraph(proto)
    chosen = settings or list_size_settings(facts.inputs, sizes)
    guessed, leading = list_guessed_axes(facts.inputs, sizes), list_leading_axes(facts.inputs)
    first = tuple(name for name in guessed if name in leading)
    cases = (_generate_case(facts, graph, setting, folder / str(index), seed) for index, setting in enumerate(chosen))
    return tuple(msgspec.structs.replace(case, guessed=guessed, leading=first) for case in cases)


def explain_unsupported_inputs(inputs: Sequence[ValueInfo]) -> str:
    """Why a model cannot be fed at all, neither with generated values nor with the user's; "" where it can."""
    for value in inputs:
        if _get_element_type(value) not in DTYPES:
            return f"input `{value.name}` of type `{value.type}` cannot be fed: no array of onnxgate can hold it"
    return ""


def list_generated_names(facts: ModelFacts, sizes: Mapping[str, Sequence[int]]) -> list[str]:
    """What the cases of a model are called that are generated without being asked for."""
    return [format_case_name(setting) for setting in list_size_settings(facts.inputs, sizes)]


def _check_generatable(inputs: Sequence[ValueInfo]) -> None:
    """Raise Unfeedable where no values can be made; with a hint where the user can help."""
    reason = explain_unsupported_inputs(inputs)
    if reason:
        raise InputGenerationError(reason)
    for value in inputs:
        if value.shape is None:
            reason = f"no values can be generated for input `{value.name}`"
            raise InputGenerationError(f"{reason}: the file does not say how many axes it has", hint=REAL_INPUTS_HINT)


def format_case_name(sizes: Mapping[str, int]) -> str:
    """`sizes batch=3 time=16`."""
    return f"sizes {' '.join(f'{name}={size}' for name, size in sizes.items())}" if sizes else FIXED_CASE_NAME


def _generate_case(
    facts: ModelFacts, graph: DataflowGraph, sizes: Mapping[str, int], folder: Path, seed: int
) -> InputCase:
    folder.mkdir(parents=True)
    name = format_case_name(sizes)
    paths = {}
    for index, value in enumerate(facts.inputs):
        shape = [sizes[dim] if isinstance(dim, str) else dim for dim in name_axes(value)]
        _check_size(value, shape)
        role = find_role(value, facts.inputs, graph, sizes)
        if isinstance(role, UnresolvedControl):
            reason = f"input `{value.name}` decides a shape, an axis or a size of `{role.operator}`"
            raise InputGenerationError(f"no values can be generated: {reason}", hint=REAL_INPUTS_HINT)
        path = folder / f"{index}.npy"
        array = generate_values(
            role, DTYPES[_get_element_type(value)], shape, _make_stream_seed(value.name, name, seed)
        )
        np.save(path, array, allow_pickle=False)
        paths[value.name] = str(path.absolute())
    return InputCase(name=name, origin="generated", inputs=paths, sizes=dict(sizes))


def _check_size(value: ValueInfo, shape: Sequence[int]) -> None:
    """Raise Unfeedable where an array of the shape would be larger than what is generated; empty ones count too."""
    if len(shape) > MAX_AXES:
        raise InputGenerationError(
            f"no values can be generated for input `{value.name}`: it has {len(shape)} axes", hint=REAL_INPUTS_HINT
        )
    if count_elements(max(size, 1) for size in shape) > MAX_ELEMENTS:
        reason = f"no values are generated for input `{value.name}`: it has more than {MAX_ELEMENTS:,} elements"
        raise InputGenerationError(reason, hint=REAL_INPUTS_HINT)


def _make_stream_seed(value: str, case: str, seed: int) -> str:
    """What the values of one input in one case are drawn from."""
    return f"{value}\0{case}\0{seed}" if seed else f"{value}\0{case}"


def _get_element_type(value: ValueInfo) -> str:
    return value.type.removeprefix("tensor(").removesuffix(")")
