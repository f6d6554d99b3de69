"""A comment about the run of a pull request from a fork, made in a later run that has the base's token.

The report comes from a run whose workflow and code the fork may have changed at will. It is data of one shape and size;
which pull request it belongs to is taken from the event and the API, and how that run ended is said beside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from onnxgate.cli import sticky
from onnxgate.cli.action import has_nothing_to_say
from onnxgate.cli.github_api import Api, ApiError
from onnxgate.cli.github_event import Event, PullRequest, WorkflowRun
from onnxgate.cli.posting import NoComment, Post
from onnxgate.formats.escape import code

if TYPE_CHECKING:
    from onnxgate.report import Report

LARGEST_REPORT_BYTES = 16 * 2**20
_SHA = re.compile(r"[0-9a-f]{40}")


def post(event: Event, environment: Mapping[str, str], api: Api) -> Post:
    """What the report of the run says, for the pull request that the run was about.

    Raises:
        NoComment: there is no such pull request, or no report that can be believed to be one.
    """
    run = event.workflow_run
    if run is None or run.event != "pull_request" or not _SHA.fullmatch(run.head_sha):
        raise NoComment("no comment: the run that this one followed is about no pull request", level="notice")
    report = read_report(environment.get("ONNXGATE_INPUT_REPORT", ""))
    pull_request = find(run, environment.get("GITHUB_REPOSITORY", ""), api)
    agrees = (report.verdict == "pass") == (run.conclusion == "success")
    return Post(
        pull_request.number,
        _body(report, run, agrees),
        silent=agrees and has_nothing_to_say(report),
        is_from_fork=pull_request.is_from_fork,
    )


def find(run: WorkflowRun, repository: str, api: Api) -> PullRequest:
    """The one open pull request whose head is the commit that was judged. What the run itself says of it is not asked.

    Raises:
        NoComment: none is, or several are.
    """
    home = run.head_repository
    if home is None or not home.owner or not run.head_branch:
        raise NoComment("no comment was posted: the event names no branch")
    try:
        answer = api.get(
            f"/repos/{repository}/pulls", state="open", head=f"{home.owner}:{run.head_branch}", per_page=sticky.PAGE
        )
        listed = sticky.typed(answer, list[PullRequest])
    except ApiError as error:
        raise NoComment(f"no comment was posted: {error.message}") from error
    found = [each for each in listed if each.head.sha == run.head_sha and each.head.repo == home]
    if len(found) != 1:
        many = "no open pull request has" if not found else f"{len(found)} open pull requests have"
        raise NoComment(f"no comment: {many} the commit {run.head_sha[:12]} that was judged", level="notice")
    return found[0]


def read_report(path: str) -> Report:
    """The report of another run: a plain file of bounded size, of the report's types.

    Raises:
        NoComment: it is none.
    """
    import msgspec

    from onnxgate.report import VERSION, Report

    try:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags), "rb") as file:
            content = file.read(LARGEST_REPORT_BYTES + 1)
        report = msgspec.json.decode(content, type=Report)
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise NoComment(f"no comment was posted: the input `report` names no report of onnxgate: {error}") from error
    if len(content) > LARGEST_REPORT_BYTES or report.version != VERSION:
        raise NoComment("no comment was posted: the report is too large, or of another onnxgate")
    return report


def _body(report: Report, run: WorkflowRun, agrees: bool) -> str:
    from onnxgate.formats import comment

    url = run.html_url if re.fullmatch(r"https?://[\w.:-]+/[\w./-]+", run.html_url) else ""
    named = f"[a run]({url})" if url else "a run"
    said = f"Written by {named} of this pull request's own code, which ended with {code(run.conclusion or 'nothing')}."
    doubt = "" if agrees else "\n\n**The report and the run disagree: look at the run.**"
    return f"{comment.format(report)}\n\n---\n{said}{doubt}\n"
