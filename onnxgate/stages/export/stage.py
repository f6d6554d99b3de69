"""Export stage: compare the fresh export of each model with the committed file and with the request."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from onnx import numpy_helper

from onnxgate.core.findings import IncompleteCheck, Place, Stage
from onnxgate.core.jobs import (
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
from onnxgate.evidence.export import (
    CommittedComparison,
    ExportedInterface,
    ExportFailure,
    FixedValue,
    InterfaceNames,
    LostAxis,
    OpsetRequest,
    Reexport,
    ReturnedValue,
    SourceBehaviour,
    ToolchainState,
    TrainingNode,
)
from onnxgate.model.checking.validity import find_fault
from onnxgate.model.equality.model_comparison import compare_models
from onnxgate.model.reading.external_data import check_external_data
from onnxgate.model.reading.fact_extraction import read_model
from onnxgate.model.reading.file_format import UnreadableModel, read_pointer
from onnxgate.model.reading.structure import iter_scopes, read_structure
from onnxgate.model.subgraphs.node_context import find_source_line
from onnxgate.runtimes.environments.toolchain import find_drift
from onnxgate.stages.export.jobs import EXPORTED_DOMAINS, ExportPlan, uses_opset_placeholder
from onnxgate.stages.export.second_export import ExportOutcome, add_second_export, read_command_failure

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

    from onnxgate.core.jobs import ExportDetails, RequestedAxis
    from onnxgate.model.facts import ModelFacts, ValueInfo
    from onnxgate.model.reading.fact_extraction import ParsedModel
    from onnxgate.project.config.project import Project
    from onnxgate.project.lock.types import LockedToolchain
    from onnxgate.runtimes.environments.toolchain import Interpreter


NO_OPSETS = OpsetRequest()
UNKNOWN_BEHAVIOUR = SourceBehaviour()


def collect_evidence(
    project: Project, planned: ExportPlan, observation: Observation, again: Observation | None = None
) -> ExportOutcome:
    """Return the outcome of an export job: a subject for the rules, and why a check is incomplete.

    `again` is the observation of the second export, if there was one.
    """
    outcome = _evaluate_observation(project, planned, observation)
    return add_second_export(outcome, project, planned, again) if again is not None else outcome


def _evaluate_observation(project: Project, planned: ExportPlan, observation: Observation) -> ExportOutcome:
    match observation:
        case Unavailable(reason=reason, hint=hint):
            return ExportOutcome(undone=IncompleteCheck(Stage.EXPORT, planned.model.path, "", reason, hint))
        case Crashed(signal=signal, during=during):
            return _create_failed(project, planned, ExportFailure(crashed=f"{signal} during {during}"))
        case TimedOut(limit_s=limit_s):
            return _create_failed(project, planned, ExportFailure(timed_out_s=limit_s))
        case Refused(failure=failure):
            return _create_failed(project, planned, ExportFailure(failure=failure))
        case Completed(result=ExportResult(failure=Failure() as failure, told=details)):
            nearest = find_nearest_opset(
                _requested_opsets(project, planned).get("ai.onnx"), details, planned.opset_limits.get("ai.onnx")
            )
            end, opsets = ExportFailure(failure=failure), OpsetRequest(nearest=nearest)
            return _create_failed(project, planned, end, opsets, source_behaviour(details))
        case Completed(result=ExportResult(model=str(path)) as result):
            return _evaluate_export(project, planned, Path(path), result)
        case Completed(result=CommandResult() as result):
            return _evaluate_command(project, planned, result)
    raise TypeError(f"no answer to an export: {observation}")


def collect_source_evidence(project: Project, planned: ExportPlan, observation: Observation) -> ExportOutcome:
    """Return the outcome of a source that only gives eager outputs, because a command writes the file."""
    if isinstance(observation, Completed) and getattr(observation.result, "failure", None) is None:
        return ExportOutcome()
    return collect_evidence(project, ExportPlan(planned.model, planned.source, None), observation)


def _create_failed(
    project: Project,
    planned: ExportPlan,
    end: ExportFailure,
    opsets: OpsetRequest = NO_OPSETS,
    behaviour: SourceBehaviour = UNKNOWN_BEHAVIOUR,
) -> ExportOutcome:
    source = _name_source(planned)
    place = parse_source_place(end.failure.source) if end.failure else None
    place = place or _find_source_place(project, planned)
    return ExportOutcome(
        Reexport(model=planned.model.path, place=place, source=source, end=end, opsets=opsets, behaviour=behaviour)
    )


def _name_source(planned: ExportPlan) -> str:
    return planned.words if planned.command is not None else planned.model.settings.source or ""


def _find_source_place(project: Project, planned: ExportPlan) -> Place:
    """Return the line that defines the source, or the model's entry in the config."""
    place = None if planned.command is not None else find_definition(project.folder, _name_source(planned))
    return place or planned.model.place


