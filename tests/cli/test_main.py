"""The command group: imports, errors and exit statuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from onnxgate import __version__, cli
from onnxgate.cli import check
from onnxgate.cli.shared import error_handling
from onnxgate.core.errors import ConfigError, OnnxgateError, UsageError
from onnxgate.core.findings import ALL_STAGES
from tests.harness.github import workflow_commands
from tests.harness.models import write

HEAVY = ("onnx", "numpy", "msgspec", "rich", "packaging", "uv", "platformdirs", "importlib.metadata")


def python(code: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter."""
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, **options)  # type: ignore[call-overload,no-any-return]


def test_help_of_check_lists_all_stages() -> None:
    """`check --help` imports no stages, so that the list in the help of `--stage` is written by hand."""
    stages = next(option for option in check.command.params if option.name == "stages")

    assert isinstance(stages, click.Option)
    assert stages.help is not None
    assert f": {', '.join(stage.value for stage in ALL_STAGES)}." in stages.help


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["-h"], ["chek"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """Help, version and usage errors import no command and no slow module."""
    code = f"""
import sys
from onnxgate.cli import COMMANDS, main
try:
    main(sys.argv[1:])
finally:
    loaded = [name for name in {HEAVY} if name in sys.modules]
    loaded += [name for name in COMMANDS if f"onnxgate.cli.{{name}}" in sys.modules]
    print("loaded:", loaded)
"""

    assert python(code, *arguments).stdout.splitlines()[-1] == "loaded: []"


def test_help_of_a_command_imports_no_library() -> None:
    """`check --help` imports none of the libraries that a check needs."""
    code = f"""
import sys
from onnxgate.cli import main
try:
    main(["check", "--help"])
finally:
    print("loaded:", [name for name in {HEAVY} if name in sys.modules])
"""

    assert python(code).stdout.splitlines()[-1] == "loaded: []"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_of_the_table_is_there(name: str) -> None:
    """Each listed command has a module with a command of that name and a help text."""
    command = cli.group.get_command(click.Context(cli.group), name)

    assert command is not None
    assert command.name == name
    assert command.help


def test_installed_command_prints_its_version(installed: Path) -> None:
    """The wheel installs the command."""
    result = subprocess.run([installed, "--version"], capture_output=True, text=True, check=True)

    assert result.stdout == f"onnxgate {__version__}\n"


def test_a_misspelled_command_is_a_usage_error(installed: Path) -> None:
    """The error suggests the nearest command, and the status is 2."""
    result = subprocess.run([installed, "chek"], capture_output=True, text=True, check=False)

    assert result.returncode == 2
    assert "No such command 'chek'. Did you mean 'check'?" in result.stderr


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (UsageError("there is no `a`", hint="try `b`"), 2, "error: there is no `a`\nhint: try `b`\n"),
        (
            ConfigError("`onnxgate.toml` is wrong", problems=("`a`: one", "`b`: two")),
            2,
            "error: `onnxgate.toml` is wrong\n  `a`: one\n  `b`: two\n",
        ),
        (OnnxgateError("two\nlines"), 3, "error: two\\nlines\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (click.Abort(), 130, "interrupted\n"),
        (click.UsageError("no such thing"), 2, "Error: no such thing\n"),
    ],
)
def test_errors_are_words_and_a_status(
    error: BaseException, status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors are printed to stderr without a traceback and end with their status."""
    with pytest.raises(SystemExit) as end, error_handling.report_errors():
        raise error

    assert (end.value.code, capsys.readouterr()) == (status, ("", words))


def test_internal_error_writes_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report of an internal error contains the traceback; the status is 3, not that of a failed check."""
    monkeypatch.setenv("ONNXGATE_CACHE_DIR", str(tmp_path))
    with pytest.raises(SystemExit) as end, error_handling.report_errors():
        raise ZeroDivisionError("by zero")

    output = capsys.readouterr().err
    (report,) = (tmp_path / "bugs").iterdir()

    assert end.value.code == 3
    assert output.startswith("error: this is a bug in onnxgate: ZeroDivisionError: by zero\n")
    assert str(report) in output
    assert 'raise ZeroDivisionError("by zero")' in report.read_text(encoding="utf-8")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full exists only on Linux")
def test_standard_output_on_a_full_disk() -> None:
    """The message names standard output instead of a file or the temporary folder."""
    command = [sys.executable, "-m", "onnxgate", "explain", "opset-too-new"]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    expected = "error: cannot write to standard output: no space left on device\nhint: free up disk space\n"
    assert (result.returncode, result.stderr) == (3, expected)


def test_an_internal_error_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A message of several lines is shown in one; the report contains the complete text."""
    monkeypatch.setenv("ONNXGATE_CACHE_DIR", str(tmp_path))
    with pytest.raises(SystemExit), error_handling.report_errors():
        raise ValueError("a\n\nb")

    assert capsys.readouterr().err.startswith("error: this is a bug in onnxgate: ValueError: a b\nhint: ")


def test_internal_error_report_is_printed_if_not_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the report of an internal error cannot be written, it is printed."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("ONNXGATE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(SystemExit) as end, error_handling.report_errors():
        raise ZeroDivisionError("by zero")

    assert end.value.code == 3
    assert "Traceback (most recent call last):" in capsys.readouterr().err


@pytest.mark.parametrize("attack", ["::error::x", "a ##[error]x", "x\n::error::y", "\x1b[31mx", "x\r::error::y"])
def test_errors_contain_no_workflow_commands(attack: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A hostile name in an error is neither a workflow command nor a terminal escape."""
    for error in (OnnxgateError(attack, hint=attack), ConfigError("m", problems=(attack,)), click.UsageError(attack)):
        with pytest.raises(SystemExit), error_handling.report_errors():
            raise error
    output = capsys.readouterr().err

    assert list(workflow_commands.commands(output)) == []
    assert output.replace("\n", "").isprintable()


@pytest.mark.skipif(os.name == "nt", reason="pipes and signals as POSIX has them")
def test_closed_pipe_is_not_a_failed_check() -> None:
    """`onnxgate … | head` ends without output and not with the status of a failed check."""
    code = "from onnxgate.cli import main; main(['explain'])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        output = process.stderr.read()

    assert (process.returncode, output) == (141, b"")


LIBRARIES = ("click", "msgspec", "numpy", "onnx", "packaging", "sitecustomize", "uv")
PRINT_EARLY_MODULES = "import contextlib, runpy, sys; print(*sys.modules)"
"""Code that prints the modules that `python -m` may import before the first line of onnxgate."""


@pytest.mark.skipif(os.name == "nt", reason="pipes and signals as POSIX has them")
@pytest.mark.parametrize(
    ("start", "arguments"),
    [
        ("python -m", ("check", "--static", "m.onnx")),
        ("command", ("check", "--static", "m.onnx")),
        ("command", ("diff", "m.onnx", "m.onnx")),
        ("command", ("fix", "m.onnx")),
    ],
)
def test_modules_of_the_checked_folder_are_not_imported(
    installed: Path, tmp_path: Path, start: str, arguments: tuple[str, ...]
) -> None:
    """The current folder is the checked repository: its modules replace none of onnxgate, its libraries or Python."""
    write(tmp_path / "m.onnx")
    early = [] if start == "command" else subprocess.check_output([sys.executable, "-c", PRINT_EARLY_MODULES]).split()
    for name in {*sys.stdlib_module_names, *LIBRARIES}.difference(map(bytes.decode, early)):
        (tmp_path / f"{name}.py").write_text("open('imported', 'a').write(__name__)\nraise SystemExit(77)\n")
    command = [str(installed)] if start == "command" else [sys.executable, "-m", "onnxgate"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run([*command, *arguments], cwd=tmp_path, env=environment, capture_output=True, check=False)

    assert (0, False) == (ended.returncode, (tmp_path / "imported").exists()), ended.stderr


def test_interrupted(tmp_path: Path) -> None:
    """Ctrl-C ends the command with status 130 and one line."""
    code = """
import time
from onnxgate import cli
cli.group.add_command(cli.click.Command("wait", callback=lambda: (print("ready", flush=True), time.sleep(60))))
cli.COMMANDS["wait"] = ""
cli.LazyGroup.get_command = lambda self, ctx, name: self.commands[name]
cli.main(["wait"])
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)

    assert (process.returncode, said) == (130, b"interrupted\n")


def test_unencodable_characters_are_escaped() -> None:
    """A character outside the terminal's encoding does not end the command."""
    imports = "from onnxgate.cli.shared.error_handling import report_errors, print_error"
    code = f"{imports}\nwith report_errors(): print('模'); print_error('模')"
    actual = python(code, env={**os.environ, "PYTHONIOENCODING": "ascii"})

    assert (actual.returncode, actual.stdout) == (0, "\\u6a21\n")
