"""Roles of graph inputs: what the values of an input mean in the graph. They are used to generate valid values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from onnxgate.inputs.axis_sizes import element_type, resolve_dim, resolve_shape
from onnxgate.inputs.dataflow import DataflowGraph, ValueUse
from onnxgate.inputs.shape_inputs import REDUCTION_OPERATORS, FixedValues, find_control_values
from onnxgate.model.facts import Dim, ValueInfo, count_elements

ValueDomain = Literal["any", "positive", "unit", "fraction", "above one", "zero"]


@dataclass(frozen=True, slots=True)
class IndexRole:
    """Role of an input that contains indices from `low` to `high - 1`.

    `avoid` is a padding token, which is not generated. The indices are distinct along the axis `distinct_along`.
    """

    low: int
    high: int
    avoid: int | None = None
    distinct_along: int | None = None


@dataclass(frozen=True, slots=True)
class MaskRole:
    """Role of an input that is a mask of zeros and ones.

    `keeps` is True if 1 keeps an element, False if 1 masks it, and None if unknown.
    """

    keeps: bool | None


@dataclass(frozen=True, slots=True)
class LengthRole:
    """Role of an input that contains sequence lengths of at most `limit`."""

    limit: int


@dataclass(frozen=True, slots=True)
class PlainRole:
    """Role of an input that contains numbers without a specific meaning, within the domain of a function."""

    domain: ValueDomain = "any"


@dataclass(frozen=True, slots=True)
class UnresolvedControl:
    """Role of an input that determines shapes, axes or sizes of a node and cannot be derived from declared shapes."""

    operator: str


@dataclass(frozen=True, slots=True)
class CategoryRole:
    """Role of an input that contains categories of an encoder."""

    values: tuple[str | int | float, ...]


@dataclass(frozen=True, slots=True)
class RangeRole:
    """Role of an input that contains numbers between two bounds. One bound can be infinite."""

    low: float
    high: float


KnownRole = IndexRole | MaskRole | LengthRole | PlainRole | CategoryRole | RangeRole | FixedValues
Role = KnownRole | UnresolvedControl

CATEGORY_ATTRIBUTES = {
    "ai.onnx.ml.OneHotEncoder": ("cats_strings", "cats_int64s"),
    "ai.onnx.ml.LabelEncoder": ("keys_strings", "keys_int64s", "keys_floats"),
    "ai.onnx.ml.CategoryMapper": ("cats_strings", "cats_int64s"),
}
"""Attributes that list the categories of each encoder operator."""

INDEX_INPUTS: dict[str, tuple[int, int, int | str]] = {
    "Gather": (1, 0, "axis"),
    "GatherElements": (1, 0, "axis"),
    "Scatter": (1, 0, "axis"),
    "ScatterElements": (1, 0, "axis"),
    "GatherND": (1, 0, "batch_dims"),
    "ScatterND": (1, 0, 0),
    "RoiAlign": (2, 0, 0),
    "RotaryEmbedding": (3, 1, 0),
    "NegativeLogLikelihoodLoss": (1, 0, 1),
    "SoftmaxCrossEntropyLoss": (1, 0, 1),
    "ai.onnx.ml.ArrayFeatureExtractor": (1, 0, -1),
    "com.microsoft.RotaryEmbedding": (1, 2, 0),
    "com.microsoft.GatherBlockQuantized": (1, 0, "gather_axis"),
    "com.microsoft.EmbedLayerNormalization": (0, 2, 0),
}
"""Inputs of each operator that uses indices: (index of the input with indices, index of the input with data, axis).

The axis is a number or the name of the attribute that contains it.

