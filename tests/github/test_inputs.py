"""Inputs of the action: the arguments they become, and the values that are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.core.errors import UsageError
from onnxgate.github.step import ResultFiles, build_arguments, input_variable, read_inputs

RESULTS = ResultFiles(Path())
OUTPUT = ["--output", "text", "--output", "json=report.json", "--output", "github=annotations.txt"]
SUMMARY = ["--output", "summary=summary.md"]
PREVIEW = ["--output", "text", "--output", "json=proposal.json", "--output", "markdown=summary.md"]
ALL = ["--fail-on", "error", *OUTPUT, *SUMMARY]

GOLDEN = [
    ({}, ["check", *ALL]),
    ({"command": "check", "summary": "false"}, ["check", "--fail-on", "error", *OUTPUT]),
    ({"stages": "file, lock\nsupport"}, ["check", "--stage=file,lock,support", *ALL]),
    ({"fail-on": "never"}, ["check", "--fail-on", "never", *OUTPUT, *SUMMARY]),
    ({"config": "gate/onnxgate.toml"}, ["check", "--config=gate/onnxgate.toml", *ALL]),
    ({"paths": "b.onnx\n\n  a b.onnx \nb.onnx"}, ["check", *ALL, "--", "b.onnx", "a b.onnx"]),
    ({"paths": "--help"}, ["check", *ALL, "--", "--help"]),
    ({"paths": "models/**/*.onnx"}, ["check", *ALL, "--", "models/deep/y.onnx", "models/x.onnx"]),
    ({"paths": "models/**"}, ["check", *ALL, "--", "models/deep/y.onnx", "models/x.onnx"]),
    ({"paths": "*"}, ["check", *ALL, "--", "models"]),
    ({"against": "origin/main"}, ["check", "--against=origin/main", *ALL]),
    ({"sarif": "true"}, ["check", *ALL, "--output", "sarif=onnxgate.sarif"]),
    ({"html": "true"}, ["check", *ALL, "--output", "html=onnxgate.html"]),
    ({"junit": "true"}, ["check", *ALL, "--output", "junit=onnxgate-junit.xml"]),
    ({"annotations": "false"}, ["check", "--fail-on", "error", *OUTPUT[:-2], *SUMMARY]),
    ({"comment": "never"}, ["check", *ALL]),
    ({"comment": "always"}, ["check", *ALL, "--output", "comment=comment.md"]),
    ({"comment": "on-failure"}, ["check", *ALL, "--output", "comment=comment.md"]),
    ({"command": "merge", "paths": "1.json\n2.json"}, ["merge", *ALL, "--", "1.json", "2.json"]),
    ({"command": "plan", "args": "--shards 4"}, ["plan", "--measured", "--shards", "4"]),
    ({"args": "--offline --jobs '2'"}, ["check", *ALL, "--offline", "--jobs", "2"]),
    ({"command": "lock", "args": "--check"}, ["lock", "--fail-on", "error", "--check"]),
    ({"command": "export", "paths": "m.onnx"}, ["export", "--", "m.onnx"]),
    ({"command": "upgrade"}, ["lock", "--upgrade", "--preview", "--fail-on", "error", *PREVIEW]),
    (
        {"command": "upgrade", "args": "--upgrade onnxruntime", "summary": "false"},
        ["lock", "--preview", "--fail-on", "error", *PREVIEW[:-2], "--upgrade", "onnxruntime"],
    ),
    ({"args": "'; echo PWNED'"}, ["check", *ALL, "; echo PWNED"]),
    ({"paths": "$(touch x); `id`.onnx"}, ["check", *ALL, "--", "$(touch x); `id`.onnx"]),
    ({"config": "a\nb; rm -rf ."}, ["check", "--config=a\nb; rm -rf .", *ALL]),
]

REFUSED = [
    ({"command": "check; echo PWNED"}, "input `command`: unknown value `check; echo PWNED`"),
    ({"command": "--version"}, "input `command`: unknown value `--version`"),
    ({"stages": "file,everything"}, "input `stages`: unknown value `everything`"),
    ({"stages": "file", "command": "lock"}, "input `stages`: only valid for `check`, not for `lock`"),
    ({"fail-on": "Error"}, "input `fail-on`: unknown value `Error`"),
    ({"summary": "yes"}, "input `summary`: unknown value `yes`"),
    ({"sarif": "1"}, "input `sarif`: unknown value `1`"),
    ({"comment": "true"}, "input `comment`: unknown value `true`"),
    ({"html": "report.html"}, "input `html`: unknown value `report.html`"),
    ({"sarif-category": "a"}, "input `sarif-category`: requires `sarif`"),
    (
        {"sarif": "true", "sarif-category": "a\x1bb"},
        "input `sarif-category`: `a\\x1bb` contains unprintable characters",
    ),
    ({"cache": "no"}, "input `cache`: unknown value `no`"),
    ({"against": "--upload-pack=x"}, "input `against`: `--upload-pack=x` looks like an option"),
    ({"against": "a b"}, "input `against`: `a b` is not a git revision"),
    ({"against": "main\x1b[2J"}, "input `against`: `main\x1b[2J` is not a git revision"),
    ({"config": "--help"}, "input `config`: `--help` looks like an option"),
    ({"shard": "5/4"}, "input `shard`: `5/4`; expected `I/N` with I from 1 to N and N from 1 to 256"),
    ({"plan": "plan.json"}, "input `plan`: requires `shard`"),
    ({"shard": "1/2", "plan": "--offline"}, "input `plan`: `--offline` looks like an option"),
    ({"shard": "1/4; id"}, "input `shard`: `1/4; id`; expected `I/N`"),
    ({"shard": "1/2", "comment": "always"}, "input `comment`: a single shard has no verdict"),
    ({"shard": "1/2", "html": "true"}, "input `html`: a single shard has no verdict"),
    ({"shard": "1/2", "command": "merge"}, "input `shard`: only valid for `check`, not for `merge`"),
    ({"against": "main", "command": "lock"}, "input `against`: only valid for `check`, not for `lock`"),
    ({"sarif": "true", "command": "plan"}, "input `sarif`: only valid for `check` and `merge`, not for `plan`"),
    ({"junit": "true", "command": "plan"}, "input `junit`: only valid for `check` and `merge`, not for `plan`"),
    ({"comment": "always", "command": "lock"}, "input `comment`: only valid for `check` and `merge`, not for `lock`"),
    ({"command": "merge"}, "input `paths`: required for `merge`"),
    ({"working-directory": "nowhere"}, "input `working-directory`: folder `nowhere` does not exist"),
    ({"paths": "models/*.pt"}, "input `paths`: no file matches `models/*.pt`"),
    ({"args": "'open"}, "input `args`: invalid quoting: no closing quotation"),
    ({"args": "--offline -- x.onnx"}, "input `args`: `--` is not supported"),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Create a checkout with two models, and a folder without any."""
    (tmp_path / "models" / "deep").mkdir(parents=True)
    for name in ("models/x.onnx", "models/deep/y.onnx"):
        (tmp_path / name).touch()
    (tmp_path / "docs").mkdir()
    return tmp_path


