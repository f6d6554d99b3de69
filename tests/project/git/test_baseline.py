"""Selection of the baseline revision, explicit or from the CI environment, in full and shallow clones, online and
offline.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from onnxgate.core.errors import UsageError
from onnxgate.core.report import ReportedCheckout
from onnxgate.project.git.baseline import BaselineChoice, choose_baseline, parse_branch, parse_commit, read_checkout
from onnxgate.project.git.repository import MAX_FETCHED_COMMITS
from tests.harness.repositories.checkout import commit, git

GITHUB = {"GITHUB_ACTIONS": "true"}
ZEROES = "0" * 40
GONE = "d" * 40


class Origin:
    """A remote with `main` (two commits), a branch `topic` (two more), and GitHub's merge commit of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = folder.as_uri()
        self.first = self._commit("one")
        git(folder, "branch", "start")
        self.main = self._commit("two")
        git(folder, "checkout", "--quiet", "-b", "topic")
        self.topic_first = self._commit("three")
        self.topic = self._commit("four")
        git(folder, "checkout", "--quiet", "main")
        self.newer_main = self._commit("five")
        git(folder, "checkout", "--quiet", "--detach", "main")
        git(folder, "merge", "--quiet", "--no-ff", "-m", "merge", "topic")
        self.merge = git(folder, "rev-parse", "HEAD")
        git(folder, "update-ref", "refs/pull/7/merge", self.merge)
        git(folder, "checkout", "--quiet", "main")

    def _commit(self, name: str) -> str:
        self.folder.mkdir(exist_ok=True)
        (self.folder / name).write_text(name)
        return commit(self.folder)

    def clone(self, to: Path, ref: str, *, depth: int = 0) -> Path:
        """Create a clone as `actions/checkout` leaves it: a detached commit with the requested history depth."""
        git(to.parent, "init", "--quiet", str(to))
        git(to, "remote", "add", "origin", self.url)
        heads = [] if depth else ["+refs/heads/*:refs/remotes/origin/*"]
        git(to, "fetch", "--quiet", "--no-tags", *([f"--depth={depth}"] if depth else []), "origin", *heads, ref)
        git(to, "checkout", "--quiet", "--detach", git(to, "rev-parse", "FETCH_HEAD") if depth else self._id(ref))
        return to

    def _id(self, ref: str) -> str:
        return git(self.folder, "rev-parse", ref)


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    """Create the remote."""
    return Origin(tmp_path / "origin")


def event(folder: Path, said: object) -> dict[str, str]:
    """Write an event file and return the environment variable that points to it."""
    (folder / "event.json").write_text(said if isinstance(said, str) else json.dumps(said))
    return {"GITHUB_EVENT_PATH": str(folder / "event.json")}


NONE = "; set `--against REF`"
SKIP = "; to check without a baseline, use `--against none` (action input `against: none`)"


def chosen(root: Path | None, environment: Mapping[str, str], *, offline: bool = False) -> tuple[str, str]:
    """Return the name and commit of the selected baseline; "" and the remark if there is no earlier state; "missing"
    and the reason with the hint if there is one that is not available.
    """
    baseline = choose_baseline(root, None, environment, offline=offline)
    assert 1 == sum(map(bool, (baseline.revision, baseline.remark, baseline.missing)))
    assert bool(baseline.missing) == bool(baseline.hint)
    if baseline.revision is not None:
        return baseline.revision.name, baseline.revision.commit
    return ("missing", f"{baseline.missing}; {baseline.hint}") if baseline.missing else ("", baseline.remark)


def test_explicit_baseline_overrides_ci(origin: Origin, tmp_path: Path) -> None:
    """An explicit baseline overrides the CI environment; `none` and an empty value select no baseline, without a
    remark.
    """
    root = origin.clone(tmp_path / "clone", "refs/heads/main")
    environment = {**GITHUB, "GITHUB_BASE_REF": "main"}
    baseline = choose_baseline(root, "origin/topic", environment)

    assert baseline.revision is not None
    assert (baseline.revision.name, baseline.revision.commit) == ("origin/topic", origin.topic)
    assert [choose_baseline(root, asked, environment) for asked in ("none", "")] == [BaselineChoice(), BaselineChoice()]


