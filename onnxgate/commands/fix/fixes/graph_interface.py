"""Missing types and shapes, filled in by shape inference, and inputs that are passed through as outputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from onnx import ModelProto, NodeProto, ValueInfoProto

from onnxgate.commands.fix.model_file import FieldMatch, Part, length_delimited_field, rewrite_fields
from onnxgate.commands.fix.proposals import Change, FixRequest, NoFix
from onnxgate.model.facts import STRING
from onnxgate.model.reading.fact_extraction import list_inputs, read_opsets, read_value_infos
from onnxgate.model.reading.structure import iter_scopes
from onnxgate.model.subgraphs.reduced_models import copy_for_checker, kind_without_shape

TYPE_HINT = "export the model again, so that it says the type"


class MissingTypes:
    """Inputs are never inferred: only the author knows what a model accepts."""

    name = "missing-types"
    rules = frozenset({"invalid-model"})

    def propose(self, request: FixRequest) -> Change | NoFix | None:
        """Add the types that ONNX's own inference finds for outputs."""
        lacking = {
            value.name: value
            for value in (*request.proto.graph.output, *request.proto.graph.value_info)
            if _lacks_type(value)
        }
        if not lacking:
            return None
        inferred, wrong = _infer_types(request, set(lacking))
        inferred_types = {name: value for name, value in inferred.items() if name in lacking and not _lacks_type(value)}
        if wrong or not inferred_types:
            names = ", ".join(f"`{name}`" for name in sorted(lacking))
            return NoFix(
                f"shape inference does not tell the type of {names}{f' ({wrong})' if wrong else ''}", TYPE_HINT
            )
        return _add_types(request, inferred_types)


def _lacks_type(value: ValueInfoProto) -> bool:
    kind = value.type.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        return bool(kind_without_shape(value)) or not getattr(value.type, kind).elem_type
    return kind is None


def _add_types(request: FixRequest, inferred_types: dict[str, ValueInfoProto]) -> Change:
    def filled(match: FieldMatch) -> list[Part] | None:
        value = ValueInfoProto.FromString(match.content())
        if value.name not in inferred_types or not _lacks_type(value):
            return None
        value.type.CopyFrom(inferred_types[value.name].type)
        return match.replaced([value.SerializeToString()])

    def graph(match: FieldMatch) -> list[Part]:
        return match.edited({("GraphProto", "output"): filled, ("GraphProto", "value_info"): filled}, shallow=True)

    return Change(
        rewrite_fields(request.path, {("ModelProto", "graph"): graph}),
        tuple(
            f"`{name}` says its type and shape: {_render_type(value)}" for name, value in sorted(inferred_types.items())
        ),
        follows=frozenset({"output-type-changed", "output-shape-changed"}),
    )


def _infer_types(request: FixRequest, lacking: set[str]) -> tuple[dict[str, ValueInfoProto], str]:
    """Return the inferred type of each value, or why there is none."""
    source, output = request.scratch / "given.onnx", request.scratch / "inferred.onnx"
    source.write_bytes(_drop_untyped_values(copy_for_checker(request.proto, request.path), lacking).SerializeToString())
    if wrong := request.elsewhere(["infer", str(source), str(output)]):
        return {}, wrong
    proto = ModelProto.FromString(output.read_bytes())
    return {value.name: value for value in (*proto.graph.value_info, *proto.graph.output)}, ""


def _drop_untyped_values(proto: ModelProto, lacking: set[str]) -> ModelProto:
    """Remove empty entries of inner values: inference merges its result with them, and fails."""
    typed_values = [value for value in proto.graph.value_info if value.name not in lacking]
    holder = type(proto.graph)()
    holder.value_info.extend(typed_values)
    proto.graph.ClearField("value_info")
    proto.graph.value_info.extend(holder.value_info)
    return proto


