"""The comment on a pull request, tested with a local server, because the real API is not available in tests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onnxgate.github import api
from onnxgate.github import comment as github_comment
from onnxgate.github import comment as sticky
from onnxgate.github.api import Api, ApiError
from tests.harness.github.comment_server import BOT, SLOW, Server, serving
from tests.harness.github.workflow_commands import Command, commands

MARK = "<!-- onnxgate:CI:gate -->"
FOOT = "\n\n---\n[Summary and log of this run](https://github.com/team/models/actions/runs/1)\n"
FORBIDDEN = {"message": "Resource not accessible by integration"}
PERSON = {"login": "mallory", "type": "User"}


@pytest.fixture
def server() -> Iterator[Server]:
    """Run an empty server."""
    with serving() as server:
        yield server


class Job:
    """A job with a final step that comments."""

    def __init__(self, folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.environment = {
            "GITHUB_API_URL": server.address,
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_REPOSITORY": "team/models",
            "GITHUB_RUN_ID": "1",
            "GITHUB_WORKFLOW": "CI",
            "GITHUB_JOB": "gate",
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "ONNXGATE_ACTION_COMMENT": str(folder / "comment.md"),
            "ONNXGATE_INPUT_TOKEN": "secret",
        }
        self.event: Any = pull_request("team/models")

    def comment(self, body: str = "found", **environment: str) -> None:
        """Run the step."""
        (self.folder / "comment.md").write_text(body, encoding="utf-8")
        (self.folder / "event.json").write_text(json.dumps(self.event), encoding="utf-8")
        for name, value in {**self.environment, **environment}.items():
            self.monkeypatch.setenv(name, value)
        github_comment.main()


def pull_request(head: str | None) -> dict[str, Any]:
    """Return the event of a pull request from that repository; None stands for a deleted repository."""
    repo = {"full_name": head} if head else None
    return {"pull_request": {"number": 7, "head": {"repo": repo}, "base": {"repo": {"full_name": "team/models"}}}}


@pytest.fixture
def job(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Return a job for a pull request from the same repository, without delays between retries."""
    monkeypatch.setattr(api, "RETRY_PAUSE_S", 0.0)
    return Job(tmp_path, server, monkeypatch)


def step_annotations(capfd: pytest.CaptureFixture[str]) -> list[Command]:
    """Return the annotations of the step."""
    return list(commands(capfd.readouterr().out))


def test_the_first_run_creates_and_the_next_ones_update(job: Job, server: Server) -> None:
    """One comment is created and then updated, even among other comments; an identical comment is not updated."""
    job.comment("one")
    server.add("thanks", PERSON)
    job.comment("two")
    job.comment("two")

    assert [f"{MARK}\ntwo{FOOT}", "thanks"] == [comment["body"] for comment in server.comments]
    assert ["POST", "PATCH"] == [change.partition(" ")[0] for change in server.changes]
    assert {"Bearer secret"} == server.tokens


def test_githubs_line_ends_are_no_change(job: Job, server: Server) -> None:
    """GitHub may return other line endings than it received."""
    server.add(f"{MARK}\none\ntwo{FOOT}".replace("\n", "\r\n"))
    job.comment("one\ntwo\n")

    assert [] == server.changes


def test_our_comment_is_found_on_a_later_page(job: Job, server: Server) -> None:
    """The comment is found on any page of a long discussion."""
    for number in range(250):
        server.add(f"remark {number}", PERSON)
    server.add(f"{MARK}\nold")
    job.comment("new")

    assert f"{MARK}\nnew{FOOT}" == server.comments[250]["body"]
    assert ["PATCH /repos/team/models/issues/comments/251"] == server.changes


def test_pages_without_end_are_not_followed(job: Job, server: Server) -> None:
    """The number of pages read is limited, even if the server always has more."""
    page = [{"id": 1, "body": "x", "user": PERSON}] * sticky.PAGE_SIZE
    server.refuse = lambda method, _: (200, page) if method == "GET" else None
    job.comment()

    assert sticky.MAX_PAGES + 1 == len(server.asked)


def test_a_comment_of_somebody_else_is_not_ours(job: Job, server: Server) -> None:
    """Comments by other users are never edited, even if they contain the marker."""
    server.add(f"{MARK}\nall is well", PERSON)
    server.add(f"quoted: {MARK}", BOT)
    job.comment("broken")

    assert [f"{MARK}\nall is well", f"quoted: {MARK}", f"{MARK}\nbroken{FOOT}"] == [
        comment["body"] for comment in server.comments
    ]


def test_a_users_own_token_finds_its_own_comment(job: Job, server: Server) -> None:
    """With a user's token, the API is queried for the token's user."""
    server.login = "release-robot"
    server.add(f"{MARK}\nold", PERSON)
    server.add(f"{MARK}\nold", {"login": "release-robot", "type": "User"})
    job.comment("new")

    assert [f"{MARK}\nold", f"{MARK}\nnew{FOOT}"] == [comment["body"] for comment in server.comments]


