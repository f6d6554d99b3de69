"""`python -m campaigns.cache --steps 300 --seed 1`: random changes to a repository. Exits 1 if results from a
warm cache differ."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from campaigns.cache.cold_comparison import differences
from campaigns.cache.random_walk import started
from tests.conftest import ROOT, _install_wheel, _program
from tests.harness.repositories.checkout import NOBODY
from tests.harness.repositories.user_repository import Repository, usual_environment


def main() -> int:
    """Run the random walk and print differences."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.cache", description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    found = 0
    with tempfile.TemporaryDirectory(prefix="onnxgate-warm-") as scratch:
        _install_wheel(Path(scratch, "installed"))
        command = _program(Path(scratch, "installed", "venv"), "onnxgate")
        program = Repository(command, Path(), {**usual_environment(), **NOBODY})
        walk = started(program, ROOT, Path(scratch), options.seed)
        for difference in differences(walk, options.steps, Path(scratch), counts):
            found += 1
            print(difference, flush=True)
    print(
        f"{options.steps} steps, {found} differences;", ", ".join(f"{name} {n}" for name, n in sorted(counts.items()))
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
