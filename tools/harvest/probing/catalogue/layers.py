"""Valid arguments of layers: convolution, pooling, normalization, attention, recurrence, quantization and losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harvest.probing.catalogue.entries import Entry, Shape, Value

_QKV: Mapping[str, Value] = {"Q": (2, 3, 4, 8), "K": (2, 3, 6, 8), "V": (2, 3, 6, 8)}

_DYNAMIC_QKV: tuple[Mapping[str, Value], ...] = ({**_QKV, "Q": (2, 3, 4, "size")}, {**_QKV, "V": (2, 3, 6, "size")})

_MASKS: tuple[Shape, ...] = ((4, 6), (2, 1, 4, 6), (3, 4, 6), (2, 3, 4, 6))

_STATISTICS: Mapping[str, Value] = dict.fromkeys(("scale", "B", "input_mean", "input_var"), [1.0] * 4)


def _image(**choices: Sequence[object]) -> Entry:
    return Entry(({"0": (1, 4, 8, 8)}, {"0": (1, 4, 8)}, {"0": (1, 4, 8, 8, 8)}), {}, choices)


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


def _quantization(scale: str, zero_point: str, is_usual: bool, **choices: Sequence[object]) -> Entry:
    """Return the arguments of QuantizeLinear or DequantizeLinear: each scale with and without a zero point.

    QuantizeLinear usually has one: OpenVINO up to 2025.2.0 refuses it without.
    """
    blocked = {"block_size": 2}
    scales: tuple[Mapping[str, Value], ...] = (
        {"x": (2, 4), scale: 0.5},
        {"x": (2, 4), scale: 0.5, "axis": 1},
        {"x": (2, 4), scale: [0.5]},
        {"x": (2, 4), scale: [0.5] * 4},
        {"x": (2, 4, 3), scale: [0.5] * 4},
        {"x": (2, 4, 3, 3), scale: [0.5] * 4},
        {"x": (4,), scale: [0.5] * 4, "axis": 0},
        {"x": (4, 2, 3), scale: [0.5] * 4, "axis": 0},
        {"x": (4, 2, 3, 3), scale: [0.5] * 4, "axis": 0},
        {"x": (2, 4), scale: 0.5, "block_size": 0},
        {"x": (2, 4), scale: [0.5] * 4, "axis": 1, "block_size": 0},
        {"x": (2, 4), scale: [[0.5] * 2] * 2, **blocked},
        {"x": (2, 4, 3), scale: [[[0.5] * 3] * 2] * 2, **blocked},
        {"x": (4, 2, 3), scale: [[[0.5] * 3] * 2] * 2, "axis": 0, **blocked},
        {"x": (1, 4, 3, 2), scale: np.full((1, 2, 3, 2), 0.5).tolist(), **blocked},
        {"x": (4, 4), scale: [[0.5] * 2] * 4, **blocked},
        {"x": (4, 4), scale: [[0.5] * 4] * 2, "axis": 0, **blocked},
    )
    points = ({zero_point: np.ones(np.shape(it[scale])).tolist()} for it in scales)
    pairs = zip(scales, points, strict=True)
    forms = tuple({**form, **more} for form, point in pairs for more in ((point, {}) if is_usual else ({}, point)))
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


LAYERS: dict[str, Entry] = {
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
    "DequantizeLinear": _quantization("x_scale", "x_zero_point", False),
    "QuantizeLinear": _quantization("y_scale", "y_zero_point", True, saturate=(0,)),
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
}
