"""An error that ends the action is an annotation on its line, a summary and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from onnxgate.core.errors import ErrorRecord, FileProblem
from onnxgate.github.error_report import report_error
from tests.harness.github.actions_engine import ActionRun, Engine
from tests.harness.github.workflow_commands import Command, commands
from tests.harness.models import write
from tests.harness.repositories.checkout import commit

CONFIG = '[targets.server]\nruntime = "onnxruntime==1.18.1"\n'
MISSING = f'models = ["missing.onnx"]\n{CONFIG}'
CONFLICT = "version = 1\n<<<<<<< HEAD\n=======\n>>>>>>> change\n"


def use(engine: Engine, files: Mapping[str, str], inputs: Mapping[str, str]) -> ActionRun:
    """Run the action on a push to a repository with one model and these files."""
    write(engine.workspace / "model.onnx")
    for name, text in files.items():
        (engine.workspace / name).parent.mkdir(exist_ok=True)
        (engine.workspace / name).write_text(text, encoding="utf-8")
    return push(engine, **inputs)


def push(engine: Engine, **inputs: str) -> ActionRun:
    """Run the action on a push of all files."""
    commit(engine.workspace)
    stubs = {**engine.stubs, "results": lambda _: {}}
    return replace(engine, environment={**engine.environment, "GITHUB_EVENT_NAME": "push"}, stubs=stubs).use(**inputs)


@pytest.mark.parametrize(
    ("files", "inputs", "place", "message"),
    [
        ({}, {}, "", "there is no `onnxgate.toml`"),
        ({"onnxgate.toml": CONFIG}, {}, "", "`onnxgate.lock` does not exist\nhint: run `onnxgate lock`"),
        ({"onnxgate.toml": CONFIG + "[x\n"}, {}, "onnxgate.toml:3", "`onnxgate.toml` is not valid TOML: line 3"),
        ({"onnxgate.toml": CONFIG + "slect = 2\n"}, {}, "onnxgate.toml:3", "`onnxgate.toml` has 1 problem: `targets"),
        ({"onnxgate.toml": CONFIG, "onnxgate.lock": CONFLICT}, {}, "onnxgate.lock:2", "`onnxgate.lock` has merge"),
        ({"onnxgate.toml": CONFIG, "onnxgate.lock": "x"}, {}, "onnxgate.lock:1", "`onnxgate.lock` is damaged"),
        ({"onnxgate.toml": f'required-version = ">=9"\n{CONFIG}'}, {}, "onnxgate.toml:1", "`onnxgate.toml` requires"),
        ({"a/onnxgate.toml": "[x\n"}, {"working_directory": "a"}, "a/onnxgate.toml:1", "`onnxgate.toml` is not valid"),
        ({"a/onnxgate.toml": "[x\n"}, {"config": "a/onnxgate.toml"}, "a/onnxgate.toml:1", "`a/onnxgate.toml` is not"),
        ({}, {"paths": "missing.onnx"}, "", "`missing.onnx`"),
        ({}, {"paths": "missing/*.onnx"}, "", "input `paths`: no file matches"),
        ({"onnxgate.toml": MISSING}, {"command": "lock"}, "onnxgate.toml:1", "`onnxgate.toml` refers to models"),
        ({}, {"fail_on": "maybe"}, "", "input `fail-on`: unknown value `maybe`"),
        ({}, {"args": "--nonsense"}, "", "no such option '--nonsense'"),
        ({}, {"working_directory": "missing"}, "", "input `working-directory`: folder `missing` does not exist"),
        ({}, {"command": "lock"}, "", "there is no `onnxgate.toml`"),
        ({}, {"command": "plan", "args": "--shards 2"}, "", "there is no `onnxgate.toml`"),
        ({}, {"command": "merge", "paths": "missing.json"}, "", "`missing.json`"),
    ],
)
def test_a_usage_error_is_an_annotation_a_summary_and_outputs(
    engine: Engine, files: dict[str, str], inputs: dict[str, str], place: str, message: str
) -> None:
    """Exit 2 has one annotation, on the line of the error if it has one; there is no traceback."""
    ran = use(engine, files, inputs)

    [said] = ran.annotations
    shown = ":".join(said.properties[name] for name in ("file", "line") if name in said.properties)
    assert ("failure", "undecided", "2") == (ran.conclusion, ran.outputs["verdict"], ran.outputs["exit-code"]), ran.log
    assert (place, True) == (shown, message in said.data), said.data
    assert "**Undecided: usage, config or lock error (exit status 2)**" in ran.summary
    assert f"```text\nerror: {said.data.split(': ')[0]}" in ran.summary
    assert "Traceback" not in ran.log


def annotations(
    record: ErrorRecord, environment: Mapping[str, str], capfd: pytest.CaptureFixture[str]
) -> list[Command]:
    """Return the annotations of an error."""
    report_error(record, 2, environment)
    return [command for command in commands(capfd.readouterr().out) if command.name == "error"]


def test_each_problem_is_annotated_within_githubs_limit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """GitHub shows ten errors of a step, and adds one for its exit status."""
    (tmp_path / "onnxgate.toml").touch()
    problems = tuple(FileProblem(f"line {line}: `x{line}`: wrong", line) for line in range(1, 21))
    record = ErrorRecord("`onnxgate.toml` has 20 problems", file=str(tmp_path / "onnxgate.toml"), problems=problems)
    shown = annotations(record, {"GITHUB_WORKSPACE": str(tmp_path)}, capfd)

    assert ("`x1`: wrong", "1") == (shown[0].data, shown[0].properties["line"])
    assert ("12 more problems; see the job summary", 9) == (shown[-1].data, len(shown))


def test_a_file_outside_of_the_workspace_is_not_annotated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """GitHub can only show files of the repository."""
    (tmp_path / "onnxgate.toml").touch()
    (tmp_path / "workspace").mkdir()
    record = ErrorRecord("`onnxgate.toml` is not valid", file=str(tmp_path / "onnxgate.toml"), line=3)
    [said] = annotations(record, {"GITHUB_WORKSPACE": str(tmp_path / "workspace")}, capfd)

    assert Command("error", "`onnxgate.toml` is not valid", {"title": "onnxgate"}) == said


def test_hostile_text_stays_in_its_code_block(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A message can contain anything that a file name or a config can."""
    record = ErrorRecord("`a```\n\n# b`", "x\n::error::owned", traceback="::error::owned\n##[error]owned")
    shown = annotations(record, {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}, capfd)

    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert ["`a```\\n\\n# b`\nhint: x\\n::error::owned"] == [command.data for command in shown]
    assert "````text\nerror: `a```\\n\\n# b`\nhint: x\\n::error::owned\n````\n" in text
