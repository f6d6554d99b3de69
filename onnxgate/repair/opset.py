"""A model converted to another opset by ONNX's own converter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxgate.model.reading import facts_of, opsets
from onnxgate.model.structure import UnreadableModel, read_structure
from onnxgate.repair.fix import Asked, Change, Left
from onnxgate.runtimes.worker.exporters.stamp import needed

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

MOST_BYTES = 500 * 1000 * 1000
"""The converter holds a model several times over in memory."""
EXPORT = "export the model at that opset"


class Opset:
    """Of `ai.onnx` alone. The converter runs in a process of its own: it may crash, and costs memory."""

    name = "opset"
    rules = frozenset({"opset-too-new", "opset-mismatch"})

    def propose(self, asked: Asked) -> Change | Left | None:
        """What the converter makes of it, with what it would lose."""
        wanted, now = asked.bounds.opset, opsets(asked.proto).get("ai.onnx")
        if wanted is None or now is None or now == wanted or (now < wanted and not asked.bounds.pinned):
            return None
        if reason := _unconvertible(asked):
            return Left(f"it is not converted to opset {wanted}: {reason}", EXPORT)
        made = asked.scratch / "converted.onnx"
        if wrong := asked.elsewhere(["convert", str(asked.path), str(made), str(wanted)]):
            return Left(f"onnx's converter does not take it to opset {wanted}: {wrong}", EXPORT)
        return self._change(asked, wanted, now)

    def _change(self, asked: Asked, wanted: int, now: int) -> Change | Left:
        made = asked.scratch / "converted.onnx"
        try:
            proto = read_structure(made, large_bytes=MOST_BYTES * 2)
        except (OSError, UnreadableModel) as error:
            return Left(f"onnx's converter wrote what is {error}", EXPORT)
        _keep(asked.proto, proto)
        before, after = (facts_of(each, asked.path, "") for each in (asked.proto, proto))
        if (before.inputs, before.outputs) != (after.inputs, after.outputs):
            return Left("onnx's converter changes what it takes or gives", EXPORT)
        words = (f"opset {now} of `ai.onnx` becomes {wanted}, by onnx's converter",)
        return Change((proto.SerializeToString(),), words, follows=frozenset({"operators-changed", "weights-changed"}))


def _unconvertible(asked: Asked) -> str:
    if asked.proto.functions:
        return "it has local functions, which onnx's converter leaves out"
    if asked.proto.graph.sparse_initializer or asked.proto.training_info:
        return "it has sparse weights or training information, which onnx's converter leaves out"
    size = asked.path.stat().st_size
    return f"it is larger than {MOST_BYTES:,} bytes" if size > MOST_BYTES else ""


def _keep(old: ModelProto, new: ModelProto) -> None:
    """What converting loses: names and notes of nodes that are still there, and stamps."""
    new.ir_version = max(old.ir_version, needed(new))
    for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(new, name, getattr(old, name))
    kept = {_key(node): node for node in old.graph.node}
    for node in new.graph.node:
        before = kept.get(_key(node))
        if before is not None:
            del node.metadata_props[:]
            node.metadata_props.extend(before.metadata_props)
            node.doc_string = before.doc_string


def _key(node: NodeProto) -> tuple[str, ...]:
    return (node.op_type, node.name, *node.output)
