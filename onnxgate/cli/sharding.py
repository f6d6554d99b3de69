"""The division of a check from what a command line says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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


def keep_costs(
    report: Report,
    folder: Path,
    seconds: Mapping[str, Mapping[str, float]],
    reused: Collection[tuple[str, str]] = (),
) -> None:
    """Keep what each model cost; `seconds` are by its absolute path and by where they were spent.

    Where a run was taken over (`reused`, by path and runtime), what was measured before still counts: it costs that
    much again on a machine which nobody left results for.
    """
    from onnxgate.runtimes.store import costs_dir

    runtimes = {cell.runtime for cell in report.cells}
    for model in report.models:
        spent: dict[str, float] = {}
        path = str(folder / model.path)
        for seat, each in seconds.get(path, {}).items():
            name = seat if seat in runtimes else costs.TOOLCHAIN
            spent[name] = spent.get(name, 0.0) + each
        spared = {runtime for file, runtime in reused if file == path}
        spent = _with_spared(spent, costs.load(costs_dir(), model.sha256) if spared else {}, spared)
        if spent and model.sha256:
            costs.save(costs_dir(), model.sha256, spent)


def _with_spared(spent: costs.Seconds, before: costs.Seconds, spared: Collection[str]) -> dict[str, float]:
    """The costs of a model of which some runs were not made; nothing of a runtime whose whole cost is not known."""
    whole = {name: each for name, each in spent.items() if name not in spared}
    return whole | {name: max(before[name], spent.get(name, 0.0)) for name in spared if name in before}


def take_costs(reports: Iterable[Path], merged: Report) -> None:
    """Keep what the jobs of shards measured, where they left it beside their reports; it only balances."""
    from onnxgate.runtimes.store import costs_dir

    contents = {model.sha256 for model in merged.models}
    for folder in reports:
        if folder.is_dir():
            costs.take(folder / "costs", costs_dir(), contents)
