"""Export stage: re-export each model and compare the result with the committed file and the requested interface."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from onnx import defs

from onnxgate.core.files import sha256_of
from onnxgate.core.findings import IncompleteCheck, Place, Stage
from onnxgate.core.jobs import (
    Command,
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
from onnxgate.core.machine_faults import MachineFault, find_fault_in_failure
from onnxgate.core.process_pool import FailedCallError, describe_failure
from onnxgate.evidence.export import (
    CommittedComparison,
    ExportFailure,
    FixedValue,
    OpsetRequest,
    Reexport,
    SecondExport,
    SourceBehaviour,
    ToolchainState,
)
from onnxgate.model.equality.model_comparison import compare_models
from onnxgate.model.reading.external_data import check_external_data, inspect_data_file
from onnxgate.model.reading.fact_extraction import read_model
from onnxgate.model.reading.file_format import UnreadableModel, read_pointer
from onnxgate.model.reading.structure import read_view
from onnxgate.model.reading.view import ModelView
from onnxgate.model.validity import find_fault
from onnxgate.project.git.repository import lfs_pull_command
from onnxgate.runtimes.environments.toolchain import find_drift
from onnxgate.stages.export_jobs import EXPORTED_DOMAINS, ExportPlan, read_command_failure, uses_opset_placeholder
from onnxgate.stages.exported_model import compare_with_request, find_nearest_opset, find_training_nodes

if TYPE_CHECKING:
    from onnxgate.core.jobs import ExportDetails
    from onnxgate.model.facts import ModelFacts
    from onnxgate.model.reading.fact_extraction import ParsedModel
    from onnxgate.project.config.project import Project
    from onnxgate.project.lock.types import LockedToolchain
    from onnxgate.runtimes.environments.toolchain import Interpreter


@dataclass(frozen=True, slots=True)
class ExportOutcome:
    """Outcome of one export."""

    subject: Reexport | None = None
    undone: IncompleteCheck | None = None
    fresh: Path | None = None  # the exported file, if it is a valid model


def collect_evidence(
    project: Project, plan: ExportPlan, observation: Observation, again: Observation | None = None
) -> ExportOutcome:
    """Return the outcome of an export job: evidence for the rules, and reasons for incomplete checks.

    `again` is the observation of the second export, if there was one.
    """
    outcome = _evaluate_observation(project, plan, observation)
    return _add_second_export(outcome, project, plan, again) if again is not None else outcome


def _evaluate_observation(project: Project, plan: ExportPlan, observation: Observation) -> ExportOutcome:
    match observation:
        case Unavailable(reason=reason, hint=hint):
            return ExportOutcome(undone=IncompleteCheck(Stage.EXPORT, plan.model.path, "", reason, hint))
        case Crashed(signal=signal, during=during):
            return _create_failed(project, plan, ExportFailure(crashed=f"{signal} during {during}"))
        case TimedOut(limit_s=limit_s):
            return _create_failed(project, plan, ExportFailure(timed_out_s=limit_s))
        case Refused(failure=failure):
            return _create_failed(project, plan, ExportFailure(failure=failure))
        case Completed(result=ExportResult(failure=Failure() as failure, details=details)):
            requested, limit = _requested_opsets(project, plan, {}, details.opset), plan.opset_limits.get("ai.onnx")
            nearest = find_nearest_opset(requested.get("ai.onnx"), details, limit)
            end, behaviour = ExportFailure(failure=failure), _describe_source(details)
            return _create_failed(project, plan, end, OpsetRequest(nearest=nearest), behaviour)
        case Completed(result=ExportResult(model=str(path)) as result):
            return _evaluate_export(project, plan, Path(path), result)
        case Completed(result=CommandResult() as result):
            if command_failure := read_command_failure(project, plan, result):
                return _create_failed(project, plan, ExportFailure(failure=command_failure))
            assert plan.written is not None
            return _evaluate_export(project, plan, plan.written, ExportResult(model=None, log=result.log))
    raise TypeError(f"unexpected export result: {observation}")


def collect_source_evidence(project: Project, plan: ExportPlan, observation: Observation) -> ExportOutcome:
    """Return the outcome of a source that only computes eager outputs, since a command writes the file."""
    if isinstance(observation, Completed) and getattr(observation.result, "failure", None) is None:
        return ExportOutcome()
    return collect_evidence(project, ExportPlan(plan.model, plan.source, None), observation)


def _create_failed(
    project: Project,
    plan: ExportPlan,
    end: ExportFailure,
    opsets: OpsetRequest | None = None,
    behaviour: SourceBehaviour | None = None,
) -> ExportOutcome:
    failure = end.failure or Failure(type=end.crashed or "", text="")
    if fault := find_failure_cause(failure, project.folder):
        return ExportOutcome(undone=IncompleteCheck(Stage.EXPORT, plan.model.path, "", fault.message, fault.hint))
    place = parse_source_place(end.failure.source) if end.failure else None
    subject = Reexport(
        model=plan.model.path,
        place=place or _find_source_place(project, plan),
        source=plan.source_name,
        is_command=plan.command is not None,
        end=end,
        opsets=opsets or OpsetRequest(),
        behaviour=behaviour or SourceBehaviour(),
    )
    return ExportOutcome(subject)


def find_failure_cause(failure: Failure, folder: Path) -> MachineFault | None:
    """Return the machine fault that made the user's code fail, with its source line; None for an error in the code.

    `folder` is the folder that the code runs in.
    """
    fault = find_fault_in_failure(f"{failure.type}: {failure.text}", (tempfile.gettempdir(), str(folder)))
    if fault is None or not failure.source:
        return fault
    return MachineFault(f"{fault.message} (`{failure.source}`)", fault.hint)


def _find_source_place(project: Project, plan: ExportPlan) -> Place:
    """Return the line that defines the source, or the model's entry in the config."""
    definition = find_definition(project.folder, plan.source_name) if plan.command is None else None
    return definition or plan.model.place