def _evaluate_command(project: Project, planned: ExportPlan, result: CommandResult) -> ExportOutcome:
    if failure := read_command_failure(project, planned, result):
        return _create_failed(project, planned, ExportFailure(failure=failure))
    assert planned.written is not None
    return _evaluate_export(project, planned, planned.written, ExportResult(model=None, log=result.log))


def _evaluate_export(project: Project, planned: ExportPlan, fresh: Path, result: ExportResult) -> ExportOutcome:
    """Return the outcome of an export that wrote a file. `result` has the details that the exporter reported."""
    model = planned.model
    try:
        reading = read_model(fresh, model.path)
    except UnreadableModel as reason:
        failure = Failure(type="not a model", text=f"it wrote {reason}")
        return _create_failed(project, planned, ExportFailure(failure=failure))
    opsets = _compare_opsets(project, planned, result, reading)
    if wrong := _describe_data_fault(reading, fresh):
        return _create_invalid(project, planned, wrong, result, opsets)
    comparison = _compare_with_committed(planned, fresh, reading)
    undone = comparison if isinstance(comparison, IncompleteCheck) else None
    compared = CommittedComparison() if isinstance(comparison, IncompleteCheck) else comparison
    if compared.differences and (wrong := _describe_checker_fault(reading, fresh)):
        return _create_invalid(project, planned, wrong, result, opsets)
    subject = Reexport(
        model=model.path,
        place=_find_source_place(project, planned),
        source=_name_source(planned),
        opsets=opsets,
        committed=compared,
        interface=compare_with_request(result.told, reading.facts),
        behaviour=msgspec.structs.replace(
            source_behaviour(result.told),
            was_training=result.was_training,
            training_nodes=find_training_nodes(reading.proto, project.root, project.folder),
        ),
    )
    return ExportOutcome(subject, undone, fresh)


def _create_invalid(
    project: Project, planned: ExportPlan, wrong: str, result: ExportResult, opsets: OpsetRequest
) -> ExportOutcome:
    """Return the outcome of an unusable file. An opset other than the requested one may be the reason."""
    failure = Failure(type="invalid model", text=f"it wrote {wrong}")
    behaviour = SourceBehaviour(exporter=result.told.exporter)
    return _create_failed(project, planned, ExportFailure(failure=failure), opsets, behaviour)


def _compare_opsets(project: Project, planned: ExportPlan, result: ExportResult, reading: ParsedModel) -> OpsetRequest:
    written = reading.facts.opsets
    requested = _requested_opsets(project, planned, written)
    nearest = find_nearest_opset(requested.get("ai.onnx"), result.told, planned.opset_limits.get("ai.onnx"))
    return OpsetRequest(requested=requested, written=written, nearest=nearest)


def _describe_data_fault(reading: ParsedModel, fresh: Path) -> str:
    """Describe a fault of a fresh export's external data."""
    uses = [use for use in check_external_data(reading.proto, fresh) if use.problem]
    return f"a file whose external data `{uses[0].location}` are amiss: {uses[0].problem}" if uses else ""


def _describe_checker_fault(reading: ParsedModel, fresh: Path) -> str:
    """Describe why a fresh export is invalid. One that equals the committed file is checked with that file."""
    try:
        wrong = find_fault(reading.proto, fresh)
    except UnreadableModel as reason:
        return str(reason)
    return f"a file that `onnx.checker` refuses: {wrong.message}" if wrong and not wrong.harmless else ""


def _requested_opsets(project: Project, planned: ExportPlan, written: Mapping[str, int] = {}) -> dict[str, int]:
    """Return the opsets that the exporter was called with, by domain.

    These are the pinned ones, of domains that the file imports, and the limit of the targets if the file exceeds it:
    then the exporter was called a second time with that limit.
    """
    pinned = project.config.opset
    requested = {domain: version for domain, version in pinned.items() if domain == "ai.onnx"}
    if planned.command is not None:
        return requested if uses_opset_placeholder(planned.model) else {}
    limits = planned.opset_limits
    for domain, version in written.items():
        if domain in pinned:
            requested[domain] = pinned[domain]
        elif domain in EXPORTED_DOMAINS and version > limits.get(domain, version):
            requested[domain] = limits[domain]
    return requested


