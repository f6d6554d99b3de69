"""Outputs of float16 models: near enough element by element, and with little noise over all of them."""

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


def held(
    noise: float, *, scale: float = 1.0, comparability: NumericTraits = HALF, tolerance: Tolerance | None = None
) -> Difference:
    """Values of that scale against the same with so much noise, each as a share of the scale."""
    settings = {"y": tolerance} if tolerance else None
    spoiled = VALUES + noise * np.sign(np.random.default_rng(1).normal(size=VALUES.shape))
    arrays = [(scale * array).astype(np.float16) for array in (spoiled, VALUES)]
    model = ParityModel("m.onnx", Place("m.onnx"), comparability, settings, None)
    return measure_difference(model, ("case", "y"), "all", "source", *arrays)


@pytest.mark.parametrize(("noise", "agrees"), [(0.0, True), (0.003, True), (0.0045, True)])
def test_rounding_passes(noise: float, agrees: bool) -> None:
    """Up to half a per cent is what float16 does by itself."""
    assert agrees == held(noise).agrees


def test_noise_over_all_elements_is_found() -> None:
    """Each element is within its bound, all of them together are not."""
    found = held(0.0075, scale=0.6)

    assert (False, "sqnr_db", 45.0, "type") == (found.agrees, found.metric, found.bound, found.bound_from)
    assert 40 < found.value < 45


def test_what_cancels_may_be_noisy() -> None:
    """A small output is held to its bound alone."""
    assert held(0.015, scale=0.1).agrees


def test_bfloat16_has_fewer_bits() -> None:
    """It is held to its bound alone."""
    assert held(0.0075, scale=0.6, comparability=NumericTraits(half=True, bfloat16=True)).agrees


def test_a_tolerance_of_the_config_decides_alone() -> None:
    """Whoever gives one accepts what lies within it."""
    assert held(0.0075, scale=0.6, tolerance=Tolerance(rtol=0.01, atol=0.01)).agrees