def _evaluate_export(project: Project, plan: ExportPlan, fresh: Path, result: ExportResult) -> ExportOutcome:
    """Return the outcome of an export that wrote a file. `result` contains the details reported by the exporter."""
    model = plan.model
    try:
        reading = read_model(fresh, model.path)
    except UnreadableModel as reason:
        failure = Failure(type="not a model", text=f"the export wrote {reason}")
        return _create_failed(project, plan, ExportFailure(failure=failure))
    written = reading.facts.opsets
    requested = _requested_opsets(project, plan, written, result.details.opset)
    nearest = find_nearest_opset(requested.get("ai.onnx"), result.details, plan.opset_limits.get("ai.onnx"))
    # If the file is unusable, an unexpected opset may be the cause.
    missing, changed = _find_newer_operators(reading.view, requested.get("ai.onnx"), written.get("ai.onnx", 0))
    opsets = OpsetRequest(requested=requested, written=written, nearest=nearest, missing=missing, changed=changed)
    comparison: CommittedComparison | IncompleteCheck = CommittedComparison()
    uses = [use for use in check_external_data(reading.view, fresh) if use.problem]
    fault = f"a file with invalid external data `{uses[0].location}` ({uses[0].problem})" if uses else ""
    if not fault:
        comparison = _compare_with_committed(plan, fresh, reading)
        if isinstance(comparison, CommittedComparison) and comparison.differences:
            try:
                fault = _find_checker_fault(reading, fresh)  # an equal file is checked by the file stage
            except FailedCallError as error:
                why = describe_failure(error.failure, "checking the exported file")
                comparison = IncompleteCheck(Stage.EXPORT, model.path, "", *why)
    if fault:
        end = ExportFailure(failure=Failure(type="invalid model", text=f"the export wrote {fault}"))
        return _create_failed(project, plan, end, opsets, SourceBehaviour(exporter=result.details.exporter))
    undone = comparison if isinstance(comparison, IncompleteCheck) else None
    subject = Reexport(
        model=model.path,
        place=_find_source_place(project, plan),
        source=plan.source_name,
        is_command=plan.command is not None,
        opsets=opsets,
        committed=CommittedComparison() if isinstance(comparison, IncompleteCheck) else comparison,
        interface=compare_with_request(result.details, reading.facts),
        behaviour=msgspec.structs.replace(
            _describe_source(result.details),
            was_training=result.was_training,
            training_nodes=find_training_nodes(reading.view, project.root, project.folder),
        ),
    )
    return ExportOutcome(subject, undone, fresh)


