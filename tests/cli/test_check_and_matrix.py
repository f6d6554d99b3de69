"""`onnxgate check` without a config and `onnxgate matrix` give the same answer."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import jsonschema
import pytest

from onnxgate.cli import main
from onnxgate.core.matrix import Matrix
from onnxgate.core.report_json import build_schema
from tests.conftest import ROOT
from tests.harness.rule_cases import CASES, every_case, unfold
from tests.harness.version_models import stamped_file

PROJECTS = ROOT / "fixtures" / "projects"
FOLDERS = sorted({f"rules/{case.parent.name}" for case in every_case() if not (case / "evidence.json").exists()})
FOLDERS += sorted(f"projects/{path.name}" for path in PROJECTS.iterdir() if any(path.rglob("*.onnx")))
TARGETS = [(), ("--target", "onnxruntime>=1.18")]
CONFIGS = ("onnxgate.toml", "pyproject.toml", "onnxgate.lock")
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a cache for static results that only this module shares."""
    monkeypatch.setenv("ONNXGATE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "check and matrix"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working directory."""
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def copy_models(name: str, folder: Path) -> None:
    """Copy the models of a rule or a project, without configs."""
    if name.startswith("projects/"):
        shutil.copytree(ROOT / "fixtures" / name, folder, dirs_exist_ok=True)
    else:
        for case in (CASES / Path(name).name).iterdir():
            if (case / "expected.txt").exists():
                unfold(case, folder / case.name)
    for path in [path for config in CONFIGS for path in folder.rglob(config)]:
        path.unlink()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return exit status, output without the elapsed time, and errors of a command."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    out, err = capsys.readouterr()
    return int(end.value.code or 0), re.sub(r" \([\d.]+ (s|min \d+ s)\)\n$", "\n", out), err


@pytest.mark.parametrize("name", FOLDERS)
def test_the_same_answer(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status, lines per model, notes and last line are equal; `matrix` prints the table above them."""
    copy_models(name, folder / "models")
    for target in TARGETS:
        checked, checked_lines, _ = run(capsys, "check", "models", *target)
        shown, shown_lines, _ = run(capsys, "matrix", "models", *target)

        assert (checked, checked_lines) == (shown, shown_lines[-len(checked_lines) :])
        assert shown_lines.removesuffix(checked_lines).endswith("\n\n")


@pytest.mark.parametrize("name", ["projects/broken", "rules/invalid-model"])
def test_the_same_markdown(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both commands print the same lines and counts; `matrix` also prints the table."""
    copy_models(name, folder / "models")
    checked, shown = (run(capsys, command, "models", "--output", "markdown")[1] for command in ("check", "matrix"))
    verdict, lines = checked.split("\n\n", 1)

    assert verdict.strip("*") == run(capsys, "check", "models")[1].splitlines()[-1]
    assert shown.startswith(f"{verdict}\n\n| onnxruntime |")
    assert shown.endswith(f"\n\n{lines}")


@pytest.mark.parametrize("name", ["projects/broken", "rules/invalid-model", "rules/path-leaked"])
def test_the_same_json(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Verdict, errors, warnings and undecided checks are equal."""
    copy_models(name, folder / "models")
    report, matrix = (
        json.loads(run(capsys, command, "models", "--output", "json")[1]) for command in ("check", "matrix")
    )
    report["findings"] = [finding for finding in report["findings"] if finding["level"] != "note"]
    keys = ("verdict", "exit", "findings", "undecided")

    assert {key: report[key] for key in keys} == {key: matrix[key] for key in keys}
    assert set(matrix["remarks"]) <= set(report["remarks"])
    jsonschema.Draft202012Validator(build_schema(Matrix, "")).validate(matrix)


def test_each_verdict_word_occurs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The comparison covers models that load, warn, fail and are undecided."""
    copy_models("rules/path-leaked", folder / "models")
    copy_models("projects/broken", folder / "models" / "broken")
    lines = run(capsys, "matrix", "models")[1].splitlines()

    assert {line.split()[0] for line in lines if ".onnx: " in line[:90]} >= {"ok", "warn", "FAIL", "?"}


@pytest.mark.parametrize("command", ["check", "matrix"])
@pytest.mark.parametrize(
    ("name", "content", "status", "line"),
    [
        ("pointer", POINTER, 3, "?     models/pointer.onnx: the file is a Git LFS pointer"),
        ("page", "<html></html>", 1, "FAIL  models/page.onnx: is an HTML page"),
        ("empty", "", 1, "FAIL  models/empty.onnx: is an empty file"),
        ("folder", None, 1, "FAIL  models/folder.onnx: is a folder"),
    ],
)
def test_one_faulty_file_of_many(
    name: str,
    content: str | None,
    status: int,
    line: str,
    command: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The other models are still checked."""
    for number in range(20):
        stamped_file(folder / "models" / f"m{number:02}.onnx", 10, 21)
    file = folder / "models" / f"{name}.onnx"
    if content is None:
        file.mkdir()
    else:
        file.write_text(content)
    ended, out, err = run(capsys, command, "models")

    assert (ended, err) == (status, "")
    assert line in out
    assert "ok    20 models load on onnxruntime 1.18.0–" in out


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_named_pipe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A named pipe is not read, because that would block."""
    os.mkfifo(folder / "models" / "pipe.onnx")
    ended = [run(capsys, command, "models") for command in ("check", "matrix")]

    assert [(status, err) for status, _, err in ended] == [(1, "")] * 2


@pytest.mark.parametrize("command", ["check", "matrix"])
def test_a_path_without_a_model(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path that does not exist or contains no model is a usage error of both commands."""
    (folder / "models" / "link.onnx").symlink_to("absent.onnx")
    (folder / "empty.onnx").mkdir()
    errors = {path: run(capsys, command, path) for path in ("models/m.onnx", "models/link.onnx", "empty.onnx")}

    assert errors == {
        "models/m.onnx": (2, "", "error: `models/m.onnx` does not exist\n"),
        "models/link.onnx": (2, "", "error: `models/link.onnx` is a symbolic link to a file that does not exist\n"),
        "empty.onnx": (2, "", "error: `empty.onnx` contains no `.onnx` file\n"),
    }


@pytest.mark.parametrize("command", ["check", "matrix"])
def test_a_link_to_a_missing_file(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Below a folder, it is a faulty model; without a config, its fix does not suggest to edit one."""
    (folder / "models" / "link.onnx").symlink_to("absent.onnx")
    status, out, _ = run(capsys, command, "models")

    assert status == 1
    assert "FAIL  models/link.onnx: does not exist [not-a-model]\n      fix: commit the model\n" in out
