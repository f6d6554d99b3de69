"""Compare one output with its reference: choose the criterion and compute the metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from onnxgate.core.files import temporary_folder
from onnxgate.core.findings import Place
from onnxgate.core.jobs import InputCase
from onnxgate.evidence.parity import Difference, Figure
from onnxgate.inputs.dataflow import DataflowGraph
from onnxgate.inputs.roles import find_mask_polarity
from onnxgate.model.numeric_traits import NumericTraits, detect_numeric_traits
from onnxgate.model.quantization_parameters import find_output_steps
from onnxgate.model.ranked_outputs import RankedOutputs, find_ranked_outputs
from onnxgate.model.reading.fact_extraction import ParsedModel
from onnxgate.numerics.agreement import compare_arrays
from onnxgate.numerics.metrics import OutputScale, compute_metrics, compute_snr_db
from onnxgate.numerics.quantization import (
    FLOAT_BOUNDS,
    LOW_BITS_FLOAT_BOUNDS,
    MAX_REQUIRED_DB,
    SAME_FILE_BOUNDS,
    choose_float_bounds,
    compare_quantized,
    limit_bounds,
)
from onnxgate.numerics.streams import MAPPED_BYTES, iter_chunks, load_array, save_chunks
from onnxgate.numerics.tolerance import MIN_HALF_DB, MIN_HALF_POWER, choose_bound
from onnxgate.project.config.project import SelectedModel
from onnxgate.project.config.schema import Tolerance
from onnxgate.project.lock.types import LockedModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxgate.numerics.agreement import Agreement
    from onnxgate.numerics.metrics import Metrics
    from onnxgate.numerics.quantization import RatioBounds
    from onnxgate.numerics.tolerance import ElementBound, NoiseMeasurement

    Array = NDArray[Any]


PairKind = Literal["source", "runtime", "optimization", "engine", "quantized"]
CaseOutput = tuple[str, str]  # case, output
TOO_FEW_LABELS = "too few labels"
"""Note for an output with too few labels for a verdict."""
FAINT = "faint"
"""Note for an output with a difference that may be a fault, although it is within the default tolerance."""
INT8_INPUTS = "int8 inputs"
"""Note for an output that agrees except for the noise of inputs that the optimizer quantizes."""
SAME_FILE_PAIRS = ("runtime", "optimization")
"""Kinds of pairs in which both sides run the same quantized file. Comparisons with a float model have wider bounds."""


@dataclass(frozen=True, slots=True)
class ParityModel:
    """Model whose outputs are compared, with the criteria of the comparison."""

    path: str
    place: Place
    comparability: NumericTraits
    tolerance: Mapping[str, float | Tolerance] | None
    locked: LockedModel | None
    steps: Mapping[str, float] = field(default_factory=dict)  # output -> largest quantization step
    masks: Mapping[CaseOutput, OutputMask] = field(default_factory=dict)
    operators: frozenset[str] = frozenset()
    not_finite: frozenset[CaseOutput] = frozenset()  # outputs reported by the runtime stage
    scales: Mapping[str, OutputScale] = field(default_factory=dict)  # output -> usual scale over all cases
    noise: NoiseMeasurement | None = None  # rounding errors of the source, if they were measured in this check
    ranked: tuple[RankedOutputs, ...] = ()
    has_same_weights: bool = False  # the source or float model contains the dequantized weights of the model


def create_parity_model(
    model: SelectedModel, file: Path, reading: ParsedModel, cases: Iterable[InputCase], locked: LockedModel | None
) -> ParityModel:
    """Create the model for comparison. `reading` was read from `file`, which may be a copy."""
    return ParityModel(
        path=model.path,
        place=model.place,
        comparability=detect_numeric_traits(reading.facts, reading.view),
        tolerance=model.settings.tolerance,
        locked=locked,
        operators=frozenset(reading.facts.operators),
        steps=find_output_steps(reading.view, file),
        masks=find_output_masks(reading, cases),
        ranked=find_ranked_outputs(reading.view),
    )


def measure_difference(
    model: ParityModel, key: CaseOutput, level: str, pair: PairKind, candidate: Array, reference: Array
) -> Difference:
    """Compare one output of one case.

    Ratios such as SNR are used in comparisons with float models, and for quantized outputs without a configured
    tolerance. If only weights are quantized, runs of the same file are compared element by element, also with a source
    or float model that has the dequantized weights, except that the optimizer may quantize the other factor of a
    product, too.

    Source: it replaces `DequantizeLinear` and `MatMul` by `MatMulNBits` with `accuracy_level` 4 (int8) for blocks of 4
    bits since 1.19, and for 8 bits and `Gemm` since 1.25; convolutions are not replaced. The SNR between levels is 42
    to 50 dB in a perceptron and an attention block (1.17.3–1.32.0); measured 2026-11-28.
    """
    traits = model.comparability
    noise = model.noise.relax() if model.noise is not None and pair == "engine" else model.noise
    bound = choose_bound(model.tolerance, model.locked, key[1], candidate.dtype, half=traits.half, noise=noise)
    is_ratio = pair == "quantized" or bool(traits.quantized and bound.bound_from != "config")
    if is_ratio and not (traits.weights_only and (pair in SAME_FILE_PAIRS or model.has_same_weights)):
        return _compare_by_ratio(model, key, level, pair, candidate, reference)
    difference = _compare_by_element(model.masks.get(key), key, level, bound, candidate, reference)
    if difference.agrees and bound.bound_from in ("type", "measured"):
        difference = _check_half_noise(model, difference, candidate, reference)
    if is_ratio and not difference.agrees and level == "all" and traits.has_quantized_factors:
        difference = _compare_by_ratio(model, key, level, pair, candidate, reference)
        is_noise = difference.agrees and difference.metric == "sqnr_db" and difference.value < MAX_REQUIRED_DB
        return msgspec.structs.replace(difference, note=INT8_INPUTS) if is_noise else difference
    return difference


def _compare_by_element(
    mask: OutputMask | None, key: CaseOutput, level: str, bound: ElementBound, candidate: Array, reference: Array
) -> Difference:
    def compare_with(array: Array) -> Agreement:
        least = bound.at(array, reference)
        return compare_arrays(array, reference, least.rtol, least.atol, least.share)

    def describe(array: Array, agreement: Agreement) -> list[Figure]:
        if agreement.agrees or not is_comparable or reference.dtype.kind not in "fiu":
            return []
        tie = agreement.bound if agreement.metric == "worst_abs" else 0.0
        return [*_all_figures(compute_metrics(array, reference, tie=tie))]

    agreement = compare_with(candidate)
    is_comparable = agreement.metric not in ("shape", "type")
    positions = mask.positions(candidate.shape) if mask is not None and not agreement.agrees and is_comparable else None
    if positions is None:
        figures = describe(candidate, agreement)
    else:
        masked = _count_masked_differences(positions, candidate, reference)
        with _replace_masked(positions, candidate, reference) as compared:
            agreement = compare_with(compared)
            figures = [*describe(compared, agreement), Figure(metric="masked elements", value=float(masked))]
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
        figures=tuple(figures),
    )


def _count_masked_differences(positions: Array, candidate: Array, reference: Array) -> int:
    chunks = iter_chunks(candidate, reference)
    return sum(int((~positions.flat[start : start + a.size] & (a != b)).sum()) for start, a, b in chunks)


@contextmanager
def _replace_masked(positions: Array, candidate: Array, reference: Array) -> Iterator[Array]:
    """Return the candidate, with elements where `positions` is False replaced by reference elements.

    A large result is stored in a temporary file until the context exits.
    """
    if candidate.nbytes <= MAPPED_BYTES:
        yield np.where(positions, candidate, reference)
        return
    chunks = iter_chunks(candidate, reference)
    parts = (np.where(positions.flat[start : start + a.size], a, b).tobytes() for start, a, b in chunks)
    with temporary_folder() as folder:
        path = Path(folder, "masked.npy")
        save_chunks(path, parts, np.result_type(candidate, reference), candidate.shape)
        yield load_array(path)


def _check_half_noise(model: ParityModel, plain: Difference, candidate: Array, reference: Array) -> Difference:
    """Return a mismatch if a float16 output agrees element by element, but has too much noise over all elements."""
    traits = model.comparability
    is_half = traits.half or candidate.dtype.itemsize == 2
    if not is_half or traits.bfloat16 or candidate.dtype.kind != "f":
        return plain
    usual = model.scales.get(plain.output, OutputScale())
    snr_db = compute_snr_db(candidate, reference, replace(usual, power=max(usual.power, MIN_HALF_POWER)))
    if snr_db >= MIN_HALF_DB:
        return plain
    values = {"agrees": False, "metric": "sqnr_db", "value": snr_db, "bound": MIN_HALF_DB}
    return msgspec.structs.replace(plain, **values, figures=(Figure(metric="max_abs", value=plain.value),))


def _all_figures(metrics: Metrics) -> Iterator[Figure]:
    names = ("sqnr_db", "cosine", "max_abs", "median_abs", "p99_abs", "max_rel", "max_ulp", "p99_ulp")
    figures: dict[str, float | None] = {name: getattr(metrics, name) for name in names}
    if metrics.rows:
        figures |= {"rows": float(metrics.rows), "top1": metrics.top1_share, "top5": metrics.top5 / metrics.rows}
    yield from (Figure(metric=name, value=value) for name, value in figures.items() if value is not None)


def _compare_by_ratio(
    model: ParityModel, key: CaseOutput, level: str, pair: PairKind, candidate: Array, reference: Array
) -> Difference:
    bounds = _choose_ratio_bounds(model, key[1], pair)
    ratios = compare_quantized(candidate, reference, bounds, model.scales.get(key[1], OutputScale()))
    figures = {metric: Figure(metric=metric, value=value, bound=bound) for metric, value, bound in ratios.figures}
    if not ratios.agreement.agrees and ratios.metrics is not None:
        figures |= {figure.metric: figure for figure in _all_figures(ratios.metrics) if figure.metric not in figures}
    return Difference(
        output=key[1],
        case=key[0],
        optimization=level,
        agrees=ratios.agreement.agrees or ratios.too_few,
        metric=ratios.metric,
        value=ratios.value,
        bound=ratios.bound,
        bound_from=bounds.bound_from,
        detail=ratios.agreement.detail,
        figures=tuple(figures.values()),
        note=TOO_FEW_LABELS if ratios.too_few else "",
    )


def _choose_ratio_bounds(model: ParityModel, output: str, pair: PairKind) -> RatioBounds:
    recorded = choose_float_bounds(model.locked, output)
    if pair == "engine":
        return FLOAT_BOUNDS
    if pair not in SAME_FILE_PAIRS:
        is_default = model.comparability.low_bits and recorded.bound_from == "type"
        return LOW_BITS_FLOAT_BOUNDS if is_default else recorded
    nearest = {
        name: min(getattr(SAME_FILE_BOUNDS, name), getattr(recorded, name)) for name in ("sqnr_db", "cosine", "top1")
    }
    bounds = replace(SAME_FILE_BOUNDS, **nearest, step=1.01 * model.steps.get(output, 0.0))
    noise = model.noise.accuracy.get(output) if model.noise is not None else None
    return limit_bounds(bounds, noise) if noise is not None else bounds


@dataclass(frozen=True, slots=True)
class OutputMask:
    """Mask of one case: a file with an array (batch, time). `ones_keep` means that ones mark the compared positions."""

    path: str
    ones_keep: bool

    def tokens(self) -> Array | None:
        """Return which tokens to compare (batch, time); None if all are compared."""
        mask = np.load(self.path, allow_pickle=False)
        compared = (mask != 0) == self.ones_keep
        return None if mask.ndim != 2 or compared.all() else compared

    def positions(self, shape: tuple[int, ...]) -> Array | None:
        """Return which elements of an output to compare; None if all are compared or the mask does not fit `shape`."""
        compared = self.tokens()
        if compared is None or shape[:2] != compared.shape:
            return None
        return np.broadcast_to(compared.reshape(*compared.shape, *([1] * (len(shape) - 2))), shape)


def find_output_masks(reading: ParsedModel, cases: Iterable[InputCase]) -> dict[CaseOutput, OutputMask]:
    """Find, by case and output, the masks of outputs whose first two axes match the axes of the mask (batch, time).

    A mask is used only if the graph shows whether ones or zeros are ignored, or if the mask is named `attention_mask`.
    All other outputs are compared completely.
    """
    values = []
    for value in reading.facts.inputs:
        shape = value.shape or ()
        if "mask" in value.name.lower() and len(shape) == 2 and isinstance(shape[1], str) and shape[1] != "?":
            values.append(value)
    if not values:
        return {}
    graph = DataflowGraph(reading.view)
    masks = []
    for value in values:
        ones_keep = find_mask_polarity(list(graph.uses(value.name)), graph)
        if ones_keep is None and value.name.lower() == "attention_mask":
            ones_keep = True
        if ones_keep is not None:
            masks.append((value, ones_keep))
    if len(masks) != 1:
        return {}  # with several masks, it is unknown which mask applies to an output
    mask, ones_keep = masks[0]
    outputs = [value.name for value in reading.facts.outputs if (value.shape or ())[:2] == mask.shape]
    return {
        (case.name, output): OutputMask(case.inputs[mask.name], ones_keep)
        for case in cases
        if mask.name in case.inputs
        for output in outputs
    }