def _compare_with_committed(
    planned: ExportPlan, fresh: Path, reading: ParsedModel
) -> CommittedComparison | IncompleteCheck:
    committed = planned.model.absolute
    if not committed.exists():
        return CommittedComparison(differences=("there is no such file",))
    if pointer := read_pointer(committed):
        if pointer.sha256 == reading.facts.sha256:
            return CommittedComparison()
        return _create_not_fetched(planned, Path(reading.facts.path), "the committed file")
    try:
        old = read_structure(committed)
        if away := _find_data_pointer(committed, old):
            return _create_not_fetched(planned, Path(reading.facts.path).parent / away, f"its external data `{away}`")
        comparison = compare_models(committed, fresh)
        ir_change = _describe_ir_change(old.ir_version, reading.facts.ir_version)
        return CommittedComparison(differences=comparison.differences, rounded=comparison.rounded, ir_change=ir_change)
    except UnreadableModel as reason:
        problem = f"the committed file cannot be compared: it is {reason}"
        return IncompleteCheck(Stage.EXPORT, planned.model.path, "", problem)


def _describe_ir_change(old: int, new: int) -> str:
    return f"IR version {new}, was {old}" if old != new else ""


def _find_data_pointer(committed: Path, model: ModelProto) -> str:
    """Return external data of the committed file that were not fetched, "" if there are none."""
    uses = check_external_data(model, committed)
    return next((use.location for use in uses if use.problem == "lfs-pointer"), "")


def _create_not_fetched(planned: ExportPlan, path: Path, what: str) -> IncompleteCheck:
    """Return that the content is needed: other bytes may still be the same model."""
    reason = f"{what} is a Git LFS pointer, and the fresh export has other bytes than those it stands for"
    hint = f'git lfs pull --include "{path.as_posix()}"'
    return IncompleteCheck(Stage.EXPORT, planned.model.path, "", reason, hint)


def compare_toolchain(
    project: Project, locked: LockedToolchain | None, interpreter: Interpreter
) -> ToolchainState | None:
    """Compare the toolchain with the lock; None if the lock has none."""
    if locked is None:
        return None
    return ToolchainState(place=project.place("toolchain"), drift=find_drift(locked, interpreter))


_TRAINING_INPUT = 2
"""Of Dropout, from opset 12 on. Source: ONNX's operator specification."""


def compare_with_request(details: ExportDetails, facts: ModelFacts) -> ExportedInterface:
    """Compare the names and axes of the file with those that the source requests."""
    names = InterfaceNames(
        inputs=details.inputs,
        outputs=details.outputs,
        parameters=details.parameters,
        inputs_written=tuple(value.name for value in facts.inputs),
        outputs_written=tuple(value.name for value in facts.outputs),
    )
    return ExportedInterface(names=names, lost_axes=tuple(_find_lost_axes(details, facts)))


def source_behaviour(details: ExportDetails) -> SourceBehaviour:
    """Return what the exporter reports of the source, whatever the file is."""
    fixed = (
        FixedValue(what=value.what, kind=value.kind, varies=value.varies, place=parse_source_place(value.source))
        for value in details.fixed
    )
    return SourceBehaviour(
        exporter=details.exporter,
        returned=tuple(ReturnedValue(key=leaf.key, kind=leaf.kind) for leaf in details.leaves),
        mutated=details.mutated,
        remembers=details.remembers,
        fixed=tuple(fixed),
    )


def parse_source_place(source: str) -> Place | None:
    """Return `file.py:31` as a place; None for an empty text."""
    path, _, line = source.rpartition(":")
    return Place(path, int(line)) if path else None


def find_nearest_opset(requested: int | None, details: ExportDetails, limit: int | None) -> int | None:
    """Return the opset nearest to the requested one that the exporter writes and every target supports, if another."""
    if requested is None or details.opsets is None:
        return None
    lowest, highest = details.opsets
    highest = min(highest, limit or highest)
    nearest = min(max(requested, lowest), highest)
    return nearest if lowest <= nearest != requested else None


def _find_lost_axes(details: ExportDetails, facts: ModelFacts) -> Iterator[LostAxis]:
    fixed = [*_find_unmet_requests(details, facts), *_find_narrowed_axes(details, facts)]
    yield from fixed
    if any(axis.lowest is not None and axis.lowest == axis.highest for axis in fixed):
        return  # other losses follow from that axis
    if all(_is_dynamic(_find_input(axis, facts), axis.axis) for axis in details.grew):
        reported = {(each.value, each.axis) for each in fixed}
        yield from (
            lost_output
            for lost_output in _find_lost_outputs(details, facts)
            if (lost_output.value, lost_output.axis) not in reported
        )


