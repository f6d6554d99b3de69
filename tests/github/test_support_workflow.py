"""The scheduled workflow that harvests new releases: its scripts, with a `gh` that only records its arguments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from onnxgate.support.limits import list_table_engines
from tests.harness.repositories.checkout import NOBODY, ROOT, commit, git

JOBS: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/support.yml").read_text(encoding="utf-8"))["jobs"]
ENGINE = "onnxruntime"
TITLE = f"Harvest {ENGINE} 1.32.0,1.32.1"
SKIP, FIND = "Skip releases in the open pull request", "Find the open pull request"
# The real `gh` applies the filter; these are a real jq's results for the two responses.
GH = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["GH_LOG"], "a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
if sys.argv[1:3] == ["pr", "list"]:
    print(os.environ["GH_OPEN"], end="")
"""

pytestmark = pytest.mark.skipif(os.name == "nt" or shutil.which("bash") is None, reason="the runner's shell is bash")


def script(job: str, name: str) -> str:
    """Return the script of a step."""
    return str(next(step["run"] for step in JOBS[job]["steps"] if step.get("name") == name))


def run(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script as the runner does."""
    command = ["bash", "--noprofile", "--norc", "-e", "-c", script]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **NOBODY, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("listed", "expected"),
    [("", ""), ("1.32.0\n", "1.32.0"), ("1.32.0\n1.33.1\n", "1.32.0,1.33.1"), ("a=b\n1.32.0\n`x`\n", "1.32.0")],
)
def test_only_releases_are_passed_on(tmp_path: Path, listed: str, expected: str) -> None:
    """An empty list is not an error, and text that is not a version is never passed to a script."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "harvest_support.py").write_text(f"print({listed!r}, end='')", encoding="utf-8")
    (tmp_path / "python").symlink_to(sys.executable)
    search = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "ENGINE": ENGINE}
    output = tmp_path / "output"
    done = run(
        script("harvest", "Look for releases"), tmp_path, RUNNER_TEMP=str(tmp_path), GITHUB_OUTPUT=str(output), **search
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert f"releases={expected}\n" == output.read_text(encoding="utf-8")


def test_failed_index_query_fails_the_run(tmp_path: Path) -> None:
    """If the index does not respond, the run fails."""
    (tmp_path / "python").symlink_to(sys.executable)
    search = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = run(
        script("harvest", "Look for releases"),
        tmp_path,
        RUNNER_TEMP=str(tmp_path),
        GITHUB_OUTPUT=str(tmp_path / "output"),
        ENGINE=ENGINE,
        **search,
    )

    assert done.returncode != 0
    assert not (tmp_path / "output").exists()


@dataclass
class Proposing:
    """A clone with new data, its remote, and the arguments of `gh`."""

    clone: Path
    remote: Path
    environment: dict[str, str]

    def step(self, name: str, **environment: str) -> None:
        """Run a step."""
        done = run(script("propose", name), self.clone, **self.environment, **environment)
        assert done.returncode == 0, done.stderr

    def gh_calls(self) -> list[list[str]]:
        """Return the arguments of each `gh` call."""
        log = Path(self.environment["GH_LOG"])
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def proposing(tmp_path: Path) -> Proposing:
    """Create a clone with one changed file, and an artifact with new data."""
    clone, remote, tools, runner = (tmp_path / name for name in ("clone", "remote.git", "bin", "runner"))
    (clone / "onnxgate" / "support" / "data").mkdir(parents=True)
    (clone / "README.md").write_text("old")
    commit(clone)
    git(tmp_path, "init", "--quiet", "--bare", str(remote))
    git(clone, "remote", "add", "origin", str(remote))
    (clone / "README.md").write_text("changed by accident")
    (runner / "data").mkdir(parents=True)
    (runner / "data" / "title").write_text(f"{TITLE}\nsecond=line\n")
    for name in ("onnxruntime-limits.json", "onnxruntime-kernels.md", "onnxruntime-web-limits.json", "other.py"):
        (runner / "data" / name).write_text("new")
    tools.mkdir()
    (tools / "gh").write_text(GH, encoding="utf-8")
    (tools / "gh").chmod(0o755)
    environment = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "GH_LOG": str(tmp_path / "asked"),
        "GH_OPEN": "",
        "BRANCH": "support-data-onnxruntime",
        "ENGINE": ENGINE,
        "RUNNER_TEMP": str(runner),
        "TITLE": TITLE,
        "BODY": "What changed",
        "GITHUB_REF_NAME": "main",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }
    return Proposing(clone, remote, environment)


def test_only_data_is_pushed(proposing: Proposing) -> None:
    """Only the data of one engine is pushed, to its own branch, even if an older branch exists."""
    git(proposing.clone, "push", "--quiet", "origin", "main:support-data-onnxruntime")
    git(proposing.clone, "switch", "--quiet", "--detach")
    proposing.step("Push the branch")

    branch = "support-data-onnxruntime"
    changed = git(proposing.remote, "diff", "--name-only", f"{branch}~1", branch).splitlines()
    assert [f"onnxgate/support/data/onnxruntime-{name}" for name in ("kernels.md", "limits.json")] == changed
    assert TITLE == git(proposing.remote, "log", "-1", "--format=%s", branch)
    assert [["auth", "setup-git"]] == proposing.gh_calls()


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("", ["pr", "create", "--head", "support-data-onnxruntime", "--base", "main"]),
        ("7", ["pr", "edit", "7"]),
    ],
)
def test_one_change_is_open_at_a_time(proposing: Proposing, number: str, expected: list[str]) -> None:
    """An open pull request is updated for a newer release."""
    proposing.step("Open or update the pull request", NUMBER=number)

    assert [[*expected, "--title", TITLE, "--body", "What changed"]] == proposing.gh_calls()


