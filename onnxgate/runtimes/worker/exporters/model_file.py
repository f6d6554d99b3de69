"""Postprocessing of exported models: opset and IR versions for the targets, output names, and stack traces."""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, Iterator, List, Match, Optional, Sequence

import onnx
from onnx import defs
from onnx.helper import OP_SET_ID_VERSION_MAP

from .source import Phase, SourceError, Wire, check_name_count, describe_error, folders_of, project_path

Convert = Callable[[Wire], Any]
"""Function that converts the model to the opsets of a job, and returns the model or writes it to `export_path`."""


def export_path(job: Wire) -> str:
    """Return the path of the exported model."""
    return os.path.join(job["output"], "model.onnx")


def export_model(
    job: Wire, result: Wire, phase: Phase, convert: Convert, output_names: Optional[Sequence[str]] = None
) -> Any:
    """Export the model and return the value of `convert`; None if the exporter failed, with its error in `result`.

    Raises:
        SourceError: the callable returned an unexpected value.
    """
    phase("export")
    try:
        return write_model(job, result, convert, output_names)
    except SourceError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the exporter's error is the result
        result["failure"] = describe_error(error, folders_of(job))
        return None


def write_model(job: Wire, result: Wire, convert: Convert, output_names: Optional[Sequence[str]] = None) -> Any:
    """Convert the model, and write it if the job's `export` is set. Return the value of `convert`.

    Raises:
        SourceError: the number of outputs differs from the number of `output_names`.
    """
    path = export_path(job)
    converted = convert_within_limits(job, convert, path)
    model = _written_model(converted, path)
    check_name_count(len(model.graph.output), output_names, "output_names", job["source"])
    if not job["export"]:
        return converted
    if output_names:
        rename_outputs(model.graph, dict(zip([e.name for e in model.graph.output], output_names)))  # noqa: B905
    changed = raise_ml_opset(model, job.get("opset_ml"))
    changed = lower_ir_version(model, job["ir_version_max"]) or changed
    changed = make_traces_relative(model, folders_of(job)) or changed
    if changed or output_names or model is converted:
        onnx.save(model, path)
    result["input_names"] = [value.name for value in model.graph.input]
    result["model"] = path
    return converted


def _written_model(converted: Any, path: str) -> Any:
    return converted if isinstance(converted, onnx.ModelProto) else onnx.load(path, load_external_data=False)


