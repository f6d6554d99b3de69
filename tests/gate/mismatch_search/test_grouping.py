"""Grouping of mismatches into searches, and the reasons reported if a search is not possible."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import parser

from onnxgate.core.findings import Place
from onnxgate.core.jobs import CaseResult, Completed, InputCase, Job, Observation, Refused, Run, RunResult, Unavailable
from onnxgate.core.jobs import Failure as Said
from onnxgate.evidence.parity import SELECTED, SOURCE, Comparison, Difference
from onnxgate.gate.execution.parity import mismatch_search
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns
from onnxgate.gate.execution.parity.mismatch_search import MismatchSearch, SearchedModel
from onnxgate.numerics.first_difference import NO_DISTANCE
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.worker_spec import JobLimits
from onnxgate.stages.parity.first_difference import DifferenceOrigin
from onnxgate.stages.parity.output_comparison import OutputMask
from onnxgate.stages.parity.source_difference import SAME_AS_PROGRAM, NoFirstNodeError

Array = NDArray[Any]
TEXT = (
    """<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { [neg] a = Neg(x) [exp] y = Exp(a) }"""
)
RELEASES = ("1.18.1", "1.20.1", "1.31.1")
NEWEST = "onnxruntime 1.31.1"


def planned(release: str) -> PlannedRuntime:
    """Return a release that is run at both levels."""
    runtime = LockedRuntime(engine="onnxruntime", release=release, python="3.11", packages=())
    return PlannedRuntime(runtime, ("server",), ("all", "disabled"), ("CPUExecutionProvider",), True)


def difference(value: float, *, level: str = "disabled", metric: str = "worst_abs", output: str = "y") -> Difference:
    """Return a difference of one output, with a tolerance of 1e-5."""
    return Difference(
        output=output,
        case="one",
        optimization=level,
        agrees=value <= 1e-5,
        metric=metric,
        value=value,
        bound=1e-5,
        bound_from="type",
    )


def comparison(release: str, *found: Difference, pair: str = "runtime", reference: str = NEWEST) -> Comparison:
    """Return a comparison of a release with the newest one."""
    return Comparison(
        model="m.onnx",
        place=Place("onnxgate.toml", 1),
        pair=pair,  # type: ignore[arg-type]
        runtime=f"onnxruntime {release}",
        reference=reference,
        differences=found,
    )


class Releases:
    """Releases of which the older ones compute `Neg` incorrectly; all jobs are recorded."""

    def __init__(self, folder: Path, answer: Observation | None = None) -> None:
        self.folder, self.asked, self.count = folder, [], 0  # type: ignore[var-annotated]
        self._answer = answer

    def submit(self, runtime: PlannedRuntime, job: Job, limits: JobLimits | None) -> Future[Observation]:
        """Run a job immediately."""
        assert isinstance(job, Run)
        self.asked.append((runtime.name, job.optimization))
        done: Future[Observation] = Future()
        done.set_result(self._answer or self._run(runtime, job))
        return done

    def _run(self, runtime: PlannedRuntime, job: Run) -> Observation:
        fed = {name: np.load(path) for name, path in job.cases[0].inputs.items()}
        values = fed | self._compute(runtime, fed)
        values |= {f"{name}#apart": values[name] for name in ("a", "y")}
        names = [value.name for value in onnx.load(job.model).graph.output]
        paths = [Path(job.output) / f"{index}.npy" for index in range(len(names))]
        for path, name in zip(paths, names, strict=True):
            np.save(path, values[name])
        result = CaseResult(outputs=tuple(map(str, paths)))
        return Completed(result=RunResult(providers=(), outputs=tuple(names), cases=(result,)))

    def _compute(self, runtime: PlannedRuntime, fed: dict[str, Array]) -> dict[str, Array]:
        a = -fed["x"] + (runtime.name != NEWEST)
        return {"a": a, "y": np.exp(fed.get("a", a))}

    def place(self) -> Path:
        """Return an unused path."""
        self.count += 1
        return self.folder / str(self.count)


def model(folder: Path) -> SearchedModel:
    """Create the model with the mismatches."""
    proto = parser.parse_model(TEXT)
    onnx.save(proto, str(folder / "m.onnx"))
    np.save(folder / "x.npy", np.array([1, 2], np.float32))
    return SearchedModel(
        path="m.onnx",
        absolute=folder / "m.onnx",
        proto=proto,
        root=folder,
        folder=folder,
        cases={"one": InputCase(name="one", origin="generated", inputs={"x": str(folder / "x.npy")})},
        eager=None,
        fresh=None,
        source=None,
    )


def no_toolchain(job: Job) -> Observation:
    """Raise the error for a missing toolchain."""
    return Unavailable(reason="there is none")


def search(releases: Releases) -> MismatchSearch:
    """Return the search on these releases."""
    runtimes = {f"onnxruntime {release}": planned(release) for release in RELEASES}
    return MismatchSearch(ExtraRuns(runtimes, releases.submit, releases.place), no_toolchain)


def located(
    folder: Path, releases: Releases, *comparisons: Comparison
) -> tuple[list[str | None], list[tuple[str, str]]]:
    """Return the node found for each comparison, and the runtime and reason if none was found."""
    named, undone = search(releases).locate(model(folder), comparisons)
    return [each.first and each.first.node for each in named], [(entry.runtime, entry.reason) for entry in undone]


def test_mismatches_that_look_alike_share_a_search(tmp_path: Path) -> None:
    """The worst of several similar mismatches is searched, and outputs that agree are not."""
    releases = Releases(tmp_path)
    actual = (comparison("1.18.1", difference(0.5)), comparison("1.20.1", difference(0.6)))
    agreeing = comparison("1.31.1", difference(0.0), pair="optimization")

    assert located(tmp_path, releases, *actual, agreeing) == (["neg", "neg", None], [])
    assert {name for name, _ in releases.asked} == {"onnxruntime 1.20.1", NEWEST}


MASKED = """<ir_version: 8, opset_import: ["" : 18]>
g (float[1, 2] x, int64[1, 2] attention_mask) => (float[1, 2] y) { [neg] a = Neg(x) [exp] y = Exp(a) }"""


class PaddingReleases(Releases):
    """Releases of which the older ones compute `Neg` differently for token 0, and `Exp` incorrectly for token 1."""

    def _compute(self, runtime: PlannedRuntime, fed: dict[str, Array]) -> dict[str, Array]:
        is_wrong = runtime.name != NEWEST
        a = -fed["x"] + np.array([[is_wrong, False]], np.float32) if "x" in fed else fed["a"]
        return {"a": a, "y": np.exp(fed.get("a", a)) + np.array([[False, is_wrong]], np.float32)}


@pytest.mark.parametrize(("masks_token", "expected"), [(True, "exp"), (False, "neg")])
def test_tokens_that_the_output_ignores_are_ignored(masks_token: bool, expected: str, tmp_path: Path) -> None:
    """The mask of the differing output also applies to intermediate values."""
    proto, unmasked = parser.parse_model(MASKED), model(tmp_path)
    onnx.save(proto, str(tmp_path / "m.onnx"))
    np.save(tmp_path / "x.npy", np.array([[1, 2]], np.float32))
    np.save(tmp_path / "mask.npy", np.array([[0 if masks_token else 1, 1]]))
    inputs = {"x": str(tmp_path / "x.npy"), "attention_mask": str(tmp_path / "mask.npy")}
    masked = replace(
        unmasked,
        proto=proto,
        cases={"one": InputCase(name="one", origin="generated", inputs=inputs)},
        masks={("one", "y"): OutputMask(inputs["attention_mask"], ones_keep=True)},
    )
    releases = PaddingReleases(tmp_path)
    named, _ = search(releases).locate(masked, (comparison("1.18.1", difference(1.0)),))

    assert [found.first and found.first.node for found in named] == [expected]


class UnhelpfulSource(MismatchSearch):
    """A search that finds that the model matches the exported program of its source."""

    def _against_source(self, *_: object) -> Any:
        raise NoFirstNodeError(SAME_AS_PROGRAM)


def test_equal_scores_are_no_fault_of_the_source(tmp_path: Path) -> None:
    """Scores are not an output of the source. If only their selection differs, the source is not blamed."""
    releases = Releases(tmp_path)
    scores = msgspec.structs.replace(difference(0.5), compared="a", note=SELECTED)
    found = comparison("1.31.1", scores, pair="source", reference=SOURCE)
    runtimes = {NEWEST: planned("1.31.1")}
    search = UnhelpfulSource(ExtraRuns(runtimes, releases.submit, releases.place), no_toolchain)
    (located_at,), (undone,) = search.locate(model(tmp_path), (found,))

    assert (located_at.first, located_at.at_no_node) == (None, "")
    assert undone.reason.endswith("the scores `a` do not differ, but other items are selected by them")


class SourceWithOneWrongOutput(MismatchSearch):
    """A search that finds a node only in the output `a`."""

    def _against_source(self, *arguments: Any) -> Any:
        if "a" in arguments[-1]:
            return DifferenceOrigin(0, "a", NO_DISTANCE, NO_DISTANCE), ""
        raise NoFirstNodeError(SAME_AS_PROGRAM)


@pytest.mark.parametrize("metric", ["differing items", "worst_abs"])
def test_items_may_differ_in_one_output(metric: str, tmp_path: Path) -> None:
    """If items differ, each output that lists them is searched."""
    releases = Releases(tmp_path)
    outputs = [difference(0.5, metric=metric, output=name) for name in ("y", "a")]
    found = comparison("1.31.1", *outputs, pair="source", reference=SOURCE)
    runtimes = {NEWEST: planned("1.31.1")}
    search = SourceWithOneWrongOutput(ExtraRuns(runtimes, releases.submit, releases.place), no_toolchain)
    (located_at,), _ = search.locate(model(tmp_path), (found,))
    named = located_at.first.node if located_at.first else located_at.at_no_node

    assert named == ("neg" if metric == "differing items" else SAME_AS_PROGRAM)


def test_mismatches_of_another_size_are_another_fault(tmp_path: Path) -> None:
    """Mismatches of different magnitude may have different causes and are searched separately."""
    releases = Releases(tmp_path)
    actual = (comparison("1.18.1", difference(0.5)), comparison("1.20.1", difference(0.01)))

    assert located(tmp_path, releases, *actual) == (["neg", "neg"], [])
    assert {name for name, _ in releases.asked} == {"onnxruntime 1.18.1", "onnxruntime 1.20.1", NEWEST}


def test_the_level_without_optimisation_is_looked_into(tmp_path: Path) -> None:
    """The unoptimized level is searched if both differ, because its nodes are those of the file."""
    releases = Releases(tmp_path)
    located(tmp_path, releases, comparison("1.18.1", difference(0.7, level="all"), difference(0.5)))

    assert {level for _, level in releases.asked} == {"disabled"}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (comparison("1.18.1", difference(1, metric="shape")), "the outputs differ in type, shape or number"),
        (comparison("1.18.1", difference(1), reference="openvino 2026.4"), "openvino 2026.4 is not available"),
        (
            comparison("1.18.1", difference(1), pair="source", reference="the source"),
            "intermediate values of the source are not available",
        ),
    ],
)
def test_failed_search_has_a_reason(found: Comparison, reason: str, tmp_path: Path) -> None:
    """If the first differing node cannot be found, the mismatch remains and the reason is reported."""
    actual = f"the first node that differs from {found.reference} was not found: {reason}"

    assert located(tmp_path, Releases(tmp_path), found) == ([None], [("onnxruntime 1.18.1", actual)])


def test_engine_refusal_is_reported(tmp_path: Path) -> None:
    """Some releases do not load a model with all intermediate values as outputs."""
    releases = Releases(tmp_path, Refused(failure=Said(type="Fail", text="no")))
    _, ((_, reason),) = located(tmp_path, releases, comparison("1.18.1", difference(1)))

    assert reason.endswith("with intermediate values as outputs, the model does not load: no")


def test_missing_inputs_are_reported(tmp_path: Path) -> None:
    """A file that cannot be read ends the search but does not affect the verdict."""
    releases = Releases(
        tmp_path, Completed(result=RunResult(providers=(), outputs=("y",), cases=(CaseResult(outputs=("gone.npy",)),)))
    )
    _, ((_, reason),) = located(tmp_path, releases, comparison("1.18.1", difference(1)))

    assert "FileNotFoundError" in reason


def test_searches_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches beyond the limit are skipped, and the limit is reported."""
    monkeypatch.setattr(mismatch_search, "MAX_SEARCHES", 1)
    actual = (comparison("1.18.1", difference(0.5)), comparison("1.20.1", difference(0.01)))
    nodes, ((runtime, reason),) = located(tmp_path, Releases(tmp_path), *actual)

    assert (nodes, runtime) == (["neg", None], "onnxruntime 1.20.1")
    assert reason.endswith("the search limit for this model was already reached by the search for other mismatches")
