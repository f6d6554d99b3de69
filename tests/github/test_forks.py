"""The second workflow for forks: a report from an untrusted run, and its pull request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onnxgate.github import comment
from onnxgate.github import comment as github_comment
from tests.harness.github.comment_server import Server, serving
from tests.harness.github.workflow_commands import Command, commands
from tests.harness.repositories.checkout import ROOT

SHA = "a" * 40
SAMPLE = ROOT / "fixtures/reports/sample.json"
FORK = {"full_name": "somebody/models"}


@pytest.fixture
def server() -> Iterator[Server]:
    """Run a server that has the fork's pull request."""
    with serving() as server:
        server.pulls.append(pull(7))
        yield server


def pull(number: int, sha: str = SHA, repo: dict[str, str] | None = FORK, branch: str = "fix") -> dict[str, Any]:
    """Return a pull request as in the API; `label` is used by the local server's search."""
    owner = (repo or FORK)["full_name"].partition("/")[0]
    base = {"repo": {"full_name": "team/models"}}
    return {"number": number, "head": {"sha": sha, "repo": repo, "label": f"{owner}:{branch}"}, "base": base}


def run(**changed: object) -> dict[str, Any]:
    """Return the event of a completed run for the fork's pull request."""
    usual = {
        "event": "pull_request",
        "head_sha": SHA,
        "head_branch": "fix",
        "head_repository": FORK,
        "conclusion": "failure",
        "html_url": "https://github.com/team/models/actions/runs/5",
        "pull_requests": [{"number": 8}],
    }
    return {"workflow_run": {**usual, **changed}}


