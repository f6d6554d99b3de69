"""`python -m campaigns.commands COMMAND --count N`: run mutants through `static`, `against`, `check` or `fix`.

Each batch of mutants is a git repository with a locked target, in which the command runs. A batch is wrong if the
command crashes, raises, hangs, or does not judge each model. With `--loads`, the answer for each mutant is also
compared with a real load on the locked release: a refused model that loads is a false alarm. Models that fail because
this machine lacks a locale are counted separately. After `fix`, a model that loaded before must still load.

Wrong mutants are written to the folder `--keep`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from campaigns.commands.mutators import mutate, seed_models
from campaigns.conformance.engine_loads import find_spec, load_all
from onnxgate.core.files import cache_dir
from onnxgate.diagnostics.classification import find_missing_locale

RELEASE = "1.31.1"
HANG_S = 600
BATCHES = {"static": 500, "against": 250, "check": 50, "fix": 25}
"""Number of mutants in one run of each command."""
CONFIG = f"""models = ["*.onnx"]

[targets.runtime]
runtime = "onnxruntime=={RELEASE}"
"""
ARGUMENTS = {
    "static": ("check", "--static"),
    "against": ("check", "--static", "--against", "HEAD"),
    "check": ("check",),
    "fix": ("fix",),
}


@dataclass
class Tally:
    """Counts of all mutants of a campaign, and its problems by kind."""

    mutants: int = 0
    seconds: float = 0.0
    states: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Batch:
    """One run of a command on mutants, keyed by file name."""

    command: str
    originals: Mapping[str, bytes]
    mutants: Mapping[str, bytes]

    def run(self, folder: Path, tally: Tally, loads: Mapping[str, str] | None) -> dict[str, str]:
        """Run the command. Return the problem of each wrong mutant; the name "" stands for the whole run."""
        _make_repository(folder, self.originals if self.command == "against" else self.mutants)
        if self.command == "against":
            _write_models(folder, self.mutants)
        report = folder / "report.json"
        outputs = ("--output", f"json={report}", "--output", "text", "--no-cache")
        options = () if self.command == "fix" else outputs
        argv = [sys.executable, "-m", "onnxgate", *ARGUMENTS[self.command], *options, "-q"]
        start = time.monotonic()
        variables = {**os.environ, "ONNXGATE_CACHE_DIR": str(cache_dir())}
        try:
            ended = subprocess.run(
                argv, cwd=folder, capture_output=True, text=True, errors="replace", timeout=HANG_S, env=variables
            )
        except subprocess.TimeoutExpired:
            return {"": f"hang: did not end in {HANG_S} s"}
        tally.seconds += time.monotonic() - start
        if problem := _find_failure(ended):
            return {"": problem}
        if self.command == "fix":
            return self._judge_fixes(folder, tally, loads)
        return self._judge_report(json.loads(report.read_bytes()), tally, loads)

    def _judge_report(self, report: Mapping[str, Any], tally: Tally, loads: Mapping[str, str] | None) -> dict[str, str]:
        problems: dict[str, str] = {}
        listed = {model["path"] for model in report["models"]}
        refused = {finding["model"]: finding for finding in report["findings"] if _refuses_load(finding)}
        undecided = {check["model"]: check["reason"] for check in report["undecided"]}
        for name in self.mutants:
            state = "refused" if name in refused else "undecided" if name in undecided else "passed"
            if name not in listed:
                problems[name] = "unjudged: not in the report"
            elif "internal error" in undecided.get(name, ""):
                problems[name] = f"contained exception: {undecided[name]}"
            if loads is not None and find_missing_locale(loads[name]):
                state += ", needs a locale that this machine lacks"
            elif loads is not None:
                state += " and loads" if not loads[name] else " and does not load"
                if state == "refused and loads" and refused[name]["rule"] == "invalid-model":
                    state = "invalid ONNX that loads"
                elif state == "refused and loads":
                    problems[name] = f"false alarm: {refused[name]['rule']}: {refused[name]['message']}"
            tally.states[state] += 1
        return problems

    def _judge_fixes(self, folder: Path, tally: Tally, loads: Mapping[str, str] | None) -> dict[str, str]:
        fixed = {name: (folder / name).read_bytes() for name in self.mutants}
        changed = {name: data for name, data in fixed.items() if data != self.mutants[name]}
        tally.states["fixed"] += len(changed)
        tally.states["unchanged"] += len(fixed) - len(changed)
        if loads is None or not changed:
            return {}
        after = load_all(find_spec("onnxruntime", RELEASE), changed)
        return {name: f"broken by fix: {after[name]}" for name in changed if after[name] and not loads[name]}


def _refuses_load(finding: Mapping[str, Any]) -> bool:
    is_about_load = finding["stage"] in ("file", "support") or finding["rule"] in ("load-failed", "runtime-crashed")
    return finding["level"] == "error" and is_about_load


def _find_failure(ended: subprocess.CompletedProcess[str]) -> str:
    """Return how the command itself failed; "" if it ended as documented."""
    if ended.returncode not in (0, 1, 3):
        return f"crash: exit status {ended.returncode}: {ended.stderr[-500:]}"
    if "Traceback" in ended.stderr or "bug in onnxgate" in ended.stderr + ended.stdout:
        return f"exception: {ended.stderr[-500:]}"
    return ""


def _write_models(folder: Path, models: Mapping[str, bytes]) -> None:
    for name, data in models.items():
        (folder / name).write_bytes(data)


@functools.cache
def _lock_target() -> bytes:
    with tempfile.TemporaryDirectory(prefix="commands-") as folder:
        Path(folder, "onnxgate.toml").write_text(CONFIG)
        _write_models(Path(folder), {"locked.onnx": next(iter(seed_models().values()))})
        lock = [sys.executable, "-m", "onnxgate", "lock", "--quiet"]
        subprocess.run(lock, cwd=folder, check=True, capture_output=True)
        return Path(folder, "onnxgate.lock").read_bytes()


def _make_repository(folder: Path, models: Mapping[str, bytes]) -> None:
    """Commit a config, the lock of its target and the models. The lock has no entries of models."""
    (folder / "onnxgate.toml").write_text(CONFIG)
    (folder / "onnxgate.lock").write_bytes(_lock_target())
    _write_models(folder, models)
    git = ("git", "-c", "user.name=campaign", "-c", "user.email=campaign@example.com", "-c", "gc.auto=0")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "Add models")):
        subprocess.run([*git, *arguments], cwd=folder, check=True, capture_output=True)


def _iter_batches(command: str, count: int, seed: int, size: int) -> Iterator[Batch]:
    seeds = list(seed_models().values())
    for start in range(0, count, size):
        originals, mutants = {}, {}
        for index in range(start, min(count, start + size)):
            random = Random(f"{seed}/{command}/{index}")
            original = random.choice(seeds)
            originals[f"m{index}.onnx"], mutants[f"m{index}.onnx"] = original, mutate(original, random)
        yield Batch(command, originals, mutants)


def main() -> int:
    """Run the campaign and print its counts; return 1 if a mutant or run is wrong."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.commands", description=__doc__)
    parser.add_argument("command", choices=ARGUMENTS)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=0, help="mutants in one run")
    parser.add_argument("--loads", action="store_true", help="compare with real loads")
    parser.add_argument("--keep", type=Path, help="folder for wrong mutants")
    options = parser.parse_args()
    tally = Tally()
    spec = find_spec("onnxruntime", RELEASE) if options.loads else None
    for batch in _iter_batches(options.command, options.count, options.seed, options.size or BATCHES[options.command]):
        loads = load_all(spec, batch.mutants) if spec is not None else None
        with tempfile.TemporaryDirectory(prefix="commands-") as folder:
            problems = batch.run(Path(folder), tally, loads)
        tally.mutants += len(batch.mutants)
        for name, problem in problems.items():
            tally.problems[problem.partition(":")[0]] += 1
            print(f"{name or 'run of ' + next(iter(batch.mutants))}: {problem}", flush=True)
            if options.keep is not None:
                options.keep.mkdir(parents=True, exist_ok=True)
                _write_models(options.keep, {name: batch.mutants[name]} if name else batch.mutants)
        print(f"{tally.mutants} mutants, {tally.seconds:.0f} s, {dict(tally.problems)}", file=sys.stderr, flush=True)
    states = ", ".join(f"{count} {state}" for state, count in sorted(tally.states.items()))
    problems_text = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.problems.items())) or "0 problems"
    print(f"{options.command}: {tally.mutants} mutants in {tally.seconds:.0f} s: {states}; {problems_text}")
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
