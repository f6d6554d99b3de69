"""Shard plan: division of a check among jobs, cost estimates, and the `--shard` option."""

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
"""Limit of the weights in all entries of a matrix: the outputs of a job are limited to 1 MB."""
PLAN_KEY_CHARACTERS = 12
MANTISSA_BITS = 3


@dataclass(frozen=True, slots=True)
class ShardSelector:
    """The value of `--shard 2/4@1a2b3c4d5e6f.eNpj`: a shard, and its plan."""

    index: int
    of: int
    plan: str = ""  # the beginning of the plan's digest; "" without a plan
    code: str = ""  # the weights of the models; "" if they are estimated

    def __str__(self) -> str:
        plan = f"@{self.plan}" if self.plan else ""
        return f"{self.index}/{self.of}{plan}{f'.{self.code}' if self.code else ''}"


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

    def of_shard(self, index: int) -> tuple[str, ...]:
        """Return the models of one shard."""
        return tuple(path for path, shard in zip(self.state.models, self.shards, strict=True) if shard == index)


def parse_selector(text: str) -> ShardSelector:
    """
    Parse the value of `--shard`.

    Raises:
        UsageError: it is not `i/N`, alone or followed by what `onnxgate plan` wrote.
    """
    form = rf"(\d{{1,3}})/(\d{{1,3}})(?:@([0-9a-f]{{{PLAN_KEY_CHARACTERS}}})(?:\.([A-Za-z0-9_-]+))?)?"
    match = re.fullmatch(form, text, re.ASCII)
    if match is None:
        hint = "give `2/4`, or what `onnxgate plan` wrote as `shard`"
        raise UsageError(f"`--shard` is `{text}`; expected `i/N`", hint=hint)
    index, of = int(match[1]), int(match[2])
    if not 1 <= of <= MAX_SHARDS or not 1 <= index <= of:
        raise UsageError(f"`--shard` is `{index}/{of}`; expected 1 to N, and N from 1 to {MAX_SHARDS}")
    return ShardSelector(index, of, match[3] or "", match[4] or "")


def digest_values(values: object) -> str:
    """Digest plain values."""
    return hashlib.sha256(json.dumps(values, ensure_ascii=True).encode()).hexdigest()


def digest_text_file(path: Path) -> str:
    """Digest a text file, independent of its line endings."""
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def divide_models(state: CheckState, of: int, weights: Mapping[str, int]) -> Division:
    """Assign the models, heaviest first, to the shard with the least weight; ties by path and by number."""
    loads = dict.fromkeys(range(1, of + 1), 0)
    chosen: dict[str, int] = {}
    for path in sorted(state.models, key=lambda path: (-weights[path], path)):
        shard = min(loads, key=lambda index: (loads[index], index))
        loads[shard] += max(1, weights[path])
        chosen[path] = shard
    return Division(state, of, tuple(chosen[path] for path in state.models))


def round_weight(weight_ms: int, bits: int = MANTISSA_BITS) -> int:
    """Round a weight to what one byte can encode; with fewer bits more coarsely."""
    return unpack_weight(pack_weight(weight_ms, bits))


def pack_weight(weight_ms: int, bits: int = MANTISSA_BITS) -> int:
    """Encode a weight in one byte: its exponent, and the bits below its highest one."""
    value = max(weight_ms, 1) << MANTISSA_BITS
    exponent = min(value.bit_length() - 1 - MANTISSA_BITS, (1 << 8 - MANTISSA_BITS) - 1)
    mantissa = min(value >> exponent, (2 << MANTISSA_BITS) - 1) & ~(-1 << MANTISSA_BITS)
    dropped = MANTISSA_BITS - bits
    return exponent << MANTISSA_BITS | mantissa >> dropped << dropped


def unpack_weight(byte: int) -> int:
    """Decode the weight of a byte, in ms."""
    exponent, mantissa = divmod(byte, 1 << MANTISSA_BITS)
    return ((1 << MANTISSA_BITS | mantissa) << exponent) >> MANTISSA_BITS or 1


