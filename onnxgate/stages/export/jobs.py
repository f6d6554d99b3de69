"""The jobs of the export stage: one per model writes its file.

Where a command writes it, a source beside it is asked for eager outputs alone. A second export, differently seeded and
from another folder, is one more job of the same kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from packaging.specifiers import SpecifierSet

from onnxgate.core.errors import ConfigError
from onnxgate.core.jobs import Command, Export, InputCase
from onnxgate.runtimes.environments.toolchain import find_toolchain, required_frameworks
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.stages.support.predictions import has_release_limits
from onnxgate.support.tables.limits import get_limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onnxgate.project.config.project import Project, SelectedModel
    from onnxgate.project.lock.types import LockedRuntime
    from onnxgate.project.plan import PlannedModel

SEED = "0"
SECOND_SEED = "1"
EXPORTED_DOMAINS = ("ai.onnx", "ai.onnx.ml")
"""Domains whose opset exporters can be called with."""
_TOOLCHAIN_TURN = "toolchain"
"""Sources may write files into their own folder, so that two of them never run at once."""
_MAX_IR_VERSION = 64  # more than there will be for long


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The export jobs of one model. At least one of the two exists."""

    model: SelectedModel
    source: Export | None
    command: Command | None
    written: Path | None = None  # where the command is to write
    opset_limits: Mapping[str, int] = field(default_factory=dict)  # domain -> the newest that every runtime takes
    again: Export | Command | None = None  # the second export
    written_again: Path | None = None

    @property
    def job(self) -> Export | Command:
        """The job that writes the file."""
        job = self.command or self.source
        assert job is not None  # callers check `settings.is_exported`
        return job

    @property
    def words(self) -> str:
        """What messages call that which writes the file."""
        return " ".join(self.model.settings.command or (self.model.settings.source or "",))


@dataclass(frozen=True, slots=True)
class ProjectToolchain:
    """The interpreter that exports the models of a project."""

    project: Project
    python: Path

    @classmethod
    def of_project(cls, project: Project) -> ProjectToolchain:
        """
        Find the interpreter.

        Raises:
            UnavailableError: none has what the exports need.
        """
        needs = required_frameworks(project.config, project.folder)
        return cls(project, find_toolchain(project.folder, project.config.toolchain, needs))

    @property
    def spec(self) -> WorkerSpec:
        """The worker that exports."""
        return create_toolchain_spec(self.python)

    @property
    def second_spec(self) -> WorkerSpec:
        """A second process of the same interpreter, with another order of sets and dictionaries of strings."""
        return create_toolchain_spec(self.python, "toolchain again", SECOND_SEED)


def create_toolchain_spec(python: Path, name: str = "toolchain", seed: str = SEED) -> WorkerSpec:
    """Return the worker of an interpreter; sets and dictionaries of strings have one order in it."""
    return WorkerSpec.of_interpreter(name, python, {"PYTHONHASHSEED": seed}, turn=_TOOLCHAIN_TURN)


def plan_export(
    toolchain: ProjectToolchain,
    planned: PlannedModel,
    scratch: Path,
    *,
    cases: Sequence[InputCase] = (),
    external_data: bool = False,
    float64: bool = False,
    twice: bool = False,
) -> ExportPlan:
    """
    Plan the jobs of a model that has a source, a command or both, in `scratch`, an empty folder of its own.

    The file gets the pinned opsets; a domain without a pin gets the exporter's default, but no version newer than every
    runtime of the model takes. `external_data` says that the committed file has some. `twice` plans a second export.

    Raises:
        ConfigError: the command has an opset placeholder and the config pins no opset.
    """
    project, model, pinned = toolchain.project, planned.model, toolchain.project.config.opset
    runtimes = [runtime.runtime for runtime in planned.runtimes]
    limits = common_opset_limits(runtimes)
    command, written = _create_command(toolchain, model, scratch)
    source = None
    if model.settings.source is not None:
        source = Export(
            source=str(project.folder / model.settings.source),
            output=str(_create_folder(scratch / "source")),
            folder=str(project.folder),
            opset=pinned.get("ai.onnx"),
            opset_ml=pinned.get("ai.onnx.ml"),
            opset_max=limits.get("ai.onnx"),
            opset_ml_max=limits.get("ai.onnx.ml"),
            ir_version_max=highest_allowed_ir(project.config.ir_version, common_ir_limit(runtimes)),
            cases=tuple(cases),
            external_data=external_data,
            export=command is None,
            float64=float64,
        )
    plan = ExportPlan(model, source, command, written, limits)
    return _with_second_export(toolchain, plan, scratch / "again") if twice else plan


