"""Compare one output with its reference: select the criterion and compute the figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from onnxgate.core.jobs import InputCase
from onnxgate.evidence.parity import Difference, Figure
from onnxgate.inputs.dataflow import DataflowGraph
from onnxgate.inputs.roles import find_mask_polarity
from onnxgate.model.facts import Dim, ValueInfo
from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.model.reading.fact_extraction import ParsedModel
from onnxgate.numerics.agreement import MIN_HALF_DB, MIN_HALF_POWER, choose_bound, compare_arrays
from onnxgate.numerics.metrics import compute_metrics
from onnxgate.numerics.quantization import (
    FLOAT_BOUNDS,
    SAME_FILE_BOUNDS,
    OutputScale,
    choose_float_bounds,
    compare_quantized,
    compute_snr_db,
)
from onnxgate.project.config.schema import Tolerance
from onnxgate.project.lock.types import LockedModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxgate.numerics.agreement import Agreement, ElementBound
    from onnxgate.numerics.metrics import Metrics
    from onnxgate.numerics.quantization import RatioAgreement, RatioBounds

    Array = NDArray[Any]


PairKind = Literal["source", "runtime", "optimization", "engine", "quantized"]
CaseOutput = tuple[str, str]  # case, output
TOO_FEW_LABELS = "too few labels"
"""Note on labels that differ without a known meaning."""
SAME_FILE_PAIRS = ("runtime", "optimization")
"""Pairs that both run the same quantized file: they must be nearer to each other than to a float model."""


@dataclass(frozen=True, slots=True)
class AgreementCriteria:
    """What says how near the outputs of one model must be."""

    comparability: NumericTraits
    tolerance: Mapping[str, float | Tolerance] | None
    locked: LockedModel | None
    steps: Mapping[str, float] = field(default_factory=dict)  # output -> largest step that it is quantized in
    kept: Mapping[CaseOutput, OutputMask] = field(default_factory=dict)  # positions that no mask drops
    scales: Mapping[str, OutputScale] = field(default_factory=dict)  # output -> what is usual for it over all cases


def measure_difference(
    yardstick: AgreementCriteria, key: CaseOutput, level: str, pair: PairKind, candidate: Array, reference: Array
) -> Difference:
    """Compare one output of one case: by ratio with a float model, or if a quantized output has no own tolerance."""
    half = yardstick.comparability.half
    bound = choose_bound(yardstick.tolerance, yardstick.locked, key[1], candidate.dtype, half=half)
    if pair == "quantized" or (yardstick.comparability.quantized and bound.bound_from != "config"):
        return _compare_by_ratio(yardstick, key, level, pair, candidate, reference)
    agreement = _compare_by_element(yardstick, key, level, bound, candidate, reference)
    if agreement.agrees and bound.bound_from == "type":
        return _check_half_noise(yardstick, agreement, candidate, reference)
    return agreement


def _compare_by_element(
    yardstick: AgreementCriteria, key: CaseOutput, level: str, bound: ElementBound, candidate: Array, reference: Array
) -> Difference:
    def compare_with(array: Array) -> Agreement:
        least = bound.at(array, reference)
        return compare_arrays(array, reference, least.rtol, least.atol, least.share)

    agreement = compare_with(candidate)
    figures: tuple[Figure, ...] = ()
    if not agreement.agrees and agreement.metric not in ("shape", "type"):
        kept = _apply_mask(yardstick.kept.get(key), candidate, reference)
        if kept is not None:
            figures = (Figure(metric="masked elements", value=float(kept[1])),)
            agreement, candidate = compare_with(kept[0]), kept[0]
    if not agreement.agrees:
        figures = (*_error_figures(agreement, candidate, reference), *figures)
    return Difference(
        output=key[1],
        case=key[0],
        optimization=level,
        agrees=agreement.agrees,
        metric=agreement.metric,
        value=agreement.value,
        bound=agreement.bound,
        bound_from=bound.bound_from,
        detail=agreement.detail,
        figures=figures,
    )


def _check_half_noise(
    yardstick: AgreementCriteria, plain: Difference, candidate: Array, reference: Array
) -> Difference:
    """What agrees in float16, unless there is too much noise in it over all of its elements."""
    comparability = yardstick.comparability
    is_half = comparability.half or candidate.dtype.itemsize == 2
    if not is_half or comparability.bfloat16 or candidate.dtype.kind != "f":
        return plain
    usual = yardstick.scales.get(plain.output, OutputScale())
    snr_db = compute_snr_db(candidate, reference, replace(usual, power=max(usual.power, MIN_HALF_POWER)))
    if snr_db >= MIN_HALF_DB:
        return plain
    values = {"agrees": False, "metric": "sqnr_db", "value": snr_db, "bound": MIN_HALF_DB}
    return msgspec.structs.replace(plain, **values, figures=(Figure(metric="max_abs", value=plain.value),))


def _apply_mask(mask: OutputMask | None, candidate: Array, reference: Array) -> tuple[Array, int] | None:
    """Replace masked elements of the candidate by the reference's, and count those that differed."""
    positions = mask.positions(candidate.shape) if mask is not None else None
    if positions is None:
        return None
    dropped = ~positions & (candidate != reference)
    return np.where(positions, candidate, reference), int(dropped.sum())


