"""Shard plan: how a check is split into jobs based on estimated or measured costs, and the plan file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from onnxgate import __version__
from onnxgate.core.cache_entries import add_checksum, decode_entry, record_damage, write_entry_file
from onnxgate.core.errors import UsageError
from onnxgate.core.files import read_limited
from onnxgate.core.report import Report
from onnxgate.inputs.case_selection import CaseSelection
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.lock.types import Lock
from onnxgate.project.plan import PlannedModel, plan_models
from onnxgate.runtimes.environments.storage import costs_dir

MAX_SHARDS = 256
"""Maximum number of jobs in one matrix. Source: GitHub's documentation, 2026-08."""
PLAN_KEY_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class CheckState:
    """The check to divide: the onnxgate version, the digests of the config and the lock, and the models."""

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
        """Digest of the divided check and its division."""
        state = self.state
        return digest_values([state.onnxgate, state.config, state.lock, state.models, self.of, self.shards])

    @property
    def key(self) -> str:
        """First characters of the plan digest, as shown to users."""
        return self.plan[:PLAN_KEY_CHARACTERS]

    def of_shard(self, index: int) -> tuple[str, ...]:
        """Return the models of one shard."""
        return tuple(path for path, shard in zip(self.state.models, self.shards, strict=True) if shard == index)


@dataclass(frozen=True, slots=True)
class Share:
    """One shard of a check."""

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
    """Digest a text file independently of its line endings."""
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def parse_shard(text: str) -> tuple[int, int]:
    """
    Parse the value of `--shard` into the shard index and the number of shards.

    Raises:
        UsageError: the value is not of the form `I/N`.
    """
    match = re.fullmatch(r"(\d{1,3})/(\d{1,3})", text, re.ASCII)
    if match is None:
        raise UsageError(f"`--shard` is `{text}`; expected `I/N`", hint="use a form such as `2/4`")
    index, of = int(match[1]), int(match[2])
    if not 1 <= of <= MAX_SHARDS or not 1 <= index <= of:
        raise UsageError(f"`--shard` is `{index}/{of}`; expected `I/N` with I from 1 to N and N from 1 to {MAX_SHARDS}")
    return index, of


def divide_models(state: CheckState, of: int, weights: Mapping[str, int]) -> Division:
    """Assign the models, heaviest first, to the shard with the least weight; ties are decided by path and index."""
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
    models: int  # number of models
    paths: tuple[str, ...]


class PlanFile(msgspec.Struct, frozen=True):
    """A plan as JSON that can be used as a job matrix."""

    include: tuple[PlanEntry, ...]


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """A division with the weight of each model."""

    division: Division
    weights_ms: dict[str, int]
    measured: int  # number of models with measured costs

    @property
    def entries(self) -> tuple[PlanEntry, ...]:
        """The shards that have models."""
        of, key = self.division.of, self.division.key
        shards = [(index, self.division.of_shard(index)) for index in sorted(set(self.division.shards))]
        return tuple(PlanEntry(f"{index}/{of}", index, of, key, len(paths), paths) for index, paths in shards)


def plan_shards(
    project: Project, lock: Lock, models: Sequence[SelectedModel], of: int, *, measured: bool = False
) -> ShardPlan:
    """Split a check based on estimated costs, which are equal on every machine, or costs measured on this machine."""
    planned = plan_models(project, lock, models)
    if measured:
        weights, measured_count = combine_costs_ms(planned, lock, costs_dir())
    else:
        weights, measured_count = estimate_costs_ms(planned, lock), 0
    return ShardPlan(divide_models(_describe_check(project, models), of, weights), weights, measured_count)


def select_share(
    shard: str, plan: Path | None, project: Project, lock: Lock, models: Sequence[SelectedModel], inputs: CaseSelection
) -> Share:
    """
    Select the models of a shard as the plan file assigns them or, without a file, as `onnxgate plan` does by default.

    Raises:
        UsageError: `shard` is invalid, the plan belongs to another check, or input cases are selected.
    """
    if inputs.cases:
        raise UsageError("`--case` cannot be combined with `--shard`")
    index, of = parse_shard(shard)
    if plan is not None:
        return Share(index, load_division(plan, _describe_check(project, models), of))
    return Share(index, plan_shards(project, lock, models, of).division)


_PLAN_HINT = "use the JSON output of `onnxgate plan`"


