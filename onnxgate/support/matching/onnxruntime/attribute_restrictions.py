"""Attribute values that kernels of ONNX Runtime reject although the schemas allow them, by operator and release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from onnxgate.core.findings import is_release_within
from onnxgate.core.text import join_quoted
from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.support.matching.attribute_values import AttributeValues, integers_of, number_of
from onnxgate.support.matching.onnxruntime import attribute_conditions as conditions
from onnxgate.support.matching.operations import Operation

ML_DOMAIN = "ai.onnx.ml"
_NEWEST = 2**31
_INT32_END = 2**31


class ReleaseRestriction(msgspec.Struct, frozen=True):
    """A condition under which releases from `first` to `last` ("" means no bound) reject nodes of certain operators."""

    operators: tuple[str, ...]
    is_met: Callable[[AttributeValues], bool]
    problem: str
    first: str = ""
    last: str = ""
    attribute: str = ""  # the rejected attribute, or the first of several
    since: int = 1  # schema versions of the operators
    until: int = _NEWEST
    domain: str = DEFAULT_DOMAIN
    is_certain: bool = True  # otherwise, some of the nodes crash these releases, and others load

    def concerns(self, operation: Operation, since: int, release: str, values: AttributeValues) -> bool:
        """Return whether a release rejects an operation because of this restriction."""
        return (
            operation.name in self.operators
            and operation.domain == self.domain
            and self.since <= since <= self.until
            and is_release_within(release, self.first, self.last)
            and self.is_met(values)
        )


def require(
    operators: Sequence[str],
    attribute: str,
    accepted: Sequence[int | str],
    *,
    first: str = "",
    since: int = 1,
    until: int = _NEWEST,
    domain: str = DEFAULT_DOMAIN,
) -> ReleaseRestriction:
    """Return the restriction that an attribute has one of the accepted values, if it is set."""
    return ReleaseRestriction(
        tuple(operators),
        lambda values: values.get(attribute) is not None and values[attribute] not in accepted,
        f"`{attribute}` must be one of {join_quoted(str(value) for value in accepted if value != '')}",
        first=first,
        attribute=attribute,
        since=since,
        until=until,
        domain=domain,
    )


_FLOAT16 = 10
_MAX_FLOAT = 3.4028234663852886e38
_FLOAT8_ELEMENTS = (17, 18, 19, 20, 24)
_RECURRENT = ("GRU", "LSTM", "RNN")
POOLS = ("AveragePool", "LpPool", "MaxPool")
_PADDED = ("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "MaxPool", "QLinearConv")
_CONVOLUTIONS = ("Conv", "ConvInteger", "ConvTranspose", "QLinearConv")
_RESIZE_COORDINATES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    *("tf_half_pixel_for_nn", "tf_crop_and_resize"),
)
POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
ATTRIBUTE_RESTRICTIONS = (
    ReleaseRestriction(
        _RECURRENT,
        lambda values: values.get("layout") == 1,
        "`layout` = 1 is not supported",
        attribute="layout",
    ),
    require(_RECURRENT, "layout", (0, 1)),
    ReleaseRestriction(
        _RECURRENT,
        lambda values: "hidden_size" not in values,
        "`hidden_size` is required",
        attribute="hidden_size",
    ),
    ReleaseRestriction(
        ("GRU", "LSTM"),
        lambda values: not 0 < number_of(values, "hidden_size", 1) < _INT32_END,
        "`hidden_size` must be positive and less than 2^31",
        attribute="hidden_size",
    ),
    ReleaseRestriction(
        ("GRU",),
        lambda values: not -_INT32_END <= number_of(values, "linear_before_reset", 0) < _INT32_END,
        "`linear_before_reset` must be a 32-bit number",
        attribute="linear_before_reset",
    ),
    ReleaseRestriction(
        (
            *("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization"),
            "QEmbedLayerNormalization",
        ),
        lambda values: not number_of(values, "epsilon", 0) >= 0,  # also if NaN
        "`epsilon` must not be negative",
        attribute="epsilon",
        domain="com.microsoft",
    ),
    ReleaseRestriction(
        ("DequantizeLinear", "QuantizeLinear"),
        lambda values: number_of(values, "block_size", 0) < 0,
        "`block_size` must not be negative",
        first="1.19.0",
        attribute="block_size",
        since=21,
    ),
    require(_RECURRENT, "direction", ("forward", "reverse", "bidirectional")),
    ReleaseRestriction(
        ("GRU", "LSTM"),
        lambda values: not number_of(values, "clip", 1) > 0,  # also if NaN
        "`clip` must be positive",
        attribute="clip",
    ),
    *(
        ReleaseRestriction(
            (name,),
            partial(conditions.has_other_activations, per_direction=count),
            "`activations` must contain known functions, and as many as the operator has",
            attribute="activations",
        )
        for name, count in (("GRU", 2), ("LSTM", 3), ("RNN", 0))
    ),
    require(_PADDED, "auto_pad", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "")),
    *(
        ReleaseRestriction(
            POOLS,
            conditions.differs_in_length(name),
            f"`{name}` must have as many values as `kernel_shape`",
            attribute=name,
        )
        for name in ("strides", "dilations")
    ),
    ReleaseRestriction(
        POOLS,
        conditions.pads_other_axes,
        "`pads` must have two values for each value of `kernel_shape`",
        first="1.29.0",
        attribute="pads",
    ),
    ReleaseRestriction(
        POOLS,
        conditions.pads_too_much,
        "`pads` must be smaller than `kernel_shape`",
        attribute="pads",
    ),
    *(
        ReleaseRestriction(("MaxUnpool",), is_met, problem, first, attribute=attribute)
        for attribute, is_met, problem, first in (
            (
                "strides",
                conditions.differs_in_length("strides"),
                "`strides` must have as many values as `kernel_shape`",
                "",
            ),
            (
                "pads",
                conditions.pads_other_axes,
                "`pads` must have two values for each value of `kernel_shape`",
                "1.27.0",
            ),
            ("pads", conditions.pads_too_much, "`pads` must be smaller than `kernel_shape`", ""),
            (
                "kernel_shape",
                partial(conditions.has_nonpositive, name="kernel_shape"),
                "`kernel_shape` must be positive",
                "",
            ),
        )
    ),
    ReleaseRestriction(
        ("Split",),
        partial(conditions.has_negative, name="split"),
        "`split` must not be negative",
        attribute="split",
        until=12,
    ),
    *(
        ReleaseRestriction((operator,), partial(conditions.lacks, name=name), f"`{name}` is required", attribute=name)
        for operator, name in (("ImageScaler", "bias"),)
    ),
    ReleaseRestriction(
        ("Reshape",),
        partial(conditions.lacks, name="shape"),
        "`shape` is required",
        attribute="shape",
        until=4,
    ),
    ReleaseRestriction(
        ("TopK",), lambda values: number_of(values, "k", 1) <= 0, "`k` must be positive", attribute="k", until=9
    ),
    require(("QuantizeLinear",), "precision", (0, 1, 10), first="1.32.0", since=23),
    require(("Resize",), "keep_aspect_ratio_policy", ("stretch", "not_larger", "not_smaller"), since=18),
    ReleaseRestriction(
        ("RoiAlign",),
        lambda values: number_of(values, "sampling_ratio", 0) < 0,
        "`sampling_ratio` must not be negative",
        attribute="sampling_ratio",
    ),
    ReleaseRestriction(
        ("Scan",),
        lambda values: number_of(values, "num_scan_inputs", 1) <= 0,
        "`num_scan_inputs` must be positive",
        first="1.30.0",
        attribute="num_scan_inputs",
    ),
    ReleaseRestriction(
        ("Scan",),
        conditions.directs_other_inputs,
        "`scan_input_directions` must have a value for each of `num_scan_inputs`",
        attribute="scan_input_directions",
        since=9,
    ),
    ReleaseRestriction(
        POOLS,
        lambda values: min(integers_of(values, "kernel_shape"), default=1) <= 0,
        "`kernel_shape` must be positive",
        attribute="kernel_shape",
    ),
    ReleaseRestriction(
        (*POOLS, "MaxUnpool"),
        lambda values: min(integers_of(values, "strides"), default=1) <= 0,
        "`strides` must be positive",
        first="1.26.0",
        attribute="strides",
    ),
    *(
        ReleaseRestriction(
            operators,
            partial(conditions.has_nonpositive, name=name),
            f"`{name}` must be positive",
            first="1.26.0",
            attribute=name,
        )
        for operators, name in ((_CONVOLUTIONS, "strides"), ((*_CONVOLUTIONS, *POOLS), "dilations"))
    ),
    require(("MaxPool",), "storage_order", (0, 1), first="1.29.0", since=8),
    require(("LpNormalization",), "p", (1, 2)),
    ReleaseRestriction(
        ("LRN",),
        lambda values: number_of(values, "size", 1) <= 0 or number_of(values, "size", 1) % 2 == 0,
        "`size` must be positive and odd",
        attribute="size",
    ),
    ReleaseRestriction(
        ("LRN",),
        lambda values: not (number_of(values, "alpha", 1) > 0 and number_of(values, "beta", 1) > 0),  # also if NaN
        "`alpha` and `beta` must be positive",
        attribute="alpha",
    ),
    ReleaseRestriction(
        ("ReverseSequence",),
        conditions.has_other_axes,
        "`time_axis` and `batch_axis` must be 0 and 1",
        attribute="time_axis",
    ),
    ReleaseRestriction(
        ("Slice",),
        conditions.slices_other_axes,
        "`starts`, `ends` and `axes` must have the same length",
        attribute="starts",
        until=9,
    ),
    ReleaseRestriction(
        ("ConstantOfShape",),
        lambda values: conditions.count_elements(values, "value") not in ([], [1]),
        "`value` must have one element",
        attribute="value",
    ),
    require(("Pad",), "mode", ("constant", "reflect", "edge", "wrap")),
    require(("Resize", "Upsample"), "mode", ("nearest", "linear", "cubic")),
    require(("Resize",), "coordinate_transformation_mode", _RESIZE_COORDINATES, since=11),
    ReleaseRestriction(
        ("Resize",),
        lambda values: (
            values.get("mode", "nearest") == "nearest"
            and values.get("nearest_mode") not in (None, "", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        ),
        "`nearest_mode` must be one of `round_prefer_floor`, `round_prefer_ceil`, `floor`, `ceil`",
        attribute="nearest_mode",
        since=11,
    ),
    ReleaseRestriction(
        ("Resize",),
        lambda values: bool(values.get("antialias")) and values.get("mode", "nearest") == "nearest",
        "`antialias` is not supported with `mode` = `nearest`",
        attribute="antialias",
        since=18,
    ),
    ReleaseRestriction(
        ("Resize",),
        conditions.excludes_outside_wrongly,
        "`exclude_outside` requires `mode` = `cubic`, or `linear` with `antialias`",
        attribute="exclude_outside",
        since=11,
    ),
    require(("GridSample",), "mode", ("bilinear", "nearest", "bicubic"), until=16),
    require(("GridSample",), "mode", ("linear", "nearest", "cubic"), since=20),
    require(("GridSample",), "padding_mode", ("zeros", "border", "reflection")),
    require(("RoiAlign",), "mode", ("avg", "max")),
    require(("DepthToSpace",), "mode", ("DCR", "CRD"), since=11),
    require(("BitShift",), "direction", ("LEFT", "RIGHT")),
    require(("Mod",), "fmod", (0, 1)),
    require(("NonMaxSuppression",), "center_point_box", (0, 1)),
    require(("TensorScatter",), "mode", ("linear", "circular")),
    *(require(("CumSum",), name, (0, 1), first="1.27.0") for name in ("exclusive", "reverse")),
    *(require(("CumProd",), name, (0, 1)) for name in ("exclusive", "reverse")),
    ReleaseRestriction(
        ("Clip",),
        lambda values: not number_of(values, "min", -_MAX_FLOAT) <= number_of(values, "max", _MAX_FLOAT),  # also if NaN
        "`min` must not exceed `max`",
        attribute="min",
        since=6,
        until=10,
    ),
    ReleaseRestriction(
        ("Transpose",),
        conditions.is_not_permutation,
        "`perm` must contain each axis once",
        attribute="perm",
    ),
    ReleaseRestriction(
        ("Cast",),
        lambda values: values.get("saturate") == 0 and values.get("to") not in (None, *_FLOAT8_ELEMENTS),
        "`saturate` = 0 is supported only for casts to float8 types",
        attribute="saturate",
        first="1.18.0",
        since=19,
    ),
    ReleaseRestriction(
        ("SequenceEmpty",),
        lambda values: not -_INT32_END <= number_of(values, "dtype", 1) < _INT32_END,
        "`dtype` must be a 32-bit number",
        last="1.26.0",
        attribute="dtype",
    ),
    require(("Cast",), "round_mode", ("up", "down", "nearest"), first="1.27.0", since=24),
    ReleaseRestriction(
        ("DFT",),
        lambda values: bool(values.get("onesided")) and bool(values.get("inverse")),
        "`onesided` and `inverse` are not supported together",
        last="1.24.4",
        attribute="onesided",
    ),
    ReleaseRestriction(
        ("MelWeightMatrix",),
        lambda values: values.get("output_datatype") == _FLOAT16,
        "`output_datatype` = FLOAT16 is not supported",
        attribute="output_datatype",
    ),
    ReleaseRestriction(
        ("RotaryEmbedding",),
        lambda values: bool(values.get("rotary_embedding_dim")) and not values.get("num_heads"),
        "`rotary_embedding_dim` is not supported without `num_heads`",
        first="1.23.0",
        last="1.23.2",
        attribute="rotary_embedding_dim",
    ),
    ReleaseRestriction(
        ("RotaryEmbedding",),
        lambda values: any(
            not 0 <= number_of(values, name, 0) < _INT32_END for name in ("rotary_embedding_dim", "num_heads")
        ),
        "`rotary_embedding_dim` and `num_heads` must be less than 2^31 and not negative",
        first="1.26.0",
        attribute="rotary_embedding_dim",
    ),
    require(("Attention",), "qk_matmul_output_mode", (-1, 0, 1, 2, 3)),
    ReleaseRestriction(
        ("Attention",),
        lambda values: number_of(values, "scale", 1) <= 0,
        "`scale` must be positive",
        attribute="scale",
    ),
    ReleaseRestriction(
        ("Scan",),
        conditions.has_other_directions,
        "directions must be 0 (forward) or 1 (reverse)",
        attribute="scan_input_directions",
    ),
    ReleaseRestriction(
        ("RegexFullMatch",),
        lambda values: "pattern" not in values,
        "`pattern` is required",
        attribute="pattern",
    ),
    require(("StringNormalizer",), "case_change_action", ("NONE", "LOWER", "UPPER")),
    require(("TfIdfVectorizer",), "mode", ("TF", "IDF", "TFIDF")),
    ReleaseRestriction(
        ("TfIdfVectorizer",),
        lambda values: number_of(values, "max_skip_count", 0) < 0,
        "`max_skip_count` must not be negative",
        attribute="max_skip_count",
    ),
    ReleaseRestriction(
        ("TfIdfVectorizer",),
        conditions.divides_ngrams_wrongly,
        "`ngram_counts` must divide the pool into complete n-grams",
        attribute="ngram_counts",
    ),
    ReleaseRestriction(
        ("TfIdfVectorizer",),
        conditions.has_wrong_ngram_indexes,
        "`ngram_indexes` must have values, none of which is negative",
        attribute="ngram_indexes",
    ),
    ReleaseRestriction(
        ("TfIdfVectorizer",),
        conditions.weighs_other_ngrams,
        "`weights` must have as many values as `ngram_indexes`",
        attribute="weights",
    ),
    ReleaseRestriction(
        ("LabelEncoder",),
        conditions.maps_other_keys,
        "keys and values must have the same length",
        attribute="keys",
        since=2,
        domain=ML_DOMAIN,
    ),
    ReleaseRestriction(  # the comparison of nodes fails; Source: 28 models with 0 to 3 strings, loaded on 34 releases
        ("LabelEncoder",),
        conditions.has_single_text,
        "a tensor with a single string as attribute is not supported",
        first="1.25.0",
        last="1.26.0",
        attribute="default_tensor",
        since=4,
        domain=ML_DOMAIN,
    ),
    ReleaseRestriction(
        ("TfIdfVectorizer",),
        conditions.count_ngrams_wrongly,
        "`min_gram_length` and `max_gram_length` must be in the range of `ngram_counts`",
        attribute="min_gram_length",
    ),
    ReleaseRestriction(
        ("TfIdfVectorizer",),
        conditions.lacks_pool,
        "`pool_strings` or `pool_int64s` is required, and `pool_strings` must not be empty",
        attribute="pool_int64s",
    ),
    require(
        ("TreeEnsembleRegressor", "LinearRegressor"),
        "post_transform",
        POST_TRANSFORMS,
        first="1.23.0",
        domain=ML_DOMAIN,
    ),
    require(
        ("TreeEnsembleRegressor",),
        "aggregate_function",
        ("SUM", "AVERAGE", "MIN", "MAX"),
        first="1.23.0",
        domain=ML_DOMAIN,
    ),
    require(("TreeEnsemble",), "post_transform", range(5), domain=ML_DOMAIN),
    require(("TreeEnsemble",), "aggregate_function", range(4), domain=ML_DOMAIN),
    require(("SVMRegressor",), "kernel_type", ("LINEAR", "POLY", "RBF", "SIGMOID"), first="1.23.0", domain=ML_DOMAIN),
    require(("Normalizer",), "norm", ("MAX", "L1", "L2"), domain=ML_DOMAIN),
)
"""Attribute values that kernels reject.

Source: one-node models with each string and number attribute of each operator changed, removed or out of range, loaded
on 24 releases from 1.16.0 to 1.32.0. Releases that are not named behave as their neighbors do.
"""
SHORT_PADS = ReleaseRestriction(POOLS, conditions.pads_too_few, "", last="1.28.0", attribute="pads")
"""Pools for which a release reads memory after the end of a list, so that the result depends on its content.

Source: pools with 1 to 6 pads for 2 axes, loaded on 16 releases from 1.16.0 to 1.32.0.
"""
