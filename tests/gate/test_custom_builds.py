"""User builds without shipped support data, and those whose data cannot be extracted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.gate.static_cache import UNREADABLE_BUILD, CustomBuilds
from onnxgate.project.lock.types import Lock, LockedRuntime
from onnxgate.project.plan import PlannedRuntime

NOBODY = cast("Any", None)  # never called
OWN = PlannedRuntime(
    runtime=LockedRuntime(engine="onnxruntime", release="1.20.1", environment="mine"),
    targets=("own",),
    levels=("all",),
    providers=("CPUExecutionProvider",),
    required=True,
)


def library(folder: Path, python: str) -> Path:
    """Return the path of an engine's native library in an environment."""
    path = folder / "mine" / "lib" / python / "site-packages" / "onnxruntime" / "capi" / "engine.so"
    path.parent.mkdir(parents=True)
    return path


def harvested(folder: Path) -> list[IncompleteCheck]:
    """Return the skipped checks for a build whose worker must not be started."""
    builds = CustomBuilds(folder / "support", Lock(), folder).harvest([OWN], NOBODY)
    assert {} == builds.supports
    return builds.skipped


@pytest.mark.parametrize("pythons", [(), ("python3.10", "python3.11")])
def test_ambiguous_build_has_a_reason(pythons: tuple[str, ...], tmp_path: Path) -> None:
    """If the build's libraries are not in the environment or exist twice, the reason is reported."""
    (tmp_path / "mine").mkdir()
    for python in pythons:
        library(tmp_path, python).write_bytes(b"")

    assert [IncompleteCheck(Stage.SUPPORT, "", "onnxruntime@mine 1.20.1", UNREADABLE_BUILD)] == harvested(tmp_path)


def test_unreadable_libraries_are_not_an_internal_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries in another user's folder may be unreadable, which is not an internal error."""

    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    library(tmp_path, "python3.11").write_bytes(b"")
    monkeypatch.setattr(Path, "open", refuse)

    assert [IncompleteCheck(Stage.SUPPORT, "", "onnxruntime@mine 1.20.1", UNREADABLE_BUILD)] == harvested(tmp_path)


def test_missing_environment_is_reported_once(tmp_path: Path) -> None:
    """A missing environment is reported only by the runtime stage."""
    assert [] == harvested(tmp_path)