def _render_type(value: ValueInfoProto) -> str:
    (value_info,) = read_value_infos([value])
    shape = "" if value_info.shape is None else f" [{', '.join(map(str, value_info.shape))}]"
    return f"{value_info.type}{shape}"


_NODE_FIELD = 1
_IDENTITY_SINCE = {"sequence_type": 14, "optional_type": 16}
"""The opset since which Identity accepts non-tensors. Source: ONNX, Identity-14 and -16."""


class Passthrough:
    """Change the main graph only: outputs of a subgraph stay within the model."""

    name = "passthrough"
    rules = frozenset({"input-passthrough"})

    def propose(self, request: FixRequest) -> Change | NoFix | None:
        """Add one node for each such output. The input keeps the name, the node gets a new one."""
        proto = request.proto
        passed = {value.name for value in list_inputs(proto.graph) if value.type.tensor_type.elem_type != STRING}
        wanted = [value for value in proto.graph.output if value.name in passed]
        if not wanted:
            return None
        opset = read_opsets(proto).get("ai.onnx", 0)
        kinds = {str(value.type.WhichOneof("value")) for value in wanted}
        if not opset or any(opset < _IDENTITY_SINCE.get(kind, 1) for kind in kinds):
            reason = "the model imports no opset of `ai.onnx`" if not opset else f"`Identity` of opset {opset} cannot"
            return NoFix(
                f"no `Identity` can be put there: {reason}", "export the model with a copy in place of the input"
            )
        return _insert_identities(request, passed, [value.name for value in wanted])


def _insert_identities(request: FixRequest, passed: set[str], names: list[str]) -> Change:
    taken = set(_used_names(request.proto))
    fresh = [(name, _reserve_name(f"{name}_out", taken), _reserve_name(f"{name}_identity", taken)) for name in names]
    waiting = iter(fresh)

    def renamed(match: FieldMatch) -> list[Part] | None:
        value = _value_name(match)
        if value not in passed:
            return None
        _, output, _ = next(waiting)
        return match.edited({("ValueInfoProto", "name"): lambda name: name.replaced([output.encode()])}, shallow=True)

    nodes = [part for identity in fresh for part in length_delimited_field(_NODE_FIELD, [_identity_node(*identity)])]

    def graph(match: FieldMatch) -> list[Part]:
        return match.edited({("GraphProto", "output"): renamed}, *nodes, shallow=True)

    parts = rewrite_fields(request.path, {("ModelProto", "graph"): graph})
    words = [f"`Identity` between input `{name}` and its output, now called `{output}`" for name, output, _ in fresh]
    renames = ", ".join(f"`{name}` becomes `{output}`" for name, output, _ in fresh)
    return Change(
        parts,
        tuple(words),
        unsafe=f"an output gets another name ({renames}): who asks for it by name must be told",
        renamed={name: output for name, output, _ in fresh},
        follows=frozenset({"output-renamed", "output-added", "output-removed", "operators-changed"}),
    )


def _value_name(match: FieldMatch) -> str:
    return str(ValueInfoProto.FromString(match.content()).name)


def _identity_node(source: str, output: str, name: str) -> bytes:
    data: bytes = NodeProto(op_type="Identity", name=name, input=[source], output=[output]).SerializeToString()
    return data


def _reserve_name(name: str, taken: set[str]) -> str:
    """Return the name, or the first one with a number appended that is not in use, and reserve it."""
    unused = next(
        candidate
        for candidate in itertools.chain([name], (f"{name}_{n}" for n in itertools.count(2)))
        if candidate not in taken
    )
    taken.add(unused)
    return unused


def _used_names(proto: ModelProto) -> Iterator[str]:
    """Return every name of a value or a node in every graph: inner ones may shadow outer ones."""
    for holder in iter_scopes(proto):
        for node in holder.node:
            yield from (node.name, *node.input, *node.output)
        for value in holder.value_info:
            yield value.name
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        yield value.name
    yield from (sparse.values.name for sparse in proto.graph.sparse_initializer)
