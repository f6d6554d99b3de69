"""Pull requests that change the policy, under the engine: what log, summary, comment and report show."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.harness.github.actions_engine import ActionRun, Engine
from tests.harness.github.workflow_commands import annotations
from tests.harness.repositories.checkout import commit, git
from tests.harness.repositories.policy_edits import HONEST, WEAKENINGS, Edit, PolicyRepository


@dataclass(frozen=True, slots=True)
class PullRequest:
    """The action's run for a pull request, with its report and comment."""

    ran: ActionRun
    report: dict[str, list[dict[str, str]]]
    comment: str

    def findings(self, rule: str) -> list[tuple[str, str]]:
        """Return level and message of the findings of a rule."""
        return [(it["level"], it["message"]) for it in self.report["findings"] if it["rule"] == rule]


def run_pull_request(engine: Engine, edit: Edit, **inputs: str) -> PullRequest:
    """Commit an edit on a branch, merge it as GitHub does, and run the static stages."""
    repository = PolicyRepository(engine.workspace)
    edit(repository)  # may also commit changes to the base
    git(engine.workspace, "switch", "--quiet", "--create", "change")
    commit(engine.workspace)
    git(engine.workspace, "switch", "--quiet", "main")
    git(engine.workspace, "merge", "--quiet", "--no-ff", "--message=merge", "change")
    in_event = replace(engine, environment={**engine.environment, "GITHUB_REF": "refs/pull/1/merge"})
    ran = in_event.use(stages="file,lock,support", **inputs)
    report = json.loads(Path(ran.outputs["report"]).read_text(encoding="utf-8"))
    comment = ran.steps["gate"].outputs["comment-file"]
    return PullRequest(ran, report, Path(comment).read_text(encoding="utf-8") if comment else "")


@pytest.mark.parametrize("name", WEAKENINGS)
def test_a_weaker_policy_is_shown_everywhere(name: str, engine: Engine) -> None:
    """Annotation with file and line, summary, comment and report name each change that checks less."""
    edit, expected = WEAKENINGS[name]
    pull_request = run_pull_request(engine, edit, comment="always")
    messages = [line.partition(": ")[2] for line in expected if line.startswith("-")]
    weakened = pull_request.findings("policy-weakened")
    shown = [it for it in annotations(pull_request.ran.log) if it.properties.get("title") == "policy-weakened"]

    assert [("warning", message) for message in messages] == sorted(weakened, key=lambda it: messages.index(it[1]))
    assert len(messages) == len(shown)
    assert {True} == {it.name == "warning" and it.properties["line"].isdecimal() for it in shown}
    for text in (pull_request.ran.summary, pull_request.comment):
        assert "policy-weakened" in text
        assert "policy weakened" in text


@pytest.mark.parametrize("name", [*HONEST][:12])
def test_an_honest_change_is_no_warning(name: str, engine: Engine) -> None:
    """A change that checks no less causes neither a warning nor an error of the policy."""
    edit, expected = HONEST[name]
    pull_request = run_pull_request(engine, edit)

    assert [] == pull_request.findings("policy-weakened")
    assert len(expected) == len(pull_request.findings("policy-changed"))


def test_the_base_makes_it_an_error(engine: Engine) -> None:
    """If the baseline says `error`, the check fails, even if the pull request turns the rule off."""

    def turn_off(repository: PolicyRepository) -> None:
        repository.edit('size-grew = "error"', 'size-grew = "error"\npolicy-weakened = "error"')
        commit(repository.folder)
        repository.edit('policy-weakened = "error"', 'policy-weakened = "off"')

    pull_request = run_pull_request(engine, turn_off)

    assert "failure" == pull_request.ran.conclusion
    assert [("error", "rule `policy-weakened` was turned off (previously `error`)")] == pull_request.findings(
        "policy-weakened"
    )
