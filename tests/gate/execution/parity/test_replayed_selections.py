"""Comparison with the selections of the source, on runs by the reference implementation of ONNX."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import onnx
import pytest

from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.jobs import (
    CaseResult,
    Completed,
    Export,
    ExportResult,
    InputCase,
    Job,
    Observation,
    Run,
    SourceSelection,
    Unavailable,
)
from onnxgate.evidence.parity import SELECTED, FirstDifference, find_mismatches
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns, SourceRuns, list_run_outputs
from onnxgate.gate.execution.parity.mismatch_search import MismatchSearch, SearchedModel
from onnxgate.gate.execution.parity.replayed_selections import ReplayedComparison, ReplayedRuns
from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.model.ranked_outputs import RankedOutputs
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.worker_spec import JobLimits
from onnxgate.stages.parity.output_comparison import ParityModel
from onnxgate.stages.parity.ranked_comparison import ILL_CONDITIONED
from onnxgate.stages.parity.stage import ParityEvidence, collect_evidence
from onnxgate.stages.runtime import ObservedRun, plan_run
from tests.gate.execution.parity.test_nearby_runs import Session
from tests.harness.models import parse
from tests.harness.recorded_runs import PLACE

DETECTOR = """g (float[6] x, float[6, 2] boxes) => (float[2, 2] y) {
  one = Constant<value = float {1.0}>()  scores = Mul(x, one)
  k = Constant<value_ints = [2]>()  v, i = TopK<axis = 0>(scores, k)
  z = Gather(boxes, i)  y = Neg(z) }"""
ARGMAX = """g (float[6] x, float[6, 2] boxes) => (float[3, 2] y) {
  one = Constant<value = float {1.0}>()  scores = Mul(x, one)
  k = Constant<value_ints = [3]>()  v, i = TopK<axis = 0>(scores, k)
  z = Gather(boxes, i)  n = Neg(z)  a = ArgMax<keepdims = 0>(x)  f = Cast<to = 1>(a)
  error = Constant<value = float[3, 1] {0, 0, 0}>()  e = Add(n, error)  y = Add(e, f) }"""
CASCADE = ARGMAX.replace("f = Cast<to = 1>(a)", "b = ArgMax<keepdims = 0>(a)  c = Sub(a, b)  f = Cast<to = 1>(c)")
CASCADE = CASCADE.replace("a = ArgMax<keepdims = 0>(x)", "a = ArgMax(x)")
TWO = DETECTOR.replace("z = Gather", "high = Add(x, one)  w, j = TopK<axis = 0>(high, k)  z = Gather")
WRONG_SCORES = DETECTOR.replace("{1.0}", "{1.1}")
WRONG_BOXES = DETECTOR.replace("Neg(z)", "Exp(z)")
SMALLEST = DETECTOR.replace("<axis = 0>", "<axis = 0, largest = 0>")
SUPPRESSING = """g (float[6] x, float[6, 2] boxes) => (float[n, 2] y) {
  zero = Constant<value = int64 {0}>()  one = Constant<value = float {1.0}>()
  size = Constant<value_ints = [1, 6, 4]>()  row = Constant<value_ints = [1, 1, 6]>()
  n = Size(x)  is_empty = Equal(n, zero)
  kept = If(is_empty)<
    then_branch = none () => (int64[m] k) { k = Constant<value = int64[0] {}>() },
    else_branch = some () => (int64[m] k) {
      scaled = Mul(boxes, one)  high = Add(scaled, one)  corners = Concat<axis = 1>(scaled, high)
      all = Reshape(corners, size)  scores = Reshape(x, row)
      most = Constant<value_ints = [9]>()  least = Constant<value_floats = [0.5]>()
      chosen = NonMaxSuppression(all, scores, most, least)
      last = Constant<value_ints = [2]>()  gathered = Gather<axis = 1>(chosen, last)
      axes = Constant<value_ints = [1]>()  k = Squeeze(gathered, axes)
    }>
  z = Gather(boxes, kept)  y = Neg(z) }"""
LOWEST = """g (float[6] x, float[6, 2] boxes) => (float[1, 2] y) {
  one = Constant<value = float {1.0}>()  step = Constant<value = float {1.2e-7}>()
  s = Mul(x, step)  near = Add(s, one)  i = ArgMin<axis = 0>(near)  y = Gather(boxes, i) }"""
LOWEST_RANKED = LOWEST.replace("i = ArgMin<axis = 0>(near)", "v, i = TopK<axis = 0, largest = 0>(near, k)").replace(
    "one =", "k = Constant<value_ints = [1]>()  one =", 1
)
IMAGES = """g (float[6] x, float[6, 2] boxes) => (float[n, 2] y) {
  one = Constant<value = float {1.0}>()  half = Constant<value = float {0.5}>()
  size = Constant<value_ints = [1, 6, 4]>()  row = Constant<value_ints = [1, 1, 6]>()
  high = Add(boxes, one)  corners = Concat<axis = 1>(boxes, high)  all = Reshape(corners, size)
  scores = Reshape(x, row)  other = Mul(scores, half)
  most = Constant<value_ints = [9]>()  few = Constant<value_ints = [9]>()  least = Constant<value_floats = [0.5]>()
  first = NonMaxSuppression(all, scores, most, least)  second = NonMaxSuppression(all, other, few, least)
  chosen = Concat<axis = 0>(first, second)  last = Constant<value_ints = [2]>()
  gathered = Gather<axis = 1>(chosen, last)  axes = Constant<value_ints = [1]>()  kept = Squeeze(gathered, axes)
  z = Gather(boxes, kept)  y = Neg(z) }"""
Operator = Literal["TopK", "NonMaxSuppression", "ArgMax"]
NUMBERS = itertools.count()
SCORES = np.array([1, 1, 1, 0, 1, 1], np.float32)
BOXES = np.arange(12, dtype=np.float32).reshape(6, 2)
RUNTIME = LockedRuntime(engine="onnxruntime", release="1.31.1", python="3.11")
PLANNED = PlannedRuntime(RUNTIME, ("server",), ("all",), ("CPUExecutionProvider",), required=True)
OLD = PlannedRuntime(
    LockedRuntime(engine="onnxruntime", release="1.18.1", python="3.11"),
    ("server",),
    ("all",),
    ("CPUExecutionProvider",),
    required=True,
)
MODEL = ParityModel("m.onnx", PLACE, NumericTraits(), None, None, ranked=(RankedOutputs({"y": None}),))
UNDECIDED = IncompleteCheck(Stage.PARITY, "m.onnx", "", "rounding errors decide", cause=f"{ILL_CONDITIONED}y")
OTHER = IncompleteCheck(Stage.PARITY, "m.onnx", "", "another reason", cause="nan y")


def run_source(folder: Path, *selected: list[int], is_reversed: bool = False) -> Observation:
    """Return the outputs of a source that makes these selections; the boxes are those of the first one.

    If `is_reversed`, the source makes the selections in reverse order, and the scores of the second one are larger.
    """
    numbered = [*enumerate(selected)]
    records = [
        record(folder, "TopK", scores=SCORES[indices] + number * is_reversed, indices=np.array(indices))
        for number, indices in (reversed(numbered) if is_reversed else numbered)
    ]
    return answer(folder, -BOXES[selected[0]], *records)


def record(folder: Path, operator: Operator, largest: bool = True, **arrays: Any) -> SourceSelection:
    """Write the arrays of a selection of the source."""
    folder = folder / f"selection{next(NUMBERS)}"
    folder.mkdir()
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    paths = {name: str(folder / f"{name}.npy") for name in arrays}
    return SourceSelection(operator=operator, largest=largest, **paths)


def answer(folder: Path, output: Any, *selections: SourceSelection) -> Observation:
    """Return a result of the source."""
    path = folder / "source.npy"
    np.save(path, output)
    result = CaseResult(outputs=(str(path),), selections=selections)
    return Completed(result=ExportResult(model=None, eager=(result,)))


@dataclass(frozen=True)
class Result:
    """Comparisons with the source, with what the search for the first node needs."""

    evidence: ParityEvidence
    replayed: ReplayedRuns | None
    extra: ExtraRuns
    source: SourceRuns
    path: Path


def compare(folder: Path, text: str, sourced: Observation, model: ParityModel = MODEL) -> ParityEvidence:
    """Compare a model whose boxes are undecided with its source."""
    return compare_runs(folder, text, sourced, model).evidence


def compare_runs(folder: Path, text: str, sourced: Observation, model: ParityModel = MODEL) -> Result:
    """Compare a model whose boxes are undecided with its source."""
    session = Session(folder)
    path, inputs = folder / "m.onnx", {"x": str(folder / "x.npy"), "boxes": str(folder / "boxes.npy")}
    onnx.save(parse(text), path)
    np.save(inputs["x"], SCORES)
    np.save(inputs["boxes"], BOXES)
    case = InputCase(name="sizes", origin="generated", inputs=inputs)
    (folder / "run").mkdir()
    job = plan_run(path, (case,), PLANNED, "all", folder / "run")
    ran = ObservedRun(PLANNED.name, job, session.submit(PLANNED, job, None).result())
    extra = ExtraRuns({PLANNED.name: PLANNED}, session.submit, session.place)
    export = Export(source="m.py:build", output="", folder="", opset=None, ir_version_max=None)
    source = SourceRuns(export, None, (case,), lambda job: sourced, extra.create_folder)
    comparison = ReplayedComparison(
        extra, source, lambda it, replayed: collect_evidence(it, replayed.runs, replayed.eager, ())
    )
    evidence, replayed = comparison.compare(model, path, onnx.load(path), (ran,), (UNDECIDED, OTHER))
    return Result(evidence, replayed, extra, source, path)


def locate(result: Result, fresh: str) -> tuple[FirstDifference | None, tuple[str, ...]]:
    """Search for the first node that differs from a new export of the source; also return why it was not found."""
    onnx.save(parse(fresh), result.path.with_name("fresh.onnx"))
    searched = SearchedModel(
        path="m.onnx",
        absolute=result.path,
        proto=onnx.load(result.path),
        root=result.path.parent,
        folder=result.path.parent,
        cases={},
        eager=None,
        fresh=result.path.with_name("fresh.onnx"),
        source=result.source.job,
    )
    assert result.replayed is not None
    search = MismatchSearch(result.extra, lambda job: Unavailable(reason="there is no toolchain"))
    (located,), unfound = search.locate(searched.select_as_source(result.replayed), result.evidence[0])
    return located.first, tuple(entry.reason for entry in unfound)


@pytest.mark.parametrize("others", [(), ([4, 5, 1],)])
def test_the_same_items_decide(others: tuple[list[int], ...], tmp_path: Path) -> None:
    """Equal scores of other items do not differ; further selections of the source have other shapes."""
    (comparison,), (other, note) = compare(tmp_path, DETECTOR, run_source(tmp_path, [4, 5], *others))

    assert find_mismatches(comparison) == ()
    assert {(it.output, it.compared) for it in comparison.differences} == {("y", ""), ("y", "scores")}
    assert OTHER == other
    assert note.by_design
    assert note.reason.startswith(
        "rounding errors decide which items output `y` lists, so the model was compared after"
    )


@pytest.mark.parametrize("largest", [1, 0])
def test_selections_in_another_order_are_recognized_by_their_scores(largest: int, tmp_path: Path) -> None:
    """A tool may have moved the nodes of a correct model; a wrong selection is still a fault."""
    text = TWO.replace("TopK<axis = 0>", f"TopK<axis = 0, largest = {largest}>")
    (comparison,), _ = compare(tmp_path, text, run_source(tmp_path, [4, 5], [1, 2], is_reversed=True))

    assert bool(find_mismatches(comparison)) != bool(largest)


@pytest.mark.parametrize(
    ("text", "compared"), [(WRONG_SCORES, {"scores"}), (WRONG_BOXES, {""}), (SMALLEST, {"i", "scores"})]
)
def test_faults_are_found(text: str, compared: set[str], tmp_path: Path) -> None:
    """Faults before, in and after the selection are found."""
    (comparison,), _ = compare(tmp_path, text, run_source(tmp_path, [4, 5]))
    mismatches = find_mismatches(comparison)

    assert compared == {mismatch.compared for mismatch in mismatches}
    assert all((mismatch.note == SELECTED) == bool(mismatch.compared) for mismatch in mismatches)


@pytest.mark.parametrize(
    ("text", "is_decided"),
    [
        (ARGMAX, True),
        (ARGMAX.replace("{1.0}", "{1.1}"), True),
        (ARGMAX.replace("{0, 0, 0}", "{0, 9, 0}"), True),
        (CASCADE.replace("{0, 0, 0}", "{0, 9, 0}"), False),
        (CASCADE.replace("{0, 0, 0}", "{9, 9, 0}"), True),
    ],
)
def test_other_selections_may_differ(text: str, is_decided: bool, tmp_path: Path) -> None:
    """If an output also depends on a selection that is not replayed, few mismatches prove nothing, but scores do."""
    comparisons, reasons = compare(tmp_path, text, run_source(tmp_path, [4, 5, 1]))

    assert is_decided == bool(comparisons)
    assert is_decided == (UNDECIDED not in reasons)


@pytest.mark.parametrize(("error", "is_right"), [("{0, 0, 0}", True), ("{0, 9, 0}", False), ("{0, 0.01, 0}", False)])
def test_an_argmax_is_replayed(error: str, is_right: bool, tmp_path: Path) -> None:
    """If the source records all selections, one different item is a mismatch."""
    ranking = record(tmp_path, "TopK", scores=SCORES[[4, 5, 1]], indices=np.array([4, 5, 1]))
    extreme = record(tmp_path, "ArgMax", scores=SCORES[[2]], indices=np.array([2]))
    sourced = answer(tmp_path, 2 - BOXES[[4, 5, 1]], ranking, extreme)
    (comparison,), _ = compare(tmp_path, ARGMAX.replace("{0, 0, 0}", error), sourced)

    assert is_right == (not find_mismatches(comparison))


def select(folder: Path, operator: Operator, largest: bool, score: float = 1 + 2**-23) -> Observation:
    """Return a result of a source that selects item 2 by its score."""
    arrays = {"scores": np.array([score], np.float32), "indices": np.array([2])}
    return answer(folder, BOXES[[2]], record(folder, operator, largest, **arrays))


@pytest.mark.parametrize(("text", "operator"), [(LOWEST, "ArgMax"), (LOWEST_RANKED, "TopK")])
def test_the_lowest_scores_instead_of_the_highest_are_found(text: str, operator: Operator, tmp_path: Path) -> None:
    """Scores that differ by less than a tolerance show it, because a node compares its own scores exactly."""
    result = compare_runs(tmp_path, text, select(tmp_path, operator, largest=True))
    (comparison,), reasons = result.evidence
    (mismatch,) = find_mismatches(comparison)
    opposite = text.replace("ArgMin", "ArgMax").replace("largest = 0", "largest = 1")
    first, _ = locate(result, opposite)

    assert UNDECIDED not in reasons
    assert ("i", SELECTED) == (mismatch.compared, mismatch.note)
    assert mismatch.detail == "an item with the lowest score instead of the highest; 1 of 1 items differ"
    assert first is not None
    assert ("ArgMin" if operator == "ArgMax" else "TopK", "i") == (first.operator, first.output)


@pytest.mark.parametrize("text", [LOWEST, LOWEST_RANKED])
def test_the_lowest_scores_are_right_if_the_source_selects_them(text: str, tmp_path: Path) -> None:
    """The direction of the source is recorded."""
    operator: Operator = "ArgMax" if text == LOWEST else "TopK"
    (comparison,), _ = compare(tmp_path, text, select(tmp_path, operator, largest=False))

    assert find_mismatches(comparison) == ()


def test_the_highest_and_the_lowest_scores_may_be_in_another_order(tmp_path: Path) -> None:
    """A tool may have moved the nodes of a correct model; both select by the same scores."""
    both = LOWEST.replace("i = ArgMin<axis = 0>(near)", "j = ArgMin<axis = 0>(near)  i = ArgMax<axis = 0>(near)")
    arrays = {"scores": np.array([1], np.float32)}
    highest = record(tmp_path, "ArgMax", largest=True, indices=np.array([2]), **arrays)
    lowest = record(tmp_path, "ArgMax", largest=False, indices=np.array([3]), **arrays)
    (comparison,), _ = compare(tmp_path, both, answer(tmp_path, BOXES[[2]], highest, lowest))

    assert find_mismatches(comparison) == ()


@pytest.mark.parametrize(
    ("change", "score"),
    [
        (("", ""), -1),
        (("", ""), 1 - 2**-23),  # `2 - near`
        (("", ""), 0.368),  # `exp(-near)`
        (("{1.2e-7}", "{0.0}"), 1),
        (("(near)", "(s)"), 0),
    ],
)
def test_an_unclear_direction_proves_nothing(change: tuple[str, str], score: float, tmp_path: Path) -> None:
    """Decreasing functions select the same items by their highest scores.

    Equal scores are not compared, and scores of 0 have no sign.
    """
    sourced = select(tmp_path, "ArgMax", largest=True, score=score)

    assert compare(tmp_path, LOWEST.replace(*change), sourced) == ((), (UNDECIDED, OTHER))


def suppress(folder: Path, *kept: int) -> Observation:
    """Return a result of a source that keeps these boxes; scores that are equal allow several results."""
    arrays = {"boxes": np.concatenate([BOXES, BOXES + 1], axis=1), "scores": SCORES, "indices": np.array(kept)}
    return answer(folder, -BOXES[[*kept]], record(folder, "NonMaxSuppression", **arrays))


@pytest.mark.parametrize(
    ("change", "compared"),
    [
        ((), set()),
        (("y = Neg(z)", "y = Exp(z)"), {""}),
        (("float {1.0}", "float {1.01}"), {"all"}),
        (("value_ints = [9]", "value_ints = [5]"), {"chosen"}),
    ],
)
def test_suppressions_in_a_branch_are_replayed(
    change: tuple[str, str] | tuple[()], compared: set[str], tmp_path: Path
) -> None:
    """Faults before, in and after `batched_nms`, which is exported as an `If` node, are found."""
    text = SUPPRESSING.replace(*change) if change else SUPPRESSING
    (comparison,), reasons = compare(tmp_path, text, suppress(tmp_path, 5, 4, 2, 1, 0, 3))
    mismatches = find_mismatches(comparison)

    assert UNDECIDED not in reasons
    assert compared == {mismatch.compared for mismatch in mismatches}
    assert all((mismatch.note == SELECTED) == bool(mismatch.compared) for mismatch in mismatches)


@pytest.mark.parametrize(
    ("change", "compared"),
    [
        (("", ""), set()),
        (("float {0.5}", "float {0.55}"), {"other"}),
        (("few = Constant<value_ints = [9]>", "few = Constant<value_ints = [5]>"), {"second"}),
    ],
)
def test_suppressions_of_several_images_are_replayed(
    change: tuple[str, str], compared: set[str], tmp_path: Path
) -> None:
    """PyTorch exports one node for each image, in the order of the source."""
    arrays = {"boxes": np.concatenate([BOXES, BOXES + 1], axis=1)}
    kept = np.array([5, 4, 2, 1, 0, 3]), np.array([0, 2, 1, 5, 4, 3])
    first = record(tmp_path, "NonMaxSuppression", scores=SCORES, indices=kept[0], **arrays)
    second = record(tmp_path, "NonMaxSuppression", scores=SCORES / 2, indices=kept[1], **arrays)
    sourced = answer(tmp_path, -BOXES[np.concatenate(kept)], first, second)
    (comparison,), reasons = compare(tmp_path, IMAGES.replace(*change), sourced)

    assert UNDECIDED not in reasons
    assert compared == {mismatch.compared for mismatch in find_mismatches(comparison)}


def test_wrong_suppressions_are_described(tmp_path: Path) -> None:
    """The mismatch counts the boxes that the model's limits exclude."""
    text = SUPPRESSING.replace("value_ints = [9]", "value_ints = [5]")
    (comparison,), _ = compare(tmp_path, text, suppress(tmp_path, 5, 4, 2, 1, 0, 3))
    (mismatch,) = find_mismatches(comparison)

    assert ("differing items", 1.0) == (mismatch.metric, mismatch.value)
    assert mismatch.detail == "6 boxes are listed (limit 5); 1 of 6 items differ"


