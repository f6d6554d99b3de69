"""An `Identity` between an input that is handed out as an output and that output."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnxgate.model.reading import inputs, opsets
from onnxgate.model.structure import holders
from onnxgate.model.types import STRING
from onnxgate.repair.fix import Asked, Change, Left
from onnxgate.repair.parts import Part
from onnxgate.repair.rewriting import Found, headed, rewritten

if TYPE_CHECKING:
    from onnx import ModelProto

_NODE, _OUTPUT_NAME = 1, 1
_SINCE = {"sequence_type": 14, "optional_type": 16}
"""The opset from which on Identity takes what is no tensor. Source: ONNX, Identity-14 and -16."""


class Passthrough:
    """Main graph only: what a subgraph hands on is a value of its caller's, and no caller's memory."""

    name = "passthrough"
    rules = frozenset({"input-passthrough"})

    def propose(self, asked: Asked) -> Change | Left | None:
        """One node for each such output. A value has one name: the input keeps it, the output gets another."""
        proto = asked.proto
        passed = {value.name for value in inputs(proto.graph) if value.type.tensor_type.elem_type != STRING}
        wanted = [value for value in proto.graph.output if value.name in passed]
        if not wanted:
            return None
        opset = opsets(proto).get("ai.onnx", 0)
        kinds = {str(value.type.WhichOneof("value")) for value in wanted}
        if not opset or any(opset < _SINCE.get(kind, 1) for kind in kinds):
            said = "the model imports no opset of `ai.onnx`" if not opset else f"`Identity` of opset {opset} cannot"
            return Left(f"no `Identity` can be put there: {said}", "export the model with a copy in place of the input")
        return _change(asked, passed, [value.name for value in wanted])


def _change(asked: Asked, passed: set[str], names: list[str]) -> Change:
    taken = set(_names(asked.proto))
    fresh = [(name, _fresh(f"{name}_out", taken), _fresh(f"{name}_identity", taken)) for name in names]
    waiting = iter(fresh)

    def renamed(found: Found) -> list[Part] | None:
        value = _value_name(found)
        if value not in passed:
            return None
        _, output, _ = next(waiting)
        return found.edited({("ValueInfoProto", "name"): lambda name: name.replaced([output.encode()])}, shallow=True)

    nodes = [part for each in fresh for part in headed(_NODE, [_identity(*each)])]

    def graph(found: Found) -> list[Part]:
        return found.edited({("GraphProto", "output"): renamed}, *nodes, shallow=True)

    parts = rewritten(asked.path, {("ModelProto", "graph"): graph})
    words = [f"`Identity` between input `{name}` and its output, now called `{output}`" for name, output, _ in fresh]
    told = ", ".join(f"`{name}` becomes `{output}`" for name, output, _ in fresh)
    return Change(
        parts,
        tuple(words),
        unsafe=f"an output gets another name ({told}): who asks for it by name must be told",
        renamed={name: output for name, output, _ in fresh},
        follows=frozenset({"output-renamed", "output-added", "output-removed", "operators-changed"}),
    )


def _value_name(found: Found) -> str:
    from onnx import ValueInfoProto

    return str(ValueInfoProto.FromString(found.content()).name)


def _identity(source: str, output: str, name: str) -> bytes:
    from onnx import NodeProto

    data: bytes = NodeProto(op_type="Identity", name=name, input=[source], output=[output]).SerializeToString()
    return data


def _fresh(name: str, taken: set[str]) -> str:
    """The name, or the first with a number after it that nothing in the model has; from now on it is taken."""
    found = next(
        each for each in itertools.chain([name], (f"{name}_{n}" for n in itertools.count(2))) if each not in taken
    )
    taken.add(found)
    return found


def _names(proto: ModelProto) -> Iterator[str]:
    """Every name of a value or a node, in every graph: those of graphs inside may hide outer ones."""
    for holder in holders(proto):
        for node in holder.node:
            yield from (node.name, *node.input, *node.output)
        for value in holder.value_info:
            yield value.name
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        yield value.name
    yield from (sparse.values.name for sparse in proto.graph.sparse_initializer)