def plan_source_run(
    toolchain: ProjectToolchain,
    planned: PlannedModel,
    scratch: Path,
    cases: Sequence[InputCase],
    *,
    float64: bool = False,
) -> Export:
    """Return the job that runs a model's source on the cases, and writes no model."""
    plan = plan_export(toolchain, planned, scratch, cases=cases, float64=float64)
    assert plan.source is not None
    return msgspec.structs.replace(plan.source, export=False)


def _with_second_export(toolchain: ProjectToolchain, planned: ExportPlan, scratch: Path) -> ExportPlan:
    """The same with a second export of what writes the file, from another folder and with another seed."""
    if planned.command is not None:
        command, written = _create_command(toolchain, planned.model, scratch)
        return replace(planned, again=command, written_again=written)
    assert planned.source is not None
    again = msgspec.structs.replace(
        planned.source,
        output=str(_create_folder(scratch / "source")),
        cases=(),
        float64=False,
        eager=False,
        seed=1,
    )
    return replace(planned, again=_relocate_job(toolchain.project, planned.model, again, scratch / "elsewhere"))


def _relocate_job(project: Project, model: SelectedModel, job: Export, link: Path) -> Export:
    """Return the job with the repository under another path, or under its own if no link can be made."""
    file = (project.folder / (model.settings.source or "")).resolve()
    root = project.root.resolve()
    if not file.is_relative_to(root):
        return job
    try:
        link.symlink_to(root, target_is_directory=True)
    except OSError:
        return job
    folder = link / project.folder.resolve().relative_to(root)
    return msgspec.structs.replace(job, folder=str(folder), source=str(folder / (model.settings.source or "")))


def with_project_folder(planned: ExportPlan) -> ExportPlan:
    """The second export from the project's own folder, after it failed from another one."""
    first, again = planned.source, planned.again
    assert isinstance(again, Export)
    assert first is not None
    output = _create_folder(Path(again.output).with_name("own"))
    job = msgspec.structs.replace(again, source=first.source, folder=first.folder, output=str(output))
    return replace(planned, again=job)


def is_relocated(planned: ExportPlan) -> bool:
    """Return whether the second export uses another path than the first."""
    first, again = planned.source, planned.again
    return isinstance(again, Export) and first is not None and again.folder != first.folder


def _create_command(
    toolchain: ProjectToolchain, model: SelectedModel, scratch: Path
) -> tuple[Command | None, Path | None]:
    words = model.settings.command
    if words is None:
        return None, None
    written = _create_folder(scratch / "command") / Path(model.path).name
    opset = _pinned_opset(toolchain.project, model)
    values = {"{python}": str(toolchain.python), "{output}": str(written), "{opset}": opset}
    argv = []
    for word in words:
        for placeholder, value in values.items():
            word = word.replace(placeholder, value)
        argv.append(word)
    return Command(argv=tuple(argv), folder=str(toolchain.project.folder)), written


def _create_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def _pinned_opset(project: Project, model: SelectedModel) -> str:
    if not uses_opset_placeholder(model):
        return ""
    if "ai.onnx" not in project.config.opset:
        raise ConfigError(
            f"the command of `{model.path}` asks for `{{opset}}`, and the config names none",
            hint='pin it: opset = { "ai.onnx" = 18 }',
        )
    return str(project.config.opset["ai.onnx"])


def uses_opset_placeholder(model: SelectedModel) -> bool:
    """Whether the command hands the pinned opset to its program."""
    return any("{opset}" in word for word in model.settings.command or ())


def common_ir_limit(runtimes: Iterable[LockedRuntime]) -> int | None:
    """Return the highest IR version that all runtimes with data support; None if none has data."""
    known = [get_limits(runtime.release) for runtime in runtimes if has_release_limits(runtime)]
    return min((limits.ir for limits in known if limits is not None), default=None)


def common_opset_limits(runtimes: Iterable[LockedRuntime]) -> dict[str, int]:
    """Return the newest opset of each domain that all runtimes take, as far as the support tables have them."""
    known = [get_limits(runtime.release) for runtime in runtimes if has_release_limits(runtime)]
    common: dict[str, int] = {}
    for limits in known:
        for domain, version in limits.opsets.items() if limits is not None else ():
            common[domain] = min(version, common.get(domain, version))
    return common


def highest_allowed_ir(pinned: str | int | None, limit: int | None) -> int | None:
    """The highest IR version that both the config's `ir-version` and the limit of the runtimes allow."""
    allowed = range(1, _MAX_IR_VERSION)
    if isinstance(pinned, int):
        allowed = range(pinned, pinned + 1)
    elif pinned is not None:
        specifier = SpecifierSet(pinned)
        allowed = range(1, max((v for v in allowed if specifier.contains(str(v))), default=0) + 1)
    highest = min(max(allowed, default=_MAX_IR_VERSION), limit or _MAX_IR_VERSION)
    return None if highest >= _MAX_IR_VERSION - 1 else highest
