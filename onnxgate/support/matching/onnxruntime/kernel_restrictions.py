"""Restrictions of ONNX Runtime that no schema contains: kernels reject attribute values, shapes and types."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from onnxgate.core.findings import is_release_within
from onnxgate.core.text import join_quoted
from onnxgate.model.facts import DEFAULT_DOMAIN, ELEMENT_TYPES
from onnxgate.support.matching.attribute_values import (
    AttributeValues,
    integers_of,
    list_untyped_results,
    number_of,
    read_attribute_values,
)
from onnxgate.support.matching.onnxruntime.attribute_restrictions import (
    ATTRIBUTE_RESTRICTIONS,
    SHORT_PADS,
    ReleaseRestriction,
)
from onnxgate.support.matching.onnxruntime.contrib_restrictions import CONTRIB_RESTRICTIONS, FIRST_WITH_RANKS
from onnxgate.support.matching.onnxruntime.model_restrictions import MODEL_RESTRICTIONS
from onnxgate.support.matching.onnxruntime.tree_restrictions import TREE_RESTRICTIONS
from onnxgate.support.matching.operations import NO_TRAITS, Operation, SupportGap

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
LOCALE_OPERATORS = frozenset(name for restriction in LOCALE_RESTRICTIONS for name in restriction.operators)


_SCALED = ("Resize", "Upsample")
_PROBABILITIES = 3
"""Mode in which Attention returns the output of its Softmax."""
_GROUPED = "com.microsoft.GroupQueryAttention"
_SPLIT_WITH_NUMBER = 18
"""First version of Split that requires the number of outputs if their sizes are not an input.

Source: 132 Split nodes without both, loaded on 1.16.3, 1.19.2, 1.28.0 and 1.32.0: they load if the size is not known.
"""
_NEW_DROPOUT = 22
"""First version of Dropout that only newer releases remove."""
_LOSS_WITH_RANKS = 14
"""First opset in which older releases check the ranks of the labels of SoftmaxCrossEntropyLoss."""
_GROUPED_BY_CHANNEL = 21
"""First version of GroupNormalization whose function body is valid for inputs of at least 2 axes only.

Source: models with inputs of rank 0 to 3 in opsets 21 to 23, loaded on 12 releases from 1.16.0 to 1.32.0; 62 with
scales and biases of different sizes, loaded on 11 releases. Newer ones infer the channels if the input has fixed sizes.
"""
_FIRST_WITH_CHANNELS = "1.24.1"
"""First release that compares the size of the scale with the channels when it loads a model. Older ones fail later."""
_FIRST_WITH_OVERFLOWS = "1.28.0"
"""First release that refuses a GroupNormalization if the product of its fixed sizes exceeds 64 bits.

Source: 105 such nodes with fixed and dynamic sizes in opsets 18 to 23, loaded on 6 releases from 1.18.1 to 1.32.0.
"""
_LAST_THAT_COMPUTES = "1.26.0"
"""Last release that refuses a model if it cannot compute a node with constant inputs. Later ones fail when it runs.

Source: see `constant_nodes`.
"""
_FIRST_THAT_COMPUTES_IN_FUNCTIONS = "1.17.0"
"""First release that replaces calls of local functions by their nodes before it computes nodes of constants.

Source: nodes of constants in local functions, loaded on ONNX Runtime 1.16.0 to 1.26.0.
"""
_FIRST_THAT_CHECKS_DIVISORS = "1.25.0"
"""First release that refuses models in which integers are divided by a constant 0; older ones end with SIGFPE.

If they compute the node while they load the model, they end then. If not, they end when the node runs. Source: Div and
Mod of 9 types with stored, computed and replaceable divisors, loaded on 1.24.4 to 1.32.0; of 8 types and 3 sizes with
stored, computed and replaceable dividends, run on 1.18.1, 1.24.4 and 1.31.1; of 8 types with and without constant
dividends, in branches and functions, loaded on 15 releases from 1.16.3 to 1.32.0.
"""
_LAST_WITHOUT_CAPTURED_DIVISORS = "1.28.0"
"""Last release that ignores a constant divisor of a graph around the node if its dividend is not constant.

Source: 80 such nodes of 2 types in branches, loops and functions, loaded on 11 releases from 1.16.3 to 1.32.0.
"""
DIVISION_SIGNAL = "SIGFPE"
"""Signal with which older releases end if they divide an integer by 0."""
_FIRST_WITH_CONSTANT_BRANCHES = "1.17.0"
"""First release that reads a constant condition of If when it loads a model.

