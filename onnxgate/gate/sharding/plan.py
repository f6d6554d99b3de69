"""The division of a check among jobs: each computes the same one by itself, or takes it from the plan."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import math
import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate import __version__
from onnxgate.core.errors import UsageError
from onnxgate.core.files import replace_atomically
from onnxgate.core.findings import ALL_STAGES, DYNAMIC_STAGES, Stage
from onnxgate.core.report import Report
from onnxgate.inputs.case_selection import CaseSelection
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.lock.types import Lock, LockedModel
from onnxgate.project.plan import PlannedModel, PlannedRuntime, plan_models
from onnxgate.runtimes.environments.storage import costs_dir

if TYPE_CHECKING:
    from onnxgate.project.config.project import SelectedModel


MAX_SHARDS = 256
"""Jobs of one matrix. Source: GitHub's documentation, 2026-08."""
MAX_CODE_CHARACTERS = 700_000
"""What the weights in all entries of a matrix may take: a job's outputs hold 1 MB."""
PLAN_KEY_CHARACTERS = 12
MANTISSA_BITS = 3


@dataclass(frozen=True, slots=True)
class ShardSelector:
    """What `--shard 2/4@1a2b3c4d5e6f.eNpj` says: the part, and of which plan it is."""

    index: int
    of: int
    plan: str = ""  # the beginning of the plan's digest; "" where no plan is named
    code: str = ""  # the weights of the models; "" where they are estimated

    def __str__(self) -> str:
        plan = f"@{self.plan}" if self.plan else ""
        return f"{self.index}/{self.of}{plan}{f'.{self.code}' if self.code else ''}"


@dataclass(frozen=True, slots=True)
class CheckState:
    """What is divided: the digests of config and lock, and the models of the check."""

    onnxgate: str
    config: str
    lock: str
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """Which of `of` shards judges each model; `plan` is the digest of that and of what is divided."""

    state: CheckState
    of: int
    shards: tuple[int, ...]

    @property
    def plan(self) -> str:
        """Equal wherever the same is divided in the same way."""
        state = self.state
        return digest_values([state.onnxgate, state.config, state.lock, state.models, self.of, self.shards])

    def of_shard(self, index: int) -> tuple[str, ...]:
        """The models that one shard judges."""
        return tuple(path for path, shard in zip(self.state.models, self.shards, strict=True) if shard == index)


def parse_selector(text: str) -> ShardSelector:
    """
    What `--shard` was given.

    Raises:
        UsageError: it is no `i/N`, alone or with what `onnxgate plan` wrote behind it.
    """
    form = rf"(\d{{1,3}})/(\d{{1,3}})(?:@([0-9a-f]{{{PLAN_KEY_CHARACTERS}}})(?:\.([A-Za-z0-9_-]+))?)?"
    found = re.fullmatch(form, text, re.ASCII)
    if found is None:
        hint = "give `2/4`, or what `onnxgate plan` wrote as `shard`"
        raise UsageError(f"`--shard` is `{text}`; expected `i/N`", hint=hint)
    index, of = int(found[1]), int(found[2])
    if not 1 <= of <= MAX_SHARDS or not 1 <= index <= of:
        raise UsageError(f"`--shard` is `{index}/{of}`; expected 1 to N, and N from 1 to {MAX_SHARDS}")
    return ShardSelector(index, of, found[3] or "", found[4] or "")


def digest_values(said: object) -> str:
    """A digest of plain values."""
    return hashlib.sha256(json.dumps(said, ensure_ascii=True).encode()).hexdigest()


def digest_text_file(path: Path) -> str:
    """The digest of a text, however the system that it was checked out on ends lines."""
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def divide_models(state: CheckState, of: int, weights: Mapping[str, int]) -> Division:
    """The heaviest model first, each to the shard that has the least so far; ties by path and by number."""
    loads = dict.fromkeys(range(1, of + 1), 0)
    chosen: dict[str, int] = {}
    for path in sorted(state.models, key=lambda path: (-weights[path], path)):
        shard = min(loads, key=lambda index: (loads[index], index))
        loads[shard] += max(1, weights[path])
        chosen[path] = shard
    return Division(state, of, tuple(chosen[path] for path in state.models))


def round_weight(weight_ms: int, bits: int = MANTISSA_BITS) -> int:
    """A weight as near as one byte can say it; with fewer bits more coarsely."""
    return unpack_weight(pack_weight(weight_ms, bits))