def environment(workspace: Path, inputs: dict[str, str]) -> dict[str, str]:
    """Return the environment variables of the action's step."""
    named = {input_variable(name): value for name, value in inputs.items()}
    return {"GITHUB_WORKSPACE": str(workspace), "GITHUB_EVENT_NAME": "pull_request", **named}


@pytest.mark.parametrize(("inputs", "expected"), GOLDEN, ids=lambda value: str(value)[:40])
def test_inputs_become_arguments(workspace: Path, inputs: dict[str, str], expected: list[str]) -> None:
    """Each input becomes separate arguments, whatever characters it contains."""
    actual = build_arguments(read_inputs(environment(workspace, inputs)), RESULTS)

    assert expected == actual


@pytest.mark.parametrize(("inputs", "expected"), REFUSED, ids=lambda value: str(value)[:40])
def test_invalid_input_is_rejected(workspace: Path, inputs: dict[str, str], expected: str) -> None:
    """The error for an invalid value names the input."""
    with pytest.raises(UsageError) as refused:
        read_inputs(environment(workspace, inputs))

    assert expected == refused.value.message


def test_paths_are_relative_to_the_working_directory(workspace: Path) -> None:
    """Globs are resolved in the command's working directory."""
    inputs = read_inputs(environment(workspace, {"working-directory": "models", "paths": "*.onnx"}))

    assert (("x.onnx",), workspace / "models") == (inputs.paths, inputs.folder)


@pytest.mark.parametrize("given", [{}, {"working-directory": "models"}, {"paths": "*.onnx"}])
def test_an_empty_workspace_has_no_checkout(tmp_path: Path, given: dict[str, str]) -> None:
    """A workflow without `actions/checkout` is told so, instead of that a config, a folder or a file is missing."""
    with pytest.raises(UsageError, match="the workspace is empty") as refused:
        read_inputs(environment(tmp_path, given))

    assert refused.value.hint == "check out the repository with `actions/checkout` before this step"


def test_pull_request_target_is_refused(workspace: Path) -> None:
    """The repository's own code must not run in a job with access to secrets."""
    with pytest.raises(UsageError, match="`pull_request_target`"):
        read_inputs({**environment(workspace, {}), "GITHUB_EVENT_NAME": "pull_request_target"})


@pytest.mark.parametrize("plan", ["", "plan.json"])
def test_shard_writes_only_a_report(workspace: Path, plan: str) -> None:
    """The merge writes annotations and the summary; the shards' reports have different names."""
    inputs = read_inputs(environment(workspace, {"shard": "2/4", "plan": plan, "sarif": "true"}))
    actual = build_arguments(inputs, ResultFiles(Path(), inputs.shard))
    named = ["json=onnxgate-2-of-4.json", "sarif=onnxgate.sarif"]

    expected = [word for output in ("text", *named) for word in ("--output", output)]
    shard = ["--shard=2/4", *([f"--plan={plan}"] if plan else [])]
    assert ["check", *shard, "--fail-on", "error", *expected] == actual
