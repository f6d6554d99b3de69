"""Choose the baseline: the requested revision, or the base commit of a CI run."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from onnxgate.core.report import ReportedCheckout
from onnxgate.project.git import repository
from onnxgate.project.git.repository import is_commit_id
from onnxgate.project.git.revisions import Revision, resolve_revision

NO_BASELINE = ("", "none")
"""Values of `--against` that disable the baseline."""
_MERGE_REF = re.compile(r"refs/pull/\d+/merge")
_BRANCH_PREFIX = "refs/heads/"
_MERGED_EVENT_TYPES = ("merged_result", "merge_train")
_AGAINST_HINT = "set `--against REF`"
_OTHER_HINT = "select another commit with `--against REF`"
_NONE_HINT = "to check without a baseline, use `--against none` (action input `against: none`)"


class BaselineChoice(msgspec.Struct, frozen=True):
    """A baseline, or the reason why there is none.

    `missing` is set if there is an earlier state, but it is not available; `hint` then names the setting that helps.
    `remark` is set if a CI run has no earlier state. Both are "" if no baseline was requested.
    """

    revision: Revision | None = None
    remark: str = ""
    missing: str = ""
    hint: str = ""


def choose_baseline(
    root: Path | None, requested: str | None, environment: Mapping[str, str], *, offline: bool = False
) -> BaselineChoice:
    """Return the requested revision, or the base commit of a CI run if none was requested.

    Raises:
        UsageError: the requested revision does not exist, or cannot be fetched.
    """
    if requested in NO_BASELINE:
        return BaselineChoice()
    if requested is not None:
        return BaselineChoice(resolve_revision(root, requested, offline=offline))
    if environment.get("GITHUB_ACTIONS") == "true":
        run = _read_github_run(environment)
    elif environment.get("GITLAB_CI") == "true":
        run = _read_gitlab_run(environment)
    else:
        return BaselineChoice()
    if shutil.which("git") is None:
        return run.without("git is not installed", run.hints.git)
    if root is None:
        return run.without("the project is not in a git repository", run.hints.checkout)
    head = repository.find_commit(root, "HEAD")
    if not head:
        return run.without("git cannot read the commit that is checked out", run.hints.checkout)
    return _BaselineSearch(root, head, run, offline).find()


class _Hints(msgspec.Struct, frozen=True):
    """Settings of a CI system that make a baseline available."""

    parent: str  # for the first parent of `HEAD`
    history: str
    checkout: str
    git: str


_GITHUB_HINTS = _Hints(
    parent="set `fetch-depth: 2` for `actions/checkout`",
    history="set `fetch-depth: 0` for `actions/checkout`",
    checkout="check out the repository with `actions/checkout`",
    git="install git before `actions/checkout`, which otherwise downloads the files without the repository",
)
_GITLAB_HINTS = _Hints(
    parent="set the variable `GIT_DEPTH: 0`",
    history="set the variable `GIT_DEPTH: 0`",
    checkout="set the variable `GIT_STRATEGY: fetch`",
    git="use an image that contains git",
)


class _CiRun(msgspec.Struct, frozen=True):
    """The earlier state of a CI run, according to the variables of the CI system and its event."""

    hints: _Hints
    is_expected: bool = False  # the run has an earlier state, so that a missing baseline must not pass
    merge: str | None = None  # the merge that the CI system created ("" if unknown); None if it created none
    request: str = ""  # the newest commit of the pull request
    commit: str = ""  # the earlier state itself
    branch: str = ""  # the branch that `HEAD` started from
    tip: str = ""  # the newest commit of that branch, according to the event

    def without(self, why: str, hint: str) -> BaselineChoice:
        """Return that there is no baseline: a remark, unless the run has an earlier state."""
        if self.is_expected:
            return BaselineChoice(missing=f"the baseline is not available: {why}", hint=f"{hint}; {_NONE_HINT}")
        return BaselineChoice(remark=f"no baseline: {why}; {_AGAINST_HINT}")


def _read_github_run(environment: Mapping[str, str]) -> _CiRun:
    """Return the base of a pull request or of a merge queue, or the commit before a push.

    Runs that were started manually, by a schedule, for a new tag, or for the first push of the default branch have no
    earlier state. On other branches, the merge base with the default branch is used for these runs if it was fetched.
    """
    event, ref = read_event(environment), environment.get("GITHUB_REF", "")
    tip = parse_commit(read_event_text(event, "pull_request", "base", "sha"))
    base = environment.get("GITHUB_BASE_REF") or read_event_text(event, "pull_request", "base", "ref")
    is_merge = _MERGE_REF.fullmatch(ref) is not None
    if is_merge or base or tip:
        # A merged pull request runs on its target branch, which contains `HEAD`; only the event names the base.
        is_merged = _read_event_value(event, "pull_request", "merged") is True
        merge = environment.get("GITHUB_SHA", "") if is_merge or is_merged else None
        request = parse_commit(read_event_text(event, "pull_request", "head", "sha"))
        return _CiRun(_GITHUB_HINTS, True, merge, request, branch="" if is_merged else base, tip=tip)
    queue = parse_commit(read_event_text(event, "merge_group", "base_sha"))
    if queue or environment.get("GITHUB_EVENT_NAME") == "merge_group":
        return _CiRun(_GITHUB_HINTS, True, commit=queue)
    before = read_event_text(event, "before")
    branch = ref.removeprefix(_BRANCH_PREFIX) if ref.startswith(_BRANCH_PREFIX) else ""
    default = read_event_text(event, "repository", "default_branch")
    return _read_push(_GITHUB_HINTS, before, branch, default, is_push=is_null_commit(before))


def _read_gitlab_run(environment: Mapping[str, str]) -> _CiRun:
    """Return the base of a merge request, or the commit before a push.

    For merged results and merge trains, `HEAD` is a merge whose first parent is the newest commit of the target
    branch, which may be newer than the base of the diff. Pipelines that were started manually or by a schedule have
    no commit before.
    """
    source, event_type = environment.get("CI_PIPELINE_SOURCE"), environment.get("CI_MERGE_REQUEST_EVENT_TYPE", "")
    names = ("CI_MERGE_REQUEST_TARGET_BRANCH_SHA", "CI_MERGE_REQUEST_DIFF_BASE_SHA")
    commits = [commit for name in names if (commit := parse_commit(environment.get(name, "")))]
    if commits or event_type or source == "merge_request_event":
        merge = environment.get("CI_COMMIT_SHA", "") if event_type in _MERGED_EVENT_TYPES else None
        return _CiRun(_GITLAB_HINTS, True, merge, commit=next(iter(commits), ""))
    branch = "" if environment.get("CI_COMMIT_TAG") else environment.get("CI_COMMIT_REF_NAME", "")
    before, default = environment.get("CI_COMMIT_BEFORE_SHA", ""), environment.get("CI_DEFAULT_BRANCH", "")
    return _read_push(_GITLAB_HINTS, before, branch, default, is_push=source == "push")


def _read_push(hints: _Hints, before: str, branch: str, default: str, *, is_push: bool) -> _CiRun:
    """Return the commit before a push; for a new or rewritten branch, where the branch left the default branch."""
    commit = parse_commit(before)
    start = default if branch and branch != default and parse_branch(default) else ""
    return _CiRun(hints, bool(commit or (is_push and start)), commit=commit, branch=start)


class _BaselineSearch(msgspec.Struct, frozen=True):
    """The search for the baseline of a CI run in the repository, which may be a shallow clone."""

    root: Path
    head: str
    run: _CiRun
    offline: bool

    def find(self) -> BaselineChoice:
        """Return the parent of the CI system's merge, the commit before, or the merge base with the target branch."""
        run = self.run
        if run.merge is not None and (parent := self._first_parent(run.merge)):
            return self._at(parent, "HEAD^1", run.hints.parent)
        if run.commit:
            chosen = self._at(run.commit, run.commit[:12], run.hints.history)
            if chosen.revision is not None or not run.branch:
                return chosen
        if run.branch or run.tip:
            return self._since_merge_base()
        return run.without("the previous commit is unknown", run.hints.history)

    def _first_parent(self, merge: str) -> str:
        """Return the first parent of the merge that the CI system created, or "" if `HEAD` is not that merge.

        If `HEAD` is not the commit that the run was started for, it may be a merge in the request itself, or a newer
        merge of the request, which is checked out by the name of its ref.
        """
        parents = repository.read_parents(self.root, self.head)
        is_own = merge in ("", self.head) or parents[1:] == (self.run.request,)
        return parents[0] if len(parents) == 2 and is_own else ""

    def _at(self, commit: str, name: str, hint: str) -> BaselineChoice:
        if why := repository.fetch_commit(self.root, commit, offline=self.offline):
            if repository.REMOVED_COMMIT in why:  # by a forced push: more history does not contain it
                hint = _OTHER_HINT
            return self.run.without(f"the base commit is `{commit[:12]}`; {why}", hint)
        return BaselineChoice(Revision(self.root, name, commit, self.offline))

    def _since_merge_base(self) -> BaselineChoice:
        """Return the merge base of `HEAD` and the target branch.

        The newest commit of the target branch is never used instead: changes that the target branch gained since would
        appear, reversed, as changes of the request.
        """
        run, hint = self.run, self.run.hints.history
        name, tip, why = self._find_tip()
        if not tip:
            return run.without(why, hint)
        base, why = self._find_merge_base(tip)
        if not base and not repository.is_shallow(self.root) and repository.has_commit(self.root, tip):
            unrelated = f"no common history with `{name or tip[:12]}`"
            if run.merge is None and not run.tip:  # a branch that was started from nothing
                return BaselineChoice(remark=f"no baseline: {unrelated}; {_AGAINST_HINT}")
            return run.without(unrelated, _OTHER_HINT)
        if not base:
            return run.without(f"the merge base with `{name or tip[:12]}` is unknown: {why}", hint)
        if base == self.head:  # nothing to compare, even if the run is for a request
            contained = f"`{name or tip[:12]}` already contains this commit"
            return BaselineChoice(remark=f"no baseline: {contained}; {_AGAINST_HINT}")
        return BaselineChoice(Revision(self.root, name or base[:12], base, self.offline))

    def _find_tip(self) -> tuple[str, str, str]:
        """Return the name of the target branch and its newest commit, or why that is unknown.

        The name is "" for a commit from the event, which the branch may have left behind.
        """
        run, name = self.run, f"origin/{self.run.branch}"
        has_branch = bool(parse_branch(run.branch))
        if has_branch and (tip := repository.find_commit(self.root, f"refs/remotes/{name}")):
            return name, tip, ""
        if run.tip:
            return "", run.tip, ""
        if not has_branch or not run.is_expected or self.offline:
            return name, "", f"the branch `{name}` was not fetched"
        tip, why = repository.find_remote_branch(self.root, run.branch)
        return name, tip, f"the branch `{name}` was not fetched; {why}"

    def _find_merge_base(self, tip: str) -> tuple[str, str]:
        """Return the merge base of `HEAD` and a commit, or why it is unknown."""
        if base := repository.find_merge_base(self.root, tip, self.head):
            return base, ""
        if not self.run.is_expected:
            return "", repository.NOT_IN_HISTORY
        return repository.fetch_merge_base(self.root, tip, self.head, offline=self.offline)