def pack_weight(weight_ms: int, bits: int = MANTISSA_BITS) -> int:
    """One byte for a weight: its exponent, and the bits below its highest one."""
    value = max(weight_ms, 1) << MANTISSA_BITS
    exponent = min(value.bit_length() - 1 - MANTISSA_BITS, (1 << 8 - MANTISSA_BITS) - 1)
    mantissa = min(value >> exponent, (2 << MANTISSA_BITS) - 1) & ~(-1 << MANTISSA_BITS)
    dropped = MANTISSA_BITS - bits
    return exponent << MANTISSA_BITS | mantissa >> dropped << dropped


def unpack_weight(byte: int) -> int:
    """The weight that a byte stands for, in ms."""
    exponent, mantissa = divmod(byte, 1 << MANTISSA_BITS)
    return ((1 << MANTISSA_BITS | mantissa) << exponent) >> MANTISSA_BITS or 1


def encode_weights(weights_ms: Sequence[int], of: int) -> tuple[str, tuple[int, ...]]:
    """Weights as text, as exactly as there is room for, and what a reader makes of it; ("", …) where there is none."""
    for bits in range(MANTISSA_BITS, -1, -1):
        content = bytes(pack_weight(weight, bits) for weight in weights_ms)
        code = base64.urlsafe_b64encode(zlib.compress(content, 9)).decode().rstrip("=")
        if len(code) * of <= MAX_CODE_CHARACTERS:
            return code, tuple(map(unpack_weight, content))
    return "", tuple(map(round_weight, weights_ms))


def decode_weights(code: str, models: int) -> tuple[int, ...]:
    """
    The weights of so many models.

    Raises:
        UsageError: the text does not hold them.
    """
    try:
        reader = zlib.decompressobj()
        content = reader.decompress(base64.urlsafe_b64decode(code + "=" * (-len(code) % 4)), models + 1)
        whole = reader.eof  # its checksum was there, and was right
    except (binascii.Error, zlib.error, ValueError):
        content, whole = b"", False
    if not whole or len(content) != models:
        raise UsageError(
            "`--shard` does not hold the weights of these models: it is cut off, or of another plan",
            hint="give what `onnxgate plan` wrote as `shard`, for this commit and these PATHS",
        )
    return tuple(map(unpack_weight, content))


def resolve_division(state: CheckState, asked: ShardSelector, estimates: Mapping[str, int]) -> Division:
    """
    The division that a job was given a part of; `estimates` count where it was given no weights.

    Raises:
        UsageError: it is a part of another plan than the one that these files have.
    """
    weights = {path: round_weight(estimates[path]) for path in state.models}
    if asked.code:
        weights = dict(zip(state.models, decode_weights(asked.code, len(state.models)), strict=True))
    division = divide_models(state, asked.of, weights)
    if asked.plan and not division.plan.startswith(asked.plan):
        raise UsageError(
            f"`--shard` is of another plan: `{asked.plan}`, and here it is `{division.plan[:PLAN_KEY_CHARACTERS]}`",
            hint="plan and check one commit with one onnxgate, and give both the same PATHS",
        )
    return division


@dataclass(frozen=True, slots=True)
class Share:
    """One part of a check."""

    index: int
    division: Division

    @property
    def whole(self) -> frozenset[str]:
        """The models of all parts."""
        return frozenset(self.division.state.models)

    def own(self, models: Iterable[SelectedModel]) -> tuple[SelectedModel, ...]:
        """Those of the models that this part judges."""
        mine = set(self.division.of_shard(self.index))
        return tuple(model for model in models if model.path in mine)

    def others(self, own: Iterable[str]) -> frozenset[str]:
        """Those that are judged elsewhere."""
        return self.whole - set(own)

    def __str__(self) -> str:
        return f"shard {self.index} of {self.division.of}"


MAX_COST_S = 1e6
"""A cost above that is none: the file is damaged."""
MAX_COST_FILE_BYTES = 2**16
"""A file that holds more is none of ours."""
COSTLY_STAGES = frozenset(DYNAMIC_STAGES)
TOOLCHAIN = "toolchain"
"""Stands for all seats that are no runtime: what a source costs."""
STATIC_MS = 40
LEVEL_MS = 60
CASE_MS = 10
EXPORT_MS = 8_000
BYTES_PER_MS = 200_000
"""Read, hashed, loaded or run. Source: measured on two cores, orders of magnitude: estimates need no more."""
DEFAULT_CASE_COUNT = 3

