"""`check` and `lock --check` on several projects of one repository."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from onnxgate.cli import main
from tests.harness.repositories.checkout import ROOT, commit

MODEL = "models/classifier.onnx"


@pytest.fixture
def monorepo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a repository of two projects and a model outside of them."""
    for name in ("a", "b"):
        shutil.copytree(ROOT / "fixtures/projects/quickstart", tmp_path / name)
    shutil.copytree(tmp_path / "a/models", tmp_path / "tools")
    commit(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONNXGATE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return exit status, output and errors of a command."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return int(end.value.code or 0), *capsys.readouterr()


@pytest.mark.usefixtures("monorepo")
def test_each_project_is_checked_with_its_config(capsys: pytest.CaptureFixture[str]) -> None:
    """A config selects all models of its project; a model outside of the projects is checked without a config."""
    status, out, err = run(capsys, "check", "--static", f"a/{MODEL}", "b/onnxgate.toml", "tools/classifier.onnx")
    titles = [line for line in out.splitlines() if line.endswith(":")]

    assert (status, err) == (0, "")
    assert titles == ["a/onnxgate.toml:", "b/onnxgate.toml:", "models without a config:"]
    assert out.count("pass: 1 model on") == out.count("pass: 2 models on") == 1


def test_the_worst_status_of_all_projects(monorepo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A failure in one project and an error in another are both printed; the error decides the exit status."""
    shutil.copy(monorepo / "a" / MODEL, monorepo / "a/models/second.onnx")
    failed = run(capsys, "check", "--static", "a", "b")
    (monorepo / "b/onnxgate.lock").write_text("<<<<<<< HEAD\n")
    status, out, err = run(capsys, "check", "--static")

    assert failed[0] == 1
    assert "unlocked-model" in failed[1]
    assert "pass: 2 models on" in failed[1]
    assert status == 2
    assert "unlocked-model" in out
    assert "error: `onnxgate.lock` " in err
    assert run(capsys, "lock", "--check")[0] == 2


@pytest.mark.usefixtures("monorepo")
def test_locks_of_all_projects(capsys: pytest.CaptureFixture[str]) -> None:
    """Without paths and without a config, all locks below the root are checked; `lock` itself needs a project."""
    up_to_date = "`onnxgate.lock` is up to date: 2 models, 8 runtimes\n"

    assert run(capsys, "lock", "--check") == (
        0,
        f"a/onnxgate.toml:\n{up_to_date}\nb/onnxgate.toml:\n{up_to_date}",
        "",
    )
    status, _, err = run(capsys, "lock", "--offline")
    assert (status, err.partition("\n")[0]) == (
        2,
        "error: there is no `onnxgate.toml` in this folder or its parents",
    )


@pytest.mark.parametrize("output", ["json", "text=report.txt", "github=annotations.txt"])
@pytest.mark.usefixtures("monorepo")
def test_other_formats_contain_one_project(capsys: pytest.CaptureFixture[str], output: str) -> None:
    """A report in a file or in a format with one document is refused before anything runs."""
    assert run(capsys, "check", "--static", "--output", output) == (
        2,
        "",
        "error: the models belong to several projects: `a/onnxgate.toml` and `b/onnxgate.toml`, but `--output "
        f"{output}` contains one report\n"
        "hint: select one project at a time, for example with `--config a/onnxgate.toml`\n",
    )


def test_untracked_models_are_named(
    monorepo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New models are named in a note, but not in CI, where a job can create models that do not belong into git."""
    shutil.copy(monorepo / "a" / MODEL, monorepo / "a/models/new.onnx")
    note = "note: `models/new.onnx` is not tracked by git; run `git add models/new.onnx` (in the folder `a`)\n"

    assert run(capsys, "check", "--static", "--directory", "a")[2] == note
    assert run(capsys, "lock", "--check")[2] == note
    assert run(capsys, "lock", "--check", "--quiet")[2] == ""
    assert (
        run(capsys, "check", "--static", f"a/{MODEL}")[2]
        == "note: using `a/onnxgate.toml`, the config nearest to the models\n"
    )
    monkeypatch.setenv("CI", "true")
    assert run(capsys, "lock", "--check")[2] == ""
