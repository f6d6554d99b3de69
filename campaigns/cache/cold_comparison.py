"""Compare runs of a command: with the cache of earlier steps, and with an empty cache."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from campaigns.cache.random_walk import ROUNDS, RandomWalk, comparable_output, divided

DIVIDED_EVERY = 10
Output = tuple[int, str, str]


def differences(walk: RandomWalk, steps: int, scratch: Path, counts: Counter[str]) -> Iterator[str]:
    """Yield differences between runs with the warm and with an empty cache; `counts` counts steps and results."""
    done: list[str] = []
    warm = walk.repository.with_environment(ONNXGATE_CACHE_DIR=scratch / "warm")
    for number in range(1, steps + 1):
        done.append(walk.step())
        counts[done[-1]] += 1
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


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder
