"""Run full checks of mutated models on real runtimes. No mutant may cost more than its own answer.

    python -m campaigns.commands.full_check [--seed 0] [--count 2000] [--release 1.31.1] [--keep FOLDER]

Mutants are checked in projects of many models each. Printed are the commands without a report, reported bugs of
onnxgate, undecided checks that name an internal error, and models without an answer; a list of any of them fails the
campaign. `--keep` keeps the models of these lines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaigns.commands.mutators import create_mutants
from onnxgate.core.files import cache_dir
from onnxgate.runtimes.environments.storage import ENVIRONMENTS

MODELS_PER_PROJECT = 50
TIME_LIMIT_S = 900
CONFIG = """models = ["models/*.onnx"]

[targets.tested]
runtime = "onnxruntime=={release}"

[limits]
time-s = 20
memory-mib = 4096
"""
BUG_PHRASES = ("bug in onnxgate", "internal error of onnxgate", "Traceback (most recent call last)")
ANSWERS = (0, 1, 3)
"""Exit statuses of a check that judged its models."""


@dataclass
class Result:
    """Result of the campaign."""

    answers: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    problems: list[tuple[str, str]] = field(default_factory=list)  # model or project, and problem

    def add_problem(self, name: str, problem: str) -> None:
        """Record and print a problem."""
        self.problems.append((name, problem))
        print(f"  PROBLEM {name}: {problem}", flush=True)


def main() -> int:
    """Run the campaign; return 1 if there is a problem."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.commands.full_check")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mutants")
    parser.add_argument("--count", type=int, default=2000, help="number of mutants")
    parser.add_argument("--release", default="1.31.1", help="release of ONNX Runtime")
    parser.add_argument("--keep", type=Path, help="folder for mutants with a problem")
    arguments = parser.parse_args()
    result, began = Result(), time.monotonic()
    mutants = list(enumerate(create_mutants(arguments.seed, arguments.count)))
    with tempfile.TemporaryDirectory(prefix="full-check-") as folder:
        for start in range(0, len(mutants), MODELS_PER_PROJECT):
            _check_group(Path(folder), dict(mutants[start : start + MODELS_PER_PROJECT]), arguments, result)
    print(f"{arguments.count} mutants in {time.monotonic() - began:.0f} s: {dict(result.answers)}")
    for reason, count in result.reasons.most_common(12):
        print(f"  undecided, {count}: {reason}")
    print(f"{len(result.problems)} problems")
    return 1 if result.problems else 0


def _check_group(folder: Path, mutants: dict[int, bytes], arguments: argparse.Namespace, result: Result) -> None:
    project = folder / f"project{min(mutants)}"
    paths = {f"models/m{index:06}.onnx": data for index, data in mutants.items()}
    (project / "models").mkdir(parents=True)
    for path, data in paths.items():
        (project / path).write_bytes(data)
    (project / "onnxgate.toml").write_text(CONFIG.format(release=arguments.release), encoding="utf-8")
    shutil.copy(Path("fixtures/projects/broken/onnxgate.lock"), project)
    environment = _create_environment(folder)
    locked = _run(project, environment, "lock", "--offline")
    if locked.returncode:
        result.add_problem(project.name, f"`lock` ended with {locked.returncode}: {locked.stderr[-300:]}")
    checked = _run(project, environment, "check", "--offline", "--jobs", "1", "--output", "json=report.json")
    bugs = list(_find_problems(project, checked, paths, result))
    for name, problem in bugs:
        result.add_problem(name, problem)
        if arguments.keep and name in paths:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            (arguments.keep / Path(name).name).write_bytes(paths[name])
    if bugs and arguments.keep:
        with contextlib.suppress(FileNotFoundError):
            shutil.copytree(folder / "cache" / "bugs", arguments.keep / "bugs", dirs_exist_ok=True)
    shutil.rmtree(project)


def _find_problems(
    project: Path, checked: subprocess.CompletedProcess[str], paths: dict[str, bytes], result: Result
) -> Iterator[tuple[str, str]]:
    """Yield what went wrong, each with the model if it is known, and count the answers."""
    lines = [line for line in checked.stderr.splitlines() if any(phrase in line for phrase in BUG_PHRASES)]
    yield from ((project.name, line) for line in lines)
    if checked.returncode not in ANSWERS:
        yield project.name, f"exit status {checked.returncode}: {checked.stderr[-300:]}"
    try:
        report: dict[str, Any] = json.loads((project / "report.json").read_bytes())
    except (OSError, ValueError) as error:
        yield project.name, f"no report: {error}"
        return
    answered = {cell["model"]: cell["state"] for cell in report["cells"]}
    for path in paths.keys() - answered.keys():
        yield path, "has no answer"
    result.answers.update(answered.values())
    for undecided in report["undecided"]:
        result.reasons[undecided["reason"][:90]] += 1
        if any(phrase in undecided["reason"] for phrase in BUG_PHRASES):
            yield undecided["model"], f"{undecided['stage']}: {undecided['reason']}"


def _create_environment(folder: Path) -> dict[str, str]:
    """Return variables that select a cache of the campaign, which shares the environments of the runtimes."""
    cache = folder / "cache"
    cache.mkdir(exist_ok=True)
    if not (cache / ENVIRONMENTS).exists():
        (cache / ENVIRONMENTS).symlink_to(cache_dir() / ENVIRONMENTS)
    return {**os.environ, "ONNXGATE_CACHE_DIR": str(cache)}


def _run(project: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = (sys.executable, "-m", "onnxgate", *arguments)
    try:
        return subprocess.run(
            command,
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=TIME_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, -1, "", f"did not end in {TIME_LIMIT_S} s")


if __name__ == "__main__":
    sys.exit(main())
