"""Models that could not be predicted are not shown as predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_isolated_nodes import NEW, OLD
from tests.harness import altered_package
from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index


@pytest.fixture
def lacking(small: Repository, tmp_path: Path) -> Repository:
    """Return a repository that is checked by an onnxgate without data of one of its two releases."""
    package = altered_package.without(tmp_path / "package", "1.19.2")
    return small.with_environment(PYTHONPATH=package, ONNXGATE_CACHE_DIR=tmp_path / "a cache")


def test_a_release_without_data(lacking: Repository) -> None:
    """The state of the cell is `not predicted` for a release without support data."""
    report = lacking.report("--static")

    assert {cell["runtime"]: cell["state"] for cell in report["cells"]} == {OLD: "predicted", NEW: "not predicted"}


def test_in_words(lacking: Repository) -> None:
    """The text output and the summary mark the cell with `–`: the runtime stage was not selected."""
    output = lacking.run("check", "--static").out
    summary = lacking.run("check", "--static", "--output", "summary").out

    assert "models/small.onnx  likely  –\n" in output
    assert "likely: predicted to load, not run; –: not checked\n" in output
    assert "| likely | – |\n" in summary
    assert "–: not checked" in summary
