"""The export stage: what came of making each model again, and what differs from the committed one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxgate.evidence.export import Reexport, ToolchainState
from onnxgate.findings import Place, Stage, Undone
from onnxgate.runtimes.jobs import (
    CommandResult,
    Completed,
    Crashed,
    ExportResult,
    Failure,
    Observation,
    Refused,
    TimedOut,
    Unavailable,
)
from onnxgate.stages.definitions import definition
from onnxgate.stages.export_again import Made, failure_of_command, repeated
from onnxgate.stages.export_asked import asked_and_got, nearest_opset, told_of, training_nodes
from onnxgate.stages.export_plan import Planned, asks_for_opset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import ModelProto

    from onnxgate.config.project import Project
    from onnxgate.lock.types import LockedToolchain
    from onnxgate.model.reading import Reading
    from onnxgate.runtimes.toolchain import Interpreter


def gather(project: Project, planned: Planned, observation: Observation, again: Observation | None = None) -> Made:
    """What came of the job that writes the file: a subject for the rules, and why something could not be judged.

    `again` came of the second export, where there was one.
    """
    made = _gather(project, planned, observation)
    return repeated(made, project, planned, again) if again is not None else made


def _gather(project: Project, planned: Planned, observation: Observation) -> Made:
    match observation:
        case Unavailable(reason=reason, hint=hint):
            return Made(undone=Undone(Stage.EXPORT, planned.model.path, "", reason, hint))
        case Crashed(signal=signal, during=during, log=log):
            return _failed(project, planned, crashed=f"{signal} during {during}", log=log)
        case TimedOut(limit_s=limit_s, log=log):
            return _failed(project, planned, timed_out_s=limit_s, log=log)
        case Refused(failure=failure):
            return _failed(project, planned, failure=failure)
        case Completed(result=ExportResult(failure=Failure() as failure, told=told, log=log)):
            nearest = nearest_opset(_asked(project, planned).get("ai.onnx"), told, planned.opset_max)
            return _failed(project, planned, failure=failure, log=log, nearest_opset=nearest, **told_of(told))
        case Completed(result=ExportResult(model=str(path)) as result):
            return _compared(project, planned, Path(path), result)
        case Completed(result=CommandResult() as result):
            return _of_command(project, planned, result)
    raise TypeError(f"no answer to an export: {observation}")


def gather_source(project: Project, planned: Planned, observation: Observation) -> Made:
    """What came of a source that was asked for eager outputs alone, where a command writes the file."""
    if isinstance(observation, Completed) and getattr(observation.result, "failure", None) is None:
        return Made()
    return gather(project, Planned(planned.model, planned.source, None), observation)


def _failed(project: Project, planned: Planned, **how: Any) -> Made:
    failure: Failure | None = how.get("failure")
    return Made(subject=_subject(project, planned, failure, **how))


def _subject(project: Project, planned: Planned, failed: Failure | None = None, **what: Any) -> Reexport:
    is_command = planned.command is not None
    source = planned.words if is_command else planned.model.settings.source or ""
    line = failed.source if failed else ""
    place = _line(line) if line else None if is_command else definition(project.folder, source)
    return Reexport(model=planned.model.path, place=place or planned.model.place, source=source, **what)


def _line(source: str) -> Place:
    path, _, line = source.rpartition(":")
    return Place(path, int(line))


def _of_command(project: Project, planned: Planned, result: CommandResult) -> Made:
    if failure := failure_of_command(project, planned, result):
        return _failed(project, planned, failure=failure, log=result.log)
    assert planned.written is not None
    return _compared(project, planned, planned.written, ExportResult(model=None, log=result.log))


@dataclass(frozen=True, slots=True)
class _Comparison:
    differences: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()
    restamped: str = ""
    reason: str = ""  # why it could not be judged
    hint: str = field(default="")


def _compared(project: Project, planned: Planned, fresh: Path, result: ExportResult) -> Made:
    """What there is to say of a file that was written; `result` tells what was asked for, where that is known."""
    from onnxgate.model.reading import read
    from onnxgate.model.structure import UnreadableModel

    model = planned.model
    try:
        reading = read(fresh, model.path)
    except UnreadableModel as reason:
        return _failed(project, planned, failure=Failure(type="not a model", text=f"it wrote {reason}"), log=result.log)
    opsets = _opsets(project, planned, result, reading)
    if wrong := _wrong_data(reading, fresh):
        return _invalid(project, planned, wrong, result, opsets)
    compared = _compare(model.absolute, fresh, reading)
    if compared.differences and (wrong := _wrong_with(reading, fresh)):
        return _invalid(project, planned, wrong, result, opsets)
    subject = _subject(
        project,
        planned,
        differences=compared.differences,
        rounded=compared.rounded,
        restamped=compared.restamped,
        was_training=result.was_training,
        training=training_nodes(reading.proto, project.root, project.folder),
        log=result.log,
        **opsets,
        **asked_and_got(result.told, reading.facts),
    )
    undone = Undone(Stage.EXPORT, model.path, "", compared.reason, compared.hint) if compared.reason else None
    return Made(subject, undone, fresh)


def _invalid(project: Project, planned: Planned, wrong: str, result: ExportResult, opsets: Mapping[str, Any]) -> Made:
    """A file that nobody can use; that it has another opset than was asked for may be why."""
    failure = Failure(type="invalid model", text=f"it wrote {wrong}")
    return _failed(project, planned, failure=failure, log=result.log, exporter=result.told.exporter, **opsets)


def _opsets(project: Project, planned: Planned, result: ExportResult, reading: Reading) -> dict[str, Any]:
    asked = _asked(project, planned)
    return {
        "opsets_asked": asked,
        "opsets_written": reading.facts.opsets,
        "nearest_opset": nearest_opset(asked.get("ai.onnx"), result.told, planned.opset_max),
    }


def _wrong_data(reading: Reading, fresh: Path) -> str:
    """What is wrong with a fresh export's external data."""
    from onnxgate.model.external import external_uses

    uses = [use for use in external_uses(reading.proto, fresh) if use.problem]
    return f"a file whose external data `{uses[0].location}` are amiss: {uses[0].problem}" if uses else ""


