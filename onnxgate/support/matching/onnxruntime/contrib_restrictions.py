"""Attribute values and ranks that operators of `com.microsoft` reject although their schemas allow them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from msgspec.structs import replace

from onnxgate.model.facts import CONTRIB_DOMAIN
from onnxgate.support.matching.attribute_values import AttributeValues, number_of
from onnxgate.support.matching.onnxruntime import attribute_conditions as conditions
from onnxgate.support.matching.onnxruntime.attribute_restrictions import (
    ATTRIBUTE_RESTRICTIONS,
    POOLS,
    ReleaseRestriction,
    require,
)

_CONTRIB_POOLS = ("MaxpoolWithMask", "NhwcMaxPool", "QLinearAveragePool")
_LSTMS = ("AttnLSTM", "DynamicQuantizeLSTM")
_INT32_END = 2**31
_WIDTHS = (2, 4, 8)
_MIN_BLOCK = 16
_MAX_CAPACITY = 8
_ACTIVATIONS = (
    *("Celu", "Elu", "HardSigmoid", "LeakyRelu", "ParametricSoftplus", "Relu", "ScaledTanh", "Selu", "Sigmoid"),
    *("Softplus", "Softsign", "Tanh", "ThresholdedRelu"),
)


def _restrict(
    operators: tuple[str, ...],
    attribute: str,
    is_met: Callable[[AttributeValues], bool],
    problem: str,
    first: str = "",
    last: str = "",
) -> ReleaseRestriction:
    return ReleaseRestriction(operators, is_met, problem, first, last, attribute, domain=CONTRIB_DOMAIN)


def _require_range(
    operators: tuple[str, ...], attribute: str, low: int, high: int | None = None, first: str = "", last: str = ""
) -> ReleaseRestriction:
    """Return the restriction that a number is at least `low` and at most `high`, if it is set."""

    def is_met(values: AttributeValues) -> bool:
        number = number_of(values, attribute, low)
        return number < low or (high is not None and number > high)

    span = f"must be at least {low}" if high is None else f"must be in the range from {low} to {high}"
    return _restrict(operators, attribute, is_met, f"`{attribute}` {span}", first, last)


def _rotates_unknown_heads(values: AttributeValues) -> bool:
    return 0 < number_of(values, "rotary_embedding_dim", 0) < _INT32_END and number_of(values, "num_heads", 0) == 0


def _orders_ngrams_wrongly(values: AttributeValues) -> bool:
    shortest, longest = number_of(values, "min_ngram_size", 1), number_of(values, "max_ngram_size", 3)
    return not 0 < shortest <= longest


def _has_other_block_size(values: AttributeValues) -> bool:
    size = int(number_of(values, "block_size", _MIN_BLOCK))
    return size < _MIN_BLOCK or size & (size - 1) != 0


def _has_other_moe_block_size(values: AttributeValues) -> bool:
    return number_of(values, "block_size", 0) > 0 and _has_other_block_size(values)


def _caches_no_window(values: AttributeValues) -> bool:
    return values.get("sliding_window_cache") == 1 and number_of(values, "local_window_size", -1) <= 0


def _lacks_separators(values: AttributeValues) -> bool:
    return "tokenexp" not in values and values.get("separators", ()) == ()


def _lacks_kernel_shape(values: AttributeValues) -> bool:
    return "kernel_shape" not in values


def _has_wrong_size(values: AttributeValues) -> bool:
    return not 0 < number_of(values, "hidden_size", 0) < _INT32_END


CONTRIB_RESTRICTIONS = (
    *(
        replace(restriction, operators=_CONTRIB_POOLS, domain=CONTRIB_DOMAIN)
        for restriction in ATTRIBUTE_RESTRICTIONS
        if restriction.operators == POOLS
    ),
    _restrict(("MaxpoolWithMask",), "kernel_shape", _lacks_kernel_shape, "`kernel_shape` is required"),
    require(
        (*_CONTRIB_POOLS, "ConvTransposeWithDynamicPads"),
        "auto_pad",
        ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", ""),
        domain=CONTRIB_DOMAIN,
    ),
    *(
        _restrict(
            ("ConvTransposeWithDynamicPads",),
            name,
            partial(conditions.has_nonpositive, name=name),
            f"`{name}` must be positive",
            "1.26.0",
        )
        for name in ("strides", "dilations")
    ),
    _restrict(
        _LSTMS,
        "activations",
        partial(conditions.has_other_activations, per_direction=3),
        "`activations` must contain known functions, and as many as the operator has",
    ),
    _restrict(_LSTMS, "clip", lambda values: not number_of(values, "clip", 1) > 0, "`clip` must be positive"),
    _restrict(_LSTMS, "hidden_size", _has_wrong_size, "`hidden_size` must be positive and less than 2^31"),
    require(_LSTMS, "direction", ("forward", "reverse", "bidirectional"), domain=CONTRIB_DOMAIN),
    _restrict(
        ("BifurcationDetector",),
        "min_ngram_size",
        _orders_ngrams_wrongly,
        "`min_ngram_size` must be positive and not exceed `max_ngram_size`",
    ),
    require(("CDist",), "metric", ("sqeuclidean", "euclidean"), domain=CONTRIB_DOMAIN),
    require(("Pad",), "mode", ("constant", "reflect", "edge", "wrap"), domain=CONTRIB_DOMAIN),
    require(("CropAndResize",), "mode", ("bilinear", "nearest"), domain=CONTRIB_DOMAIN),
    require(("GridSample",), "mode", ("bilinear", "nearest", "bicubic"), domain=CONTRIB_DOMAIN),
    require(("GridSample",), "padding_mode", ("zeros", "border", "reflection"), domain=CONTRIB_DOMAIN),
    _restrict(
        ("FusedGemm",),
        "activation",
        lambda values: values.get("activation", "") not in (None, *_ACTIVATIONS),
        "`activation` must be a known function",
    ),
    require(("GatedRMSNorm",), "activation", ("silu", "swish", "sigmoid"), domain=CONTRIB_DOMAIN),
    require(("GatherBlockQuantized",), "bits", _WIDTHS, domain=CONTRIB_DOMAIN),
    _restrict(
        ("GatherBlockQuantized",),
        "block_size",
        _has_other_block_size,
        "`block_size` must be a power of 2 and at least 16",
    ),
    _require_range(("GroupQueryAttention", "SparseAttention"), "kv_num_heads", 1),
    _require_range(
        ("DecoderMaskedMultiHeadAttention", "GroupQueryAttention", "MultiHeadAttention", "SparseAttention"),
        "num_heads",
        1,
    ),
    require(("GroupQueryAttention",), "causal", (0, 1), domain=CONTRIB_DOMAIN),
    *(
        require(("GroupQueryAttention",), name, ("NONE", "PER_TENSOR", "PER_CHANNEL"), domain=CONTRIB_DOMAIN)
        for name in ("k_quant_type", "v_quant_type")
    ),
    _restrict(
        ("GroupQueryAttention",),
        "sliding_window_cache",
        _caches_no_window,
        "`sliding_window_cache` = 1 requires a positive `local_window_size`",
        "1.29.0",
    ),
    _require_range(("MultiHeadAttention",), "num_heads", 1, _INT32_END - 1, "1.27.0"),
    *(
        _require_range(("LinearAttention",), name, 1, high, first)
        for name in ("q_num_heads", "kv_num_heads")
        for high, first in ((None, ""), (_INT32_END - 1, "1.30.0"))
    ),
    require(("LinearAttention",), "update_rule", ("linear", "gated", "delta", "gated_delta"), domain=CONTRIB_DOMAIN),
    _require_range(("LinearAttention",), "state_window", 0, _MAX_CAPACITY),
    *(
        _require_range(("MRotaryEmbedding", "RotaryEmbedding"), name, 0, _INT32_END - 1, "1.26.0")
        for name in ("num_heads", "rotary_embedding_dim")
    ),
    _restrict(
        ("MRotaryEmbedding", "RotaryEmbedding"),
        "rotary_embedding_dim",
        _rotates_unknown_heads,
        "`rotary_embedding_dim` is not supported without `num_heads`",
    ),
    _require_range(("NGramRepeatBlock",), "ngram_size", 1),
    _require_range(("NGramHashMapping", "VarlenNGramHashMapping"), "max_ngram_size", 2),
    _require_range(("NGramHashMapping", "VarlenNGramHashMapping"), "n_head_per_ngram", 1),
    _require_range(("VarlenNGramHashMapping", "VarlenCausalConvWithState"), "state_update_capacity", 0, _MAX_CAPACITY),
    _require_range(("VarlenCausalConvWithState",), "dilation", 1),
    _require_range(("VarlenCausalConvWithState",), "group_size", 1),
    _require_range(("QMoE",), "k", 1, last="1.26.0"),
    _require_range(("QMoE",), "k", 1, first="1.29.0"),
    _require_range(("QMoE",), "block_size", 0),
    _restrict(
        ("QMoE",),
        "block_size",
        _has_other_moe_block_size,
        "`block_size` must be 0, or a power of 2 and at least 16",
        "1.27.0",
    ),
    require(("QMoE",), "activation_type", ("relu", "gelu", "silu", "swiglu", "identity"), domain=CONTRIB_DOMAIN),
    *(
        require(("QMoE",), name, _WIDTHS, domain=CONTRIB_DOMAIN)
        for name in ("expert_weight_bits", *(f"fc{index}_expert_weight_bits" for index in (1, 2, 3)))
    ),
    _restrict(
        ("QMoE",),
        "use_sparse_mixer",
        lambda values: values.get("use_sparse_mixer") == 1 and number_of(values, "k", 1) != 2,
        "`use_sparse_mixer` is supported only with `k` = 2",
    ),
    _require_range(("Tokenizer",), "mincharnum", 1),
    _restrict(("Tokenizer",), "separators", _lacks_separators, "`separators` or `tokenexp` is required"),
    _require_range(("UnfoldTensor",), "step", 1),
)
"""Attribute values that kernels and shape inference of `com.microsoft` reject.