CostSeconds = Mapping[str, float]  # by runtime, or TOOLCHAIN


def load_costs(folder: Path, sha256: str) -> dict[str, float]:
    """What a content cost when it was last judged in full; nothing where that is not known."""
    file = folder / sha256
    try:
        if not _is_digest(sha256) or not is_cost_file(file):
            return {}
        found = msgspec.json.decode(file.read_bytes(), type=dict[str, float])
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return {name: seconds for name, seconds in found.items() if math.isfinite(seconds) and 0 <= seconds <= MAX_COST_S}


def save_costs(folder: Path, sha256: str, seconds: CostSeconds) -> None:
    """Keep what a content cost, one file each, so that folders of several machines can be laid together."""
    if not _is_digest(sha256):
        return
    with contextlib.suppress(OSError):  # it is no worse than not having measured
        folder.mkdir(parents=True, exist_ok=True)
        rows = {name: round(each, 3) for name, each in sorted(seconds.items())}
        with replace_atomically(folder / sha256) as scratch:
            scratch.write_bytes(msgspec.json.encode(rows))


def copy_costs(source: Path, folder: Path, contents: Iterable[str]) -> None:
    """Keep what another machine measured of these contents."""
    for sha256 in contents:
        if seconds := load_costs(source, sha256):
            save_costs(folder, sha256, seconds)


def is_cost_file(file: Path) -> bool:
    """Whether it may be a file that `save` wrote: no link, no pipe, and not large."""
    return not file.is_symlink() and file.is_file() and file.stat().st_size <= MAX_COST_FILE_BYTES


def _is_digest(text: str) -> bool:
    """Names come from reports and folders of other machines; none leads elsewhere."""
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def estimate_costs_ms(planned: Iterable[PlannedModel], lock: Lock, stages: frozenset[Stage]) -> dict[str, int]:
    """What each model may cost: from config and lock alone, so that it is the same on every machine."""
    return {
        each.path: _static_ms(each, lock) + sum(_dynamic_ms(each, lock).values()) * bool(stages & COSTLY_STAGES)
        for each in planned
    }


