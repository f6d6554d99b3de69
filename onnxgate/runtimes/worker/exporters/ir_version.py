"""Lowering of a file's IR version, as far as its content allows."""

from __future__ import annotations

from typing import Any, Iterator, Optional

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
_INITIALIZERS_NOT_INPUTS = 4  # earlier versions require each initializer to be an input, too
_MIN_IR_VERSION = 3
_SKIPPED_FIELDS = ("metadata_props", "raw_data", "doc_string")  # optional information for readers, and bytes


def lower_ir_version(model: Any, highest: Optional[int]) -> bool:
    """Lower the IR version to `highest`, but not below the required version. Return whether it changed."""
    before = model.ir_version
    if highest is not None and highest < before:
        model.ir_version = min(before, max(highest, required_ir_version(model)))
    return bool(model.ir_version != before)


def required_ir_version(model: Any) -> int:
    """Return the lowest IR version that supports the model's content; the model's own if that is unknown."""
    opsets = [opset for owner in (model, *model.functions) for opset in owner.opset_import]
    return max(
        [
            _MIN_IR_VERSION,
            *(_required_by_opset(opset, model) for opset in opsets),
            *(_required_by_part(part, model) for part in _nested_messages(model)),
        ]
    )


def _required_by_opset(opset: Any, model: Any) -> int:
    """Return the IR version that was released with an opset. Source: onnx's own table of releases."""
    from onnx.helper import OP_SET_ID_VERSION_MAP

    domain = opset.domain or "ai.onnx"
    if domain not in {each for each, _ in OP_SET_ID_VERSION_MAP}:
        return _MIN_IR_VERSION
    return int(OP_SET_ID_VERSION_MAP.get((domain, opset.version), model.ir_version))


def _required_by_part(part: Any, model: Any) -> int:
    kind = type(part).__name__
    return max(_NEEDED_BY_MESSAGE.get(kind, _MIN_IR_VERSION), _required_by_content(part, kind, model))


def _required_by_content(part: Any, kind: str, model: Any) -> int:
    if kind == "TensorProto":
        return _required_by_type(part.data_type, model)
    if kind in ("Tensor", "SparseTensor"):  # of TypeProto
        return _required_by_type(part.elem_type, model)
    if kind in ("FunctionProto", "NodeProto") and bool(getattr(part, "overload", "")):
        return 10
    if kind == "FunctionProto" and part.attribute_proto:
        return 9
    if kind == "GraphProto" and part.initializer:
        return _INITIALIZERS_NOT_INPUTS
    return _MIN_IR_VERSION


def _required_by_type(number: int, model: Any) -> int:
    return int(model.ir_version) if number > _NEWEST_KNOWN_TYPE else _NEEDED_BY_TYPE.get(number, _MIN_IR_VERSION)


def _nested_messages(message: Any) -> Iterator[Any]:
    """Yield the message and all messages inside it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.name in _SKIPPED_FIELDS:
            continue
        for item in (value,) if hasattr(value, "ListFields") else value:
            for part in _nested_messages(item):
                yield part
