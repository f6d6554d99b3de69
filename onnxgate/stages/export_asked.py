"""What a source asked its exporter for, held against the file that it wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxgate.evidence.export import Fixed, LostAxis, Names, Returned, TrainingNode
from onnxgate.findings import Place

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

    from onnxgate.model.facts import ModelFacts, ValueInfo
    from onnxgate.runtimes.exported import AskedAxis, Told

_TRAINING_INPUT = 2
"""Of Dropout, from opset 12 on. Source: ONNX's operator specification."""


def asked_and_got(told: Told, facts: ModelFacts) -> dict[str, Any]:
    """Those fields of a `Reexport` that come of comparing what was told with the file."""
    return {
        **told_of(told),
        "names": Names(
            inputs=told.inputs,
            outputs=told.outputs,
            parameters=told.parameters,
            inputs_written=tuple(value.name for value in facts.inputs),
            outputs_written=tuple(value.name for value in facts.outputs),
        ),
        "lost": tuple(_lost(told, facts)),
    }


def told_of(told: Told) -> dict[str, Any]:
    """Those that say what the source does, whatever the file is."""
    return {
        "exporter": told.exporter,
        "returned": tuple(Returned(key=leaf.key, kind=leaf.kind) for leaf in told.leaves),
        "mutated": told.mutated,
        "remembers": told.remembers,
        "fixed": tuple(Fixed(what=e.what, kind=e.kind, varies=e.varies, place=place_of(e.source)) for e in told.fixed),
    }


def place_of(source: str) -> Place | None:
    """`file.py:31` as a place; None for nothing."""
    path, _, line = source.rpartition(":")
    return Place(path, int(line)) if path else None


def nearest_opset(asked: int | None, told: Told, limit: int | None) -> int | None:
    """The opset next to the one asked for that the exporter writes and every target takes; None where that one is."""
    if asked is None or told.opsets is None:
        return None
    lowest, highest = told.opsets
    highest = min(highest, limit or highest)
    nearest = min(max(asked, lowest), highest)
    return nearest if lowest <= nearest != asked else None


def _lost(told: Told, facts: ModelFacts) -> Iterator[LostAxis]:
    fixed = [*_lost_by_request(told, facts), *_narrow(told, facts)]
    yield from fixed
    if any(each.lowest is not None and each.lowest == each.highest for each in fixed):
        return  # what depends on that axis cannot be otherwise
    if all(_is_dynamic(_input(axis, facts), axis.axis) for axis in told.grew):
        said = {(each.value, each.axis) for each in fixed}
        yield from (each for each in _lost_outputs(told, facts) if (each.value, each.axis) not in said)


def _lost_by_request(told: Told, facts: ModelFacts) -> Iterator[LostAxis]:
    outputs = {value.name: value for value in facts.outputs}
    for asked in told.axes:
        given, made = _input(asked, facts), outputs.get(asked.value)
        if given is None and made is None and asked.value:
            yield LostAxis(role="value", value=asked.value, axis=asked.axis, name=asked.name)
        for role, value in (("input", given), ("output", None if given else made)):
            if value is not None and isinstance(size := _dim(value, asked.axis), int):
                name, axis = asked.name, asked.axis
                yield LostAxis(role=role, value=value.name, axis=axis, name=name, size=size)  # type: ignore[arg-type]


def _narrow(told: Told, facts: ModelFacts) -> Iterator[LostAxis]:
    for each in told.narrow:
        if each.works is None or each.input >= len(facts.inputs):
            continue
        value = facts.inputs[each.input]
        dim = _dim(value, each.axis)
        if isinstance(dim, int):
            continue
        yield LostAxis(
            role="input",
            value=value.name,
            axis=each.axis,
            name="" if dim in (None, "?") else str(dim),
            lowest=each.lowest,
            highest=each.highest,
            works=each.works,
        )


def _lost_outputs(told: Told, facts: ModelFacts) -> Iterator[LostAxis]:
    """Outputs of a fixed size that grow with the inputs of the source; by position, so that there must be as many."""
    if sum(leaf.kind == "tensor" for leaf in told.leaves) != len(facts.outputs):
        return
    for grown in told.grown:
        value = facts.outputs[grown.output]
        if isinstance(size := _dim(value, grown.axis), int):
            yield LostAxis(role="output", value=value.name, axis=grown.axis, size=size, grown=grown.grown)


def _input(asked: AskedAxis, facts: ModelFacts) -> ValueInfo | None:
    """The graph input that is meant: by its name where it has one."""
    if asked.value:
        return next((value for value in facts.inputs if value.name == asked.value), None)
    return facts.inputs[asked.input] if 0 <= asked.input < len(facts.inputs) else None


def _is_dynamic(value: ValueInfo | None, axis: int) -> bool:
    return value is not None and not isinstance(_dim(value, axis), int)


def _dim(value: ValueInfo, axis: int) -> int | str | None:
    shape = value.shape or ()
    return shape[axis] if -len(shape) <= axis < len(shape) else None


def training_nodes(model: ModelProto, root: Path, folder: Path) -> tuple[TrainingNode, ...]:
    """Nodes that compute as in training, with their source lines relative to `folder`."""
    from onnxgate.model.places import node_place
    from onnxgate.model.structure import holders

    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    return tuple(
        TrainingNode(operator=node.op_type, node=node.name, place=node_place(node, root, folder))
        for holder in holders(model)
        for node in _in_training(holder, weights)
    )


def _in_training(holder: GraphProto | FunctionProto, weights: dict[str, TensorProto]) -> Iterator[NodeProto]:
    for node in holder.node:
        if node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type == "BatchNormalization" and any(e.name == "training_mode" and e.i for e in node.attribute):
            yield node
        if node.op_type == "Dropout" and len(node.input) > _TRAINING_INPUT:
            known = {**weights, **dict(_constants(holder.node))}
            if _is_true(known.get(node.input[_TRAINING_INPUT])):
                yield node


def _constants(nodes: Sequence[NodeProto]) -> Iterator[tuple[str, TensorProto]]:
    for node in nodes:
        if node.op_type == "Constant":
            yield from ((node.output[0], each.t) for each in node.attribute if each.name == "value")


def _is_true(tensor: TensorProto | None) -> bool:
    """Whether a constant is True; what is not known here is decided by whoever feeds it."""
    if tensor is None:
        return False
    from onnx import numpy_helper

    return bool(numpy_helper.to_array(tensor).any())
