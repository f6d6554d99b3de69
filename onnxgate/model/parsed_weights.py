"""Weights whose data ONNX Runtime needs for shape inference, for which it reads no external data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from onnxgate.core.process_pool import FailedCallError
from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.model.onnx_functions import OnnxError, infer_shapes
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.reduced_models import copy_for_checker, remove_data

_FLOATS = {"OneHot": {1}, "Range": {1, 5, 11}, "Resize": {1}, "Upsample": {1}}
"""Operators whose shape inference reads data of float, int16 or double, besides int32 and int64."""
DEPTH_OPERATOR = "OneHot"
"""Operator whose input only newer releases read in shape inference."""
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_PARSING = frozenset(
    (
        *("AffineGrid", "BlackmanWindow", "CenterCropPad", "Col2Im", "ConstantOfShape", "DFT", "Expand"),
        *("HammingWindow", "HannWindow", "MelWeightMatrix", "OneHot", "Pad", "Reshape", "STFT", "Slice", "Split"),
        *("SplitToSequence", "Squeeze", "Tile", "TopK", "Unsqueeze", *_FLOATS),
        *(f"Reduce{name}" for name in _REDUCTIONS),
    )
)
"""Operators whose shape inference needs the data of inputs.

Source: 83 models with an external initializer as a shape, axis, size or other input, in several opsets
and scopes, loaded on ONNX Runtime 1.16.3, 1.20.1, 1.24.4, 1.31.1 and 1.32.0. If onnx reads the data, all of these
releases refuse the model, except that 1.16.3 and 1.20.1 load OneHot. 24 models of OneHot in two opsets, with depths of
three types and two ranks, in the main graph and in branches, loaded on 12 releases: all refuse them since 1.21.0.
"""
_INTEGERS = frozenset({6, 7})  # int32, int64
_ERROR = re.compile(
    r"\(op_type:(\w+)\): \[ShapeInferenceError\] Cannot parse data from external tensors[^\n]* for tensor: ([^\n]*)"
)
"""Error of shape inference in onnx, which ONNX Runtime shares."""


def list_parsed_weights(model: ModelView, path: Path) -> Mapping[str, str]:
    """Return the initializers with external data that must be in the model, because shape inference needs it.

    They are the keys; the values are operators that take them, "OneHot" only if there is no other.

    Data of more than 4 KiB is not considered. `path` is the model file.
    """
    lists = {name: it.data_type for name, it in model.external if len(it.dims) <= 1}
    operators = {node.operator[1] for node in model.nodes() if node.operator[0] == DEFAULT_DOMAIN} if lists else set()
    elements = _INTEGERS.union(*(_FLOATS[name] for name in operators & _FLOATS.keys()))
    names = {name for name, element in lists.items() if element in elements}
    names -= {value.name for value in model.proto.graph.input}
    if not names or operators.isdisjoint(_PARSING):
        return {}
    copy = copy_for_checker(model.proto, path)
    for name, tensor in ModelView(copy).tensors:
        if name in names:
            remove_data(tensor)
    try:
        infer_shapes(copy, strict_mode=True)
    except OnnxError as error:
        found = [(name, operator) for operator, name in _ERROR.findall(str(error)) if operator in _PARSING]
        return {name: operator for name, operator in sorted(found, key=_is_certain) if name in names}
    except FailedCallError:  # other checks report it
        pass
    return {}


def _is_certain(use: tuple[str, str]) -> bool:
    return use[1] != DEPTH_OPERATOR
