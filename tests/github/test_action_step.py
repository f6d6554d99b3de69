"""The action's own step with commands that produce excessive, false, missing or hostile output."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from onnxgate.core.report import Finding, NotDone, Report, ReportedPlace
from onnxgate.github import action
from onnxgate.github.protection import COMMAND_FILES
from tests.harness.github.actions_engine import key_values
from tests.harness.github.workflow_commands import Command, commands

HOSTILE = [
    "::error::owned",
    "  ::set-output name=verdict::pass",
    "text ##[error]owned",
    "a\r::add-path::/evil",
    "\x1b[31m",
]
PRELUDE = """
import json, os, pathlib, signal, sys
names = ("json=", "github=", "summary=", "html=", "junit=", "sarif=", "comment=", "markdown=")
files = dict(word.split("=", 1) for word in sys.argv if word.startswith(names))
def write(name, text):
    pathlib.Path(files[name]).write_text(text, encoding="utf-8")
def write_error(message, hint=""):
    pathlib.Path(os.environ["ONNXGATE_ERROR_FILE"]).write_text(json.dumps([message, hint]), encoding="utf-8")
"""


def report(verdict: str, status: int, *levels: str) -> str:
    """Return a report with a finding for each level, the last of which is ignored, and one incomplete check."""
    listed = {"findings": tuple(finding(level, ignored=number == 2) for number, level in enumerate(levels))}
    listed["undecided"] = (NotDone(stage="runtime", model="m.onnx", runtime="", reason="no index"),)
    empty = dict.fromkeys(("stages", "models", "runtimes", "cells", "skipped", "measured"), ())
    words = dict.fromkeys(("onnxgate", "folder", "scope"), "")
    return msgspec.json.encode(Report(verdict=verdict, exit=status, counts={}, **words, **listed, **empty)).decode()


def finding(level: str, *, ignored: bool) -> Finding:
    """Return a finding of that level."""
    words = dict.fromkeys(("stage", "message", "fix", "node", "works_since", "works_until", "fingerprint"), "")
    about = {"rule": "r", "model": "m.onnx", "runtimes": (), "place": ReportedPlace(path="onnxgate.lock", line=3)}
    return Finding(level=level, confirmed=False, ignored="old" if ignored else "", **about, **words)


class Step:
    """The action's step with a script in place of the command."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.python = sys.executable
        self.environment = {"GITHUB_WORKSPACE": str(folder), "RUNNER_TEMP": str(folder), "PATH": "/usr/bin:/bin"}
        self.environment |= {name: str(folder / name) for name in COMMAND_FILES}

    def run(self, script: str, **inputs: str) -> dict[str, str]:
        """Run the step, which exits with the status that it outputs, and return its outputs."""
        program = self.folder / "python"
        program.write_text(f"#!{self.python}\n{PRELUDE}{textwrap.dedent(script)}", encoding="utf-8")
        program.chmod(0o755)
        for name, value in {**self.environment, **inputs}.items():
            self.monkeypatch.setenv(name, value)
        self.monkeypatch.setattr(sys, "executable", str(program))
        with pytest.raises(SystemExit) as ended:
            action.main()
        outputs = key_values((self.folder / "GITHUB_OUTPUT").read_text(encoding="utf-8"))
        assert outputs["exit-code"] == str(ended.value.code)
        return outputs


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Step:
    """Return a step in its own folder."""
    return Step(tmp_path, monkeypatch)


def test_a_report_becomes_outputs(step: Step, tmp_path: Path) -> None:
    """Verdict, status and counts are those of the report; ignored findings are not counted."""
    outputs = step.run(f"write('json', {report('fail', 1, 'error', 'warning', 'error')!r}); sys.exit(1)")

    path = outputs.pop("report")
    expected = {"verdict": "fail", "exit-code": "1", "errors": "1", "warnings": "1", "undecided": "1"}
    assert (expected, True) == ({name: outputs[name] for name in expected}, Path(path).is_relative_to(tmp_path))


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
    """The verdict of a report is used only if the exit status agrees with it."""
    outputs = step.run(script)

    assert (verdict, status) == (outputs["verdict"], outputs["exit-code"])


