"""Restrictions of ONNX Runtime that no schema contains: attribute values, shapes and types that its kernels reject."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.findings import version_sort_key
from onnxgate.core.text import join_quoted
from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.support.matching.operations import Operation, SupportGap

if TYPE_CHECKING:
    from onnx import AttributeProto

AttributeValue = int | float | str | tuple[int | float | str, ...] | None
"""Value of an attribute; None if its kind is not supported or if the attribute is too long to be read."""
AttributeValues = Mapping[str, AttributeValue]
_ML_DOMAIN = "ai.onnx.ml"
_NEWEST = 2**31


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

    def concerns(self, operation: Operation, since: int, release: str, values: AttributeValues) -> bool:
        """Return whether a release rejects an operation because of this restriction."""
        return (
            operation.name in self.operators
            and operation.domain == self.domain
            and self.since <= since <= self.until
            and _is_release_within(release, self.first, self.last)
            and self.is_met(values)
        )


def _require(
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


def _number(values: AttributeValues, name: str, default: float) -> float:
    """Return the value of a numeric attribute; the default if it is absent or unknown."""
    value = values.get(name)
    return value if isinstance(value, int | float) else default


def _is_not_permutation(values: AttributeValues) -> bool:
    axes = values.get("perm")
    return isinstance(axes, tuple) and sorted(map(int, axes)) != list(range(len(axes)))


def _has_other_directions(values: AttributeValues) -> bool:
    names = ("directions", "scan_input_directions", "scan_output_directions")
    lists = [listed for name in names if isinstance(listed := values.get(name), tuple)]
    return any(direction not in (0, 1) for listed in lists for direction in listed)


def _excludes_outside_wrongly(values: AttributeValues) -> bool:
    mode = values.get("mode", "nearest")
    is_smooth = mode == "cubic" or (mode == "linear" and bool(values.get("antialias")))
    return bool(values.get("exclude_outside")) and mode is not None and not is_smooth


def _count_ngrams_wrongly(values: AttributeValues) -> bool:
    shortest, longest = _number(values, "min_gram_length", 1), _number(values, "max_gram_length", 1)
    counts = values.get("ngram_counts")
    too_few = isinstance(counts, tuple) and longest > len(counts)
    return too_few or shortest < 1 or longest < shortest


def _has_other_activations(values: AttributeValues, per_direction: int = 0) -> bool:
    """Return whether the activations are unknown, or too many or too few unless `per_direction` is 0."""
    names = values.get("activations")
    if not isinstance(names, tuple) or not names:
        return False
    expected = per_direction * (2 if values.get("direction") == "bidirectional" else 1)
    if expected:
        known = [str(name).lower() in _LOWER_ACTIVATIONS for name in names]
        return len(names) != expected or not all(known)
    return not _ACTIVATIONS.issuperset(names)


_ACTIVATIONS = frozenset(
    (
        *("Affine", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "ScaledTanh", "Sigmoid", "Softplus", "Softsign"),
        *("Tanh", "ThresholdedRelu"),
    )
)
_LOWER_ACTIVATIONS = frozenset(name.lower() for name in _ACTIVATIONS)
_FLOAT16 = 10
_FLOAT8_ELEMENTS = (17, 18, 19, 20, 24)
_RECURRENT = ("GRU", "LSTM", "RNN")
_PADDED = ("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "MaxPool", "QLinearConv")
_RESIZE_COORDINATES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    *("tf_half_pixel_for_nn", "tf_crop_and_resize"),
)
_POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
ATTRIBUTE_RESTRICTIONS = (
    ReleaseRestriction(
        _RECURRENT,
        lambda values: values.get("layout") == 1,
        "`layout` = 1 is not supported",
        attribute="layout",
    ),
    _require(_RECURRENT, "layout", (0, 1)),
    ReleaseRestriction(
        _RECURRENT,
        lambda values: "hidden_size" not in values,
        "`hidden_size` is required",
        attribute="hidden_size",
    ),
    ReleaseRestriction(
        ("GRU", "LSTM"),
        lambda values: _number(values, "hidden_size", 1) <= 0,
        "`hidden_size` must be positive",
        attribute="hidden_size",
    ),
    _require(_RECURRENT, "direction", ("forward", "reverse", "bidirectional")),
    ReleaseRestriction(
        ("GRU", "LSTM"),
        lambda values: _number(values, "clip", 1) <= 0,
        "`clip` must be positive",
        attribute="clip",
    ),
    *(
        ReleaseRestriction(
            (name,),
            partial(_has_other_activations, per_direction=count),
            "`activations` must contain known functions, and as many as the operator has",
            attribute="activations",
        )
        for name, count in (("GRU", 2), ("LSTM", 3), ("RNN", 0))
    ),
    _require(_PADDED, "auto_pad", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "")),
    _require(("MaxPool",), "storage_order", (0, 1), first="1.29.0", since=8),
    _require(("LpNormalization",), "p", (1, 2)),
    ReleaseRestriction(
        ("LRN",),
        lambda values: _number(values, "size", 1) <= 0 or _number(values, "size", 1) % 2 == 0,
        "`size` must be positive and odd",
        attribute="size",
    ),
    ReleaseRestriction(
        ("LRN",),
        lambda values: _number(values, "alpha", 1) <= 0 or _number(values, "beta", 1) <= 0,
        "`alpha` and `beta` must be positive",
        attribute="alpha",
    ),
    _require(("Pad",), "mode", ("constant", "reflect", "edge", "wrap")),
    _require(("Resize", "Upsample"), "mode", ("nearest", "linear", "cubic")),
    _require(("Resize",), "coordinate_transformation_mode", _RESIZE_COORDINATES, since=11),
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
        _excludes_outside_wrongly,
        "`exclude_outside` requires `mode` = `cubic`, or `linear` with `antialias`",
        attribute="exclude_outside",
        since=11,
    ),
    _require(("GridSample",), "mode", ("bilinear", "nearest", "bicubic"), until=16),
    _require(("GridSample",), "mode", ("linear", "nearest", "cubic"), since=20),
    _require(("GridSample",), "padding_mode", ("zeros", "border", "reflection")),
    _require(("RoiAlign",), "mode", ("avg", "max")),
    _require(("DepthToSpace",), "mode", ("DCR", "CRD"), since=11),
    _require(("BitShift",), "direction", ("LEFT", "RIGHT")),
    _require(("Mod",), "fmod", (0, 1)),
    _require(("NonMaxSuppression",), "center_point_box", (0, 1)),
    _require(("TensorScatter",), "mode", ("linear", "circular")),
    *(_require(("CumSum",), name, (0, 1), first="1.27.0") for name in ("exclusive", "reverse")),
    *(_require(("CumProd",), name, (0, 1)) for name in ("exclusive", "reverse")),
    ReleaseRestriction(
        ("Clip",),
        lambda values: _number(values, "min", -math.inf) > _number(values, "max", math.inf),
        "`min` must not exceed `max`",
        attribute="min",
        since=6,
        until=10,
    ),
    ReleaseRestriction(
        ("Transpose",),
        _is_not_permutation,
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
    _require(("Cast",), "round_mode", ("up", "down", "nearest"), first="1.27.0", since=24),
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
        lambda values: _number(values, "rotary_embedding_dim", 0) < 0 or _number(values, "num_heads", 0) < 0,
        "`rotary_embedding_dim` and `num_heads` must not be negative",
        first="1.26.0",
        attribute="rotary_embedding_dim",
    ),
    _require(("Attention",), "qk_matmul_output_mode", (-1, 0, 1, 2, 3)),
    ReleaseRestriction(
        ("Attention",),
        lambda values: _number(values, "scale", 1) <= 0,
        "`scale` must be positive",
        attribute="scale",
    ),
    ReleaseRestriction(
        ("Scan",),
        _has_other_directions,
        "directions must be 0 (forward) or 1 (reverse)",
        attribute="scan_input_directions",
    ),
    ReleaseRestriction(
        ("RegexFullMatch",),
        lambda values: "pattern" not in values,
        "`pattern` is required",
        attribute="pattern",
    ),
    _require(("StringNormalizer",), "case_change_action", ("NONE", "LOWER", "UPPER")),
    _require(("TfIdfVectorizer",), "mode", ("TF", "IDF", "TFIDF")),
    ReleaseRestriction(
        ("TfIdfVectorizer",),
        lambda values: _number(values, "max_skip_count", 0) < 0,
        "`max_skip_count` must not be negative",
        attribute="max_skip_count",
    ),
    ReleaseRestriction(
        ("TfIdfVectorizer",),
        _count_ngrams_wrongly,
        "`min_gram_length` and `max_gram_length` must be in the range of `ngram_counts`",
        attribute="min_gram_length",
    ),
    ReleaseRestriction(
        ("TfIdfVectorizer",),
        lambda values: not {"pool_int64s", "pool_strings"} & {name for name in values if values[name] != ()},
        "`pool_int64s` or `pool_strings` is required",
        attribute="pool_int64s",
    ),
    _require(
        ("TreeEnsembleRegressor", "LinearRegressor"),
        "post_transform",
        _POST_TRANSFORMS,
        first="1.23.0",
        domain=_ML_DOMAIN,
    ),
    _require(
        ("TreeEnsembleRegressor",),
        "aggregate_function",
        ("SUM", "AVERAGE", "MIN", "MAX"),
        first="1.23.0",
        domain=_ML_DOMAIN,
    ),
    _require(("TreeEnsemble",), "post_transform", range(5), domain=_ML_DOMAIN),
    _require(("TreeEnsemble",), "aggregate_function", range(4), domain=_ML_DOMAIN),
    _require(("SVMRegressor",), "kernel_type", ("LINEAR", "POLY", "RBF", "SIGMOID"), first="1.23.0", domain=_ML_DOMAIN),
    _require(("Normalizer",), "norm", ("MAX", "L1", "L2"), domain=_ML_DOMAIN),
)
"""Attribute values that kernels reject.

