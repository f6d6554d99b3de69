"""What one model is fed: the user's own inputs where there are some, else generated ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onnxgate.config.project import Project, SelectedModel
from onnxgate.inputs.asked import ALL, Asked
from onnxgate.inputs.generate import Unfeedable, case_name, generated_names, make_cases, why_untakeable
from onnxgate.inputs.user import given_cases, unread_outputs, user_cases
from onnxgate.model.reading import Reading
from onnxgate.runtimes.jobs import Case


@dataclass(frozen=True, slots=True)
class Fed:
    """The cases of a model, or why there are none."""

    cases: tuple[Case, ...]
    reason: str = ""
    hint: str = ""
    names: tuple[str, ...] = ()  # of all cases that could be asked for
    unread: str = ""  # what lies beside the user's inputs and nothing is held to


Call = Callable[[str, Path], "Sequence[Mapping[str, str]] | Fed"]
"""Calls what gives inputs, `samples.py:batches`; says instead why it cannot be called here."""


def _call_nothing(source: str, _: Path) -> Fed:
    return Fed((), f"`{source}` is not called here")


def feed(
    project: Project,
    model: SelectedModel,
    reading: Reading,
    folder: Path,
    asked: Asked = ALL,
    call: Call = _call_nothing,
) -> Fed:
    """Write the model's cases below `folder`, those that are asked for.

    Raises:
        ConfigError: the user's own inputs are not what the model takes.
    """
    settings = model.settings
    untakeable = why_untakeable(reading.facts.inputs)
    if untakeable:
        return Fed((), untakeable)
    if settings.inputs is not None:
        unread = ""
        if settings.called_inputs:
            given = call(settings.called_inputs, folder / "called")
            if isinstance(given, Fed):
                return given
            cases = given_cases(reading.facts, settings.called_inputs, given, folder)
        else:
            cases = user_cases(reading.facts, settings.inputs, project.folder, folder)
            beside = unread_outputs(settings.inputs, project.folder)
            unread = f"the outputs in `{beside}` are not read: nothing is held to them" if beside else ""
        taken = tuple(case for case in cases if asked.takes(case.name))
        return Fed(taken, names=tuple(case.name for case in cases), unread=unread)
    return _generated(model, reading, folder, asked)


def _generated(model: SelectedModel, reading: Reading, folder: Path, asked: Asked) -> Fed:
    """Of the generated cases those that are asked for, also at sizes that are not tried by themselves."""
    usual = generated_names(reading.facts, model.settings.sizes)
    sizes = list(asked.settings(reading.facts.inputs))
    names = (*usual, *(case_name(setting) for setting in sizes))
    if asked.cases and not any(asked.takes(name) for name in names):
        return Fed((), names=names)
    return replace(feed_at(model, reading, sizes, folder, asked.seed), names=names)


def feed_at(
    model: SelectedModel, reading: Reading, sizes: Sequence[Mapping[str, int]], folder: Path, seed: int = 0
) -> Fed:
    """Generated cases at these sizes of the dynamic axes; without any, at those that are tried first."""
    try:
        return Fed(make_cases(reading.facts, reading.proto, model.settings.sizes, folder, sizes, seed))
    except Unfeedable as reason:
        return Fed((), reason.message, reason.hint or "")