def test_a_source_that_does_not_suppress_changes_nothing(tmp_path: Path) -> None:
    """A condition with another value, or a source without this call, leaves the outputs undecided."""
    other = SUPPRESSING.replace("int64 {0}", "int64 {6}")
    (tmp_path / "other").mkdir()

    assert compare(tmp_path, SUPPRESSING, answer(tmp_path, -BOXES)) == ((), (UNDECIDED, OTHER))
    assert compare(tmp_path / "other", other, suppress(tmp_path, 5, 4)) == ((), (UNDECIDED, OTHER))


@pytest.mark.parametrize(
    ("text", "operator", "output"),
    [
        (WRONG_SCORES, "Mul", "scores"),
        (WRONG_BOXES, "Exp", "y"),
        (SMALLEST, "TopK", "i"),
        (DETECTOR.replace("y = Neg(z)", "a = Neg(z) y = Exp(a)"), "Exp", "y"),
    ],
)
def test_the_first_node_is_found_with_the_same_items(text: str, operator: str, output: str, tmp_path: Path) -> None:
    """A new export selects other items than the source, so its selections are replayed, too."""
    result = compare_runs(tmp_path, text, run_source(tmp_path, [4, 5]))
    first, _ = locate(result, DETECTOR)

    assert first is not None
    assert (operator, output) == (first.operator, first.output)


