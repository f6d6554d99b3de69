"""Valid arguments of operators for probe models: shapes of inputs, parameters, and values of attributes.

An entry describes the newest version of an operator; `probe_models` removes what an older version does not have. Inputs
that older versions have as attributes, such as `axes`, have the same name there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

Shape = tuple[int | str, ...]
"""Sizes; the name of a dynamic size."""
Value = Shape | list[int] | list[float] | list[list[float]] | list[list[list[float]]] | int | float | str | None
"""Shape of a computed input, or the value of a parameter: an input that models usually store as a constant.

In forms, the value of an attribute; None if it is unset."""


@dataclass(frozen=True)
class Entry:
    """Arguments of one operator. The first form is the usual one; optional inputs are omitted in it."""

    forms: tuple[Mapping[str, Value], ...]
    attributes: Mapping[str, object] = field(default_factory=dict)  # in every model
    choices: Mapping[str, Sequence[object]] = field(default_factory=dict)  # other values, by attribute
    optional: Mapping[str, Value] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)  # usual types of type parameters, if they are not float


_UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitwiseNot",
    "Ceil",
    "Cos",
    "Cosh",
    "Erf",
    "Exp",
    "Floor",
    "HardSwish",
    "Identity",
    "IsNaN",
    "Log",
    "Mish",
    "Neg",
    "Not",
    "Reciprocal",
    "Relu",
    "Round",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Size",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "NonZero",
]
_BINARY = [
    "Add",
    "And",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Mul",
    "Or",
    "Pow",
    "Sub",
    "Xor",
    "SwiGLU",
    "StringConcat",
]
_ANY: tuple[Shape, ...] = ((2, 3, 4, 4), (3,), (), (2, 3))
_PAIRS: tuple[tuple[Shape, Shape], ...] = (((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((3,), ()), ((), ()))
_QKV: Mapping[str, Value] = {"Q": (2, 3, 4, 8), "K": (2, 3, 6, 8), "V": (2, 3, 6, 8)}
_DYNAMIC_QKV: tuple[Mapping[str, Value], ...] = ({**_QKV, "Q": (2, 3, 4, "size")}, {**_QKV, "V": (2, 3, 6, "size")})
_MASKS: tuple[Shape, ...] = ((4, 6), (2, 1, 4, 6), (3, 4, 6), (2, 3, 4, 6))
_SIGNAL: Mapping[str, Value] = {"signal": (1, 32, 1), "frame_step": 8}
_CROP: Mapping[str, Value] = {
    "X": (1, 1, 4, 4),
    "roi": [0.0, 0.0, 0.4, 0.6, 1.0, 1.0, 0.6, 0.8],
    "coordinate_transformation_mode": "tf_crop_and_resize",
}
_STATISTICS: Mapping[str, Value] = dict.fromkeys(("scale", "B", "input_mean", "input_var"), [1.0] * 4)


def _unary(attributes: Mapping[str, object] | None = None, **choices: Sequence[object]) -> Entry:
    return Entry(tuple({"0": shape} for shape in _ANY), attributes or {}, choices)


def _image(**choices: Sequence[object]) -> Entry:
    return Entry(({"0": (1, 4, 8, 8)}, {"0": (1, 4, 8)}, {"0": (1, 4, 8, 8, 8)}), {}, choices)


def _reduce() -> Entry:
    forms = tuple({"0": shape} for shape in ((2, 3, 4), (2, 3, 4, 5), (3,)))
    forms = (*forms, {"0": (2, 3, 4), "axes": []}, {"0": (2, 3), "axes": []}, {"0": (2, 3, 4), "axes": [0, 1]})
    several = ({"0": shape, "axes": [0, 1], "keepdims": 0} for shape in ((2, 3), (2, 3, 4), (2, 3, 4, 5), (1, 2, 3)))
    forms = (
        *forms,
        *several,
        *({"0": shape, "axes": [0, 1], "keepdims": 1} for shape in ((2, 3), (2, 3, 4))),
        *({"0": shape, "axes": [0], "keepdims": 0} for shape in ((2, 3, 4), (2, 3, 4, 5), (3,))),
        {"0": (2, 3), "axes": [1], "keepdims": 0},
        {"0": (2, 3), "axes": [], "keepdims": 0},
        {"0": (2, 3), "axes": [], "keepdims": 1},
    )
    return Entry(forms, {}, {"keepdims": (0,), "noop_with_empty_axes": (1,)}, {"axes": [0]})


def _pool(**choices: Sequence[object]) -> Entry:
    choices = {
        "auto_pad": ("SAME_UPPER", "SAME_LOWER", "VALID"),
        "ceil_mode": (1,),
        "strides": ([2, 2],),
        "dilations": ([2, 2], [1, 1]),
        "pads": ([1, 1, 1, 1], [0, 0, 1, 1]),
        **choices,
    }
    return Entry(({"X": (1, 4, 8, 8)},), {"kernel_shape": [2, 2]}, choices)


def _quantization(scale: str, zero_point: str, **choices: Sequence[object]) -> Entry:
    """Return the arguments of QuantizeLinear or DequantizeLinear: each scale with and without a zero point."""
    blocked = {"block_size": 2}
    scales: tuple[Mapping[str, Value], ...] = (
        {"x": (2, 4), scale: 0.5},
        {"x": (2, 4), scale: [0.5]},
        {"x": (2, 4), scale: [0.5] * 4},
        {"x": (2, 4, 3), scale: [0.5] * 4},
        {"x": (2, 4, 3, 3), scale: [0.5] * 4},
        {"x": (4,), scale: [0.5] * 4, "axis": 0},
        {"x": (4, 2, 3, 3), scale: [0.5] * 4, "axis": 0},
        {"x": (2, 4), scale: 0.5, "block_size": 0},
        {"x": (2, 4), scale: [0.5] * 4, "axis": 1, "block_size": 0},
        {"x": (2, 4), scale: [[0.5] * 2] * 2, **blocked},
        {"x": (2, 4, 3), scale: [[[0.5] * 3] * 2] * 2, **blocked},
        {"x": (4, 2, 3), scale: [[[0.5] * 3] * 2] * 2, "axis": 0, **blocked},
        {"x": (4, 4), scale: [[0.5] * 2] * 4, **blocked},
        {"x": (4, 4), scale: [[0.5] * 4] * 2, "axis": 0, **blocked},
    )
    points = ({zero_point: np.ones(np.shape(it[scale])).tolist()} for it in scales)
    forms = tuple({**form, **more} for form, point in zip(scales, points, strict=True) for more in (point, {}))
    return Entry(forms, {}, {"axis": (-1,), "block_size": (), **choices}, {zero_point: 1})


def _conv(inputs: Mapping[str, Value], *rest: Mapping[str, Value], **optional: Value) -> Entry:
    choices: dict[str, Sequence[object]] = {
        "auto_pad": ("SAME_UPPER", "SAME_LOWER", "VALID"),
        "strides": ([2, 2],),
        "dilations": ([2, 2],),
        "pads": ([1, 1, 1, 1], [0, 0, 1, 1]),
        "kernel_shape": ([3, 3],),
    }
    grouped = {**inputs, "W" if "W" in inputs else "w": (4, 2, 3, 3), "group": 2}
    return Entry((inputs, *rest, grouped), {}, choices, optional)


def _recurrent(gates: int, activations: Sequence[str], **optional: Value) -> Entry:
    forms = ({"X": (5, 2, 3), "W": (1, gates * 4, 3), "R": (1, gates * 4, 4)},)
    choices: dict[str, Sequence[object]] = {
        "direction": ("reverse",),
        "layout": (),
        "clip": (1.0,),
        "linear_before_reset": (1,),
        "input_forget": (1,),
        "activations": (list(activations),),
    }
    extra = {"B": (1, 2 * gates * 4), "sequence_lens": [5, 5], "initial_h": (1, 2, 4), **optional}
    return Entry(forms, {"hidden_size": 4}, choices, extra)


CATALOGUE: dict[str, Entry] = {
    **{name: _unary() for name in _UNARY},
    **{name: Entry(tuple({"0": left, "1": right} for left, right in _PAIRS)) for name in _BINARY},
    **{
        name: _reduce()
        for name in [
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceSum",
            "ReduceSumSquare",
        ]
    },
    **{
        name: Entry(tuple({"0": left, "0b": right} for left, right in _PAIRS)) for name in ["Max", "Mean", "Min", "Sum"]
    },
    "Elu": _unary(alpha=(0.5,)),
    "Celu": _unary(alpha=(0.5,)),
    "Selu": _unary(alpha=(0.5,), gamma=(2.0,)),
    "Gelu": _unary(approximate=("tanh",)),
    "LeakyRelu": _unary(alpha=(0.5,)),
    "HardSigmoid": _unary(alpha=(0.5,), beta=(0.1,)),
    "ThresholdedRelu": _unary(alpha=(0.5,)),
    "Shrink": _unary(bias=(0.5,), lambd=(1.0,)),
    "Swish": _unary(alpha=(0.5,)),
    "IsInf": _unary(detect_negative=(0,), detect_positive=(0,)),
    "Mod": Entry(
        (
            *({"0": left, "1": right} for left, right in _PAIRS),
            *(
                {"0": left, "1": right, "fmod": fmod, "T": f"tensor({element})"}
                for element in ("float", "double", "float16", "bfloat16")
                for fmod in (0, None)
                for left, right in _PAIRS
            ),
        ),
        {"fmod": 1},
        {"fmod": (0, None)},
        {},
        {"T": "tensor(int64)"},
    ),
    "BitShift": Entry(({"X": (2, 3), "Y": (2, 3)},), {"direction": "LEFT"}, {"direction": ("RIGHT",)}),
    "BitCast": Entry(({"0": (2, 3)},), {}),
    "Cast": Entry(({"0": (2, 3)}, {"0": ()}), {}, {"saturate": (0,)}),
    "CastLike": Entry(({"0": (2, 3), "1": (1,)},), {}, {"saturate": (0,)}),
    "Clip": Entry(tuple({"0": s} for s in _ANY), {}, {}, {"min": 0.0, "max": 6.0}),
    "PRelu": Entry(
        ({"X": (1, 4, 8, 8), "slope": (4, 1, 1)}, {"X": (2, 3), "slope": (3,)}, {"X": (2, 3, 4), "slope": (4,)})
    ),
    "Where": Entry(({"condition": (2, 3), "X": (2, 3), "Y": (2, 3)}, {"condition": (), "X": (2, 3), "Y": (3,)})),
    "AffineGrid": Entry(
        ({"theta": (1, 2, 3), "size": [1, 3, 4, 4]}, {"theta": (1, 3, 4), "size": [1, 3, 4, 4, 4]}),
        {},
        {"align_corners": (1,)},
    ),
    "ArgMax": Entry(
        ({"data": (2, 3, 4)}, {"data": (3,)}),
        {},
        {"axis": (-1, 1), "keepdims": (0,), "select_last_index": (1,)},
    ),
    "AveragePool": _pool(count_include_pad=(1,)),
    "MaxPool": _pool(storage_order=(1,)),
    "LpPool": _pool(p=(1,)),
    "GlobalAveragePool": _image(),
    "GlobalMaxPool": _image(),
    "GlobalLpPool": _image(p=(1,)),
    "LRN": Entry(({"0": (1, 4, 8, 8)}, {"0": (1, 4, 8)}), {"size": 3}, {"alpha": (0.1,), "beta": (0.5,)}),
    "BatchNormalization": Entry(
        (
            {"X": (2, 4, 8, 8), **_STATISTICS},
            {"X": (2, 4), **_STATISTICS},
            {"X": (2, 4, 8), **_STATISTICS},
            *({"X": (2, 4, *sizes), **_STATISTICS, "training_mode": 1, "outputs": 3} for sizes in ((), (8,), (8, 8))),
        ),
        {},
        {"training_mode": (1,), "epsilon": (0.1,), "momentum": (0.5,), "spatial": (0,), "is_test": (1,)},
    ),
    "InstanceNormalization": Entry(
        ({"input": (2, 4, 8, 8), "scale": (4,), "B": (4,)}, {"input": (2, 4, 8), "scale": (4,), "B": (4,)}),
        {},
        {"epsilon": (0.1,)},
    ),
    "GroupNormalization": Entry(
        ({"X": (2, 4, 8, 8), "scale": (4,), "bias": (4,)}, {"X": (2, 4, 8), "scale": (4,), "bias": (4,)}),
        {"num_groups": 2},
        {"epsilon": (0.1,)},
    ),
    "LayerNormalization": Entry(
        (
            {"X": (2, 3, 4), "Scale": (4,)},
            {"X": (2, 3, 4), "Scale": (4,), "B": (4,)},
            {"X": (2, 3, 4), "Scale": (3, 4), "axis": 1},
            {"X": (2, 3, 4), "Scale": (3, 4), "B": (3, 4), "axis": -2},
            {"X": (2, 3, 4), "Scale": (2, 3, 4), "axis": 0},
        ),
        {},
        {"axis": (2,), "epsilon": (0.1,)},
    ),
    "RMSNormalization": Entry(
        (
            {"X": (2, 3, 4), "scale": (4,)},
            {"X": (2, 3, 4), "scale": (3, 4), "axis": 1},
            {"X": (2, 3, 4), "scale": (3, 4), "axis": -2},
            {"X": (2, 3, 4), "scale": (2, 3, 4), "axis": 0},
        ),
        {},
        {"axis": (2,), "epsilon": (0.1,)},
    ),
    "LpNormalization": Entry(({"0": (2, 3, 4)},), {}, {"axis": (0, 1), "p": (1,)}),
    "MeanVarianceNormalization": Entry(({"0": (2, 3, 4, 4)},), {}, {"axes": ([0, 2, 3], [1])}),
    "Hardmax": Entry(({"0": (2, 3, 4)},), {}, {"axis": (0, 1)}),
    "Softmax": Entry(({"0": (2, 3, 4)}, {"0": (3,)}), {}, {"axis": (0, 1, -1)}),
    "LogSoftmax": Entry(({"0": (2, 3, 4)}, {"0": (3,)}), {}, {"axis": (0, 1, -1)}),
    "Bernoulli": Entry(({"0": (2, 3)},), {}, {"dtype": (1, 6), "seed": (1.0,)}),
    "Multinomial": Entry(({"0": (2, 3)},), {}, {"dtype": (7,), "sample_size": (4,), "seed": (1.0,)}),
    "RandomNormal": Entry(({},), {"shape": [2, 3]}, {"dtype": (10, 11), "seed": (1.0,), "mean": (1.0,)}),
    "RandomUniform": Entry(({},), {"shape": [2, 3]}, {"dtype": (10, 11), "seed": (1.0,), "low": (0.5,)}),
    "RandomNormalLike": Entry(({"0": (2, 3)},), {}, {"dtype": (1, 10), "seed": (1.0,), "mean": (1.0,)}),
    "RandomUniformLike": Entry(({"0": (2, 3)},), {}, {"dtype": (1, 10), "seed": (1.0,), "low": (0.5,)}),
    "EyeLike": Entry(
        ({"0": (3, 4)}, {"0": ("rows", 4)}, {"0": ("rows", 4), "dtype": 9}), {}, {"dtype": (1, 7), "k": (1, -1)}
    ),
    "BlackmanWindow": Entry(({"size": 8},), {}, {"periodic": (0,), "output_datatype": (11,)}),
    "HammingWindow": Entry(({"size": 8},), {}, {"periodic": (0,), "output_datatype": (11,)}),
    "HannWindow": Entry(({"size": 8},), {}, {"periodic": (0,), "output_datatype": (11,)}),
    "MelWeightMatrix": Entry(
        (
            {
                "num_mel_bins": 8,
                "dft_length": 16,
                "sample_rate": 8192,
                "lower_edge_hertz": 0.0,
                "upper_edge_hertz": 4096.0,
            },
        )
    ),
    "CenterCropPad": Entry(
        (
            {"input_data": (4, 6, 3), "shape": [6, 4, 3]},
            {"input_data": (4, 6, 3), "shape": [6, 4], "axes": [0, 1]},
            {"input_data": (4, 6, 3), "shape": [6, 4, 3], "axes": [0, 1, 2]},
        )
    ),
    "Col2Im": Entry(({"input": (1, 5, 5), "image_shape": [5, 5], "block_shape": [1, 5]},)),
    "Compress": Entry(({"input": (3, 2), "condition": (3,)},), {}, {"axis": (0, -1)}),
    "Concat": Entry(
        ({"0": (2, 3), "0b": (2, 3)}, {"0": (2, 3)}, {"0": (3,), "0b": (3,)}), {"axis": 0}, {"axis": (-1,)}
    ),
    "Constant": Entry(({},)),
    "ConstantOfShape": Entry(({"input": [2, 3]},), {}),
    "Conv": _conv(
        {"X": (1, 4, 8, 8), "W": (4, 4, 3, 3)},
        {"X": (1, 4, 8), "W": (4, 4, 3)},
        {"X": (1, 4, 8, 8, 8), "W": (4, 4, 3, 3, 3)},
        B=(4,),
    ),
    "ConvInteger": _conv({"x": (1, 4, 8, 8), "w": (4, 4, 3, 3)}, x_zero_point=1, w_zero_point=1),
    "ConvTranspose": Entry(
        (
            {"X": (1, 4, 8, 8), "W": (4, 4, 3, 3)},
            {"X": (1, 4, 8), "W": (4, 4, 3)},
            {"X": (1, 4, 4, 4, 4), "W": (4, 4, 3, 3, 3)},
            {"X": (1, 4, 8, 8), "W": (4, 2, 3, 3), "group": 2},
        ),
        {},
        {
            "auto_pad": ("SAME_UPPER", "SAME_LOWER", "VALID"),
            "strides": ([2, 2],),
            "dilations": ([2, 2],),
            "pads": ([1, 1, 1, 1],),
            "output_padding": ([0, 0],),
            "output_shape": ([10, 10],),
            "kernel_shape": ([3, 3],),
        },
        {"B": (4,)},
    ),
    "DeformConv": Entry(
        ({"X": (1, 1, 3, 3), "W": (1, 1, 2, 2), "offset": (1, 8, 2, 2)},), {}, {}, {"B": (1,), "mask": (1, 4, 2, 2)}
    ),
    "QLinearConv": _conv(
        {
            "x": (1, 4, 8, 8),
            "x_scale": 0.5,
            "x_zero_point": 1,
            "w": (4, 4, 3, 3),
            "w_scale": 0.5,
            "w_zero_point": 1,
            "y_scale": 0.5,
            "y_zero_point": 1,
        },
        B=[1, 1, 1, 1],
    ),
    "CumSum": Entry(({"x": (2, 3), "axis": 0},), {}, {"exclusive": (1,), "reverse": (1,)}),
    "CumProd": Entry(({"x": (2, 3), "axis": 0},), {}, {"exclusive": (1,), "reverse": (1,)}),
    "DFT": Entry(
        ({"input": (1, 8, 1)}, {"input": (1, 8, 2)}, {"input": (1, 8, 4, 2)}),
        {},
        {"inverse": (1,), "onesided": (1,)},
        {"dft_length": 8, "axis": 1},
    ),
    "STFT": Entry(
        (
            {**_SIGNAL, "window": [1.0] * 16},
            {**_SIGNAL, "frame_length": 16},
            {**_SIGNAL, "frame_length": 16, "onesided": 0},
            {**_SIGNAL, "frame_length": 16, "T2": "tensor(int32)"},
            {**_SIGNAL, "window": [1.0] * 16, "frame_length": 16, "onesided": 0},
            {**_SIGNAL, "signal": (1, 32, 2), "window": [1.0] * 16, "onesided": 0},
            {**_SIGNAL, "signal": (1, 32), "window": [1.0] * 16},
            {**_SIGNAL, "signal": (1, 32), "window": [1.0] * 16, "onesided": 0},
            {**_SIGNAL, "signal": (1, 32), "frame_length": 16},
            _SIGNAL,
        ),
        {},
        {"onesided": (0,)},
        {"window": [1.0] * 16, "frame_length": 16},
    ),
    "DepthToSpace": Entry(({"0": (1, 8, 2, 3)},), {"blocksize": 2}, {"mode": ("CRD",)}),
    "SpaceToDepth": Entry(({"0": (1, 2, 4, 6)},), {"blocksize": 2}, {"mode": ("CRD",)}),
    "DequantizeLinear": _quantization("x_scale", "x_zero_point"),
    "QuantizeLinear": _quantization("y_scale", "y_zero_point", saturate=(0,)),
    "DynamicQuantizeLinear": Entry(({"x": (2, 3)},)),
    "Det": Entry(({"X": (3, 3)}, {"X": (2, 3, 3)})),
    "Dropout": Entry(({"data": (2, 3)},), {}, {"seed": (1,), "is_test": (1,)}, {"ratio": 0.5, "training_mode": 0}),
    "Einsum": Entry(
        (
            {"0": (2, 3), "0b": (3, 4)},
            *({"0": (3, 3), "equation": equation} for equation in ("ii->i", "ij->i", "ii", "ij->ji")),
            *(
                {**form, "T": f"tensor({element})"}
                for element in ("int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64")
                for form in (
                    {"0": (3, 3), "equation": "ij->ji"},
                    {"0": (2, 3), "0b": (3, 4), "equation": "ij,jk"},
                    {"0": (2, 3), "0b": (2, 3), "equation": "ij,ij->ij"},
                )
            ),
        ),
        {"equation": "ij,jk->ik"},
        {"equation": ("ij,jk", "...j,jk->...k")},
    ),
    "Expand": Entry(({"input": (3, 1), "shape": [3, 4]},)),
    "Flatten": Entry(({"input": (2, 3, 4)},), {}, {"axis": (0, 2, -1)}),
    "Gather": Entry(({"data": (3, 4), "indices": (2,)}, {"data": (3, 4), "indices": 0}), {}, {"axis": (1, -1)}),
    "GatherElements": Entry(({"data": (3, 4), "indices": (3, 4)},), {}, {"axis": (1, -1)}),
    "GatherND": Entry(({"data": (2, 3, 4), "indices": (2, 2)},), {}, {"batch_dims": (1,)}),
    "Scatter": Entry(({"data": (3, 4), "indices": (2, 4), "updates": (2, 4)},), {}, {"axis": (1, -1)}),
    "ScatterElements": Entry(
        ({"data": (3, 4), "indices": (2, 4), "updates": (2, 4)},),
        {},
        {"axis": (1, -1), "reduction": ("add", "mul", "min", "max")},
    ),
    "ScatterND": Entry(
        ({"data": (4, 5), "indices": (2, 1), "updates": (2, 5)},), {}, {"reduction": ("add", "mul", "min", "max")}
    ),
    "Gemm": Entry(
        (
            {"A": (3, 4), "B": (4, 3)},
            *(
                {"A": (3, 4), "B": (4, 3), "C": bias, "T": f"tensor({element})"}
                for element in ("float16", "double", "int32")
                for bias in ((3,), [1.0] * 3, (3, 3))
            ),
        ),
        {},
        {"alpha": (0.5,), "beta": (0.5,), "transA": (), "transB": ()},
        {"C": (3,)},
    ),
    "MatMul": Entry(
        (
            {"0": (2, 3), "1": (3, 4)},
            {"0": (5, 2, 3), "1": (5, 3, 4)},
            {"0": (3,), "1": (3,)},
            {"0": (2, 2, 3, 4), "1": (4,)},
            {"0": (3,), "1": (2, 3, 4)},
        )
    ),
    "MatMulInteger": Entry(({"A": (2, 3), "B": (3, 4)},), {}, {}, {"a_zero_point": 1, "b_zero_point": 1}),
    "QLinearMatMul": Entry(
        (
            {
                "a": (2, 3),
                "a_scale": 0.5,
                "a_zero_point": 1,
                "b": (3, 4),
                "b_scale": 0.5,
                "b_zero_point": 1,
                "y_scale": 0.5,
                "y_zero_point": 1,
            },
        )
    ),
    "GridSample": Entry(
        ({"X": (1, 2, 4, 4), "grid": (1, 3, 3, 2)}, {"X": (1, 2, 4, 4, 4), "grid": (1, 3, 3, 3, 3)}),
        {},
        {
            "align_corners": (1,),
            "mode": ("nearest", "bilinear", "bicubic", "cubic"),
            "padding_mode": ("border", "reflection"),
        },
    ),
    "GRU": _recurrent(3, ("Relu", "Tanh")),
    "LSTM": _recurrent(4, ("Relu", "Tanh", "Tanh"), initial_c=(1, 2, 4), P=(1, 12)),
    "RNN": _recurrent(1, ("Relu",)),
    "MaxRoiPool": Entry(({"X": (1, 2, 8, 8), "rois": (1, 5)},), {"pooled_shape": [2, 2]}),
    "RoiAlign": Entry(
        ({"X": (1, 2, 8, 8), "rois": (3, 4), "batch_indices": [0, 0, 0]},),
        {},
        {
            "mode": ("max",),
            "coordinate_transformation_mode": ("output_half_pixel",),
            "sampling_ratio": (2,),
            "output_height": (2,),
            "output_width": (3,),
        },
    ),
    "MaxUnpool": Entry(
        ({"X": (1, 1, 2, 2), "I": (1, 1, 2, 2)},),
        {"kernel_shape": [2, 2]},
        {"strides": ([2, 2],)},
        {"output_shape": [1, 1, 4, 4]},
    ),
    "NegativeLogLikelihoodLoss": Entry(
        ({"input": (3, 5), "target": (3,)}, {"input": (3, 5, 2), "target": (3, 2)}),
        {},
        {"reduction": ("none", "sum"), "ignore_index": (1, -1)},
        {"weight": (5,)},
    ),
    "SoftmaxCrossEntropyLoss": Entry(
        ({"scores": (3, 5), "labels": (3,)}, {"scores": (3, 5, 2), "labels": (3, 2)}),
        {},
        {"reduction": ("none", "sum"), "ignore_index": (1, -1)},
        {"weights": (5,)},
    ),
    "NonMaxSuppression": Entry(
        ({"boxes": (1, 6, 4), "scores": (1, 2, 6)},),
        {},
        {"center_point_box": (1,)},
        {"max_output_boxes_per_class": [3], "iou_threshold": [0.5], "score_threshold": [0.1]},
    ),
    "OneHot": Entry(
        ({"indices": (2, 3), "depth": 10, "values": [0, 1]}, {"indices": (2,), "depth": [10], "values": [0, 1]}),
        {},
        {"axis": (0, 1)},
    ),
    "Pad": Entry(
        (
            {"data": (3, 4), "pads": [0, 1, 0, 1]},
            {"data": (1, 2, 4, 4), "pads": [0, 0, 1, 1, 0, 0, 1, 1]},
            {"data": (3, 4), "pads": [0, 1, 0, 1], "axes": [0, 1]},
            {"data": (1, 2, 4, 4), "pads": [1, 1, 1, 1], "axes": [2, 3]},
            {"data": (4,), "pads": [0, 1], "axes": [0]},
            {"data": (3, 4), "pads": [0, 1], "axes": [-1]},
            {"data": (2, 3, 4), "pads": [0, 1], "axes": [-1]},
            {"data": (1, 2, 4, 4), "pads": [0, 1], "axes": [1]},
        ),
        {},
        {"mode": ("reflect", "edge", "wrap"), "value": (0.5,)},
        {"constant_value": 0},
    ),
    "Range": Entry(
        (
            {"start": 0, "limit": 10, "delta": 2},
            {"start": [0], "limit": 10, "delta": 2},
            {"start": 0, "limit": [10], "delta": 2},
            {"start": 0, "limit": 10, "delta": [2]},
        )
    ),
    "Reshape": Entry(
        (
            {"data": (2, 3, 4), "shape": [2, 12]},
            {"data": (2, 3, 4), "shape": [0, -1]},
            {"data": (0, 3, 4), "shape": [3, 4, 0], "allowzero": 1},
        ),
        {},
        {"allowzero": (1,)},
    ),
    "Resize": Entry(
        (
            {"X": (1, 2, 4, 4), "scales": [1.0, 1.0, 2.0, 2.0]},
            {"X": (1, 2, 4, 4), "sizes": [1, 2, 8, 8]},
            {"X": (1, 2, 4), "scales": [1.0, 1.0, 2.0]},
            {"X": (1, 2, 4, 4, 4), "scales": [1.0, 1.0, 2.0, 2.0, 2.0]},
            {"X": (4, 4), "scales": [2.0, 2.0]},
            {"X": (1, 2, 4, 4), "scales": [1.0, 1.0, 0.5, 0.5]},
            {"X": (1, 2, 4, 4), "sizes": [8, 8], "axes": [2, 3]},
            {"X": (1, 2, 4, 4), "scales": [2.0, 2.0], "axes": [2, 3]},
            {**_CROP, "sizes": [1, 1, 3, 3]},
            {**_CROP, "sizes": [1, 1, 3, 3], "coordinate_transformation_mode": "half_pixel"},
            {**_CROP, "sizes": [1, 1, 3, 3], "mode": "linear"},
            {**_CROP, "scales": [1.0, 1.0, 0.8, 0.8], "mode": "linear"},
        ),
        {},
        {
            "mode": ("linear", "cubic"),
            "coordinate_transformation_mode": (
                *("align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric", "tf_half_pixel_for_nn"),
            ),
            "nearest_mode": ("floor", "ceil", "round_prefer_ceil"),
            "antialias": (1,),
            "cubic_coeff_a": (-0.5,),
            "exclude_outside": (1,),
            "extrapolation_value": (1.0,),
            "keep_aspect_ratio_policy": ("not_larger", "not_smaller"),
        },
        {"roi": [0.0] * 4 + [1.0] * 4},
    ),
    "Upsample": Entry(({"X": (1, 2, 4, 4), "scales": [1.0, 1.0, 2.0, 2.0]},), {}, {"mode": ("linear",)}),
    "ReverseSequence": Entry(
        ({"input": (4, 4), "sequence_lens": [1, 2, 3, 4]},), {}, {"time_axis": (), "batch_axis": ()}
    ),
    "RotaryEmbedding": Entry(
        (
            {"X": (2, 4, 3, 8), "cos_cache": (50, 4), "sin_cache": (50, 4), "position_ids": (2, 3)},
            {"X": (2, 4, 3, 8), "cos_cache": (2, 3, 4), "sin_cache": (2, 3, 4)},
        ),
        {},
        {"interleaved": (1,)},
    ),
    "Attention": Entry(
        (
            _QKV,
            {"Q": (2, 4, 24), "K": (2, 6, 24), "V": (2, 6, 24), "q_num_heads": 3, "kv_num_heads": 3},
            *({**_QKV, "attn_mask": mask, "U": "tensor(bool)"} for mask in _MASKS),
            *({**_QKV, "attn_mask": mask, "U": "tensor(bool)", "is_causal": 1} for mask in _MASKS),
            *({**_QKV, "attn_mask": mask, "is_causal": 1} for mask in _MASKS),
            *({**_QKV, "attn_mask": mask, "U": "tensor(bool)", "is_causal": 1, "softcap": 2.0} for mask in _MASKS),
            *({**_QKV, "attn_mask": mask, "U": "tensor(bool)", "is_causal": 1, "outputs": 4} for mask in _MASKS),
            *({**form, "attn_mask": mask, "U": "tensor(bool)"} for form in _DYNAMIC_QKV for mask in _MASKS),
            *(
                {**form, "attn_mask": mask, "U": "tensor(bool)", "is_causal": causal}
                for form in _DYNAMIC_QKV
                for mask, causal in ((_MASKS[0], 0), (_MASKS[0], 1), (_MASKS[-1], 1))
            ),
            {**_QKV, "attn_mask": (4, 6), "qk_matmul_output_mode": 0},
            *(
                {**_QKV, "attn_mask": (4, 6), **dict.fromkeys(("T1", "T2", "U"), f"tensor({element})")}
                for element in ("float16", "double")
            ),
            {**_QKV, "past_key": (2, 3, 5, 8), "past_value": (2, 3, 5, 8), "outputs": 3},
            {**_QKV, "past_key": (2, 3, 5, 8), "past_value": (2, 3, 5, 8), "attn_mask": (4, 11), "outputs": 3},
            {**_QKV, "past_key": (2, 3, 5, 8), "past_value": (2, 3, 5, 8), "attn_mask": (4, 11), "outputs": 4},
        ),
        {},
        {
            "is_causal": (1,),
            "scale": (0.1,),
            "softcap": (2.0,),
            "qk_matmul_output_mode": (1, 2),
            "softmax_precision": (1,),
            "left_window_size": (2,),
            "right_window_size": (2,),
        },
        {"attn_mask": (4, 6), "nonpad_kv_seqlen": [6, 6]},
    ),
    "TensorScatter": Entry(
        ({"past_cache": (2, 3, 4, 5), "update": (2, 3, 1, 5)},), {}, {"mode": ("circular",)}, {"write_indices": [1, 1]}
    ),
    "Shape": Entry(tuple({"0": shape} for shape in _ANY), {}, {"start": (1, -1), "end": (1, -1)}),
    "Slice": Entry(({"data": (4, 5), "starts": [0, 0], "ends": [2, 2]},), {}, {}, {"axes": [0, 1], "steps": [1, 2]}),
    "Split": Entry(
        (
            {"input": (4, 6), "outputs": 2},
            {"input": (6,), "outputs": 2},
            {"input": (4, 6), "split": [2, 2], "outputs": 2},
            {"input": (6,), "split": [2, 4], "outputs": 2},
            {"input": (4, 6), "num_outputs": 2, "outputs": 2},
        ),
        {},
        {"axis": (1, -1)},
    ),
    "SplitToSequence": Entry(({"input": (4, 6)},), {}, {"axis": (1,), "keepdims": (0,)}, {"split": [2, 2]}),
    "Squeeze": Entry(({"data": (1, 3, 1)},), {}, {}, {"axes": [0]}),
    "Unsqueeze": Entry(({"data": (3, 4), "axes": [0]}, {"data": (), "axes": [0]}, {"data": (3, 4), "axes": [-1, 0]})),
    "Tile": Entry(({"input": (2, 3), "repeats": [1, 2]},)),
    "TopK": Entry(
        ({"X": (3, 8), "K": [2]}, {"X": (8,), "K": [2]}), {}, {"axis": (0,), "largest": (0,), "sorted": (0,)}
    ),
    "Transpose": Entry(({"data": (2, 3, 4)},), {}, {"perm": ([1, 0, 2],)}),
    "Trilu": Entry(
        ({"input": (3, 4)}, {"input": (2, 3, 4)}, {"input": (3, 4), "k": [1]}), {}, {"upper": (0,)}, {"k": 1}
    ),
    "Unique": Entry(({"X": (2, 6)}, {"X": (6,)}), {}, {"axis": (0, 1, -1), "sorted": (0,)}),
    "RegexFullMatch": Entry(({"X": (2, 3)},), {"pattern": "a"}),
    "StringSplit": Entry(({"X": (2, 3)},), {}, {"delimiter": (" ",), "maxsplit": (1,)}),
    "StringNormalizer": Entry(({"X": (3,)},), {}, {"case_change_action": ("LOWER",)}),
    "TfIdfVectorizer": Entry(
        ({"X": (12,)},),
        {
            "mode": "TF",
            "min_gram_length": 1,
            "max_gram_length": 1,
            "max_skip_count": 0,
            "ngram_counts": [0],
            "ngram_indexes": [0],
            "pool_int64s": [1],
        },
    ),
    "ImageDecoder": Entry(({"encoded_stream": (100,)},), {}, {"pixel_format": ("BGR", "Grayscale")}),
    "SequenceConstruct": Entry(({"0": (2, 3), "0b": (2, 3)}, {"0": (2, 3)})),
    "SequenceEmpty": Entry(({},), {}, {"dtype": (7,)}),
}
CATALOGUE["ArgMin"] = CATALOGUE["ArgMax"]
