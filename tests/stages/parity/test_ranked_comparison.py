"""Ranked outputs in the parity stage: unstable items are reported as not compared, all other items must agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onnxgate.evidence.parity import CHOSEN
from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.model.ranked_outputs import RankedOutputs
from onnxgate.numerics.tolerance import NoiseMeasurement
from onnxgate.project.lock.types import MeasuredTolerance
from onnxgate.stages.parity.output_comparison import ParityModel
from onnxgate.stages.parity.stage import collect_evidence
from tests.harness.recorded_runs import NEW, OLD, PLACE, case, done, ran, saved

MODEL = ParityModel("m.onnx", PLACE, NumericTraits(), None, None, ranked=(RankedOutputs({"y": None, "z": None}),))
BOXES = np.array([[1.0, 2.0], [30.0, 40.0], [5.0, 6.0]], np.float32)
SCORES = np.array([0.9, 0.5, 0.2], np.float32)


@pytest.mark.parametrize(("is_unstable", "expected"), [(True, []), (False, ["y", "z"])])
def test_fewer_items(tmp_path: Path, is_unstable: bool, expected: list[str]) -> None:
    """An item that one runtime does not list is accepted, with a note, if nearly equal inputs make it appear."""
    runs = [
        ran(runtime, "all", done(saved(tmp_path, BOXES[:count], SCORES[:count])), cases=(case(1),))
        for runtime, count in ((OLD, 2), (NEW, 3))
    ]
    count = 3 if is_unstable else 2
    again = dict(zip("yz", saved(tmp_path, BOXES[:count], SCORES[:count]).outputs, strict=True))
    nearby = {name: path for name, path in again.items() if path is not None}
    (comparison,), undone = collect_evidence(MODEL, runs, None, (), lambda *key: [nearby])
    notes = ["1 of 3 items of outputs `y`, `z` change with rounding errors (scores up to 0.2) and were not compared"]

    assert [it.output for it in comparison.differences if not it.agrees] == expected
    assert [reason.reason for reason in undone] == (notes if is_unstable else [])
    assert all(reason.by_design for reason in undone)


def test_chaotic_selection_is_undecided(tmp_path: Path) -> None:
    """If rounding errors decide about all items, the outputs are not a finding but were not compared either."""
    runs = [
        ran(runtime, "all", done(saved(tmp_path, BOXES + 100 * index, SCORES)), cases=(case(1),))
        for index, runtime in enumerate((OLD, NEW))
    ]
    again = [saved(tmp_path, BOXES + 1000 * index, SCORES).outputs for index in range(1, 9)]
    nearby = [{name: str(path) for name, path in zip("yz", outputs, strict=True)} for outputs in again]
    (comparison,), (reason,) = collect_evidence(MODEL, runs, None, (), lambda *key: nearby)

    assert all(it.agrees for it in comparison.differences)
    assert not reason.by_design
    assert "outputs `y`, `z` are ill-conditioned" in reason.reason


def test_noise_by_position_does_not_hide_items(tmp_path: Path) -> None:
    """If rounding errors move items to other positions, the items are compared nevertheless."""
    wrong = BOXES + np.array([[0, 0], [1, 0], [0, 0]], np.float32)
    runs = [
        ran(runtime, "all", done(saved(tmp_path, boxes, SCORES)), cases=(case(1),))
        for runtime, boxes in ((OLD, wrong), (NEW, BOXES))
    ]
    noise = NoiseMeasurement(ill_conditioned=dict.fromkeys("yz", MeasuredTolerance(noise=50.0, bound=400.0)))
    (comparison,), undone = collect_evidence(replace(MODEL, noise=noise), runs, None, ())

    assert [it.output for it in comparison.differences if not it.agrees] == ["y"]
    assert undone == ()


@pytest.mark.parametrize(("is_ordered", "expected"), [(True, ["y"]), (False, [])])
def test_unsorted_items_may_have_another_order(tmp_path: Path, is_ordered: bool, expected: list[str]) -> None:
    """With `sorted=False`, PyTorch and each runtime list the items in an order of their own."""
    runs = [
        ran(runtime, "all", done(saved(tmp_path, boxes), outputs="y"), cases=(case(1),))
        for runtime, boxes in ((OLD, BOXES), (NEW, BOXES[[2, 0, 1]]))
    ]
    ranked = RankedOutputs({"y": -2}, is_ordered=is_ordered)
    (comparison,), _ = collect_evidence(replace(MODEL, ranked=(ranked,)), runs, None, ())

    assert expected == [it.output for it in comparison.differences if not it.agrees]


def test_unsorted_items_are_compared(tmp_path: Path) -> None:
    """Another item is found although the order does not matter."""
    runs = [
        ran(runtime, "all", done(saved(tmp_path, boxes), outputs="y"), cases=(case(1),))
        for runtime, boxes in ((OLD, BOXES), (NEW, BOXES[[2, 0, 0]]))
    ]
    ranked = RankedOutputs({"y": -2}, is_ordered=False)
    (comparison,), _ = collect_evidence(replace(MODEL, ranked=(ranked,)), runs, None, ())

    assert ["y"] == [it.output for it in comparison.differences if not it.agrees]


def test_integers_that_depend_on_a_selection_are_marked(tmp_path: Path) -> None:
    """Advice depends on it: no tolerance is useful for the index of the highest score."""
    runs = [
        ran(runtime, "all", done(saved(tmp_path, np.array(index)), outputs="y"), cases=(case(1),))
        for runtime, index in ((OLD, [3, 1]), (NEW, [90, 1]))
    ]
    ranked = RankedOutputs({"y": None}, positional=True)
    (comparison,), _ = collect_evidence(replace(MODEL, ranked=(ranked,)), runs, None, ())

    assert [(False, CHOSEN)] == [(it.agrees, it.note) for it in comparison.differences]
