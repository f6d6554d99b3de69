"""Fixes suggested by the rules of the parity stage."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from onnxgate.core.findings import Place
from onnxgate.evidence.parity import CHOSEN, Comparison, Difference
from onnxgate.rules.parity._mismatches import describe_worst
from onnxgate.rules.parity.optimization_mismatch import optimization_mismatch
from onnxgate.rules.parity.runtime_mismatch import runtime_mismatch
from onnxgate.rules.parity.source_mismatch import source_mismatch

FAR = Difference(
    output="y",
    case="sizes batch=1",
    optimization="all",
    agrees=False,
    metric="worst_abs",
    value=0.5,
    bound=1e-5,
    bound_from="type",
    detail="at [0]: 1.5 instead of 1; 1 of 4 elements differ",
)
LABELS = msgspec.structs.replace(
    FAR,
    output="label/0",
    metric="mismatched elements",
    value=2.0,
    bound=0.0,
    detail="at [3]: 4 instead of 5; 2 of 64 elements differ",
)
WORDS = msgspec.structs.replace(LABELS, detail="at [3]: 'cat' instead of 'cut'; 2 of 64 elements differ")
GENERAL = "set a tolerance above the difference, such as `tolerance = { rtol = 0, atol = 0.5 }`"
NAMED = 'set a tolerance above the difference, such as `tolerance = { "label/0" = { rtol = 0, atol = 20 } }`'


def _comparison(pair: Literal["source", "runtime", "optimization"], *differences: Difference) -> Comparison:
    return Comparison(
        model="models/m.onnx",
        place=Place("onnxgate.lock", 1),
        pair=pair,
        runtime="onnxruntime 1.31.1",
        reference="",
        differences=differences,
    )


def test_measuring_is_suggested_for_default_tolerances() -> None:
    """Measuring the tolerance is suggested, because the source's own rounding may exceed the default of its type."""
    (hit,) = source_mismatch.judge(_comparison("source", FAR))

    assert hit.fix.startswith("run `onnxgate lock --measure models/m.onnx` ")
    assert f"; if the difference exceeds these errors, export the model again, or {GENERAL}, if" in hit.fix


@pytest.mark.parametrize("bound_from", ["config", "lock"])
def test_measuring_is_not_suggested_twice(bound_from: Literal["config", "lock"]) -> None:
    """Measuring is not suggested for measured and configured tolerances."""
    difference = msgspec.structs.replace(FAR, bound_from=bound_from)
    (hit,) = source_mismatch.judge(_comparison("source", difference))
    acceptance = {
        "config": "raise the model's `tolerance` in the config if the difference is acceptable",
        "lock": f"{GENERAL}, if the difference is acceptable",
    }

    assert hit.fix == f"export the model again, or {acceptance[bound_from]}"


@pytest.mark.parametrize(
    ("rule", "pair"),
    [(source_mismatch, "source"), (runtime_mismatch, "runtime"), (optimization_mismatch, "optimization")],
)
def test_tolerance_of_integers_names_the_output(rule: Any, pair: Any) -> None:
    """Neither a general tolerance nor measuring is suggested for integers."""
    (hit,) = rule.judge(_comparison(pair, LABELS))

    assert hit.fix.endswith(f"{NAMED}, if the difference is acceptable")
    assert "--measure" not in hit.fix


@pytest.mark.parametrize(
    ("value", "atol"), [(0.17, "0.2"), (0.5, "0.5"), (2.3e-5, "3e-05"), (1.0, "1"), (37.0, "40"), (9.1, "10")]
)
def test_the_suggested_tolerance_allows_the_difference(value: float, atol: str) -> None:
    """A smaller example would lead to the same finding."""
    (hit,) = runtime_mismatch.judge(_comparison("runtime", msgspec.structs.replace(FAR, value=value)))

    assert float(atol) >= value
    assert hit.fix == (
        f"set a tolerance above the difference, such as `tolerance = {{ rtol = 0, atol = {atol} }}`, "
        "if the difference is acceptable"
    )


def test_indices_have_no_useful_tolerance() -> None:
    """A tolerance for the index of the highest score would accept any near item."""
    (hit,) = runtime_mismatch.judge(_comparison("runtime", msgspec.structs.replace(LABELS, note=CHOSEN)))

    assert hit.fix == "accept the finding with an `[[ignore]]` entry"


def test_strings_have_no_tolerance() -> None:
    """A tolerance is not suggested for strings."""
    (hit,) = runtime_mismatch.judge(_comparison("runtime", WORDS))

    assert hit.fix.endswith("accept the finding with an `[[ignore]]` entry, because strings have no tolerance")


def test_number_of_allowed_elements_is_shown() -> None:
    """The bound is shown unless it is 0."""
    some = msgspec.structs.replace(LABELS, bound=1.0)

    assert describe_worst(_comparison("source", LABELS)) == "differs in 2 of 64 elements with `sizes batch=1`"
    assert describe_worst(_comparison("source", some)) == (
        "differs in 2 of 64 elements (allowed: 1, default for the data type) with `sizes batch=1`"
    )


@pytest.mark.parametrize("metric", ["shape", "type", "outputs", "not finite"])
def test_a_tolerance_is_not_suggested_if_none_accepts_the_difference(metric: str) -> None:
    """A tolerance concerns values, but not shapes, types or NaN."""
    (hit,) = runtime_mismatch.judge(_comparison("runtime", msgspec.structs.replace(FAR, metric=metric)))

    assert hit.fix.endswith("with an `[[ignore]]` entry, because no tolerance allows this difference")


def test_differences_in_float32_concern_the_model() -> None:
    """They are measured on one runtime only, so that no other runtime is known to be without them."""
    changes = {"metric": "sqnr_db", "value": 48.1, "bound": 51.5, "detail": "in float32"}
    (hit,) = source_mismatch.judge(_comparison("source", msgspec.structs.replace(FAR, **changes)))

    assert hit.on is None
    assert hit.message == (
        "output `y` differs from the source; the model has an SNR of 48.1 dB in float32 "
        "(required: 51.5 dB, default for float16) with `sizes batch=1`"
    )
    assert hit.fix == "export the model again, or accept the finding with an `[[ignore]]` entry"
