"""The tolerance of an output, and its measurement from a source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxgate.numerics.tolerance import ElementBound, NoiseMeasurement, choose_bound, measure_noise
from onnxgate.project.config.schema import Tolerance
from onnxgate.project.lock.types import LockedModel, MeasuredTolerance

F32, I64 = np.dtype(np.float32), np.dtype(np.int64)
LOCKED = LockedModel(
    sha256="", size_bytes=0, ir_version=8, opsets={}, tolerance={"y": MeasuredTolerance(noise=1e-7, bound=3e-6)}
)
FOR_ALL: dict[str, float | Tolerance] = {"rtol": 1e-3, "atol": 1e-4}


def test_config_for_the_output_comes_first() -> None:
    """A configured tolerance for the output has priority over the general one and over the lock."""
    settings = {**FOR_ALL, "y": Tolerance(rtol=0.5, atol=0.25)}

    assert ElementBound(0.5, 0.25, "config") == choose_bound(settings, LOCKED, "y", F32, half=False)
    assert ElementBound(1e-3, 1e-4, "config") == choose_bound(settings, LOCKED, "z", F32, half=False)


def test_measured_bound_is_absolute() -> None:
    """The locked bound is absolute, without a relative part."""
    assert ElementBound(0.0, 3e-6, "lock") == choose_bound(None, LOCKED, "y", F32, half=False)


def test_default_depends_on_the_type() -> None:
    """The default depends on the type: a 16-bit type anywhere in the model gives the wider bound."""
    single = ElementBound(1e-4, 1e-5, "type", of_largest=1e-6)
    half = ElementBound(1e-2, 5e-3, "type", of_largest=5e-3)

    assert single == choose_bound(None, LOCKED, "z", F32, half=False)
    assert single == choose_bound(None, None, "z", np.dtype(np.float64), half=False)
    assert half == choose_bound(None, None, "z", F32, half=True)
    assert half == choose_bound(None, None, "z", np.dtype(np.float16), half=False)


def test_default_grows_with_the_numbers_that_are_rounded() -> None:
    """The default tolerance grows with the largest values, whose rounding remains after cancellation."""
    reference = np.array([1e5, 120.0, np.inf], np.float32)
    candidate = np.array([1e5 + 0.01, 120.02, np.inf], np.float32)
    given = ElementBound(0.0, 1e-5, "config")

    assert pytest.approx(0.1) == choose_bound(None, None, "y", F32, half=False).at(candidate, reference).atol
    assert given == given.at(candidate, reference)


def test_mask_fills_do_not_increase_the_tolerance() -> None:
    """Values that are equal on both sides, such as mask fills, do not increase the tolerance."""
    reference = np.array([-1e9, 0.5], np.float32)
    candidate = np.array([-1e9, 0.6], np.float32)

    assert 1e-5 == choose_bound(None, None, "y", F32, half=False).at(candidate, reference).atol


def test_integers_are_exact_unless_named() -> None:
    """A general tolerance does not apply to integers, because they may be class labels."""
    assert ElementBound(0.0, 0.0, "type") == choose_bound(FOR_ALL, LOCKED, "y", I64, half=False)
    assert ElementBound(0.0, 1.0, "config") == choose_bound(
        {"y": Tolerance(rtol=0.0, atol=1.0)}, None, "y", I64, half=False
    )


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_a_few_decisions_may_differ_in_16_bits(dtype: Any) -> None:
    """A few integers or booleans computed from 16-bit values may differ, unless the config sets their tolerance."""
    kind = np.dtype(dtype)
    named = {"y": Tolerance(rtol=0.0, atol=1.0)}

    assert ElementBound(0.0, 0.0, "type", 0.01) == choose_bound(FOR_ALL, LOCKED, "y", kind, half=True)
    assert ElementBound(0.0, 1.0, "config") == choose_bound(named, LOCKED, "y", kind, half=True)


def test_words_are_exact_in_16_bits_too() -> None:
    """String labels must be equal even in 16-bit models."""
    assert ElementBound(0.0, 0.0, "type") == choose_bound(None, None, "y", np.dtype("U3"), half=True)


def test_half_of_a_tolerance_leaves_the_other_at_zero() -> None:
    """If only `rtol` is given, `atol` is 0."""
    assert ElementBound(1e-3, 0.0, "config") == choose_bound({"rtol": 1e-3}, LOCKED, "y", F32, half=False)


@pytest.mark.parametrize(
    ("scale", "error", "bound"),
    [(1e-4, 1e-7, 8e-7), (1e-4, 1e-12, 2e-7), (1.0, 1e-4, None), (1e-5, 1e-6, None), (1e-7, 1e-12, None)],
)
def test_faint_outputs_have_a_smaller_bound(scale: float, error: float, bound: float | None) -> None:
    """If the default `atol` is large compared with an output, the bound follows from the rounding errors.

    Outputs that consist mostly of rounding errors, which may be those of a sigmoid, have no such bound.
    """
    wide = scale * np.linspace(-1, 1, 9)
    noise = measure_noise([({"z": wide + error}, {"z": wide})])
    expected = 8 * error if bound is None else bound
    chosen = choose_bound(None, None, "z", F32, half=False, noise=noise)

    assert (bound is not None) == ("z" in noise.tight)
    assert bound is None or pytest.approx(expected, rel=1e-3) == chosen.atol


@pytest.mark.parametrize(
    ("elements", "error", "is_exact", "bound"),
    [
        (16, 1e-7, True, 1e-6),
        (16, 1e-6, True, 8e-6),
        (15, 1e-6, True, None),
        (16, 1e-6, False, None),
        (16, 1e-3, True, None),
    ],
    ids=["least", "eight times the noise", "few elements", "not exact", "more than the default"],
)
def test_exact_reference_gives_a_bound_below_the_default(
    elements: int, error: float, is_exact: bool, bound: float | None
) -> None:
    """Only a float64 run of the source with enough elements shows that rounding errors are small."""
    wide = np.linspace(-1, 1, elements)
    noise = measure_noise([({"z": (wide + error)}, {"z": wide})], is_exact=is_exact)
    chosen = choose_bound(None, None, "z", F32, half=False, noise=noise)

    assert ("z" in noise.tight) == (bound is not None)
    assert bound is None or (0.0, pytest.approx(bound, rel=1e-3)) == (chosen.rtol, chosen.atol)
    assert "z" not in noise.relax().tight


def test_a_source_that_computes_in_float32_is_not_an_exact_reference() -> None:
    """A float32 output of the float64 run shows no rounding errors, so the default remains."""
    values = np.linspace(-1, 1, 16, dtype=np.float32)

    assert {} == measure_noise([({"z": values}, {"z": values})], is_exact=True).tight


def test_noise_of_a_faint_output_may_exceed_the_default() -> None:
    """The difference of large numbers may be small, but has larger rounding errors than the default `atol` allows."""
    tolerance = MeasuredTolerance(noise=6.5e-6, bound=5.2e-5)
    noise = NoiseMeasurement(tolerances={"z": tolerance}, tight={})

    assert 5.2e-5 == choose_bound(None, None, "z", F32, half=False, noise=noise).atol


def test_noise_raises_the_default_only() -> None:
    """The tolerance that was measured in a check is the least default, but does not replace a recorded tolerance."""
    noise = NoiseMeasurement({name: MeasuredTolerance(noise=1e-4, bound=8e-4) for name in ("y", "z")})

    assert choose_bound(None, LOCKED, "y", F32, half=False, noise=noise).bound_from == "lock"
    assert ElementBound(1e-4, 8e-4, "measured", of_largest=1e-6) == choose_bound(
        None, LOCKED, "z", F32, half=False, noise=noise
    )


def _case(narrow: float, wide: float, *, dtype: Any = np.float32) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"y": np.array([1.0, -1.0, narrow], dtype)}, {"y": np.array([1.0, -1.0, wide], np.float64)}


def _tolerance(*cases: Any) -> MeasuredTolerance:
    return measure_noise(cases).tolerances["y"]


def test_noise_is_the_largest_over_cases_and_bounds_eight_times_as_much() -> None:
    """The noise is the largest difference between float32 and float64, and the bound is 8 times the noise."""
    measured = _tolerance(_case(0.5, 0.5), _case(0.5, 0.515625), _case(0.5, 0.5078125))

    assert MeasuredTolerance(noise=0.015625, bound=0.125) == measured


def test_bound_has_a_floor_that_grows_with_the_reference() -> None:
    """Without noise, the bound is a millionth of the largest value, or of 1 if all values are smaller."""
    assert _tolerance(_case(0.5, 0.5)).bound == 1e-6
    assert pytest.approx(2e-3) == _tolerance(_case(2000.0, 2000.0)).bound


def test_incomparable_output_has_no_tolerance() -> None:
    """An output with an infinity on one side, different shapes or integers has no tolerance."""
    infinite = ({"y": np.array([np.inf], np.float32)}, {"y": np.array([1e300])})
    reshaped = ({"y": np.zeros(2, np.float32)}, {"y": np.zeros(3)})
    labels = ({"y": np.zeros(2, np.int64)}, {"y": np.zeros(2, np.int64)})

    for case in (infinite, reshaped, labels):
        assert measure_noise([_case(1.0, 1.0), case]) == NoiseMeasurement()


def test_infinity_on_both_sides_is_not_noise() -> None:
    """Values that are infinite on both sides, such as masked scores, are not noise."""
    both = ({"y": np.array([-np.inf, 1.5, -1.5], np.float32)}, {"y": np.array([-np.inf, 1.484375, -1.5])})

    assert _tolerance(both).noise == 0.015625


def test_fill_values_are_not_noise() -> None:
    """The smallest number of a type, which masks positions, differs between types; it is not a rounding error."""
    narrow, wide = ({"y": np.array([np.finfo(dtype).min, 1.0, 2.0], dtype)} for dtype in (np.float32, np.float64))

    assert MeasuredTolerance(noise=0.0, bound=2e-6) == _tolerance((narrow, wide))


def test_bound_that_any_result_would_meet_is_rejected() -> None:
    """An output whose rounding errors are as large as the differences between its values has no tolerance."""
    boxes = np.linspace(0.0, 320.0, 9)
    measured = measure_noise([({"y": boxes.astype(np.float32)}, {"y": boxes + 32.0})])

    assert MeasuredTolerance(noise=32.0, bound=256.0) == measured.ill_conditioned["y"]
    assert measured.tolerances == {}


def test_constant_output_keeps_a_small_bound() -> None:
    """An output whose values hardly differ has a tolerance if that is not larger than the default."""
    constant = ({"y": np.full(4, 0.5, np.float32)}, {"y": np.full(4, 0.5 + 1e-7)})

    assert measure_noise([constant]).tolerances["y"].bound == 1e-6


@pytest.mark.parametrize(("noise", "bound"), [(2**-8, 0.015), (2**-6, 2**-5)])
def test_float16_is_loosened_only_by_its_own_noise(noise: float, bound: float) -> None:
    """The bound of a float16 output stays at the default until twice the noise exceeds it, which is reported."""
    measured = measure_noise([_case(0.5, 0.5 + noise, dtype=np.float16)])

    assert pytest.approx(bound) == measured.tolerances["y"].bound
    assert measured.loosened == ({"y": 0.015} if bound > 0.015 else {})