def test_outside_of_ci(origin: Origin) -> None:
    """Outside of CI there is no default baseline and no remark."""
    assert choose_baseline(origin.folder, None, {}) == BaselineChoice()
    assert choose_baseline(None, None, {"CI": "true"}) == BaselineChoice()


@pytest.mark.parametrize("depth", [0, 2, 1])
def test_merge_of_a_pull_request(origin: Origin, tmp_path: Path, depth: int) -> None:
    """The baseline is the first parent of the merge commit; it is fetched in a clone of depth 1, for forks too."""
    root = origin.clone(tmp_path / "clone", "refs/pull/7/merge", depth=depth)
    environment = {**GITHUB, "GITHUB_REF": "refs/pull/7/merge", "GITHUB_SHA": origin.merge, "GITHUB_BASE_REF": "main"}
    offline = chosen(root, environment, offline=True)

    assert offline[0] == ("HEAD^1" if depth != 1 else "missing")
    assert chosen(root, environment) == ("HEAD^1", origin.newer_main)
    assert git(root, "status", "--porcelain") == ""


def test_merge_that_cannot_be_completed(origin: Origin, tmp_path: Path) -> None:
    """If the parent of the merge commit cannot be fetched, the baseline is missing, and the hint names the setting."""
    root = origin.clone(tmp_path / "clone", "refs/pull/7/merge", depth=1)
    environment = {**GITHUB, "GITHUB_REF": "refs/pull/7/merge"}
    here = f"the baseline is not available: the base commit is `{origin.newer_main[:12]}`; it "
    help_with = f"; set `fetch-depth: 2` for `actions/checkout`{SKIP}"
    offline = chosen(root, environment, offline=True)
    git(root, "remote", "set-url", "origin", (tmp_path / "nowhere").as_uri())
    refused = chosen(root, environment)
    git(root, "remote", "remove", "origin")
    nowhere = f"'{tmp_path / 'nowhere'}' does not appear to be a git repository"

    assert offline == ("missing", f"{here}was not fetched, and `--offline` prevents fetching it{help_with}")
    assert refused == ("missing", f"{here}could not be fetched from `origin`: {nowhere}{help_with}")
    assert chosen(root, environment) == (
        "missing",
        f"{here}was not fetched, and the repository has no remote{help_with}",
    )


def test_head_of_a_pull_request(origin: Origin, tmp_path: Path) -> None:
    """If a workflow checks out the branch itself, the baseline is the merge base and not the current base branch."""
    root = origin.clone(tmp_path / "clone", "refs/heads/topic")
    environment = {**GITHUB, "GITHUB_REF": "refs/pull/7/merge", "GITHUB_SHA": origin.merge, "GITHUB_BASE_REF": "main"}

    assert chosen(root, environment) == ("origin/main", origin.main)


def test_branch_that_ends_in_a_merge(origin: Origin, tmp_path: Path) -> None:
    """A merge commit that the author made in the branch is not mistaken for GitHub's merge commit."""
    git(origin.folder, "checkout", "--quiet", "topic")
    git(origin.folder, "merge", "--quiet", "--no-ff", "-m", "catch up", "main")
    root = origin.clone(tmp_path / "clone", "refs/heads/topic")
    environment = {**GITHUB, "GITHUB_REF": "refs/pull/7/merge", "GITHUB_SHA": origin.merge, "GITHUB_BASE_REF": "main"}

    assert chosen(root, environment) == ("origin/main", origin.newer_main)


def head_of(origin: Origin, folder: Path, base: str = "") -> dict[str, str]:
    """Return the variables of a pull request; its event contains the base commit unless that is ""."""
    request = {"head": {"sha": origin.topic}, "base": {"sha": base, "ref": "main"}}
    variables = {"GITHUB_REF": "refs/pull/7/merge", "GITHUB_SHA": origin.merge, "GITHUB_BASE_REF": "main"}
    return {**GITHUB, **variables, **event(folder, {"pull_request": request})}


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("is_known", [True, False])
def test_head_of_a_pull_request_in_a_shallow_clone(origin: Origin, tmp_path: Path, depth: int, is_known: bool) -> None:
    """With `ref: head.sha`, the history is fetched until it contains the merge base. The base commit of the event is
    newer; changes since the merge base do not belong to the request.
    """
    root = origin.clone(tmp_path / "clone", origin.topic if depth else "refs/heads/topic", depth=depth)
    git(root, "update-ref", "-d", "refs/remotes/origin/main")
    environment = head_of(origin, tmp_path, origin.newer_main if is_known else "")

    assert chosen(root, environment) == (origin.main[:12] if is_known else "origin/main", origin.main)
    assert git(root, "for-each-ref", "refs/remotes/origin/main") == ""
    assert git(root, "rev-parse", "HEAD") == origin.topic


