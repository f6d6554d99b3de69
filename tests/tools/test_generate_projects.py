"""The projects in `fixtures/projects` are current, small and consistent with their expected findings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from onnxgate.model.subgraphs.node_context import find_source_line
from onnxgate.project.config.loader import load_config

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = ROOT / "fixtures" / "projects"
FAULTY = ("broken", "hostile")
STACK_TRACE = "pkg.torch.onnx.stack_trace"
FOREIGN_PATH = re.compile(rb"/(?:home|root|tmp|work|Users|private|opt|usr|var|mnt|srv)/[\w.-]+|[A-Z]:\\\\?[\w.-]+")


def generate(python: Path | str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the generator, which must not leave anything behind."""
    command = [str(python), "-B", str(ROOT / "tools" / "generate_projects.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def findings(project: str) -> list[dict[str, Any]]:
    """Return the expected findings of a project."""
    return json.loads((PROJECTS / project / "expected.json").read_bytes())


def exported() -> list[Path]:
    """Return the exported models, whose nodes have a source line."""
    models = [
        path for project in ("quickstart", "broken") for path in sorted((PROJECTS / project).glob("models/*.onnx"))
    ]
    return [path for path in models if STACK_TRACE.encode() in path.read_bytes()]


def test_handmade_files_are_current() -> None:
    """Handmade files equal the generator's output."""
    result = generate(sys.executable, "--check", "--handmade")

    assert (result.returncode, result.stdout) == (0, "all files are up to date\n"), result.stderr


@pytest.mark.torch
def test_all_files_are_current(toolchain: Path, tmp_path: Path) -> None:
    """Exported files equal the generator's output; when it was locked, `broken` had only valid, locked models."""
    folder = tmp_path / "locked"
    result = generate(toolchain, "--check", "--as-locked", os.fspath(folder))

    assert (result.returncode, result.stdout) == (0, "all files are up to date\n"), result.stderr
    assert (folder / "models" / "retired.onnx").exists()
    assert not (folder / "models" / "never-locked.onnx").exists()
    for path in (folder / "models").glob("*.onnx"):
        assert onnx.load(path, load_external_data=False).graph.node, path.name


def test_fixtures_are_small() -> None:
    """`fixtures` is smaller than 3 MB, because users of the action and the hooks clone it."""
    size_bytes = sum(path.stat().st_size for path in (ROOT / "fixtures").rglob("*") if path.is_file())

    assert size_bytes < 3_000_000


def test_projects_contain_no_absolute_path() -> None:
    """The projects' files contain no absolute path."""
    files = [path for path in PROJECTS.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    actual = {path.name: FOREIGN_PATH.findall(path.read_bytes()) for path in files}

    assert {name: paths for name, paths in actual.items() if paths} == {}


@pytest.mark.parametrize("path", exported(), ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_nodes_stand_on_lines_of_the_project(path: Path) -> None:
    """Each node has a line of its script, except nodes for sizes that the exporter adds."""
    nodes = [node for node in onnx.load(path).graph.node if node.op_type not in ("Shape", "Squeeze")]
    places = {node.name: find_source_line(node, ROOT, path.parents[1]) for node in nodes}

    assert {
        name: place for name, place in places.items() if place is None or not place.path.startswith("export/")
    } == {}


@pytest.mark.parametrize("project", ["quickstart", *FAULTY])
def test_config_names_every_model(project: str) -> None:
    """The config is valid, and its models exist."""
    loaded = load_config(PROJECTS / project / "onnxgate.toml")
    names = {model.path for model in loaded.models()}

    assert {f"models/{path.name}" for path in (PROJECTS / project / "models").glob("*.onnx")} == names


@pytest.mark.parametrize("project", FAULTY)
def test_each_fault_is_one_model(project: str) -> None:
    """Each model except one has exactly one expected finding or was not fetched, and all are explained.

    What crashes a runtime that has no kernel for it is both.
    """
    crashing = {finding["model"] for finding in findings(project) if finding["rule"] == "runtime-crashed"}
    actual = [each for each in findings(project) if each["rule"] != "missing-kernel" or each["model"] not in crashing]
    names = [finding["model"] for finding in actual if finding["model"]]
    models = {f"models/{path.name}" for path in (PROJECTS / project / "models").glob("*.onnx")}
    not_fetched = {model for model in models if "not-fetched" in model}
    pages = (PROJECTS / project / "FAULTS.md").read_text(encoding="utf-8")

    assert sorted(set(names)) == sorted(names)
    assert len(models - set(names) - not_fetched) == 1
    assert [name for name in names if f"`{Path(name).stem.split()[0]}" not in pages] == []


@pytest.mark.parametrize("project", FAULTY)
def test_expected_lines_exist(project: str) -> None:
    """The line of each expected finding exists and is not empty."""
    for finding in findings(project):
        place = finding["place"]
        lines = (PROJECTS / project / place["path"]).read_text(encoding="utf-8").splitlines()

        assert place["line"] >= 1, finding
        assert lines[place["line"] - 1].strip(), finding


def test_broken_covers_many_rules() -> None:
    """The project shows at least twelve rules."""
    assert len({finding["rule"] for finding in findings("broken")}) >= 12
