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
    """The command in a folder without a project, with a log on standard input."""
    return CliRunner().invoke(command, list(arguments), input=log, standalone_mode=False)


def found(log: str | bytes) -> dict[str, dict[str, object]]:
    """The errors by name, as JSON says them."""
    said = json.loads(run("--log", "-", "--output", "json", log=log).output)
    return {error["name"]: error for error in said["errors"]}


def test_an_error_with_numbers_filled_in() -> None:
    """Cause, fix, releases and rule, computed from the support data."""
    result = run("--log", "-", log=f"hello\n{IR}\n")

    assert result.return_value == 0
    assert result.output == (
        "1. ir-version-too-new (line 2)\n"
        f"   says:      {IR}\n"
        "   means:     the model is stamped with IR version 13, newer than this release reads\n"
        "   why:       the `onnx` package that wrote it is newer than the runtime; the IR version alone says nothing"
        " about operators\n"
        "   fix:       works since onnxruntime 1.24.1; or stamp the IR version down to 9 with `onnxgate fix`\n"
        "   affected:  onnxruntime before 1.24.1\n"
        "   read more: `onnxgate explain ir-version-too-new`\n"
        "\n"
        "2 lines: 1 error explained; none unknown\n"
    )


def test_repeats_are_one_error() -> None:
    """With the number of times and the first lines; the same error about something else is another one."""
    log = "\n".join([IR, "x", IR, IR.replace("13", "11")])
    said = json.loads(run("--log", "-", "--output", "json", log=log).output)

    assert [(each["count"], each["lines"]) for each in said["errors"]] == [(2, [1, 3]), (1, [4])]


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
def test_lines_may_be_marked(prefix: str, end: str) -> None:
    """A text over several lines is one text, whoever marks each of them."""
    errors = found("".join(f"{prefix}{line}{end}" for line in FEED))

    assert list(errors) == ["input-dimension-wrong"]
    assert errors["input-dimension-wrong"]["means"] == "input `x` has size 3 on axis 0; the model takes 2 only"


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
def test_other_writings(log: str | bytes) -> None:
    """JSON lines, narrow terminals, PowerShell, and bytes that are no text."""
    assert list(found(log)) == ["input-dimension-wrong"]


def test_the_unknown_is_said() -> None:
    """Beside what is known it is counted and shown; alone it is no answer."""
    some = run("--log", "-", log=f"{IR}\nAcmeError: no idea\n" + "ValueError: x\n" * 9)
    alone = run("--log", "-", log="AcmeError: no idea\n")

    assert "   line 2: AcmeError: no idea\n" in some.output
    assert some.output.endswith("   and 5 more\n\n11 lines: 1 error explained; 10 lines unknown\n")
    assert (some.return_value, alone.return_value) == (0, 3)


@pytest.mark.parametrize("log", ["all is well\n", "\nerrors: 0\n"])
def test_nothing_is_wrong(log: str) -> None:
    """That is an answer too."""
    result = run("--log", "-", log=log)

    assert result.return_value == 0
    assert result.output.endswith("looks like an error\n")


@pytest.mark.parametrize("log", ["", "\n\n"])
def test_an_empty_log(log: str) -> None:
    """That is said: nothing looks like an error in it because nothing is in it."""
    assert run("--log", "-", log=log).output == "the log is empty: what was to write it may have failed\n"


@pytest.mark.parametrize(
    "line",
    [
        "##[error]Process completed with exit code 1.",
        "_____ ERROR collecting tests/test_export.py _____",
        "FAILED tests/test_export.py::test_load - capi.onnxruntime_pybind11_state.Fail: [ONNXRuntimeError]...",
    ],
)
def test_what_follows_from_an_error_is_not_unknown(line: str) -> None:
    """A step that ends with 1, and the names of tests, say nothing about why."""
    result = run("--log", "-", log=f"{IR}\n{line}\n")

    assert result.output.endswith("none unknown\n")


def test_files(tmp_path: Path) -> None:
    """A log may be a file, and the answer too."""
    (tmp_path / "ci.log").write_text(IR)
    result = run("--log", str(tmp_path / "ci.log"), "--output", f"json={tmp_path / 'out.json'}")

    assert result.return_value == 0
    assert json.loads((tmp_path / "out.json").read_bytes())["errors"][0]["rules"] == ["ir-version-too-new"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--log", "nope.log"], "cannot read `nope.log`: No such file or directory"),
        (["--log", "."], "cannot read `.`: Is a directory"),
        (["--log", "-", "missing-kernel"], "RULE and `--log` exclude each other"),
        (["--output", "json"], "`--output` requires `--log`"),
    ],
)
def test_usage(arguments: list[str], message: str) -> None:
    """Exit status 2, and no traceback."""
    with pytest.raises(UsageError) as error:
        command.main(arguments, standalone_mode=False)

    assert (error.value.exit_code, error.value.message) == (2, message)
