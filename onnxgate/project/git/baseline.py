"""Choose the baseline: the requested revision, or the base commit of a CI run."""

from __future__ import annotations

import json
import re
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
AGAINST_HINT = "set `--against REF`"
PARENT_HINT = "fetch two commits (`fetch-depth: 2`), or set `--against REF`"
HISTORY_HINT = "fetch the full history (`fetch-depth: 0`, on GitLab `GIT_DEPTH: 0`), or set `--against REF`"


class BaselineChoice(msgspec.Struct, frozen=True):
    """A baseline, or the reason why there is none; `remark` is "" if no baseline was requested or expected."""

    revision: Revision | None = None
    remark: str = ""


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
    on_github, on_gitlab = environment.get("GITHUB_ACTIONS") == "true", environment.get("GITLAB_CI") == "true"
    if not on_github and not on_gitlab:
        return BaselineChoice()
    head = repository.find_commit(root, "HEAD") if root is not None else ""
    if root is None or not head:
        return _no_baseline(
            "git is not installed, the project is not in a git repository, or the repository has no commits",
            AGAINST_HINT,
        )
    run = _CiRun(root, head, environment, offline)
    return run.on_github() if on_github else run.on_gitlab()


class _CiRun(msgspec.Struct, frozen=True):
    """A run in CI: the commit that is checked out, and the variables of the CI system."""

    root: Path
    head: str
    environment: Mapping[str, str]
    offline: bool

    def on_github(self) -> BaselineChoice:
        """Return the base of a pull request or of a merge queue, or the commit before a push."""
        is_merge = _MERGE_REF.fullmatch(self.environment.get("GITHUB_REF", ""))
        if is_merge and (parent := self._first_parent("GITHUB_SHA")):
            return self._at(parent, "HEAD^1", PARENT_HINT)
        if base := self.environment.get("GITHUB_BASE_REF"):
            return self._since(base)
        event = read_event(self.environment)
        if queue := parse_commit(read_event_text(event, "merge_group", "base_sha")):
            return self._at(queue, queue[:12], PARENT_HINT)
        branch = self.environment.get("GITHUB_REF", "").removeprefix(_BRANCH_PREFIX)
        return self._pushed(
            read_event_text(event, "before"), branch, read_event_text(event, "repository", "default_branch")
        )

    def on_gitlab(self) -> BaselineChoice:
        """Return the base of a merge request, or the commit before a push.

        For merged results and merge trains, `HEAD` is a merge whose first parent is the newest commit of the target
        branch, which may be newer than the base of the diff.
        """
        is_merge = self.environment.get("CI_MERGE_REQUEST_EVENT_TYPE") in _MERGED_EVENT_TYPES
        if is_merge and (parent := self._first_parent("CI_COMMIT_SHA")):
            return self._at(parent, "HEAD^1", HISTORY_HINT)
        if target := parse_commit(self.environment.get("CI_MERGE_REQUEST_TARGET_BRANCH_SHA", "")):
            return self._at(target, target[:12], HISTORY_HINT)
        if base := parse_commit(self.environment.get("CI_MERGE_REQUEST_DIFF_BASE_SHA", "")):
            return self._at(base, base[:12], HISTORY_HINT)
        names = ("CI_COMMIT_BEFORE_SHA", "CI_COMMIT_REF_NAME", "CI_DEFAULT_BRANCH")
        before, branch, default = (self.environment.get(name, "") for name in names)
        return self._pushed(before, branch, default)

    def _first_parent(self, started_for: str) -> str:
        """Return the first parent of the merge that the CI system created, or "" if `HEAD` is not that merge.

        If `HEAD` is not the commit that the run was started for, it may be a merge in the request itself.
        """
        parents = repository.read_parents(self.root, self.head)
        is_own = self.environment.get(started_for, self.head) == self.head
        return parents[0] if len(parents) == 2 and is_own else ""

    def _at(self, commit: str, name: str, hint: str) -> BaselineChoice:
        if why := repository.fetch_commit(self.root, commit, offline=self.offline):
            return _no_baseline(f"the base commit is `{commit[:12]}`; {why}", hint)
        return BaselineChoice(Revision(self.root, name, commit, self.offline))

    def _since(self, branch: str) -> BaselineChoice:
        """Return the merge base of `HEAD` and a branch."""
        name = f"origin/{branch}"
        tip = repository.find_commit(self.root, f"refs/remotes/{name}") if parse_branch(branch) else ""
        if not tip:
            return _no_baseline(f"the branch `{name}` was not fetched", HISTORY_HINT)
        base = repository.find_merge_base(self.root, tip, self.head)
        if not base:
            why = f"the merge base with `{name}` is not in the fetched history"
            return _no_baseline(why, HISTORY_HINT)
        if base == self.head:
            return _no_baseline(f"`{name}` already contains this commit", AGAINST_HINT)
        return BaselineChoice(Revision(self.root, name, base, self.offline))

    def _pushed(self, before: str, branch: str, default: str) -> BaselineChoice:
        """Return a branch's commit before a push. For a new or rewritten branch, use the merge base with `default`."""
        commit = parse_commit(before)
        chosen = self._at(commit, commit[:12], HISTORY_HINT) if commit else None
        if chosen is not None and (chosen.revision is not None or branch == default):
            return chosen
        if not parse_branch(default) or branch == default:
            return _no_baseline("the previous commit is unknown", AGAINST_HINT)
        return self._since(default)


def _no_baseline(why: str, hint: str) -> BaselineChoice:
    return BaselineChoice(remark=f"no baseline: {why}; {hint}")


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
    value: object = event
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def parse_commit(text: str) -> str:
    """Return the text if it is a full commit id; "" for anything else, and for the zeros that mean no commit."""
    return text if is_commit_id(text) and text.strip("0") else ""


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