@pytest.mark.parametrize(("status", "verdict"), [(0, "pass"), (1, "fail"), (3, "undecided")])
def test_a_command_without_report_is_judged_by_its_status(step: Step, status: int, verdict: str) -> None:
    """`lock --check` writes no report; its exit status alone determines the result."""
    outputs = step.run(f"sys.exit({status})", ONNXGATE_INPUT_COMMAND="lock", ONNXGATE_INPUT_ARGS="--check")

    assert (str(status), verdict, "") == (outputs["exit-code"], outputs["verdict"], outputs["report"])


@pytest.mark.parametrize(("status", "verdict"), [(0, "pass"), (1, "fail"), (3, "undecided")])
def test_preview_of_an_upgrade_is_an_output(step: Step, tmp_path: Path, status: int, verdict: str) -> None:
    """The step passes if there is a preview, so that a pull request can show what would break."""
    script = f"write('json', '{{}}'); write('markdown', 'preview'); sys.exit({status})"
    outputs = step.run(script, ONNXGATE_INPUT_COMMAND="upgrade")

    assert ("0", verdict) == (outputs["exit-code"], outputs["verdict"])
    assert Path(outputs["proposal"]).name == "proposal.json"
    assert "## onnxgate upgrade\n\npreview" == (tmp_path / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "script",
    [
        "sys.exit(3)",
        "sys.exit(0)",
        "write('json', '{}'); sys.exit(2)",
        "write('json', '{}'); write_error('disk is full'); sys.exit(3)",
        "write('json', '{}'); os.kill(os.getpid(), signal.SIGKILL)",
        "write('json', '{}'); pathlib.Path('GITHUB_ENV').write_text('A=1')",
    ],
    ids=["no index", "nothing written", "usage", "error", "killed", "attack"],
)
def test_incomplete_preview_fails_the_step(step: Step, script: str) -> None:
    """Without a complete preview, there is no proposal."""
    outputs = step.run(f"os.chdir({str(step.folder)!r}); {script}", ONNXGATE_INPUT_COMMAND="upgrade")

    assert (outputs["verdict"], outputs["proposal"]) == ("undecided", "")
    assert outputs["exit-code"] != "0"


def test_printed_text_is_not_executed(step: Step, capfd: pytest.CaptureFixture[str]) -> None:
    """Hostile text in either output stream is shown in the log but not executed as a command."""
    step.run(f"""
        print(*{HOSTILE!r}, sep="\\n")
        print(*{HOSTILE!r}, sep="\\n", file=sys.stderr)
        write("json", {report("pass", 0)!r})
    """)

    log = capfd.readouterr().out
    assert list(commands(log)) == []
    assert "owned" in log
    assert "\x1b" not in log


