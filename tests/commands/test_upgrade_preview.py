"""Previews in which no runtime can be installed."""

from __future__ import annotations

import datetime
import itertools
from pathlib import Path

import pytest

from onnxgate.commands import upgrade_preview as command
from onnxgate.commands.upgrade_preview import preview_upgrade
from onnxgate.core.findings import ALL_STAGES
from onnxgate.core.report import Preview
from onnxgate.formats import upgrade_preview
from onnxgate.gate.request import Checkout, GateRequest, IgnorePolicy, Selection
from onnxgate.project.lock.comparison import target_policy
from onnxgate.project.lock.lock_file import render_lock
from onnxgate.project.lock.types import Lock, LockedTarget
from onnxgate.project.lock.update import lock_models
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from tests.harness.locks import package, project_of, runtime
from tests.harness.models import parse, write

CONFIG = """
models = ["*.onnx"]
[targets.server]
runtime = "onnxruntime>=1.18,<1.25"
"""
NET = "g (float[N, 4] x) => (float[N, 4] y) { y = Abs(x) }"
OPSET_22 = '<ir_version: 10, opset_import: ["" : 22]>\n'


def previewed(folder: Path, old: tuple[str, ...], new: tuple[str, ...]) -> Preview:
    """Preview an upgrade for a model that releases before 1.21 refuse."""
    folder.mkdir()
    write(folder / "new.onnx", parse(NET, OPSET_22))
    project = project_of(folder, CONFIG)

    def locked(releases: tuple[str, ...]) -> Lock:
        runtimes = tuple(map(runtime, releases))
        policy = target_policy(project.config.targets["server"])
        pins = sorted({tuple(pin.split("==")) for each in runtimes for pin in each.packages})
        return Lock(
            targets={"server": LockedTarget(policy=policy, runtimes=runtimes)},
            packages=tuple(package(name, version) for name, version in pins),
            models=lock_models(project.models(), {}, {}),
        )

    lock, numbers = locked(old), itertools.count()
    request = GateRequest(
        checkout=Checkout(
            project=project,
            lock=lock,
            lock_text=render_lock(lock),
            lock_name="onnxgate.lock",
            models=project.models(),
        ),
        selection=Selection(frozenset(ALL_STAGES)),
        ignores=IgnorePolicy(datetime.date(2026, 1, 1)),
        open_host=lambda: WorkerPool(Environments(folder / "cache", offline=True), 1),
    )
    return preview_upgrade(request, locked(new), "error", lambda: folder / f"kept{next(numbers)}")


def rules(actual: Preview) -> list[str]:
    """Return the rules of the findings that the upgrade resolves."""
    return [repair.rule for repair in actual.repairs]


def test_runtime_that_cannot_be_tried(tmp_path: Path) -> None:
    """If the new runtime cannot be installed, nothing is resolved and the result is undecided."""
    actual = previewed(tmp_path / "tried", ("1.18.1",), ("1.24.4",))
    output = upgrade_preview.format(actual).splitlines()

    assert [arrival.state for arrival in actual.arrivals] == ["undecided"]
    assert (rules(actual), actual.breaks) == ([], ())
    assert output[-1].startswith("preview: no new findings, some checks were undecided; the lock was not changed")


def test_runtime_that_only_leaves(tmp_path: Path) -> None:
    """Findings of a removed runtime are resolved, even if the others could not be checked."""
    actual = previewed(tmp_path / "leaves", ("1.18.1", "1.24.4"), ("1.24.4",))

    assert actual.arrivals == ()
    assert rules(actual) == ["opset-too-new"]


def test_unexpected_error_about_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error while outputs are compared leaves this model undecided, and the preview is written."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("of new.onnx")

    monkeypatch.setenv("ONNXGATE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(command, "_measure_output_changes", fail)
    actual = previewed(tmp_path / "fails", ("1.18.1",), ("1.24.4",))
    undone = actual.undecided[-1]

    assert (undone.model, undone.runtime) == ("new.onnx", "onnxruntime 1.24.4")
    assert undone.reason == actual.arrivals[0].unlike == "this is a bug in onnxgate: ZeroDivisionError: of new.onnx"
    assert list((tmp_path / "cache" / "bugs").iterdir())