def test_the_first_node_is_found_in_another_output_of_the_same_items(tmp_path: Path) -> None:
    """A missing item is reported for all outputs that list it; the search uses those that differ by position."""
    right = DETECTOR.replace("(float[2, 2] y)", "(float[2, 2] w, float[2, 2] y)").replace("y =", "w = Abs(z)  y =")
    sourced = run_source(tmp_path, [4, 5])
    assert isinstance(sourced, Completed)
    assert isinstance(sourced.result, ExportResult)
    (case,) = sourced.result.eager
    np.save(tmp_path / "w.npy", BOXES[[4, 5]])
    case = msgspec.structs.replace(case, outputs=(str(tmp_path / "w.npy"), *case.outputs))
    sourced = Completed(result=msgspec.structs.replace(sourced.result, eager=(case,)))
    result = compare_runs(tmp_path, right.replace("Neg(z)", "Exp(z)"), sourced)
    (comparison,), reasons = result.evidence
    (mismatch,) = find_mismatches(comparison)
    missing = [msgspec.structs.replace(mismatch, output=name, metric="differing items") for name in ("w", "y")]
    comparison = msgspec.structs.replace(comparison, differences=tuple(missing))
    first, _ = locate(replace(result, evidence=((comparison,), reasons)), right)

    assert first is not None
    assert (first.operator, first.output) == ("Exp", "y")


