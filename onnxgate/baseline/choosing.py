"""Which revision models are held against: the one that was asked for, else what a CI run says was there before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxgate.baseline import commits
from onnxgate.baseline.events import branch_in, commit_in, read_event, said
from onnxgate.baseline.revisions import Revision, resolve

NONE = ("", "none")
"""What `--against` takes for no baseline at all."""
_MERGE_REF = re.compile(r"refs/pull/\d+/merge")
_HEADS = "refs/heads/"
_MERGED = ("merged_result", "merge_train")
ASK = "give `--against REF`"
PARENT = "check out two commits (`fetch-depth: 2`), or give `--against REF`"
HISTORY = "check out the history (`fetch-depth: 0`, on GitLab `GIT_DEPTH: 0`), or give `--against REF`"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A baseline, or why there is none: `remark` is "" where none was asked for, and nobody would expect one."""

    revision: Revision | None = None
    remark: str = ""


def choose(root: Path | None, asked: str | None, environment: Mapping[str, str], *, offline: bool = False) -> Chosen:
    """The revision that `asked` names; where nothing was asked, the one that a run in CI starts from.

    Raises:
        UsageError: what was asked for is no revision, or cannot be had.
    """
    if asked is not None:
        return Chosen() if asked in NONE else Chosen(resolve(root, asked, offline=offline))
    on_github, on_gitlab = environment.get("GITHUB_ACTIONS") == "true", environment.get("GITLAB_CI") == "true"
    if not on_github and not on_gitlab:
        return Chosen()
    head = commits.commit_of(root, "HEAD") if root is not None else ""
    if root is None or not head:
        return _without("this is no git repository with a commit, or git is not here", ASK)
    run = _Run(root, head, environment, offline)
    return run.on_github() if on_github else run.on_gitlab()


@dataclass(frozen=True, slots=True)
class _Run:
    """A run in CI: the commit that it has checked out, and what its system says of it."""

    root: Path
    head: str
    environment: Mapping[str, str]
    offline: bool

    def on_github(self) -> Chosen:
        """The base of a pull request or of a merge queue, else what a push came after."""
        if parent := self._merged_into():
            return self._at(parent, "HEAD^1", PARENT)
        if base := self.environment.get("GITHUB_BASE_REF"):
            return self._since(base)
        event = read_event(self.environment)
        if queue := commit_in(said(event, "merge_group", "base_sha")):
            return self._at(queue, queue[:12], PARENT)
        branch = self.environment.get("GITHUB_REF", "").removeprefix(_HEADS)
        return self._pushed(said(event, "before"), branch, said(event, "repository", "default_branch"))

    def on_gitlab(self) -> Chosen:
        """The base of a merge request, else what a push came after.

        Of merged results and trains `HEAD` is a merge whose first parent is what the request is merged into: what the
        target branch has had since the diff's base is in both.
        """
        if parent := self._merged_on_gitlab():
            return self._at(parent, "HEAD^1", HISTORY)
        if target := commit_in(self.environment.get("CI_MERGE_REQUEST_TARGET_BRANCH_SHA", "")):
            return self._at(target, target[:12], HISTORY)
        if base := commit_in(self.environment.get("CI_MERGE_REQUEST_DIFF_BASE_SHA", "")):
            return self._at(base, base[:12], HISTORY)
        names = ("CI_COMMIT_BEFORE_SHA", "CI_COMMIT_REF_NAME", "CI_DEFAULT_BRANCH")
        before, branch, default = (self.environment.get(name, "") for name in names)
        return self._pushed(before, branch, default)

    def _merged_into(self) -> str:
        """The pull request's base, where what is checked out is the merge that GitHub made of both.

        A pull request's own commits may be merges, too: then `HEAD` is not the commit that the run was started for.
        """
        parents = commits.parents(self.root, self.head)
        is_merge = _MERGE_REF.fullmatch(self.environment.get("GITHUB_REF", "")) and len(parents) == 2
        is_own = self.environment.get("GITHUB_SHA", self.head) == self.head
        return parents[0] if is_merge and is_own else ""

    def _merged_on_gitlab(self) -> str:
        parents = commits.parents(self.root, self.head)
        is_merge = self.environment.get("CI_MERGE_REQUEST_EVENT_TYPE") in _MERGED and len(parents) == 2
        is_own = self.environment.get("CI_COMMIT_SHA", self.head) == self.head
        return parents[0] if is_merge and is_own else ""

    def _at(self, commit: str, name: str, hint: str) -> Chosen:
        why = commits.obtained(self.root, commit, offline=self.offline)
        if why:
            return _without(f"it would be `{commit[:12]}`: {why}", hint)
        return Chosen(Revision(self.root, name, commit, self.offline))

    def _since(self, branch: str) -> Chosen:
        """Where `HEAD` and a branch parted."""
        name = f"origin/{branch}"
        tip = commits.commit_of(self.root, f"refs/remotes/{name}") if branch_in(branch) else ""
        if not tip:
            return _without(f"the branch `{name}` is not here", HISTORY)
        base = commits.commit_in_common(self.root, tip, self.head)
        if not base:
            return _without(f"where this parted from `{name}` is not known: too little of the history is here", HISTORY)
        if base == self.head:
            return _without(f"all of this is in `{name}` already", ASK)
        return Chosen(Revision(self.root, name, base, self.offline))

    def _pushed(self, before: str, branch: str, default: str) -> Chosen:
        """What the branch was before a push; of a new branch, and of one whose commit is gone, where it began."""
        commit = commit_in(before)
        chosen = self._at(commit, commit[:12], HISTORY) if commit else None
        if chosen is not None and (chosen.revision is not None or branch == default):
            return chosen
        if not branch_in(default) or branch == default:
            return _without("nothing tells what was there before", ASK)
        return self._since(default)


def _without(why: str, hint: str) -> Chosen:
    return Chosen(remark=f"no baseline: {why}; {hint}")