def encode_weights(weights_ms: Sequence[int], of: int) -> tuple[str, tuple[int, ...]]:
    """Encode weights as precisely as fits, and return text and rounded weights; the text is "" if none fits."""
    for bits in range(MANTISSA_BITS, -1, -1):
        content = bytes(pack_weight(weight, bits) for weight in weights_ms)
        code = base64.urlsafe_b64encode(zlib.compress(content, 9)).decode().rstrip("=")
        if len(code) * of <= MAX_CODE_CHARACTERS:
            return code, tuple(map(unpack_weight, content))
    return "", tuple(map(round_weight, weights_ms))


def decode_weights(code: str, models: int) -> tuple[int, ...]:
    """
    Decode the weights of this many models.

    Raises:
        UsageError: the text does not contain them.
    """
    try:
        reader = zlib.decompressobj()
        content = reader.decompress(base64.urlsafe_b64decode(code + "=" * (-len(code) % 4)), models + 1)
        is_complete = reader.eof  # its checksum was there, and was right
    except (binascii.Error, zlib.error, ValueError):
        content, is_complete = b"", False
    if not is_complete or len(content) != models:
        raise UsageError(
            "`--shard` does not hold the weights of these models: it is cut off, or of another plan",
            hint="give what `onnxgate plan` wrote as `shard`, for this commit and these PATHS",
        )
    return tuple(map(unpack_weight, content))


