"""Open, update or close the pull request that proposes an upgrade of the lock."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from onnxgate.core.errors import OnnxgateError, UnavailableError
from onnxgate.core.escape import escape_log_line, escape_markdown, markdown_code
from onnxgate.core.report import UpgradeProposal
from onnxgate.github.api import PAGE_SIZE, Api, ApiError, PullRequest, decode_answer
from onnxgate.github.branches import Branches
from onnxgate.github.error_report import describe_error, report_error
from onnxgate.github.proposal import Proposal, check_proposal, read_proposal
from onnxgate.github.runner import annotate, run_url, use_utf8_output, write_outputs
from onnxgate.project.config.loader import CONFIG_NAME, PYPROJECT, has_table, parse_config
from onnxgate.project.config.schema import Config

EXIT_UNDECIDED = 3
BRANCH = "onnxgate/upgrade"
BLOCKED_NOTICE = (
    "> [!WARNING]\n> The branch contains commits that onnxgate did not create, so onnxgate no longer updates this pull "
    "request. To get updates again, close the pull request and delete its branch; the next run opens a new one.\n\n"
)
Result = Literal["created", "updated", "unchanged", "closed", "declined", "blocked", "outdated", "none"]
_MARKER = re.compile(r"<!-- onnxgate-upgrade: ([0-9a-f]{64}) ([0-9a-f]{64}) -->\s*")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outputs of the action."""

    result: Result
    number: str = ""  # of the pull request


def name_branch(lock_path: str) -> str:
    """Return the branch for the upgrades of a lock. Locks in folders have a branch each."""
    folder = str(PurePosixPath(lock_path).parent)
    if folder == ".":
        return BRANCH
    word = re.sub(r"[^0-9A-Za-z]+", "-", folder).strip("-")[:60]
    return f"{BRANCH}-{word}-{hashlib.sha256(folder.encode()).hexdigest()[:6]}"


