"""`python -m campaigns.cache --steps 300 --seed 1`: random changes to a repository; `--damages 2000`: damaged caches.

Exits 1 if results from a warm or damaged cache differ from those without a cache.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from campaigns.cache.cold_comparison import differences
from campaigns.cache.damaged_caches import Ground, find_changed_answers
from campaigns.cache.random_walk import started
from onnxgate.core.files import cache_dir
from onnxgate.runtimes.environments.storage import ENVIRONMENTS
from tests.conftest import ROOT, _install_wheel, _program
from tests.harness.repositories.checkout import NOBODY
from tests.harness.repositories.user_repository import Repository, usual_environment


def main() -> int:
    """Run the random walk or the damages, and print differences."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.cache", description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--damages", type=int, default=0, help="damaged caches before static checks, instead of steps")
    parser.add_argument("--against", type=int, default=0, help="damaged caches before checks with a baseline")
    parser.add_argument("--full", type=int, default=0, help="damaged caches before checks with runtimes")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    damages = {"static": options.damages, "against": options.against, "full": options.full}
    found = 0
    with tempfile.TemporaryDirectory(prefix="onnxgate-warm-") as scratch:
        if any(damages.values()):
            done = f"{sum(damages.values())} damaged caches"
            ground = Ground(Path(scratch), cache_dir() / ENVIRONMENTS).lay()
            found_differences = find_changed_answers(ground, damages, random.Random(options.seed), counts)
        else:
            done = f"{options.steps} steps"
            found_differences = _walk(options.steps, options.seed, Path(scratch), counts)
        for difference in found_differences:
            found += 1
            print(difference, flush=True)
    print(f"{done}, {found} differences;", ", ".join(f"{name} {n}" for name, n in sorted(counts.items())))
    return 1 if found else 0


def _walk(steps: int, seed: int, scratch: Path, counts: Counter[str]) -> Iterator[str]:
    _install_wheel(scratch / "installed")
    command = _program(scratch / "installed" / "venv", "onnxgate")
    program = Repository(command, Path(), {**usual_environment(), **NOBODY})
    yield from differences(started(program, ROOT, scratch, seed), steps, scratch, counts)


if __name__ == "__main__":
    sys.exit(main())