def test_bug_reports_are_printed(step: Step, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The runner is discarded, so the log contains each new bug report once. Links and old files are not read."""
    folder = tmp_path / "cache" / "bugs"
    folder.mkdir(parents=True)
    (folder / "old.txt").write_text("an old report", encoding="utf-8")
    os.utime(folder / "old.txt", (0, 0))
    (tmp_path / "secret").write_text("a secret", encoding="utf-8")
    step.environment["ONNXGATE_CACHE_DIR"] = str(tmp_path / "cache")
    step.run(f"""
        folder = pathlib.Path(os.environ["ONNXGATE_CACHE_DIR"]) / "bugs"
        (folder / "a.txt").write_text("onnxgate 0.1\\n::error::owned\\nTraceback of a model\\n")
        (folder / "b.txt").write_text("onnxgate 0.1\\nTraceback of the command\\n")
        (folder / "link.txt").symlink_to({str(tmp_path / "secret")!r})
        pathlib.Path(os.environ["ONNXGATE_ERROR_FILE"]).write_text(
            json.dumps(["a bug", "", "", 0, [], "Traceback of the command\\n"])
        )
        write("json", {report("undecided", 3)!r})
        sys.exit(3)
    """)

    log = capfd.readouterr().out
    names = [command.data for command in commands(log) if command.name == "group"]
    assert ["Bug report a.txt", "Bug report b.txt"] == names
    assert [1, 1, 0, 0] == [
        log.count(text) for text in ("Traceback of a model", "Traceback of the command", "secret", "an old report")
    ]
    assert "owned" not in [command.data for command in commands(log)]


def test_annotations_and_summary_are_published(step: Step, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The output of the `github` and `summary` formats is published unchanged."""
    step.run(f"""
        write("github", "::error file=a.py,line=3::broken\\n")
        write("summary", "| models |\\n")
        write("json", {report("pass", 0)!r})
    """)

    shown = list(commands(capfd.readouterr().out))
    summary = (tmp_path / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8")
    assert ([Command("error", "broken", {"file": "a.py", "line": "3"})], "| models |\n") == (shown, summary)


def test_the_command_cannot_reach_the_runners_files(step: Step) -> None:
    """The command runs the repository's code, so it must not know the paths of the runner's command files."""
    outputs = step.run(f"""
        for name in {COMMAND_FILES!r}:
            assert name not in os.environ, name
        assert os.environ["NO_COLOR"]
        write("json", {report("pass", 0)!r})
    """)

    assert outputs["verdict"] == "pass"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"GITHUB_EVENT_NAME": "pull_request_target"}, "`pull_request_target`"),
        ({"ONNXGATE_INPUT_COMMAND": "plans"}, "unknown value `plans`"),
        ({"ONNXGATE_INPUT_COMMAND": "x\n::error::owned"}, r"unknown value `x\n::error::owned`"),
    ],
)
def test_a_refused_input_is_annotated(
    step: Step, capfd: pytest.CaptureFixture[str], inputs: dict[str, str], message: str
) -> None:
    """An invalid input gives one annotation and a failed step; the command is not run."""
    outputs = step.run("print('ran')", **inputs)

    log = capfd.readouterr().out
    [said] = commands(log)
    assert (outputs["exit-code"], outputs["verdict"], said.name) == ("2", "undecided", "error")
    assert message in said.data
    assert "ran" not in log


def test_config_error_is_annotated(step: Step, capfd: pytest.CaptureFixture[str]) -> None:
    """An error in the config is shown in the annotations, with its hint."""
    step.run("write_error('`targets` is empty', 'add one 100%'); sys.exit(2)")

    expected = Command("error", "`targets` is empty\nhint: add one 100%", {"title": "onnxgate"})
    assert [expected] == list(commands(capfd.readouterr().out))


@pytest.mark.parametrize("command", ["lock", "export"])
def test_a_command_that_checks_no_model_is_named(step: Step, tmp_path: Path, command: str) -> None:
    """A workflow that only locks must not look like one that checks."""
    step.run("sys.exit(0)", ONNXGATE_INPUT_COMMAND=command)

    assert f"no model was checked, because the workflow sets `command: {command}`" in (
        tmp_path / "GITHUB_STEP_SUMMARY"
    ).read_text(encoding="utf-8")


def test_an_error_replaces_an_earlier_comment(step: Step) -> None:
    """The comment of an earlier push would look like the verdict of this one."""
    outputs = step.run("write_error('`targets` is empty'); sys.exit(2)", ONNXGATE_INPUT_COMMENT="always")

    assert "error: `targets` is empty" in Path(outputs["comment-file"]).read_text(encoding="utf-8")