class Second:
    """The job of the second workflow."""

    def __init__(self, folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.environment = {
            "GITHUB_API_URL": server.address,
            "GITHUB_REPOSITORY": "team/models",
            "GITHUB_WORKFLOW": "onnxgate comment",
            "GITHUB_JOB": "comment",
            "GITHUB_EVENT_NAME": "workflow_run",
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "ONNXGATE_INPUT_REPORT": str(folder / "report.json"),
            "ONNXGATE_INPUT_TOKEN": "secret",
        }

    def comment(self, event: Any, report: bytes | None = None, **environment: str) -> None:
        """Run the step."""
        (self.folder / "event.json").write_text(json.dumps(event), encoding="utf-8")
        (self.folder / "report.json").write_bytes(SAMPLE.read_bytes() if report is None else report)
        for name, value in {**self.environment, **environment}.items():
            self.monkeypatch.setenv(name, value)
        github_comment.main()


@pytest.fixture
def second(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Second:
    """Return a job with the base repository's token."""
    return Second(tmp_path, server, monkeypatch)


def step_annotations(capfd: pytest.CaptureFixture[str]) -> list[Command]:
    """Return the annotations of the step."""
    return list(commands(capfd.readouterr().out))


def test_comment_names_the_report_and_conclusion(second: Second, server: Server) -> None:
    """The comment contains the origin of the report and the conclusion of the run."""
    second.comment(run())

    [comment] = server.comments
    assert comment["body"].startswith("<!-- onnxgate:onnxgate comment:comment -->\n")
    assert "that executed the pull request's own code (conclusion: `failure`)" in comment["body"]
    assert "[a run](https://github.com/team/models/actions/runs/5)" in comment["body"]
    assert "does not match" not in comment["body"]


def changed_sample(**changed: object) -> bytes:
    """Return the sample report with other values."""
    return json.dumps({**json.loads(SAMPLE.read_bytes()), **changed}).encode()


CLEAN = {"verdict": "pass", "exit": 0, "findings": [], "changes": [], "undecided": []}


def test_a_report_that_the_run_belies_is_doubted(second: Second, server: Server) -> None:
    """A fork can upload a passing report from a failed run, but it cannot change the run's conclusion."""
    second.comment(run(), changed_sample(**CLEAN))

    [comment] = server.comments
    assert "**The report contradicts the conclusion of the run. Open the run to see its result.**" in comment["body"]


def test_no_comment_for_a_pass(second: Second, server: Server) -> None:
    """With `on-failure`, no comment is created for a pass, as in the first workflow."""
    second.comment(run(conclusion="success"), changed_sample(**CLEAN), ONNXGATE_INPUT_COMMENT="on-failure")

    assert [] == server.comments


def test_pull_request_is_identified_by_the_commit(second: Second, server: Server) -> None:
    """The pull request is identified by the checked commit, and not by the report or the event's list."""
    server.pulls = [pull(8, sha="b" * 40), pull(7), pull(9, repo={"full_name": "somebody/other"})]
    second.comment(run(), changed_sample(number=8, pull_request=8))

    assert ["POST /repos/team/models/issues/7/comments"] == server.changes


@pytest.mark.parametrize(
    "pulls",
    [
        [],
        [pull(7, sha="b" * 40)],
        [pull(7, repo={"full_name": "other/models"})],
        [pull(7, repo=None)],
        [pull(7), pull(8)],
    ],
    ids=["closed", "moved on", "another fork", "deleted fork", "two bases"],
)
def test_no_comment_without_exactly_one_pull_request(
    second: Second, server: Server, capfd: pytest.CaptureFixture[str], pulls: list[dict[str, Any]]
) -> None:
    """No comment is posted unless exactly one pull request has the commit."""
    for pull_request in pulls:
        pull_request["head"]["label"] = "somebody:fix"
    server.pulls = pulls
    second.comment(run())

    assert (["notice"], []) == ([each.name for each in step_annotations(capfd)], server.changes)


@pytest.mark.parametrize(
    "event",
    [
        run(event="push"),
        run(event="pull_request_target"),
        run(head_sha="a" * 39 + "/"),
        run(head_sha="../../x"),
        run(head_branch=None),
        run(head_repository=None),
        run(head_repository={"full_name": ""}),
        {"workflow_run": {"head_sha": 3}},
    ],
)
def test_event_without_pull_request_makes_no_requests(
    second: Second, server: Server, capfd: pytest.CaptureFixture[str], event: Any
) -> None:
    """Events without a pull request cause no requests."""
    second.comment(event)

    assert ([], 1) == (server.asked, len(step_annotations(capfd)))


def test_a_branch_is_only_a_value_of_the_query(second: Second, server: Server) -> None:
    """A branch name is escaped in the query."""
    branch = "x&state=all#../y"
    server.pulls = [pull(7, branch=branch)]
    second.comment(run(head_branch=branch))

    assert ["POST /repos/team/models/issues/7/comments"] == server.changes


REPORTS = {
    "empty": b"",
    "no JSON": b"<html>",
    "deep": b"[" * 100_000,
    "a list": b"[]",
    "a verdict that is none": changed_sample(verdict="<b>"),
    "findings that are none": changed_sample(findings=[{"rule": 1}]),
    "another version": changed_sample(version=99),
    "no text": b"\xff",
}


@pytest.mark.parametrize("name", REPORTS)
def test_invalid_report_is_a_warning(
    second: Second, server: Server, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    """An invalid report is a warning; no requests are made."""
    second.comment(run(), REPORTS[name])

    assert (["warning"], []) == ([each.name for each in step_annotations(capfd)], server.asked)


def test_a_report_that_is_too_large_is_a_warning(
    second: Second, server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that exceeds the size limit is a warning."""
    monkeypatch.setattr(comment, "LARGEST_REPORT_BYTES", SAMPLE.stat().st_size - 1)
    second.comment(run())

    assert (["warning"], []) == ([each.name for each in step_annotations(capfd)], server.asked)


def test_a_report_that_is_a_link_is_not_followed(
    second: Second, server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An artifact may contain links to files on the runner, so links are not followed."""
    (tmp_path / "link.json").symlink_to(SAMPLE)
    second.comment(run(), ONNXGATE_INPUT_REPORT=str(tmp_path / "link.json"))

    assert (["warning"], []) == ([each.name for each in step_annotations(capfd)], server.asked)


def test_hostile_strings_are_only_shown(second: Second, server: Server) -> None:
    """Text in the report cannot create mentions, links or markup, or close the marker."""
    evil = "x --> <img src=x onerror=y> @team [a](http://evil) | ::error::owned\n# head"
    report = json.loads(SAMPLE.read_bytes())
    for finding in report["findings"]:
        finding.update(message=evil, fix=evil, model=evil, node=evil)
    report["scope"] = evil
    second.comment(run(html_url="javascript:x)(http://evil"), json.dumps(report).encode())
    import cmarkgfm

    rendered = cmarkgfm.github_flavored_markdown_to_html(server.comments[0]["body"])
    assert "evil" in rendered
    assert 'href="http://evil' not in rendered
    assert "<img" not in rendered
    assert "javascript:x" not in rendered
