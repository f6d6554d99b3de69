"""A check in shards: planned, run by several jobs, merged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onnxgate.gate.sharding import plan as sharding_plan
from onnxgate.project.toml import loads
from tests.e2e.conftest import Make
from tests.harness.models import parse, write
from tests.harness.repositories.user_repository import Repository, wait

IGNORES = """
[[ignore]]
rule = "ir-version-too-new"
model = "models/future.onnx"
reason = "used in one shard"

[[ignore]]
rule = "invalid-model"
reason = "used in none"

[[ignore]]
rule = "unlocked-model"
reason = "used in several"
"""


@pytest.fixture
def many(small: Repository, create_once: Callable[[str, Make], Path]) -> Repository:
    """Return a repository of five models: one loads on no release, and two are not locked."""

    def make(folder: Path) -> None:
        repository = small.at(shutil.copytree(small.folder, folder / "repository"))
        write(repository.folder / "models" / "b.onnx", "g (float[N, 4] x) => (float[N, 4] y) { y = Neg(x) }")
        future = parse()
        future.ir_version = 13
        write(repository.folder / "models" / "future.onnx", future)
        repository.run("lock", "--offline")
        for name in ("new", "newer"):
            write(repository.folder / "models" / f"{name}.onnx")
        repository.write("onnxgate.toml", repository.read("onnxgate.toml") + IGNORES)

    made = create_once("many", make) / "repository"
    shutil.rmtree(small.folder)
    shutil.copytree(made, small.folder)
    return small


def planned(repository: Repository, *arguments: str) -> list[dict[str, Any]]:
    """Return the matrix entries of a plan, which is saved next to the repository."""
    output = repository.run("plan", *arguments).out
    assert output.count("\n") == 1
    plan_of(repository).write_text(output, encoding="utf-8")
    include: list[dict[str, Any]] = json.loads(output)["include"]
    return include


def plan_of(repository: Repository) -> Path:
    """Return the path of the last plan."""
    return repository.folder.with_name(f"{repository.folder.name}.plan")


def judge(repository: Repository, shards: list[dict[str, Any]], folder: Path, *arguments: str) -> Iterator[int]:
    """Check each shard in a separate process and yield the exit statuses."""
    for each in shards:
        file = folder / f"{each['index']}.json"
        shard = ("--shard", each["shard"], "--plan", str(plan_of(repository)))
        with repository.start("check", *arguments, *shard, "--output", f"json={file}") as process:
            yield wait(process).status


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_merged_is_whole(many: Repository, tmp_path: Path, shards: int) -> None:
    """The merged report has the same bytes as that of an undivided check."""
    whole = many.run("check", "--static", "--output", "json").out
    plan = planned(many, "--shards", str(shards))
    statuses = list(judge(many, plan, tmp_path / "reports", "--static"))
    merged = many.run("merge", str(tmp_path / "reports"), "--output", "json").out

    assert shards == len(plan)
    assert [0] * shards == statuses
    assert whole == merged
    assert ["ignore-unused"] == [
        finding["rule"] for finding in json.loads(merged)["findings"] if not finding["ignored"]
    ]


def test_by_hand(many: Repository, tmp_path: Path) -> None:
    """Without a plan, every job divides the models in the same way and reports its shard."""
    whole = many.run("check", "--static", "--output", "json").out
    for index in (1, 2):
        last = many.run("check", "--static", "--shard", f"{index}/2", "--output", f"json={tmp_path}/{index}.json").out
        assert f"shard {index} of 2: " in last.splitlines()[-1]
    files = [f"{tmp_path}/{index}.json" for index in (2, 1)]

    assert whole == many.run("merge", *files, "--output", "json").out


def test_a_shard_that_was_killed(many: Repository, tmp_path: Path) -> None:
    """The report of a killed job is empty: the check is undecided, and each unchecked model is named."""
    plan = planned(many, "--shards", "3")
    list(judge(many, plan, tmp_path / "out", "--static"))
    (tmp_path / "out" / "2.json").write_text("")
    result = many.run("merge", str(tmp_path / "out"), "--output", f"json={tmp_path}/out/merged.json", status=3)
    report = json.loads((tmp_path / "out" / "merged.json").read_text())
    named = {entry["model"] for entry in report["undecided"]} - {""}

    assert plan[1]["models"] == len(named)
    assert "the report of shard 2/3 is missing" in result.out
    assert "2.json` was not merged: it is empty, because its job did not complete" in result.out
    assert result.out.splitlines()[-1].startswith("undecided: ")


def test_failed_shard_precedes_missing_report(many: Repository, tmp_path: Path) -> None:
    """A failed shard takes precedence over a missing report."""
    many.edit("onnxgate.toml", 'rule = "ir-version-too-new"', 'rule = "path-leaked"')
    plan = planned(many, "--shards", "5")
    statuses = list(judge(many, plan, tmp_path, "--static"))
    (tmp_path / f"{plan[statuses.index(0)]['index']}.json").unlink()

    assert sorted(statuses) == [0, 0, 0, 0, 1]
    assert "is missing" in many.run("merge", str(tmp_path), status=1).out


def test_reports_of_another_commit(many: Repository, tmp_path: Path) -> None:
    """Reports of another commit or another plan are undecided."""
    plan = planned(many, "--shards", "2")
    list(judge(many, plan, tmp_path, "--static"))
    many.run("merge", str(tmp_path), "--key", plan[0]["key"])
    other = many.run("merge", str(tmp_path), "--key", "0123456789ab", status=3)
    many.write("onnxgate.lock", many.read("onnxgate.lock") + "\n")
    stale = many.run("merge", str(tmp_path), status=3)
    refused = many.run("check", "--static", "--shard", plan[0]["shard"], "--plan", str(plan_of(many)), status=2)

    assert "not to `0123456789ab` (`--key`)" in other.out
    assert "with a different lock than the lock in this folder" in stale.out
    assert "`--plan` was written for another check" in refused.err


def test_without_a_checkout(many: Repository, tmp_path: Path) -> None:
    """`merge` needs only the reports, not a checkout."""
    whole = many.run("check", "--static", "--output", "json").out
    list(judge(many, planned(many, "--shards", "2"), tmp_path / "out", "--static"))

    assert whole == many.at(tmp_path).run("merge", "out", "--output", "json").out


def test_missing_report_folder_is_undecided(many: Repository, tmp_path: Path) -> None:
    """An empty report folder is undecided, and each model is named."""
    (tmp_path / "empty").mkdir()
    result = many.run("merge", str(tmp_path / "empty"), "--output", f"json={tmp_path}/report.json", status=3)
    report = json.loads((tmp_path / "report.json").read_text())

    assert result.out.splitlines()[-1].startswith("undecided: 0 models: ")
    assert 5 == len({entry["model"] for entry in report["undecided"]} - {""})


def test_misspelled_report_folder_is_a_usage_error(small: Repository) -> None:
    """A path that does not exist is not the report of a shard, and the hint suggests the right one."""
    (small.folder / "reports").mkdir()

    assert (
        "error: `reprots` does not exist\nhint: did you mean `reports`?\n"
        == small.run("merge", "reprots", status=2).err
    )


def test_a_missing_report_does_not_hide_the_others(small: Repository, tmp_path: Path) -> None:
    """If the report of one shard does not exist, the others are merged, and the check is not complete."""
    write(small.folder / "models" / "second.onnx")
    small.run("lock", "--offline")
    list(judge(small, planned(small, "--shards", "2"), tmp_path, "--static"))
    first, second = sorted(tmp_path.glob("*.json"))
    second.unlink()
    result = small.run("merge", str(first), str(second), status=3)

    assert "the report of shard 2/2 is missing" in result.out


def test_other_files_next_to_reports(small: Repository, tmp_path: Path) -> None:
    """A plan in the folder of the reports is ignored with a note; as an argument, it is named as the mistake it is."""
    list(judge(small, planned(small, "--shards", "1"), tmp_path / "reports", "--static"))
    plan = tmp_path / "reports" / "plan.json"
    plan.write_text(plan_of(small).read_text(encoding="utf-8"), encoding="utf-8")
    merged = small.run("merge", str(tmp_path / "reports"))
    named = small.run("merge", str(tmp_path / "reports"), str(plan), status=3)

    assert merged.err == f"note: ignored files that are not onnxgate reports: `{plan}`\n"
    assert f"`{plan}` was not merged: it is not an onnxgate report\n" in named.out


def test_fewer_models_than_shards(small: Repository, tmp_path: Path) -> None:
    """Shards without models are not planned; a report of one is accepted and contains no models."""
    plan = planned(small, "--shards", "4")
    list(judge(small, plan, tmp_path, "--static"))
    small.run("check", "--static", "--shard", "3/4", "--output", f"json={tmp_path}/3.json")

    assert [1] == [each["index"] for each in plan]
    assert (
        small.run("check", "--static", "--output", "json").out
        == small.run("merge", str(tmp_path), "--output", "json").out
    )


def test_paths_without_models(small: Repository) -> None:
    """A folder without models is a usage error: otherwise a misspelled path would pass."""
    (small.folder / "docs").mkdir()

    assert "`docs` contains no model of the project" in small.run("plan", "docs", "--shards", "2", status=2).err


def test_some_models(many: Repository, tmp_path: Path) -> None:
    """Selected PATHS are planned, checked and merged like whole projects."""
    paths = ("models/new.onnx", "models/small.onnx", "models/b.onnx")
    whole = many.run("check", "--static", *paths, "--output", "json").out
    plan = planned(many, *paths, "--shards", "2")
    list(judge(many, plan, tmp_path, "--static", *paths))

    assert whole == many.run("merge", str(tmp_path), "--output", "json").out
    assert json.loads(whole)["scope"].endswith("2 models not selected")


def test_a_shard_in_ci(many: Repository, tmp_path: Path) -> None:
    """The report of a shard stays valid if remarks and the checked commit are added to it."""
    many.write("onnxgate.toml", 'exclude = ["models/new.onnx"]\n' + many.read("onnxgate.toml"))
    run = {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "example/models", "GITHUB_SHA": "a" * 40}
    repository = many.with_environment(**run)
    options = ("--static", "--against", "none", "models/new.onnx", "models/b.onnx")
    plan = planned(repository, *options[3:], "--shards", "1")
    assert list(judge(repository, plan, tmp_path, *options)) == [0]
    merged = json.loads(repository.run("merge", str(tmp_path), "--output", "json").out)

    assert merged["checkout"] == {"repository": "example/models", "commit": "a" * 40}
    assert merged["remarks"] == ["`models/new.onnx` is excluded by `exclude` in `onnxgate.toml`"]


def test_read_by_a_person(many: Repository, tmp_path: Path) -> None:
    """The plan can be printed as text."""
    output = (
        many.with_environment(ONNXGATE_CACHE_DIR=tmp_path / "cold").run("plan", "--shards", "2", "--output", "text").out
    )

    assert output.startswith("shard 1/2: 3 models, about ")
    assert output.endswith("5 models in 2 shards, with estimated costs\n")


def test_a_readable_plan_counts_shards_without_models(small: Repository) -> None:
    """The last line agrees with the shards above it, which are numbered as in `--shard`."""
    output = small.run("plan", "--shards", "5", "--output", "text").out

    assert output.startswith("shard 1/5: 1 model, about ")
    assert output.endswith("1 model in 1 of 5 shards, with estimated costs\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "--shard", "3/2"), "`--shard` is `3/2`"),
        (("check", "--shard", "x"), "expected `I/N`"),
        (("check", "--shard", "1/2", "--plan", "onnxgate.toml"), "`onnxgate.toml` is not a plan\n"),
        (("check", "--plan", "plan.json"), "requires `--shard`"),
        (("check", "--shard", "1/2", "--case", "sample"), "cannot be combined with"),
        (("check", "--shard", "1/2", "--target", "onnxruntime"), "requires a config"),
        (("merge", "out", "--no-ignores"), "No such option"),
        (("merge", "out", "--key", "x"), "invalid `--key`: `x`"),
        (("merge",), "Missing argument"),
        (("plan",), "Missing option '--shards'"),
        (("plan", "--shards", "257"), "257 is not in the range"),
    ],
)
def test_usage(small: Repository, arguments: tuple[str, ...], message: str) -> None:
    """Invalid values and combinations of options are usage errors."""
    assert message in small.run(*arguments, status=2).err


def test_everything_that_can_be_wrong(project: Callable[[str], Repository], tmp_path: Path) -> None:
    """The broken project, with graph excerpts, an unused size and lock findings in every shard, is merged correctly."""
    broken = project("broken")
    broken.edit("onnxgate.toml", "onnxruntime>=1.31,<1.32", "onnxruntime>=1.31,<1.33")
    broken.edit("onnxgate.toml", "sizes = { batch = [1, 3] }", "sizes = { batch = [1, 3], nowhere = [1] }")
    whole = broken.run("check", "--static", "--output", "json", status=1).out
    list(judge(broken, planned(broken, "--shards", "3"), tmp_path / "reports", "--static"))
    decoded = json.loads(whole)

    assert decoded["drawings"]
    assert "lock-stale" in {finding["rule"] for finding in decoded["findings"]}
    assert whole == broken.run("merge", str(tmp_path / "reports"), "--output", "json", status=1).out


def test_costs_go_from_shards_to_the_next_plan(many: Repository, tmp_path: Path) -> None:
    """Measured costs are saved by each job, merged and used by the next plan; invalid costs are ignored."""
    many = many.with_environment(ONNXGATE_CACHE_DIR=tmp_path / "cold")
    plan, artifacts = planned(many, "--shards", "2"), tmp_path / "artifacts"
    list(judge(many, plan, artifacts, "--static"))
    before = many.run("merge", str(artifacts), "--output", "json").out
    measured = {"onnxruntime 1.18.1": 1000.0}
    lock = loads(many.read("onnxgate.lock"))["models"]
    digests = [each["sha256"] for each in lock.values()]
    sharding_plan.save_costs(artifacts / "costs", digests[0], measured)
    (artifacts / "costs" / digests[1]).write_text('{"onnxruntime 1.18.1": -1}')
    (artifacts / "costs" / ("f" * 64)).write_text('{"of no model": 1}')
    there = many.with_environment(ONNXGATE_KEPT_DIR=tmp_path / "kept")
    merged = there.run("merge", str(artifacts), "--output", "json").out
    again = planned(there, "--shards", "2", "--measured")

    assert before == merged
    assert [digests[0]] == [path.name for path in (tmp_path / "kept" / "costs").iterdir()]
    assert measured == sharding_plan.load_costs(tmp_path / "kept" / "costs", digests[0])
    assert "with measured costs for 1\n" in there.run("plan", "--shards", "2", "--measured", "--output", "text").out
    assert "with estimated costs\n" in many.run("plan", "--shards", "2", "--measured", "--output", "text").out
    list(judge(many, again, tmp_path / "again", "--static"))
    assert merged == there.run("merge", str(tmp_path / "again"), "--output", "json").out


def test_a_shard_without_a_plan_is_that_of_the_plan(many: Repository, tmp_path: Path) -> None:
    """`plan` and `check --shard` divide models in the same way, even with cached costs, unless `--measured` is used."""
    many = many.with_environment(ONNXGATE_CACHE_DIR=tmp_path / "cache")
    lock = loads(many.read("onnxgate.lock"))["models"]
    for name, cost_s in (("b", 1000.0), ("small", 1.0)):
        sha256 = lock[f"models/{name}.onnx"]["sha256"]
        sharding_plan.save_costs(tmp_path / "cache" / "costs", sha256, {"onnxruntime 1.18.1": cost_s})
    plan = {entry["shard"]: tuple(entry["paths"]) for entry in planned(many, "--shards", "2")}
    reports = {shard: many.report("--static", "--shard", shard) for shard in plan}
    measured = {entry["shard"]: tuple(entry["paths"]) for entry in planned(many, "--shards", "2", "--measured")}
    text = many.run("plan", "--shards", "2", "--measured", "--output", "text").out

    assert plan == {shard: tuple(model["path"] for model in report["models"]) for shard, report in reports.items()}
    assert measured != plan
    assert text.endswith("5 models in 2 shards, with measured costs for 2\n")


@pytest.mark.index
def test_run_in_parts(many: Repository, tmp_path: Path) -> None:
    """With real runtimes, the merged report is the same, and the next plan uses measured costs."""
    write(many.folder / "models" / "future.onnx")
    many.run("lock", "--offline")
    list(judge(many, planned(many, "--shards", "2"), tmp_path, "--offline", "--no-cache"))
    whole = many.run("check", "--output", "json", "--offline", "--no-cache").out
    again = planned(many, "--shards", "2", "--measured")

    assert whole == many.run("merge", str(tmp_path), "--output", "json").out
    assert "with measured costs for " in many.run("plan", "--shards", "2", "--measured", "--output", "text").out
    (tmp_path / "again").mkdir()
    list(judge(many, again, tmp_path / "again", "--offline", "--no-cache"))
    assert whole == many.run("merge", str(tmp_path / "again"), "--output", "json").out
