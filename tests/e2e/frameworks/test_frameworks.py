"""Each framework in its own environment: export, lock and check, then check again after a change in the source.

These tests install up to 1.6 GB. They run only for the frameworks that ONNXGATE_TEST_FRAMEWORKS names (or `all`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from tests.conftest import ROOT
from tests.harness.repositories.checkout import NOBODY, commit
from tests.harness.repositories.user_repository import Repository, usual_environment

HERE = Path(__file__).parent
LOCK = ROOT / "fixtures" / "projects" / "broken" / "onnxgate.lock"  # has the pins of the two releases
RELEASES = ("1.18.1", "1.19.2")
MODELS = {
    "sklearn": ("classifier", "forest", "clusters"),
    "xgboost": ("classifier", "binary", "regressor"),
    "lightgbm": ("regressor", "classifier", "pipeline"),
    "tensorflow": ("mlp", "cnn", "function"),
    "jax": ("dynamic", "fixed"),
}
PACKAGES = {  # a package that the lock must record
    "sklearn": "skl2onnx",
    "xgboost": "xgboost-cpu",
    "lightgbm": "lightgbm",
    "tensorflow": "tf2onnx",
    "jax": "jax2onnx",
}
CONFIG = """models = [{models}]
opset = {{ "ai.onnx" = 17 }}

[targets.server]
runtime = "onnxruntime>=1.18,<1.20"

[toolchain]
python = {python!r}
"""
MODEL = """
[[model]]
path = "models/{name}.onnx"
source = "export/build.py:{name}"
"""


@pytest.fixture(params=sorted(MODELS))
def framework(request: pytest.FixtureRequest) -> str:
    """Return the name of a framework; skip it if ONNXGATE_TEST_FRAMEWORKS does not select it."""
    asked = os.environ.get("ONNXGATE_TEST_FRAMEWORKS", "").replace(",", " ").split()
    if request.param not in asked and "all" not in asked:
        pytest.skip(f"`{request.param}` is not among what ONNXGATE_TEST_FRAMEWORKS names")
    return str(request.param)


@pytest.fixture
def python(framework: str, tmp_path: Path) -> Iterator[Path]:
    """Yield the interpreter of an environment that contains only this framework."""
    environment = tmp_path / "environment"
    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    requirements = HERE / framework / "requirements.txt"
    for command in (
        ["venv", "--python", sys.executable, str(environment)],
        ["pip", "install", "--python", str(python), "-r", str(requirements)],
    ):
        subprocess.run([find_uv_bin(), *command, "--quiet"], check=True, stdin=subprocess.DEVNULL)
    yield python
    shutil.rmtree(environment)


@pytest.fixture
def repository(framework: str, python: Path, installed: Path, shared_folder: Path, tmp_path: Path) -> Repository:
    """Return a repository with the sources of one framework, before the first export."""
    folder = tmp_path / "repository"
    (folder / "models").mkdir(parents=True)
    (folder / "export").mkdir()
    shutil.copy(HERE / framework / "build.py", folder / "export")
    shutil.copy(LOCK, folder)
    names = MODELS[framework]
    models = ", ".join(f'"models/{name}.onnx"' for name in names)
    text = CONFIG.format(models=models, python=str(python)) + "".join(MODEL.format(name=name) for name in names)
    (folder / "onnxgate.toml").write_text(text, encoding="utf-8")
    cache = {"ONNXGATE_CACHE_DIR": str(shared_folder / "a cache"), "TF_CPP_MIN_LOG_LEVEL": "2"}
    return Repository(installed, folder, {**usual_environment(), **NOBODY, **cache})


def compared(report: dict[str, Any], name: str) -> set[str]:
    """Return the pairs whose outputs were compared for a model."""
    return {measurement["pair"] for measurement in report["measured"] if measurement["model"] == f"models/{name}.onnx"}


@pytest.mark.index
@pytest.mark.frameworks
def test_gate_of_a_framework(framework: str, repository: Repository) -> None:
    """Exports are reproducible, both releases match the source, and a change in the source is found."""
    names = MODELS[framework]
    repository.run("export")
    repository.run("lock")
    commit(repository.folder)
    report = repository.report()
    again = repository.run("export", "--check").out

    assert (report["verdict"], report["findings"], report["undecided"], report["skipped"]) == ("pass", [], [], [])
    for name in names:
        assert compared(report, name) >= {f"onnxruntime {release} against the source" for release in RELEASES}
        assert f"models/{name}.onnx: matches its export" in again
    assert PACKAGES[framework] in repository.read("onnxgate.lock")

    repository.edit("export/build.py", "SEED = 0", "SEED = 1")
    changed = repository.report(status=1)["findings"]

    assert {(each["rule"], each["model"]) for each in changed} == {
        ("export-stale", f"models/{name}.onnx") for name in names
    }