def test_head_of_a_pull_request_without_network(origin: Origin, tmp_path: Path) -> None:
    """If the merge base cannot be found, nothing else is used instead."""
    root = origin.clone(tmp_path / "clone", origin.topic, depth=1)
    environment = head_of(origin, tmp_path, origin.newer_main)
    offline = chosen(root, environment, offline=True)
    git(root, "fetch", "--quiet", "--depth=1", "origin", origin.newer_main)
    git(root, "remote", "set-url", "origin", (tmp_path / "nowhere").as_uri())
    unknown = f"the baseline is not available: the merge base with `{origin.newer_main[:12]}` is unknown: "
    help_with = f"; set `fetch-depth: 0` for `actions/checkout`{SKIP}"
    needed = (
        f"the commit `{origin.newer_main[:12]}` is needed; it was not fetched, and `--offline` prevents fetching it"
    )
    nowhere = f"'{tmp_path / 'nowhere'}' does not appear to be a git repository"

    assert offline == ("missing", f"{unknown}{needed}{help_with}")
    assert chosen(root, environment) == ("missing", f"{unknown}{nowhere}{help_with}")


@pytest.mark.parametrize("base", ["no-such-branch", "main^{tree}", "--output=x", "../heads/main", "a b"])
def test_base_that_is_not_here(origin: Origin, tmp_path: Path, base: str) -> None:
    """A base branch that does not exist is missing; an invalid branch name is treated the same."""
    root = origin.clone(tmp_path / "clone", "refs/heads/topic", depth=1)
    why = "; it does not exist in `origin`" if base == "no-such-branch" else ""

    assert chosen(root, {**GITHUB, "GITHUB_BASE_REF": base}) == (
        "missing",
        f"the baseline is not available: the branch `origin/{base}` was not fetched{why}; set `fetch-depth: 0` for "
        f"`actions/checkout`{SKIP}",
    )


@pytest.mark.parametrize("offline", [True, False])
def test_base_without_common_history(origin: Origin, tmp_path: Path, offline: bool) -> None:
    """If both branch tips were fetched without their common history, that is fetched too."""
    root = origin.clone(tmp_path / "clone", "refs/heads/topic", depth=1)
    git(root, "fetch", "--quiet", "--depth=1", "origin", "+refs/heads/main:refs/remotes/origin/main")
    unknown = "the merge base with `origin/main` is unknown: it is not in the fetched history; set `fetch-depth: 0`"
    expected = "missing" if offline else "origin/main"
    name, reason = chosen(root, {**GITHUB, "GITHUB_BASE_REF": "main"}, offline=offline)

    assert name == expected
    assert (unknown in reason) == offline


def test_unrelated_histories(origin: Origin, tmp_path: Path) -> None:
    """A new branch without common history with `main` has no earlier state; a pull request always has one."""
    git(origin.folder, "checkout", "--quiet", "--orphan", "other")
    commit(origin.folder)
    root = origin.clone(tmp_path / "clone", "refs/heads/other")
    pushed = event(tmp_path, {"before": ZEROES, "repository": {"default_branch": "main"}})

    assert chosen(root, {**GITHUB, **pushed, "GITHUB_REF": "refs/heads/other"}) == (
        "",
        f"no baseline: no common history with `origin/main`{NONE}",
    )
    assert chosen(root, head_of(origin, tmp_path, origin.newer_main)) == (
        "missing",
        "the baseline is not available: no common history with `origin/main`; select another commit with "
        f"`--against REF`{SKIP}",
    )