Source: conditions with 0, 1 and 2 elements in three opsets, stored and replaceable, loaded on 10 releases.
"""
_ABORT = "SIGABRT"
_FIRST_WITH_LONG_SHAPES, _LAST_WITH_LONG_SHAPES = "1.17.0", "1.31.1"
"""First release that refuses a Reshape, and last one that refuses any operator, because of a list of 2^31 sizes.

Source: 10 operators with lists of 2^31, 2^40 and 2^63 - 1 sizes, loaded on 4 releases; 3 of them on 7 from 1.16.3 on.
"""
_LAST_WITH_DEPTH, _FIRST_READING_DEPTH = "1.31.1", "1.21.0"
"""Last release that refuses a OneHot whose depth has no elements, and first one that crashes if it is constant.

Source: 33 such nodes in 4 opsets, in branches and functions, loaded on 14 releases from 1.16.3 to 1.32.0.
"""
_LAST_WITH_ABORT = {"EmbedLayerNormalization": "1.27.0", "QLinearLeakyRelu": "", "QLinearSigmoid": ""}
"""Last release that crashes instead of reporting wrong arguments of an operator; "" if all do.

Source: EmbedLayerNormalization with one output, 3 nodes, loaded on 11 releases from 1.16.3 to 1.32.0; the others
without the last input, 4 nodes, loaded on 10.
"""
_LAST_WITHOUT_NEGATIVE_AXES = "1.26.0"
"""Last release that refuses a Resize with constant scales and negative `axes`, although ONNX allows both.

Source: 44 such nodes in 2 opsets with scales and sizes, in branches and functions, loaded on 14 releases.
"""
_SEGMENTS = (1, 4, 10, 15)
"""Indexes of the inputs for segments of QEmbedLayerNormalization."""
_FIRST_WITH_SEGMENTS = "1.30.0"
"""First release that requires all or none of them. Source: all 16 combinations, loaded on 9 releases from 1.24.4 on."""
_FIRST_WITH_LISTED_BOUNDS = {"same graph": "", "function": "1.17.0", "outer graph": "1.27.0"}
"""First release that rejects bounds of Range with an axis, by where they are computed.

Source: 14 such nodes, loaded on 10 releases from 1.16.3 to 1.32.0; 20 in branches, loops and functions, loaded on 8.
"""
_INVALID_ACCESS = "SIGSEGV"
"""Signal with which releases end if they read memory that does not belong to them."""
_FIRST_WITHOUT_BIAS = {"tensor(float)": "", "tensor(float16)": "1.20.0"}
"""First release that crashes if the name of the bias of a LayerNormalization is empty, by type.

Source: 16 such nodes of three types in two opsets, in branches and functions, loaded on 9 releases.
"""
_OF_AXIS, _OF_AXIS_SINCE = ("ArgMax", "ArgMin"), 11
_IMAGE_RANK = 4
"""Rank that ONNX Runtime 1.16 requires of both inputs of GridSample.

