"""An unexpected error about one model is the result of that model; all other models are handled."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from onnxgate.cli import export as export_command
from onnxgate.cli import fix, lock
from onnxgate.commands import export, matrix_prediction, measurement
from onnxgate.commands.export import export_models
from onnxgate.commands.files_without_config import check_files, make_request
from onnxgate.commands.fix import pipeline as fix_pipeline
from onnxgate.commands.fix.pipeline import FixOptions, FixResult, RepairedFile, fix_models
from onnxgate.commands.init import deployed_runtimes, repository_survey
from onnxgate.commands.init.repository_survey import survey_repository
from onnxgate.commands.matrix_verification import ReleaseResolver, find_releases, verify_matrix
from onnxgate.commands.measurement import measure_quantized_models
from onnxgate.core.jobs import Completed, Load, LoadResult, Observation
from onnxgate.gate.request import GateRequest
from onnxgate.model.diff.result import Difference, Side
from onnxgate.model.reading.fact_extraction import ParsedModel, read_model
from onnxgate.numerics.tolerance import NoiseMeasurement
from onnxgate.project.config.loader import load_config
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.lock import update
from onnxgate.project.lock.types import Lock, MeasuredQuantization, MeasuredTolerance
from onnxgate.project.lock.update import LockUpdate, UnlockableError, lock_models
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import Progress, WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.stages import lock as lock_stage
from onnxgate.stages.export import ExportOutcome
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
    """Nothing is locked. The error names the model with a bug report, and all other models that cannot be locked."""
    monkeypatch.setattr(update, "read_model", fail_for_first(update.read_model))
    (folder / "b.onnx").write_bytes(b"")
    with pytest.raises(UnlockableError) as caught:
        lock_models(load_config(folder / "onnxgate.toml").models(), {}, {})

    first, second = caught.value.problems
    assert first.startswith(f"`a.onnx`: {BUG}; report this bug at")
    assert second.startswith("`b.onnx`: ")
    assert (caught.value.exit_code, caught.value.hint is None) == (2, False)
    (folder / "b.onnx").unlink()
    with pytest.raises(UnlockableError, match="1 model cannot be locked, so the lock was not written") as alone:
        lock_models(load_config(folder / "onnxgate.toml").models(), {}, {})
    assert (alone.value.exit_code, alone.value.hint) == (3, None)
    assert has_bug_report(folder)


@pytest.mark.parametrize("changed", [False, True])
def test_comparison_with_the_lock(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], changed: bool
) -> None:
    """The lock is not called outdated because of the error: the exit status is 3 unless another model changed."""
    project = load_config(folder / "onnxgate.toml")
    models = lock_models(project.models(), {}, {})
    monkeypatch.setattr(lock, "parse_lock", lambda *_: Lock(models=models))
    monkeypatch.setattr(lock_stage, "policy_differences", lambda *_: ())
    (folder / "onnxgate.lock").touch()
    if changed:
        write(folder / "b.onnx", parse(NET.replace("Relu", "Neg"), '<ir_version: 8, opset_import: ["" : 17]>\n'))
    monkeypatch.setattr(lock_stage, "_compare_model", fail_for_first(lock_stage._compare_model))
    monkeypatch.chdir(folder)
    status = lock.command.main(["--check"], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()

    assert f"`a.onnx` could not be compared: {BUG}" in lines
    assert any(line.startswith("hint: report this bug at") for line in lines)
    assert status == (1 if changed else 3)
    assert any("not up to date: 1 difference;" in line for line in lines) == changed
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
    project = configure_sources(folder)
    monkeypatch.setattr(export, "read_data_locations", fail_for_first(export.read_data_locations))

    class Job:
        """A submitted job that fails in the gate."""

        def result(self) -> None:
            """Raise an unexpected error."""
            raise ZeroDivisionError("of b.onnx")

    monkeypatch.setattr(export, "submit_export", lambda *_: Job())
    toolchain = ProjectToolchain(project, Path(sys.executable))
    pool = WorkerPool(Environments(folder / "environments", offline=True), 1)
    outcomes = export_models(toolchain, Lock(), project.models(), folder / "scratch", pool)

    reasons = {model.path: outcome.undone.reason for model, outcome in outcomes if outcome.undone}
    assert reasons == {"a.onnx": BUG, "b.onnx": BUG.replace("a.onnx", "b.onnx")}


def configure_sources(folder: Path) -> Project:
    """Set a source for both models."""
    text = "".join(f'[[model]]\npath = "{name}"\nsource = "e.py:build"\n' for name in ("a.onnx", "b.onnx"))
    (folder / "onnxgate.toml").write_text(CONFIG + text, encoding="utf-8")
    (folder / "e.py").write_text("def build(): ...\n", encoding="utf-8")
    return load_config(folder / "onnxgate.toml")


@pytest.mark.parametrize("step", ["submit", "read"])
def test_lock_with_measured_tolerances(folder: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The other model is measured, and the lock is written; the exit status is 3."""
    configure_sources(folder)
    tolerance = MeasuredTolerance(noise=1.0, bound=8.0)
    answer: Future[str] = Future()
    answer.set_result("")

    def submit(_: object, model: SelectedModel, *__: object) -> tuple[ParsedModel, Future[str]]:
        return read_model(model.absolute, model.path), answer

    def read(_: ParsedModel, __: str) -> NoiseMeasurement:
        return NoiseMeasurement({"y": tolerance})

    measured: list[object] = []
    toolchain = functools.partial(ProjectToolchain, python=Path(sys.executable))
    monkeypatch.setattr(ProjectToolchain, "of_project", toolchain)
    monkeypatch.setattr(measurement, "_submit_source", fail_for_first(submit) if step == "submit" else submit)
    monkeypatch.setattr(measurement, "_read_noise", fail_for_first(read) if step == "read" else read)
    monkeypatch.setattr(lock, "_relock_project", lambda *given: measured.append(given[3]) or LockUpdate(Lock()))
    monkeypatch.chdir(folder)
    status = lock.command.main(["--measure"], standalone_mode=False)

    assert measured == [{"b.onnx": {"y": tolerance}}]
    assert (status, (folder / "onnxgate.lock").exists()) == (3, True)
    assert has_bug_report(folder)