def test_a_selecting_node_is_named_instead_of_the_nodes_that_replay_it(tmp_path: Path) -> None:
    """The nodes that return the scores of given items exist only in the copy of the model."""
    listing = DETECTOR.replace("y = Neg(z)", "r = Sub(one, v)  n = Neg(z)  y = Add(n, r)")
    model = listing.replace("TopK<axis = 0>(scores", "TopK<axis = 0>(low").replace("v, i", "low = Neg(scores)  v, i")
    result = compare_runs(tmp_path, model, run_source(tmp_path, [4, 5]))
    (comparison,), reasons = result.evidence
    found = find_mismatches(comparison)[0]
    listed = msgspec.structs.replace(found, output="y", compared="", note="", metric="differing items", value=2.0)
    comparison = msgspec.structs.replace(comparison, differences=(listed,))
    result = replace(result, evidence=((comparison,), reasons))
    first, _ = locate(result, listing)

    assert first is not None
    assert ("TopK", "i", "or at the preceding Neg") == (first.operator, first.output, first.detail)


@pytest.mark.parametrize("text", [LOWEST, LOWEST_RANKED])
def test_a_node_in_the_wrong_direction_is_named_without_values_of_the_source(text: str, tmp_path: Path) -> None:
    """Its scores and items prove it, even if the exported program of the source cannot run."""
    operator: Operator = "ArgMax" if text == LOWEST else "TopK"
    result = compare_runs(tmp_path, text, select(tmp_path, operator, largest=True))
    other = text.replace("i = ", "other = ").replace("v, i", "v, other").replace("boxes, i", "boxes, other")
    first, _ = locate(result, other)

    assert first is not None
    assert ("ArgMin" if operator == "ArgMax" else "TopK", "i") == (first.operator, first.output)