Source: models with inputs of rank 2 to 6 and of unknown rank in opset 16, loaded on 34 releases from 1.16.0 to 1.32.0.
"""
_FLOAT8_PRODUCTS = 21
"""First opset in which the schema of QLinearMatMul allows float8."""

_ALL_RESTRICTIONS = (*ATTRIBUTE_RESTRICTIONS, *CONTRIB_RESTRICTIONS, *MODEL_RESTRICTIONS, *TREE_RESTRICTIONS)
_BY_ATTRIBUTES = (
    *_ALL_RESTRICTIONS,
    *(it for _, it in RESULT_TYPE_RESTRICTIONS),
    SHORT_PADS,
    *LOCALE_RESTRICTIONS,
)
_BY_INPUTS = (
    *(*_SCALED, "BatchNormalization", "DecoderMaskedMultiHeadAttention", "EmbedLayerNormalization"),
    *("GatedDeltaNet", "GroupQueryAttention", "If", "LayerNormalization", "LinearAttentionGate", "Loop"),
    *("MultiHeadAttention", "MurmurHash3", "QEmbedLayerNormalization", "QLinearAdd", "QLinearAveragePool"),
    *("QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid", "Scan", "Split"),
)
_RESTRICTED_OPERATORS = frozenset((*(name for it in _BY_ATTRIBUTES for name in it.operators), *_BY_INPUTS))
"""Names of operators that releases with a kernel reject with certain attributes or types, whatever their traits are."""
UNEVENLY_RESTRICTED_OPERATORS = frozenset(
    (*(name for it in _BY_ATTRIBUTES if it.first or it.last for name in it.operators), *_BY_INPUTS)
)
"""Those of them that not all releases with a kernel reject."""


def find_restriction(operation: Operation, since: int, release: str) -> SupportGap | str | None:
    """Return the restriction because of which a release rejects an operation; None if there is none.

    If the outcome depends on the machine, the result is a string with the reason.
    """
    if operation.name not in _RESTRICTED_OPERATORS and operation.traits == NO_TRAITS:
        return None
    name, values = f"{operation.label}({since})", read_attribute_values(operation)
    for restriction in _ALL_RESTRICTIONS:
        if restriction.concerns(operation, since, release, values) and _reads(operation, restriction.attribute):
            if operation.name == "Cast" and operation.inputs[:1] == operation.outputs[:1]:
                return f"the optimizer may remove `{operation.label}`, which does not change the type"
            if not restriction.is_certain:
                return f"the process may crash, because `{operation.label}` is not valid: {restriction.problem}"
            problem = f"`{name}`: {restriction.problem}"
            return SupportGap("attribute-unsupported", problem, about=restriction.attribute)
    for types, restriction in RESULT_TYPE_RESTRICTIONS:
        if operation.outputs[:1] and operation.outputs[0] in types:
            if not restriction.concerns(operation, since, release, values):
                continue
            problem = f"there is no kernel for `{name}` with output type `{operation.outputs[0]}`"
            return SupportGap("missing-kernel", problem, about=operation.outputs[0])
    if operation.label == _GROUPED and _has_key_only(operation) and is_release_within(release, "1.25.0", ""):
        problem = f"`{name}` has the input `past_key`, but not `past_value`"
        return SupportGap("attribute-unsupported", problem, "requires both", about="past_value")
    if operation.label == "LayerNormalization" and operation.inputs[2:3] == (None,):
        first = _FIRST_WITHOUT_BIAS.get(operation.inputs[0] or "")
        if first is not None and is_release_within(release, first, ""):
            problem = f"`{name}` has an input without a name as bias, instead of two inputs"
            detail = f"ends with {_INVALID_ACCESS} when the model is loaded"
            return SupportGap("attribute-unsupported", problem, detail, about="bias", signal=_INVALID_ACCESS)
    if operation.traits.wrong_rank and is_release_within(release, FIRST_WITH_RANKS.get(operation.name, ""), ""):
        return SupportGap("attribute-unsupported", f"`{name}`: {operation.traits.wrong_rank}", about="rank")
    if problem := _check_arguments(operation, since, values, release):
        last = _LAST_WITH_ABORT.get(operation.name)
        signal = _ABORT if last is not None and is_release_within(release, "", last) else ""
        detail = f"ends with {signal} when the model is loaded" if signal else ""
        return SupportGap("attribute-unsupported", f"`{name}`: {problem}", detail, about="arguments", signal=signal)
    if SHORT_PADS.concerns(operation, since, release, values):
        return f"`{operation.label}` reads values beyond the end of `pads`, which must have two for each axis"
    if operation.traits.constant_fault and not _computes(operation, release):
        return f"the model may load, but `{operation.label}` fails when it runs: {operation.traits.constant_fault}"
    is_captured = operation.traits.divides_by_zero == "input in subgraph"
    if operation.traits.divides_by_zero and not (
        is_captured and is_release_within(release, "", _LAST_WITHOUT_CAPTURED_DIVISORS)
    ):
        return _check_divisor(operation, name, release)
    if any(restriction.concerns(operation, since, release, values) for restriction in LOCALE_RESTRICTIONS):
        locale = values.get("locale", "en_US.UTF-8")
        return f"`{operation.label}` loads only if the locale `{locale}` is installed"
    return _find_shape_restriction(operation, since, values, release)


def _check_arguments(operation: Operation, since: int, values: AttributeValues, release: str) -> str:
    """Return why a release rejects attributes next to the inputs and outputs of an operation; "" if it accepts them.

    Source: one-node models with each value of these attributes, loaded on 13 releases from 1.16.3 to 1.32.0; 2,600 of
    470 operators without a name for one input or output, loaded on 1.16.3, 1.24.4, 1.31.1 and 1.32.0, 69 of them on 10.
    """
    inputs, outputs = operation.inputs, operation.outputs
    match operation.label:
        case "If":
            return "each output must have a name" if None in outputs else ""
        case "Loop":
            return "each scan output must have a name" if None in outputs[max(len(inputs) - 2, 0) :] else ""
        case "Split":
            has_both = values.get("num_outputs", -1) not in (-1, None) and inputs[1:2] not in ((), (None,))
            return "`num_outputs` is not supported with the input `split`" if has_both else ""
        case "Scan":
            directions = values.get("scan_output_directions")
            count = len(outputs) + number_of(values, "num_scan_inputs", -len(outputs)) - len(inputs)
            if None in outputs:
                return "each output must have a name"
            is_wrong = since > 8 and isinstance(directions, tuple) and 0 <= count != len(directions)
            return "`scan_output_directions` must have a value for each scanned output" if is_wrong else ""
        case "Resize":
            return "`scales` or `sizes` is required" if len(inputs) == 1 else ""
        case "com.microsoft.QLinearAdd" | "com.microsoft.QLinearMul":
            is_wrong = None in (*inputs[2:3], *inputs[5:6], *inputs[7:8])
            problem = "the zero points of both operands are required, and that of the result must not be an empty name"
            return problem if is_wrong else ""
        case "com.microsoft.QLinearAveragePool":
            is_wrong = None in (*inputs[2:3], *inputs[4:5])
            problem = "the zero point of the input is required, and that of the result must not be an empty name"
            return problem if is_wrong else ""
        case "com.microsoft.QEmbedLayerNormalization" if is_release_within(release, _FIRST_WITH_SEGMENTS, ""):
            return "the inputs for segments must all be present or absent" if _omits_some(inputs, _SEGMENTS) else ""
        case "com.microsoft.GatedDeltaNet":
            return "key and value must both be present or absent" if _omits_some(inputs, (1, 2)) else ""
        case "com.microsoft.LinearAttentionGate":
            lacks_input = inputs[3:4] in ((), (None,)) and len(outputs) > 1
            return "the second output requires the input `b`" if lacks_input else ""
        case "com.microsoft.QLinearLeakyRelu" | "com.microsoft.QLinearSigmoid":
            return "the zero point of the result is required" if len(inputs) == 4 else ""
        case "BatchNormalization":
            is_wrong = values.get("spatial", 1) not in (1, None) and any(outputs[1:])
            return "`spatial` = 0 is not supported with several outputs" if is_wrong else ""
        case "com.microsoft.MurmurHash3":
            returned = "tensor(uint32)" if values.get("positive", 1) == 1 else "tensor(int32)"
            is_wrong = "positive" not in values or values["positive"] is not None
            is_wrong = is_wrong and outputs[:1] not in ((returned,), ("",))
            return f"the output must have type `{returned}`" if is_wrong else ""
        case "com.microsoft.EmbedLayerNormalization":
            has_index = number_of(values, "mask_index_type", 1) > 0
            return "two outputs are required" if has_index and len(outputs) < 2 else ""
        case "com.microsoft.MultiHeadAttention" | "com.microsoft.DecoderMaskedMultiHeadAttention":
            if operation.name.startswith("Decoder") and not is_release_within(release, "1.22.0", ""):
                return ""
            return (
                "the type of output 4 is unknown, and does not follow from other types" if outputs[3:] == ("",) else ""
            )
    return ""


def _omits_some(inputs: Sequence[str | None], indexes: Sequence[int]) -> bool:
    """Return whether some of these inputs are absent, but not all."""
    return len({index < len(inputs) and inputs[index] is not None for index in indexes}) > 1


def _reads(operation: Operation, attribute: str) -> bool:
    """Return whether a kernel reads an attribute; some describe only an optional output.

    Source: Attention nodes with modes -2 and 4, with one output and with four, loaded on 15 releases from 1.23.0.
    """
    return attribute != "qk_matmul_output_mode" or any(operation.outputs[3:])


def _has_key_only(operation: Operation) -> bool:
    """Return whether a GroupQueryAttention has keys of the past, but no values, and returns those of the present.

    Source: 192 GroupQueryAttention nodes, loaded on 11 releases from 1.16.3 to 1.32.0.
    """
    key, value = (*operation.inputs[3:5], None, None)[:2]
    return key is not None and value is None and any(operation.outputs[2:])


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
    rank, axis = operation.traits.rank, number_of(values, "axis", -1)
    if operation.name == "LayerNormalization" and axis >= rank >= 0 and is_release_within(release, "1.31.0", ""):
        problem = f"`{name}`: `axis` must be less than the rank of the input ({rank})"
        return SupportGap("attribute-unsupported", problem, about="axis")
    is_split_evenly = operation.traits.has_fixed_axis and operation.inputs[1:] in ((), (None,))
    if is_split_evenly and since >= _SPLIT_WITH_NUMBER and "num_outputs" not in values:
        problem = f"`{name}` has neither the input `split` nor the attribute `num_outputs`"
        return SupportGap("attribute-unsupported", problem, about="num_outputs")
    bounds = operation.traits.listed_bounds
    if bounds and is_release_within(release, _FIRST_WITH_LISTED_BOUNDS[bounds], ""):
        problem = f"`{name}` requires scalars, but an input is computed from constants and has an axis"
        return SupportGap("attribute-unsupported", problem, about="rank")
    if operation.traits.has_list_condition and is_release_within(release, _FIRST_WITH_CONSTANT_BRANCHES, ""):
        problem = f"`{name}` requires a condition with one element, but the constant has another number of them"
        return SupportGap("attribute-unsupported", problem, about="condition")
    if operation.traits.repeated_ngram:
        problem = f"`{name}`: the pool contains the n-gram `{operation.traits.repeated_ngram}` twice"
        return SupportGap("attribute-unsupported", problem, about="pool")
    first = _FIRST_WITH_LONG_SHAPES if operation.name == "Reshape" else ""
    if operation.traits.has_long_shape and is_release_within(release, first, _LAST_WITH_LONG_SHAPES):
        problem = f"`{name}`: inference of the shape needs too much memory, because its list has 2^31 elements or more"
        return SupportGap("attribute-unsupported", problem, about="length of the shape")
    if operation.traits.empty_depth and is_release_within(release, "", _LAST_WITH_DEPTH):
        crashes = operation.traits.empty_depth == "constant" and is_release_within(release, _FIRST_READING_DEPTH, "")
        detail = f"ends with {_ABORT} when the model is loaded" if crashes else ""
        problem = f"`{name}` requires a depth with one element, but it has none"
        return SupportGap("attribute-unsupported", problem, detail, about="depth", signal=_ABORT if crashes else "")
    if operation.name in _OF_AXIS and rank == 0 and since >= _OF_AXIS_SINCE:
        return SupportGap("attribute-unsupported", f"`{name}` does not accept a scalar", about="rank")
    if operation.traits.constant_fault and _computes(operation, release):
        problem = f"`{name}` is computed when the model is loaded, but {operation.traits.constant_fault}"
        return SupportGap("attribute-unsupported", problem, about="constants")
    if operation.traits.as_scalar and is_release_within(release, "1.18.0", "1.22.1"):
        problem = f"`{name}` without `axes` and with an unknown size is taken for a scalar, and then "
        return SupportGap("attribute-unsupported", problem + operation.traits.as_scalar, about="omitted axes")
    if operation.name == "GridSample" and rank not in (-1, _IMAGE_RANK) and is_release_within(release, "", "1.16.3"):
        return SupportGap("attribute-unsupported", f"`{name}` requires inputs of {_IMAGE_RANK} axes", about="rank")
    return None


_FUSED_PRODUCT = SupportGap(
    "missing-kernel",
    "`{name}` is fused with `Transpose` into `com.microsoft.FusedMatMul`, which has no kernel for `tensor(double)`",
    about="FusedMatMul",
)
_FUSION_GAPS: Mapping[str, tuple[str, str, SupportGap | str]] = {
    "Attention": (
        "",
        "1.18.1",
        SupportGap(
            "attribute-unsupported",
            "`{name}` has no bias, and 2 to 6 other inputs take its output",
            f"ends with {_ABORT} when the model is loaded",
            about="no bias",
            signal=_ABORT,
        ),
    ),
    "perhaps Attention": (
        "",
        "1.18.1",
        "`{label}` has no bias: the process crashes when the model is loaded if, after optimization, 2 to 6 other "
        "inputs take its output",
    ),
    "Clip": (
        "",
        "",
        SupportGap(
            "attribute-unsupported",
            "`{name}` with a constant `min` is fused with `Relu`, which fails except for `tensor(float)` and "
            "`tensor(float16)`",
            about="Relu",
        ),
    ),
    "FusedGemm": (
        "",
        "1.17.3",
        SupportGap(
            "missing-kernel",
            "`{name}` is fused with its activation into `com.microsoft.FusedGemm`, which has no kernel "
            "for `tensor(double)`",
            about="FusedGemm",
        ),
    ),
    "FusedMatMul": ("", "1.25.1", _FUSED_PRODUCT),
    "FusedMatMul of one": ("", "1.21.1", _FUSED_PRODUCT),  # both inputs are the same transposed value
    "Gemm": (
        "1.17.0",
        "1.20.1",
        SupportGap(
            "attribute-unsupported",
            "`{name}` is fused with `MatMul` into `Gemm`, which requires 2 axes",
            "fuses them without a check of the rank",
            "MatMul",
        ),
    ),
    "no elements": (  # Source: 96 nodes with such a constant, loaded on 3 releases, and 19 on 10 from 1.16.3 to 1.31.1
        "",
        "1.26.0",
        SupportGap(
            "attribute-unsupported",
            "`{name}` combines an input of the model with a constant that has no elements",
            "fails to remove the node",
            about="no elements",
        ),
    ),
    "no elements returned": (  # Source: 56 nodes with such a constant, loaded on 13 releases from 1.16.3 to 1.31.1
        "1.23.1",
        "1.26.0",
        SupportGap(
            "attribute-unsupported",
            "`{name}` combines a computed value with a constant that has no elements, and is an output of the model",
            "removes the node",
            about="no elements",
        ),
    ),
    "Optional": (  # Source: 16 models with optional values of constants, loaded on 12 releases
        "",
        "1.26.0",
        SupportGap(
            "attribute-unsupported",
            "`{name}` of a constant is computed when the model is loaded",
            "cannot store optional values as constants",
            about="constant",
        ),
    ),
    "QuickGelu": (
        "",
        "1.30.0",
        SupportGap(
            "missing-kernel",
            "`{name}` is fused with `Sigmoid` into `com.microsoft.QuickGelu`, which has no kernel for `tensor(double)`",
            about="QuickGelu",
        ),
    ),
}
"""Failures because of a fusion, with the first and last release that fails; "" means no bound.