@pytest.mark.parametrize("method", ["merge", "squash"])
@pytest.mark.parametrize("depth", [0, 1])
def test_merged_pull_request(origin: Origin, tmp_path: Path, method: str, depth: int) -> None:
    """When a pull request was merged, the run is for the target branch; only the event names the base commit."""
    git(origin.folder, "merge", "--quiet", *(["--squash"] if method == "squash" else ["--no-ff"]), "topic")
    merged = commit(origin.folder) if method == "squash" else git(origin.folder, "rev-parse", "HEAD")
    root = origin.clone(tmp_path / "clone", merged, depth=depth)
    request = {"merged": True, "base": {"sha": origin.newer_main, "ref": "main"}, "head": {"sha": origin.topic}}
    closed = event(tmp_path, {"action": "closed", "pull_request": request})
    environment = {**GITHUB, **closed, "GITHUB_REF": "refs/heads/main", "GITHUB_SHA": merged, "GITHUB_BASE_REF": "main"}
    name = "HEAD^1" if method == "merge" else origin.newer_main[:12]

    assert chosen(root, environment) == (name, origin.newer_main)


def test_newer_merge_of_a_pull_request(origin: Origin, tmp_path: Path) -> None:
    """`ref: refs/pull/7/merge` checks out a newer merge than the one that the run was started for."""
    root = origin.clone(tmp_path / "clone", "refs/pull/7/merge", depth=1)
    environment = {**head_of(origin, tmp_path, origin.main), "GITHUB_SHA": GONE}

    assert chosen(root, environment) == ("HEAD^1", origin.newer_main)


def test_review_of_a_pull_request(origin: Origin, tmp_path: Path) -> None:
    """`pull_request_review` has the same merge commit, but no `GITHUB_BASE_REF`."""
    root = origin.clone(tmp_path / "clone", "refs/pull/7/merge", depth=1)
    environment = head_of(origin, tmp_path, origin.newer_main)
    del environment["GITHUB_BASE_REF"]

    assert chosen(root, environment) == ("HEAD^1", origin.newer_main)


@pytest.mark.parametrize("depth", [0, 1])
def test_merge_queue(origin: Origin, tmp_path: Path, depth: int) -> None:
    """In a merge queue the baseline is the base commit from the event."""
    root = origin.clone(tmp_path / "clone", "refs/pull/7/merge", depth=depth)
    ref = "refs/heads/gh-readonly-queue/main/pr-7-abc"
    output = event(tmp_path, {"merge_group": {"base_sha": origin.main, "base_ref": "refs/heads/main"}})

    assert chosen(root, {**GITHUB, **output, "GITHUB_REF": ref}) == (origin.main[:12], origin.main)


@pytest.mark.parametrize("depth", [0, 1])
def test_push(origin: Origin, tmp_path: Path, depth: int) -> None:
    """For a push the baseline is the previous commit of the branch."""
    root = origin.clone(tmp_path / "clone", "refs/heads/main", depth=depth)
    output = event(tmp_path, {"before": origin.first, "repository": {"default_branch": "main"}})

    assert chosen(root, {**GITHUB, **output, "GITHUB_REF": "refs/heads/main"}) == (origin.first[:12], origin.first)


def test_merge_queue_without_its_base(origin: Origin, tmp_path: Path) -> None:
    """A group whose base cannot be fetched is not compared with anything else."""
    root = origin.clone(tmp_path / "clone", "refs/pull/7/merge", depth=1)
    queue = event(tmp_path, {"merge_group": {"base_sha": GONE}})
    unread = {**GITHUB, "GITHUB_EVENT_NAME": "merge_group", "GITHUB_REF": "refs/heads/gh-readonly-queue/main/pr-7"}
    name, reason = chosen(root, {**unread, **queue})

    assert name == "missing"
    assert reason.startswith(
        f"the baseline is not available: the base commit is `{GONE[:12]}`; it could not be fetched"
    )
    assert chosen(root, unread)[1].startswith("the baseline is not available: the previous commit is unknown")


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("before", [ZEROES, GONE], ids=["new branch", "force-pushed"])
def test_push_without_a_before(origin: Origin, tmp_path: Path, before: str, depth: int) -> None:
    """If the branch is new or its previous commit missing, the baseline is the merge base with the default branch."""
    root = origin.clone(tmp_path / "clone", "refs/heads/topic", depth=depth)
    output = event(tmp_path, {"before": before, "forced": True, "repository": {"default_branch": "main"}})

    assert chosen(root, {**GITHUB, **output, "GITHUB_REF": "refs/heads/topic"}) == ("origin/main", origin.main)