def _find_checker_fault(reading: ParsedModel, fresh: Path) -> str:
    try:
        fault = find_fault(reading.view, fresh)
    except UnreadableModel as reason:
        return str(reason)
    return f"a file that fails `onnx.checker`: {fault.message}" if fault and not fault.harmless else ""


def _find_newer_operators(
    view: ModelView, requested: int | None, written: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the operators that a conversion to the requested, older opset must replace: missing and changed ones."""
    if requested is None or requested >= written:
        return (), ()
    names = sorted({node.proto.op_type for node in view.nodes() if node.proto.domain in ("", "ai.onnx")})
    known = [name for name in names if defs.has(name, written)]
    missing = tuple(name for name in known if not defs.has(name, requested))
    changed = (name for name in known if defs.get_schema(name, written).since_version > requested)
    return missing, tuple(name for name in changed if name not in missing)


def _requested_opsets(
    project: Project, plan: ExportPlan, written: Mapping[str, int], by_source: int | None
) -> dict[str, int]:
    """Return the requested opset of each domain.

    This is the pinned opset, or the opset of `ai.onnx` that the source requests. If a domain has neither and the
    exporter's default is too new for the targets, it is the newest opset that all targets support. Other domains are
    omitted.
    """
    pinned = ({"ai.onnx": by_source} if by_source is not None else {}) | project.required_opset(plan.model)
    requested = {domain: version for domain, version in pinned.items() if domain == "ai.onnx"}
    if plan.command is not None:
        return requested if uses_opset_placeholder(plan.model) else {}
    limits = plan.opset_limits
    for domain, version in written.items():
        if domain in pinned:
            requested[domain] = pinned[domain]
        elif domain in EXPORTED_DOMAINS and version > limits.get(domain, version):
            requested[domain] = limits[domain]
    return requested


def _compare_with_committed(
    plan: ExportPlan, fresh: Path, reading: ParsedModel
) -> CommittedComparison | IncompleteCheck:
    committed, facts = plan.model.absolute, reading.facts
    if not committed.exists():
        return CommittedComparison(differences=("the file does not exist",))
    if pointer := read_pointer(committed):
        if pointer.sha256 == facts.sha256 and _has_same_data(committed, facts):
            return CommittedComparison()
        return _create_not_fetched(plan, committed, "the committed file")
    try:
        old = read_view(committed)
        uses = check_external_data(old, committed)
        if location := next((use.location for use in uses if use.problem == "lfs-pointer"), ""):
            return _create_not_fetched(plan, committed.parent / location, f"the external data `{location}`")
        comparison = compare_models(committed, fresh)
    except UnreadableModel as reason:
        problem = f"the committed file could not be compared with the export, because the file is {reason}"
        return IncompleteCheck(Stage.EXPORT, plan.model.path, "", problem)
    before, after = old.proto.ir_version, facts.ir_version
    ir_change = f"IR version changed from {before} to {after}" if before != after else ""
    return CommittedComparison(differences=comparison.differences, rounded=comparison.rounded, ir_change=ir_change)


def _has_same_data(committed: Path, facts: ModelFacts) -> bool:
    """Return whether the committed data files, including those in Git LFS, are equal to those of the export."""
    for external in facts.external:
        file = inspect_data_file(committed, external.location)
        if file.problem and file.pointer is None:
            return False
        if external.sha256 != (file.pointer.sha256 if file.pointer else sha256_of(file.path)):
            return False
    return True


def _create_not_fetched(plan: ExportPlan, path: Path, what: str) -> IncompleteCheck:
    """Report that the content must be fetched, because a file with different bytes can still be the same model."""
    reason = f"{what} is a Git LFS pointer (content not fetched), and its SHA-256 does not match the export"
    return IncompleteCheck(Stage.EXPORT, plan.model.path, "", reason, f"run `{lfs_pull_command(path)}`")


def _add_second_export(outcome: ExportOutcome, project: Project, plan: ExportPlan, again: Observation) -> ExportOutcome:
    """Add the second export to the outcome of the first, unless the first export wrote no file."""
    if outcome.subject is None or outcome.fresh is None:
        return outcome
    if isinstance(again, TimedOut | Unavailable):
        if isinstance(again, TimedOut):
            why, hint = f"the second export timed out after {again.limit_s:g} s", "raise `time-s` in `[limits]`"
        else:
            why, hint = again.reason, again.hint
        reason = f"export stability could not be checked: {why}"
        return replace(
            outcome, undone=outcome.undone or IncompleteCheck(Stage.EXPORT, plan.model.path, "", reason, hint)
        )
    failure = _read_second_failure(project, plan, again)
    if failure is not None and (fault := find_failure_cause(failure, project.folder)):
        undone = IncompleteCheck(Stage.EXPORT, plan.model.path, "", fault.message, fault.hint)
        return replace(outcome, undone=outcome.undone or undone)
    second = SecondExport(failure=failure)
    if failure is None:
        path = plan.written_again
        if isinstance(again, Completed) and isinstance(again.result, ExportResult) and again.result.model:
            path = Path(again.result.model)
        assert path is not None
        try:
            second = SecondExport(differences=compare_models(outcome.fresh, path).differences)
        except UnreadableModel as reason:
            second = SecondExport(differences=(f"the second export is {reason}",))
    return replace(outcome, subject=msgspec.structs.replace(outcome.subject, second=second))


def _read_second_failure(project: Project, plan: ExportPlan, again: Observation) -> Failure | None:
    """Return why the second export wrote no file; None if it wrote a file, or if the source is not the cause."""
    match again:
        case Completed(result=ExportResult(failure=Failure() as failure)) | Refused(failure=failure):
            return failure
        case Completed(result=CommandResult() as result):
            command = plan.again if isinstance(plan.again, Command) else None
            return read_command_failure(project, replace(plan, command=command, written=plan.written_again), result)
        case Crashed(signal=signal, during=during):
            return Failure(type=signal, text=f"during {during}")
    return None


def compare_toolchain(
    project: Project, locked: LockedToolchain | None, interpreter: Interpreter
) -> ToolchainState | None:
    """Compare the toolchain with the lock; None if the lock does not record a toolchain."""
    if locked is None:
        return None
    return ToolchainState(place=project.place("toolchain"), drift=find_drift(locked, interpreter))


def _describe_source(details: ExportDetails) -> SourceBehaviour:
    """Return what the exporter reports about the source, independent of the file."""
    return SourceBehaviour(
        exporter=details.exporter,
        returned=details.leaves,
        mutated=details.mutated,
        remembers=details.remembers,
        constants=details.constants,
        recurrent=details.recurrent,
        fixed=tuple(
            FixedValue(
                what=value.what,
                kind=value.kind,
                name=value.name,
                varies=value.varies,
                place=parse_source_place(value.source),
            )
            for value in details.fixed
        ),
    )


def parse_source_place(source: str) -> Place | None:
    """Parse `file.py:31` into a place; None for an empty string."""
    path, _, line = source.rpartition(":")
    return Place(path, int(line)) if path else None


def find_definition(folder: Path, source: str) -> Place | None:
    """Find the line that defines the callable of a source; None if it is not found."""
    file, _, name = source.rpartition(":")
    try:
        tree: ast.AST = ast.parse((folder / file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    for part in name.split("."):
        definition = next((node for node in ast.iter_child_nodes(tree) if part in _defined_names(node)), None)
        if definition is None:
            return None
        tree = definition
    return Place(Path(file).as_posix(), getattr(tree, "lineno", 0))


def _defined_names(node: ast.AST) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.ImportFrom(names=aliases):
            return {alias.asname or alias.name for alias in aliases}
    return set()
