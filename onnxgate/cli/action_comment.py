"""The step that comments on the pull request. It never fails: what cannot be said is a warning, and the verdict stands.

In a run of `pull_request` it posts what the gate's step wrote; in a run of `workflow_run`, which has the base's token,
what the report of another run says (`action_forks`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from onnxgate.cli import action_forks, sticky
from onnxgate.cli.action import speak_plainly
from onnxgate.cli.action_running import annotate
from onnxgate.cli.github_api import Api, ApiError
from onnxgate.cli.github_event import Event, read_event
from onnxgate.cli.posting import NoComment, Post
from onnxgate.formats.escape import log_line

RECIPE = "https://github.com/onnxgate/onnxgate/blob/main/docs/guides/forks.md#comments-on-pull-requests-from-forks"


def comment(environment: Mapping[str, str]) -> str:
    """Say on the pull request what the gate found; what was done, for the log.

    Raises:
        NoComment: nothing was said there.
    """
    event = read_event(environment)
    api = _api(environment)
    post = action_forks.post(event, environment, api) if event.workflow_run else _post(event, environment)
    mark = sticky.marker(*(environment.get(name, "") for name in ("GITHUB_WORKFLOW", "GITHUB_JOB")), post.subject)
    body = sticky.fitted(mark, post.body, _too_long(environment))
    try:
        done = sticky.stick(api, environment["GITHUB_REPOSITORY"], post.number, mark, body, silent=post.silent)
    except ApiError as error:
        raise _refusal(error, post) from error
    known = {"silent": "no comment: there is nothing to say", "unchanged": "the comment says it already"}
    return known.get(done, f"the comment was {done}")


def _post(event: Event, environment: Mapping[str, str]) -> Post:
    """What the gate's step of this run wrote."""
    if event.pull_request is None:
        name = environment.get("GITHUB_EVENT_NAME", "")
        raise NoComment(f"no comment: `{name}` is about no pull request", level="notice")
    try:
        body = Path(environment["ONNXGATE_ACTION_COMMENT"]).read_text(encoding="utf-8", errors="replace")
    except (KeyError, OSError) as error:
        raise NoComment("no comment was posted: the gate left none") from error
    return Post(
        event.pull_request.number,
        body,
        silent=environment.get("ONNXGATE_ACTION_SILENT") == "true",
        is_from_fork=event.pull_request.is_from_fork,
        subject=environment.get("ONNXGATE_ACTION_SUBJECT", ""),
    )


def _api(environment: Mapping[str, str]) -> Api:
    token = environment.get("ONNXGATE_INPUT_TOKEN", "").strip()
    if not token:
        raise NoComment("no comment was posted: the input `token` is empty")
    try:
        return Api(environment.get("GITHUB_API_URL") or "https://api.github.com", token)
    except ApiError as error:
        raise NoComment(f"no comment was posted: {error.message}") from error


def _too_long(environment: Mapping[str, str]) -> str:
    server, repository = environment.get("GITHUB_SERVER_URL", ""), environment.get("GITHUB_REPOSITORY", "")
    run = f"{server}/{repository}/actions/runs/{environment.get('GITHUB_RUN_ID', '')}"
    return f"## onnxgate\n\nWhat was found is too long for a comment; see the summary of [the run]({run})."


def _refusal(error: ApiError, post: Post) -> NoComment:
    """What to do, where the token may not; else that it is tried again."""
    reason = f"no comment was posted: {error.message}"
    if error.status not in (401, 403, 404):
        return NoComment(reason, hint="the next run tries again; the verdict does not depend on it")
    if post.is_from_fork:
        return NoComment(
            f"{reason}; a pull request from a fork gets a token that can only read",
            hint=f"comment in a second workflow: {RECIPE}",
        )
    return NoComment(f"{reason}; the token may not write comments", hint="give the job `pull-requests: write`")


def main() -> None:
    """Comment; whatever goes wrong is a warning."""
    speak_plainly()
    try:
        print(log_line(comment(os.environ)), flush=True)
    except NoComment as nothing:
        annotate(nothing.level, nothing.reason, *([f"hint: {nothing.hint}"] if nothing.hint else []))
    except Exception as error:  # noqa: BLE001 - a comment closes no gate
        annotate("warning", f"no comment was posted: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
