"""Version fields and metadata: another opset by ONNX's converter, a lower IR version, no leaked paths."""

from __future__ import annotations

import re
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from onnxgate.commands.fix.model_file import Edits, FieldMatch, Part, rewrite_fields
from onnxgate.commands.fix.proposals import Change, FixRequest, NoFix
from onnxgate.model.checking.validity import find_leaked_paths
from onnxgate.model.reading.fact_extraction import extract_facts, read_opsets
from onnxgate.model.reading.file_format import VARINT, UnreadableModel, encode_varint
from onnxgate.model.reading.structure import read_structure
from onnxgate.runtimes.worker.exporters.model_file import required_ir_version

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


MAX_CONVERTED_BYTES = 500 * 1000 * 1000
"""The converter needs several times the size of a model in memory."""
EXPORT_HINT = "export the model at that opset"


class Opset:
    """Converts `ai.onnx`. The converter runs in another process: it may crash, and needs memory."""

    name = "opset"
    rules = frozenset({"opset-too-new", "opset-mismatch"})

    def propose(self, request: FixRequest) -> Change | NoFix | None:
        """Return the converted model, and what the conversion would lose."""
        wanted, now = request.bounds.opset, read_opsets(request.proto).get("ai.onnx")
        if wanted is None or now is None or now == wanted or (now < wanted and not request.bounds.pinned):
            return None
        if reason := _explain_unconvertible(request):
            return NoFix(f"it is not converted to opset {wanted}: {reason}", EXPORT_HINT)
        converted = request.scratch / "converted.onnx"
        if wrong := request.elsewhere(["convert", str(request.path), str(converted), str(wanted)]):
            return NoFix(f"onnx's converter does not take it to opset {wanted}: {wrong}", EXPORT_HINT)
        return self._change(request, wanted, now)

    def _change(self, request: FixRequest, wanted: int, now: int) -> Change | NoFix:
        converted = request.scratch / "converted.onnx"
        try:
            proto = read_structure(converted, large_bytes=MAX_CONVERTED_BYTES * 2)
        except (OSError, UnreadableModel) as error:
            return NoFix(f"onnx's converter wrote what is {error}", EXPORT_HINT)
        _restore_metadata(request.proto, proto)
        before, after = (extract_facts(model, request.path, "") for model in (request.proto, proto))
        if (before.inputs, before.outputs) != (after.inputs, after.outputs):
            return NoFix("onnx's converter changes what it takes or gives", EXPORT_HINT)
        words = (f"opset {now} of `ai.onnx` becomes {wanted}, by onnx's converter",)
        return Change((proto.SerializeToString(),), words, follows=frozenset({"operators-changed", "weights-changed"}))


def _explain_unconvertible(request: FixRequest) -> str:
    if request.proto.functions:
        return "it has local functions, which onnx's converter leaves out"
    if request.proto.graph.sparse_initializer or request.proto.training_info:
        return "it has sparse weights or training information, which onnx's converter leaves out"
    size = request.path.stat().st_size
    return f"it is larger than {MAX_CONVERTED_BYTES:,} bytes" if size > MAX_CONVERTED_BYTES else ""


def _restore_metadata(old: ModelProto, new: ModelProto) -> None:
    """Restore what the conversion loses: names and metadata of nodes, and version fields."""
    new.ir_version = max(old.ir_version, required_ir_version(new))
    for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(new, name, getattr(old, name))
    nodes_by_key = {_node_key(node): node for node in old.graph.node}
    for node in new.graph.node:
        before = nodes_by_key.get(_node_key(node))
        if before is not None:
            del node.metadata_props[:]
            node.metadata_props.extend(before.metadata_props)
            node.doc_string = before.doc_string


def _node_key(node: NodeProto) -> tuple[str, ...]:
    return (node.op_type, node.name, *node.output)


class IrVersion:
    """Lowers the IR version to the newest that all runtimes read and the config allows."""

    name = "ir-version"
    rules = frozenset({"ir-version-too-new", "ir-version-mismatch"})

    def propose(self, request: FixRequest) -> Change | NoFix | None:
        """Return the file with another number in it."""
        highest, now = request.bounds.ir_version, request.proto.ir_version
        if highest is None or now <= highest:
            return None
        least = required_ir_version(request.proto)
        if least > highest:
            reason = f"what is in it needs IR version {least}, and {highest} is the newest that is allowed"
            return NoFix(reason, "export at an older opset, or raise the target")

        def lowered(_: FieldMatch) -> list[Part]:
            return [encode_varint(1 << 3 | VARINT) + encode_varint(highest)]

        parts = rewrite_fields(request.path, {("ModelProto", "ir_version"): lowered})
        needs = f"it needs no more than {least}" if least < highest else "it needs no more"
        return Change(parts, (f"IR version {now} becomes {highest}: {needs}",))


_PACKAGES_FOLDER = re.compile(r".*[/\\](?:site|dist)-packages[/\\]+")
_DOCUMENTED_MESSAGES = (
    *("ModelProto", "GraphProto", "FunctionProto", "NodeProto", "ValueInfoProto", "TensorProto", "AttributeProto"),
    "OperatorSetIdProto",
)
"""Messages that have a `doc_string`, `metadata_props` or both."""


class LeakedPaths:
    """Makes paths relative to the repository or to their package; of others only the file name stays."""

    name = "leaked-paths"
    rules = frozenset({"path-leaked"})

    def propose(self, request: FixRequest) -> Change | NoFix | None:
        """Return the file with shorter texts."""
        paths = {path: _shorten_path(path, str(request.root)) for path in find_leaked_paths(request.proto)}
        if not paths:
            return None
        parts = rewrite_fields(
            request.path, _path_edits({path.encode(): short.encode() for path, short in paths.items()})
        )
        return Change(parts, tuple(f"`{path}` becomes `{short}`" for path, short in sorted(paths.items())))


def _shorten_path(path: str, root: str) -> str:
    if path.startswith(f"{root}/"):
        return path[len(root) + 1 :]
    if (inside := _PACKAGES_FOLDER.sub("", path)) != path:
        return inside
    pure = PureWindowsPath(path) if "\\" in path else PurePosixPath(path)
    return pure.name


def _path_edits(paths: dict[bytes, bytes]) -> Edits:
    longest = sorted(paths, key=len, reverse=True)  # a folder after what lies in it
    pattern = re.compile(b"|".join(map(re.escape, longest)))

    def text(match: FieldMatch) -> list[Part] | None:
        content = match.content()
        new = pattern.sub(lambda hit: paths[hit[0]], content)
        return None if new == content else match.replaced([new])

    def entry(match: FieldMatch) -> list[Part]:
        return match.edited({("StringStringEntryProto", "value"): text}, shallow=True)

    texts = {(holder, "doc_string"): text for holder in _DOCUMENTED_MESSAGES}
    return texts | {(holder, "metadata_props"): entry for holder in _DOCUMENTED_MESSAGES}