def resolve_division(state: CheckState, asked: ShardSelector, estimates: Mapping[str, int]) -> Division:
    """
    Return the division that the selector belongs to; without weights in it, `estimates` count.

    Raises:
        UsageError: it belongs to another plan than these files.
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
        """The models of all shards."""
        return frozenset(self.division.state.models)

    def own(self, models: Iterable[SelectedModel]) -> tuple[SelectedModel, ...]:
        """Select the models of this shard."""
        mine = set(self.division.of_shard(self.index))
        return tuple(model for model in models if model.path in mine)

    def others(self, own: Iterable[str]) -> frozenset[str]:
        """Return the models of the other shards."""
        return self.whole - set(own)

    def __str__(self) -> str:
        return f"shard {self.index} of {self.division.of}"


MAX_COST_S = 1e6
"""A higher cost means that the file is damaged."""
MAX_COST_FILE_BYTES = 2**16
"""A larger file was not written by onnxgate."""
COSTLY_STAGES = frozenset(DYNAMIC_STAGES)
TOOLCHAIN = "toolchain"
"""Name of the cost of a source."""
STATIC_MS = 40
LEVEL_MS = 60
CASE_MS = 10
EXPORT_MS = 8_000
BYTES_PER_MS = 200_000
"""Read, hashed, loaded or run. Source: order of magnitude, measured on two cores."""
DEFAULT_CASE_COUNT = 3

CostSeconds = Mapping[str, float]  # by runtime, or TOOLCHAIN


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


def save_costs(folder: Path, sha256: str, seconds: CostSeconds) -> None:
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


def estimate_costs_ms(planned: Iterable[PlannedModel], lock: Lock, stages: frozenset[Stage]) -> dict[str, int]:
    """Estimate the cost of each model from config and lock alone, so that it is equal on every machine."""
    return {
        model.path: _static_ms(model, lock) + sum(_dynamic_ms(model, lock).values()) * bool(stages & COSTLY_STAGES)
        for model in planned
    }


def combine_costs_ms(
    planned: Iterable[PlannedModel], lock: Lock, stages: frozenset[Stage], folder: Path
) -> tuple[dict[str, int], int]:
    """Combine measured costs with estimates; also return the number of models with measured costs.

    Estimates are scaled by the ratio of measured costs to their estimates.
    """
    models = tuple(planned)
    parts = {model.path: _dynamic_ms(model, lock) for model in models if stages & COSTLY_STAGES}
    measured = {path: _measured_ms(folder, lock.models.get(path), part) for path, part in parts.items()}
    known_parts = [(path, name) for path, costs in measured.items() for name in costs]
    spent, guessed = (
        sum(measured[path][name] for path, name in known_parts),
        sum(parts[path][name] for path, name in known_parts),
    )
    weights = {}
    for model in models:
        costs, part = measured.get(model.path, {}), parts.get(model.path, {})
        rest = sum(cost for name, cost in part.items() if name not in costs)
        weights[model.path] = (
            _static_ms(model, lock) + sum(costs.values()) + (rest * spent // guessed if spent else rest)
        )
    return weights, sum(map(bool, measured.values()))


def _measured_ms(folder: Path, locked: LockedModel | None, part: Mapping[str, int]) -> dict[str, int]:
    seconds = load_costs(folder, locked.sha256) if locked is not None else {}
    return {name: round(second * 1000) for name, second in seconds.items() if name in part}


def _static_ms(planned: PlannedModel, lock: Lock) -> int:
    return STATIC_MS + _size_bytes(planned, lock) // BYTES_PER_MS


def _dynamic_ms(planned: PlannedModel, lock: Lock) -> dict[str, int]:
    """Estimate the cost by runtime, and of the toolchain if it exports the model."""
    size_ms = _size_bytes(planned, lock) // BYTES_PER_MS
    cases = max((len(values) for values in planned.model.settings.sizes.values()), default=DEFAULT_CASE_COUNT)
    parts = {runtime.name: _runtime_ms(runtime, cases, size_ms) for runtime in planned.runtimes}
    if planned.model.settings.is_exported:
        parts[TOOLCHAIN] = EXPORT_MS + 4 * size_ms
    return parts


def _runtime_ms(runtime: PlannedRuntime, cases: int, size_ms: int) -> int:
    return len(runtime.levels) * (LEVEL_MS + size_ms + cases * (CASE_MS + size_ms))


def _size_bytes(planned: PlannedModel, lock: Lock) -> int:
    """Return the locked size: in a checkout without Git LFS the files are smaller."""
    locked = lock.models.get(planned.path)
    return locked.size_bytes + sum(data.size_bytes for data in locked.external) if locked else 0


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """A division with the values of `--shard`, and the weight of each model."""

    division: Division
    shards: tuple[ShardSelector, ...]
    weights_ms: dict[str, int]
    measured: int  # of how many models something was measured


def describe_check(project: Project, models: Sequence[SelectedModel]) -> CheckState:
    """Describe the check that is divided."""
    paths = tuple(sorted(model.path for model in models))
    return CheckState(__version__, digest_text_file(project.path), digest_text_file(project.lock_path), paths)


def select_share(
    text: str, project: Project, lock: Lock, models: Sequence[SelectedModel], asked: CaseSelection
) -> Share:
    """
    Select the models that `--shard` names.

    Estimates are those of all stages, because every job must divide alike.

    Raises:
        UsageError: it is invalid or of another plan, or input cases are named, which not every shard has.
    """
    if asked.cases:
        raise UsageError("`--case` and `--shard` exclude each other")
    named = parse_selector(text)
    estimates = estimate_costs_ms(plan_models(project, lock, models), lock, frozenset(ALL_STAGES))
    return Share(named.index, resolve_division(describe_check(project, models), named, estimates))


def plan_shards(project: Project, lock: Lock, models: Sequence[SelectedModel], of: int) -> ShardPlan:
    """Divide by measured costs if there are any, and by the estimates that every job computes otherwise."""
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
    """Store the cost of each model; `seconds` are by its absolute path and by worker.

    For runs from the cache (`reused`, by path and runtime), earlier measurements still count: on a machine without the
    cache they cost that much.
    """
    runtimes = {cell.runtime for cell in report.cells}
    for model in report.models:
        spent: dict[str, float] = {}
        path = str(folder / model.path)
        for worker, spent_s in seconds.get(path, {}).items():
            name = worker if worker in runtimes else TOOLCHAIN
            spent[name] = spent.get(name, 0.0) + spent_s
        spared = {runtime for file, runtime in reused if file == path}
        spent = _add_reused_costs(spent, load_costs(costs_dir(), model.sha256) if spared else {}, spared)
        if spent and model.sha256:
            save_costs(costs_dir(), model.sha256, spent)


def _add_reused_costs(spent: CostSeconds, before: CostSeconds, spared: Collection[str]) -> dict[str, float]:
    """Add the earlier costs of reused runs; leave out runtimes whose full cost is not known."""
    complete = {name: cost for name, cost in spent.items() if name not in spared}
    return complete | {name: max(before[name], spent.get(name, 0.0)) for name in spared if name in before}


def import_shard_costs(reports: Iterable[Path], merged: Report) -> None:
    """Store the costs that the jobs of shards have written next to their reports."""
    contents = {model.sha256 for model in merged.models}
    for folder in reports:
        if folder.is_dir():
            copy_costs(folder / "costs", costs_dir(), contents)
