"""The action in a real Actions engine, from checkout to annotations, outputs and the job summary."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.conftest import need
from tests.harness.github.act import Actor, Workflow, stubs
from tests.harness.repositories.checkout import ROOT

pytestmark = [pytest.mark.surface, pytest.mark.index]

QUICKSTART = "fixtures/projects/quickstart"
BROKEN = "fixtures/projects/broken"
STATIC = {"stages": "file,lock,support"}


@pytest.fixture(scope="module")
def actor(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Actor:
    """Return `act` on a clone of this checkout."""
    return actor_on(clone, tmp_path_factory.mktemp("act"))


@pytest.fixture(scope="module")
def quick_actor(quick: Path, tmp_path_factory: pytest.TempPathFactory) -> Actor:
    """Return `act` with an action that is already installed."""
    return actor_on(quick, tmp_path_factory.mktemp("act"))


def actor_on(repository: Path, scratch: Path) -> Actor:
    """Return `act` on a repository that contains the action."""
    texts = [(ROOT / "action.yml").read_text(encoding="utf-8")]
    return Actor(need("act"), repository, scratch, stubs(scratch / "stubs", texts))


def use(actor: Actor, folder: Path, environment: Mapping[str, str] | None = None, **inputs: str) -> Workflow:
    """Run a workflow that uses the action with these inputs."""
    given = {name.replace("_", "-"): value for name, value in inputs.items()}
    steps = [{"uses": "actions/checkout@v6"}, {"uses": "./", "id": "gate", "with": given}]
    workflow = {"on": "push", "jobs": {"gate": {"runs-on": "ubuntu-24.04", "steps": steps}}}
    (folder / "workflow.yml").write_text(yaml.safe_dump(workflow), encoding="utf-8")
    stubbed = {"STUB_PYTHON": sys.executable, "STUB_FOLDER": str(folder), **(environment or {})}
    return actor.push(folder / "workflow.yml", **stubbed)


def test_the_action_passes_on_quickstart(actor: Actor, tmp_path: Path) -> None:
    """The verdict is a pass, nothing is annotated, and the summary lists both models.

    With `python-version`, the action uses its own Python and does not change the project's PATH.
    """
    ran = use(actor, tmp_path, **STATIC, python_version="3.11", working_directory=QUICKSTART)

    assert (ran.status, ran.outcome("gate"), ran.outputs("gate")["verdict"]) == (0, "success", "pass"), ran.log()
    assert ran.outcome("gate", "python") == "success"
    assert "changes the environment: false" in ran.log()
    assert [said for said in ran.annotations() if said.name != "notice"] == []
    assert "models/classifier.onnx" in ran.summary()
    assert "models/encoder.onnx" in ran.summary()


def test_the_action_fails_on_broken(quick_actor: Actor, tmp_path: Path) -> None:
    """Static faults fail the step and appear in annotations, counts and the summary."""
    ran = use(quick_actor, tmp_path, **STATIC, working_directory=BROKEN)

    errors = static_faults("error")
    outputs = ran.outputs("gate")
    assert (ran.status, ran.outcome("gate", "gate"), ran.outcome("gate")) == (1, "failure", "failure"), ran.log()
    assert (outputs["verdict"], outputs["exit-code"], outputs["errors"]) == ("fail", "1", str(len(errors)))
    shown = [said for said in ran.annotations() if said.name == "error"]
    assert {said.properties["title"] for said in shown} <= {*errors, "onnxgate"}
    assert {said.properties["file"] for said in shown if "file" in said.properties} <= files_of_broken()
    assert all(rule in ran.summary() for rule in errors)


def static_faults(level: str) -> list[str]:
    """Return the rules that the static stages must report for the broken project."""
    from onnxgate import rules
    from onnxgate.core.findings import STATIC_STAGES

    expected = json.loads((ROOT / BROKEN / "expected.json").read_text(encoding="utf-8"))
    static = {rule for rule, known in rules.by_id.items() if known.stage in STATIC_STAGES}
    return [fault["rule"] for fault in expected if fault["level"] == level and fault["rule"] in static]


def files_of_broken() -> set[str]:
    """Return the files of the broken project, relative to the root of the git repository."""
    return {path.relative_to(ROOT).as_posix() for path in (ROOT / BROKEN).rglob("*") if path.is_file()}


def test_another_command_runs(quick_actor: Actor, tmp_path: Path) -> None:
    """The action also runs `lock --check`."""
    ran = use(quick_actor, tmp_path, command="lock", args="--check", working_directory=QUICKSTART)

    assert ran.outcome("gate") == "success", ran.log()
    assert "is up to date" in ran.log()


def test_hostile_inputs_are_only_text(quick_actor: Actor, tmp_path: Path) -> None:
    """Inputs are never evaluated by a shell, and an invalid input is annotated."""
    ran = use(quick_actor, tmp_path, paths="'; echo PWNED; echo '\n$(echo PWNED).onnx", fail_on="`echo PWNED`")

    [said] = ran.annotations()
    assert (ran.outcome("gate"), ran.outputs("gate")["exit-code"]) == ("failure", "2"), ran.log()
    assert said.data.startswith("input `fail-on`: unknown value ``echo PWNED``")
    assert "PWNED" not in [str(entry.get("msg", "")).strip() for entry in ran.entries if entry.get("raw_output")]


def test_a_usage_error_has_an_annotation_a_summary_and_outputs(quick_actor: Actor, tmp_path: Path) -> None:
    """A repository without a config is every newcomer's first run."""
    ran = use(quick_actor, tmp_path, working_directory="comment")

    [said] = ran.annotations()
    outputs = ran.outputs("gate")
    assert ("failure", "undecided", "2") == (ran.outcome("gate"), outputs["verdict"], outputs["exit-code"]), ran.log()
    assert said.data.startswith("there is no `onnxgate.toml`")
    assert "error: there is no `onnxgate.toml`" in ran.summary()