Source: one-node models with 5 to 8 values of each attribute, loaded on 13 releases from 1.16.3 to 1.32.0.
"""
_SCALARS = (0,)
_FROM_1, _FROM_2 = tuple(range(1, 33)), tuple(range(2, 33))
_WITH_SPATIAL_AXES = tuple(range(3, 33))
_POOL_OF_SCALARS = dict.fromkeys(range(1, 5), _SCALARS)
_BINARY_OF_SCALARS = dict.fromkeys((1, 2, 4, 5, 6, 7), _SCALARS)
CONTRIB_RANKS: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    "DecoderMaskedMultiHeadAttention": {0: (3, 5)},
    "DynamicQuantizeLSTM": {0: (3,)},
    "EmbedLayerNormalization": {0: (2,)},
    "EngramGate": {0: (4,), 1: (4,), 2: (3,)},
    "GridSample": {0: (4,), 1: (4,)},
    "GroupQueryAttention": {0: (3,)},
    "HyperConnectionPreMix": {0: _FROM_2},
    "Inverse": {0: _FROM_2},
    "MatMulBnb4": {0: _FROM_1},
    "MaxpoolWithMask": {0: _WITH_SPATIAL_AXES},
    "MultiHeadAttention": {0: (3, 5)},
    "NGramHashMapping": {0: (2,), 5: _SCALARS, 6: (2,)},
    "NhwcMaxPool": {0: _WITH_SPATIAL_AXES},
    "QEmbedLayerNormalization": {0: (2,)},
    "QLinearAdd": _BINARY_OF_SCALARS,
    "QLinearAveragePool": {0: _WITH_SPATIAL_AXES, **_POOL_OF_SCALARS},
    "QLinearMul": _BINARY_OF_SCALARS,
    "SkipLayerNormalization": {0: _FROM_1},
    "SkipSimplifiedLayerNormalization": {0: _FROM_1},
    "SparseAttention": {0: (3,), 3: (4,)},
    "Tokenizer": {0: (1, 2)},
    "UnfoldTensor": {0: _FROM_1},
    "VarlenNGramHashMapping": {0: (1,), 3: (1,)},
}
"""Ranks that shape inference of operators accepts, by operator and index of the input.

Source: inputs with 0 to 5 axes of unknown size, loaded on 10 releases from 1.16.3 to 1.32.0, all of which agree
unless `FIRST_WITH_RANKS` contains the operator.
"""
FIRST_WITH_RANKS = {"SkipLayerNormalization": "1.28.0", "SkipSimplifiedLayerNormalization": "1.28.0"}
"""First release that checks the ranks of an operator."""


def find_wrong_rank(operator: str, ranks: Mapping[int, int]) -> str:
    """Return which input of an operator of `com.microsoft` has a wrong rank, as a problem; "" if none has."""
    for index, accepted in CONTRIB_RANKS.get(operator, {}).items():
        rank = ranks.get(index, -1)
        if rank >= 0 and rank not in accepted:
            return f"input {index + 1} has {rank} axes instead of {_format_ranks(accepted)}"
    return ""


def _format_ranks(accepted: tuple[int, ...]) -> str:
    return f"at least {accepted[0]}" if len(accepted) > 2 else " or ".join(map(str, accepted))