def test_nothing_is_posted_without_findings(job: Job, server: Server) -> None:
    """No first comment is created without findings, but an existing comment is updated."""
    job.comment("pass", ONNXGATE_ACTION_SILENT="true")
    silent = list(server.comments)
    job.comment("fail", ONNXGATE_ACTION_SILENT="false")
    job.comment("pass", ONNXGATE_ACTION_SILENT="true")

    assert [] == silent
    assert [f"{MARK}\npass{FOOT}"] == [comment["body"] for comment in server.comments]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("CI", "gate", ""), "<!-- onnxgate:CI:gate -->"),
        (("CI", "gate", "models/a b"), "<!-- onnxgate:CI:gate:models/a b -->"),
        (("x --> <b>", "a:b", ""), "<!-- onnxgate:x -%2D%3E %3Cb%3E:a%3Ab -->"),
        (("--\n---", "j", ""), "<!-- onnxgate:-%2D%0A-%2D-:j -->"),
    ],
)
def test_a_marker_cannot_be_ended_by_a_name(words: tuple[str, ...], expected: str) -> None:
    """Workflow and job names cannot close the marker's HTML comment."""
    actual = sticky.comment_marker(*words)

    assert expected == actual
    assert actual.index("-->") == len(actual) - 3


@pytest.mark.parametrize(("length", "cut"), [(0, False), (1, True)])
def test_a_body_is_never_longer_than_github_takes(job: Job, server: Server, length: int, cut: bool) -> None:
    """A body at the length limit is complete; a longer one is truncated and links to the run's summary."""
    job.comment("é" * (sticky.MAX_COMMENT_LENGTH - len(MARK) - 1 - len(FOOT) + length))
    [comment] = server.comments

    assert len(comment["body"]) <= sticky.MAX_COMMENT_LENGTH
    assert cut == ("é" not in comment["body"])
    assert "https://github.com/team/models/actions/runs/1" in comment["body"]


@pytest.mark.parametrize("status", [403, 404, 401])
def test_a_token_that_may_not_is_a_warning(
    job: Job, server: Server, capfd: pytest.CaptureFixture[str], status: int
) -> None:
    """The warning names the missing permission, and the step does not fail."""
    server.refuse = lambda method, _: (status, FORBIDDEN) if method != "GET" else None
    job.comment()

    [warning] = step_annotations(capfd)
    assert ("warning", {"title": "onnxgate"}) == (warning.name, warning.properties)
    assert f"{status} Resource not accessible by integration" in warning.data
    assert "hint: add `pull-requests: write` to the job's `permissions`" in warning.data
    assert 1 == len(server.changes)


@pytest.mark.parametrize("head", ["somebody/models", None])
def test_a_fork_is_pointed_to_the_second_workflow(
    job: Job, server: Server, capfd: pytest.CaptureFixture[str], head: str | None
) -> None:
    """The warning links to the setup for forks, even if the fork has been deleted."""
    job.event = pull_request(head)
    server.refuse = lambda method, _: (403, FORBIDDEN) if method == "POST" else None
    job.comment()

    [warning] = step_annotations(capfd)
    assert "pull requests from forks have a read-only token" in warning.data
    assert warning.data.endswith("#comments-on-pull-requests-from-forks")


def test_failed_requests_are_retried(job: Job, server: Server) -> None:
    """A page that fails twice is requested a third time."""
    answers = iter([(502, b"<html>"), (500, {"message": "x"})])
    server.refuse = lambda method, _: next(answers, None) if method == "GET" else None
    job.comment("found")

    assert [f"{MARK}\nfound{FOOT}"] == [comment["body"] for comment in server.comments]
    assert ["GET", "GET", "GET", "POST"] == [each.partition(" ")[0] for each in server.asked]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_server_that_stays_broken_is_a_warning(
    job: Job, server: Server, capfd: pytest.CaptureFixture[str], method: str
) -> None:
    """The request that creates a comment is not retried, because it may have succeeded."""
    server.refuse = lambda asked, _: (500, b"") if asked == method else None
    job.comment()

    [warning] = step_annotations(capfd)
    assert ("warning", "no comment was posted: 500 Internal Server Error") == (
        warning.name,
        warning.data.partition("\n")[0],
    )
    assert {"GET": 3, "POST": 1}[method] == sum(each.startswith(method) for each in server.asked)


@pytest.mark.parametrize(
    ("status", "headers"),
    [(403, {"x-ratelimit-remaining": "0"}), (429, {"retry-after": "3600"}), (429, {})],
)
def test_a_rate_limit_is_not_waited_for(
    job: Job, server: Server, capfd: pytest.CaptureFixture[str], status: int, headers: dict[str, str]
) -> None:
    """The step does not wait for a rate limit, and does not report it as a missing permission."""
    server.refuse = lambda *_: (status, {"message": "API rate limit exceeded"}, headers)
    job.comment()

    [warning] = step_annotations(capfd)
    assert f"rate limit exceeded: {status} API rate limit exceeded" in warning.data
    assert "pull-requests" not in warning.data
    assert 1 == len(server.asked)