def _find_unmet_requests(details: ExportDetails, facts: ModelFacts) -> Iterator[LostAxis]:
    outputs = {value.name: value for value in facts.outputs}
    for request in details.axes:
        graph_input, output = _find_input(request, facts), outputs.get(request.value)
        if graph_input is None and output is None and request.value:
            yield LostAxis(role="value", value=request.value, axis=request.axis, name=request.name)
        for role, value in (("input", graph_input), ("output", None if graph_input else output)):
            if value is not None and isinstance(size := _axis_size(value, request.axis), int):
                name, axis = request.name, request.axis
                yield LostAxis(role=role, value=value.name, axis=axis, name=name, size=size)  # type: ignore[arg-type]


def _find_narrowed_axes(details: ExportDetails, facts: ModelFacts) -> Iterator[LostAxis]:
    for axis in details.narrow:
        if axis.works is None or axis.input >= len(facts.inputs):
            continue
        value = facts.inputs[axis.input]
        dim = _axis_size(value, axis.axis)
        if isinstance(dim, int):
            continue
        yield LostAxis(
            role="input",
            value=value.name,
            axis=axis.axis,
            name="" if dim in (None, "?") else str(dim),
            lowest=axis.lowest,
            highest=axis.highest,
            works=axis.works,
        )


def _find_lost_outputs(details: ExportDetails, facts: ModelFacts) -> Iterator[LostAxis]:
    """Yield outputs of a fixed size that grow with the source's inputs. They match by position and number."""
    if sum(leaf.kind == "tensor" for leaf in details.leaves) != len(facts.outputs):
        return
    for grown in details.grown:
        value = facts.outputs[grown.output]
        if isinstance(size := _axis_size(value, grown.axis), int):
            yield LostAxis(role="output", value=value.name, axis=grown.axis, size=size, grown=grown.grown)


def _find_input(axis: RequestedAxis, facts: ModelFacts) -> ValueInfo | None:
    """Return the requested graph input, by its name if it has one."""
    if axis.value:
        return next((value for value in facts.inputs if value.name == axis.value), None)
    return facts.inputs[axis.input] if 0 <= axis.input < len(facts.inputs) else None


def _is_dynamic(value: ValueInfo | None, axis: int) -> bool:
    return value is not None and not isinstance(_axis_size(value, axis), int)


def _axis_size(value: ValueInfo, axis: int) -> int | str | None:
    shape = value.shape or ()
    return shape[axis] if -len(shape) <= axis < len(shape) else None


def find_training_nodes(model: ModelProto, root: Path, folder: Path) -> tuple[TrainingNode, ...]:
    """Return nodes that compute as in training, with their source lines relative to `folder`."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    return tuple(
        TrainingNode(operator=node.op_type, node=node.name, place=find_source_line(node, root, folder))
        for holder in iter_scopes(model)
        for node in _training_nodes_in(holder, weights)
    )


def _training_nodes_in(holder: GraphProto | FunctionProto, weights: dict[str, TensorProto]) -> Iterator[NodeProto]:
    for node in holder.node:
        if node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type == "BatchNormalization" and any(e.name == "training_mode" and e.i for e in node.attribute):
            yield node
        if node.op_type == "Dropout" and len(node.input) > _TRAINING_INPUT:
            tensors = {**weights, **dict(_constant_tensors(holder.node))}
            if _is_true(tensors.get(node.input[_TRAINING_INPUT])):
                yield node


def _constant_tensors(nodes: Sequence[NodeProto]) -> Iterator[tuple[str, TensorProto]]:
    for node in nodes:
        if node.op_type == "Constant":
            yield from ((node.output[0], attribute.t) for attribute in node.attribute if attribute.name == "value")


def _is_true(tensor: TensorProto | None) -> bool:
    """Return whether a constant is True. A value that is not constant counts as False."""
    if tensor is None:
        return False

    return bool(numpy_helper.to_array(tensor).any())


def find_definition(folder: Path, source: str) -> Place | None:
    """Return the line that defines a source's callable, or None if it is not found."""
    file, _, name = source.rpartition(":")
    try:
        tree: ast.AST = ast.parse((folder / file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    for part in name.split("."):
        found = next((node for node in ast.iter_child_nodes(tree) if part in _defined_names(node)), None)
        if found is None:
            return None
        tree = found
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