def rename_outputs(graph: Any, names: Dict[str, str]) -> None:
    """Rename outputs of a graph and all their uses."""
    for value in (*graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for field in (node.input, node.output):
            field[:] = [names.get(name, name) for name in field]
        for subgraph in _subgraphs(node):
            rename_outputs(subgraph, names)


def _subgraphs(node: Any) -> List[Any]:
    return [g for attribute in node.attribute for g in [attribute.g] * attribute.HasField("g") + [*attribute.graphs]]


def _iter_nodes(model: Any) -> Iterator[Any]:
    """Yield all nodes, including those of subgraphs and functions."""
    waiting = [model.graph, *model.functions]
    while waiting:
        for node in waiting.pop().node:
            yield node
            waiting += _subgraphs(node)


_STACK_TRACE_KEY = "pkg.torch.onnx.stack_trace"
"""Source: torch.onnx (dynamo=True) in torch 2.5 and later writes this key to each node's metadata_props."""
_FRAME_FILE = re.compile(r'File "([^"\n]+)"')
_PACKAGES_FOLDER = re.compile(r".*[/\\\\](?:site|dist)-packages[/\\\\]")


def make_traces_relative(model: Any, folders: Sequence[str]) -> bool:
    """Make file names in stack traces relative to the project or to their packages. Return whether any name changed."""

    def relative(frame: Match[str]) -> str:
        return f'File "{project_path(frame[1], folders) or _PACKAGES_FOLDER.sub("", frame[1])}"'

    changed = False
    for node in _iter_nodes(model):
        for entry in node.metadata_props:
            value = _FRAME_FILE.sub(relative, entry.value) if entry.key == _STACK_TRACE_KEY else entry.value
            changed = changed or value != entry.value
            entry.value = value
    return changed


_OPSET_FIELDS = {"ai.onnx": ("opset", "opset_max"), "ai.onnx.ml": ("opset_ml", "opset_ml_max")}
"""Fields of an `Export` job, by domain: the pinned version, and the newest version that all targets support."""


def convert_within_limits(job: Wire, convert: Convert, path: str) -> Any:
    """Return `convert(job)`. If the targets do not support the resulting opsets, convert again with supported opsets.

    These are the newest opsets that all targets support. A pinned opset is not replaced.
    """
    converted = convert(job)
    versions = _model_opsets(_written_model(converted, path))
    lowered = {
        pinned: job[limit]
        for domain, (pinned, limit) in _OPSET_FIELDS.items()
        if job.get(pinned) is None and job.get(limit) is not None and versions.get(domain, 0) > job[limit]
    }
    return convert({**job, **lowered}) if lowered else converted


def raise_ml_opset(model: Any, pinned: Optional[int]) -> bool:
    """Raise the opset of `ai.onnx.ml` to the pinned one if that affects no used operator. Return whether it changed.

    skl2onnx ignores the requested version and imports the oldest version that contains all used operators.
    Source: skl2onnx 1.20, `convert_topology`.
    """
    domain = "ai.onnx.ml"
    before = _model_opsets(model).get(domain)
    if pinned is None or before is None or before >= pinned:
        return False
    try:
        for operator in {node.op_type for node in _iter_nodes(model) if node.domain == domain}:
            old, new = (defs.get_schema(operator, version, domain) for version in (before, pinned))
            if old.since_version != new.since_version:
                return False
    except defs.SchemaError:  # operator or version unknown to this onnx release
        return False
    for owner in (model, *model.functions):
        for opset in owner.opset_import:
            if opset.domain == domain and opset.version == before:
                opset.version = pinned
    return True


def _model_opsets(model: Any) -> Dict[str, int]:
    return {opset.domain or "ai.onnx": opset.version for opset in model.opset_import}


# Source: onnx.proto of onnx 1.23, comments on TensorProto.DataType and on Version.
_NEEDED_BY_TYPE = {
    16: 4,  # BFLOAT16
    **dict.fromkeys(range(17, 21), 9),  # FLOAT8E4M3FN, FLOAT8E4M3FNUZ, FLOAT8E5M2, FLOAT8E5M2FNUZ
    **dict.fromkeys((21, 22), 10),  # UINT4, INT4
    23: 11,  # FLOAT4E2M1
    24: 12,  # FLOAT8E8M0
    **dict.fromkeys((25, 26), 13),  # UINT2, INT2
}
_NEWEST_KNOWN_TYPE = 26
_NEEDED_BY_MESSAGE = {
    "TensorAnnotation": 5,
    "SparseTensorProto": 6,
    "TrainingInfoProto": 7,
    "SparseTensor": 8,  # of TypeProto
    "Optional": 8,  # of TypeProto
    "FunctionProto": 8,
    "DeviceConfigurationProto": 11,
    "NodeDeviceConfigurationProto": 11,
}
_INITIALIZERS_NOT_INPUTS = 4  # in earlier versions, each initializer must also be an input
_MIN_IR_VERSION = 3
_SKIPPED_FIELDS = ("metadata_props", "raw_data", "doc_string")  # irrelevant for the version


def lower_ir_version(model: Any, highest: Optional[int]) -> bool:
    """Lower the IR version to `highest`, or to the lowest version that the model allows. Return whether it changed."""
    before = model.ir_version
    if highest is not None and highest < before:
        model.ir_version = min(before, max(highest, required_ir_version(model)))
    return bool(model.ir_version != before)


def required_ir_version(model: Any) -> int:
    """Return the lowest IR version that supports the model's content; if unknown, the model's own version."""
    opsets = [opset for owner in (model, *model.functions) for opset in owner.opset_import]
    return max(
        [
            _MIN_IR_VERSION,
            *(_required_by_opset(opset, model) for opset in opsets),
            *(_NEEDED_BY_MESSAGE.get(type(part).__name__, _MIN_IR_VERSION) for part in _nested_messages(model)),
            *(_required_by_content(part, model) for part in _nested_messages(model)),
        ]
    )


def _required_by_opset(opset: Any, model: Any) -> int:
    """Return the IR version that was released with an opset. Source: the release table in onnx."""
    domain = opset.domain or "ai.onnx"
    if domain not in {name for name, _ in OP_SET_ID_VERSION_MAP}:
        return _MIN_IR_VERSION
    return int(OP_SET_ID_VERSION_MAP.get((domain, opset.version), model.ir_version))


def _required_by_content(part: Any, model: Any) -> int:
    kind = type(part).__name__
    if kind in ("TensorProto", "Tensor", "SparseTensor"):  # the last two are part of TypeProto
        number = part.data_type if kind == "TensorProto" else part.elem_type
        return int(model.ir_version) if number > _NEWEST_KNOWN_TYPE else _NEEDED_BY_TYPE.get(number, _MIN_IR_VERSION)
    if kind in ("FunctionProto", "NodeProto") and bool(getattr(part, "overload", "")):
        return 10
    if kind == "FunctionProto" and part.attribute_proto:
        return 9
    if kind == "GraphProto" and part.initializer:
        return _INITIALIZERS_NOT_INPUTS
    return _MIN_IR_VERSION


def _nested_messages(message: Any) -> Iterator[Any]:
    """Yield the message and all nested messages."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.name in _SKIPPED_FIELDS:
            continue
        for item in (value,) if hasattr(value, "ListFields") else value:
            for part in _nested_messages(item):
                yield part
