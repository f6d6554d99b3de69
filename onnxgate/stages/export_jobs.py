"""Jobs of the export stage, and the parsing of their errors.

One job per model writes its file. If a command writes the file, the source only computes eager outputs. The second
export is another job of the same kind, with a different seed and in a different folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from packaging.specifiers import SpecifierSet

from onnxgate.core.jobs import Command, CommandResult, Export, Failure, InputCase, Observation, Unavailable
from onnxgate.core.subprocesses import describe_exit_status
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedModel
from onnxgate.runtimes.environments.toolchain import find_toolchain, required_frameworks
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.stages.support.runtime_data import find_table_engine
from onnxgate.support.limits import Limits, get_limits

EXPORTED_DOMAINS = ("ai.onnx", "ai.onnx.ml")
"""Domains whose opset can be passed to exporters."""
_TOOLCHAIN_TURN = "toolchain"
"""Jobs with this name never run concurrently, because sources may write files into their own folder."""
_MAX_IR_VERSION = 64  # far above the current version
MAX_ERROR_LENGTH = 600
_TRACEBACK_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_ERROR_LINE = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*: \S.*")
_ERROR_CLASS = re.compile(r"(?:^<class '(?:[\w.]+\.)?(\w+)'>|^(?:[a-z_]\w*\.)+([A-Z]\w*)): ")
_SUMMARY_HEADING = "## Exception summary"
"""Heading that torch.onnx prints between a page of advice and the cause of an error. Source: torch 2.13."""
_CONTEXT_LINE = "During handling of the above exception, another exception occurred:"
_CAUSE_LINE = "The above exception was the direct cause of the following exception:"
_PYTHON_PATH = re.compile(
    r"(?<![\w./\\-])(?:[A-Za-z]:)?[/\\](?:[^\s'\":]*[/\\])?(python)[\d.]*(?:\.exe)?(?=[\s:'\"]|$)"
)


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """Export jobs of one model: `source`, `command` or both."""

    model: SelectedModel
    source: Export | None
    command: Command | None
    written: Path | None = None  # output path of the command
    opset_limits: Mapping[str, int] = field(default_factory=dict)  # domain -> newest opset that every runtime supports
    again: Export | Command | None = None  # the second export
    written_again: Path | None = None
    problem: Unavailable | None = None  # why the command cannot be run

    @property
    def job(self) -> Export | Command:
        """Job that writes the file."""
        job = self.command or self.source
        assert job is not None  # callers check `settings.is_exported`
        return job

    @property
    def source_name(self) -> str:
        """Name of the source or command in messages."""
        settings = self.model.settings
        return settings.source or "" if self.command is None else " ".join(settings.command or ())


@dataclass(frozen=True, slots=True)
class ProjectToolchain:
    """Interpreter that exports the models in a project."""

    project: Project
    python: Path
    seed: int = 0  # 0 or 1, for the first exports; second exports use the other seed

    @classmethod
    def of_project(cls, project: Project) -> ProjectToolchain:
        """
        Find the interpreter.

        Raises:
            UnavailableError: no interpreter has the packages that the exports need.
        """
        needs = required_frameworks(project.config, project.folder)
        return cls(project, find_toolchain(project.folder, project.config.toolchain, needs))

    @property
    def spec(self) -> WorkerSpec:
        """Worker for the first exports."""
        return create_toolchain_spec(self.python, "toolchain", str(self.seed))

    @property
    def second_spec(self) -> WorkerSpec:
        """Second worker with the same interpreter and a different hash seed."""
        return create_toolchain_spec(self.python, "second export", str(1 - self.seed))


def create_toolchain_spec(python: Path, name: str = "toolchain", seed: str = "0") -> WorkerSpec:
    """Return a worker with this interpreter and a fixed hash seed, so that sets of strings have a fixed order."""
    return WorkerSpec(name, interpreter=python, environment=(("PYTHONHASHSEED", seed),), turn=_TOOLCHAIN_TURN)


def plan_export(
    toolchain: ProjectToolchain,
    planned: PlannedModel,
    scratch: Path,
    *,
    cases: Sequence[InputCase] = (),
    external_data: bool = False,
) -> ExportPlan:
    """
    Plan the export jobs of a model with a source, a command or both. `scratch` is an empty folder.

    The export uses the pinned opsets. A domain without a pinned opset uses the exporter's default, but at most the
    newest opset that every runtime of the model supports. `external_data` means that the committed file has external
    data.
    """
    project, model = toolchain.project, planned.model
    pinned = project.required_opset(model)
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
            float64=command is None and bool(cases),
            seed=toolchain.seed,
            committed=os.fspath(model.absolute),
        )
    problem = None
    if "ai.onnx" not in pinned and uses_opset_placeholder(model):
        reason = "the command uses `{opset}`, but the config does not pin an opset"
        problem = Unavailable(reason=reason, hint="pin an opset: `opset = 18`")
    return ExportPlan(model, source, command, written, limits, problem=problem)


def submit_export(plan: ExportPlan, spec: WorkerSpec, pool: WorkerPool) -> Future[Observation]:
    """Submit the job that writes the file. If its command cannot be run, return the reason as its observation."""
    if plan.problem is None:
        return pool.submit(spec, plan.job)
    refused: Future[Observation] = Future()
    refused.set_result(plan.problem)
    return refused


def plan_source_run(
    toolchain: ProjectToolchain,
    planned: PlannedModel,
    scratch: Path,
    cases: Sequence[InputCase],
    *,
    float64: bool = False,
) -> Export:
    """Return the job that runs a model's source on the cases without writing a model."""
    plan = plan_export(toolchain, planned, scratch, cases=cases)
    assert plan.source is not None
    return msgspec.structs.replace(plan.source, export=False, float64=float64)


