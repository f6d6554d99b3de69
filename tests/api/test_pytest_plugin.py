"""The pytest plugin: the fixture `assert_supported`, and what it costs other test suites."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.harness.version_models import stamped_file

TESTS = """\
def test_supported(assert_supported):
    assert_supported("model.onnx", "onnxruntime>=1.18")


def test_unsupported(assert_supported):
    assert_supported("model.onnx", "onnxruntime>=1.17,<1.19")


def test_undecided(assert_supported):
    assert_supported("pointer.onnx", "onnxruntime>=1.18")
"""
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n"
LIST_MODULES = """\
import sys


def pytest_sessionstart():
    names = [name for name in sys.modules if name.split(".")[0] in ("onnxgate", "onnx", "numpy", "msgspec", "click")]
    print("loaded:", *sorted(names))
"""
FAILURE = """\
    def test_unsupported(assert_supported):
>       assert_supported("model.onnx", "onnxruntime>=1.17,<1.19")
E       AssertionError: FAIL  model.onnx: does not load on onnxruntime 1.17.0–1.17.3: IR version 10,
E             supported since 1.18.0; loads on 1.18.0–1.18.1 [ir-version-too-new]
E             fix: run `onnxgate fix model.onnx --target 'onnxruntime>=1.17,<1.19'` to
E                  lower the IR version to 9, or narrow the target to >=1.18.0
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Return the folder of another project, with models and a test suite."""
    stamped_file(tmp_path / "model.onnx", 10, 18)
    (tmp_path / "pointer.onnx").write_text(POINTER, encoding="utf-8")
    (tmp_path / "test_models.py").write_text(TESTS, encoding="utf-8")
    return tmp_path


def run_pytest(installed: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with the installed package in a folder; a warning is an error."""
    command = [str(installed.with_name("python")), "-m", "pytest", "-W", "error", "-p", "no:randomly", *options]
    environment = {**os.environ, "ONNXGATE_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [(), ("-p", "no:cacheprovider"), ("-n", "2")], ids=["plain", "no cache", "xdist"])
def test_the_fixture_of_the_installed_package(installed: Path, suite: Path, options: tuple[str, ...]) -> None:
    """The fixture needs no import and no setting; an undecided prediction fails like a refusal."""
    result = run_pytest(installed, suite, *options)

    assert result.returncode == 1, result.stderr
    assert "2 failed, 1 passed in" in result.stdout
    assert FAILURE in result.stdout
    assert "E             hint: run `git lfs pull --include" in result.stdout
    assert "onnxgate/api" not in result.stdout  # no frame of ours in a traceback


def test_it_imports_nothing_unless_used(installed: Path, suite: Path) -> None:
    """Every test suite in an environment with onnxgate loads the plugin; it must not become slower."""
    (suite / "conftest.py").write_text(LIST_MODULES, encoding="utf-8")
    result = run_pytest(installed, suite, "--collect-only", "-q", "-s")
    loaded = re.findall(r"^loaded: (.*)$", result.stdout, re.MULTILINE)

    assert ["onnxgate onnxgate.api onnxgate.api.pytest_plugin"] == loaded


def test_it_does_not_warn_if_the_package_is_imported(installed: Path, suite: Path) -> None:
    """pytest rewrites assertions in plugins, and warns if it starts too late for that, as from a script."""
    code = "import pytest, onnxgate.api; pytest.main(['-W', 'error', '-p', 'no:randomly'])"
    command = [str(installed.with_name("python")), "-c", code]
    result = subprocess.run(command, cwd=suite, capture_output=True, text=True, check=False)

    assert "2 failed, 1 passed in" in result.stdout, result.stderr


def test_it_can_be_turned_off(installed: Path, suite: Path) -> None:
    """The name of the plugin is `onnxgate`."""
    result = run_pytest(installed, suite, "-p", "no:onnxgate")

    assert "fixture 'assert_supported' not found" in result.stdout


def test_a_fixture_of_the_project_takes_precedence(installed: Path, suite: Path) -> None:
    """A project that already has a fixture of this name keeps it."""
    own = "import pytest\n\n\n@pytest.fixture\ndef assert_supported():\n    return lambda *_: None\n"
    (suite / "conftest.py").write_text(own, encoding="utf-8")

    assert "3 passed in" in run_pytest(installed, suite).stdout


def test_pytest_lists_the_fixture(installed: Path, suite: Path) -> None:
    """`pytest --fixtures` shows how to call it."""
    shown = run_pytest(installed, suite, "--fixtures").stdout

    assert 'assert_supported(path, "onnxruntime>=1.18")' in " ".join(shown.split())