def test_lock_with_measured_accuracy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other model is compared with its float model."""
    text = "".join(f'[[model]]\npath = "{name}"\nquantized-from = "f/f.onnx"\n' for name in ("a.onnx", "b.onnx"))
    (folder / "onnxgate.toml").write_text(CONFIG + text, encoding="utf-8")
    write(folder / "f" / "f.onnx", parse(NET, '<ir_version: 8, opset_import: ["" : 17]>\n'))
    accuracy = {"y": MeasuredQuantization(sqnr_db=50.0, cosine=1.0, top1=1.0, source="f/f.onnx", runtime="")}
    monkeypatch.setattr(measurement, "_measure_quantized_model", fail_for_first(lambda *_: accuracy))
    project = load_config(folder / "onnxgate.toml")
    pool = WorkerPool(Environments(folder / "environments", offline=True), 1)
    measured = measure_quantized_models(project, Lock(), project.models(), pool)

    assert measured.figures == {"b.onnx": accuracy}
    assert [(it.model, it.reason) for it in measured.undone] == [("a.onnx", BUG)]
    assert has_bug_report(folder)


def test_write_of_an_export(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The other model is written; the exit status is 3."""
    project = configure_sources(folder)
    outcomes = [(model, ExportOutcome()) for model in project.models()]
    written: list[str] = []
    monkeypatch.setattr(export_command, "_export", lambda *_: outcomes)
    monkeypatch.setattr(export, "_find_differences", lambda *_: ("a difference",))
    monkeypatch.setattr(export, "_write_model", fail_for_first(lambda model, _: written.append(model.path) or []))
    monkeypatch.chdir(folder)
    status = export_command.command.main([], standalone_mode=False)

    assert (status, written) == (3, ["b.onnx"])
    assert capsys.readouterr().out.startswith(f"a.onnx: not written: {BUG}\n  hint: report this bug at")
    assert has_bug_report(folder)


