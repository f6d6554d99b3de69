"""All fixes. Each fix proposes one kind of change to a model."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import PurePosixPath, PureWindowsPath

from onnx import ModelProto, NodeProto, ValueInfoProto

from onnxgate.commands.fix.declared_types import MISSING_TYPES, OUTPUT_SHAPES
from onnxgate.commands.fix.definition import Change, Fix, FixRequest, NoFix
from onnxgate.commands.fix.external_data import EXTERNAL_DATA
from onnxgate.commands.fix.model_file import (
    FieldMatch,
    Part,
    length_delimited_field,
    rewrite_fields,
)
from onnxgate.commands.fix.versions import IR_VERSION, OPSET
from onnxgate.model.facts import STRING
from onnxgate.model.reading.fact_extraction import list_inputs, read_opsets
from onnxgate.model.reading.view import ModelView
from onnxgate.model.validity import find_leaked_paths

_NODE_FIELD = 1
_IDENTITY_SINCE = {"sequence_type": 14, "optional_type": 16}
"""First opset of `ai.onnx` in which `Identity` accepts a type. Source: ONNX, Identity-14 and -16."""


def _separate_passthroughs(request: FixRequest) -> Change | NoFix | None:
    """Insert an `Identity` node for each output of the main graph that is also an input."""
    proto = request.proto
    passed = {value.name for value in list_inputs(proto.graph) if value.type.tensor_type.elem_type != STRING}
    outputs = [value for value in proto.graph.output if value.name in passed]
    if not outputs:
        return None
    opset = read_opsets(proto).get("ai.onnx", 0)
    kinds = {str(value.type.WhichOneof("value")) for value in outputs}
    if not opset or any(opset < _IDENTITY_SINCE.get(kind, 1) for kind in kinds):
        reason = (
            f"opset {opset} of `ai.onnx` does not support `Identity` for this type"
            if opset
            else "the model does not import `ai.onnx`"
        )
        hint = "change the export to return a copy of the input, and re-export the model"
        return NoFix(f"no `Identity` node can be inserted: {reason}", hint)
    return _insert_identities(request, passed, [value.name for value in outputs])


def _insert_identities(request: FixRequest, passed: set[str], names: list[str]) -> Change:
    """Insert an `Identity` node between each input and the output of the same name, and rename the output."""
    used = set(_used_names(request.proto))
    identities = [(name, _reserve_name(f"{name}_out", used), _reserve_name(f"{name}_identity", used)) for name in names]
    new_names = iter([output for _, output, _ in identities])

    def renamed(match: FieldMatch) -> list[Part] | None:
        if ValueInfoProto.FromString(match.content()).name not in passed:
            return None
        output = next(new_names).encode()
        return match.edited({("ValueInfoProto", "name"): lambda name: name.replaced([output])}, shallow=True)

    nodes: list[Part] = []
    for source, output, name in identities:
        node = NodeProto(op_type="Identity", name=name, input=[source], output=[output])
        nodes += length_delimited_field(_NODE_FIELD, [node.SerializeToString()])

    def graph(match: FieldMatch) -> list[Part]:
        return match.edited({("GraphProto", "output"): renamed}, *nodes, shallow=True)

    renames = {name: output for name, output, _ in identities}
    listed = ", ".join(f"`{name}` becomes `{output}`" for name, output, _ in identities)
    return Change(
        rewrite_fields(request.path, {("ModelProto", "graph"): graph}),
        tuple(
            f"inserts `Identity` after input `{name}`; the model output is renamed to `{output}`"
            for name, output, _ in identities
        ),
        unsafe=f"an output is renamed ({listed}), which breaks callers that use the old name",
        renamed=renames,
        follows=frozenset({"output-renamed", "output-added", "output-removed", "operators-changed"}),
    )


def _reserve_name(name: str, used: set[str]) -> str:
    """Return the name, with a number appended if it is already in `used`, and add it to `used`."""
    candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    unused = next(candidate for candidate in candidates if candidate not in used)
    used.add(unused)
    return unused


def _used_names(proto: ModelProto) -> Iterator[str]:
    """Yield the names of all values and nodes, including those in subgraphs."""
    for scope in ModelView(proto).scopes:
        for node in scope.nodes:
            yield from (node.name, *node.inputs, *node.outputs)
        yield from (value.name for value in scope.proto.value_info)
    yield from (value.name for value in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer))
    yield from (sparse.values.name for sparse in proto.graph.sparse_initializer)


_PACKAGES_FOLDER = re.compile(r".*[/\\](?:site|dist)-packages[/\\]+")
_DOCUMENTED_MESSAGES = (
    *("ModelProto", "GraphProto", "FunctionProto", "NodeProto", "ValueInfoProto", "TensorProto", "AttributeProto"),
    "OperatorSetIdProto",
)
"""Protobuf messages that have a `doc_string`, `metadata_props` or both."""


def _shorten_leaked_paths(request: FixRequest) -> Change | NoFix | None:
    """Shorten absolute paths in the model's texts.

    Paths in the repository or in `site-packages` become relative to that folder; others are reduced to the file name.
    """
    paths = {}
    for path in find_leaked_paths(ModelView(request.proto)):
        inside = _PACKAGES_FOLDER.sub("", path)
        if path.startswith(f"{request.root}/"):
            paths[path] = path[len(f"{request.root}/") :]
        elif inside != path:
            paths[path] = inside
        else:
            paths[path] = (PureWindowsPath(path) if "\\" in path else PurePosixPath(path)).name
    if not paths:
        return None
    short_paths = {path.encode(): short.encode() for path, short in paths.items()}
    longest = sorted(short_paths, key=len, reverse=True)  # files before their folder
    pattern = re.compile(b"|".join(map(re.escape, longest)))

    def text(match: FieldMatch) -> list[Part] | None:
        content = match.content()
        new = pattern.sub(lambda hit: short_paths[hit[0]], content)
        return None if new == content else match.replaced([new])

    def entry(match: FieldMatch) -> list[Part]:
        return match.edited({("StringStringEntryProto", "value"): text}, shallow=True)

    edits = {(message, "doc_string"): text for message in _DOCUMENTED_MESSAGES}
    edits |= {(message, "metadata_props"): entry for message in _DOCUMENTED_MESSAGES}
    words = tuple(f"replaces `{path}` with `{short}`" for path, short in sorted(paths.items()))
    return Change(rewrite_fields(request.path, edits), words)


PASSTHROUGH = Fix("passthrough", frozenset({"input-passthrough"}), _separate_passthroughs)
LEAKED_PATHS = Fix("leaked-paths", frozenset({"path-leaked"}), _shorten_leaked_paths)
FIXES = (EXTERNAL_DATA, MISSING_TYPES, OUTPUT_SHAPES, OPSET, IR_VERSION, PASSTHROUGH, LEAKED_PATHS)
"""Fixes in the order in which they are applied.

Types are added before an opset conversion, which would add them itself. The IR version is lowered after fixes that may
need a newer one.
"""