def test_new_branch_without_network(origin: Origin, tmp_path: Path) -> None:
    """The first push of a branch has an earlier state, so that it is missing if it cannot be fetched."""
    root = origin.clone(tmp_path / "clone", "refs/heads/topic", depth=1)
    git(root, "remote", "set-url", "origin", (tmp_path / "nowhere").as_uri())
    pushed = event(tmp_path, {"before": ZEROES, "repository": {"default_branch": "main"}})
    why = f"`origin` cannot be reached: '{tmp_path / 'nowhere'}' does not appear to be a git repository"

    assert chosen(root, {**GITHUB, **pushed, "GITHUB_REF": "refs/heads/topic"}) == (
        "missing",
        f"the baseline is not available: the branch `origin/main` was not fetched; {why}; set `fetch-depth: 0` for "
        f"`actions/checkout`{SKIP}",
    )


def test_nothing_before(origin: Origin, tmp_path: Path) -> None:
    """The first push of the default branch, a branch without new commits, a new tag and a manual run have no earlier
    state. A previous commit that cannot be fetched is missing.
    """
    root = origin.clone(tmp_path / "clone", "refs/heads/main")
    repository = {"default_branch": "main"}

    def run(ref: str, **content: object) -> tuple[str, str]:
        return chosen(root, {**GITHUB, "GITHUB_REF": ref, **event(tmp_path, {**content, "repository": repository})})

    unknown = ("", f"no baseline: the previous commit is unknown{NONE}")
    assert [run("refs/heads/main", before=ZEROES), run("refs/heads/main"), run("refs/tags/v1", before=ZEROES)] == (
        [unknown] * 3
    )
    assert run("refs/heads/same", before=ZEROES) == (
        "",
        f"no baseline: `origin/main` already contains this commit{NONE}",
    )
    name, reason = run("refs/heads/main", before=GONE)
    assert name == "missing"
    assert reason.endswith(f"not our ref {GONE}; select another commit with `--against REF`{SKIP}")
    assert reason.startswith(
        f"the baseline is not available: the base commit is `{GONE[:12]}`; it could not be fetched"
    )


def test_manual_run_on_a_branch(origin: Origin, tmp_path: Path) -> None:
    """A manual run is compared with the merge base if that was fetched, and fetches nothing."""
    manual = {**GITHUB, "GITHUB_REF": "refs/heads/topic", "GITHUB_EVENT_NAME": "workflow_dispatch"}
    manual |= event(tmp_path, {"inputs": {}, "repository": {"default_branch": "main"}})
    full = origin.clone(tmp_path / "full", "refs/heads/topic")
    shallow = origin.clone(tmp_path / "shallow", "refs/heads/topic", depth=1)

    assert chosen(full, manual) == ("origin/main", origin.main)
    assert chosen(shallow, manual) == ("", f"no baseline: the branch `origin/main` was not fetched{NONE}")


@pytest.mark.parametrize(
    "message",
    [
        *("", "[]", "{", '"x"', "[" * 100_000, '{"before": 7}', '{"before": "--help"}', '{"before": "HEAD"}'),
        *('{"merge_group": "x"}', '{"merge_group": {"base_sha": "HEAD^1"}}', '{"repository": {"default_branch": []}}'),
        '{"before": "main", "repository": {"default_branch": "x\\u0000y"}}',
    ],
)
def test_event_that_cannot_be_believed(origin: Origin, tmp_path: Path, message: str) -> None:
    """A malformed event never causes an error, selects no baseline, and is never passed to git."""
    root = origin.clone(tmp_path / "clone", "refs/heads/topic")

    assert chosen(root, {**GITHUB, **event(tmp_path, message), "GITHUB_REF": "refs/heads/topic"}) == (
        "",
        "no baseline: the previous commit is unknown; set `--against REF`",
    )