Source: see `OptimizerChanges.find_fusion`.
"""


def find_fusion_gap(operation: Operation, since: int, release: str) -> SupportGap | str | None:
    """Return why a release fails for a node after it fused the node with its neighbors, or tried to.

    If it is unknown whether it fuses them, the result is a string.
    """
    traits, name = operation.traits, f"{operation.name}({since})"
    if traits.fusion:
        first, last, gap = _FUSION_GAPS[traits.fusion]
        if is_release_within(release, first, last):
            if isinstance(gap, str):
                return gap.format(label=operation.label)
            return replace(gap, problem=gap.problem.format(name=name))
    if traits.float8_fusion and is_release_within(release, "", "1.31.1"):
        fused = traits.float8_fusion
        problem = f"`{name}` of dequantized float8 values is fused into `{fused}`, which does not accept float8"
        has_type = fused == "QLinearMatMul" and operation.opset >= _FLOAT8_PRODUCTS
        return SupportGap("missing-kernel" if has_type else "type-mismatch", problem, about="float8 fusion")
    return None


def _check_divisor(operation: Operation, name: str, release: str) -> SupportGap | str:
    """Return how a release fails because of a division of integers by a constant 0."""
    problem, detail, signal = f"`{name}` divides integers by a constant 0", "refuses the model", ""
    if not is_release_within(release, _FIRST_THAT_CHECKS_DIVISORS, ""):
        if operation.traits.divides_by_zero == "input" or not _computes(operation, release):
            return f"the model may load, but the process crashes when `{operation.label}` divides by the constant 0"
        signal = DIVISION_SIGNAL
        detail = f"ends with {signal} when the model is loaded"
    return SupportGap("attribute-unsupported", problem, detail, about="divisor", signal=signal)


def _computes(operation: Operation, release: str) -> bool:
    """Return whether a release computes a node of constants when it loads a model, and refuses it if this fails."""
    first = _FIRST_THAT_COMPUTES_IN_FUNCTIONS if operation.traits.has_late_fault else ""
    return is_release_within(release, first, _LAST_THAT_COMPUTES)


def _check_scales(operation: Operation, values: AttributeValues, release: str) -> str:
    """Return why a release rejects the constant scales of Resize or Upsample; "" if it accepts them.

    Source: models with constant scales of rank 1 to 6 for each mode, loaded on 24 releases from 1.16.0 to 1.32.0;
    scales in branches and around them, loaded on 14 of them; scales of other lengths, loaded on 8.
    """
    listed, rank = values.get("scales"), operation.traits.rank
    if 0 <= rank != len(operation.traits.scales):
        return f"`scales` must have a value for each of {rank} axes"
    is_captured = operation.traits.captures_scales
    if (
        operation.traits.scales
        and min(integers_of(values, "axes"), default=0) < 0
        and not is_captured
        and is_release_within(release, "", _LAST_WITHOUT_NEGATIVE_AXES)
    ):
        return "negative `axes` are not supported for constant `scales`"
    is_known = not is_captured or is_release_within(release, "1.29.0", "")
    scales = (operation.traits.scales if is_known else ()) or (
        tuple(map(float, listed)) if isinstance(listed, tuple) else ()
    )
    smallest = 1.0 if operation.name == "Upsample" else math.ulp(0.0)
    if any(not scale >= smallest for scale in scales):  # also if NaN
        return "`scales` must be at least 1" if smallest == 1 else "`scales` must be positive"
    if math.inf in scales and is_release_within(release, "1.28.0", ""):
        return "`scales` must be finite"
    mode, fixed = values.get("mode", "nearest"), [scale == 1 for scale in scales]
    antialias = bool(values.get("antialias"))
    if not scales or mode not in ("linear", "cubic"):
        return ""
    accepted = len(scales) == 2 or (len(scales) == 4 and fixed[0] and fixed[1])
    from_both_sides = len(scales) == 4 and fixed[0] and fixed[3]
    if mode == "linear":
        accepted = accepted or from_both_sides or len(scales) == 3 or (len(scales) == 5 and fixed[0] and fixed[1])
    elif antialias or (is_release_within(release, "1.22.0", "") and min(scales) >= 1):
        accepted = accepted or from_both_sides
    return "" if accepted else f"`mode` = `{mode}` is not supported for `scales` of {join_quoted(map(str, scales))}"


def find_body_restriction(operation: Operation, since: int, release: str) -> SupportGap | str | None:
    """Return why a release rejects an operation that it replaces by its function body; None if it accepts it.

    If the operation may load, but fails when it runs, the result is a string.
    """
    if operation.domain != DEFAULT_DOMAIN:
        return None
    if operation.name == "GroupNormalization" and 0 <= operation.traits.rank < 2 and since >= _GROUPED_BY_CHANNEL:
        problem = f"`{operation.name}({since})` requires an input of at least 2 axes"
        return SupportGap("attribute-unsupported", problem, about="rank")
    if operation.traits.has_overflow and is_release_within(release, _FIRST_WITH_OVERFLOWS, ""):
        problem = f"`{operation.name}({since})`: the product of the sizes of the input exceeds 64 bits"
        return SupportGap("attribute-unsupported", problem, about="sizes")
    wrong_scale = operation.traits.wrong_scale if since >= _GROUPED_BY_CHANNEL else ""
    if wrong_scale == "channels" and not is_release_within(release, _FIRST_WITH_CHANNELS, ""):
        return f"the model may load, but `{operation.label}` fails when it runs: the scale needs a value per channel"
    if wrong_scale:
        must = "must have the same size" if wrong_scale == "bias" else "must have a value per channel"
        problem = f"`{operation.name}({since})`: scale and bias {must}"
        return SupportGap("attribute-unsupported", problem, about="scale")
    untyped = list_untyped_results(operation, "body") if operation.name == "SequenceMap" else ()
    for name in untyped:  # Source: 40 nodes with types, shapes and neither, also in branches, loaded on 6 releases
        problem = f"`{operation.name}({since})`: the output `{name}` of the body has no element type"
        return SupportGap("attribute-unsupported", problem, about="body")
    return (
        _check_loss(operation, since, release)
        or _check_mask(operation, since, release)
        or _check_probabilities(operation, since, release)
    )


def _check_loss(operation: Operation, since: int, release: str) -> SupportGap | None:
    """Return why a release rejects the labels or weights of SoftmaxCrossEntropyLoss.

    Source: 16 combinations of ranks and sizes in opsets 12 to 20, loaded on 27 releases from 1.16.0 to 1.32.0; 190 of
    fixed and unknown sizes, loaded on 9 of them. Releases infer the sizes of the labels only for fixed scores.
    """
    fault, has_ranks = operation.traits.wrong_loss, operation.opset >= _LOSS_WITH_RANKS
    of_rank = "1.17.0" if has_ranks else "1.24.1"
    first, shape = {
        "scalar": ("", "labels must have one dimension less than the scores"),
        "rank": (of_rank, "labels must have one dimension less than the scores"),
        "size": ("1.24.1", "labels must have the sizes of the scores without the classes"),
        "weights": (of_rank, "weights must have one dimension"),
        "product": ("", "weights must have one dimension"),
    }.get(fault, ("", ""))
    if not shape or not is_release_within(release, first, ""):
        return None
    needs_sizes = fault == "size" or (fault in ("rank", "weights") and not has_ranks)
    if needs_sizes and not operation.traits.has_fixed_scores:
        return None
    return SupportGap("attribute-unsupported", f"`{operation.label}({since})`: {shape}", about="shapes")


def _check_mask(operation: Operation, since: int, release: str) -> SupportGap | None:
    """Return why a release rejects an Attention node because of the type of its mask; None if it accepts the type.

    Source: models loaded on ONNX Runtime 1.23.0 to 1.32.0. If the mask is neither bool nor float, releases up to 1.23.2
    reject the node; releases up to 1.31.1 reject it only with `is_causal` or `nonpad_kv_seqlen` (the seventh input).
    """
    mask = operation.inputs[3] if operation.name == "Attention" and len(operation.inputs) > 3 else None
    if mask in (None, "", "tensor(bool)", "tensor(float)"):
        return None
    is_causal = read_attribute_values(operation).get("is_causal") == 1
    is_masked_again = is_causal or operation.inputs[6:] not in ((), (None,))
    if not is_release_within(release, "", "1.31.1" if is_masked_again else "1.23.2"):
        return None
    problem = f"there is no kernel for `{operation.label}({since})` with `attn_mask` = `{mask}`"
    return SupportGap(
        "missing-kernel", problem, "implements masks of `tensor(bool)` and `tensor(float)`", f"attn_mask={mask}"
    )


def _check_probabilities(operation: Operation, since: int, release: str) -> SupportGap | None:
    """Return why a release rejects an Attention node that returns the output of its Softmax.

    Older releases return it in the type of `softmax_precision`.
    Source: 2,640 Attention nodes with each mode, precision and type, loaded on 11 releases from 1.23.0 to 1.32.0.
    """
    if operation.name != "Attention" or not any(operation.outputs[3:]) or not is_release_within(release, "", "1.31.1"):
        return None
    values = read_attribute_values(operation)
    precision = ELEMENT_TYPES.get(int(number_of(values, "softmax_precision", 0)))
    if values.get("qk_matmul_output_mode") != _PROBABILITIES or precision is None:
        return None
    if operation.outputs[3] in ("", f"tensor({precision.name})"):
        return None
    problem = f"`{operation.label}({since})` with `qk_matmul_output_mode` = 3 returns `tensor({precision.name})`"
    return SupportGap("type-mismatch", problem, f"requires `{operation.outputs[3]}`", about="qk_matmul_output")


def eliminates(operation: Operation, since: int, release: str) -> bool:
    """Return whether a release removes an operation with the trait `is_eliminated` before it selects kernels."""
    is_new = operation.name == "Dropout" and since >= _NEW_DROPOUT
    return is_release_within(release, "1.25.0" if is_new else "", "") and not is_unregistered_type(
        operation.inputs[0] or "", release
    )


def is_unregistered_type(type_name: str, release: str) -> bool:
    """Return whether a release does not support a data type at all, not even for constants or inside sequences."""
    return any(
        any(it in type_name for it in types) and is_release_within(release, first, last)
        for types, first, last in UNREGISTERED_TYPES
    )
