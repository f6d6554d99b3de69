"""A history of twelve commits, checked one by one in clones like those of CI."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import need
from tests.e2e.conftest import Make
from tests.harness.repositories.checkout import git
from tests.harness.repositories.commit_history import MOVED, NET, OTHER, STEPS, Step, clone, make_history, publish
from tests.harness.repositories.user_repository import Repository, brief

OTHER_BYTES = ("axis made static", "data file", "metadata lost", "weights")
"""Steps for which the old content does not affect the verdict: it has the same version fields and operators."""
SOME_STEPS = ("input removed", "newer opset", "data file", "file renamed")
"""Steps for checks whose result depends on the checkout: a change of the model, of its data, and of its path."""
Origin = Callable[[bool], Path]
Findings = list[tuple[str, str, str]]


@pytest.fixture(scope="session")
def origin(command: Repository, create_once: Callable[[str, Make], Path]) -> Origin:
    """Return a function that creates the history in a bare repository, plain or in Git LFS."""

    def create(lfs: bool) -> Path:
        def make(folder: Path) -> None:
            plain = create(False).with_name("work") if lfs else None
            make_history(command.at(folder / "work"), plain=plain)
            publish(folder / "work", folder / "origin.git", lfs=lfs)

        return create_once(f"history-{'lfs' if lfs else 'plain'}", make) / "origin.git"

    return create


def selected(names: Sequence[str] | None = None) -> list[tuple[int, Step]]:
    """Return the steps with their numbers: all, or those with these names."""
    return [(index, step) for index, step in enumerate(STEPS, 1) if names is None or step.said in names]


def status_of(findings: Findings) -> int:
    """Return the expected exit status of `check`."""
    return 1 if any(level == "error" for level, _, _ in findings) else 0


def expected(index: int) -> Findings:
    """Return the findings of a step, for the one model that changed."""
    step = STEPS[index - 1]
    return [(level, rule, step.net.path) for level, rule in step.findings]


def without(rule: str, findings: Findings) -> Findings:
    """Return the findings of other rules."""
    return [finding for finding in findings if finding[1] != rule]


def order(finding: tuple[str, str, str]) -> tuple[int, str, str]:
    """Return the sort key that reports use."""
    level, rule, model = finding
    return ("error", "warning", "note").index(level), model, rule


def replay(repository: Repository, findings: Findings, *arguments: str, status: int | None = None) -> dict[str, Any]:
    """Return the report on the last commit compared with its parent; it must have exactly these findings."""
    expected = status_of(findings) if status is None else status
    report = repository.report("--static", "--against", "HEAD^1", *arguments, status=expected)

    assert [brief(finding) for finding in report["findings"]] == findings
    return report


@pytest.mark.parametrize(("depth", "arguments"), [(2, ["--offline"]), (1, [])], ids=["depth 2", "depth 1"])
def test_plain(command: Repository, origin: Origin, tmp_path: Path, depth: int, arguments: list[str]) -> None:
    """Each commit has the findings of its change, whether its parent was cloned or must be fetched."""
    for index, step in selected(SOME_STEPS if depth == 1 else None):
        folder = clone(origin(False), tmp_path / f"c{index}", f"c{index}", depth, lfs=False, smudged=False)
        report = replay(command.at(folder), expected(index), *arguments)

        assert (report["undecided"], report["remarks"]) == ([], []), step.said
        (change,) = report["changes"]
        assert (change["model"], change["kind"]) == (step.net.path, "renamed" if step.net.path == MOVED else "changed")


def test_lfs(command: Repository, origin: Origin, tmp_path: Path) -> None:
    """With Git LFS, an old content is fetched only if it affects the verdict.

    If the version fields and operators are the same, the facts in the old lock are sufficient. Weights are not compared
    then, and a remark reports it.
    """
    need("git-lfs")
    for index, step in enumerate(STEPS, 1):
        folder = clone(origin(True), tmp_path / f"c{index}", f"c{index}", 1, lfs=True, smudged=True)
        report = replay(command.at(folder), without("weights-changed", expected(index)))

        assert (report["undecided"], bool(report["remarks"])) == ([], step.said in OTHER_BYTES), step.said
        assert all("(content not fetched) (run `git lfs fetch origin " in remark for remark in report["remarks"])


@pytest.mark.parametrize("smudged", [True, False], ids=["smudged", "pointers"])
def test_lfs_offline(command: Repository, origin: Origin, tmp_path: Path, smudged: bool) -> None:
    """Offline, only the lock of the previous commit is available, which is enough for rules that need only facts.

    The lock does not record which releases loaded the model, so a model that no longer loads on a required release is
    undecided. So is a changed model that was not fetched itself, because its facts are only in its own lock.
    """
    need("git-lfs")
    for index, step in selected(None if smudged else SOME_STEPS):
        folder = clone(origin(True), tmp_path / f"c{index}", f"c{index}", 2, lfs=True, smudged=smudged)
        findings = without("minimum-runtime-raised", without("weights-changed", expected(index)))
        undecided = [("lock", NET)] if step.said == "newer opset" else []
        if not smudged:
            is_moved = step.said == "file renamed"
            findings = [("note", "lfs-pointer", path) for path in ([step.net.path, OTHER] if is_moved else [OTHER])]
            undecided = [] if is_moved else [(stage, NET) for stage in ("file", "lock", "support")]
        status = 3 if undecided else None
        report = replay(command.at(folder), sorted(findings, key=order), "--offline", status=status)

        assert sorted((entry["stage"], entry["model"]) for entry in report["undecided"]) == undecided
        assert bool(report["remarks"]) == (smudged and step.said != "file renamed"), step.said


def test_undecided_result_has_a_working_hint(command: Repository, origin: Origin, tmp_path: Path) -> None:
    """The undecided result names the releases and the missing content, and its command leads to a verdict."""
    need("git-lfs")
    index = next(index for index, step in enumerate(STEPS, 1) if step.said == "newer opset")
    folder = clone(origin(True), tmp_path / "clone", f"c{index}", 2, lfs=True, smudged=True)
    repository = command.at(folder)
    (undecided,) = replay(repository, [], "--offline", status=3)["undecided"]
    git(folder, *shlex.split(undecided["hint"].removeprefix("run `").removesuffix("`"))[1:])

    assert undecided["reason"].startswith(
        "does not load on onnxruntime 1.17.0–1.17.3; it is unknown whether the version at `HEAD^1` loads: "
        f"`{NET}` at `HEAD^1` is a Git LFS pointer (content not fetched)"
    )
    assert replay(repository, expected(index), "--offline")["undecided"] == []


def pull_request(origin: Path, index: int, *, name: str = "refs/pull/7/merge") -> str:
    """Create a merge commit of a step and its parent as GitHub does, as a ref of the origin."""
    base, head = (git(origin, "rev-parse", f"c{number}") for number in (index - 1, index))
    merge = git(origin, "commit-tree", f"{head}^{{tree}}", "-p", base, "-p", head, "-m", "merge")
    git(origin, "update-ref", name, merge)
    return merge


def checkout(origin: Path, folder: Path, ref: str) -> Path:
    """Fetch one commit without a branch, like `actions/checkout`."""
    git(folder.parent, "init", "--quiet", str(folder))
    git(folder, "remote", "add", "origin", origin.as_uri())
    git(folder, "fetch", "--quiet", "--no-tags", "--depth=1", "origin", ref)
    git(folder, "checkout", "--quiet", "--detach", "FETCH_HEAD")
    return folder


def in_actions(repository: Repository, tmp_path: Path, ref: str, event: object, **variables: str) -> Repository:
    """Return the command with the variables of a workflow run."""
    (tmp_path / "event.json").write_text(json.dumps(event), encoding="utf-8")
    own = {"CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_REF": ref, "GITHUB_EVENT_PATH": str(tmp_path / "event.json")}
    return repository.with_environment(**own, **variables)


@pytest.fixture
def copy(origin: Origin, tmp_path: Path) -> Path:
    """Return a copy of the plain history, to add refs to."""
    return Path(shutil.copytree(origin(False), tmp_path / "origin.git"))


def test_pull_request_of_a_fork(command: Repository, copy: Path, tmp_path: Path) -> None:
    """The base is found without `--against`, although only one commit is checked out and the token is read-only."""
    merge = pull_request(copy, 2)
    folder = checkout(copy, tmp_path / "clone", "refs/pull/7/merge")
    head = {"ref": "main", "sha": "a" * 40, "repo": {"fork": True, "full_name": "stranger/repository"}}
    event = {"action": "synchronize", "before": "b" * 40, "pull_request": {"head": head, "base": {"ref": "main"}}}
    own = {"GITHUB_SHA": merge, "GITHUB_BASE_REF": "main", "GITHUB_HEAD_REF": "main"}
    repository = in_actions(command.at(folder), tmp_path, "refs/pull/7/merge", event, **own)
    report = repository.report("--static", status=1)

    assert [brief(finding) for finding in report["findings"]] == expected(2)
    assert report["against"] == {"name": "HEAD^1", "commit": git(copy, "rev-parse", "c1")}
    assert "at `HEAD^1`" in report["findings"][0]["message"]
    assert repository.report("--static", "--against", "none")["against"] is None


def test_merge_queue(command: Repository, copy: Path, tmp_path: Path) -> None:
    """A group of pull requests is compared with the commit that it will be merged onto."""
    base = git(copy, "rev-parse", "c1")
    ref = "refs/heads/gh-readonly-queue/main/pr-7"
    folder = checkout(copy, tmp_path / "clone", "refs/heads/c3")
    event = {"action": "checks_requested", "merge_group": {"base_sha": base, "head_ref": ref}}
    report = in_actions(command.at(folder), tmp_path, ref, event).report("--static", status=1)

    assert [finding["rule"] for finding in report["findings"]] == ["input-renamed", "input-type-changed"]
    assert report["against"] == {"name": base[:12], "commit": base}


def test_new_branch(command: Repository, copy: Path, tmp_path: Path) -> None:
    """The first push of a branch is compared with its merge base; the default branch itself has no baseline."""
    git(copy, "update-ref", "refs/heads/main", "c4")
    folder = checkout(copy, tmp_path / "clone", "refs/heads/c6")
    git(folder, "fetch", "--quiet", "--unshallow", "origin", "+refs/heads/*:refs/remotes/origin/*")
    event = {"before": "0" * 40, "created": True, "repository": {"default_branch": "main"}}
    report = in_actions(command.at(folder), tmp_path, "refs/heads/c6", event).report("--static", status=1)
    first = in_actions(command.at(folder), tmp_path, "refs/heads/main", event).report("--static")

    assert [finding["rule"] for finding in report["findings"]] == ["output-removed"]
    assert report["against"] == {"name": "origin/main", "commit": git(copy, "rev-parse", "c4")}
    assert (first["against"], first["changes"], first["remarks"]) == (
        None,
        [],
        ["no baseline: the previous commit is unknown; set `--against REF`"],
    )


def test_checkout_of_another_user(command: Repository, origin: Origin, tmp_path: Path) -> None:
    """Git rejects a checkout of another user, as in containers; the baseline is read and fetched nevertheless."""
    if os.name == "nt" or os.geteuid() != 0:
        pytest.skip("only root can give files away")
    folder = clone(origin(False), tmp_path / "clone", "c1", 1, lfs=False, smudged=False)
    for path in (folder, *folder.rglob("*")):
        os.lchown(path, 12345, 12345)
    mistrusted = subprocess.run(["git", "-C", folder, "status"], capture_output=True, text=True, check=False)

    assert "dubious ownership" in mistrusted.stderr
    replay(command.at(folder), expected(1))


def test_run_without_an_earlier_state_passes(command: Repository, origin: Origin, tmp_path: Path) -> None:
    """A run without a previous commit passes with a remark; an explicit baseline is a usage error with a hint."""
    folder = clone(origin(False), tmp_path / "clone", "c1", 1, lfs=False, smudged=False)
    repository = in_actions(command.at(folder), tmp_path, "refs/heads/c1", {})
    text = repository.run("check", "--static").out
    result = repository.run("check", "--static", "--offline", "--against", "HEAD^1", status=2)

    assert "no baseline: the previous commit is unknown; set `--against REF`" in text
    assert "`--against HEAD^1`: the commit is `" in result.err
    assert "`fetch-depth: 2` for `HEAD^1`" in result.err
