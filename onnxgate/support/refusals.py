"""What constructors of kernels refuse although schema and types are right."""

from __future__ import annotations

from onnxgate.support.operations import Operation


def refusal(operation: Operation, since: int, release: str) -> str:
    """What is refused of the node's attributes; "" where nothing is.

    Source: loads on ONNX Runtime 1.16 to 1.31.
    """
    if operation.name in ("GRU", "LSTM", "RNN") and integer(operation, "layout") == 1:
        return "attribute `layout` = 1 is not implemented"
    return ""


def integer(operation: Operation, name: str) -> int | None:
    """The value of an INT attribute, None where it is not given."""
    from onnx import AttributeProto

    for attribute in operation.attributes:
        if attribute.name == name and attribute.kind == "INT" and attribute.data:
            return int(AttributeProto.FromString(attribute.data).i)
    return None
