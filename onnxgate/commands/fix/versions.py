"""Fixes of versions that runtimes do not support: opset conversion and a lower IR version."""

from __future__ import annotations

import contextlib
import re

from onnx import ModelProto, defs
from onnx import __version__ as onnx_version
from onnx.defs import onnx_opset_version

from onnxgate.commands.fix.definition import Change, Fix, FixRequest, NoFix
from onnxgate.commands.fix.model_file import (
    rewrite_fields,
)
from onnxgate.core.process_pool import FailedCallError
from onnxgate.core.text import join_phrases, truncate
from onnxgate.model import onnx_functions
from onnxgate.model.onnx_functions import OnnxError
from onnxgate.model.reading.fact_extraction import extract_facts, read_opsets
from onnxgate.model.reading.file_format import VARINT, UnreadableModel, encode_varint
from onnxgate.model.reading.structure import read_structure
from onnxgate.model.reading.view import ModelView
from onnxgate.runtimes.worker.exporters.model_file import required_ir_version

MAX_CONVERTED_BYTES = 500 * 1000 * 1000
"""Maximum size in bytes of a model to convert to another opset. The converter needs several times as much memory."""


UNCONVERTIBLE_OPERATOR = re.compile(r"No (?:Adapter (?:From|To) Version \S+ for|Previous Version of) (\w+)")
"""Matches an error of the onnx version converter.

Source: onnx 1.23, version_converter/BaseConverter.h and no_previous_version.h.
"""


def _convert_opset(request: FixRequest) -> Change | NoFix | None:
    """Convert the opset of `ai.onnx` with the onnx package."""
    target, now = request.limits.opset, read_opsets(request.proto).get("ai.onnx")
    if target is None or now is None or now == target or (now < target and not request.limits.pinned):
        return None
    graph, reason = request.proto.graph, ""
    hint = f"re-export the model at opset {target}"
    if now > onnx_opset_version():
        reason = f"onnx {onnx_version} does not support opset {now}"
    elif request.proto.functions:
        reason = "the onnx version converter drops local functions"
    elif graph.sparse_initializer or request.proto.training_info:
        reason = "the onnx version converter drops sparse weights and training information"
    elif request.path.stat().st_size > MAX_CONVERTED_BYTES:
        reason = f"the model is larger than {MAX_CONVERTED_BYTES:,} bytes"
    if reason:
        return NoFix(f"cannot convert to opset {target}: {reason}", hint)
    converted = request.scratch / "converted.onnx"
    content = request.path.read_bytes()
    try:
        converted.write_bytes(onnx_functions.convert_version(content, target))
    except (OnnxError, FailedCallError) as failure:
        error = truncate(" ".join(str(failure).split()))
        operators = _name_unconvertible(content, error, target)
        subject = join_phrases([f"`{name}`" for name in operators]) or "this model"
        missing = [f"`{name}`" for name in operators if "." not in name and not defs.has(name, target)]
        hint += f", which has no {join_phrases(missing)}" if missing else ""
        return NoFix(f"the onnx version converter cannot convert {subject} to opset {target}", hint, error)
    try:
        proto = read_structure(converted, large_bytes=MAX_CONVERTED_BYTES * 2)
    except (OSError, UnreadableModel) as error:
        return NoFix("the onnx version converter wrote an invalid file", hint, str(error))
    _restore_metadata(request.proto, proto)
    before, after = (extract_facts(ModelView(model), request.path, "") for model in (request.proto, proto))
    if (before.inputs, before.outputs) != (after.inputs, after.outputs):
        return NoFix("the onnx version converter changes the inputs or outputs", hint)
    words = (f"converts opset {now} of `ai.onnx` to {target} with the onnx version converter",)
    return Change((proto.SerializeToString(),), words, follows=frozenset({"operators-changed", "weights-changed"}))


def _name_unconvertible(content: bytes, error: str, target: int) -> list[str]:
    """Return the operators that stop the conversion: those that fail alone, or the one that the error names."""
    names = []
    with contextlib.suppress(OnnxError, FailedCallError):
        names = onnx_functions.find_unconvertible_operators(content, target)
    operator = UNCONVERTIBLE_OPERATOR.search(error)
    return names or ([operator[1]] if operator else [])


def _restore_metadata(old: ModelProto, new: ModelProto) -> None:
    """Restore metadata that the version converter drops: copy it from the old model to the new one."""
    new.ir_version = max(old.ir_version, required_ir_version(new))
    for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(new, name, getattr(old, name))
    nodes_by_key = {(node.op_type, node.name, *node.output): node for node in old.graph.node}
    for node in new.graph.node:
        if before := nodes_by_key.get((node.op_type, node.name, *node.output)):
            del node.metadata_props[:]
            node.metadata_props.extend(before.metadata_props)
            node.doc_string = before.doc_string


def _lower_ir_version(request: FixRequest) -> Change | NoFix | None:
    """Lower the model's IR version to the newest that the config allows and all runtimes support."""
    highest, now = request.limits.ir_version, request.proto.ir_version
    if highest is None or now <= highest:
        return None
    least = required_ir_version(request.proto)
    if least > highest:
        reason = f"the model uses features of IR version {least}; the newest allowed version is {highest}"
        return NoFix(reason, "export at an older opset, or require newer releases in the target")
    lowered = encode_varint(1 << 3 | VARINT) + encode_varint(highest)
    parts = rewrite_fields(request.path, {("ModelProto", "ir_version"): lambda _: [lowered]})
    return Change(parts, (f"changes IR version {now} to {highest}; the model uses features up to IR version {least}",))


OPSET = Fix("opset", frozenset({"opset-too-new", "opset-mismatch"}), _convert_opset)


IR_VERSION = Fix("ir-version", frozenset({"ir-version-too-new", "ir-version-mismatch"}), _lower_ir_version)