class UpgradeRequest:
    """The pull request for the upgrades of one lock."""

    def __init__(self, api: Api, environment: Mapping[str, str], proposal: UpgradeProposal) -> None:
        self._api = api
        self._repository = environment["GITHUB_REPOSITORY"]
        self._base = environment.get("GITHUB_REF", "").removeprefix("refs/heads/")
        self._run_url = run_url(environment)
        self._proposal = proposal
        self._branches = Branches(api, self._repository)
        self._branch = name_branch(proposal.lock_path)

    def synchronize(self) -> Outcome:
        """Make the pull request match the proposal.

        Raises:
            ApiError: a request failed.
            UnavailableError: the proposal or the state of the repository is not valid.
        """
        head = self._branches.find(self._base)
        if not head:
            raise UnavailableError(f"branch `{self._base}` does not exist")
        current = self._branches.read_file(head, self._proposal.lock_path).replace(b"\r\n", b"\n")
        if hashlib.sha256(current).hexdigest() != self._proposal.lock_sha256:
            return Outcome("outdated")
        pulls = self._list_pulls()
        opened = next((pull for pull in pulls if pull.state == "open"), None)
        if opened is not None and opened.base.ref != self._base:
            message = f"pull request #{opened.number} merges `{self._branch}` into `{opened.base.ref}`"
            raise UnavailableError(message, hint="close it, or run the workflow on that branch")
        tip = self._branches.find(self._branch)
        is_needed = self._proposal.new_lock not in ("", current.decode("utf-8", "replace"))
        if not is_needed and opened is None:
            return Outcome("none")
        proposal = None
        if is_needed:
            proposal = check_proposal(self._proposal, current.decode("utf-8", "replace"), self._read_config(head))
        if opened is None and proposal and (declined := _find_declined(pulls, proposal, has_branch=bool(tip))):
            return Outcome("declined", str(declined.number))
        if tip and not self._branches.is_ours(tip):
            return self._block(opened)
        if proposal is None:
            return self._close(opened, tip)
        return self._update(proposal, opened, head, tip) if opened else self._open(proposal, head, tip)

    def _read_config(self, head: str) -> Config | None:
        """Return the config next to the lock; None if it does not exist or is not valid."""
        for name in (CONFIG_NAME, PYPROJECT):
            content = self._branches.find_file(head, str(PurePosixPath(self._proposal.lock_path).with_name(name)))
            if content is not None and (name == CONFIG_NAME or has_table(content)):
                return parse_config(content.decode("utf-8", "replace"), name)
        return None

    def _list_pulls(self) -> list[PullRequest]:
        """Return the pull requests of the branch, newest first. A fork with the same owner can have the same branch."""
        owner = self._repository.partition("/")[0]
        path, head = f"/repos/{self._repository}/pulls", f"{owner}:{self._branch}"
        pulls = decode_answer(self._api.get(path, state="all", head=head, per_page=PAGE_SIZE), list[PullRequest])
        return [
            pull
            for pull in pulls
            if pull.head.ref == self._branch and pull.head.repo and pull.head.repo.full_name == self._repository
        ]

    def _open(self, proposal: Proposal, head: str, tip: str) -> Outcome:
        self._push(proposal, head, tip)
        content = {"title": proposal.title, "head": self._branch, "base": self._base, "body": self._describe(proposal)}
        answer = self._api.send("POST", f"/repos/{self._repository}/pulls", content)
        return Outcome("created", str(decode_answer(answer, PullRequest).number))

    def _update(self, proposal: Proposal, opened: PullRequest, head: str, tip: str) -> Outcome:
        is_pushed = bool(tip) and self._branches.read_file(tip, proposal.path) == proposal.lock.encode()
        if is_pushed and _read_marker(opened) == (proposal.releases, proposal.digest):
            return self._unblock(opened)
        if not is_pushed:
            self._push(proposal, head, tip)
        self._edit(opened, title=proposal.title, body=self._describe(proposal))
        return Outcome("updated", str(opened.number))

    def _push(self, proposal: Proposal, head: str, tip: str) -> None:
        commit = self._branches.commit_file(head, proposal.path, proposal.lock, proposal.title)
        self._branches.point(self._branch, commit, exists=bool(tip))

    def _close(self, opened: PullRequest | None, tip: str) -> Outcome:
        """Close a pull request that is no longer needed. Without its marker, it can be proposed again."""
        if opened is None:
            return Outcome("none")
        reason = f"Closed by onnxgate: there is nothing to upgrade on {markdown_code(self._base)}.\n\n"
        self._edit(opened, state="closed", body=reason + _MARKER.sub("", opened.body or ""))
        if tip:
            self._branches.delete(self._branch)
        return Outcome("closed", str(opened.number))

    def _block(self, opened: PullRequest | None) -> Outcome:
        """Leave the commits of others alone, and show it in the pull request."""
        if opened is None:
            return Outcome("blocked")
        if not _is_blocked(opened):
            self._edit(opened, body=BLOCKED_NOTICE + _read_body(opened))
        return Outcome("blocked", str(opened.number))

    def _unblock(self, opened: PullRequest) -> Outcome:
        """Remove the notice from a pull request that is up to date, after the commits of others were removed."""
        if not _is_blocked(opened):
            return Outcome("unchanged", str(opened.number))
        self._edit(opened, body=_read_body(opened).replace(BLOCKED_NOTICE, ""))
        return Outcome("updated", str(opened.number))

    def _edit(self, pull: PullRequest, **changes: str) -> None:
        self._api.send("PATCH", f"/repos/{self._repository}/pulls/{pull.number}", changes)

    def _describe(self, proposal: Proposal) -> str:
        marker = f"<!-- onnxgate-upgrade: {proposal.releases} {proposal.digest} -->"
        footer = (
            "onnxgate updates this pull request if the upgrade changes. If you close it, the same releases are not "
            "proposed again, even with newer versions of other packages."
        )
        link = f" [Log of the preview]({self._run_url})" if self._run_url else ""
        return f"{marker}\n{proposal.description.rstrip()}\n\n---\n{footer}{link}\n"

    def explain(self, outcome: Outcome) -> str:
        """Return a sentence about the outcome."""
        pull = f"pull request #{outcome.number}"
        lock, branch = f"`{self._proposal.lock_path}`", f"`{self._branch}`"
        match outcome.result:
            case "created":
                return f"opened {pull}"
            case "updated":
                return f"updated {pull}"
            case "unchanged":
                return f"{pull} is up to date"
            case "closed":
                return f"closed {pull}, because the upgrade is no longer needed"
            case "declined":
                return f"{pull} proposed these releases and was closed, so they are not proposed again"
            case "blocked":
                fix = f"close {pull} and delete the branch" if outcome.number else "delete or rename the branch"
                return f"branch {branch} contains commits that onnxgate did not create; to get updates again, {fix}"
            case "outdated":
                return f"{lock} on `{self._base}` changed after the preview; run the workflow again"
            case "none":
                return f"nothing to propose: {lock} has the newest releases that the config allows"


