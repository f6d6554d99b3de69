"""The installed `onnxgate export` command."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import onnx
import pytest

from tests.conftest import ROOT
from tests.harness.models import write

TANH = "g (float[N, 4] x) => (float[N, 4] y) { y = Tanh (x) }"
MAKE = """
    import sys
    import onnx
    import onnx.parser

    print("exporting ::error::nothing")
    operator = open("operator.txt").read()
    if not operator:
        raise ValueError("no operator")
    text = '<ir_version: 8, opset_import: ["" : %s]> g (float[N, 4] x) => (float[N, 4] y) { y = %s (x) }'
    model = onnx.parser.parse_model(text % (sys.argv[2], operator))
    model.doc_string = "written by make.py"
    onnx.save(model, sys.argv[1])
"""
CONFIG = """
    models = ["models/*.onnx"]
    opset = {{ "ai.onnx" = 18 }}
    [targets.server]
    runtime = "onnxruntime>=1.18"
    [toolchain]
    python = "{python}"
    [[model]]
    path = "models/made.onnx"
    command = ["{{python}}", "make.py", "{{output}}", "{{opset}}"]
"""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a model that a command creates and one without a source."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "make.py").write_text(dedent(MAKE))
    (tmp_path / "operator.txt").write_text("Relu")
    (tmp_path / "onnxgate.toml").write_text(dedent(CONFIG.format(python=Path(sys.executable).as_posix())))
    write(tmp_path / "models" / "made.onnx")
    write(tmp_path / "models" / "found.onnx")
    return tmp_path


@pytest.fixture
def run(installed: Path, project: Path) -> Run:
    """Return a function that runs the command in the project."""

    def started(*arguments: str, folder: Path = project) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [installed, "export", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )

    return started


def test_unchanged(run: Run, project: Path) -> None:
    """An unchanged model is not rewritten, even if its metadata differ; models without a source are counted."""
    before = (project / "models" / "made.onnx").read_bytes()
    result = run()

    assert (result.stdout, result.stderr, result.returncode) == (
        "models/made.onnx: matches its export\n1 unchanged, 1 without `source`\n",
        "",
        0,
    )
    assert (project / "models" / "made.onnx").read_bytes() == before


def test_check_of_a_change(run: Run, project: Path) -> None:
    """With `--check`, differences are reported with status 1 and nothing is written."""
    (project / "operator.txt").write_text("Tanh")
    before = (project / "models" / "made.onnx").read_bytes()
    result = run("--check")

    assert result.returncode == 1
    assert result.stdout.splitlines()[0] == "models/made.onnx: differs from its export"
    assert "changed from `Relu` to `Tanh`" in result.stdout
    assert result.stdout.splitlines()[-1] == "1 changed, 1 without `source`"
    assert (project / "models" / "made.onnx").read_bytes() == before


def test_restamped(run: Run, project: Path) -> None:
    """A different IR version alone does not make a model stale, but is updated when the model is written."""
    path = project / "models" / "made.onnx"
    model = onnx.load(path)
    model.ir_version = 10
    onnx.save(model, path)

    assert run("--check").stdout.splitlines()[0] == "models/made.onnx: matches its export"
    assert run().stdout.splitlines()[:2] == ["models/made.onnx: written", "  IR version changed from 10 to 8"]
    assert onnx.load(path).ir_version == 8


def test_change_is_written(run: Run, project: Path) -> None:
    """Without `--check`, the file is replaced, and the output names the changes and the next command."""
    (project / "operator.txt").write_text("Tanh")
    result = run("models/made.onnx")

    assert result.returncode == 0
    assert result.stdout.splitlines()[0] == "models/made.onnx: written"
    assert result.stdout.splitlines()[-1] == "1 written; run `onnxgate lock` next"
    assert onnx.load(project / "models" / "made.onnx").graph.node[0].op_type == "Tanh"
    assert run("--check").returncode == 0


def test_model_that_is_not_there_yet(run: Run, project: Path) -> None:
    """A model that the config names and that does not exist is created."""
    (project / "models" / "made.onnx").unlink()
    result = run()

    assert result.stdout.splitlines()[0] == "models/made.onnx: created"
    assert (project / "models" / "made.onnx").exists()


def test_failure(run: Run, project: Path) -> None:
    """A command that fails leaves the model unchanged; the output contains its error and the line."""
    (project / "operator.txt").write_text("")
    before = (project / "models" / "made.onnx").read_bytes()
    result = run()

    assert result.returncode == 1
    assert result.stdout.splitlines() == [
        "models/made.onnx: export with `{python} make.py {output} {opset}` failed: "
        "exit status 1: ValueError: no operator",
        "  at make.py:9",
        "  hint: fix the code at `make.py:9`",
        "1 failed, 1 without `source`",
    ]
    assert (project / "models" / "made.onnx").read_bytes() == before


def test_other_opset_than_pinned_is_not_written(run: Run, project: Path) -> None:
    """A model with a different opset than the pinned one is not written."""
    make = project / "make.py"
    make.write_text(make.read_text().replace("sys.argv[2]", "17"))
    before = (project / "models" / "made.onnx").read_bytes()
    result = run()

    assert result.returncode == 1
    assert "wrote opset 17 of `ai.onnx` instead of 18" in result.stdout
    assert (project / "models" / "made.onnx").read_bytes() == before


def test_pointer(run: Run, project: Path) -> None:
    """A Git LFS pointer cannot be compared, so it is not overwritten and the status is 3."""
    (project / "models" / "made.onnx").write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 100\n"
    )
    result = run()

    assert result.returncode == 3
    assert '  hint: run `git lfs pull --include "models/made.onnx"`' in result.stdout.splitlines()
    assert (project / "models" / "made.onnx").read_text().startswith("version ")


def test_nothing_to_export(run: Run) -> None:
    """A model without a source is not an error."""
    result = run("models/found.onnx")

    assert (result.stdout, result.returncode) == ("1 without `source`\n", 0)


def test_path_that_is_not_there(run: Run) -> None:
    """A path that does not exist is a usage error."""
    assert run("models/gone.onnx").returncode == 2


def test_quiet(run: Run, project: Path) -> None:
    """With `-q`, only the last line is printed."""
    (project / "operator.txt").write_text("Tanh")

    assert run("-q", "--check").stdout == "1 changed, 1 without `source`\n"


def test_no_toolchain(run: Run, project: Path) -> None:
    """If no interpreter is suitable, the status is 3 and the message names the missing package."""
    config = project / "onnxgate.toml"
    config.write_text(config.read_text().replace("python = ", 'requires = ["surely-not-installed"]\npython = '))
    result = run()

    assert result.returncode == 3
    assert "has no surely-not-installed" in result.stderr


def test_from_a_folder_below(run: Run, project: Path) -> None:
    """Paths are relative to the working directory, and printed names are relative to the config."""
    result = run("made.onnx", folder=project / "models")

    assert result.stdout == "models/made.onnx: matches its export\n1 unchanged\n"


@pytest.mark.torch
def test_quickstart(installed: Path, toolchain: Path, tmp_path: Path) -> None:
    """The quickstart models match their PyTorch sources; after a change of a source, its model is rewritten."""
    project = tmp_path / "quickstart"
    shutil.copytree(ROOT / "fixtures" / "projects" / "quickstart", project)
    (project / ".git").mkdir()
    config = project / "onnxgate.toml"
    config.write_text(config.read_text().replace("[toolchain]", f'[toolchain]\npython = "{toolchain}"'))
    command = [installed, "export"]
    checked = subprocess.run(
        [*command, "--check", "models/encoder.onnx"], cwd=project, capture_output=True, text=True, check=False
    )
    source = project / "export" / "encoder.py"
    source.write_text(source.read_text().replace("torch.tanh(", "torch.sigmoid("))
    written = subprocess.run([*command, "-q"], cwd=project, capture_output=True, text=True, check=False)

    assert (checked.stdout.splitlines()[-1], checked.returncode) == ("1 unchanged", 0)
    assert (written.stdout, written.returncode) == (
        "1 unchanged, 1 written; run `onnxgate lock` next\n",
        0,
    )
    assert "Sigmoid" in {node.op_type for node in onnx.load(project / "models" / "encoder.onnx").graph.node}
