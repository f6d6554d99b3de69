"""Shard plan: division of a check among jobs by measured or estimated costs, and its file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from onnxgate import __version__
from onnxgate.core.errors import UsageError
from onnxgate.core.files import replace_atomically
from onnxgate.core.report import Report
from onnxgate.inputs.case_selection import CaseSelection
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.lock.types import Lock
from onnxgate.project.plan import PlannedModel, plan_models
from onnxgate.runtimes.environments.storage import costs_dir

MAX_SHARDS = 256
"""Jobs of one matrix. Source: GitHub's documentation, 2026-08."""
PLAN_KEY_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class CheckState:
    """The divided check: digests of config and lock, and the models."""

    onnxgate: str
    config: str
    lock: str
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """The shard of each model; `plan` is the digest of the division and of the divided check."""

    state: CheckState
    of: int
    shards: tuple[int, ...]

    @property
    def plan(self) -> str:
        """Digest of the division: equal if the same check is divided in the same way."""
        state = self.state
        return digest_values([state.onnxgate, state.config, state.lock, state.models, self.of, self.shards])

    @property
    def key(self) -> str:
        """The beginning of the plan's digest, which users see."""
        return self.plan[:PLAN_KEY_CHARACTERS]

    def of_shard(self, index: int) -> tuple[str, ...]:
        """Return the models of one shard."""
        return tuple(path for path, shard in zip(self.state.models, self.shards, strict=True) if shard == index)


@dataclass(frozen=True, slots=True)
class Share:
    """One part of a check."""

    index: int
    division: Division

    @property
    def all_models(self) -> frozenset[str]:
        """The models of all shards."""
        return frozenset(self.division.state.models)

    def own(self, models: Iterable[SelectedModel]) -> tuple[SelectedModel, ...]:
        """Select the models of this shard."""
        mine = set(self.division.of_shard(self.index))
        return tuple(model for model in models if model.path in mine)

    def others(self, own: Iterable[str]) -> frozenset[str]:
        """Return the models of the other shards."""
        return self.all_models - set(own)

    def __str__(self) -> str:
        return f"shard {self.index} of {self.division.of}"


def digest_values(values: object) -> str:
    """Digest plain values."""
    return hashlib.sha256(json.dumps(values, ensure_ascii=True).encode()).hexdigest()


def digest_text_file(path: Path) -> str:
    """Digest a text file, independent of its line endings."""
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def parse_shard(text: str) -> tuple[int, int]:
    """
    Parse the value of `--shard`: the number of the shard, and the number of shards.

    Raises:
        UsageError: it is not `i/N`.
    """
    match = re.fullmatch(r"(\d{1,3})/(\d{1,3})", text, re.ASCII)
    if match is None:
        raise UsageError(f"`--shard` is `{text}`; expected `i/N`", hint="give `2/4`, or a `shard` of `onnxgate plan`")
    index, of = int(match[1]), int(match[2])
    if not 1 <= of <= MAX_SHARDS or not 1 <= index <= of:
        raise UsageError(f"`--shard` is `{index}/{of}`; expected 1 to N, and N from 1 to {MAX_SHARDS}")
    return index, of


def divide_models(state: CheckState, of: int, weights: Mapping[str, int]) -> Division:
    """Assign the models, heaviest first, to the shard with the least weight; ties by path and by number."""
    loads = dict.fromkeys(range(1, of + 1), 0)
    chosen: dict[str, int] = {}
    for path in sorted(state.models, key=lambda path: (-weights[path], path)):
        shard = min(loads, key=lambda index: (loads[index], index))
        loads[shard] += max(1, weights[path])
        chosen[path] = shard
    return Division(state, of, tuple(chosen[path] for path in state.models))


class PlanEntry(msgspec.Struct, frozen=True):
    """One shard that has models."""

    shard: str  # the value of `--shard`
    index: int
    of: int
    key: str
    models: int  # how many
    paths: tuple[str, ...]


class PlanFile(msgspec.Struct, frozen=True):
    """A plan as JSON, which is also the matrix of a job."""

    include: tuple[PlanEntry, ...]


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """A division with the weight of each model."""

    division: Division
    weights_ms: dict[str, int]
    measured: int  # of how many models something was measured

    @property
    def entries(self) -> tuple[PlanEntry, ...]:
        """The shards that have models."""
        of, key = self.division.of, self.division.key
        shards = [(index, self.division.of_shard(index)) for index in sorted(set(self.division.shards))]
        return tuple(PlanEntry(f"{index}/{of}", index, of, key, len(paths), paths) for index, paths in shards)


