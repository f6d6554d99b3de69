"""Post the comment on a pull request."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from onnxgate.core.escape import escape_log_line, markdown_code
from onnxgate.core.report import VERSION, Report
from onnxgate.formats.markdown.pull_request_comment import format_comment
from onnxgate.github.action import is_silent
from onnxgate.github.api import (
    PAGE_SIZE,
    Api,
    ApiError,
    Event,
    PullRequest,
    WorkflowRun,
    decode_answer,
    read_event,
)
from onnxgate.github.runner import annotate, read_artifact, run_url, use_utf8_output
from onnxgate.github.step import COMMENT_MODES, CommentMode


@dataclass(frozen=True, slots=True)
class PendingComment:
    """A comment that will be posted, without the hidden marker that identifies it."""

    number: int
    body: str
    silent: bool  # update an existing comment, but do not create one
    is_from_fork: bool
    subject: str = ""  # distinguishes the comments of several projects in one job


class NoCommentError(Exception):
    """Raised if no comment is posted. The reason is reported as an annotation with this `level`."""

    def __init__(self, reason: str, *, hint: str = "", level: str = "warning") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.level = level


MAX_COMMENT_LENGTH = 65_536
"""Maximum length of a comment in characters. Source: actions/dependency-review-action, comment-pr.ts."""
MAX_PAGES = 30
BOT = "Bot"

UpsertResult = Literal["created", "updated", "unchanged", "silent"]


class User(msgspec.Struct, frozen=True):
    """The author of a comment."""

    login: str = ""
    type: str = ""


class Comment(msgspec.Struct, frozen=True):
    """A comment as the GitHub API returns it."""

    id: int
    body: str | None = None
    user: User | None = None


def comment_marker(*words: str) -> str:
    """Return the HTML comment that identifies the comments of one workflow and job; `words` are escaped in it."""
    quoted = (urllib.parse.quote(word, safe=" ./").replace("--", "-%2D") for word in words if word)
    return f"<!-- onnxgate:{':'.join(quoted)} -->"


def upsert_comment(api: Api, repository: str, number: int, mark: str, body: str, *, silent: bool) -> UpsertResult:
    """Create or update the comment on a pull request. With `silent`, only an existing comment is updated.

    Raises:
        ApiError: a request failed.
    """
    comments = f"/repos/{repository}/issues"
    existing = next(find_own_comments(api, f"{comments}/{number}/comments", mark), None)
    if existing is None:
        if silent:
            return "silent"
        api.send("POST", f"{comments}/{number}/comments", {"body": body})
        return "created"
    if (existing.body or "").replace("\r\n", "\n").strip() == body.replace("\r\n", "\n").strip():
        return "unchanged"
    api.send("PATCH", f"{comments}/comments/{existing.id}", {"body": body})
    return "updated"


def find_own_comments(api: Api, path: str, mark: str) -> Iterator[Comment]:
    """Yield onnxgate's comments, oldest first. Their author is checked, since anyone can write the marker."""
    me: str | None = None
    for comment in list_comments(api, path):
        if (comment.body or "").startswith(mark):
            author = comment.user or User()
            if author.type != BOT and me is None:
                try:
                    me = decode_answer(api.get("/user"), User).login
                except ApiError:
                    me = ""  # tokens of apps, such as workflow tokens, have no user
            if author.type == BOT or (me and author.login == me):
                yield comment


def list_comments(api: Api, path: str) -> Iterator[Comment]:
    """Yield all comments of a pull request."""
    for page in range(1, MAX_PAGES + 1):
        comments = decode_answer(api.get(path, per_page=PAGE_SIZE, page=page), list[Comment])
        yield from comments
        if len(comments) < PAGE_SIZE:
            return


def _read_mode(environment: Mapping[str, str]) -> CommentMode:
    """Return the value of the input `comment`.

    Raises:
        NoCommentError: the value is invalid.
    """
    value = environment.get("ONNXGATE_INPUT_COMMENT", "").strip() or "always"
    for mode in COMMENT_MODES:
        if mode == value:
            return mode
    raise NoCommentError(f"no comment was posted: input `comment`: unknown value `{value}`")


LARGEST_REPORT_BYTES = 16 * 2**20
_SHA = re.compile(r"[0-9a-f]{40}")


def read_fork_comment(event: Event, environment: Mapping[str, str], api: Api) -> PendingComment:
    """Return a comment for the pull request of the triggering run, with the report of that run.

    Raises:
        NoCommentError: there is no such pull request, or no valid report.
    """
    run = event.workflow_run
    if run is None or run.event != "pull_request" or not _SHA.fullmatch(run.head_sha):
        raise NoCommentError(
            "no comment was posted: the triggering run does not belong to a pull request", level="notice"
        )
    report = read_report(environment.get("ONNXGATE_INPUT_REPORT", ""))
    pull_request = find_pull_request(run, environment.get("GITHUB_REPOSITORY", ""), api)
    agrees = (report.verdict == "pass") == (run.conclusion == "success")
    url = run.html_url if re.fullmatch(r"https?://[\w.:-]+/[\w./-]+", run.html_url) else ""
    named = f"[a run]({url})" if url else "a run"
    conclusion = markdown_code(run.conclusion or "unknown")
    origin = f"This report was written by {named} that executed the pull request's own code (conclusion: {conclusion})."
    doubt = (
        "" if agrees else "\n\n**The report contradicts the conclusion of the run. Open the run to see its result.**"
    )
    return PendingComment(
        pull_request.number,
        f"{format_comment(report)}\n\n---\n{origin}{doubt}\n",
        silent=agrees and is_silent(_read_mode(environment), report),
        is_from_fork=pull_request.is_from_fork,
    )


