"""Evidence about measured differences between outputs, from which the rules of the parity stage create findings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from onnxgate.core.findings import Place
from onnxgate.core.report import RATIO_METRICS

SOURCE = "the source"
"""Value of `Comparison.reference` for outputs that are compared with the outputs of the source."""

IN_FLOAT32 = "in float32"
"""Detail of differences of a float16 model that was computed in float32, on the newest runtime only."""

SELECTED = "selected"
"""Note for a comparison of scores by which items are selected, instead of an output that depends on the selection."""

CHOSEN = "chosen"
"""Note for integers that depend on a selection, such as the index of the highest score: no tolerance is useful."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """An additional measured value of an output, such as its cosine similarity. `bound` is None if it has no limit."""

    metric: str
    value: float
    bound: float | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Result of comparing one output of a model with its reference, for one input case.

    For the metric `worst_abs`, `value` is the absolute difference of one element: the element that exceeds its bound
    most or, if no element exceeds its bound, the element that is closest to its bound. `bound` is `atol + rtol * |b|`
    for the reference value `b` of this element.

    `agrees` is `value <= bound`, or `value >= bound` for `RATIO_METRICS`, which are used for quantized models.
    """

    output: str  # "" if the number of outputs differs
    case: str
    optimization: str
    agrees: bool
    metric: (
        str  # "worst_abs", "mismatched elements", "differing items", "shape", "type", "outputs", "not finite", a ratio
    )
    value: float
    bound: float
    bound_from: Literal["config", "lock", "type", "measured"]
    detail: str = ""  # "shape (2, 10) instead of (1, 10)", "at [0, 3]: 1.25 instead of 0.5"
    figures: tuple[Figure, ...] = ()  # additional metrics of mismatches and of quantized outputs
    compared: str = ""  # value that was compared instead: the input of a saturated activation, or scores of items
    note: str = ""  # elements excluded from the comparison, and the reason


class FirstDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The node at which outputs start to differ: its inputs agree with the reference, but its output does not."""

    node: str  # name of the node in the unmodified model; "" if it has none
    operator: str  # "MatMul", with the domain unless it is the default domain
    output: str  # the value that differs first
    place: Place | None  # the source line that created the node
    case: str
    value: float  # largest absolute difference of that output; 0 if the values of nodes were not compared
    before: float  # largest absolute difference among the node's inputs
    share: float = 0.0  # `value` divided by the largest absolute value of that output
    before_share: float = 0.0
    detail: str = ""


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor of a quantized model whose values differ considerably from those in the float model."""

    tensor: str
    node: str  # name of the node in the float model that computes the tensor; "" if there is no such node or name
    operator: str  # "Conv"; "" if no node computes the tensor
    kind: Literal["input", "output", "weight"]  # role of the tensor in the model or node
    sqnr_db: float  # compared with the float model
    lost_here_db: float  # loss of this quantization step alone
    clipped: float = 0.0  # fraction of clipped elements
    place: Place | None = None  # the source line that created the node


class WrongWeight(msgspec.Struct, frozen=True, kw_only=True):
    """A stored weight that differs from the weight of the float model by more than rounding."""

    weight: str  # name in the float model
    channel: int | None = None  # None if all channels differ
    factor: float  # ratio to the weight of the float model
    shift: float = 0.0  # distance of all elements from the float model in quantization steps, if it is wrong


class MissingActivation(msgspec.Struct, frozen=True, kw_only=True):
    """An activation of the float model that a quantized model does not compute."""

    tensor: str  # output of the activation
    node: str  # name in the float model; "" if it has none
    operator: str  # "Relu"
    value: float  # in the quantized model, outside of the range of the activation
    limit: float  # smallest or largest value that the activation returns


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Results of comparing the outputs of a model on one runtime with one reference.

    They cover all input cases and optimization levels.
    """

    model: str
    place: Place
    pair: Literal["source", "runtime", "optimization", "engine", "quantized"]
    runtime: str
    reference: str  # "the source" | "onnxruntime 1.31.1" | "optimization disabled" | the float model's path
    differences: tuple[Difference, ...]
    layers: tuple[Layer, ...] = ()  # the worst layers of a quantized model, worst first
    wrong_weights: tuple[WrongWeight, ...] = ()  # weights of a quantized model that differ from its float model
    missing_activations: tuple[MissingActivation, ...] = ()  # of a quantized model
    first: FirstDifference | None = None  # the origin of the mismatch, if it was found
    at_no_node: str = ""  # description of an origin other than a node
    known_limit: str = ""  # limitation of the engine that explains the mismatch: "tract: computes attention …"


def find_mismatches(comparison: Comparison) -> tuple[Difference, ...]:
    """Return the differences between outputs that exceed their bound."""
    return tuple(difference for difference in comparison.differences if not difference.agrees)


def find_worst(differences: Sequence[Difference]) -> Difference:
    """Return the difference that exceeds its bound most.

    A wrong type, shape or number of outputs is worse than any difference between values.
    """

    def excess(difference: Difference) -> tuple[bool, float]:
        if difference.metric in RATIO_METRICS:
            return False, difference.bound - difference.value
        share = difference.value / difference.bound if difference.bound else math.inf
        return difference.metric in {"outputs", "type", "shape"}, share

    return max(differences, key=excess)