def plan_shards(project: Project, lock: Lock, models: Sequence[SelectedModel], of: int) -> ShardPlan:
    """Divide by measured costs if there are any, and by estimates otherwise."""
    weights, measured = combine_costs_ms(plan_models(project, lock, models), lock, costs_dir())
    return ShardPlan(divide_models(_describe_check(project, models), of, weights), weights, measured)


def select_share(
    shard: str, plan: Path | None, project: Project, lock: Lock, models: Sequence[SelectedModel], inputs: CaseSelection
) -> Share:
    """
    Select the models of a shard: those of the plan, or without one of a division by estimates, equal in every job.

    Raises:
        UsageError: `shard` is invalid, the plan is of another check, or input cases are named, which not every shard
            has.
    """
    if inputs.cases:
        raise UsageError("`--case` and `--shard` exclude each other")
    index, of = parse_shard(shard)
    state = _describe_check(project, models)
    if plan is not None:
        return Share(index, load_division(plan, state, of))
    return Share(index, divide_models(state, of, estimate_costs_ms(plan_models(project, lock, models), lock)))


def load_division(file: Path, state: CheckState, of: int) -> Division:
    """
    Load the division of a check into `of` shards from the file that `onnxgate plan` wrote.

    Raises:
        UsageError: it cannot be read, or is the plan of another check.
    """
    try:
        entries = msgspec.convert(json.loads(file.read_bytes()), PlanFile).include
    except (OSError, ValueError, RecursionError, msgspec.ValidationError) as error:
        raise UsageError(f"`--plan` is not a plan: {error}", hint="give the file that `onnxgate plan` wrote") from error
    shards = {path: entry.index for entry in entries for path in entry.paths}
    division = Division(state, of, tuple(shards.get(path, 0) for path in state.models))
    if 0 in division.shards or any(entry.key != division.key for entry in entries):
        raise UsageError(
            "`--plan` is of another check: config, lock, models, number of shards or version of onnxgate differ",
            hint="plan and check one commit with one onnxgate, and give both the same PATHS",
        )
    return division


def _describe_check(project: Project, models: Sequence[SelectedModel]) -> CheckState:
    paths = tuple(sorted(model.path for model in models))
    return CheckState(__version__, digest_text_file(project.path), digest_text_file(project.lock_path), paths)


MAX_COST_S = 1e6
"""A higher cost means that the file is damaged."""
MAX_COST_FILE_BYTES = 2**16
"""A larger file was not written by onnxgate."""
TOOLCHAIN = "toolchain"
"""Name of the cost of a source."""
STATIC_MS = 40
LEVEL_MS = 60
CASE_MS = 10
EXPORT_MS = 8_000
BYTES_PER_MS = 200_000
"""Read, hashed, loaded or run. Source: order of magnitude, measured on two cores."""
DEFAULT_CASE_COUNT = 3


def load_costs(folder: Path, sha256: str) -> dict[str, float]:
    """Load the cost of a content in its last full check; empty if it is not known."""
    file = folder / sha256
    try:
        if not _is_digest(sha256) or not is_cost_file(file):
            return {}
        costs = msgspec.json.decode(file.read_bytes(), type=dict[str, float])
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return {name: seconds for name, seconds in costs.items() if math.isfinite(seconds) and 0 <= seconds <= MAX_COST_S}


def save_costs(folder: Path, sha256: str, seconds: Mapping[str, float]) -> None:
    """Store the cost of a content in a file of its own, so that folders of several machines can be merged."""
    if not _is_digest(sha256):
        return
    with contextlib.suppress(OSError):  # then the cost is estimated
        folder.mkdir(parents=True, exist_ok=True)
        rows = {name: round(cost, 3) for name, cost in sorted(seconds.items())}
        with replace_atomically(folder / sha256) as scratch:
            scratch.write_bytes(msgspec.json.encode(rows))


def copy_costs(source: Path, folder: Path, contents: Iterable[str]) -> None:
    """Copy the costs of these contents from another machine."""
    for sha256 in contents:
        if seconds := load_costs(source, sha256):
            save_costs(folder, sha256, seconds)