def test_a_missing_copy_does_not_end_the_search(tmp_path: Path) -> None:
    """If the copy that selects the same items was deleted, the model itself is searched."""
    result = compare_runs(tmp_path, WRONG_SCORES, run_source(tmp_path, [4, 5]))
    assert result.replayed is not None
    result.replayed.path.unlink()
    first, _ = locate(result, DETECTOR)

    assert first is None


@pytest.mark.parametrize(
    ("change", "operator"),
    [
        (("y = Neg(z)", "y = Exp(z)"), "Exp"),
        (("Add(scaled, one)", "Sub(scaled, one)"), "Sub"),
        (("value_ints = [9]", "value_ints = [5]"), "NonMaxSuppression"),
    ],
)
def test_the_first_node_is_found_in_a_branch(change: tuple[str, str], operator: str, tmp_path: Path) -> None:
    """Nodes in the branch that suppresses boxes are compared, too."""
    result = compare_runs(tmp_path, SUPPRESSING.replace(*change), suppress(tmp_path, 5, 4, 2, 1, 0, 3))
    first, _ = locate(result, SUPPRESSING)

    assert first is not None
    assert operator == first.operator


def test_another_export_may_select_otherwise(tmp_path: Path) -> None:
    """If a new export has no node with the same selection, the first node is not searched in it."""
    result = compare_runs(tmp_path, WRONG_BOXES, run_source(tmp_path, [4, 5]))
    other = DETECTOR.replace("v, i = ", "v, other = ").replace("boxes, i", "boxes, other")
    first, (reason,) = locate(result, other)

    assert first is None
    assert reason.endswith("was not found: the exported program of the source could not be run (unavailable)")


