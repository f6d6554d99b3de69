"""`onnxgate check` on files, where there is no config: on which releases each of them loads."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import onnx.parser
import pytest

from onnxgate.support import limits
from tests.end_to_end.conftest import Variables
from tests.end_to_end.repository import Repository, brief
from tests.model.models import RELU, write

RELEASES = tuple(limits.table().releases)


@pytest.fixture
def files(command: Repository, cold: Variables, tmp_path: Path) -> Repository:
    """A folder that is no repository, in which nothing can be installed."""
    (tmp_path / "files").mkdir()
    return command.at(tmp_path / "files").given(**cold)


def stamped(repository: Repository, name: str, ir_version: int, opset: int) -> None:
    """Write a model with these stamps."""
    head = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n'
    write(repository.folder / name, onnx.parser.parse_model(head + RELU))


def test_taken_by_all(files: Repository) -> None:
    """Its stamps, and that every release takes them; nothing is installed, and the last line says what was not done."""
    stamped(files, "model.onnx", 7, 13)
    said = files.run("check", "model.onnx").out

    assert "model.onnx: IR version 7 and opsets ai.onnx 13 are taken by " in said
    assert said.splitlines()[-1].startswith("pass: 1 model")
    assert "nothing was run" in said.splitlines()[-1]


def test_taken_by_some(files: Repository) -> None:
    """What older releases refuse is a note, with the release from which on it works."""
    stamped(files, "model.onnx", 10, 21)
    report = files.report("model.onnx")

    assert {brief(each) for each in report["findings"]} == {
        ("note", "ir-version-too-new", "model.onnx"),
        ("note", "opset-too-new", "model.onnx"),
    }
    assert {each["works_since"] for each in report["findings"]} == {"1.18.0"}
    assert report["remarks"] == [
        f"model.onnx: IR version 10 and opsets ai.onnx 21 are taken by onnxruntime 1.18.0 to {RELEASES[-1]}"
    ]


def test_taken_by_none(files: Repository) -> None:
    """An IR version that no release reads closes the gate."""
    stamped(files, "model.onnx", 14, 13)
    report = files.report("model.onnx", status=1)

    assert [brief(each) for each in report["findings"]] == [("error", "ir-version-too-new", "model.onnx")]
    assert report["remarks"][0].endswith(f"are taken by none of {len(RELEASES)} releases")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "<!DOCTYPE html>\n<html></html>\n",
        "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n",
    ],
)
def test_a_broken_file(files: Repository, content: str) -> None:
    """A file that is no model closes the gate; the one beside it is judged all the same."""
    stamped(files, "good.onnx", 7, 13)
    files.write("broken.onnx", content)
    report = files.report("good.onnx", "broken.onnx", status=1)

    assert [(each["level"], each["model"]) for each in report["findings"]] == [("error", "broken.onnx")]
    assert [each.partition(":")[0] for each in report["remarks"]] == ["good.onnx"]


@pytest.mark.parametrize(
    ("requirement", "opset", "status"),
    [("onnxruntime>=1.18,<1.20", 21, 0), ("onnxruntime>=1.16,<1.18", 21, 1), ("onnxruntime>=1.16,<1.20", 21, 0)],
)
def test_target(files: Repository, requirement: str, opset: int, status: int) -> None:
    """A requirement in place of a config: judged against its releases alone, and closed where none takes the file."""
    stamped(files, "model.onnx", 8, opset)
    report = files.report("--target", requirement, "model.onnx", status=status)
    releases = {each["version"] for each in report["runtimes"]}

    assert releases
    assert releases < set(RELEASES)
    assert "1.31.1" not in releases


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "hint: name the models to check, or run `onnxgate init`"),
        (("nowhere.onnx",), "error: `nowhere.onnx` does not exist"),
        (("--target", "tensorflow", "model.onnx"), "error: there is no data on `tensorflow`"),
        (("--target", "onnxruntime>=99", "model.onnx"), "error: no release that there is data of fits"),
        (("--target", "onnx runtime", "model.onnx"), "error: `onnx runtime` is no requirement"),
    ],
)
def test_usage(files: Repository, arguments: tuple[str, ...], said: str) -> None:
    """What cannot be judged is an error of usage, and no verdict."""
    stamped(files, "model.onnx", 7, 13)

    assert said in files.run("check", *arguments, status=2).err


def test_a_config_without_a_lock(files: Repository) -> None:
    """It says what to run."""
    files.write("onnxgate.toml", '[targets.server]\nruntime = "onnxruntime>=1.18"\n')
    stamped(files, "model.onnx", 7, 13)
    ended = files.run("check", status=2)

    assert "hint: run `onnxgate lock`" in ended.err
    assert ended.out == ""


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text on other systems")
@pytest.mark.parametrize("configured", [True, False])
def test_a_name_that_is_no_text(files: Repository, configured: bool) -> None:
    """It could be named in no report: an error that says so, and no bug of ours."""
    name = os.fsdecode(b"b\xff.onnx")
    stamped(files, name, 7, 13)
    if configured:
        files.write("onnxgate.toml", '[targets.server]\nruntime = "onnxruntime>=1.18"\n')
        files.write("onnxgate.lock", "version = 1\nrevision = 0\n")
    ended = files.run("check", "--static", *([] if configured else [name]), status=2)

    assert ended.err.startswith("error: the name of `b\\udcff.onnx` is not UTF-8\nhint: rename it")