def is_cost_file(file: Path) -> bool:
    """True if `save_costs` may have written the file: a small regular file."""
    return not file.is_symlink() and file.is_file() and file.stat().st_size <= MAX_COST_FILE_BYTES


def _is_digest(text: str) -> bool:
    """True for a digest: names from other machines must not point to other folders."""
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def estimate_costs_ms(planned: Iterable[PlannedModel], lock: Lock) -> dict[str, int]:
    """Estimate the cost of each model from config and lock alone, so that it is equal on every machine."""
    return {model.path: _static_ms(model, lock) + sum(_dynamic_ms(model, lock).values()) for model in planned}


def combine_costs_ms(planned: Iterable[PlannedModel], lock: Lock, folder: Path) -> tuple[dict[str, int], int]:
    """Combine measured costs with estimates; also return the number of models with measured costs.

    Estimates are scaled by the ratio of measured costs to their estimates.
    """
    models = tuple(planned)
    parts = {model.path: _dynamic_ms(model, lock) for model in models}
    measured = {
        path: {name: round(cost_s * 1000) for name, cost_s in costs.items() if name in parts[path]}
        for path in parts
        for costs in (load_costs(folder, lock.models[path].sha256) if path in lock.models else {},)
    }
    measured_parts = [(path, name) for path, costs in measured.items() for name in costs]
    spent = sum(measured[path][name] for path, name in measured_parts)
    estimated = sum(parts[path][name] for path, name in measured_parts)
    weights = {}
    for model in models:
        costs = measured[model.path]
        rest = sum(cost for name, cost in parts[model.path].items() if name not in costs)
        scaled_rest = rest * spent // estimated if spent else rest
        weights[model.path] = _static_ms(model, lock) + sum(costs.values()) + scaled_rest
    return weights, sum(map(bool, measured.values()))


def _static_ms(planned: PlannedModel, lock: Lock) -> int:
    return STATIC_MS + _size_bytes(planned, lock) // BYTES_PER_MS


def _dynamic_ms(planned: PlannedModel, lock: Lock) -> dict[str, int]:
    """Estimate the cost by runtime, and of the toolchain if it exports the model."""
    size_ms = _size_bytes(planned, lock) // BYTES_PER_MS
    cases = max((len(values) for values in planned.model.settings.sizes.values()), default=DEFAULT_CASE_COUNT)
    level_ms = LEVEL_MS + size_ms + cases * (CASE_MS + size_ms)
    parts = {runtime.name: len(runtime.levels) * level_ms for runtime in planned.runtimes}
    if planned.model.settings.is_exported:
        parts[TOOLCHAIN] = EXPORT_MS + 4 * size_ms
    return parts


def _size_bytes(planned: PlannedModel, lock: Lock) -> int:
    """Return the locked size: in a checkout without Git LFS the files are smaller."""
    locked = lock.models.get(planned.path)
    return locked.size_bytes + sum(data.size_bytes for data in locked.external) if locked else 0


def save_measured_costs(
    report: Report,
    folder: Path,
    seconds: Mapping[str, Mapping[str, float]],
    reused: Collection[tuple[str, str]] = (),
) -> None:
    """Store the cost of each model; `seconds` are by its absolute path and by worker.

    For runs from the cache (`reused`, by path and runtime), earlier measurements still count: on a machine without the
    cache they cost that much. A runtime whose full cost is not known is left out.
    """
    runtimes = {cell.runtime for cell in report.cells}
    for model in report.models:
        spent: dict[str, float] = {}
        path = str(folder / model.path)
        for worker, spent_s in seconds.get(path, {}).items():
            name = worker if worker in runtimes else TOOLCHAIN
            spent[name] = spent.get(name, 0.0) + spent_s
        spared = {runtime for file, runtime in reused if file == path}
        before = load_costs(costs_dir(), model.sha256) if spared else {}
        complete = {name: cost for name, cost in spent.items() if name not in spared}
        complete |= {name: max(before[name], spent.get(name, 0.0)) for name in spared if name in before}
        if complete and model.sha256:
            save_costs(costs_dir(), model.sha256, complete)


def import_shard_costs(reports: Iterable[Path], merged: Report) -> None:
    """Store the costs that the jobs of shards have written next to their reports."""
    contents = {model.sha256 for model in merged.models}
    for folder in reports:
        if folder.is_dir():
            copy_costs(folder / "costs", costs_dir(), contents)
