"""One output held against its reference: which meaning of agreement it is held to, and the figures that tell more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from onnxgate.agreement.comparability import Comparability
from onnxgate.config.types import Tolerance
from onnxgate.evidence.parity import Difference, Figure
from onnxgate.lock.types import LockedModel
from onnxgate.stages.masks import Kept

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxgate.agreement.compare import Agreement
    from onnxgate.agreement.metrics import Metrics
    from onnxgate.agreement.quantized import Bounds, Held, Scale
    from onnxgate.agreement.tolerance import Bound

    Array = NDArray[Any]

Pair = Literal["source", "runtime", "optimization", "engine", "quantized"]
Key = tuple[str, str]  # case, output
TOO_FEW = "too few labels"
"""Note of labels that differ, of which it cannot be said what that means."""
OF_ONE_FILE = ("runtime", "optimization")
"""Pairs that both run the same quantized file: they must be nearer to each other than to a float model."""


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What says how near the outputs of one model must be."""

    comparability: Comparability
    tolerance: Mapping[str, float | Tolerance] | None
    locked: LockedModel | None
    steps: Mapping[str, float] = field(default_factory=dict)  # output -> largest step that it is quantized in
    kept: Mapping[Key, Kept] = field(default_factory=dict)  # positions that no mask drops
    scales: Mapping[str, Scale] = field(default_factory=dict)  # output -> what is usual for it over all cases


def difference(
    yardstick: Yardstick, key: Key, level: str, pair: Pair, candidate: Array, reference: Array
) -> Difference:
    """One output of one case: by ratio against a float model, and where a quantized one has no tolerance of its own."""
    from onnxgate.agreement.tolerance import choose

    half = yardstick.comparability.half
    bound = choose(yardstick.tolerance, yardstick.locked, key[1], candidate.dtype, half=half)
    if pair == "quantized" or (yardstick.comparability.quantized and bound.bound_from != "config"):
        return _by_ratio(yardstick, key, level, pair, candidate, reference)
    found = _by_element(yardstick, key, level, bound, candidate, reference)
    if found.agrees and bound.bound_from == "type":
        return _loud_enough(yardstick, found, candidate, reference)
    return found


def _by_element(
    yardstick: Yardstick, key: Key, level: str, bound: Bound, candidate: Array, reference: Array
) -> Difference:
    from onnxgate.agreement.compare import compare

    def held(array: Array) -> Agreement:
        least = bound.at(array, reference)
        return compare(array, reference, least.rtol, least.atol, least.share)

    found = held(candidate)
    figures: tuple[Figure, ...] = ()
    if not found.agrees and found.metric not in ("shape", "type"):
        kept = _unmasked(yardstick.kept.get(key), candidate, reference)
        if kept is not None:
            figures = (Figure(metric="masked elements", value=float(kept[1])),)
            found, candidate = held(kept[0]), kept[0]
    if not found.agrees:
        figures = (*_told(found, candidate, reference), *figures)
    return Difference(
        output=key[1],
        case=key[0],
        optimization=level,
        agrees=found.agrees,
        metric=found.metric,
        value=found.value,
        bound=found.bound,
        bound_from=bound.bound_from,
        detail=found.detail,
        figures=figures,
    )


def _loud_enough(yardstick: Yardstick, plain: Difference, candidate: Array, reference: Array) -> Difference:
    """What agrees in float16, unless there is too much noise in it over all of its elements."""
    from onnxgate.agreement.quantized import Scale, kept_db
    from onnxgate.agreement.tolerance import HALF_DB, HALF_POWER

    comparability = yardstick.comparability
    is_half = comparability.half or candidate.dtype.itemsize == 2
    if not is_half or comparability.bfloat16 or candidate.dtype.kind != "f":
        return plain
    usual = yardstick.scales.get(plain.output, Scale())
    kept = kept_db(candidate, reference, replace(usual, power=max(usual.power, HALF_POWER)))
    if kept >= HALF_DB:
        return plain
    told = {"agrees": False, "metric": "sqnr_db", "value": kept, "bound": HALF_DB}
    return msgspec.structs.replace(plain, **told, figures=(Figure(metric="max_abs", value=plain.value),))


def _unmasked(kept: Kept | None, candidate: Array, reference: Array) -> tuple[Array, int] | None:
    """The candidate with the reference's own values where a mask drops them, and how many differed only there."""
    import numpy as np

    positions = kept.positions(candidate.shape) if kept is not None else None
    if positions is None:
        return None
    dropped = ~positions & (candidate != reference)
    return np.where(positions, candidate, reference), int(dropped.sum())


def _told(found: Agreement, candidate: Array, reference: Array) -> Iterator[Figure]:
    """Of what disagrees, all figures."""
    from onnxgate.agreement.metrics import metrics

    if found.metric in ("shape", "type") or reference.dtype.kind not in "fiu":
        return
    yield from _every(metrics(candidate, reference, tie=found.bound if found.metric == "worst_abs" else 0.0))


def _every(found: Metrics) -> Iterator[Figure]:
    figures = {
        "sqnr_db": found.sqnr_db,
        "cosine": found.cosine,
        "max_abs": found.max_abs,
        "median_abs": found.median_abs,
        "p99_abs": found.tail_abs,
        "max_rel": found.max_rel,
        "max_ulp": found.max_ulp,
        "p99_ulp": found.tail_ulp,
        "rows": float(found.rows) or None,
        "top1": found.top1_share if found.rows else None,
        "top5": found.top5 / found.rows if found.rows else None,
    }
    yield from (Figure(metric=name, value=value) for name, value in figures.items() if value is not None)


def _by_ratio(yardstick: Yardstick, key: Key, level: str, pair: Pair, candidate: Array, reference: Array) -> Difference:
    from onnxgate.agreement.quantized import Scale, hold

    bounds = _bounds(yardstick, key[1], pair)
    held = hold(candidate, reference, bounds, yardstick.scales.get(key[1], Scale()))
    return Difference(
        output=key[1],
        case=key[0],
        optimization=level,
        agrees=held.agreement.agrees or held.too_few,
        metric=held.metric,
        value=held.value,
        bound=held.bound,
        bound_from=bounds.bound_from,
        detail=held.agreement.detail,
        figures=tuple(_ratios(held)),
        note=TOO_FEW if held.too_few else "",
    )


def _bounds(yardstick: Yardstick, output: str, pair: Pair) -> Bounds:
    from onnxgate.agreement.quantized import OF_FLOAT, OF_ITSELF, float_bounds

    recorded = float_bounds(yardstick.locked, output)
    if pair not in OF_ONE_FILE:
        return OF_FLOAT if pair == "engine" else recorded
    nearest = {name: min(getattr(OF_ITSELF, name), getattr(recorded, name)) for name in ("sqnr_db", "cosine", "top1")}
    return replace(OF_ITSELF, **nearest, step=1.01 * yardstick.steps.get(output, 0.0))


def _ratios(held: Held) -> Iterator[Figure]:
    """The ratios with their bounds; of what disagrees, all other figures as well."""
    bounded = {metric: Figure(metric=metric, value=value, bound=bound) for metric, value, bound in held.figures}
    yield from bounded.values()
    if not held.agreement.agrees and held.metrics is not None:
        yield from (each for each in _every(held.metrics) if each.metric not in bounded)
