"""`onnxgate explain --log`."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from onnxgate.cli.explain import command
from onnxgate.core.errors import UsageError

IR = "onnxruntime.Fail: [ONNXRuntimeError] : 1 : FAIL : Unsupported model IR version: 13, max supported IR version: 9"
FEED = [
    "InvalidArgument: [ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions for input: x for the following"
    " indices",
    " index: 0 Got: 3 Expected: 2",
    " Please fix either the inputs or the model.",
]


def run(*arguments: str, log: str | bytes = "") -> Result:
    """Run the command with a log on standard input."""
    return CliRunner().invoke(command, list(arguments), input=log, standalone_mode=False)


def explain_errors(log: str | bytes) -> dict[str, dict[str, object]]:
    """Return the errors of the JSON output by name."""
    answer = json.loads(run("--log", "-", "--output", "json", log=log).output)
    return {error["name"]: error for error in answer["errors"]}


def test_an_error_with_numbers_filled_in() -> None:
    """The fix and the affected releases are computed from the support data."""
    result = run("--log", "-", log=f"hello\n{IR}\n")

    assert result.return_value == 0
    assert result.output == (
        "1. ir-version-too-new (line 2)\n"
        f"   text:     {IR}\n"
        "   meaning:  the model uses IR version 13; this ONNX Runtime release supports up to 9\n"
        "   cause:    the model was saved with a newer `onnx` package\n"
        "   fix:      upgrade to onnxruntime 1.24.1 or newer, or lower the IR version to 9 with `onnxgate fix`\n"
        "   affected: onnxruntime before 1.24.1\n"
        "   see also: `onnxgate explain ir-version-too-new`\n"
        "\n"
        "2 lines: 1 known error, 0 unrecognized error lines\n"
    )


def test_repeats_are_one_error() -> None:
    """Repeated errors are counted; the same error with different names is a separate error."""
    log = "\n".join([IR, "x", IR, IR.replace("13", "11")])
    answer = json.loads(run("--log", "-", "--output", "json", log=log).output)

    assert [(error["count"], error["lines"]) for error in answer["errors"]] == [(2, [1, 3]), (1, [4])]


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "E   ",
        "2026-01-01T00:00:00.0000000Z ",
        "2026-01-01T00:00:00.0000000Z E       ",
        "2026-01-01 00:00:00,123 ",
        "[2026-01-01T00:00:00.000Z] ",
        "build\tRun tests\t2026-01-01T00:00:00.0000000Z ",
        "api_1  | ",
        "#12 3.456 ",
        "\x1b[31m",
        "│ ",
        "2026-01-01T00:00:00.0000000Z ##[error]",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_prefixes(prefix: str, end: str) -> None:
    """A message over several lines is found, whatever prefix each line has."""
    errors = explain_errors("".join(f"{prefix}{line}{end}" for line in FEED))

    assert list(errors) == ["input-dimension-wrong"]
    assert errors["input-dimension-wrong"]["means"] == "input `x` has size 3 on axis 0; the model requires 2"


@pytest.mark.parametrize(
    "log",
    [
        json.dumps({"level": "error", "msg": "\n".join(["boom", *FEED])}),
        "\n".join(textwrap.fill(line, 40) for line in FEED),
        "\n".join(FEED).encode("utf-16"),
        b"\xff\xfe"[:0] + "\n".join(FEED).encode() + b"\n\xff\xff",
    ],
    ids=["json", "wrapped", "utf-16", "not utf-8"],
)
def test_encodings(log: str | bytes) -> None:
    """Logs may contain JSON lines, wrapped lines, UTF-16 (as written by PowerShell) or invalid UTF-8."""
    assert list(explain_errors(log)) == ["input-dimension-wrong"]


def test_unknown_errors() -> None:
    """Unknown errors are counted, and the first ones are shown; without a known error, the exit status is 3."""
    some = run("--log", "-", log=f"{IR}\nAcmeError: no idea\n" + "ValueError: x\n" * 9)
    alone = run("--log", "-", log="AcmeError: no idea\n")

    assert "   line 2: AcmeError: no idea\n" in some.output
    assert some.output.endswith("   and 5 more\n\n11 lines: 1 known error, 10 unrecognized error lines\n")
    assert (some.return_value, alone.return_value) == (0, 3)


@pytest.mark.parametrize("log", ["all is well\n", "\nerrors: 0\n"])
def test_a_log_without_errors(log: str) -> None:
    """The summary reports that the log has no errors."""
    result = run("--log", "-", log=log)

    assert result.return_value == 0
    assert result.output.endswith(": no errors found\n")


@pytest.mark.parametrize("log", ["", "\n\n"])
def test_an_empty_log(log: str) -> None:
    """An empty log is reported as empty, not as a log without errors."""
    assert run("--log", "-", log=log).output == "the log is empty; the command that writes it may have failed\n"


@pytest.mark.parametrize(
    "line",
    [
        "##[error]Process completed with exit code 1.",
        "_____ ERROR collecting tests/test_export.py _____",
        "FAILED tests/test_export.py::test_load - capi.onnxruntime_pybind11_state.Fail: [ONNXRuntimeError]...",
    ],
)
def test_consequences_of_an_error_are_not_unknown(line: str) -> None:
    """Exit statuses and names of tests are not errors themselves."""
    result = run("--log", "-", log=f"{IR}\n{line}\n")

    assert result.output.endswith(", 0 unrecognized error lines\n")


def test_files(tmp_path: Path) -> None:
    """The log can be read from a file, and the output written to one."""
    (tmp_path / "ci.log").write_text(IR)
    result = run("--log", str(tmp_path / "ci.log"), "--output", f"json={tmp_path / 'out.json'}")

    assert result.return_value == 0
    assert json.loads((tmp_path / "out.json").read_bytes())["errors"][0]["rules"] == ["ir-version-too-new"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--log", "nope.log"], "cannot read `nope.log`: No such file or directory"),
        (["--log", "."], "cannot read `.`: Is a directory"),
        (["--log", "-", "missing-kernel"], "RULE and `--log` cannot be combined"),
        (["--output", "json"], "`--output` requires `--log`"),
    ],
)
def test_usage(arguments: list[str], message: str) -> None:
    """Usage errors end with status 2."""
    with pytest.raises(UsageError) as error:
        command.main(arguments, standalone_mode=False)

    assert (error.value.exit_code, error.value.message) == (2, message)