@pytest.mark.parametrize("name", ["replace_model_file", "_render_result"])
def test_write_of_a_repaired_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """The other model is written; the exit status is 3."""
    written: list[str] = []

    def fix_all(request: GateRequest, *_: object, **__: object) -> Iterator[FixResult]:
        side = Side(name="", sha256="", size_bytes=0, nodes=1, weights=0)
        difference = Difference(onnxgate="", verdict="same", old=side, new=side)
        for model in request.models:
            yield FixResult(model, "repaired", repaired=RepairedFile(model.absolute, "", (), (), difference))

    monkeypatch.setattr(fix, "fix_models", fix_all)
    monkeypatch.setattr(fix, "replace_model_file", lambda model, *_: written.append(model.name))
    monkeypatch.setattr(fix, name, fail_for_first(getattr(fix, name)))
    monkeypatch.chdir(folder)
    status = fix.command.main(["--target", "onnxruntime==1.18.0", "a.onnx", "b.onnx"], standalone_mode=False)

    assert f"a.onnx\n  not written: {BUG}\n    hint: report this bug at" in capsys.readouterr().out
    assert (status, written) == (3, ["b.onnx"])
    assert has_bug_report(folder)


def test_verified_matrix(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of loading the model is unknown, and the other model is verified; the verdict is undecided."""

    def submit(_: object, __: WorkerSpec, job: Load) -> Future[Observation]:
        answer: Future[Observation] = Future()
        if job.model.endswith("a.onnx"):
            answer.set_exception(ZeroDivisionError("of a.onnx"))
        else:
            answer.set_result(Completed(result=LoadResult(providers=("CPUExecutionProvider",))))
        return answer

    request = make_request([Path("a.onnx"), Path("b.onnx")], "onnxruntime==1.18.0", folder, 1)
    monkeypatch.setattr(WorkerPool, "submit", submit)
    spec = WorkerSpec.of_runtime(find_releases(request)[0], ())
    monkeypatch.setattr(ReleaseResolver, "find_specs", lambda _, runtimes: {it.name: spec for it in runtimes})
    pool = WorkerPool(Environments(folder / "environments", offline=True), 1)
    verify = functools.partial(verify_matrix, request=request, pool=pool, progress=Progress(), offline=True)
    checked = check_files(request, "error", drawn=False, target="onnxruntime==1.18.0", verify=verify)
    first, second = (model.runtimes[0] for model in checked.matrix.models)

    assert (first.observed, second.observed) == ("unavailable", "loads")
    assert checked.matrix.exit == 3
    assert any(it.reason.startswith(f"`a.onnx`: {BUG}") for it in checked.matrix.undecided)
    assert has_bug_report(folder)


@pytest.mark.parametrize(
    ("module", "name"), [(repository_survey, "find_export_scripts"), (deployed_runtimes, "_normalize_specifier")]
)
def test_init_with_other_files(folder: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    """An error about one script or requirements file is a problem of this file; other files are read."""
    (folder / "a.py").write_text("import torch\ntorch.onnx.export(m, x, 'b.onnx')\n", encoding="utf-8")
    (folder / "b.py").write_bytes((folder / "a.py").read_bytes())
    (folder / "requirements-a.txt").write_text("onnxruntime==1.18.1\n", encoding="utf-8")
    (folder / "requirements-b.txt").write_text("onnxruntime==1.22.1\n", encoding="utf-8")
    original = getattr(module, name)

    def fail(*arguments: Any) -> Any:
        if any(str(it) in ("a.py", "==1.18.1") for it in arguments):
            raise ZeroDivisionError("of one file")
        return original(*arguments)

    monkeypatch.setattr(module, name, fail)
    survey = survey_repository(folder)
    (problem,) = survey.deployments.problems

    assert problem.split(": ")[0] in ("a.py", "requirements-a.txt")
    assert "this is a bug in onnxgate: ZeroDivisionError: of one file; report this bug" in problem
    assert "b.py" in [it.path for it in survey.exports]
    assert "requirements-b.txt" in [it.file for it in survey.deployments.runtimes]
    assert has_bug_report(folder)


def test_init(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The survey contains the model without facts, as for a file that cannot be read, and names the bug report."""
    monkeypatch.setattr(repository_survey, "read_facts", fail_for_first(repository_survey.read_facts))
    survey = survey_repository(folder)

    (problem,) = survey.deployments.problems
    assert problem.startswith(f"a.onnx: {BUG}; report this bug at")
    assert has_bug_report(folder)
    assert survey.models == ("a.onnx", "b.onnx")
    assert [facts.path for facts in survey.facts] == ["b.onnx"]