def _find_declined(pulls: Iterable[PullRequest], proposal: Proposal, *, has_branch: bool) -> PullRequest | None:
    """Return the pull request of these releases that a person closed.

    If the branch had commits of others and was deleted, the person followed the notice, and declined nothing.
    """
    declined = (pull for pull in pulls if pull.merged_at is None and _read_marker(pull)[0] == proposal.releases)
    return next((pull for pull in declined if has_branch or not _is_blocked(pull)), None)


def _read_body(pull: PullRequest) -> str:
    """Return the description; a person who edits it changes its line endings."""
    return (pull.body or "").replace("\r\n", "\n")


def _is_blocked(pull: PullRequest) -> bool:
    """Return whether the description states that the branch contains commits of others."""
    return BLOCKED_NOTICE in _read_body(pull)


def _read_marker(pull: PullRequest) -> tuple[str, str]:
    """Return the digests of the releases and of the proposal that a pull request shows."""
    found = _MARKER.search(pull.body or "")
    return (found[1], found[2]) if found else ("", "")


def run(environment: Mapping[str, str]) -> Outcome:
    """Make the pull request match the proposal, and report what was done.

    Raises:
        OnnxgateError: the pull request could not be opened, updated or closed.
    """
    token = environment.get("ONNXGATE_INPUT_TOKEN", "").strip()
    if not token:
        raise UnavailableError("the input `token` is empty")
    if not environment.get("GITHUB_REF", "").startswith("refs/heads/"):
        raise UnavailableError("the workflow does not run on a branch", hint="run it on a schedule or by hand")
    proposal = read_proposal(environment.get("ONNXGATE_INPUT_PROPOSAL", ""))
    try:
        api = Api(environment.get("GITHUB_API_URL") or "https://api.github.com", token)
        request = UpgradeRequest(api, environment, proposal)
        outcome = request.synchronize()
    except ApiError as error:
        raise UnavailableError(f"the pull request was not changed: {error.message}", hint=_suggest(error)) from error
    sentence = request.explain(outcome)
    if outcome.result in ("blocked", "outdated"):
        annotate("warning" if outcome.result == "blocked" else "notice", sentence)
    else:
        print(escape_log_line(sentence), flush=True)
    if summary := environment.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"{escape_markdown(sentence)}\n")
    return outcome


def _suggest(error: ApiError) -> str:
    if "not permitted to create" in error.message:
        return "allow GitHub Actions to create pull requests in Settings > Actions > General, or set the input `token`"
    if error.status in (401, 403, 404):
        return "the job needs `contents: write` and `pull-requests: write` in `permissions`"
    return ""


def main() -> None:
    """Run the step of the action `pull-request`. Errors are annotated and fail the step."""
    use_utf8_output()
    try:
        outcome = run(os.environ)
    except Exception as error:  # noqa: BLE001 - reported as a bug
        status = error.exit_code if isinstance(error, OnnxgateError) else EXIT_UNDECIDED
        report_error(describe_error(error), status, os.environ)
        sys.exit(status)
    write_outputs(Path(os.environ["GITHUB_OUTPUT"]), outcome)


if __name__ == "__main__":
    main()
