"""An unexpected error about one model is the result of that model; all other models are handled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxgate.commands import export, matrix_prediction
from onnxgate.commands.export import export_models
from onnxgate.commands.files_without_config import check_files, make_request
from onnxgate.commands.fix import pipeline as fix_pipeline
from onnxgate.commands.fix.pipeline import FixOptions, fix_models
from onnxgate.commands.init import repository_survey
from onnxgate.commands.init.repository_survey import survey_repository
from onnxgate.project.config.loader import load_config
from onnxgate.project.lock import update
from onnxgate.project.lock.types import Lock
from onnxgate.project.lock.update import UnlockableError, lock_models
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.stages.export_jobs import ProjectToolchain
from tests.harness.models import parse, write

NET = "g (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }"
CONFIG = 'models = ["*.onnx"]\n[targets.server]\nruntime = "onnxruntime>=1.18,<1.25"\n'
BUG = "this is a bug in onnxgate: ZeroDivisionError: of a.onnx"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with the models `a.onnx` and `b.onnx`."""
    monkeypatch.setenv("ONNXGATE_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("a.onnx", "b.onnx"):
        write(folder / name, parse(NET, '<ir_version: 8, opset_import: ["" : 17]>\n'))
    (folder / "onnxgate.toml").write_text(CONFIG, encoding="utf-8")
    return folder


def fail_for_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with an unexpected error if an argument is about `a.onnx`."""

    def fail(*arguments: Any) -> Any:
        if any("a.onnx" in str(it) and "b.onnx" not in str(it) for it in arguments):
            raise ZeroDivisionError("of a.onnx")
        return function(*arguments)

    return fail


def has_bug_report(folder: Path) -> bool:
    """Return whether one bug report was written."""
    return len(list((folder.parent / "cache" / "bugs").iterdir())) == 1


def test_lock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the model, and all other models that cannot be locked; the exit status is 3."""
    monkeypatch.setattr(update, "read_model", fail_for_first(update.read_model))
    (folder / "b.onnx").write_bytes(b"")
    with pytest.raises(UnlockableError) as caught:
        lock_models(load_config(folder / "onnxgate.toml").models(), {}, {})

    first, second = caught.value.problems
    assert first.startswith(f"`a.onnx`: {BUG}; report this bug at")
    assert second.startswith("`b.onnx`: ")
    assert caught.value.exit_code == 3
    assert has_bug_report(folder)


def test_matrix(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The predictions for the model are unknown, and those for the other model are made."""
    entries = matrix_prediction._predict_entries

    def fail(outcome: Any, planned: Any, *arguments: Any) -> Any:
        return fail_for_first(lambda _: entries(outcome, planned, *arguments))(planned.path)

    monkeypatch.setattr(matrix_prediction, "_predict_entries", fail)
    request = make_request([Path("a.onnx"), Path("b.onnx")], None, folder, 1)
    matrix = check_files(request, "error", drawn=False).matrix
    first, second = matrix.models

    assert {entry.predicted for entry in first.runtimes} == {"unknown"}
    assert first.runtimes[0].reasons[0].message.startswith(BUG)
    assert "loads" in {entry.predicted for entry in second.runtimes}
    assert matrix.verdict == "undecided"
    assert has_bug_report(folder)


def test_fix(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is not repaired, and the other model is handled."""
    monkeypatch.setattr(fix_pipeline, "read_pointer", fail_for_first(fix_pipeline.read_pointer))
    request = make_request([Path("a.onnx"), Path("b.onnx")], "onnxruntime>=1.18,<1.20", folder, 1)
    pool = WorkerPool(Environments(folder / "environments", offline=True), 1)
    scratch = folder / "scratch"
    scratch.mkdir()
    first, second = fix_models(request, FixOptions(), pool, scratch, runs=False)

    assert (first.state, first.reason, second.state) == ("unverified", BUG, "unchanged")
    assert has_bug_report(folder)


def test_export(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is not compared, and the other model is exported; here, no worker is needed for either."""
    text = "".join(f'[[model]]\npath = "{name}"\nsource = "e.py:build"\n' for name in ("a.onnx", "b.onnx"))
    (folder / "onnxgate.toml").write_text(CONFIG + text, encoding="utf-8")
    (folder / "e.py").write_text("def build(): ...\n", encoding="utf-8")
    monkeypatch.setattr(export, "read_data_locations", fail_for_first(export.read_data_locations))

    class Job:
        """A submitted job that fails in the gate."""

        def result(self) -> None:
            """Raise an unexpected error."""
            raise ZeroDivisionError("of b.onnx")

    monkeypatch.setattr(export, "submit_export", lambda *_: Job())
    project = load_config(folder / "onnxgate.toml")
    toolchain = ProjectToolchain(project, Path(sys.executable))
    pool = WorkerPool(Environments(folder / "environments", offline=True), 1)
    outcomes = export_models(toolchain, Lock(), project.models(), folder / "scratch", pool)

    reasons = {model.path: outcome.undone.reason for model, outcome in outcomes if outcome.undone}
    assert reasons == {"a.onnx": BUG, "b.onnx": BUG.replace("a.onnx", "b.onnx")}


def test_init(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The survey contains the model without facts, as for a file that cannot be read."""
    monkeypatch.setattr(repository_survey, "read_facts", fail_for_first(repository_survey.read_facts))
    survey = survey_repository(folder)

    assert survey.models == ("a.onnx", "b.onnx")
    assert [facts.path for facts in survey.facts] == ["b.onnx"]