def test_an_old_python_has_an_annotation_a_summary_and_outputs(actor: Actor, tmp_path: Path) -> None:
    """The outputs exist although the step that runs onnxgate did not start."""
    old = tmp_path / "python"
    old.write_text('#!/bin/sh\ncase "$*" in --version) echo Python 3.9.1 ;; *) exit 1 ;; esac\n', encoding="utf-8")
    old.chmod(0o755)
    ran = use(actor, tmp_path, {"STUB_PYTHON": str(old)}, python_version="3.9")

    [said] = ran.annotations()
    outputs = ran.outputs("gate")
    assert ("failure", "undecided", "3") == (ran.outcome("gate"), outputs["verdict"], outputs["exit-code"]), ran.log()
    assert "onnxgate requires CPython 3.10 or newer; found Python 3.9.1" in said.data
    assert "error: onnxgate requires CPython 3.10 or newer" in ran.summary()


@pytest.mark.torch
def test_our_own_workflow_runs_the_whole_gate(actor: Actor, tmp_path: Path, toolchain: Path, cache: Path) -> None:
    """The job of quickstart.yml passes unchanged, with an installed toolchain and the environments of other tests."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/quickstart.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["gate"]
    steps = [step for step in job["steps"] if "pip install" not in step.get("run", "")]
    reading = {"id": "reading", "run": 'cat "$REPORT"', "env": {"REPORT": "${{ steps.gate.outputs.report }}"}}
    changed = {"on": "push", "jobs": {"gate": {**job, "steps": [*steps, reading]}}}
    (tmp_path / "workflow.yml").write_text(yaml.safe_dump(changed), encoding="utf-8")

    ran = actor.push(
        tmp_path / "workflow.yml",
        VIRTUAL_ENV=str(toolchain.parent.parent),
        STUB_PYTHON=sys.executable,
        STUB_FOLDER=str(tmp_path),
        ONNXGATE_CACHE_DIR=str(cache),
    )

    assert (ran.status, ran.outputs("gate")["verdict"]) == (0, "pass"), ran.log()
    report = json.loads(ran.printed("reading"))
    assert len(report["runtimes"]) >= 6
    assert {cell["state"] for cell in report["cells"]} == {"pass"}
