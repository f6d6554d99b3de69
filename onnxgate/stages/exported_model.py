"""Compare an exported model with what its source requests: names, axes, opset and evaluation mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxgate.evidence.export import ExportedInterface, InterfaceNames, LostAxis, TrainingNode
from onnxgate.model.reading.tensor_data import read_array
from onnxgate.model.subgraphs.node_context import find_source_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onnx import FunctionProto, GraphProto, NodeProto, TensorProto

    from onnxgate.core.jobs import ExportDetails, RequestedAxis
    from onnxgate.model.facts import ModelFacts, ValueInfo
    from onnxgate.model.reading.view import ModelView


_TRAINING_INPUT = 2
"""Position of the `training_mode` input of Dropout since opset 12. Source: ONNX operator specification."""


def compare_with_request(details: ExportDetails, facts: ModelFacts) -> ExportedInterface:
    """Compare the names and axes in the file with those that the source requests."""
    names = InterfaceNames(
        inputs=details.inputs,
        outputs=details.outputs,
        parameters=details.parameters,
        inputs_written=tuple(value.name for value in facts.inputs),
        outputs_written=tuple(value.name for value in facts.outputs),
    )
    return ExportedInterface(names=names, lost_axes=tuple(_find_lost_axes(details, facts)))


def find_nearest_opset(requested: int | None, details: ExportDetails, limit: int | None) -> int | None:
    """Return the supported opset nearest to the requested opset, or None if the requested opset is supported.

    An opset is supported if the exporter can write it and every target can load it.
    """
    if requested is None or details.opsets is None:
        return None
    lowest, highest = details.opsets
    highest = min(highest, limit or highest)
    nearest = min(max(requested, lowest), highest)
    return nearest if lowest <= nearest != requested else None


def _find_lost_axes(details: ExportDetails, facts: ModelFacts) -> Iterator[LostAxis]:
    lost = [*_find_unmet_requests(details, facts), *_find_narrowed_axes(details, facts)]
    yield from lost
    if any(axis.lowest is not None and axis.lowest == axis.highest for axis in lost):
        return  # this axis caused the other axes to be fixed
    grown_inputs = [(_find_input(axis, facts), axis.axis) for axis in details.grew]
    if any(value is None or isinstance(_axis_size(value, axis), int) for value, axis in grown_inputs):
        return
    reported = {(axis.value, axis.axis) for axis in lost}
    # Outputs are matched by position if both sides have the same number.
    if sum(leaf.kind == "tensor" for leaf in details.leaves) != len(facts.outputs):
        return
    for grown in details.grown:
        value, axis = facts.outputs[grown.output], grown.axis
        if isinstance(size := _axis_size(value, axis), int) and (value.name, axis) not in reported:
            yield LostAxis(role="output", value=value.name, axis=axis, size=size, grown=grown.grown)


def _find_unmet_requests(details: ExportDetails, facts: ModelFacts) -> Iterator[LostAxis]:
    outputs = {value.name: value for value in facts.outputs}
    names = {request.name for request in details.axes}  # axes of equal sizes share one of the requested names
    for request in details.axes:
        graph_input, output = _find_input(request, facts), outputs.get(request.value)
        if graph_input is None and output is None and request.value:
            yield LostAxis(role="value", value=request.value, axis=request.axis, name=request.name)
        for role, value in (("input", graph_input), ("output", None if graph_input else output)):
            if value is not None and isinstance(size := _axis_size(value, request.axis), int):
                name, axis = request.name, request.axis
                yield LostAxis(role=role, value=value.name, axis=axis, name=name, size=size)  # type: ignore[arg-type]
        size = _axis_size(graph_input, request.axis) if graph_input is not None and request.name else None
        if graph_input is not None and isinstance(size, str) and size not in ("?", *names):
            yield LostAxis(role="input", value=graph_input.name, axis=request.axis, name=request.name, renamed=size)


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


def _find_input(axis: RequestedAxis, facts: ModelFacts) -> ValueInfo | None:
    """Find the graph input of a requested axis, by name if the request contains a name."""
    if axis.value:
        return next((value for value in facts.inputs if value.name == axis.value), None)
    return facts.inputs[axis.input] if 0 <= axis.input < len(facts.inputs) else None


def _axis_size(value: ValueInfo, axis: int) -> int | str | None:
    shape = value.shape or ()
    return shape[axis] if -len(shape) <= axis < len(shape) else None


def find_training_nodes(model: ModelView, root: Path, folder: Path) -> tuple[TrainingNode, ...]:
    """Find nodes in training mode and the source lines that created them. Paths are relative to `folder`."""
    weights = {tensor.name: tensor for tensor in model.proto.graph.initializer}
    return tuple(
        TrainingNode(operator=node.op_type, node=node.name, place=find_source_line(node, root, folder))
        for scope in model.scopes
        for node in _training_nodes_in(scope.proto, weights)
    )


def _training_nodes_in(scope: GraphProto | FunctionProto, weights: dict[str, TensorProto]) -> Iterator[NodeProto]:
    for node in scope.node:
        if node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type == "BatchNormalization" and any(e.name == "training_mode" and e.i for e in node.attribute):
            yield node
        if node.op_type == "Dropout" and len(node.input) > _TRAINING_INPUT:
            constants = {
                constant.output[0]: attribute.t
                for constant in scope.node
                if constant.op_type == "Constant"
                for attribute in constant.attribute
                if attribute.name == "value"
            }
            name = node.input[_TRAINING_INPUT]
            tensor = constants.get(name, weights.get(name))  # a computed value is treated as False
            values = read_array(tensor) if tensor is not None else None
            if values is not None and values.any():
                yield node