def _wrong_with(reading: Reading, fresh: Path) -> str:
    """What makes a fresh export invalid; one that equals the committed file is judged with that."""
    from onnxgate.model.checking import fault
    from onnxgate.model.structure import UnreadableModel

    try:
        wrong = fault(reading.proto, fresh)
    except UnreadableModel as reason:
        return str(reason)
    return f"a file that `onnx.checker` refuses: {wrong.message}" if wrong and not wrong.harmless else ""


def _asked(project: Project, planned: Planned) -> dict[str, int]:
    if planned.command is not None and not asks_for_opset(planned.model):
        return {}
    return {domain: version for domain, version in project.config.opset.items() if domain == "ai.onnx"}


def _compare(committed: Path, fresh: Path, reading: Reading) -> _Comparison:
    from onnxgate.model.normal import compare
    from onnxgate.model.pointer import read_pointer
    from onnxgate.model.structure import UnreadableModel, read_structure

    if not committed.exists():
        return _Comparison(("there is no such file",))
    if pointer := read_pointer(committed):
        if pointer.sha256 == reading.facts.sha256:
            return _Comparison()
        return _not_fetched(Path(reading.facts.path), "the committed file")
    try:
        old = read_structure(committed)
        if away := _pointer_beside(committed, old):
            return _not_fetched(Path(reading.facts.path).parent / away, f"its external data `{away}`")
        found = compare(committed, fresh)
        return _Comparison(found.differences, found.rounded, _restamped(old.ir_version, reading.facts.ir_version))
    except UnreadableModel as reason:
        return _Comparison(reason=f"the committed file cannot be compared: it is {reason}")


def _restamped(old: int, new: int) -> str:
    return f"IR version {new}, was {old}" if old != new else ""


def _pointer_beside(committed: Path, model: ModelProto) -> str:
    """External data of the committed file that were not fetched, "" where there are none."""
    from onnxgate.model.external import external_uses

    uses = external_uses(model, committed)
    return next((use.location for use in uses if use.problem == "lfs-pointer"), "")


def _not_fetched(path: Path, what: str) -> _Comparison:
    """Other bytes may still be the same model: that cannot be told without the content."""
    reason = f"{what} is a Git LFS pointer, and the fresh export has other bytes than those it stands for"
    return _Comparison(reason=reason, hint=f'git lfs pull --include "{path.as_posix()}"')


def toolchain_state(project: Project, locked: LockedToolchain | None, found: Interpreter) -> ToolchainState | None:
    """The toolchain against the lock; None where the lock has none."""
    from onnxgate.runtimes.toolchain import drift

    if locked is None:
        return None
    return ToolchainState(place=project.place("toolchain"), drift=drift(locked, found))