@pytest.mark.parametrize("opened", ["", "number=7\n"])
def test_title_and_number_are_outputs(proposing: Proposing, opened: str) -> None:
    """Later steps need a title; they change the open pull request if there is one."""
    proposing.environment["GH_OPEN"] = opened
    proposing.step(FIND)
    conditions = [step.get("if") for step in JOBS["propose"]["steps"][3:]]

    assert f"{opened}title={TITLE}\n" == Path(proposing.environment["GITHUB_OUTPUT"]).read_text(encoding="utf-8")
    assert ["steps.data.outputs.title != ''"] * 2 == conditions


@pytest.mark.parametrize(
    ("opened", "expected"),
    [
        ("", "releases=1.32.0,1.32.1\n"),
        ("Harvest onnxruntime 1.32.0\n", "releases=1.32.0,1.32.1\n"),
        (f"{TITLE}\n", ""),
    ],
)
def test_release_in_an_open_pull_request_is_not_harvested(proposing: Proposing, opened: str, expected: str) -> None:
    """A harvest takes up to three hours, so it is not repeated each day until a person merges it."""
    proposing.environment["GH_OPEN"] = opened
    output = Path(proposing.environment["GITHUB_OUTPUT"])
    output.touch()
    done = run(script("harvest", SKIP), proposing.clone, **proposing.environment, RELEASES="1.32.0,1.32.1")
    steps = JOBS["harvest"]["steps"]
    after = steps[[step.get("name") for step in steps].index(SKIP) + 1 :]

    assert (0, expected) == (done.returncode, output.read_text(encoding="utf-8"))
    assert ["steps.missing.outputs.releases != ''"] * 5 == [step.get("if") for step in after]
    assert proposing.gh_calls()[0][:4] == ["pr", "list", "--head", proposing.environment["BRANCH"]]


def test_without_new_data_nothing_is_requested(proposing: Proposing) -> None:
    """Most days have no new release."""
    (Path(proposing.environment["RUNNER_TEMP"]) / "data" / "title").unlink()
    proposing.step(FIND)

    assert not Path(proposing.environment["GITHUB_OUTPUT"]).exists()
    assert not Path(proposing.environment["GH_LOG"]).exists()


def test_every_engine_with_a_table_is_harvested() -> None:
    """An engine that is missing in the workflow would silently keep old data."""
    for job in JOBS.values():
        assert set(list_table_engines()) <= set(job["strategy"]["matrix"]["engine"])


@pytest.mark.parametrize(("job", "step", "expected"), [("propose", FIND, "number=7\n"), ("harvest", SKIP, "ours\n")])
def test_only_own_branches_count(job: str, step: str, expected: str) -> None:
    """The filter, run by a real jq, ignores a fork's branch with the same name."""
    jq = shutil.which("jq")
    if jq is None:
        pytest.skip("needs jq")
    filter_ = script(job, step).partition("own='")[2].partition("'\n")[0]
    answers = [
        {"number": 5, "title": "theirs", "isCrossRepository": True},
        {"number": 7, "title": "ours", "isCrossRepository": False},
    ]
    done = subprocess.run([jq, "-r", filter_], input=json.dumps(answers), capture_output=True, text=True, check=True)

    assert expected == done.stdout


def test_description_names_the_tests_that_passed() -> None:
    """The other tests do not run by themselves, so a reviewer must not take the data for fully tested."""
    body = next(step["env"]["BODY"] for step in JOBS["propose"]["steps"] if "BODY" in step.get("env", {}))
    tests = next(it["run"] for it in JOBS["harvest"]["steps"] if it.get("name") == "Test the data")
    folders = [word for word in tests.split() if word.startswith("tests/")]

    assert [f"`{folder}`" in body for folder in folders] == [True, True]
    assert "closed and reopened this pull request" in body
    assert "${{ github.server_url }}/${{ github.repository }}/actions/runs/${{ github.run_id }}. " in body


def test_job_with_write_permissions_runs_no_code() -> None:
    """The job with write permissions installs nothing and runs no project code; the other job has read access only."""
    scripts = "\n".join(step.get("run", "") for step in JOBS["propose"]["steps"])

    assert {"contents": "read", "pull-requests": "read"} == JOBS["harvest"]["permissions"]
    assert [SKIP] == [it.get("name") for it in JOBS["harvest"]["steps"] if "GH_TOKEN" in it.get("env", {})]
    assert {"contents": "write", "pull-requests": "write"} == JOBS["propose"]["permissions"]
    assert not {"python", "pip", "uv", "bash"} & set(scripts.split())
