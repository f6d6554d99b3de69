"""What models cost: measured seconds, kept by content in the cache, and estimates where nothing was measured.

Measured costs balance shards and decide nothing else; no report holds them, since it has no clock.
"""

from __future__ import annotations

import contextlib
import math
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from onnxgate.findings import DYNAMIC_STAGES, Stage
from onnxgate.lock.types import Lock, LockedModel
from onnxgate.plan import PlannedModel, PlannedRuntime

LONGEST_S = 1e6
"""A cost above that is none: the file is damaged."""
LARGEST_BYTES = 2**16
"""A file that holds more is none of ours."""
DYNAMIC = frozenset(DYNAMIC_STAGES)
TOOLCHAIN = "toolchain"
"""Stands for all seats that are no runtime: what a source costs."""
STATIC_MS = 40
LEVEL_MS = 60
CASE_MS = 10
EXPORT_MS = 8_000
BYTES_PER_MS = 200_000
"""Read, hashed, loaded or run. Source: measured on two cores, orders of magnitude: estimates need no more."""
USUAL_CASES = 3

Seconds = Mapping[str, float]  # by runtime, or TOOLCHAIN


def load(folder: Path, sha256: str) -> dict[str, float]:
    """What a content cost when it was last judged in full; nothing where that is not known."""
    file = folder / sha256
    try:
        if not _is_digest(sha256) or not is_ours(file):
            return {}
        found = msgspec.json.decode(file.read_bytes(), type=dict[str, float])
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return {name: seconds for name, seconds in found.items() if math.isfinite(seconds) and 0 <= seconds <= LONGEST_S}


def save(folder: Path, sha256: str, seconds: Seconds) -> None:
    """Keep what a content cost, one file each, so that folders of several machines can be laid together."""
    if not _is_digest(sha256):
        return
    with contextlib.suppress(OSError):  # it is no worse than not having measured
        folder.mkdir(parents=True, exist_ok=True)
        scratch = folder / f".{sha256}.{secrets.token_hex(4)}"
        rows = {name: round(each, 3) for name, each in sorted(seconds.items())}
        scratch.write_bytes(msgspec.json.encode(rows))
        scratch.replace(folder / sha256)


def take(source: Path, folder: Path, contents: Iterable[str]) -> None:
    """Keep what another machine measured of these contents."""
    for sha256 in contents:
        if seconds := load(source, sha256):
            save(folder, sha256, seconds)


def is_ours(file: Path) -> bool:
    """Whether it may be a file that `save` wrote: no link, no pipe, and not large."""
    return not file.is_symlink() and file.is_file() and file.stat().st_size <= LARGEST_BYTES


def _is_digest(text: str) -> bool:
    """Names come from reports and folders of other machines; none leads elsewhere."""
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def estimates_ms(planned: Iterable[PlannedModel], lock: Lock, stages: frozenset[Stage]) -> dict[str, int]:
    """What each model may cost: from config and lock alone, so that it is the same on every machine."""
    return {
        each.path: _static_ms(each, lock) + sum(_dynamic_ms(each, lock).values()) * bool(stages & DYNAMIC)
        for each in planned
    }


def weights_ms(
    planned: Iterable[PlannedModel], lock: Lock, stages: frozenset[Stage], folder: Path
) -> tuple[dict[str, int], int]:
    """The same with what was measured in place of estimates, and of how many models something was.

    What was not measured is estimated, and scaled as the measured rest is.
    """
    models = tuple(planned)
    parts = {each.path: _dynamic_ms(each, lock) for each in models if stages & DYNAMIC}
    measured = {path: _measured_ms(folder, lock.models.get(path), part) for path, part in parts.items()}
    known = [(path, name) for path, found in measured.items() for name in found]
    spent, guessed = sum(measured[path][name] for path, name in known), sum(parts[path][name] for path, name in known)
    weights = {}
    for each in models:
        found, part = measured.get(each.path, {}), parts.get(each.path, {})
        rest = sum(cost for name, cost in part.items() if name not in found)
        weights[each.path] = _static_ms(each, lock) + sum(found.values()) + (rest * spent // guessed if spent else rest)
    return weights, sum(map(bool, measured.values()))


def _measured_ms(folder: Path, locked: LockedModel | None, part: Mapping[str, int]) -> dict[str, int]:
    seconds = load(folder, locked.sha256) if locked is not None else {}
    return {name: round(each * 1000) for name, each in seconds.items() if name in part}


def _static_ms(planned: PlannedModel, lock: Lock) -> int:
    return STATIC_MS + _size_bytes(planned, lock) // BYTES_PER_MS


def _dynamic_ms(planned: PlannedModel, lock: Lock) -> dict[str, int]:
    """By runtime, and of the toolchain where it exports the model."""
    size_ms = _size_bytes(planned, lock) // BYTES_PER_MS
    cases = max((len(values) for values in planned.model.settings.sizes.values()), default=USUAL_CASES)
    parts = {each.name: _runtime_ms(each, cases, size_ms) for each in planned.runtimes}
    if planned.model.settings.is_exported:
        parts[TOOLCHAIN] = EXPORT_MS + 4 * size_ms
    return parts


def _runtime_ms(runtime: PlannedRuntime, cases: int, size_ms: int) -> int:
    return len(runtime.levels) * (LEVEL_MS + size_ms + cases * (CASE_MS + size_ms))


def _size_bytes(planned: PlannedModel, lock: Lock) -> int:
    """As it is locked: in a checkout without Git LFS the files are smaller."""
    locked = lock.models.get(planned.path)
    return locked.size_bytes + sum(each.size_bytes for each in locked.external) if locked else 0
