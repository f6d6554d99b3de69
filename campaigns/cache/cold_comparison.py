"""Compare runs of a command: with the cache of earlier steps, and with an empty cache."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from campaigns.cache.random_walk import ROUNDS, RandomWalk, comparable_output, divided

DIVIDED_EVERY = 10
DAMAGED_EVERY = 3
Output = tuple[int, str, str]


def differences(walk: RandomWalk, steps: int, scratch: Path, counts: Counter[str]) -> Iterator[str]:
    """Yield differences between runs with the warm and with an empty cache; `counts` counts steps and results."""
    done: list[str] = []
    warm = walk.repository.with_environment(ONNXGATE_CACHE_DIR=scratch / "warm")
    for number in range(1, steps + 1):
        done.append(walk.step())
        counts[done[-1]] += 1
        if number % DAMAGED_EVERY == 0:
            counts["damaged"] += _damage(scratch / "warm", walk.random)
        arguments = ROUNDS[number % len(ROUNDS)]
        cold = walk.repository.with_environment(ONNXGATE_CACHE_DIR=_emptied(scratch / "cold"))
        pairs: list[tuple[str, Output, Output]] = [
            (" ".join(arguments), comparable_output(warm, arguments), comparable_output(cold, arguments))
        ]
        if number % DIVIDED_EVERY == 0:
            cold = cold.with_environment(ONNXGATE_CACHE_DIR=_emptied(scratch / "cold"))
            whole = ("check", "--static", "--output", "json")
            pairs.append(("merge", divided(warm, scratch / "reports"), divided(cold, scratch / "reports")))
            pairs.append((" ".join(whole), comparable_output(warm, whole), comparable_output(cold, whole)))
        for words, first, second in pairs:
            counts[f"exit {second[0]}"] += 1
            if first != second:
                yield f"after {number} steps ({', '.join(done[-5:])}): `{words}`\n  warm: {first}\n  cold: {second}"


def _damage(cache: Path, random: Random) -> int:
    """Flip one bit in an entry of the cache; return the number of damaged files.

    Environments are left out: they have no checksums, and their files are links to files in the cache of uv, which
    other programs use.
    """
    entries = (path for path in cache.rglob("*") if "environments" not in path.relative_to(cache).parts)
    files = sorted(path for path in entries if path.is_file() and path.stat().st_size and path.stat().st_nlink == 1)
    for file in random.sample(files, min(1, len(files))):
        content = bytearray(file.read_bytes())
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        file.write_bytes(content)
    return min(1, len(files))


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder
