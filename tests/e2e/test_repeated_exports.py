"""A second export is skipped if an earlier check has exported the same bytes with the other seed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.e2e.conftest import PROJECTS, Variables
from tests.harness.repositories.checkout import commit, copy_tree
from tests.harness.repositories.user_repository import Repository

REUSED = "1 result reused from cache"
UNSTABLE = "\nif torch.initial_seed() == 1:\n    _width = len\n"
"""Code that yields different weights for one of the two seeds."""
SCRIPT = """import os
import sys
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

output, link = Path(sys.argv[1]), os.environ.get("LINK")
value = hash("x") % 97 / 7 if "DRAWN" in os.environ else 1.0
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy"]
weights = numpy_helper.from_array(numpy.full((4, 4), value, numpy.float32), "w")
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", values[:1], values[1:], [weights])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
written = Path(__file__).with_name("built") / "m.onnx" if link else output
(written.parent / "data").mkdir(parents=True, exist_ok=True)
if link == "hardlink_to":
    onnx.save(model, written)
else:
    for path in (written, written.parent / "data" / "w.bin"):
        path.unlink(missing_ok=True)
    onnx.save(model, written, save_as_external_data=True, location="data/w.bin", size_threshold=0)
if link:
    getattr(output, link)(written)
if link == "symlink_to":
    (output.parent / "data").symlink_to(written.parent / "data")
"""
CONFIG = """models = ["models/*.onnx"]

[targets.server]
runtime = "onnxruntime>=1.18,<1.20"

[toolchain]
python = "%s"

[[model]]
path = "models/small.onnx"
command = ["{python}", "make.py", "{output}"]
"""


@pytest.fixture
def exported(command: Repository, toolchain: Path, tmp_path: Path, cold: Variables) -> Repository:
    """Return the quickstart project with its own empty cache."""
    repository = command.at(copy_tree(ROOT / PROJECTS / "quickstart", tmp_path / "project"))
    commit(repository.folder)
    return repository.with_environment(**cold, VIRTUAL_ENV=toolchain.parent.parent)


@pytest.fixture
def script_project(small: Repository, own_cache: Path) -> Repository:
    """Return a repository, checked once, with a script that writes a model with weights in a subfolder."""
    small.write("onnxgate.toml", CONFIG % Path(sys.executable).as_posix())
    small.write("make.py", SCRIPT)
    subprocess.run([sys.executable, "make.py", "models/small.onnx"], cwd=small.folder, check=True)
    commit(small.folder)
    small.run("lock", "--offline")
    repository = small.with_environment(ONNXGATE_CACHE_DIR=own_cache)
    repository.run("check", "--stage", "export")
    return repository


def find_rules(repository: Repository, *, status: int = 1) -> set[str]:
    """Return the rules of the findings of the export stage."""
    return {finding["rule"] for finding in repository.report("--stage", "export", status=status)["findings"]}


def check(repository: Repository, status: int = 0) -> str:
    """Return the output of a check of one model."""
    return repository.run("check", "-v", "--stage", "file,export", "models/classifier.onnx", status=status).out


def test_the_command_of_an_export_is_shown(script_project: Repository) -> None:
    """`-v` prints what is executed, with the real paths."""
    lines = script_project.run("check", "--stage", "export", "-v", "--no-cache").err.splitlines()
    commands = [line for line in lines if line.startswith("command: ")]

    assert {"toolchain", "second export"} <= {line.partition(":")[0] for line in lines}
    assert [line for line in commands if " make.py " in line]
    assert len(set(commands)) == len(commands)


@pytest.mark.torch
def test_an_unchanged_export_is_repeated_once(exported: Repository) -> None:
    """The first check exports twice, and so does a check after a code change that only the other seed exposes."""
    printed = [check(exported), check(exported)]
    helper = exported.folder / "export" / "weights.py"
    helper.write_text(helper.read_text(encoding="utf-8") + UNSTABLE, encoding="utf-8")
    changed = check(exported, status=1)

    assert [REUSED in each for each in printed] == [False, True]
    assert "export-unstable" in changed
    assert REUSED not in changed


def test_external_data_in_a_subfolder(script_project: Repository) -> None:
    """Seed-dependent weights are found in external data, even if the model file itself has the same bytes."""
    reused = REUSED in script_project.run("check", "--stage", "export", "-v").out
    drawn = find_rules(script_project.with_environment(DRAWN="1"))

    assert reused
    assert drawn == {"export-stale", "export-unstable"}


@pytest.mark.parametrize("seed", ["0", "1"])
def test_change_that_only_one_seed_exposes(script_project: Repository, seed: str) -> None:
    """A change that only one of the two seeds exposes is found."""
    script_project.edit("make.py", '"DRAWN" in os.environ', f'os.environ["PYTHONHASHSEED"] == "{seed}"')

    assert "export-unstable" in find_rules(script_project)


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_a_second_export_that_overwrites_the_first(script_project: Repository, link: str) -> None:
    """If the second export overwrites the files of the first, stability is undecided."""
    script_project.edit("make.py", '"DRAWN" in os.environ', 'os.environ["PYTHONHASHSEED"] == "0"')
    report = script_project.with_environment(LINK=link).report("--stage", "export", status=3)

    assert report["findings"] == []
    assert [undecided["reason"] for undecided in report["undecided"]] == [
        "export stability could not be checked: the files of the first export changed before they could "
        "be compared with the second export"
    ]