def find_pull_request(run: WorkflowRun, repository: str, api: Api) -> PullRequest:
    """Return the only open pull request whose head is the checked commit. No other data of the run is trusted.

    Raises:
        NoCommentError: there is no such pull request, or there are several.
    """
    home = run.head_repository
    owner = home.full_name.partition("/")[0] if home is not None else ""
    if not owner or not run.head_branch:
        raise NoCommentError("no comment was posted: the event does not name the branch of the pull request")
    try:
        head = f"{owner}:{run.head_branch}"
        answer = api.get(f"/repos/{repository}/pulls", state="open", head=head, per_page=PAGE_SIZE)
        listed = decode_answer(answer, list[PullRequest])
    except ApiError as error:
        raise NoCommentError(f"no comment was posted: {error.message}") from error
    candidates = [pull for pull in listed if pull.head.sha == run.head_sha and pull.head.repo == home]
    if len(candidates) != 1:
        found = f"{len(candidates)} open pull requests have" if candidates else "no open pull request has"
        raise NoCommentError(
            f"no comment was posted: {found} the checked commit {run.head_sha[:12]} as head", level="notice"
        )
    return candidates[0]


def read_report(path: str) -> Report:
    """Read the untrusted report of another run.

    Raises:
        NoCommentError: the file is not a regular file, is too large, or is not a report of this version.
    """
    try:
        content = read_artifact(path, LARGEST_REPORT_BYTES)
        report = msgspec.json.decode(content, type=Report)
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise NoCommentError(f"no comment was posted: the input `report` is not an onnxgate report: {error}") from error
    if report.version != VERSION:
        raise NoCommentError("no comment was posted: the report was written by a different version of onnxgate")
    return report


FORK_GUIDE_URL = (
    "https://github.com/onnxgate/onnxgate/blob/main/docs/guides/forks.md#comments-on-pull-requests-from-forks"
)


def post_comment(environment: Mapping[str, str]) -> str:
    """Post the comment on the pull request. Return a line for the log.

    Raises:
        NoCommentError: no comment was posted.
    """
    event = read_event(environment)
    token = environment.get("ONNXGATE_INPUT_TOKEN", "").strip()
    if not token:
        raise NoCommentError("no comment was posted: the input `token` is empty")
    try:
        api = Api(environment.get("GITHUB_API_URL") or "https://api.github.com", token)
    except ApiError as error:
        raise NoCommentError(f"no comment was posted: {error.message}") from error
    post = read_fork_comment(event, environment, api) if event.workflow_run else _read_own_comment(event, environment)
    mark = comment_marker(*(environment.get(name, "") for name in ("GITHUB_WORKFLOW", "GITHUB_JOB")), post.subject)
    body = f"{mark}\n{post.body}"
    if len(body) > MAX_COMMENT_LENGTH:
        notice = f"The report is too long for a comment. See the summary of [the run]({run_url(environment)})."
        body = f"{mark}\n## onnxgate\n\n{notice}"
    try:
        result = upsert_comment(api, environment["GITHUB_REPOSITORY"], post.number, mark, body, silent=post.silent)
    except ApiError as error:
        raise _explain_refusal(error, post) from error
    reasons = {"silent": "no comment was posted: nothing to report", "unchanged": "the comment is up to date"}
    return reasons.get(result, f"the comment was {result}")


def _read_own_comment(event: Event, environment: Mapping[str, str]) -> PendingComment:
    """Return the comment that the previous step of the action wrote."""
    if event.pull_request is None:
        name = environment.get("GITHUB_EVENT_NAME", "")
        raise NoCommentError(
            f"no comment was posted: the event `{name}` does not belong to a pull request", level="notice"
        )
    try:
        body = Path(environment["ONNXGATE_ACTION_COMMENT"]).read_text(encoding="utf-8", errors="replace")
    except (KeyError, OSError) as error:
        raise NoCommentError("no comment was posted: the previous step did not write the comment") from error
    url = run_url(environment)
    return PendingComment(
        event.pull_request.number,
        f"{body.rstrip()}\n\n---\n[Summary and log of this run]({url})\n" if url else body,
        silent=environment.get("ONNXGATE_ACTION_SILENT") == "true",
        is_from_fork=event.pull_request.is_from_fork,
        subject=environment.get("ONNXGATE_ACTION_SUBJECT", ""),
    )


def _explain_refusal(error: ApiError, post: PendingComment) -> NoCommentError:
    """Return an error about a rejected comment, with a hint on how to fix it."""
    reason = f"no comment was posted: {error.message}"
    if error.status not in (401, 403, 404):
        return NoCommentError(
            reason, hint="the verdict is not affected; the next run will try to post the comment again"
        )
    if post.is_from_fork:
        return NoCommentError(
            f"{reason}; pull requests from forks have a read-only token",
            hint=f"post the comment from a second workflow: {FORK_GUIDE_URL}",
        )
    return NoCommentError(
        f"{reason}; the token cannot write comments", hint="add `pull-requests: write` to the job's `permissions`"
    )


def main() -> None:
    """Post the comment. Failures are reported as warnings and do not fail the step."""
    use_utf8_output()
    try:
        print(escape_log_line(post_comment(os.environ)), flush=True)
    except NoCommentError as nothing:
        annotate(nothing.level, nothing.reason, *([f"hint: {nothing.hint}"] if nothing.hint else []))
    except Exception as error:  # noqa: BLE001 - a missing comment must not fail the check
        annotate("warning", f"no comment was posted: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