def test_commits_and_branches_by_their_form() -> None:
    """Strings that are not valid commits or branch names are rejected."""
    assert [parse_commit(each) for each in ("a" * 40, "a" * 64, "a" * 39, "A" * 40, ZEROES, "a" * 40 + "\n")] == [
        *("a" * 40, "a" * 64, "", "", "", "")
    ]
    assert [parse_branch(each) for each in ("main", "release/1.2", "-x", "a..b", "a@{1}", "", "a/", "x.lock")] == [
        *("main", "release/1.2", "", "", "", "", "", "")
    ]


def test_pull_request_that_is_not_checked_out(origin: Origin, tmp_path: Path) -> None:
    """`pull_request_target` checks out the base, so that a comparison with the base would be meaningless."""
    root = origin.clone(tmp_path / "clone", "refs/heads/main")
    actual = {**GITHUB, "GITHUB_REF": "refs/heads/main", "GITHUB_BASE_REF": "main"}

    assert chosen(root, actual) == ("", "no baseline: `origin/main` already contains this commit; set `--against REF`")


def test_gitlab(origin: Origin, tmp_path: Path) -> None:
    """On GitLab the baseline is the base of a merge request, the previous commit of a push, or the merge base of a new
    branch.
    """
    root = origin.clone(tmp_path / "clone", "refs/heads/topic")
    on_gitlab = {"GITLAB_CI": "true", "CI_COMMIT_REF_NAME": "topic", "CI_DEFAULT_BRANCH": "main"}
    request = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": origin.main, "CI_COMMIT_BEFORE_SHA": ZEROES}

    assert chosen(root, {**on_gitlab, **request}) == (origin.main[:12], origin.main)
    assert chosen(root, {**on_gitlab, "CI_COMMIT_BEFORE_SHA": origin.topic_first})[1] == origin.topic_first
    assert chosen(root, {**on_gitlab, "CI_COMMIT_BEFORE_SHA": ZEROES}) == ("origin/main", origin.main)


@pytest.mark.parametrize("depth", [0, 1])
def test_gitlab_merged_results(origin: Origin, tmp_path: Path, depth: int) -> None:
    """In GitLab's merged results, commits that the target branch gained since are not reported as changes."""
    root = origin.clone(tmp_path / "clone", "refs/pull/7/merge", depth=depth)
    on_gitlab = {"GITLAB_CI": "true", "CI_COMMIT_SHA": origin.merge, "CI_MERGE_REQUEST_DIFF_BASE_SHA": origin.main}
    merged = {**on_gitlab, "CI_MERGE_REQUEST_EVENT_TYPE": "merged_result"}

    assert chosen(root, merged) == ("HEAD^1", origin.newer_main)
    assert chosen(root, {**merged, "CI_MERGE_REQUEST_EVENT_TYPE": "merge_train"}) == ("HEAD^1", origin.newer_main)
    assert chosen(root, {**merged, "CI_MERGE_REQUEST_EVENT_TYPE": "detached"})[1] == origin.main


def test_gitlab_pipelines_without_an_earlier_state(origin: Origin, tmp_path: Path) -> None:
    """Scheduled and manual pipelines and new tags have no commit before; a merge request always has one."""
    root = origin.clone(tmp_path / "clone", "refs/heads/main")
    usual = {"GITLAB_CI": "true", "CI_COMMIT_BEFORE_SHA": ZEROES, "CI_DEFAULT_BRANCH": "main"}
    on_main = {**usual, "CI_COMMIT_REF_NAME": "main"}
    unknown = ("", f"no baseline: the previous commit is unknown{NONE}")
    tag = {**usual, "CI_COMMIT_REF_NAME": "v1", "CI_COMMIT_TAG": "v1", "CI_PIPELINE_SOURCE": "push"}

    assert [chosen(root, {**on_main, "CI_PIPELINE_SOURCE": it}) for it in ("schedule", "web", "push")] == [unknown] * 3
    assert chosen(root, tag) == unknown
    assert chosen(root, {**on_main, "CI_PIPELINE_SOURCE": "merge_request_event"})[0] == "missing"


