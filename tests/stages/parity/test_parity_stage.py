"""The parity stage on stored outputs: the compared pairs, and one finding per fault."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxgate.core.findings import IncompleteCheck
from onnxgate.core.jobs import CaseResult, Crashed
from onnxgate.evidence.parity import SOURCE, Comparison
from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.numerics.tolerance import NoiseMeasurement
from onnxgate.project.config.schema import Tolerance
from onnxgate.project.lock.types import MeasuredQuantization, MeasuredTolerance
from onnxgate.stages.parity.output_comparison import OutputMask, ParityModel
from onnxgate.stages.parity.run_outputs import RunOutputs
from onnxgate.stages.parity.stage import ParityEvidence, collect_evidence, compare_with_float
from onnxgate.stages.runtime import ObservedRun
from tests.harness.recorded_runs import NEW, OLD, PLACE, case, done, ran, refused, saved

MIDDLE = "onnxruntime 1.9.5"
CASE = (case(1),)
NAME = CASE[0].name
PLAIN = ParityModel("m.onnx", PLACE, NumericTraits(), None, None)
RIGHT = np.array([[1.0, 2.0]], np.float32)
WRONG = RIGHT + 0.5


def _ran(folder: Path, runtime: str, values: Mapping[str, Any]) -> list[ObservedRun]:
    """Return one run per level; both outputs have the same values."""
    one: Sequence[Any] = CASE
    return [
        ran(runtime, level, done(saved(folder, value, value)), cases=one)  # type: ignore[arg-type]
        for level, value in values.items()
    ]


def _both(value: Any) -> dict[str, Any]:
    return {"all": value, "disabled": value}


def _gather(
    model: ParityModel,
    jobs: Sequence[ObservedRun],
    eager: Mapping[str, CaseResult] | None = None,
    unusable: Collection[str] = (),
) -> tuple[list[Comparison], list[IncompleteCheck]]:
    comparisons, undone = collect_evidence(model, jobs, eager, unusable)
    return list(comparisons), list(undone)


def _failing(comparisons: Sequence[Comparison]) -> list[tuple[str, str, str]]:
    return [
        (comparison.pair, comparison.runtime, comparison.reference)
        for comparison in comparisons
        if not all(difference.agrees for difference in comparison.differences)
    ]


def test_every_output_is_compared_with_the_source(tmp_path: Path) -> None:
    """Each runtime is compared with the source at each level, and nothing is compared twice."""
    jobs = [each for name in (OLD, NEW) for each in _ran(tmp_path, name, _both(RIGHT))]
    found, undone = _gather(PLAIN, jobs, {NAME: saved(tmp_path, RIGHT, RIGHT)})

    assert [(each.pair, each.runtime, each.reference) for each in found] == [
        ("source", OLD, "the source"),
        ("source", NEW, "the source"),
    ]
    assert [(difference.output, difference.optimization) for difference in found[0].differences] == [
        ("y", "all"),
        ("z", "all"),
        ("y", "disabled"),
        ("z", "disabled"),
    ]
    assert (_failing(found), undone) == ([], [])


def test_runtime_that_differs_is_reported_once(tmp_path: Path) -> None:
    """A runtime that differs from the source is not reported again against other runtimes or between its levels."""
    jobs = [*_ran(tmp_path, OLD, {"all": WRONG, "disabled": RIGHT}), *_ran(tmp_path, NEW, _both(RIGHT))]
    found, _ = _gather(PLAIN, jobs, {NAME: saved(tmp_path, RIGHT, RIGHT)})

    assert _failing(found) == [("source", OLD, "the source")]
    assert [difference.optimization for difference in found[0].differences if not difference.agrees] == ["all", "all"]


def test_without_a_source_the_newest_runtime_is_the_reference(tmp_path: Path) -> None:
    """Versions are ordered numerically (1.10.0 is newer than 1.9.5), and the differing runtime is named."""
    values = {OLD: _both(RIGHT), MIDDLE: _both(WRONG), NEW: _both(RIGHT)}
    jobs = [each for name, value in values.items() for each in _ran(tmp_path, name, value)]
    found, _ = _gather(PLAIN, jobs)

    assert _failing(found) == [("runtime", MIDDLE, NEW)]
    assert [each.runtime for each in found if each.pair == "runtime"] == [OLD, MIDDLE]


def test_levels_that_differ_are_one_fault(tmp_path: Path) -> None:
    """A difference between the levels of one release is reported for that release, even if it is the reference."""
    for wrong in (OLD, NEW):
        values = {name: {"all": WRONG if name == wrong else RIGHT, "disabled": RIGHT} for name in (OLD, MIDDLE, NEW)}
        jobs = [each for name, value in values.items() for each in _ran(tmp_path, name, value)]
        found, _ = _gather(PLAIN, jobs)

        assert _failing(found) == [("optimization", wrong, "optimization disabled")]


def test_level_without_optimisation_is_compared_all_the_same(tmp_path: Path) -> None:
    """A difference between levels does not hide that the unoptimized graph differs from the reference."""
    jobs = [*_ran(tmp_path, OLD, {"all": RIGHT, "disabled": WRONG}), *_ran(tmp_path, NEW, _both(RIGHT))]
    found, _ = _gather(PLAIN, jobs)

    assert _failing(found) == [("optimization", OLD, "optimization disabled"), ("runtime", OLD, NEW)]


def test_newest_runtime_that_ran_is_the_reference(tmp_path: Path) -> None:
    """A runtime that crashed is not the reference."""
    crashed = [ran(NEW, level, Crashed(signal="SIGSEGV", during="load", log="")) for level in ("all", "disabled")]  # type: ignore[arg-type]
    jobs = [*crashed, *_ran(tmp_path, MIDDLE, _both(RIGHT)), *_ran(tmp_path, OLD, _both(WRONG))]
    found, _ = _gather(PLAIN, jobs)

    assert _failing(found) == [("runtime", OLD, MIDDLE)]


def test_another_number_of_outputs_differs(tmp_path: Path) -> None:
    """Different numbers of outputs are a mismatch; runtimes are still compared with each other."""
    jobs = [*_ran(tmp_path, OLD, {"all": WRONG}), *_ran(tmp_path, NEW, {"all": RIGHT})]
    found, _ = _gather(PLAIN, jobs, {NAME: saved(tmp_path, RIGHT)})
    (difference,) = found[0].differences

    assert (difference.metric, difference.output, difference.detail) == ("outputs", "", "2 outputs instead of 1")
    assert _failing(found) == [("source", OLD, "the source"), ("source", NEW, "the source"), ("runtime", OLD, NEW)]


def test_figures_are_those_of_the_worst_element(tmp_path: Path) -> None:
    """The evidence contains the largest difference, its bound and the origin of the tolerance."""
    model = ParityModel("m.onnx", PLACE, NumericTraits(), {"y": Tolerance(rtol=0.1, atol=0.05)}, None)
    found, _ = _gather(model, _ran(tmp_path, NEW, {"all": WRONG}), {NAME: saved(tmp_path, RIGHT, RIGHT)})
    named, other = found[0].differences

    assert (named.value, named.bound, named.bound_from) == (0.5, pytest.approx(0.15), "config")
    assert (other.bound, other.bound_from) == (pytest.approx(1.1e-4), "type")
    assert named.detail == "at [0, 0]: 1.5 instead of 1; 2 of 2 elements differ"


def test_half_precision_inside_widens_the_default(tmp_path: Path) -> None:
    """A float32 output that was computed in float16 has the noise of float16."""
    near = RIGHT + np.float32(1e-3)
    for half, expected in ((True, []), (False, [("source", NEW, "the source")])):
        model = ParityModel("m.onnx", PLACE, NumericTraits(half=half), None, None)
        found, _ = _gather(model, _ran(tmp_path, NEW, {"all": near}), {NAME: saved(tmp_path, RIGHT, RIGHT)})

        assert _failing(found) == expected


def test_random_outputs_are_not_compared(tmp_path: Path) -> None:
    """Random outputs are not compared, and the reason is recorded."""
    drawn = NumericTraits(random=("RandomNormalLike",), random_outputs=frozenset({"y", "z"}))
    model = ParityModel("m.onnx", PLACE, drawn, {"rtol": 1.0}, None)
    found, undone = _gather(model, [*_ran(tmp_path, OLD, _both(RIGHT)), *_ran(tmp_path, NEW, _both(WRONG))])

    assert found == []
    assert [(entry.reason, entry.by_design) for entry in undone] == [
        ("all outputs depend on random operators (`RandomNormalLike`)", True)
    ]


def test_models_without_outputs(tmp_path: Path) -> None:
    """Nothing is compared, and the reason is not a random operator."""
    run = ran(OLD, "all", done(saved(tmp_path), outputs=()), cases=CASE)
    _, undone = _gather(PLAIN, [run])

    assert [entry.reason for entry in undone] == ["the model has no outputs"]


QUANTIZED = NumericTraits(quantized=("QuantizeLinear",))


def test_quantized_outputs_are_compared_by_ratio(tmp_path: Path) -> None:
    """Quantized outputs are compared by signal-to-noise ratio, or element by element if the config sets a tolerance."""
    signal = np.sin(np.arange(80, dtype=np.float32)).reshape(2, 40)
    stepped = signal + np.float32(0.02) * (np.arange(80).reshape(2, 40) % 3 == 0)
    by_element = {"rtol": 0.0, "atol": 1e-3}
    for value, tolerance, expected in (
        (stepped, None, []),
        (-signal, None, [("runtime", OLD, NEW)]),
        (stepped, by_element, [("runtime", OLD, NEW)]),
    ):
        jobs = [*_ran(tmp_path, OLD, _both(value)), *_ran(tmp_path, NEW, _both(signal))]
        found, undone = _gather(ParityModel("m.onnx", PLACE, QUANTIZED, tolerance, None), jobs)

        assert (_failing(found), undone) == (expected, [])


WEIGHTS_ONLY = NumericTraits(quantized=("DequantizeLinear",), weights_only=True, has_quantized_factors=True)


def test_optimizer_may_quantize_the_inputs_of_quantized_weights(tmp_path: Path) -> None:
    """The noise of int8 inputs, which only the optimizer adds, is a note; larger differences are faults."""
    signal = np.sin(np.arange(80, dtype=np.float32)).reshape(2, 40)
    noisy = signal + np.float32(0.01) * np.cos(7 * np.arange(80, dtype=np.float32)).reshape(2, 40)
    scaled = signal * np.where(np.arange(40) == 1, np.float32(4), np.float32(1))
    convolution = replace(WEIGHTS_ONLY, has_quantized_factors=False)
    for traits, outputs, expected in (
        (WEIGHTS_ONLY, {"all": noisy, "disabled": signal}, []),
        (WEIGHTS_ONLY, {"all": scaled, "disabled": signal}, [("optimization", NEW, "optimization disabled")]),
        (convolution, {"all": noisy, "disabled": signal}, [("optimization", NEW, "optimization disabled")]),
        (WEIGHTS_ONLY, _both(noisy), [("runtime", OLD, NEW)]),
    ):
        jobs = [*_ran(tmp_path, OLD, _both(signal)), *_ran(tmp_path, NEW, outputs)]
        found, undone = _gather(ParityModel("m.onnx", PLACE, traits, None, None), jobs)

        assert _failing(found) == expected
        assert all(entry.by_design and "was compared by SNR only (40 dB)" in entry.reason for entry in undone)
        assert bool(undone) == (outputs["all"] is noisy and traits is WEIGHTS_ONLY)


def test_reference_with_the_same_weights_is_compared_by_element(tmp_path: Path) -> None:
    """A source with the dequantized weights differs from the model by rounding in float32 only."""
    signal = np.sin(np.arange(80, dtype=np.float32)).reshape(2, 40)
    noisy = signal + np.float32(0.01) * np.cos(7 * np.arange(80, dtype=np.float32)).reshape(2, 40)
    eager = {NAME: saved(tmp_path, signal, signal)}
    for traits, is_same, expected in (
        (WEIGHTS_ONLY, True, [("source", NEW, SOURCE)]),
        (WEIGHTS_ONLY, False, []),
        (QUANTIZED, True, []),
    ):
        model = ParityModel("m.onnx", PLACE, traits, None, None, has_same_weights=is_same)
        found, _ = _gather(model, _ran(tmp_path, NEW, {"disabled": noisy}), eager)

        assert _failing(found) == expected


def test_few_bits_are_less_accurate(tmp_path: Path) -> None:
    """Weights with 4 bits have other default metrics, but only in a comparison with the float model."""
    signal = np.sin(np.arange(80, dtype=np.float32)).reshape(2, 40)
    noisy = signal + np.float32(0.2) * np.cos(7 * np.arange(80, dtype=np.float32)).reshape(2, 40)
    float_outputs = RunOutputs(("y", "z"), {(NAME, name): str(saved(tmp_path, signal).outputs[0]) for name in "yz"})
    for low_bits, expected in ((True, []), (False, [("quantized", NEW, "f.onnx")])):
        model = ParityModel("m.onnx", PLACE, replace(QUANTIZED, low_bits=low_bits), None, None)
        found, _ = compare_with_float(model, _ran(tmp_path, NEW, {"all": noisy}), float_outputs, "f.onnx")
        levels, _ = _gather(model, _ran(tmp_path, NEW, {"all": noisy, "disabled": signal}))

        assert _failing(found) == expected
        assert _failing(levels) == [("optimization", NEW, "optimization disabled")]


def test_few_labels_of_a_quantized_model_decide_nothing(tmp_path: Path) -> None:
    """Too few differing labels leave the check undecided, unless other outputs were compared."""
    labels, other = np.array([1, 2, 3]), np.array([1, 2, 4])
    numbers = np.ones((2, 20), np.float32)
    for beside, expected in ((None, False), (numbers, True)):
        jobs = [
            ran(name, "all", done(saved(tmp_path, value, value if beside is None else beside)), cases=CASE)
            for name, value in ((OLD, labels), (NEW, other))
        ]
        found, undone = _gather(ParityModel("m.onnx", PLACE, QUANTIZED, None, None), jobs)

        assert _failing(found) == []
        assert {entry.by_design for entry in undone} == {expected}


def test_quantized_model_against_its_float_model(tmp_path: Path) -> None:
    """Outputs are matched by name or else by position, and compared by ratio even if a tolerance is set."""
    jobs = [*_ran(tmp_path, OLD, _both(RIGHT)), *_ran(tmp_path, NEW, {"all": RIGHT, "disabled": -RIGHT})]
    right, other = (str(path) for path in saved(tmp_path, RIGHT, -RIGHT).outputs)
    loose = ParityModel("m.onnx", PLACE, QUANTIZED, {"rtol": 9.0, "atol": 9.0}, None)
    named = RunOutputs(("z", "y"), {(NAME, "y"): right, (NAME, "z"): right})
    placed = RunOutputs(("a", "b"), {(NAME, "a"): right, (NAME, "b"): other})
    by_name, _ = compare_with_float(loose, jobs, named, "f.onnx")
    by_place, _ = compare_with_float(loose, jobs, placed, "f.onnx")

    assert _failing(by_name) == [("quantized", NEW, "f.onnx")]
    assert [(difference.output, difference.agrees) for difference in by_place[0].differences] == [
        ("y", True),
        ("z", False),
    ] * 2
    assert by_name[0].differences[0].metric == "sqnr_db"


def test_case_that_the_float_model_refused(tmp_path: Path) -> None:
    """The case is not checked."""
    jobs = _ran(tmp_path, NEW, {"all": RIGHT})
    found, undone = compare_with_float(PLAIN, jobs, RunOutputs(("y", "z"), {}), "f.onnx")

    assert (found, [entry.reason for entry in undone]) == ((), [f"the float model `f.onnx` has no result for `{NAME}`"])


def test_masked_positions_are_left_out(tmp_path: Path) -> None:
    """Differences in masked positions are counted and are not a mismatch."""
    mask = str(saved(tmp_path, np.array([[1, 0]])).outputs[0])
    for place, expected in ((1, []), (0, [("runtime", OLD, NEW)])):
        other = RIGHT.copy()
        other[0, place] += 0.5
        jobs = [*_ran(tmp_path, OLD, {"all": other}), *_ran(tmp_path, NEW, {"all": RIGHT})]
        masks = {(NAME, "y"): OutputMask(mask, ones_keep=True), (NAME, "z"): OutputMask(mask, ones_keep=True)}
        found, _ = _gather(ParityModel("m.onnx", PLACE, NumericTraits(), None, None, masks=masks), jobs)
        told = {figure.metric: figure.value for figure in found[0].differences[0].figures}

        assert _failing(found) == expected
        assert told["masked elements"] == place


def test_mismatch_has_all_figures(tmp_path: Path) -> None:
    """A mismatch has all figures, and a match only the deciding one."""
    jobs = [*_ran(tmp_path, OLD, {"all": WRONG}), *_ran(tmp_path, NEW, {"all": RIGHT})]
    found, _ = _gather(PLAIN, jobs)
    same, _ = _gather(PLAIN, [*_ran(tmp_path, OLD, {"all": RIGHT}), *_ran(tmp_path, NEW, {"all": RIGHT})])
    told = {figure.metric: figure.value for figure in found[0].differences[0].figures}

    assert told.keys() >= {"sqnr_db", "cosine", "max_abs", "median_abs", "p99_abs", "max_rel", "max_ulp", "top1"}
    assert told["sqnr_db"] == pytest.approx(10.0, abs=0.01)
    assert same[0].differences[0].figures == ()


def test_incomplete_comparison_has_a_reason(tmp_path: Path) -> None:
    """A reason is recorded if the source fails, an output is not an array, or the inputs cannot be run."""
    jobs = _ran(tmp_path, NEW, {"all": RIGHT})
    _, failed = _gather(PLAIN, jobs, {NAME: refused("index out of range in self")})
    _, absent = _gather(PLAIN, jobs, {})
    _, no_array = _gather(PLAIN, jobs, {NAME: saved(tmp_path, None, RIGHT)})
    _, unusable = _gather(PLAIN, jobs, None, ["sizes batch=3"])

    assert [each.reason for each in failed] == [
        "the source has no result for `sizes batch=1`: Fail: index out of range in self"
    ]
    assert [each.reason for each in absent] == ["the source has no result for `sizes batch=1`"]
    assert [each.reason for each in no_array] == ["output `y` cannot be compared: NumPy does not support its type"]
    assert [each.reason for each in unusable] == ["the model does not run on the inputs of `sizes batch=3`"]


def test_output_without_source_is_compared_between_runtimes(tmp_path: Path) -> None:
    """Only outputs that the source does not provide are compared between runtimes."""
    jobs = [*_ran(tmp_path, OLD, {"all": WRONG}), *_ran(tmp_path, NEW, {"all": RIGHT})]
    found, _ = _gather(PLAIN, jobs, {NAME: saved(tmp_path, None, RIGHT)})
    (between,) = [each for each in found if each.pair == "runtime"]

    assert [difference.output for difference in between.differences] == ["y"]
    assert _failing(found) == [("source", OLD, "the source"), ("runtime", OLD, NEW)]


def test_one_runtime_at_one_level_has_nothing_to_compare(tmp_path: Path) -> None:
    """Without a source, one runtime at one level results in no comparison and no incomplete check."""
    assert _gather(PLAIN, _ran(tmp_path, NEW, {"all": RIGHT})) == ([], [])


def test_few_integers_may_differ_in_float16_models(tmp_path: Path) -> None:
    """A small share of integer outputs may differ in a float16 model; in a float32 model they must be equal."""
    labels, near = np.zeros(200, np.int64), np.zeros(200, np.int64)
    near[:2] = 1
    jobs, eager = _ran(tmp_path, NEW, _both(near)), {NAME: saved(tmp_path, labels, labels)}
    half = ParityModel("m.onnx", PLACE, NumericTraits(half=True), None, None)

    assert _failing(_gather(half, jobs, eager)[0]) == []
    assert _failing(_gather(PLAIN, jobs, eager)[0]) == [("source", NEW, "the source")]


def test_only_outputs_without_randomness_are_compared(tmp_path: Path) -> None:
    """Outputs that do not depend on a random operator are still compared."""
    random = NumericTraits(random=("Bernoulli",), random_outputs=frozenset({"y"}))
    model = ParityModel("m.onnx", PLACE, random, None, None)
    found, undone = _gather(model, _ran(tmp_path, NEW, _both(WRONG)), {NAME: saved(tmp_path, RIGHT, RIGHT)})

    assert {difference.output for difference in found[0].differences} == {"z"}
    assert _failing(found) == [("source", NEW, "the source")]
    assert [(entry.reason, entry.by_design) for entry in undone] == [
        ("output `y` depends on random operators (`Bernoulli`)", True)
    ]


def test_nan_on_both_sides_is_not_compared(tmp_path: Path) -> None:
    """Outputs that are NaN on both sides are not compared, and the reason is recorded."""
    blank = np.full_like(RIGHT, np.nan)
    jobs = [*_ran(tmp_path, OLD, _both(blank)), *_ran(tmp_path, NEW, _both(blank))]
    found, undone = _gather(PLAIN, jobs, {NAME: saved(tmp_path, blank, blank)})

    assert found == []
    reason = f"outputs `y`, `z` cannot be compared: all elements are NaN in both results with `{NAME}`"
    assert [(reason, "nan y z")] == [(entry.reason, entry.cause) for entry in undone]


def test_output_near_zero_is_not_checked(tmp_path: Path) -> None:
    """An output near zero is not checked, unless it is equal or its tolerance is configured."""
    small = RIGHT * np.float32(1e-8)
    jobs = _ran(tmp_path, NEW, {"all": small * np.float32(1.01)})
    eager = {NAME: saved(tmp_path, small, small)}
    held_to = Tolerance(rtol=0.1, atol=0.0)
    own = ParityModel("m.onnx", PLACE, NumericTraits(), {"y": held_to, "z": held_to}, None)
    _, undone = _gather(PLAIN, jobs, eager)
    _, held = _gather(own, jobs, eager)
    _, equal = _gather(PLAIN, _ran(tmp_path, NEW, {"all": small}), eager)

    assert [(entry.reason, entry.by_design) for entry in undone] == [
        (
            f"output `{name}` differs from zero by less than its tolerance (1e-05), so any output near zero would pass",
            False,
        )
        for name in "yz"
    ]
    assert (held, equal) == ([], [])


def test_output_that_is_always_zero_is_reported(tmp_path: Path) -> None:
    """Zeros agree with zeros, but most faults would not change them; one case with other values is enough."""
    zero = np.zeros_like(RIGHT)
    found, undone = _gather(PLAIN, _ran(tmp_path, NEW, {"all": zero}), {NAME: saved(tmp_path, zero, zero)})
    _, other = _gather(PLAIN, _ran(tmp_path, NEW, {"all": RIGHT}), {NAME: saved(tmp_path, RIGHT, RIGHT)})

    assert _failing(found) == []
    assert [(entry.reason, entry.by_design) for entry in undone] == [
        (f"output `{name}` is zero in all cases, so faults in the nodes before it may not change it", True)
        for name in "yz"
    ]
    assert other == []


def test_constant_output_may_be_zero(tmp_path: Path) -> None:
    """Faults of a constant output are not hidden by the inputs."""
    zero = np.zeros_like(RIGHT)
    model = replace(PLAIN, comparability=NumericTraits(constant_outputs=frozenset({"y"})))
    _, undone = _gather(model, _ran(tmp_path, NEW, {"all": zero}), {NAME: saved(tmp_path, zero, zero)})

    assert ["output `z` is zero in all cases, so faults in the nodes before it may not change it"] == [
        entry.reason for entry in undone
    ]


def test_numbers_in_place_of_nan_differ(tmp_path: Path) -> None:
    """Numbers where the source has NaN are a mismatch."""
    blank = np.full_like(RIGHT, np.nan)
    found, undone = _gather(PLAIN, _ran(tmp_path, NEW, {"all": RIGHT}), {NAME: saved(tmp_path, blank, blank)})

    assert (_failing(found), undone) == ([("source", NEW, "the source")], [])


def _source_noise(folder: Path, bound: float, *, ill_conditioned: bool = False) -> ParityEvidence:
    """Compare outputs that are off by 0.5 with a source whose measured tolerance is `bound`."""
    measured = {name: MeasuredTolerance(noise=bound / 8, bound=bound) for name in ("y", "z")}
    noise = NoiseMeasurement(ill_conditioned=measured) if ill_conditioned else NoiseMeasurement(measured)
    jobs = _ran(folder, NEW, {"all": WRONG})
    return collect_evidence(replace(PLAIN, noise=noise), jobs, {NAME: saved(folder, RIGHT, RIGHT)}, ())


@pytest.mark.parametrize(("bound", "agrees"), [(0.6, True), (0.4, False)])
def test_rounding_errors_of_the_source_are_not_a_mismatch(tmp_path: Path, bound: float, agrees: bool) -> None:
    """A difference beyond the default is a mismatch only if it also exceeds the tolerance measured in this check."""
    (found,), undone = _source_noise(tmp_path, bound)

    assert {(agrees, "measured")} == {(each.agrees, each.bound_from) for each in found.differences}
    assert undone == ()


def test_ill_conditioned_output_is_undecided(tmp_path: Path) -> None:
    """A difference within the rounding errors of an ill-conditioned output is neither a mismatch nor a pass."""
    found, undone = _source_noise(tmp_path, 0.6, ill_conditioned=True)
    farther, _ = _source_noise(tmp_path, 0.4, ill_conditioned=True)

    assert (found, [reason.by_design for reason in undone]) == ((), [False, False])
    assert "output `y` is ill-conditioned: rounding errors change it by 0.075" in undone[0].reason
    assert _failing(farther) == [("source", NEW, "the source")]


NOISY = RIGHT * np.array([[1.0, -1.0]], np.float32)


@pytest.mark.parametrize(
    ("value", "accuracy_db", "is_undecided"),
    [
        (NOISY, 5.0, True),
        (NOISY, 15.0, False),
        (np.zeros((2, 2), np.float32), 5.0, False),
        (RIGHT.astype(np.int64), 5.0, False),
        (np.full_like(RIGHT, np.inf), 5.0, False),
    ],
    ids=["noisy", "accurate", "shape", "type", "infinite"],
)
def test_inaccurate_output_is_undecided(tmp_path: Path, value: Any, accuracy_db: float, *, is_undecided: bool) -> None:
    """Rounding in a quantized model explains other values, but neither another shape or type nor infinite values."""
    accuracy = MeasuredQuantization(sqnr_db=accuracy_db, cosine=0.5, top1=0.0, source="", runtime=NEW)
    noise = NoiseMeasurement(accuracy={"y": accuracy, "z": accuracy})
    model = replace(PLAIN, comparability=NumericTraits(quantized=True), noise=noise)
    jobs = [*_ran(tmp_path, OLD, {"all": value}), *_ran(tmp_path, NEW, {"all": RIGHT})]
    found, undone = _gather(model, jobs)

    assert _failing(found) == ([] if is_undecided else [("runtime", OLD, NEW)])
    assert is_undecided == any("rounding alone limits its SNR to 5 dB" in entry.reason for entry in undone)
