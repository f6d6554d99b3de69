"""An error that ends a command is written to the file that the action names."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from onnxgate import cli
from onnxgate.core.errors import ERROR_FILE_VARIABLE, ErrorRecord, FileProblem


def record(arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> ErrorRecord:
    """Run a command that fails, and return the error that it writes."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv(ERROR_FILE_VARIABLE, str(folder / "error.json"))
    with pytest.raises(SystemExit):
        cli.main(arguments)
    return msgspec.json.decode((folder / "error.json").read_bytes(), type=ErrorRecord)


def test_problems_of_a_config_have_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The action annotates each line."""
    (tmp_path / "onnxgate.toml").write_text(
        '[targets.cpu]\nruntime = "onnxruntime>=1.18"\nslect = 1\n', encoding="utf-8"
    )
    problem = FileProblem("line 3: `targets.cpu.slect`: unknown key; did you mean `select`?", 3)
    expected = ErrorRecord("`onnxgate.toml` has 1 problem", file=str(tmp_path / "onnxgate.toml"), problems=(problem,))

    assert expected == record(["check"], tmp_path, monkeypatch)


def test_an_unknown_option_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of click are errors like others."""
    assert "no such option" in record(["check", "--nonsense"], tmp_path, monkeypatch).message.lower()


def test_a_bug_has_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The action prints the traceback in its log, since the bug report stays on the runner."""
    monkeypatch.setenv("ONNXGATE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(cli.COMMANDS, "missing", "A command without a module.")
    written = record(["missing"], tmp_path, monkeypatch)

    assert written.message.startswith("this is a bug in onnxgate: ModuleNotFoundError: ")
    assert "Traceback (most recent call last)" in written.traceback


def test_programs_that_a_command_starts_do_not_know_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of the repository must not write errors of onnxgate."""
    record(["check"], tmp_path, monkeypatch)

    assert ERROR_FILE_VARIABLE not in os.environ
