"""Types and shapes of outputs and values that a file does not say, where shape inference proves them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxgate.model.copying import checkable, lacks_shape
from onnxgate.repair.fix import Asked, Change, Left
from onnxgate.repair.parts import Part
from onnxgate.repair.rewriting import Found, rewritten

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

HINT = "export the model again, so that it says the type"


class MissingTypes:
    """Inputs are never guessed: what a model takes is what somebody decides."""

    name = "missing-types"
    rules = frozenset({"invalid-model"})

    def propose(self, asked: Asked) -> Change | Left | None:
        """The same file with what ONNX's own inference says of its outputs."""
        lacking = {
            value.name: value for value in (*asked.proto.graph.output, *asked.proto.graph.value_info) if _lacks(value)
        }
        if not lacking:
            return None
        inferred, wrong = _inferred(asked, set(lacking))
        known = {name: value for name, value in inferred.items() if name in lacking and not _lacks(value)}
        if wrong or not known:
            names = ", ".join(f"`{name}`" for name in sorted(lacking))
            return Left(f"shape inference does not tell the type of {names}{f' ({wrong})' if wrong else ''}", HINT)
        return _change(asked, known)


def _lacks(value: ValueInfoProto) -> bool:
    kind = value.type.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        return bool(lacks_shape(value)) or not getattr(value.type, kind).elem_type
    return kind is None


def _change(asked: Asked, known: dict[str, ValueInfoProto]) -> Change:
    from onnx import ValueInfoProto

    def filled(found: Found) -> list[Part] | None:
        value = ValueInfoProto.FromString(found.content())
        if value.name not in known or not _lacks(value):
            return None
        value.type.CopyFrom(known[value.name].type)
        return found.replaced([value.SerializeToString()])

    def graph(found: Found) -> list[Part]:
        return found.edited({("GraphProto", "output"): filled, ("GraphProto", "value_info"): filled}, shallow=True)

    return Change(
        rewritten(asked.path, {("ModelProto", "graph"): graph}),
        tuple(f"`{name}` says its type and shape: {_said(value)}" for name, value in sorted(known.items())),
        follows=frozenset({"output-type-changed", "output-shape-changed"}),
    )


def _inferred(asked: Asked, lacking: set[str]) -> tuple[dict[str, ValueInfoProto], str]:
    """What inference says of each value; else why it says nothing."""
    from onnx import ModelProto

    given, made = asked.scratch / "given.onnx", asked.scratch / "inferred.onnx"
    given.write_bytes(_untyped(checkable(asked.proto, asked.path), lacking).SerializeToString())
    if wrong := asked.elsewhere(["infer", str(given), str(made)]):
        return {}, wrong
    proto = ModelProto.FromString(made.read_bytes())
    return {value.name: value for value in (*proto.graph.value_info, *proto.graph.output)}, ""


def _untyped(proto: ModelProto, lacking: set[str]) -> ModelProto:
    """Without the empty entries for values inside: inference lays what it finds over them, and fails."""
    kept = [value for value in proto.graph.value_info if value.name not in lacking]
    holder = type(proto.graph)()
    holder.value_info.extend(kept)
    proto.graph.ClearField("value_info")
    proto.graph.value_info.extend(holder.value_info)
    return proto


def _said(value: ValueInfoProto) -> str:
    from onnxgate.model.reading import values

    (told,) = values([value])
    shape = "" if told.shape is None else f" [{', '.join(map(str, told.shape))}]"
    return f"{told.type}{shape}"