def plan_second_export(toolchain: ProjectToolchain, plan: ExportPlan, scratch: Path) -> ExportPlan:
    """Add a second export of the file, in a different folder and with a different seed."""
    if plan.command is not None:
        command, written = _create_command(toolchain, plan.model, scratch)
        return replace(plan, again=command, written_again=written)
    assert plan.source is not None
    output = str(_create_folder(scratch / "source"))
    again = msgspec.structs.replace(
        plan.source, output=output, cases=(), eager=False, float64=False, seed=1 - toolchain.seed
    )
    return replace(plan, again=_relocate_job(toolchain.project, plan.model, again, scratch / "elsewhere"))


def _relocate_job(project: Project, model: SelectedModel, job: Export, link: Path) -> Export:
    """Return the job with paths through `link`, which becomes a link to the repository.

    Return the job unchanged if links are not supported, or if the source is outside the repository.
    """
    source, root = model.settings.source or "", project.root.resolve()
    if not (project.folder / source).resolve().is_relative_to(root):
        return job
    try:
        link.symlink_to(root, target_is_directory=True)
    except OSError:
        return job
    folder = link / project.folder.resolve().relative_to(root)
    return msgspec.structs.replace(job, folder=str(folder), source=str(folder / source))


def with_project_folder(plan: ExportPlan) -> ExportPlan:
    """Plan the second export in the project folder, after it failed in a different folder."""
    first, again = plan.source, plan.again
    assert isinstance(again, Export)
    assert first is not None
    output = _create_folder(Path(again.output).with_name("own"))
    job = msgspec.structs.replace(again, source=first.source, folder=first.folder, output=str(output))
    return replace(plan, again=job)


def is_relocated(plan: ExportPlan) -> bool:
    """Return whether the second export uses a different folder than the first."""
    first, again = plan.source, plan.again
    return isinstance(again, Export) and first is not None and again.folder != first.folder


def _create_command(
    toolchain: ProjectToolchain, model: SelectedModel, scratch: Path
) -> tuple[Command | None, Path | None]:
    """Return the model's command with its placeholders replaced, and its output path."""
    if model.settings.command is None:
        return None, None
    opset = toolchain.project.required_opset(model).get("ai.onnx")
    written = _create_folder(scratch / "command") / Path(model.path).name
    values = {"{python}": str(toolchain.python), "{output}": str(written), "{opset}": str(opset)}
    argv = []
    for word in model.settings.command:
        for placeholder, value in values.items():
            word = word.replace(placeholder, value)
        argv.append(word)
    folder, committed = str(toolchain.project.folder), os.fspath(model.absolute)
    return Command(argv=tuple(argv), folder=folder, committed=committed), written


def _create_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def uses_opset_placeholder(model: SelectedModel) -> bool:
    """Return whether the command contains the placeholder `{opset}`."""
    return any("{opset}" in word for word in model.settings.command or ())


def common_ir_limit(runtimes: Iterable[LockedRuntime]) -> int | None:
    """Return the highest IR version that all runtimes can load according to the support tables; None if unlimited."""
    return min((limits.ir for limits in _list_limits(runtimes) if limits.ir is not None), default=None)