def _deep() -> bytes:
    return b"[" * 100_000


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"\xff\xfe",
        _deep(),
        b"null",
        b'{"message": "x"}',
        b'[{"body": "no id"}]',
        b'[{"id": "1; DROP", "body": "x"}]',
        b'[{"id": 1, "body": 3}]',
        b'["::error::owned"]',
    ],
    ids=["empty", "html", "no text", "deep", "null", "object", "no id", "text id", "number body", "strings"],
)
def test_unexpected_response_is_a_warning(
    job: Job, server: Server, capfd: pytest.CaptureFixture[str], answer: bytes
) -> None:
    """Nothing is posted, and the response is not executed as a command."""
    server.refuse = lambda method, _: (200, answer) if method == "GET" else None
    job.comment()

    [warning] = step_annotations(capfd)
    assert ("warning", []) == (warning.name, server.changes)
    assert re.match(
        "no comment was posted: (the response from GitHub is not valid JSON|unexpected response from GitHub)",
        warning.data,
    )


def test_a_refusal_is_only_text(job: Job, server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """The server's message is shown but not executed as a command."""
    server.refuse = lambda *_: (403, {"message": "\n::error::owned\n##[error]owned" + "x" * 9000})
    job.comment()

    [warning] = step_annotations(capfd)
    assert "warning" == warning.name
    assert len(warning.data) < 600


def test_a_redirect_is_not_followed(job: Job, server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """The token is only sent to the configured host."""
    with serving() as other:
        server.refuse = lambda *_: (302, {}, {"Location": f"{other.address}/repos/team/models/issues/7/comments"})
        job.comment()

        assert ([], 1) == (other.asked, len(step_annotations(capfd)))


@pytest.mark.parametrize("answer", [SLOW, b" " * 4096])
def test_an_answer_ends_in_time_and_size(server: Server, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    """A response that is too slow or too large is an error."""
    monkeypatch.setattr(api, "MAX_ANSWER_BYTES", 1024)
    monkeypatch.setattr(api, "RETRY_PAUSE_S", 0.0)
    monkeypatch.setattr(api, "TOTAL_TIMEOUT_S", 0.5)
    server.refuse = lambda *_: (200, answer)
    with pytest.raises(
        ApiError,
        match="the request to GitHub timed out" if answer == SLOW else "the response from GitHub is larger than ",
    ):
        Api(server.address, "t").get("/x")


def test_waiting_ends_with_the_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries after a server's delay request do not exceed the total timeout."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(api, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(api, "TOTAL_TIMEOUT_S", 3)
    server.refuse = lambda *_: (503, b"")
    with pytest.raises(ApiError, match="503"):
        Api(server.address, "t").get("/x")

    assert (2.0, 2) == (now[0], len(server.asked))


def test_unreachable_server_is_a_warning(job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    """A server that cannot be reached causes a warning."""
    job.comment(GITHUB_API_URL="http://127.0.0.1:9")

    [warning] = step_annotations(capfd)
    assert warning.data.startswith("no comment was posted: no response from GitHub: ")


@pytest.mark.parametrize(
    ("event", "name", "level"),
    [
        ({"after": "x"}, "push", "notice"),
        ({"merge_group": {}}, "merge_group", "notice"),
        ([], "pull_request", "notice"),
        ({"pull_request": {"number": "7/../8"}}, "pull_request", "notice"),
        ({"workflow_run": {"event": "push", "head_sha": "0" * 40}}, "workflow_run", "notice"),
    ],
)
def test_without_a_pull_request_nothing_is_posted(
    job: Job, server: Server, capfd: pytest.CaptureFixture[str], event: Any, name: str, level: str
) -> None:
    """On a push, in a merge queue, or for an unknown event, no comment is posted."""
    job.event = event
    job.comment(GITHUB_EVENT_NAME=name)

    assert ([level], []) == ([each.name for each in step_annotations(capfd)], server.asked)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ONNXGATE_INPUT_TOKEN", "", "the input `token` is empty"),
        ("GITHUB_API_URL", "file:///etc", "the API address `file:///etc` is not an HTTP URL"),
        ("ONNXGATE_ACTION_COMMENT", "/nowhere", "the previous step did not write the comment"),
    ],
)
def test_missing_settings_are_a_warning(
    job: Job, server: Server, capfd: pytest.CaptureFixture[str], name: str, value: str, expected: str
) -> None:
    """A missing token or body and an invalid address each cause a warning."""
    job.comment(**{name: value})

    [warning] = step_annotations(capfd)
    assert ("warning", f"no comment was posted: {expected}", []) == (warning.name, warning.data, server.asked)


def test_comment_of_a_deleted_user_is_not_edited(job: Job, server: Server) -> None:
    """A comment whose author was deleted is not edited, even if the API does not name the token's user."""
    server.comments.append({"id": 1, "body": f"{MARK}\nold", "user": None})
    job.comment("new")

    assert [f"{MARK}\nold", f"{MARK}\nnew{FOOT}"] == [comment["body"] for comment in server.comments]
