"""Plan which models run on which runtimes, and how."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from onnxgate.core.findings import IncompleteCheck, Stage, runtime_sort_key
from onnxgate.core.jobs import Optimization
from onnxgate.core.report import ReportedRuntime
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.config.schema import Target
from onnxgate.project.engines import has_optimization_levels, has_providers, is_library, package_name
from onnxgate.project.lock.comparison import is_optional_build
from onnxgate.project.lock.types import Lock, LockedRuntime


class PlannedRuntime(msgspec.Struct, frozen=True):
    """One runtime of one or more targets, with their merged settings."""

    runtime: LockedRuntime
    targets: tuple[str, ...]
    levels: tuple[Optimization, ...]
    providers: tuple[str, ...]
    required: bool  # by at least one target
    extensions: tuple[str, ...] = ()  # packages and absolute paths of libraries that register custom operators

    @property
    def name(self) -> str:
        """The runtime's name, such as `onnxruntime 1.18.1`."""
        return self.runtime.name


class PlannedModel(msgspec.Struct, frozen=True):
    """One model with its runtimes, in ascending order."""

    model: SelectedModel
    runtimes: tuple[PlannedRuntime, ...]

    @property
    def path(self) -> str:
        """The model's path, relative to the config's folder."""
        return self.model.path


def plan_models(project: Project, lock: Lock, models: Sequence[SelectedModel]) -> tuple[PlannedModel, ...]:
    """Return the selected models with the locked runtimes of their targets; a target that is not locked has none."""
    planned = {names: _plan_runtimes(project, lock, names) for names in {model.settings.targets for model in models}}
    return tuple(PlannedModel(model, planned[model.settings.targets]) for model in models)


def locked_runtimes(project: Project, lock: Lock) -> tuple[tuple[str, Target, LockedRuntime], ...]:
    """Return all runtimes of the targets that are in both the config and the lock, by target and release."""
    return tuple(
        (name, target, runtime)
        for name, target in sorted(project.config.targets.items())
        if name in lock.targets
        for runtime in lock.targets[name].runtimes
    )


def _plan_runtimes(project: Project, lock: Lock, names: Collection[str]) -> tuple[PlannedRuntime, ...]:
    targets: dict[LockedRuntime, dict[str, Target]] = {}
    for name, target, runtime in locked_runtimes(project, lock):
        if not names or name in names:
            targets.setdefault(runtime, {})[name] = target
    planned = []
    for runtime, by_name in targets.items():
        levels = dict.fromkeys(level for target in by_name.values() for level in target.optimization)
        extensions = [
            str((project.folder / extension).absolute()) if is_library(extension) else package_name(extension)
            for extension in runtime.extensions
        ]
        planned.append(
            PlannedRuntime(
                runtime=runtime,
                targets=tuple(by_name),
                levels=tuple(levels) if has_optimization_levels(runtime.engine) else ("all",),
                providers=requested_providers(runtime, *by_name.values()),
                required=any(target.required for target in by_name.values()),
                extensions=tuple(extensions),
            )
        )
    return tuple(sorted(planned, key=lambda runtime: runtime_sort_key(runtime.name)))


def find_unlocked_builds(project: Project, lock: Lock, models: Sequence[SelectedModel]) -> tuple[IncompleteCheck, ...]:
    """Return a skipped check for each optional user environment that did not exist when the lock was written."""
    selected = {name for model in models for name in model.settings.targets or project.config.targets}
    return tuple(
        IncompleteCheck(
            stage=Stage.LOCK,
            model="",
            runtime="",
            reason=f"target `{name}` is not locked: `{target.python}` did not contain `{target.runtime}`",
            hint="run `onnxgate lock` on a machine where the environment contains this package",
        )
        for name, target in sorted(project.config.targets.items())
        if name in selected and is_optional_build(target) and name in lock.targets and not lock.targets[name].runtimes
    )


def report_runtime(name: str, target: Target, runtime: LockedRuntime) -> ReportedRuntime:
    """Return one of the target's runtimes in the form that reports use."""
    return ReportedRuntime(
        target=name,
        engine=runtime.variant,
        version=runtime.release,
        python=runtime.python,
        providers=requested_providers(runtime, target),
    )


def requested_providers(runtime: LockedRuntime, *targets: Target) -> tuple[str, ...]:
    """Return the execution providers that these targets request; none if the engine has no providers."""
    if not has_providers(runtime.engine):
        return ()
    return tuple(dict.fromkeys(provider for target in targets for provider in target.providers))
