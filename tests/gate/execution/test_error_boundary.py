"""An unexpected error about one model makes only its checks undecided; other models are judged."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import onnx
import pytest

from onnxgate.core.errors import ConfigError
from onnxgate.core.findings import CHANGED_FILES, Stage
from onnxgate.core.jobs import Job, Run
from onnxgate.core.process_pool import CallFailure, FailedCallError
from onnxgate.gate.execution import executor
from tests.gate.execution.test_model_readings import WatchedRuntimes, execute
from tests.gate.execution.test_size_retries import NEW
from tests.gate.test_changed_files import grow, remove, replace, save_model, truncate
from tests.harness.models import parse

CALLING = {
    "TopK": """g (float[N, 4] x) => (float[N, 2] y, int64[N, 2] i)
        <int64[1] k = {2}> { a = Relu(x) y, i = TopK(a, k) }""",
    "If": """g (float[N, 4] x) => (float[N, 4] y) <int64 one = {1}, int64 three = {3}> {
        c = Relu(x) sizes = Shape(c) columns = Gather(sizes, one) wide = Greater(columns, three)
        y = If(wide) <then_branch = t () => (float[N, 4] a) { a = Relu(x) },
                      else_branch = e () => (float[N, 4] b) { b = Neg(x) }> }""",
}
"""Models for which the dynamic stages infer shapes."""
STEPS = {
    "creating input cases": ("create_cases", lambda _, selected, *__: selected.path),
    "collecting runs": ("RunEvidence", lambda _, started, *__: started.prepared.planned.path),
    "parity": ("OutputComparer", lambda _, started, *__: started.prepared.planned.path),
}
"""Each step in the executor, with a function that returns the model from its arguments."""


@pytest.fixture(name="cache", autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write bug reports to a folder of the test."""
    monkeypatch.setattr("onnxgate.core.bug_reports.cache_dir", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def fail_for(monkeypatch: pytest.MonkeyPatch, step: str, model: str, error: Exception) -> None:
    """Raise an error in a step of one model."""
    name, path_of = STEPS[step]
    original: Callable[..., Any] = getattr(executor, name)

    def run(*arguments: Any) -> Any:
        if path_of(*arguments) == model:
            raise error
        return original(*arguments)

    monkeypatch.setattr(executor, name, run)


def save_models(folder: Path) -> Path:
    """Save two models and return their folder."""
    folder.mkdir()
    for name in ("bad.onnx", "good.onnx"):
        onnx.save(parse(), folder / name)
    return folder


@pytest.mark.parametrize("step", STEPS)
def test_unexpected_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, cache: Path) -> None:
    """The model is undecided, with a bug report that contains the traceback; the other model is judged."""
    fail_for(monkeypatch, step, "bad.onnx", ValueError("cannot reshape array"))

    result = execute(save_models(tmp_path / "models"), WatchedRuntimes(lambda _: None))

    failed = [it for it in result.step.undone if it.model == "bad.onnx"]
    (report,) = (cache / "bugs").iterdir()
    assert {Stage.RUNTIME, Stage.PARITY} == {it.stage for it in failed}
    assert all("this is a bug in onnxgate" in it.reason and str(report) in it.hint for it in failed)
    assert "ValueError: cannot reshape array" in report.read_text()
    assert ["good.onnx"] == list(result.collected)
    assert ("good.onnx", NEW) in result.ran


@pytest.mark.parametrize("step", STEPS)
def test_machine_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, cache: Path) -> None:
    """A full disk is not a bug in onnxgate."""
    fail_for(monkeypatch, step, "bad.onnx", OSError(errno.ENOSPC, "No space left on device"))

    result = execute(save_models(tmp_path / "models"), WatchedRuntimes(lambda _: None))

    assert ["good.onnx"] == list(result.collected)
    assert all("no space left on device" in it.reason for it in result.step.undone if it.model == "bad.onnx")
    assert not (cache / "bugs").exists()


@pytest.mark.parametrize("step", STEPS)
def test_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """An error in the config ends the check."""
    fail_for(monkeypatch, step, "bad.onnx", ConfigError("`inputs` is wrong"))

    with pytest.raises(ConfigError, match="`inputs` is wrong"):
        execute(save_models(tmp_path / "models"), WatchedRuntimes(lambda _: None))


def test_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl+C ends the check."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(executor, "create_cases", interrupt)

    with pytest.raises(KeyboardInterrupt):
        execute(save_models(tmp_path / "models"), WatchedRuntimes(lambda _: None))


@pytest.mark.parametrize("text", ["If", "TopK"])
def test_crash_of_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """If a function of onnx crashes, one note about the model states that inputs and comparisons lack its result."""
    onnx.save(parse(CALLING[text]), tmp_path / "bad.onnx")
    onnx.save(parse(), tmp_path / "good.onnx")
    requests: list[str] = []

    def crash(_: object, request: tuple[str, bytes, tuple[object, ...]]) -> NoReturn:
        requests.append(request[0])
        raise FailedCallError(CallFailure("crashed", "SIGSEGV"), "onnx's shape inference")

    monkeypatch.setattr("onnxgate.model.onnx_functions._OnnxProcess.run", crash)

    result = execute(tmp_path, WatchedRuntimes(lambda _: None))

    (note,) = result.step.skipped
    assert requests
    assert "bad.onnx" == note.model
    assert (
        "onnx's shape inference crashed (SIGSEGV); inputs and comparisons were chosen without the result" == note.reason
    )
    assert "attach the model" in note.hint
    assert not result.step.undone
    assert not result.collected["bad.onnx"].is_lasting


@pytest.mark.parametrize("change", [truncate, grow, replace, remove])
@pytest.mark.parametrize("moment", ["input cases", "run", "parity"])
def test_data_that_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], moment: str, cache: Path
) -> None:
    """A model whose external data changes is undecided for this reason, and is not a bug; other models are judged."""
    save_model(tmp_path)
    onnx.save(parse(), tmp_path / "good.onnx")
    changed: list[Path] = []

    def change_once() -> None:
        if not changed:
            changed.append(tmp_path / "m.bin")
            change(changed[0])

    def watch(job: Job) -> None:
        if moment == "run" and isinstance(job, Run) and job.model.endswith("m.onnx"):
            change_once()

    name = {"input cases": "create_cases", "parity": "OutputComparer"}.get(moment)
    if name is not None:
        original: Callable[..., Any] = getattr(executor, name)

        def run(*arguments: Any) -> Any:
            change_once()
            return original(*arguments)

        monkeypatch.setattr(executor, name, run)

    result = execute(tmp_path, WatchedRuntimes(watch))

    reasons = {(it.reason, it.hint) for it in result.step.undone if it.model == "m.onnx"}
    assert changed
    assert {CHANGED_FILES} == reasons
    assert ["good.onnx"] == list(result.collected)
    assert not (cache / "bugs").exists()
