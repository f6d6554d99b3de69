"""What one model is fed: the user's own inputs where there are some, else generated ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxgate.config.project import Project, SelectedModel
from onnxgate.inputs.generate import Unfeedable, make_cases, why_untakeable
from onnxgate.inputs.user import user_cases
from onnxgate.model.reading import Reading
from onnxgate.runtimes.jobs import Case


@dataclass(frozen=True, slots=True)
class Fed:
    """The cases of a model, or why there are none."""

    cases: tuple[Case, ...]
    reason: str = ""
    hint: str = ""


def feed(project: Project, model: SelectedModel, reading: Reading, folder: Path) -> Fed:
    """Write the model's cases below `folder`.

    Raises:
        ConfigError: the user's own inputs are not what the model takes.
    """
    settings = model.settings
    untakeable = why_untakeable(reading.facts.inputs)
    if untakeable:
        return Fed((), untakeable)
    if settings.inputs is not None:
        return Fed(user_cases(reading.facts, settings.inputs, project.folder, folder))
    return feed_at(model, reading, (), folder)


def feed_at(model: SelectedModel, reading: Reading, sizes: Sequence[Mapping[str, int]], folder: Path) -> Fed:
    """Generated cases at these sizes of the dynamic axes; without any, at those that are tried first."""
    try:
        return Fed(make_cases(reading.facts, reading.proto, model.settings.sizes, folder, sizes))
    except Unfeedable as reason:
        return Fed((), reason.message, reason.hint or "")