MAX_EVENT_BYTES = 32 * 1024 * 1024
_INVALID_BRANCH_CHARACTERS = frozenset(" ~^:?*[\\")


def read_event(environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the event of a GitHub Actions run; empty if there is none or it is invalid."""
    path = Path(environment.get("GITHUB_EVENT_PATH") or "/dev/null")
    try:
        if not path.is_file() or path.stat().st_size > MAX_EVENT_BYTES:
            return {}
        event = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def read_event_text(event: Mapping[str, Any], *keys: str) -> str:
    """Return the text at a path of keys; "" if it is missing."""
    value = _read_event_value(event, *keys)
    return value if isinstance(value, str) else ""


def _read_event_value(event: Mapping[str, Any], *keys: str) -> object:
    value: object = event
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def parse_commit(text: str) -> str:
    """Return the text if it is a full commit id; "" for anything else, and for the zeros that mean no commit."""
    return text if is_commit_id(text) and not is_null_commit(text) else ""


def is_null_commit(text: str) -> bool:
    """Return whether the text is the commit id of zeros, which stands for no commit."""
    return is_commit_id(text) and not text.strip("0")


def parse_branch(text: str) -> str:
    """Return the text if it is a valid branch name; "" if git could interpret it as anything else."""
    has_invalid_character = any(char in _INVALID_BRANCH_CHARACTERS or ord(char) < 32 or char == "\x7f" for char in text)
    has_invalid_part = any(not part or part.startswith((".", "-")) for part in text.split("/"))
    is_expression = "@{" in text or ".." in text or text.endswith((".lock", "."))
    return "" if has_invalid_character or has_invalid_part or is_expression else text


def read_checkout(environment: Mapping[str, str]) -> ReportedCheckout | None:
    """Return the repository and the commit of a CI run, for the report; None outside CI.

    In a pull request, it is the last commit of the pull request, not the merge commit that the CI system created.
    """
    if environment.get("GITHUB_ACTIONS") == "true":
        head = read_event_text(read_event(environment), "pull_request", "head", "sha")
        names = ("GITHUB_REPOSITORY", "GITHUB_SHA")
    elif environment.get("GITLAB_CI") == "true":
        head = environment.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", "")
        names = ("CI_PROJECT_PATH", "CI_COMMIT_SHA")
    else:
        return None
    repository_name, started_for = (environment.get(name, "") for name in names)
    return ReportedCheckout(repository=repository_name, commit=parse_commit(head) or parse_commit(started_for))
