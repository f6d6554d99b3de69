"""The division of a check from what a command line says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxgate import __version__, costs, shards
from onnxgate.config.project import Project, SelectedModel
from onnxgate.errors import UsageError
from onnxgate.findings import ALL_STAGES
from onnxgate.inputs.asked import Asked
from onnxgate.lock.types import Lock
from onnxgate.plan import plan_models
from onnxgate.report import Report
from onnxgate.shards import Division, Share, State


@dataclass(frozen=True, slots=True)
class Planned:
    """A division with the texts that `--shard` takes, and what each model weighs."""

    division: Division
    shards: tuple[shards.Asked, ...]
    weights_ms: dict[str, int]
    measured: int  # of how many models something was measured


def state_of(project: Project, models: Sequence[SelectedModel]) -> State:
    """What is divided."""
    paths = tuple(sorted(model.path for model in models))
    return State(__version__, shards.text_digest(project.path), shards.text_digest(project.lock_path), paths)


def share_of(text: str, project: Project, lock: Lock, models: Sequence[SelectedModel], asked: Asked) -> Share:
    """
    The part of these models that `--shard` names.

    Estimates are those of a whole check, whichever stages are asked for: they only balance, and every job must divide
    alike.

    Raises:
        UsageError: it names none, or one of another plan; or input cases are named, which not every shard has.
    """
    if asked.cases:
        raise UsageError("`--case` and `--shard` exclude each other")
    named = shards.parse(text)
    estimates = costs.estimates_ms(plan_models(project, lock, models), lock, frozenset(ALL_STAGES))
    return Share(named.index, shards.division_for(state_of(project, models), named, estimates))


def plan(project: Project, lock: Lock, models: Sequence[SelectedModel], of: int) -> Planned:
    """The division by measured cost, where something was measured; else the one that every job computes by itself."""
    from onnxgate.runtimes.store import costs_dir

    planned, stages = plan_models(project, lock, models), frozenset(ALL_STAGES)
    state = state_of(project, models)
    weights, measured = costs.weights_ms(planned, lock, stages, costs_dir())
    code, rounded = shards.encode([weights[path] for path in state.models], of) if measured else ("", ())
    if not code:
        weights = costs.estimates_ms(planned, lock, stages)
        rounded = tuple(shards.rounded(weights[path]) for path in state.models)
    division = shards.divide(state, of, dict(zip(state.models, rounded, strict=True)))
    name = division.plan[: shards.KEY_CHARACTERS]
    parts = tuple(shards.Asked(index, of, name, code) for index in sorted(set(division.shards)))
    return Planned(division, parts, weights, measured)


def keep_costs(report: Report, folder: Path, seconds: Mapping[str, Mapping[str, float]]) -> None:
    """Keep what each model cost; `seconds` are by its absolute path and by where they were spent."""
    from onnxgate.runtimes.store import costs_dir

    runtimes = {cell.runtime for cell in report.cells}
    for model in report.models:
        spent: dict[str, float] = {}
        for seat, each in seconds.get(str(folder / model.path), {}).items():
            name = seat if seat in runtimes else costs.TOOLCHAIN
            spent[name] = spent.get(name, 0.0) + each
        if spent and model.sha256:
            costs.save(costs_dir(), model.sha256, spent)