Source for these tables: operator specifications of ONNX 1.21 and of ONNX Runtime 1.31.
"""

SCATTER_OPERATORS = ("Scatter", "ScatterElements", "ScatterND")
RECURRENT_OPERATORS = ("RNN", "GRU", "LSTM")
AXIS_LENGTH_INPUTS = {**dict.fromkeys(RECURRENT_OPERATORS, 4), "ReverseSequence": 1, "Attention": 6}
"""For each operator, the index of the input that contains lengths along an axis of another input."""

LENGTH_INPUTS = {
    "TopK": (1,),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Tile": (1,),
    "Range": (0, 1, 2),
    "Loop": (0,),
}
"""For each operator, the indices of the inputs that are counts. The count 1 is valid for all of them."""

CONTROL_INPUTS = {
    **dict.fromkeys(REDUCTION_OPERATORS, (1,)),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Split", "CenterCropPad", "AffineGrid"), (1,)),
    **dict.fromkeys(("CumSum", "CumProd"), (1,)),
    "SplitToSequence": (1,),
    "Slice": (1, 2, 3, 4),
    "Pad": (1, 3),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "MaxUnpool": (1, 2),
    "Col2Im": (1, 2),
    "DFT": (1, 2),
    "STFT": (1, 3),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "OneHot": (1,),
    "com.microsoft.GroupQueryAttention": (5, 6),
}
"""For each operator, the indices of inputs that determine shapes, axes or sizes. Most values are invalid for them."""

INPUT_DOMAINS: dict[tuple[str, int], ValueDomain] = {
    ("Log", 0): "positive",
    ("Sqrt", 0): "positive",
    ("Reciprocal", 0): "positive",
    ("Div", 1): "positive",
    ("Mod", 1): "positive",
    ("BatchNormalization", 4): "positive",
    ("QuantizeLinear", 1): "positive",
    ("DequantizeLinear", 1): "positive",
    ("Asin", 0): "unit",
    ("Acos", 0): "unit",
    ("Atanh", 0): "unit",
    ("Acosh", 0): "above one",
    ("NonMaxSuppression", 3): "fraction",
    ("NonMaxSuppression", 4): "fraction",
    ("Bernoulli", 0): "fraction",
    ("Dropout", 1): "fraction",
    **{(name, place): "positive" for name in ("QLinearConv", "QLinearMatMul") for place in (1, 4, 6)},
    ("DequantizeLinear", 2): "zero",
}

DOMAIN_BOUNDS: dict[ValueDomain, tuple[float, float]] = {
    "any": (-math.inf, math.inf),
    "positive": (0.0, math.inf),
    "unit": (-1.0, 1.0),
    "fraction": (0.0, 1.0),
    "above one": (1.0, math.inf),
    "zero": (0.0, 0.0),
}
"""Bounds of each domain of a function. Generated values keep a small distance from them."""

MASKED_SCORE = -1e4
"""Attention scores of this value or less do not contribute to a softmax."""

ATTENTION_MASKS = {("Attention", 3), ("com.microsoft.MultiHeadAttention", 4), ("com.microsoft.Attention", 3)}


def _is_any_use(_: ValueUse) -> bool:
    return True


def find_role(
    value: ValueInfo,
    inputs: Sequence[ValueInfo],
    graph: DataflowGraph,
    sizes: Mapping[str, int],
    runs: Callable[[ValueUse], bool] = _is_any_use,
) -> Role:
    """Return the role of one graph input if the dynamic axes have these sizes.

    `runs` selects the uses of the input that determine the role.
    """
    uses = [use for use in graph.uses(value.name) if runs(use)]
    controls = [use for use in uses if use.position in CONTROL_INPUTS.get(use.operator, ())]
    if controls:
        count = count_elements(resolve_shape(value, sizes))
        fixed = [find_control_values(use, graph, count, sizes) for use in controls]
        is_determined = all(values == fixed[0] for values in fixed)  # all uses require the same values
        return fixed[0] if fixed[0] and is_determined else UnresolvedControl(controls[0].operator)
    categories = _find_categories(uses, value.type)
    if categories:
        return CategoryRole(categories)
    element = element_type(value)
    if element == "bool":
        return MaskRole(find_mask_polarity(uses, graph))
    if "mask" in value.name.lower() and element != "string":
        keeps = find_mask_polarity(uses, graph)
        if keeps is None and "int" not in element and any(use.operator == "Add" for use in uses):
            return PlainRole("zero")  # it is added to scores
        return MaskRole(True if keeps is None and "padding" not in value.name.lower() else keeps)
    index = _find_index_role(uses, graph, sizes)
    is_length = "int" in element and _is_length_name(value.name)
    if index is not None and not (is_length and index.high - index.low == 1):  # 0 is not a valid length
        return index
    if "int" not in element:
        is_count = any(use.position in LENGTH_INPUTS.get(use.operator, ()) and not use.value.compared for use in uses)
        return LengthRole(1) if is_count else _find_number_role(uses, graph)
    return _find_integer_role(value, inputs, uses, graph, sizes)


def _find_categories(uses: Sequence[ValueUse], element: str) -> tuple[str | int | float, ...]:
    """Return the categories that all encoders have in common or, if there are none, those of the first encoder."""
    kind = str if "string" in element else (int, float)
    encoders: list[list[str | int | float]] = []
    for use in uses:
        listed = [value for name in CATEGORY_ATTRIBUTES.get(use.operator, ()) for value in use.listed(name)]
        if typed := [value for value in listed if isinstance(value, kind)]:
            encoders.append(typed)
    if not encoders:
        return ()
    others = [frozenset(values) for values in encoders[1:]]
    shared = [value for value in encoders[0] if all(value in values for values in others)]
    return tuple(shared or encoders[0])


def _find_integer_role(
    value: ValueInfo,
    inputs: Sequence[ValueInfo],
    uses: Sequence[ValueUse],
    graph: DataflowGraph,
    sizes: Mapping[str, int],
) -> Role:
    measured = [limit for use in uses if (limit := _find_length_limit(use, graph, sizes)) is not None]
    if measured:
        return LengthRole(max(min(measured), 1))
    if any(use.position in LENGTH_INPUTS.get(use.operator, ()) for use in uses) or _is_length_name(value.name):
        return LengthRole(_find_longest_length(value, inputs, sizes) if _is_length_name(value.name) else 1)
    if any(_is_boolean_use(use, graph) for use in uses if not use.value.summed) or [*_find_score_votes(uses, graph)]:
        return MaskRole(find_mask_polarity(uses, graph))
    return PlainRole(next(_find_domains(uses, graph), "any"))


def _find_index_role(uses: Sequence[ValueUse], graph: DataflowGraph, sizes: Mapping[str, int]) -> IndexRole | None:
    """Return the range of indices that all uses of a value accept; None if the value is not used as an index.

    Only index 0 is valid for an axis of unknown size.
    """
    ranges = []
    for use in uses:
        limit = None if use.value.summed else _find_index_limit(use, graph, sizes)
        if limit is not None and use.value.scale:
            ends = sorted((index - use.value.offset) / use.value.scale for index in (0, limit - 1))
            ranges.append((math.ceil(ends[0]), math.floor(ends[1]) + 1))
    if not ranges:
        return None
    low = max(0, *(axis_range[0] for axis_range in ranges))
    high = max(min(axis_range[1] for axis_range in ranges), low + 1)
    # Duplicate indices along this axis write an element twice, with an undefined result.
    scatters = (use for use in uses if use.position == 1 and use.operator in SCATTER_OPERATORS)
    distinct_along = next((use.attribute("axis") for use in scatters), None)
    return IndexRole(low, high, _find_padding_token(uses, graph), distinct_along)


def _find_index_limit(use: ValueUse, graph: DataflowGraph, sizes: Mapping[str, int]) -> int | None:
    if use.operator == "OneHot" and use.position == 0:
        depth = graph.scalar(use.input_name(1))
        return int(depth) if depth is not None else 2
    if (use.operator, use.position) == ("TensorScatter", 2):
        along = use.attribute("axis", -2)
        written = _get_axis_size(graph.dims(use.input_name(1)), along, sizes)
        return _get_axis_size(graph.dims(use.input_name(0)), along, sizes) - written + 1
    if use.operator == "com.microsoft.EmbedLayerNormalization" and use.position == 1:
        return _get_axis_size(graph.dims(use.input_name(4)), 0, sizes)
    position, data, axis = INDEX_INPUTS.get(use.operator, (-1, 0, 0))
    if use.position != position:
        return None
    dims = graph.dims(use.input_name(data))
    first = use.attribute(axis) if isinstance(axis, str) else axis
    if use.operator in {"GatherND", "ScatterND"}:
        return min((_get_axis_size(dims, position, sizes) for position in range(first, len(dims or ()))), default=1)
    return _get_axis_size(dims, first, sizes)


def _get_axis_size(dims: tuple[Dim, ...] | None, axis: int, sizes: Mapping[str, int]) -> int:
    if dims is None or not -len(dims) <= axis < len(dims):
        return 1
    return resolve_dim(dims[axis], sizes)


def _find_padding_token(uses: Sequence[ValueUse], graph: DataflowGraph) -> int | None:
    """Return the padding token: the constant that the graph compares with the input; None if there is none."""
    for use in uses:
        if use.operator == "Equal":
            constant = graph.scalar(use.input_name(1 - use.position))
            if constant is not None and math.isfinite(constant) and use.value.scale:
                token = (Fraction(constant) - use.value.offset) / use.value.scale
                return int(token) if token.denominator == 1 else None
    return None


def _is_length_name(name: str) -> bool:
    return re.search(r"(^|[_.\d])(len|lens|length|lengths|seqlens?)($|[_.\d])|length", name.lower()) is not None


def _find_length_limit(use: ValueUse, graph: DataflowGraph, sizes: Mapping[str, int]) -> int | None:
    """Return the size of the axis to which a sequence length refers; None if the value is not used as a length."""
    if use.position != AXIS_LENGTH_INPUTS.get(use.operator) or use.value.offset or use.value.scale != 1:
        return None
    if use.operator in RECURRENT_OPERATORS:
        return _get_axis_size(graph.dims(use.input_name(0)), use.attribute("layout"), sizes)
    if use.operator == "ReverseSequence":
        return _get_axis_size(graph.dims(use.input_name(0)), use.attribute("time_axis"), sizes)
    keys = graph.dims(use.input_name(1))  # keys of an attention: (N, T, width) or (N, heads, T, width)
    return _get_axis_size(keys, -2, sizes)


def _find_longest_length(value: ValueInfo, inputs: Sequence[ValueInfo], sizes: Mapping[str, int]) -> int:
    """Return the longest sequence length that fits all other inputs.

    It is the smallest size of their non-leading dynamic axes or, without such axes, of all their axes.
    """
    shapes = [info.shape or () for info in inputs if info.name != value.name]
    inner = [sizes.get(dim, 1) for shape in shapes for dim in shape[1:] if isinstance(dim, str) and dim != "?"]
    axes = [sizes.get(dim, 1) if isinstance(dim, str) else dim for shape in shapes for dim in shape]
    return max(min(inner or axes, default=1), 1)


def _is_boolean_use(use: ValueUse, graph: DataflowGraph) -> bool:
    """Return whether a node uses the value as a boolean."""
    to_bool = use.operator == "Cast" and use.attribute("to") == 9  # TensorProto.BOOL
    return to_bool or (use.operator, use.position) in ATTENTION_MASKS or graph.truth(use) is not None


def _find_number_role(uses: Sequence[ValueUse], graph: DataflowGraph) -> PlainRole | RangeRole:
    """Return a role whose numbers, even scaled or shifted, are in the domain of each function that uses them."""
    domains = [(use, domain) for use in uses for domain in _find_domains([use], graph)]
    changed = [use for use, _ in domains if use.value.scale != 1 or use.value.offset]
    if not changed:
        return PlainRole(next((domain for _, domain in domains), "any"))
    low, high = -math.inf, math.inf
    for use, domain in domains:
        ends = sorted(_invert_use(end, use) for end in DOMAIN_BOUNDS[domain])
        low, high = max(low, ends[0]), min(high, ends[1])
    return RangeRole(low, high) if low < high else PlainRole()


def _invert_use(end: float, use: ValueUse) -> float:
    """Return the value of the graph input for which the value at this use is `end`."""
    if not math.isfinite(end):
        return end if use.value.scale > 0 else -end
    return float((Fraction(end) - use.value.offset) / use.value.scale)


def _find_domains(uses: Sequence[ValueUse], graph: DataflowGraph) -> Iterator[ValueDomain]:
    for use in uses:
        if (use.operator, use.position) in INPUT_DOMAINS:
            yield INPUT_DOMAINS[use.operator, use.position]
        elif use.operator == "Pow" and use.position == 0:
            exponent = graph.scalar(use.input_name(1))
            if exponent is None or not exponent.is_integer():
                yield "positive"


def find_mask_polarity(uses: Sequence[ValueUse], graph: DataflowGraph) -> bool | None:
    """Return whether 1 in a mask keeps an element; None if the uses of the mask do not show this."""
    sums = (not use.value.flipped for use in uses if use.operator == "ReduceSum" and use.position == 0)
    for votes in (_find_score_votes(uses, graph), sums):
        polarities = set(votes)
        if len(polarities) == 1:
            return polarities.pop()
    return None


def _find_score_votes(uses: Sequence[ValueUse], graph: DataflowGraph) -> Iterator[bool]:
    for use in uses:
        if use.operator == "Where" and use.position == 0:
            chosen, otherwise = (_is_mask_constant(graph.scalar(use.input_name(position))) for position in (1, 2))
            if chosen != otherwise:
                yield otherwise != use.value.flipped
        elif use.operator == "Mul" and _is_mask_constant(graph.scalar(use.input_name(1 - use.position))):
            yield use.value.flipped
        elif (use.operator, use.position) in ATTENTION_MASKS:
            yield not use.value.flipped


def _is_mask_constant(constant: float | None) -> bool:
    return constant is not None and constant <= MASKED_SCORE
