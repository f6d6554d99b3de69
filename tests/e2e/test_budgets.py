"""Budgets in `onnxgate check`: file size in every check, time and memory relative to a baseline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository, brief
from tests.runtimes.engines.test_benchmark import chain

pytestmark = pytest.mark.index

BUDGET = "{ size-mib = 12, slower-than-baseline = 1.5, memory-over-baseline = 1.5 }"
CONFIG = f"""models = ["models/*.onnx"]

[targets.server]
runtime = "onnxruntime==1.31.1"

[[model]]
path = "models/*.onnx"
sizes = {{ N = [3] }}
budget = {BUDGET}
"""


@pytest.fixture
def repository(command: Repository, tmp_path: Path) -> Repository:
    """Return a repository with a model of ten matrices of 1 MiB each."""
    made = command.at(tmp_path / "budgets")
    (made.folder / "models").mkdir(parents=True)
    chain(made.folder / "models" / "chain.onnx", 10)
    made.write("onnxgate.toml", CONFIG)
    commit(made.folder)
    made.run("lock")
    commit(made.folder)
    return made


def test_six_times_the_work(repository: Repository) -> None:
    """Each exceeded budget is a separate finding; time and memory are reported only as ratios.

    A sixfold model is far beyond the budgets, although the peak memory of a process varies by some MiB.
    """
    chain(repository.folder / "models" / "chain.onnx", 60)
    repository.run("lock", "--offline")
    static = repository.report("--static", status=1)
    report = repository.report("--against", "HEAD", status=1)
    rules = ("memory-over-budget", "size-over-budget", "slower-than-budget")

    assert [brief(finding) for finding in static["findings"]] == [("error", "size-over-budget", "models/chain.onnx")]
    changed = ("operators-changed", "size-grew", "weights-changed")
    expected = [("error", rule, "models/chain.onnx") for rule in rules]
    expected += [("note", rule, "models/chain.onnx") for rule in changed]
    assert [brief(finding) for finding in report["findings"]] == expected
    assert (report["undecided"], report["skipped"]) == ([], [])
    ratios = [
        measurement for measurement in report["measured"] if measurement["metric"] in ("time ratio", "memory ratio")
    ]
    assert [ratio["pair"] for ratio in ratios] == ["onnxruntime 1.31.1 against `models/chain.onnx` at `HEAD`"] * 2
    assert all(ratio["value"] > ratio["bound"] == 1.5 for ratio in ratios)


def test_same_and_new_models(repository: Repository) -> None:
    """An unchanged model is within its budget; a new model is skipped with the reason."""
    same = repository.report("--against", "HEAD")
    chain(repository.folder / "models" / "new.onnx", 1)
    repository.run("lock", "--offline")
    new = repository.report("--against", "HEAD")

    assert (same["verdict"], same["findings"], same["undecided"], same["skipped"]) == ("pass", [], [], [])
    assert [(entry["model"], entry["reason"]) for entry in new["skipped"]] == [
        ("models/new.onnx", "the relative budget could not be checked: `models/new.onnx` does not exist at `HEAD`")
    ]


def test_without_a_baseline(repository: Repository) -> None:
    """Without a baseline, relative budgets are skipped with a reason; static checks do not mention them."""
    report = repository.report()
    (skipped,) = report["skipped"]

    assert (report["undecided"], skipped["reason"]) == (
        [],
        "the relative budget was not checked: no baseline is selected",
    )
    assert repository.report("--static")["skipped"] == []


def test_usage(repository: Repository, tmp_path: Path) -> None:
    """An unknown revision, and a baseline without a config, are usage errors."""
    unknown = repository.run("check", "--against", "nowhere", status=2)
    (tmp_path / "elsewhere").mkdir()
    chain(tmp_path / "elsewhere" / "m.onnx", 1)
    unconfigured = repository.at(tmp_path / "elsewhere").run("check", "--against", "HEAD", "m.onnx", status=2)

    assert "`--against nowhere`: it does not exist in this clone" in unknown.err
    assert "`--against` requires a config" in unconfigured.err
