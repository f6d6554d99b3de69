"""Valid arguments of operators that reduce, generate, rearrange or select elements, and that use text or sequences."""

from __future__ import annotations

from collections.abc import Mapping

from harvest.probing.catalogue.entries import USUAL_SHAPES, Entry, Value

_SIGNAL: Mapping[str, Value] = {"signal": (1, 32, 1), "frame_step": 8}

_CROP: Mapping[str, Value] = {
    "X": (1, 1, 4, 4),
    "roi": [0.0, 0.0, 0.4, 0.6, 1.0, 1.0, 0.6, 0.8],
    "coordinate_transformation_mode": "tf_crop_and_resize",
}


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
        *({"0": shape, "axes": [], "keepdims": kept} for shape in ((2, 3), (2, 3, 4)) for kept in (0, 1)),
        {"0": (2, 3, 4), "axes": [0], "keepdims": 1},
    )
    return Entry(forms, {}, {"keepdims": (0,), "noop_with_empty_axes": (1,)}, {"axes": [0]})


TENSORS: dict[str, Entry] = {
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
    "GridSample": Entry(
        ({"X": (1, 2, 4, 4), "grid": (1, 3, 3, 2)}, {"X": (1, 2, 4, 4, 4), "grid": (1, 3, 3, 3, 3)}),
        {},
        {
            "align_corners": (1,),
            "mode": ("nearest", "bilinear", "bicubic", "cubic"),
            "padding_mode": ("border", "reflection"),
        },
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
    "TensorScatter": Entry(
        ({"past_cache": (2, 3, 4, 5), "update": (2, 3, 1, 5)},), {}, {"mode": ("circular",)}, {"write_indices": [1, 1]}
    ),
    "Shape": Entry(tuple({"0": shape} for shape in USUAL_SHAPES), {}, {"start": (1, -1), "end": (1, -1)}),
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
TENSORS["ArgMin"] = TENSORS["ArgMax"]