def test_a_killed_command_is_annotated(step: Step, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A command that cannot write an error has an annotation and a summary, too."""
    step.run("os.kill(os.getpid(), signal.SIGKILL)")

    [said] = commands(capfd.readouterr().out)
    message = "onnxgate exited with status 137 without a verdict\nhint: the runner may have run out of memory"
    assert message == said.data
    assert message.splitlines()[0] in (tmp_path / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8")


def test_an_error_next_to_a_report_is_annotated(step: Step, capfd: pytest.CaptureFixture[str]) -> None:
    """A report that could not be written in one format is not silent."""
    outputs = step.run(f"write('json', {report('pass', 0)!r}); write_error('disk is full'); sys.exit(3)")

    assert (["disk is full"], "undecided", "3") == (
        [said.data for said in commands(capfd.readouterr().out)],
        outputs["verdict"],
        outputs["exit-code"],
    )


def test_a_bug_in_the_action_has_a_traceback_in_a_group(step: Step, capfd: pytest.CaptureFixture[str]) -> None:
    """A bug is an output, an annotation that states where to report it, and a traceback in the log."""
    outputs = step.run("write('json', 'not a report')")

    log = capfd.readouterr().out
    said = [command for command in commands(log) if command.name == "error"]
    assert ("undecided", "3") == (outputs["verdict"], outputs["exit-code"])
    assert ["this is a bug in onnxgate"] == [command.data.split(":")[0] for command in said]
    assert "https://github.com/onnxgate/onnxgate/issues" in said[0].data
    assert "::group::Traceback\nTraceback (most recent call last):\n" in log


@pytest.mark.parametrize(
    ("printed", "matrix", "count"),
    [
        ('{"include": [{"shard": "1/2", "of": 2, "paths": ["a.onnx"]}, {"shard": "2/2", "of": 2}]}', 2, "2"),
        ('{\n "include": []\n}', 0, "0"),
    ],
)
def test_a_plan_becomes_a_matrix_on_one_line(step: Step, printed: str, matrix: int, count: str) -> None:
    """Standard error is not part of the matrix; the paths are only in the plan's file."""
    outputs = step.run(f"print('busy', file=sys.stderr); print({printed!r})", ONNXGATE_INPUT_COMMAND="plan")

    assert ("pass", "0", count) == (outputs["verdict"], outputs["exit-code"], outputs["count"])
    assert matrix == len(json.loads(outputs["matrix"])["include"])
    assert "\n" not in outputs["matrix"]
    assert "paths" not in outputs["matrix"]
    assert json.loads(printed) == json.loads(Path(outputs["plan"]).read_text(encoding="utf-8"))


TOO_MANY = json.dumps({"include": [{"shard": "1/257"}] * 257})


@pytest.mark.parametrize(
    "printed",
    ["", "no json", "[]", '{"include": 3}', '{"included": []}', '{"include": [], "max": []}', TOO_MANY],
    ids=["nothing", "text", "list", "number", "other key", "two keys", "too many"],
)
def test_invalid_plan_output_starts_no_jobs(step: Step, capfd: pytest.CaptureFixture[str], printed: str) -> None:
    """Invalid output of `plan` starts no jobs, and the error is annotated."""
    outputs = step.run(f"print({printed!r})", ONNXGATE_INPUT_COMMAND="plan")

    [said] = commands(capfd.readouterr().out)
    assert ("undecided", "3", "", "") == tuple(outputs[name] for name in ("verdict", "exit-code", "matrix", "count"))
    assert said.data.startswith("`onnxgate plan` printed an invalid job matrix")


def test_plan_error_is_annotated(step: Step, capfd: pytest.CaptureFixture[str]) -> None:
    """The error of `plan` is annotated."""
    outputs = step.run("write_error('no config'); sys.exit(2)", ONNXGATE_INPUT_COMMAND="plan")

    assert (outputs["exit-code"], outputs["matrix"]) == ("2", "")
    assert ["no config"] == [said.data for said in commands(capfd.readouterr().out)]


def test_written_files_are_step_outputs(step: Step, tmp_path: Path) -> None:
    """Files for code scanning and the comment are step outputs; files of different projects have different names."""
    (tmp_path / "models" / "a").mkdir(parents=True)
    outputs = step.run(
        f"write('json', {report('fail', 1, 'error')!r}); write('sarif', '{{}}'); write('comment', 'x'); sys.exit(1)",
        ONNXGATE_INPUT_SARIF="true",
        ONNXGATE_INPUT_COMMENT="always",
        ONNXGATE_INPUT_WORKING_DIRECTORY="models/a",
    )

    assert "{}" == Path(outputs["sarif-file"]).read_text(encoding="utf-8")
    assert "x" == Path(outputs["comment-file"]).read_text(encoding="utf-8")
    assert ("onnxgate-models_a", "models/a") == (outputs["sarif-category"], outputs["comment-subject"])


@pytest.mark.parametrize(("verdict", "status", "expected"), [("pass", 0, "3"), ("fail", 1, "1")])
def test_nothing_is_published_after_an_attack(
    step: Step, capfd: pytest.CaptureFixture[str], verdict: str, status: int, expected: str
) -> None:
    """The step that posts the comment would run with the token, and the files to upload may be forged."""
    outputs = step.run(
        f"""
        pathlib.Path({str(step.folder / "GITHUB_ENV")!r}).write_text("A=1")
        for name, text in (("json", {report(verdict, status)!r}), ("sarif", "{{}}"), ("comment", "x")):
            write(name, text)
        sys.exit({status})
        """,
        ONNXGATE_INPUT_SARIF="true",
        ONNXGATE_INPUT_COMMENT="always",
    )

    used_later = {outputs[name] for name in ("sarif-file", "comment-file", "keep", "results-key")}
    assert (expected, {""}) == (outputs["exit-code"], used_later)
    [problem] = commands(capfd.readouterr().out)
    assert "code of the repository wrote to the runner's command files `GITHUB_ENV`" in problem.data
    assert (step.folder / "GITHUB_ENV").read_text(encoding="utf-8") == ""


def test_a_shard_has_a_category_of_its_own(step: Step) -> None:
    """Code scanning rejects two files with the same category in one run."""
    shard = {"ONNXGATE_INPUT_SHARD": "2/4", "ONNXGATE_INPUT_SARIF": "true"}
    outputs = step.run(f"write('json', {report('pass', 0)!r}); write('sarif', '')", **shard)

    assert ("onnxgate-2-of-4", "", "") == (
        outputs["sarif-category"],
        outputs["sarif-file"],
        outputs["comment-file"],
    )
    assert "onnxgate-2-of-4.json" == Path(outputs["report"]).name


WEAKENED = report("pass", 0, "warning").replace('"rule":"r"', '"rule":"policy-weakened"')


@pytest.mark.parametrize(
    ("mode", "message", "silent"),
    [
        ("on-failure", report("pass", 0), "true"),
        ("on-failure", report("pass", 0, "warning"), "true"),
        ("on-failure", WEAKENED, "false"),
        ("on-failure", report("fail", 1, "error"), "false"),
        ("on-failure", report("undecided", 3), "false"),
        ("always", report("pass", 0), "false"),
    ],
)
def test_when_a_first_comment_is_created(step: Step, mode: str, message: str, silent: str) -> None:
    """With `on-failure`, no comment is created for a pass, unless the policy was weakened."""
    status = msgspec.json.decode(message)["exit"]
    script = f"write('json', {message!r}); write('comment', 'x'); sys.exit({status})"

    assert silent == step.run(script, ONNXGATE_INPUT_COMMENT=mode)["silent"]


def test_what_changed_since_the_baseline_is_an_output(step: Step) -> None:
    """Later steps can require a review if a model changed or the policy was weakened."""
    changed = WEAKENED.replace('"changes":[]', '"changes":[{"model":"m.onnx","kind":"changed"}]')
    changed = changed.replace('"against":null', f'"against":{{"name":"main","commit":"{"a" * 40}"}}')
    without = step.run(f"write('json', {report('pass', 0)!r})")
    outputs = step.run(f"write('json', {changed!r})")
    names = ("policy-weakened", "changed-models", "baseline")

    assert ("0", "0", "") == tuple(without[name] for name in names)
    assert ("1", "1", "a" * 40) == tuple(outputs[name] for name in names)


def test_report_files_are_outputs(step: Step) -> None:
    """The paths of the HTML and JUnit reports are outputs, so that later steps can upload the files."""
    script = f"write('json', {report('pass', 0)!r}); write('html', 'page'); write('junit', 'xml')"
    outputs = step.run(script, ONNXGATE_INPUT_HTML="true", ONNXGATE_INPUT_JUNIT="true")

    assert "page" == Path(outputs["html-file"]).read_text(encoding="utf-8")
    assert "xml" == Path(outputs["junit-file"]).read_text(encoding="utf-8")


def test_the_category_can_be_chosen(step: Step) -> None:
    """The input replaces the default category, but each shard still has its own."""
    category = {"ONNXGATE_INPUT_SARIF": "true", "ONNXGATE_INPUT_SARIF_CATEGORY": "models"}
    script = f"write('json', {report('pass', 0)!r})"

    assert "models" == step.run(script, **category)["sarif-category"]
    assert "models-2-of-4" == step.run(script, **category, ONNXGATE_INPUT_SHARD="2/4")["sarif-category"]