class OldRelease(Session):
    """An older release has rounding errors in `x`; `computes` is the model that it computes."""

    def __init__(self, folder: Path, computes: tuple[str, str]) -> None:
        super().__init__(folder)
        self.computes = computes

    def submit(self, planned: PlannedRuntime, job: Job, limits: JobLimits | None) -> Future[Observation]:
        """Answer immediately."""
        assert isinstance(job, Run)
        if planned.name == OLD.name:
            folder = self.place()
            folder.mkdir()
            onnx.save(self._change(onnx.load(job.model)), folder / "m.onnx")
            np.save(folder / "x.npy", SCORES + np.arange(6, dtype=np.float32) / 1e6)
            (case,) = job.cases
            case = msgspec.structs.replace(case, inputs={**case.inputs, "x": str(folder / "x.npy")})
            job = msgspec.structs.replace(job, model=str(folder / "m.onnx"), cases=(case,))
        return super().submit(planned, job, limits)

    def _change(self, model: onnx.ModelProto) -> onnx.ModelProto:
        for node in model.graph.node:
            if node.op_type == self.computes[0]:
                node.op_type = self.computes[1]
        return model


@pytest.mark.parametrize("text", [DETECTOR, SUPPRESSING])
@pytest.mark.parametrize("computes", [("Neg", "Neg"), ("Neg", "Exp")])
def test_without_a_source_all_runs_select_the_same_items(computes: tuple[str, str], text: str, tmp_path: Path) -> None:
    """Releases are compared after selecting the items that the newest one selects."""
    session = OldRelease(tmp_path, computes)
    path, inputs = tmp_path / "m.onnx", {"x": str(tmp_path / "x.npy"), "boxes": str(tmp_path / "boxes.npy")}
    onnx.save(parse(text), path)
    np.save(inputs["x"], SCORES)
    np.save(inputs["boxes"], BOXES)
    runs = []
    for planned in (OLD, PLANNED):
        folder = session.place()
        folder.mkdir()
        job = plan_run(path, (InputCase(name="sizes", origin="generated", inputs=inputs),), planned, "all", folder)
        runs.append(ObservedRun(planned.name, job, session.submit(planned, job, None).result()))
    extra = ExtraRuns({it.name: it for it in (OLD, PLANNED)}, session.submit, session.place)
    comparison = ReplayedComparison(extra, None, lambda it, replayed: collect_evidence(it, replayed.runs, None, ()))
    (comparisons, reasons), _ = comparison.compare(MODEL, path, onnx.load(path), runs, (UNDECIDED, OTHER))
    outputs = [output for run in runs for output in list_run_outputs(run).paths.values() if output]

    assert not np.allclose(*map(np.load, outputs))
    assert {("runtime", OLD.name, PLANNED.name)} == {(it.pair, it.runtime, it.reference) for it in comparisons}
    assert {mismatch.output for it in comparisons for mismatch in find_mismatches(it)} == (
        {"y"} if "Exp" in computes else set()
    )
    assert UNDECIDED not in reasons
    assert "after selecting the same items as onnxruntime 1.31.1; " in reasons[-1].reason


@pytest.mark.parametrize("selected", [([4, 5], [1, 2]), ([4],), ([4, 5, 1],)])
def test_selections_that_do_not_fit_change_nothing(selected: tuple[list[int], ...], tmp_path: Path) -> None:
    """Without an unambiguous match between the selections of source and model, the outputs remain undecided."""
    assert compare(tmp_path, DETECTOR, run_source(tmp_path, *selected)) == ((), (UNDECIDED, OTHER))


def test_without_a_source_or_ranked_outputs_nothing_changes(tmp_path: Path) -> None:
    """If the source does not run, or the entry concerns other outputs, the outputs remain undecided."""
    other = ParityModel("m.onnx", PLACE, NumericTraits(), None, None, ranked=(RankedOutputs({"z": None}),))
    (tmp_path / "other").mkdir()

    assert compare(tmp_path, DETECTOR, Unavailable(reason="stopped")) == ((), (UNDECIDED, OTHER))
    assert compare(tmp_path / "other", DETECTOR, run_source(tmp_path, [4, 5]), other) == ((), (UNDECIDED, OTHER))
