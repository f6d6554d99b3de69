"""Outputs of float16 models must match element by element and have little noise overall."""

from __future__ import annotations

import numpy as np
import pytest

from onnxgate.core.findings import Place
from onnxgate.evidence.parity import Difference
from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.project.config.schema import Tolerance
from onnxgate.stages.parity.output_comparison import ParityModel, measure_difference

HALF = NumericTraits(half=True)
VALUES = np.random.default_rng(0).normal(size=(8, 64))


def compare_with_noise(
    noise: float, *, scale: float = 1.0, comparability: NumericTraits = HALF, tolerance: Tolerance | None = None
) -> Difference:
    """Compare values of this scale with the same values plus noise, given relative to the scale."""
    settings = {"y": tolerance} if tolerance else None
    spoiled = VALUES + noise * np.sign(np.random.default_rng(1).normal(size=VALUES.shape))
    arrays = [(scale * array).astype(np.float16) for array in (spoiled, VALUES)]
    model = ParityModel("m.onnx", Place("m.onnx"), comparability, settings, None)
    return measure_difference(model, ("case", "y"), "all", "source", *arrays)


@pytest.mark.parametrize(("noise", "agrees"), [(0.0, True), (0.003, True), (0.0045, True)])
def test_rounding_passes(noise: float, agrees: bool) -> None:
    """Rounding noise of up to 0.5 % is normal for float16."""
    assert agrees == compare_with_noise(noise).agrees


def test_noise_over_all_elements_is_found() -> None:
    """Noise can exceed the limit overall although each element is within its bound."""
    actual = compare_with_noise(0.0075, scale=0.6)

    assert (False, "sqnr_db", 45.0, "type") == (actual.agrees, actual.metric, actual.bound, actual.bound_from)
    assert 40 < actual.value < 45


def test_cancellation_may_be_noisy() -> None:
    """A small output, as after cancellation, is compared only element by element."""
    assert compare_with_noise(0.015, scale=0.1).agrees


def test_bfloat16_has_fewer_bits() -> None:
    """bfloat16 outputs are compared only element by element."""
    assert compare_with_noise(0.0075, scale=0.6, comparability=NumericTraits(half=True, bfloat16=True)).agrees


def test_configured_tolerance_replaces_the_noise_limit() -> None:
    """A tolerance in the config replaces the noise limit."""
    assert compare_with_noise(0.0075, scale=0.6, tolerance=Tolerance(rtol=0.01, atol=0.01)).agrees
