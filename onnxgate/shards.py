"""The division of a check among jobs: each computes the same one by itself, or takes it from the plan."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.errors import UsageError

if TYPE_CHECKING:
    from onnxgate.config.project import SelectedModel

MOST = 256
"""Jobs of one matrix. Source: GitHub's documentation, 2026-08."""
MOST_CHARACTERS = 700_000
"""What the weights in all entries of a matrix may take: a job's outputs hold 1 MB."""
KEY_CHARACTERS = 12
MANTISSA_BITS = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """What `--shard 2/4@1a2b3c4d5e6f.eNpj` says: the part, and of which plan it is."""

    index: int
    of: int
    plan: str = ""  # the beginning of the plan's digest; "" where no plan is named
    code: str = ""  # the weights of the models; "" where they are estimated

    def __str__(self) -> str:
        plan = f"@{self.plan}" if self.plan else ""
        return f"{self.index}/{self.of}{plan}{f'.{self.code}' if self.code else ''}"


@dataclass(frozen=True, slots=True)
class State:
    """What is divided: the digests of config and lock, and the models of the check."""

    onnxgate: str
    config: str
    lock: str
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """Which of `of` shards judges each model; `plan` is the digest of that and of what is divided."""

    state: State
    of: int
    shards: tuple[int, ...]

    @property
    def plan(self) -> str:
        """Equal wherever the same is divided in the same way."""
        state = self.state
        return digest([state.onnxgate, state.config, state.lock, state.models, self.of, self.shards])

    def of_shard(self, index: int) -> tuple[str, ...]:
        """The models that one shard judges."""
        return tuple(path for path, shard in zip(self.state.models, self.shards, strict=True) if shard == index)


def parse(text: str) -> Asked:
    """
    What `--shard` was given.

    Raises:
        UsageError: it is no `i/N`, alone or with what `onnxgate plan` wrote behind it.
    """
    form = rf"(\d{{1,3}})/(\d{{1,3}})(?:@([0-9a-f]{{{KEY_CHARACTERS}}})(?:\.([A-Za-z0-9_-]+))?)?"
    found = re.fullmatch(form, text, re.ASCII)
    if found is None:
        hint = "give `2/4`, or what `onnxgate plan` wrote as `shard`"
        raise UsageError(f"`--shard` is `{text}`; expected `i/N`", hint=hint)
    index, of = int(found[1]), int(found[2])
    if not 1 <= of <= MOST or not 1 <= index <= of:
        raise UsageError(f"`--shard` is `{index}/{of}`; expected 1 to N, and N from 1 to {MOST}")
    return Asked(index, of, found[3] or "", found[4] or "")


def digest(said: object) -> str:
    """A digest of plain values."""
    return hashlib.sha256(json.dumps(said, ensure_ascii=True).encode()).hexdigest()


def text_digest(path: Path) -> str:
    """The digest of a text, however the system that it was checked out on ends lines."""
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def divide(state: State, of: int, weights: Mapping[str, int]) -> Division:
    """The heaviest model first, each to the shard that has the least so far; ties by path and by number."""
    loads = dict.fromkeys(range(1, of + 1), 0)
    chosen: dict[str, int] = {}
    for path in sorted(state.models, key=lambda path: (-weights[path], path)):
        shard = min(loads, key=lambda index: (loads[index], index))
        loads[shard] += max(1, weights[path])
        chosen[path] = shard
    return Division(state, of, tuple(chosen[path] for path in state.models))


def rounded(weight_ms: int, bits: int = MANTISSA_BITS) -> int:
    """A weight as near as one byte can say it; with fewer bits more coarsely."""
    return unpacked(packed(weight_ms, bits))


def packed(weight_ms: int, bits: int = MANTISSA_BITS) -> int:
    """One byte for a weight: its exponent, and the bits below its highest one."""
    value = max(weight_ms, 1) << MANTISSA_BITS
    exponent = min(value.bit_length() - 1 - MANTISSA_BITS, (1 << 8 - MANTISSA_BITS) - 1)
    mantissa = min(value >> exponent, (2 << MANTISSA_BITS) - 1) & ~(-1 << MANTISSA_BITS)
    dropped = MANTISSA_BITS - bits
    return exponent << MANTISSA_BITS | mantissa >> dropped << dropped


def unpacked(byte: int) -> int:
    """The weight that a byte stands for, in ms."""
    exponent, mantissa = divmod(byte, 1 << MANTISSA_BITS)
    return ((1 << MANTISSA_BITS | mantissa) << exponent) >> MANTISSA_BITS or 1


def encode(weights_ms: Sequence[int], of: int) -> tuple[str, tuple[int, ...]]:
    """Weights as text, as exactly as there is room for, and what a reader makes of it; ("", …) where there is none."""
    for bits in range(MANTISSA_BITS, -1, -1):
        content = bytes(packed(weight, bits) for weight in weights_ms)
        code = base64.urlsafe_b64encode(zlib.compress(content, 9)).decode().rstrip("=")
        if len(code) * of <= MOST_CHARACTERS:
            return code, tuple(map(unpacked, content))
    return "", tuple(map(rounded, weights_ms))


def decode(code: str, models: int) -> tuple[int, ...]:
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
    return tuple(map(unpacked, content))


def division_for(state: State, asked: Asked, estimates: Mapping[str, int]) -> Division:
    """
    The division that a job was given a part of; `estimates` count where it was given no weights.

    Raises:
        UsageError: it is a part of another plan than the one that these files have.
    """
    weights = {path: rounded(estimates[path]) for path in state.models}
    if asked.code:
        weights = dict(zip(state.models, decode(asked.code, len(state.models)), strict=True))
    division = divide(state, asked.of, weights)
    if asked.plan and not division.plan.startswith(asked.plan):
        raise UsageError(
            f"`--shard` is of another plan: `{asked.plan}`, and here it is `{division.plan[:KEY_CHARACTERS]}`",
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