@pytest.mark.parametrize("is_reachable", [True, False])
def test_gitlab_new_branch_in_a_shallow_clone(origin: Origin, tmp_path: Path, is_reachable: bool) -> None:
    """GitLab fetches 20 commits of one branch; the merge base with the default branch is fetched, or missing."""
    root = origin.clone(tmp_path / "clone", "refs/heads/topic", depth=1)
    if not is_reachable:
        git(root, "remote", "set-url", "origin", (tmp_path / "nowhere").as_uri())
    usual = {"GITLAB_CI": "true", "CI_COMMIT_BEFORE_SHA": ZEROES, "CI_DEFAULT_BRANCH": "main"}
    name, reason = chosen(root, {**usual, "CI_COMMIT_REF_NAME": "topic", "CI_PIPELINE_SOURCE": "push"})

    assert name == ("origin/main" if is_reachable else "missing")
    assert is_reachable or "set the variable `GIT_DEPTH: 0`" in reason


def test_gitlab_merged_without_a_merge(origin: Origin, tmp_path: Path) -> None:
    """A fast-forward merge train has no merge commit, so the baseline is the target commit that GitLab provides."""
    root = origin.clone(tmp_path / "clone", "refs/heads/topic")
    actual = {
        "GITLAB_CI": "true",
        "CI_COMMIT_SHA": origin.topic,
        "CI_MERGE_REQUEST_EVENT_TYPE": "merge_train",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": origin.first,
        "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": origin.main,
    }

    assert chosen(root, actual) == (origin.main[:12], origin.main)


PUSHES = [
    ({**GITHUB, "GITHUB_BASE_REF": "main"}, "`actions/checkout`"),
    ({"GITLAB_CI": "true", "CI_COMMIT_BEFORE_SHA": GONE, "CI_COMMIT_REF_NAME": "main"}, "`GIT_STRATEGY: fetch`"),
]


@pytest.mark.parametrize(("environment", "setting"), PUSHES, ids=["GitHub", "GitLab"])
def test_no_repository(tmp_path: Path, environment: dict[str, str], setting: str) -> None:
    """In an exported archive or a repository without commits, the baseline of a request or push is missing."""
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "--quiet")
    for root, why in ((None, "the project is not in a git repository"), (tmp_path / "empty", "git cannot read")):
        name, reason = chosen(root, environment)

        assert name == "missing"
        assert reason.startswith(f"the baseline is not available: {why}")
        assert setting in reason


