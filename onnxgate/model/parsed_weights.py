"""Weights whose data ONNX Runtime needs for shape inference, for which it reads no external data."""

from __future__ import annotations

import re
from pathlib import Path

from onnxgate.core.process_pool import FailedCallError
from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.model.onnx_functions import OnnxError, infer_shapes
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.reduced_models import copy_for_checker, remove_data

_FLOATS = {"Range": {1, 5, 11}, "Resize": {1}, "Upsample": {1}}
"""Operators whose shape inference reads data of float, int16 or double, besides int32 and int64."""
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_PARSING = frozenset(
    (
        *("AffineGrid", "BlackmanWindow", "CenterCropPad", "Col2Im", "ConstantOfShape", "DFT", "Expand"),
        *("HammingWindow", "HannWindow", "MelWeightMatrix", "Pad", "Reshape", "STFT", "Slice", "Split"),
        *("SplitToSequence", "Squeeze", "Tile", "TopK", "Unsqueeze", *_FLOATS),
        *(f"Reduce{name}" for name in _REDUCTIONS),
    )
)
"""Operators whose shape inference needs the data of inputs.

Source: 83 models with an external initializer as a shape, axis, size or other input, in several opsets
and scopes, loaded on ONNX Runtime 1.16.3, 1.20.1, 1.24.4, 1.31.1 and 1.32.0. If onnx reads the data, all of these
releases refuse the model, except that 1.16.3 and 1.20.1 load OneHot, which is therefore not listed.
"""
_INTEGERS = frozenset({6, 7})  # int32, int64
_ERROR = re.compile(
    r"\(op_type:(\w+)\): \[ShapeInferenceError\] Cannot parse data from external tensors[^\n]* for tensor: ([^\n]*)"
)
"""Error of shape inference in onnx, which ONNX Runtime shares."""


def list_parsed_weights(model: ModelView, path: Path) -> frozenset[str]:
    """Return the initializers with external data that must be in the model, because shape inference needs it.

    Data of more than 4 KiB is not considered. `path` is the model file.
    """
    lists = {name: it.data_type for name, it in model.external if len(it.dims) <= 1}
    operators = {node.operator[1] for node in model.nodes() if node.operator[0] == DEFAULT_DOMAIN} if lists else set()
    elements = _INTEGERS.union(*(_FLOATS[name] for name in operators & _FLOATS.keys()))
    names = {name for name, element in lists.items() if element in elements}
    names -= {value.name for value in model.proto.graph.input}
    if not names or operators.isdisjoint(_PARSING):
        return frozenset()
    copy = copy_for_checker(model.proto, path)
    for name, tensor in ModelView(copy).tensors:
        if name in names:
            remove_data(tensor)
    try:
        infer_shapes(copy, strict_mode=True)
    except OnnxError as error:
        return frozenset(name for operator, name in _ERROR.findall(str(error)) if operator in _PARSING) & names
    except FailedCallError:  # other checks report it
        pass
    return frozenset()