def combine_costs_ms(
    planned: Iterable[PlannedModel], lock: Lock, stages: frozenset[Stage], folder: Path
) -> tuple[dict[str, int], int]:
    """The same with what was measured in place of estimates, and of how many models something was.

    What was not measured is estimated, and scaled as the measured rest is.
    """
    models = tuple(planned)
    parts = {each.path: _dynamic_ms(each, lock) for each in models if stages & COSTLY_STAGES}
    measured = {path: _measured_ms(folder, lock.models.get(path), part) for path, part in parts.items()}
    known = [(path, name) for path, found in measured.items() for name in found]
    spent, guessed = sum(measured[path][name] for path, name in known), sum(parts[path][name] for path, name in known)
    weights = {}
    for model in models:
        found, part = measured.get(model.path, {}), parts.get(model.path, {})
        rest = sum(cost for name, cost in part.items() if name not in found)
        weights[model.path] = (
            _static_ms(model, lock) + sum(found.values()) + (rest * spent // guessed if spent else rest)
        )
    return weights, sum(map(bool, measured.values()))


def _measured_ms(folder: Path, locked: LockedModel | None, part: Mapping[str, int]) -> dict[str, int]:
    seconds = load_costs(folder, locked.sha256) if locked is not None else {}
    return {name: round(second * 1000) for name, second in seconds.items() if name in part}


def _static_ms(planned: PlannedModel, lock: Lock) -> int:
    return STATIC_MS + _size_bytes(planned, lock) // BYTES_PER_MS


def _dynamic_ms(planned: PlannedModel, lock: Lock) -> dict[str, int]:
    """By runtime, and of the toolchain where it exports the model."""
    size_ms = _size_bytes(planned, lock) // BYTES_PER_MS
    cases = max((len(values) for values in planned.model.settings.sizes.values()), default=DEFAULT_CASE_COUNT)
    parts = {runtime.name: _runtime_ms(runtime, cases, size_ms) for runtime in planned.runtimes}
    if planned.model.settings.is_exported:
        parts[TOOLCHAIN] = EXPORT_MS + 4 * size_ms
    return parts


def _runtime_ms(runtime: PlannedRuntime, cases: int, size_ms: int) -> int:
    return len(runtime.levels) * (LEVEL_MS + size_ms + cases * (CASE_MS + size_ms))


def _size_bytes(planned: PlannedModel, lock: Lock) -> int:
    """As it is locked: in a checkout without Git LFS the files are smaller."""
    locked = lock.models.get(planned.path)
    return locked.size_bytes + sum(each.size_bytes for each in locked.external) if locked else 0


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """A division with the texts that `--shard` takes, and what each model weighs."""

    division: Division
    shards: tuple[ShardSelector, ...]
    weights_ms: dict[str, int]
    measured: int  # of how many models something was measured


def describe_check(project: Project, models: Sequence[SelectedModel]) -> CheckState:
    """What is divided."""
    paths = tuple(sorted(model.path for model in models))
    return CheckState(__version__, digest_text_file(project.path), digest_text_file(project.lock_path), paths)


def select_share(
    text: str, project: Project, lock: Lock, models: Sequence[SelectedModel], asked: CaseSelection
) -> Share:
    """
    The part of these models that `--shard` names.

    Estimates are those of a whole check, whichever stages are asked for: they only balance, and every job must divide
    alike.

    Raises:
        UsageError: it names none, or one of another plan; or input cases are named, which not every shard has.
    """
    if asked.cases:
        raise UsageError("`--case` and `--shard` exclude each other")
    named = parse_selector(text)
    estimates = estimate_costs_ms(plan_models(project, lock, models), lock, frozenset(ALL_STAGES))
    return Share(named.index, resolve_division(describe_check(project, models), named, estimates))


def plan_shards(project: Project, lock: Lock, models: Sequence[SelectedModel], of: int) -> ShardPlan:
    """The division by measured cost, where something was measured; else the one that every job computes by itself."""
    planned, stages = plan_models(project, lock, models), frozenset(ALL_STAGES)
    state = describe_check(project, models)
    weights, measured = combine_costs_ms(planned, lock, stages, costs_dir())
    code, rounded = encode_weights([weights[path] for path in state.models], of) if measured else ("", ())
    if not code:
        weights = estimate_costs_ms(planned, lock, stages)
        rounded = tuple(round_weight(weights[path]) for path in state.models)
    division = divide_models(state, of, dict(zip(state.models, rounded, strict=True)))
    name = division.plan[:PLAN_KEY_CHARACTERS]
    parts = tuple(ShardSelector(index, of, name, code) for index in sorted(set(division.shards)))
    return ShardPlan(division, parts, weights, measured)


def save_measured_costs(
    report: Report,
    folder: Path,
    seconds: Mapping[str, Mapping[str, float]],
    reused: Collection[tuple[str, str]] = (),
) -> None:
    """Keep what each model cost; `seconds` are by its absolute path and by where they were spent.

    Where a run was taken over (`reused`, by path and runtime), what was measured before still counts: it costs that
    much again on a machine which nobody left results for.
    """
    runtimes = {cell.runtime for cell in report.cells}
    for model in report.models:
        spent: dict[str, float] = {}
        path = str(folder / model.path)
        for seat, each in seconds.get(path, {}).items():
            name = seat if seat in runtimes else TOOLCHAIN
            spent[name] = spent.get(name, 0.0) + each
        spared = {runtime for file, runtime in reused if file == path}
        spent = _add_reused_costs(spent, load_costs(costs_dir(), model.sha256) if spared else {}, spared)
        if spent and model.sha256:
            save_costs(costs_dir(), model.sha256, spent)


def _add_reused_costs(spent: CostSeconds, before: CostSeconds, spared: Collection[str]) -> dict[str, float]:
    """The costs of a model of which some runs were not made; nothing of a runtime whose whole cost is not known."""
    whole = {name: each for name, each in spent.items() if name not in spared}
    return whole | {name: max(before[name], spent.get(name, 0.0)) for name in spared if name in before}


def import_shard_costs(reports: Iterable[Path], merged: Report) -> None:
    """Keep what the jobs of shards measured, where they left it beside their reports; it only balances."""
    contents = {model.sha256 for model in merged.models}
    for folder in reports:
        if folder.is_dir():
            copy_costs(folder / "costs", costs_dir(), contents)