def load_division(file: Path, state: CheckState, of: int) -> Division:
    """
    Load the division of a check into `of` shards from a file written by `onnxgate plan`.

    Raises:
        UsageError: the file cannot be read, or its plan belongs to another check.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        problem = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise UsageError(f"`{file}` {problem}", hint=_PLAN_HINT) from error
    try:
        entries = msgspec.convert(json.loads(content), PlanFile).include
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise UsageError(f"`{file}` is not a plan", hint=_PLAN_HINT) from error
    shards = {path: entry.index for entry in entries for path in entry.paths}
    division = Division(state, of, tuple(shards.get(path, 0) for path in state.models))
    if 0 in division.shards or any(entry.key != division.key for entry in entries):
        raise UsageError(
            "the file in `--plan` was written for another check: the config, lock, models, shard count or onnxgate "
            "version is different",
            hint="use the same commit, PATHS and onnxgate version for `plan` and `check`",
        )
    return division


def _describe_check(project: Project, models: Sequence[SelectedModel]) -> CheckState:
    paths = tuple(sorted(model.path for model in models))
    return CheckState(__version__, digest_text_file(project.path), digest_text_file(project.lock_path), paths)


MAX_COST_S = 1e6
"""Highest plausible cost in seconds; higher values are ignored."""
MAX_COST_FILE_BYTES = 2**16
"""Maximum size of a cost file; larger files are ignored."""
TOOLCHAIN = "toolchain"
"""Key for the cost of exporting and running sources."""
STATIC_MS = 40
LEVEL_MS = 60
CASE_MS = 10
EXPORT_MS = 8_000
BYTES_PER_MS = 200_000
"""Assumed speed of reading, hashing, loading or running a model. Source: order of magnitude measured on two cores."""
DEFAULT_CASE_COUNT = 3


def load_costs(folder: Path, sha256: str) -> dict[str, float]:
    """Load the costs that the last full check measured for a model's content; empty if unknown."""
    file = folder / sha256
    if not _is_digest(sha256) or not os.path.lexists(file):
        return {}
    costs = None
    with contextlib.suppress(OSError):
        if is_cost_file(file):
            costs = decode_entry(sha256, read_limited(file, MAX_COST_FILE_BYTES), dict[str, float], msgspec.json)
    if costs is None:
        record_damage(str(file))
        return {}
    return {name: seconds for name, seconds in costs.items() if math.isfinite(seconds) and 0 <= seconds <= MAX_COST_S}


def save_costs(folder: Path, sha256: str, seconds: Mapping[str, float]) -> None:
    """Store the costs of a model's content in a separate file, so that folders from several machines can be merged."""
    if not _is_digest(sha256):
        return
    with contextlib.suppress(OSError):  # costs are optional
        rows = {name: round(float(cost), 3) for name, cost in sorted(seconds.items())}
        write_entry_file(folder / sha256, add_checksum(sha256, msgspec.json.encode(rows)))


def copy_costs(source: Path, folder: Path, contents: Iterable[str]) -> None:
    """Copy the costs of models with these digests, which another machine measured."""
    for sha256 in contents:
        if seconds := load_costs(source, sha256):
            save_costs(folder, sha256, seconds)


def is_cost_file(file: Path) -> bool:
    """Return whether `save_costs` may have written the file: a small regular file."""
    return not file.is_symlink() and file.is_file() and file.stat().st_size <= MAX_COST_FILE_BYTES


def _is_digest(text: str) -> bool:
    """Return whether the text is a digest. Names from other machines are untrusted, and could be paths."""
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def estimate_costs_ms(planned: Iterable[PlannedModel], lock: Lock) -> dict[str, int]:
    """Estimate the cost of each model from config and lock only, so that it is equal on every machine."""
    return {model.path: _static_ms(model, lock) + sum(_dynamic_ms(model, lock).values()) for model in planned}


def combine_costs_ms(planned: Iterable[PlannedModel], lock: Lock, folder: Path) -> tuple[dict[str, int], int]:
    """Combine measured costs with estimates; also return the number of models with measured costs.

    Estimates are scaled by the ratio of measured to estimated costs.
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
    """Estimate the cost on each runtime and, if the model is exported, in the toolchain."""
    size_ms = _size_bytes(planned, lock) // BYTES_PER_MS
    cases = max((len(values) for values in planned.model.settings.sizes.values()), default=DEFAULT_CASE_COUNT)
    level_ms = LEVEL_MS + size_ms + cases * (CASE_MS + size_ms)
    parts = {runtime.name: len(runtime.levels) * level_ms for runtime in planned.runtimes}
    if planned.model.settings.is_exported:
        parts[TOOLCHAIN] = EXPORT_MS + 4 * size_ms
    return parts


def _size_bytes(planned: PlannedModel, lock: Lock) -> int:
    """Return the size of the model according to the lock, since the checkout may contain Git LFS pointers."""
    locked = lock.models.get(planned.path)
    return locked.size_bytes + sum(data.size_bytes for data in locked.external) if locked else 0


def save_measured_costs(
    report: Report,
    folder: Path,
    seconds: Mapping[str, Mapping[str, float]],
    reused: Collection[tuple[str, str]] = (),
) -> None:
    """Store the cost of each model; `seconds` contains the durations by absolute model path and worker.

    For cached results (`reused`, by path and runtime), earlier measurements are kept, since they show the cost without
    the cache. Runtimes without a complete measurement are left out.
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
    """Store the costs that shard jobs have written next to their reports."""
    contents = {model.sha256 for model in merged.models}
    for folder in reports:
        if folder.is_dir():
            copy_costs(folder / "costs", costs_dir(), contents)
