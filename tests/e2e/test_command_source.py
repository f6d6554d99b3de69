"""Exporters run by `command`: a plain script that writes a model with `onnx.helper`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository, brief

SCRIPT = """import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHTS = numpy.arange(8, dtype=numpy.float32).reshape(4, 2)


def build(opset):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])
    nodes = [helper.make_node("MatMul", ["x", "weights"], ["y"], name="multiply")]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(WEIGHTS, "weights")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


onnx.save(build(int(sys.argv[2])), sys.argv[1])
"""
CONFIG = """
opset = { "ai.onnx" = 18 }

[toolchain]
python = "%s"

[[model]]
path = "models/made.onnx"
command = ["{python}", "make.py", "{output}", "{opset}"]
"""
MODEL = "models/made.onnx"
ALONE = """
import os
import time

os.close(os.open("working", os.O_CREAT | os.O_EXCL))
time.sleep(1)
"""


@pytest.fixture
def script_project(small: Repository) -> Repository:
    """Return a repository whose only model is written by a script."""
    config = small.read("onnxgate.toml").partition("\n")
    small.write("onnxgate.toml", config[0] + CONFIG % Path(sys.executable).as_posix() + config[2])
    small.write("make.py", SCRIPT)
    (small.folder / "models" / "small.onnx").unlink()
    subprocess.run([sys.executable, "make.py", MODEL, "18"], cwd=small.folder, check=True)
    commit(small.folder)
    small.run("lock", "--offline")
    return small


def exported(repository: Repository, status: int) -> list[tuple[str, str, str]]:
    """Return the findings of the export stage."""
    report = repository.report("--stage", "export", status=status)
    assert (report["undecided"], report["skipped"]) == ([], [])
    return [brief(finding) for finding in report["findings"]]


@pytest.mark.index
def test_unchanged(script_project: Repository) -> None:
    """The model passes every stage, and the command reproduces the committed file."""
    report = script_project.report()

    assert (report["verdict"], report["findings"], report["undecided"]) == ("pass", [], [])
    assert (report["counts"]["ran"], report["counts"]["without_source"]) == (2, 0)


def test_renamed_nodes_are_not_stale(script_project: Repository) -> None:
    """Different node names and metadata do not make an export stale."""
    script_project.edit(
        "make.py", '["y"], name="multiply"', '["z"], name="other"), helper.make_node("Identity", ["z"], ["y"]'
    )
    changed = exported(script_project, 1)
    script_project.write("make.py", SCRIPT.replace('name="multiply"', 'name="other", doc_string="words"'))
    same = exported(script_project, 0)

    assert changed == [("error", "export-stale", MODEL)]
    assert same == []


@pytest.mark.parametrize(
    ("old", "new", "expected_message"),
    [
        ("numpy.arange(8,", "numpy.arange(1, 9,", "weight `weights` differs in 8 of 8 elements"),
        ('"MatMul", ["x", "weights"], ["y"]', '"Gemm", ["x", "weights"], ["y"]', "changed from `MatMul` to `Gemm`"),
        ('["N", 4]', '["M", 4]', "`M`"),
    ],
)
def test_stale(script_project: Repository, old: str, new: str, expected_message: str) -> None:
    """A stale export is found, and the message names the difference."""
    script_project.edit("make.py", old, new)
    (finding,) = script_project.report("--stage", "export", status=1)["findings"]

    assert brief(finding) == ("error", "export-stale", MODEL)
    assert expected_message in finding["message"]


def test_exporting_mends_it(script_project: Repository) -> None:
    """The commands in the fix of `export-stale` remove the finding."""
    script_project.edit("make.py", "numpy.arange(8,", "numpy.arange(1, 9,")
    script_project.run("export", MODEL)
    script_project.run("lock", "--offline", MODEL)

    assert exported(script_project, 0) == []
    assert script_project.report("--static")["findings"] == []


def test_another_opset(script_project: Repository) -> None:
    """A script that ignores the requested opset is reported."""
    script_project.edit("make.py", "int(sys.argv[2])", "17")

    assert ("error", "export-opset-ignored", MODEL) in exported(script_project, 1)


def test_a_command_that_fails(script_project: Repository) -> None:
    """The finding shows the last line of the traceback and points to the line in the script."""
    script_project.edit("make.py", "    return helper", "    raise ValueError('no model today')\n    return helper")
    (finding,) = script_project.report("--stage", "export", status=1)["findings"]

    assert brief(finding) == ("error", "export-failed", MODEL)
    assert "ValueError: no model today" in finding["message"]
    assert (finding["place"]["path"], finding["place"]["line"]) == ("make.py", 15)


def test_work_tree_is_unchanged(script_project: Repository) -> None:
    """The export stage leaves the work tree unchanged."""
    commit(script_project.folder)
    exported(script_project, 0)
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=script_project.folder, capture_output=True, check=True
    ).stdout

    assert changed == b""


def test_runs_of_one_script_do_not_overlap(script_project: Repository) -> None:
    """Runs of one script never overlap, so a script may use a file in its own folder."""
    script_project.write("make.py", ALONE + SCRIPT + 'os.unlink("working")\nopen("runs", "a").write("again ")\n')

    assert exported(script_project, 0) == []
    assert script_project.read("runs") == "again again "


def test_failed_command_is_not_retried(script_project: Repository) -> None:
    """A command that hangs is not retried, so it costs its time limit once."""
    script_project.write("make.py", 'open("runs", "a").write("again ")\nimport time\n\ntime.sleep(600)\n')
    script_project.write("onnxgate.toml", script_project.read("onnxgate.toml") + "\n[limits]\ntime-s = 2\n")

    assert exported(script_project, 1) == [("error", "export-failed", MODEL)]
    assert script_project.read("runs") == "again "
