"""Plan of the runtimes of several targets: which are shared and which are separate."""

from __future__ import annotations

from pathlib import Path

from onnxgate.project.config.project import Project
from onnxgate.project.config.schema import Target
from onnxgate.project.lock.comparison import target_policy
from onnxgate.project.lock.types import Lock, LockedRuntime, LockedTarget
from onnxgate.project.plan import PlannedRuntime, find_unlocked_builds, plan_models
from onnxgate.runtimes.worker_spec import WorkerSpec
from tests.harness.locks import project_of
from tests.harness.models import write

CONFIG = """
models = ["m.onnx"]
[targets.plain]
runtime = "onnxruntime==1.19.*"
[targets.also]
runtime = "onnxruntime>=1.19,<1.20"
optimization = ["all"]
required = false
[targets.extended]
runtime = "onnxruntime==1.19.*"
extensions = ["foo>1", "libs/foo.so"]
[targets.own]
runtime = "onnxruntime==1.19.*"
python = ".venv"
[targets.absent]
runtime = "onnxruntime==1.20.*"
python = "gpu"
required = false
"""
PINS = ("numpy==2.4.6", "onnxruntime==1.19.2")
ROW = LockedRuntime(engine="onnxruntime", release="1.19.2", python="3.11", packages=PINS)
ROWS = {
    "plain": (ROW,),
    "also": (ROW,),
    "extended": (
        LockedRuntime(
            engine="onnxruntime",
            release="1.19.2",
            python="3.11",
            packages=("foo==1.5", *PINS),
            extensions=("foo>1", "libs/foo.so"),
        ),
    ),
    "own": (LockedRuntime(engine="onnxruntime", release="1.19.2", environment=".venv"),),
    "absent": (),
}


def project(folder: Path) -> Project:
    """Create a project with one model."""
    write(folder / "m.onnx")
    return project_of(folder, CONFIG)


def lock_of(targets: dict[str, Target]) -> Lock:
    """Return a lock for these targets."""
    return Lock(
        targets={
            name: LockedTarget(policy=target_policy(target), runtimes=ROWS[name]) for name, target in targets.items()
        }
    )


def planned(folder: Path) -> tuple[PlannedRuntime, ...]:
    """Return the planned runtimes of the model."""
    of = project(folder)
    (model,) = plan_models(of, lock_of(of.config.targets), of.models())
    return model.runtimes


def test_one_release_is_several_runtimes(tmp_path: Path) -> None:
    """Runtimes with extensions and in user environments are separate; targets with identical requirements share one."""
    runtimes = planned(tmp_path)

    assert {runtime.name: runtime.targets for runtime in runtimes} == {
        "onnxruntime 1.19.2": ("also", "plain"),
        "onnxruntime+foo>1+libs/foo.so 1.19.2": ("extended",),
        "onnxruntime@.venv 1.19.2": ("own",),
    }
    assert len({WorkerSpec.of_runtime(runtime.runtime, (), tmp_path) for runtime in runtimes}) == 3


def test_extensions(tmp_path: Path) -> None:
    """Extension packages are passed by name, libraries by absolute path."""
    extensions = {planned_model.targets: planned_model.extensions for planned_model in planned(tmp_path)}

    assert extensions["extended",] == ("foo", str(tmp_path / "libs" / "foo.so"))
    assert extensions["also", "plain"] == extensions["own",] == ()


def test_user_environment_spec(tmp_path: Path) -> None:
    """A user environment is relative to the config's folder and has no pinned packages."""
    worker_spec = next(
        WorkerSpec.of_runtime(planned_model.runtime, (), tmp_path)
        for planned_model in planned(tmp_path)
        if planned_model.targets == ("own",)
    )

    assert (worker_spec.name, worker_spec.interpreter) == ("onnxruntime@.venv 1.19.2", tmp_path / ".venv")
    assert worker_spec.packages == ()


def test_missing_optional_build_is_reported_if_used(tmp_path: Path) -> None:
    """An optional target without a build is reported only if a selected model uses it."""
    of = project(tmp_path)
    lock = lock_of(of.config.targets)

    (said,) = find_unlocked_builds(of, lock, of.models())

    assert said.reason == "target `absent` is not locked: `gpu` did not contain `onnxruntime==1.20.*`"
    there = {**lock.targets, "absent": lock.targets["own"]}
    assert find_unlocked_builds(of, Lock(targets=there), of.models()) == ()
    assert find_unlocked_builds(of, lock, ()) == ()
    assert find_unlocked_builds(of, Lock(), of.models()) == ()