def _error_figures(agreement: Agreement, candidate: Array, reference: Array) -> Iterator[Figure]:
    """Of what disagrees, all figures."""
    if agreement.metric in ("shape", "type") or reference.dtype.kind not in "fiu":
        return
    yield from _all_figures(
        compute_metrics(candidate, reference, tie=agreement.bound if agreement.metric == "worst_abs" else 0.0)
    )


def _all_figures(metrics: Metrics) -> Iterator[Figure]:
    figures = {
        "sqnr_db": metrics.sqnr_db,
        "cosine": metrics.cosine,
        "max_abs": metrics.max_abs,
        "median_abs": metrics.median_abs,
        "p99_abs": metrics.tail_abs,
        "max_rel": metrics.max_rel,
        "max_ulp": metrics.max_ulp,
        "p99_ulp": metrics.tail_ulp,
        "rows": float(metrics.rows) or None,
        "top1": metrics.top1_share if metrics.rows else None,
        "top5": metrics.top5 / metrics.rows if metrics.rows else None,
    }
    yield from (Figure(metric=name, value=value) for name, value in figures.items() if value is not None)


def _compare_by_ratio(
    yardstick: AgreementCriteria, key: CaseOutput, level: str, pair: PairKind, candidate: Array, reference: Array
) -> Difference:
    bounds = _choose_ratio_bounds(yardstick, key[1], pair)
    agreement = compare_quantized(candidate, reference, bounds, yardstick.scales.get(key[1], OutputScale()))
    return Difference(
        output=key[1],
        case=key[0],
        optimization=level,
        agrees=agreement.agreement.agrees or agreement.too_few,
        metric=agreement.metric,
        value=agreement.value,
        bound=agreement.bound,
        bound_from=bounds.bound_from,
        detail=agreement.agreement.detail,
        figures=tuple(_ratio_figures(agreement)),
        note=TOO_FEW_LABELS if agreement.too_few else "",
    )


def _choose_ratio_bounds(yardstick: AgreementCriteria, output: str, pair: PairKind) -> RatioBounds:
    recorded = choose_float_bounds(yardstick.locked, output)
    if pair not in SAME_FILE_PAIRS:
        return FLOAT_BOUNDS if pair == "engine" else recorded
    nearest = {
        name: min(getattr(SAME_FILE_BOUNDS, name), getattr(recorded, name)) for name in ("sqnr_db", "cosine", "top1")
    }
    return replace(SAME_FILE_BOUNDS, **nearest, step=1.01 * yardstick.steps.get(output, 0.0))


def _ratio_figures(agreement: RatioAgreement) -> Iterator[Figure]:
    """The ratios with their bounds; of what disagrees, all other figures as well."""
    bounded = {metric: Figure(metric=metric, value=value, bound=bound) for metric, value, bound in agreement.figures}
    yield from bounded.values()
    if not agreement.agreement.agrees and agreement.metrics is not None:
        yield from (figure for figure in _all_figures(agreement.metrics) if figure.metric not in bounded)


@dataclass(frozen=True, slots=True)
class OutputMask:
    """The mask of one case: an array of two axes, batch and time, whose ones keep (or drop) a position."""

    path: str
    ones_keep: bool

    def positions(self, shape: tuple[int, ...]) -> Array | None:
        """Return the elements of an output of this shape to compare; None for all, or if the mask does not fit."""
        mask = np.load(self.path, allow_pickle=False)
        if mask.ndim != 2 or shape[:2] != mask.shape:
            return None
        kept = (mask != 0) == self.ones_keep
        if kept.all():
            return None
        return np.broadcast_to(kept.reshape(*mask.shape, *([1] * (len(shape) - 2))), shape)


def find_output_masks(reading: ParsedModel, cases: Iterable[InputCase]) -> dict[tuple[str, str], OutputMask]:
    """By case and output: the mask of the outputs that have a mask's own axes, batch and time, as their first two.

    A mask counts only where the graph shows what its ones mean, or where its name is the usual one; all else is
    compared in full.
    """
    masks = [value for value in reading.facts.inputs if _may_be_mask(value)]
    if not masks:
        return {}
    found = list(_find_proven_masks(masks, DataflowGraph(reading.proto)))
    if len(found) != 1:
        return {}  # none, or more than one: which of them drops an output's positions is not known
    mask, ones_keep = found[0]
    outputs = [value.name for value in reading.facts.outputs if (value.shape or ())[:2] == mask.shape]
    return {
        (case.name, output): OutputMask(case.inputs[mask.name], ones_keep)
        for case in cases
        if mask.name in case.inputs
        for output in outputs
    }


def _may_be_mask(value: ValueInfo) -> bool:
    dims: tuple[Dim, ...] = value.shape or ()
    return len(dims) == 2 and isinstance(dims[1], str) and dims[1] != "?" and "mask" in value.name.lower()


def _find_proven_masks(values: Iterable[ValueInfo], graph: DataflowGraph) -> Iterator[tuple[ValueInfo, bool]]:
    for value in values:
        ones_keep = find_mask_polarity(value.name, graph)
        if ones_keep is None and value.name.lower() == "attention_mask":
            ones_keep = True
        if ones_keep is not None:
            yield value, ones_keep