def common_opset_limits(runtimes: Iterable[LockedRuntime]) -> dict[str, int]:
    """Return the newest opset of each domain that all runtimes support, according to the support tables."""
    common: dict[str, int] = {}
    for limits in _list_limits(runtimes):
        for domain, version in limits.opsets.items():
            common[domain] = min(version, common.get(domain, version))
    return common


def _list_limits(runtimes: Iterable[LockedRuntime]) -> Iterator[Limits]:
    engines = ((runtime, find_table_engine(runtime.engine)) for runtime in runtimes)
    return filter(None, (get_limits(runtime.release, engine) for runtime, engine in engines if engine))


def highest_allowed_ir(pinned: str | int | None, limit: int | None) -> int | None:
    """Return the highest IR version that both `ir-version` in the config and the runtimes allow."""
    allowed = range(1, _MAX_IR_VERSION)
    if isinstance(pinned, int):
        allowed = range(pinned, pinned + 1)
    elif pinned is not None:
        specifier = SpecifierSet(pinned)
        allowed = range(1, max((v for v in allowed if specifier.contains(str(v))), default=0) + 1)
    highest = min(max(allowed, default=_MAX_IR_VERSION), limit or _MAX_IR_VERSION)
    return None if highest >= _MAX_IR_VERSION - 1 else highest


def read_command_failure(project: Project, plan: ExportPlan, result: CommandResult) -> Failure | None:
    """Return why a command wrote no file; None if it wrote a file."""
    if result.status != 0:
        assert plan.command is not None
        # replacements for machine-specific paths in messages
        pairs = zip(plan.model.settings.command or (), plan.command.argv, strict=True)
        names = {Path(path): "python" for word, path in pairs if word == "{python}"}
        if plan.written:
            names[plan.written] = "{output}"
        return Failure(
            type=describe_exit_status(result.status),
            text=extract_error(result.log, project.folder, names) or "the command printed no error",
            memory="MemoryError" in result.log,
            source=find_project_line(result.log, project.folder),
        )
    if plan.written is None or not plan.written.is_file():
        return Failure(type="missing output", text="the command exited with status 0 but did not write `{output}`")
    return None


def extract_error(log: str, folder: Path, names: Mapping[Path, str] | None = None) -> str:
    """Return the line of a log that states the error; "" for an empty log.

    The result does not depend on the machine: paths are made relative to `folder`, or replaced by their name in
    `names`.
    """
    lines = [
        line.strip() for line in log.partition(_SUMMARY_HEADING)[2].splitlines() or log.splitlines() if line.strip()
    ]
    if _SUMMARY_HEADING in log:
        text = lines[0] if lines else ""
    else:
        errors = [line for line in lines if _ERROR_LINE.fullmatch(line)]
        text = errors[-1] if errors else (lines[-1] if lines else "")
    text = _ERROR_CLASS.sub(lambda match: f"{match[1] or match[2]}: ", text)
    for path, name in (names or {}).items():
        for spelling in _path_spellings(path):
            text = text.replace(spelling, name)
    for spelling in _path_spellings(folder):
        if spelling != Path(spelling).anchor:
            text = text.replace(spelling + os.sep, "")
    text = _PYTHON_PATH.sub(r"\1", text)
    return text if len(text) <= MAX_ERROR_LENGTH else text[: MAX_ERROR_LENGTH - 1] + "…"


def _path_spellings(path: Path) -> Iterator[str]:
    """Yield the path unchanged and with links resolved, the longer path first, since it may contain the shorter."""
    yield from sorted({str(path), os.path.realpath(path)}, key=len, reverse=True)


def find_project_line(log: str, folder: Path) -> str:
    """Return the innermost line of project code in the last traceback of a log, such as `export.py:31`.

    The path is relative to the folder. Lines in installed packages are ignored.
    """
    base = Path(os.path.realpath(folder))
    for cause in log.rpartition(_CONTEXT_LINE)[2].split(_CAUSE_LINE):
        for path, line in reversed(_TRACEBACK_FRAME.findall(cause)):
            real = Path(os.path.realpath(folder / path))
            if real.is_relative_to(base) and real.is_file():
                relative = real.relative_to(base)
                if not {"site-packages", "dist-packages"} & set(relative.parts):
                    return f"{relative.as_posix()}:{line}"
    return ""