def test_no_git(origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git, `actions/checkout` downloads the files without the repository; a scheduled run still passes."""
    monkeypatch.setenv("PATH", str(tmp_path))

    assert chosen(None, {**GITHUB, "GITHUB_BASE_REF": "main"}) == (
        "missing",
        "the baseline is not available: git is not installed; install git before `actions/checkout`, which otherwise "
        f"downloads the files without the repository{SKIP}",
    )
    assert chosen(origin.folder, GITHUB) == ("", f"no baseline: git is not installed{NONE}")


@pytest.mark.parametrize("name", ["HEAD^1", "HEAD~1", "HEAD^", "@~", "HEAD~"])
def test_parent_in_a_clone_of_depth_1(origin: Origin, tmp_path: Path, name: str) -> None:
    """Git cannot resolve a parent in a clone of depth 1; it is fetched by the ID that the commit object contains."""
    root = origin.clone(tmp_path / "clone", "refs/heads/topic", depth=1)
    with pytest.raises(UsageError, match="`--offline` prevents fetching it"):
        choose_baseline(root, name, {}, offline=True)
    baseline = choose_baseline(root, name, {})

    assert baseline.revision is not None
    assert (baseline.revision.name, baseline.revision.commit) == (name, origin.topic_first)


def test_further_ancestors_in_a_clone_of_depth_1(origin: Origin, tmp_path: Path) -> None:
    """Ancestors are fetched step by step, also through a second parent, and a commit can be given by its full ID."""
    root = origin.clone(tmp_path / "clone", "refs/pull/7/merge", depth=1)
    asked = {"HEAD^2~1": origin.topic_first, "HEAD~2": origin.main, origin.first: origin.first}
    actual = {name: choose_baseline(root, name, {}).revision for name in asked}

    assert {name: each.commit if each is not None else "" for name, each in actual.items()} == asked


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (f"HEAD~{MAX_FETCHED_COMMITS + 1}", f"it is more than {MAX_FETCHED_COMMITS} commits back, and was not fetched"),
        ("nowhere^1", "it does not exist in this clone"),
        (GONE, "it could not be fetched from `origin`"),
    ],
)
def test_parent_that_is_not_there(origin: Origin, tmp_path: Path, name: str, why: str) -> None:
    """An explicit baseline that cannot be resolved is a usage error with a hint."""
    root = origin.clone(tmp_path / "clone", "refs/pull/7/merge", depth=1)
    with pytest.raises(UsageError) as raised:
        choose_baseline(root, name, {})

    assert raised.value.message.startswith(f"`--against {name}`: {why.format(origin.merge[:12])}")
    assert "`fetch-depth: 2` for `HEAD^1`" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("name", "why"),
    [("HEAD^3", "`{}` has 2 parents"), ("HEAD^0^9", "`{}` has 2 parents")],
)
def test_parent_that_does_not_exist(origin: Origin, tmp_path: Path, name: str, why: str) -> None:
    """The commit object lists all parents, so there is no hint to fetch one."""
    root = origin.clone(tmp_path / "clone", "refs/pull/7/merge", depth=1)
    with pytest.raises(UsageError) as raised:
        choose_baseline(root, name, {})

    assert (raised.value.message, raised.value.hint) == (f"`--against {name}`: {why.format(origin.merge[:12])}", None)


def test_fetching_does_not_change_history(origin: Origin, tmp_path: Path) -> None:
    """A commit that is missing in a full clone is fetched without making the clone shallow or creating a ref."""
    root = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--single-branch", "--branch=main", origin.url, str(root))
    refs = git(root, "for-each-ref")
    baseline = choose_baseline(root, origin.topic, {})

    assert baseline.revision is not None
    assert baseline.revision.commit == origin.topic
    assert git(root, "rev-parse", "--is-shallow-repository") == "false"
    assert git(root, "for-each-ref") == refs


def test_inside_of_a_hook(origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that git sets for its hooks do not redirect onnxgate to another repository."""
    (tmp_path / "other").mkdir()
    git(tmp_path / "other", "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other" / ".git" / "index"))
    baseline = choose_baseline(origin.folder, "main", {})

    assert baseline.revision is not None
    assert baseline.revision.commit == origin.newer_main


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"GITHUB_REPOSITORY": "example/models", "GITHUB_SHA": "a" * 40}, None),
        ({**GITHUB, "GITHUB_REPOSITORY": "example/models", "GITHUB_SHA": "a" * 40}, ("example/models", "a" * 40)),
        ({**GITHUB, "GITHUB_REPOSITORY": "example/models", "GITHUB_SHA": "HEAD"}, ("example/models", "")),
        (
            {"GITLAB_CI": "true", "CI_PROJECT_PATH": "group/models", "CI_COMMIT_SHA": "b" * 40},
            ("group/models", "b" * 40),
        ),
        (
            {
                "GITLAB_CI": "true",
                "CI_PROJECT_PATH": "group/models",
                "CI_COMMIT_SHA": "b" * 40,
                "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": "c" * 40,
            },
            ("group/models", "c" * 40),
        ),
    ],
)
def test_the_repository_and_commit_of_a_ci_run(
    environment: Mapping[str, str], expected: tuple[str, str] | None
) -> None:
    """They are in the report of a CI run only, so that reports from other places are equal."""
    checkout = ReportedCheckout(repository=expected[0], commit=expected[1]) if expected else None

    assert checkout == read_checkout(environment)


def test_the_commit_of_a_pull_request_is_its_head(tmp_path: Path) -> None:
    """`GITHUB_SHA` is a merge commit that exists only on GitHub's side."""
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"head": {"sha": "c" * 40}}}))
    environment = {
        **GITHUB,
        "GITHUB_REPOSITORY": "example/models",
        "GITHUB_SHA": "a" * 40,
        "GITHUB_EVENT_PATH": str(event),
    }

    assert ReportedCheckout(repository="example/models", commit="c" * 40) == read_checkout(environment)
