"""The action's own step against commands that flood, lie, crash and shout."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from onnxgate.cli import action
from onnxgate.report import Finding, NotDone, Report, ReportedPlace
from tests.github.commands import Command, commands
from tests.github.engine import key_values

HOSTILE = [
    "::error::owned",
    "  ::set-output name=verdict::pass",
    "text ##[error]owned",
    "a\r::add-path::/evil",
    "\x1b[31m",
]
PRELUDE = """
import os, pathlib, signal, sys
files = dict(word.split("=", 1) for word in sys.argv if word.startswith(("json=", "github=", "summary=")))
def write(name, text):
    pathlib.Path(files[name]).write_text(text, encoding="utf-8")
"""


def report(verdict: str, status: int, *levels: str) -> str:
    """A report with a finding of each level, the last one ignored, and one thing undecided."""
    listed = {"findings": tuple(finding(level, ignored=number == 2) for number, level in enumerate(levels))}
    listed["undecided"] = (NotDone(stage="runtime", model="m.onnx", runtime="", reason="no index"),)
    empty = dict.fromkeys(("stages", "models", "runtimes", "cells", "skipped", "measured"), ())
    words = dict.fromkeys(("onnxgate", "folder", "scope"), "")
    return msgspec.json.encode(Report(verdict=verdict, exit=status, counts={}, **words, **listed, **empty)).decode()


def finding(level: str, *, ignored: bool) -> Finding:
    """A finding of that level."""
    words = dict.fromkeys(("stage", "message", "fix", "node", "works_since", "works_until", "fingerprint"), "")
    about = {"rule": "r", "model": "m.onnx", "runtimes": (), "place": ReportedPlace(path="onnxgate.lock", line=3)}
    return Finding(level=level, confirmed=False, ignored="old" if ignored else "", **about, **words)


class Step:
    """The action's step with a script in the place of the command."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.python = sys.executable
        self.environment = {"GITHUB_WORKSPACE": str(folder), "RUNNER_TEMP": str(folder), "PATH": "/usr/bin:/bin"}
        self.environment |= {name: str(folder / name) for name in action.COMMAND_FILES}

    def run(self, script: str, **inputs: str) -> dict[str, str]:
        """The outputs that the step writes."""
        program = self.folder / "python"
        program.write_text(f"#!{self.python}\n{PRELUDE}{textwrap.dedent(script)}", encoding="utf-8")
        program.chmod(0o755)
        for name, value in {**self.environment, **inputs}.items():
            self.monkeypatch.setenv(name, value)
        self.monkeypatch.setattr(sys, "executable", str(program))
        action.main()
        return key_values((self.folder / "GITHUB_OUTPUT").read_text(encoding="utf-8"))


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Step:
    """A step in a folder of its own."""
    return Step(tmp_path, monkeypatch)


def test_a_report_becomes_outputs(step: Step, tmp_path: Path) -> None:
    """Verdict, status and counts are those of the report; what is ignored does not count."""
    outputs = step.run(f"write('json', {report('fail', 1, 'error', 'warning', 'error')!r}); sys.exit(1)")

    path = outputs.pop("report")
    expected = {"verdict": "fail", "exit-code": "1", "errors": "1", "warnings": "1", "undecided": "1"}
    assert (expected, True) == (outputs, Path(path).is_relative_to(tmp_path))


@pytest.mark.parametrize(
    ("script", "verdict", "status"),
    [
        ("", "undecided", "3"),
        ("sys.exit(2)", "undecided", "2"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "undecided", "137"),
        (f"write('json', {report('pass', 0)!r}); sys.exit(1)", "undecided", "1"),
        (f"write('json', {report('fail', 1)!r})", "undecided", "3"),
        (f"write('json', {report('pass', 0)!r})", "pass", "0"),
    ],
    ids=["no report", "usage", "killed", "passes but ends with 1", "fails but ends with 0", "pass"],
)
def test_only_a_report_that_agrees_is_a_pass(step: Step, script: str, verdict: str, status: str) -> None:
    """Whatever the command leaves, the gate opens on a report that says so and on nothing else."""
    outputs = step.run(script)

    assert (verdict, status) == (outputs["verdict"], outputs["exit-code"])


@pytest.mark.parametrize(("status", "verdict"), [(0, "pass"), (1, "fail"), (3, "undecided")])
def test_a_command_without_report_is_judged_by_its_status(step: Step, status: int, verdict: str) -> None:
    """`lock --check` says by its status alone what it found."""
    outputs = step.run(f"sys.exit({status})", ONNXGATE_INPUT_COMMAND="lock", ONNXGATE_INPUT_ARGS="--check")

    assert (str(status), verdict, "") == (outputs["exit-code"], outputs["verdict"], outputs["report"])


def test_nothing_that_is_printed_is_obeyed(step: Step, capfd: pytest.CaptureFixture[str]) -> None:
    """The command's log shows hostile text and gives it no power, on either stream."""
    step.run(f"""
        print(*{HOSTILE!r}, sep="\\n")
        print(*{HOSTILE!r}, sep="\\n", file=sys.stderr)
        write("json", {report("pass", 0)!r})
    """)

    log = capfd.readouterr().out
    assert list(commands(log)) == []
    assert "owned" in log
    assert "\x1b" not in log


def test_annotations_and_summary_are_published(step: Step, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What the formats wrote for GitHub is handed on as it is."""
    step.run(f"""
        write("github", "::error file=a.py,line=3::broken\\n")
        write("summary", "| models |\\n")
        write("json", {report("pass", 0)!r})
    """)

    shown = list(commands(capfd.readouterr().out))
    summary = (tmp_path / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8")
    assert ([Command("error", "broken", {"file": "a.py", "line": "3"})], "| models |\n") == (shown, summary)


def test_the_command_cannot_reach_the_runners_files(step: Step) -> None:
    """The repository's own code runs below the command; the runner's command files are not named to it."""
    outputs = step.run(f"""
        for name in {action.COMMAND_FILES!r}:
            assert name not in os.environ, name
        assert os.environ["NO_COLOR"]
        write("json", {report("pass", 0)!r})
    """)

    assert outputs["verdict"] == "pass"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"GITHUB_EVENT_NAME": "pull_request_target"}, "`pull_request_target`"),
        ({"ONNXGATE_INPUT_COMMAND": "plan"}, "`plan` is not available in this release"),
        ({"ONNXGATE_INPUT_COMMAND": "x\n::error::owned"}, r"unknown value `x\n::error::owned`"),
    ],
)
def test_a_refused_input_is_annotated(
    step: Step, capfd: pytest.CaptureFixture[str], inputs: dict[str, str], message: str
) -> None:
    """A refusal is one annotation, and the gate is closed; the command is not run."""
    outputs = step.run("print('ran')", **inputs)

    log = capfd.readouterr().out
    [said] = commands(log)
    assert (outputs["exit-code"], outputs["verdict"], said.name) == ("2", "undecided", "error")
    assert message in said.data
    assert "ran" not in log


def test_an_error_of_the_command_is_annotated_in_its_own_words(step: Step, capfd: pytest.CaptureFixture[str]) -> None:
    """Who reads only the annotations learns what is wrong with the config."""
    step.run("print('error: `targets` is empty\\nhint: add one 100%', file=sys.stderr); sys.exit(2)")

    expected = Command("error", "error: `targets` is empty\nhint: add one 100%", {"title": "onnxgate"})
    assert [expected] == list(commands(capfd.readouterr().out))