Source: one-node models with each string and number attribute of each operator changed, removed or out of range, loaded
on 24 releases from 1.16.0 to 1.32.0. Releases that are not named behave as their neighbors do.
"""
_FLOAT8 = tuple(f"tensor(float8{kind})" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"))
RESULT_TYPE_RESTRICTIONS = (
    (_FLOAT8, ReleaseRestriction(("ConstantOfShape",), lambda values: True, "does not make")),
    (
        ("tensor(bfloat16)",),
        ReleaseRestriction(("ConstantOfShape",), lambda values: True, "does not make", "1.17.0", "1.17.3"),
    ),
)
"""Output types, with the operators and releases that do not support outputs of these types."""
UNREGISTERED_TYPES = (
    (("tensor(complex64)", "tensor(complex128)"), "", ""),
    (("tensor(int4)", "tensor(uint4)"), "1.18.0", "1.18.1"),
    (("tensor(float4e2m1)",), "1.23.0", "1.23.2"),
    (("tensor(float8e8m0)",), "1.24.1", "1.26.0"),
)
"""Data types that some releases do not support, although they support opsets in which these types exist.

Each entry contains types, and the first and last release that do not support them; "" means no bound. Source: models
with a Constant of each type that the schema allows, loaded on 17 releases from 1.16.0 to 1.31.1.
"""
LOCALE_RESTRICTIONS = (
    ReleaseRestriction(("StringNormalizer",), lambda values: True, "", last="1.17.3"),
    ReleaseRestriction(
        ("StringNormalizer",), lambda values: not values.get("is_case_sensitive"), "", first="1.18.0", last="1.26.0"
    ),
    ReleaseRestriction(
        ("StringNormalizer",),
        lambda values: (
            values.get("case_change_action", "NONE") != "NONE"
            or (not values.get("is_case_sensitive") and "stopwords" in values)
        ),
        "",
        first="1.27.0",
    ),
)
"""Operators and releases with which a model loads only if a specific locale is installed on the machine."""


_SCALED = ("Resize", "Upsample")
_OF_AXIS, _OF_AXIS_SINCE = ("ArgMax", "ArgMin"), 11


def find_restriction(operation: Operation, since: int, release: str) -> SupportGap | str | None:
    """Return the restriction because of which a release rejects an operation; None if there is none.

    If the outcome depends on the machine, the result is a string with the reason.
    """
    name, values = f"{operation.label}({since})", read_attribute_values(operation)
    for restriction in ATTRIBUTE_RESTRICTIONS:
        if restriction.concerns(operation, since, release, values):
            problem = f"`{name}`: {restriction.problem}"
            return SupportGap("attribute-unsupported", problem, about=restriction.attribute)
    for types, restriction in RESULT_TYPE_RESTRICTIONS:
        if operation.outputs[:1] and operation.outputs[0] in types:
            if not restriction.concerns(operation, since, release, values):
                continue
            problem = f"there is no kernel for `{name}` with output type `{operation.outputs[0]}`"
            return SupportGap("missing-kernel", problem, about=operation.outputs[0])
    if any(restriction.concerns(operation, since, release, values) for restriction in LOCALE_RESTRICTIONS):
        locale = values.get("locale", "en_US.UTF-8")
        return f"`{operation.label}` loads only if the locale `{locale}` is installed"
    return _find_shape_restriction(operation, since, values, release)


def _find_shape_restriction(
    operation: Operation, since: int, values: AttributeValues, release: str
) -> SupportGap | None:
    """Return why a release rejects the traits of an operation.

    Source: models with each of these traits, loaded on 10 to 24 releases from 1.16.0 to 1.32.0.
    """
    if operation.domain != DEFAULT_DOMAIN:
        return None
    name = f"{operation.name}({since})"
    if operation.name in _SCALED and (problem := _check_scales(operation, values, release)):
        return SupportGap("attribute-unsupported", f"`{name}`: {problem}", about="scales")
    rank, axis = operation.traits.rank, _number(values, "axis", -1)
    if operation.name == "LayerNormalization" and axis >= rank >= 0 and _is_release_within(release, "1.31.0", ""):
        problem = f"`{name}`: `axis` must be less than the rank of the input ({rank})"
        return SupportGap("attribute-unsupported", problem, about="axis")
    if operation.name in _OF_AXIS and rank == 0 and since >= _OF_AXIS_SINCE:
        return SupportGap("attribute-unsupported", f"`{name}` does not accept a scalar", about="rank")
    if operation.traits.as_scalar and _is_release_within(release, "1.18.0", "1.22.1"):
        problem = f"`{name}` without `axes` and with an unknown size is taken for a scalar, and then "
        return SupportGap("attribute-unsupported", problem + operation.traits.as_scalar, about="axes")
    if operation.traits.is_transposed and _is_release_within(release, "", "1.25.1"):
        problem = f"`{name}` of doubles is fused with `Transpose` into `com.microsoft.FusedMatMul`"
        return SupportGap("missing-kernel", problem, "has no kernel for it with doubles", "FusedMatMul")
    return None


def _check_scales(operation: Operation, values: AttributeValues, release: str) -> str:
    """Return why a release rejects the constant scales of Resize or Upsample; "" if it accepts them.

    Source: models with constant scales of rank 1 to 6 for each mode, loaded on 24 releases from 1.16.0 to 1.32.0.
    """
    listed = values.get("scales")
    scales = operation.traits.scales or (tuple(map(float, listed)) if isinstance(listed, tuple) else ())
    smallest = 1.0 if operation.name == "Upsample" else math.ulp(0.0)
    if any(scale < smallest for scale in scales):
        return "`scales` must be at least 1" if smallest == 1 else "`scales` must be positive"
    mode, fixed = values.get("mode", "nearest"), [scale == 1 for scale in scales]
    antialias = bool(values.get("antialias"))
    if not scales or mode not in ("linear", "cubic") or (antialias and mode == "linear"):
        return ""
    accepted = len(scales) == 2 or (len(scales) == 4 and fixed[0] and fixed[1])
    from_both_sides = len(scales) == 4 and fixed[0] and fixed[3]
    if mode == "linear":
        accepted = accepted or from_both_sides or len(scales) == 3 or (len(scales) == 5 and fixed[0] and fixed[1])
    elif antialias or (_is_release_within(release, "1.22.0", "") and min(scales) >= 1):
        accepted = accepted or from_both_sides
    return "" if accepted else f"`mode` = `{mode}` is not supported for `scales` of {join_quoted(map(str, scales))}"


def find_body_restriction(operation: Operation, since: int, release: str) -> SupportGap | None:
    """Return why a release rejects an Attention node because of the type of its mask; None if it accepts the type.

    Source: models loaded on ONNX Runtime 1.23.0 to 1.32.0. If the mask is neither bool nor float, releases up to 1.23.2
    reject the node; releases up to 1.31.1 reject it only with `is_causal` or `nonpad_kv_seqlen` (the seventh input).
    """
    mask = operation.inputs[3] if operation.name == "Attention" and len(operation.inputs) > 3 else None
    if operation.domain != DEFAULT_DOMAIN or mask in (None, "", "tensor(bool)", "tensor(float)"):
        return None
    is_masked_again = operation.inputs[6:] not in ((), (None,)) or bool(
        read_attribute_values(operation).get("is_causal")
    )
    if not _is_release_within(release, "", "1.31.1" if is_masked_again else "1.23.2"):
        return None
    problem = f"there is no kernel for `{operation.label}({since})` with `attn_mask` = `{mask}`"
    return SupportGap(
        "missing-kernel", problem, "implements masks of `tensor(bool)` and `tensor(float)`", f"attn_mask={mask}"
    )


def is_unregistered_type(type_name: str, release: str) -> bool:
    """Return whether a release does not support a data type at all, not even for constants."""
    return any(
        type_name in types and _is_release_within(release, first, last) for types, first, last in UNREGISTERED_TYPES
    )


def _is_release_within(release: str, first: str, last: str) -> bool:
    version = version_sort_key(release)
    return (not first or version >= version_sort_key(first)) and (not last or version <= version_sort_key(last))


_READERS: Mapping[str, Callable[[AttributeProto], AttributeValue]] = {
    "INT": lambda proto: int(proto.i),
    "FLOAT": lambda proto: float(proto.f),
    "STRING": lambda proto: proto.s.decode(errors="replace"),
    "INTS": lambda proto: tuple(proto.ints),
    "FLOATS": lambda proto: tuple(proto.floats),
    "STRINGS": lambda proto: tuple(text.decode(errors="replace") for text in proto.strings),
}
"""Functions that read the value of an attribute, by its kind."""


def read_attribute_values(operation: Operation) -> AttributeValues:
    """Return the values of an operation's attributes by name; None if a value is not a number or text, or unknown."""
    from onnx import AttributeProto

    values: dict[str, AttributeValue] = {}
    for attribute in operation.attributes:
        proto = AttributeProto.FromString(attribute.data)
        read = _READERS.get(attribute.kind) if attribute.data else None
        values[attribute.name] = read(proto) if read is not None else None
    return values
