"""The runtime stage on recorded observations: attempts, nodes, places, non-finite outputs and incomplete checks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import onnx.parser
import pytest

from onnxgate.core.errors import OPTIONAL_TARGET_HINT
from onnxgate.core.findings import HitReference, IncompleteCheck, Place, Stage
from onnxgate.core.jobs import CaseResult, Completed, Crashed, Failure, LoadResult, Refused, TimedOut, Unavailable
from onnxgate.evidence.runtime import Attempt, WrongShape
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.fact_extraction import read_value_infos
from onnxgate.model.reading.view import ModelView
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.rules.runtime.run_failed import INVALID_NODE_FIX, run_failed
from onnxgate.stages.runtime import collect_evidence, find_predicted_crashes, prepare_runs
from onnxgate.support.matching.operations import Operation, RefusedOperations, SupportGap
from tests.harness.recorded_runs import CASES, NEW, OLD, case, done, ran, refused, run_model, saved

RESHAPE = (
    "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Relu node. Name:'{}' "
    "Status Message: {{reshape_helper.h:91}} The input tensor cannot be reshaped to the requested shape."
)
FINE = np.ones((1, 2), np.float32)
STRANGE = np.array([[1.0, np.nan]], np.float32)
DRAWING = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 2] x) => (float[batch, 2] y, float[batch, 2] z) { y = RandomNormalLike(x)  z = RandomUniformLike(x) }"""


def _attempts(folder: Path, *runs: object) -> tuple[Attempt, ...]:
    found, _ = collect_evidence(run_model(folder), runs, {}, {})  # type: ignore[arg-type]
    return found[0].attempts


def test_one_job_per_level(tmp_path: Path) -> None:
    """Each level is one job with all cases and an empty output folder of its own."""
    runtime = LockedRuntime(engine="onnxruntime", release="1.18.1", python="3.11", packages=())
    planned = PlannedRuntime(runtime, ("server",), ("all", "disabled"), ("CPUExecutionProvider",), required=True)
    jobs = prepare_runs(tmp_path / "m.onnx", CASES, planned, tmp_path / "out")

    assert [job.optimization for job in jobs] == ["all", "disabled"]
    assert [job.cases for job in jobs] == [CASES, CASES]
    assert [list(Path(job.output).iterdir()) for job in jobs] == [[], []]
    assert len({job.output for job in jobs}) == 2


def test_completed_cases_are_attempts(tmp_path: Path) -> None:
    """Each case and level is one attempt, with the case's origin and sizes."""
    fine = saved(tmp_path, FINE, FINE)
    attempts = _attempts(tmp_path, ran(NEW, "all", done(fine, fine)), ran(NEW, "disabled", done(fine, fine)))

    assert [(attempt.optimization, attempt.case.name, attempt.outcome) for attempt in attempts] == [
        (level, name, "completed") for level in ("all", "disabled") for name in ("sizes batch=1", "sizes batch=3")
    ]
    assert (attempts[1].case.origin, attempts[1].case.sizes) == ("generated", {"batch": 3})


def test_loading_alone_is_an_attempt(tmp_path: Path) -> None:
    """A model without inputs has an attempt for loading."""
    assert _attempts(tmp_path, ran(NEW, "all", done(), cases=())) == (Attempt(optimization="all", outcome="completed"),)


def test_failures_have_family_and_node(tmp_path: Path) -> None:
    """A failure has a family and a node, placed at the node's source line."""
    observation = done(saved(tmp_path, FINE, FINE), refused(RESHAPE.format("first")))
    (runs,), _ = collect_evidence(run_model(tmp_path), [ran(NEW, "all", observation)], {}, {})
    failed = runs.attempts[1]

    assert (failed.outcome, failed.refusal.family, failed.refusal.node) == ("run-refused", "run_node", "first")
    assert failed.refusal.means.startswith("a `Reshape` ")
    assert runs.node_places == {"first": Place("build.py", 2)}


def test_nodes_that_the_model_does_not_have_are_not_named(tmp_path: Path) -> None:
    """A node created by fusion is not named; the failure without optimization names the model's node."""
    alone = _attempts(tmp_path, ran(NEW, "all", done(*[refused(RESHAPE.format("fused_0"))] * 2)))
    beside = _attempts(
        tmp_path,
        ran(NEW, "all", done(*[refused(RESHAPE.format("fused_0"))] * 2)),
        ran(NEW, "disabled", done(*[refused(RESHAPE.format("second"))] * 2)),
    )

    assert {each.refusal.node for each in alone} == {""}
    assert {each.refusal.node for each in beside} == {"second"}


def test_the_only_node_of_an_operator_is_named_for_a_text_that_names_the_operator(tmp_path: Path) -> None:
    """If the message names an operator that the model does not contain, the node was created by fusion."""
    text = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for {}(14) node with name ''"
    nodes = {
        name: _attempts(tmp_path, ran(NEW, "all", Refused(failure=Failure(type="Fail", text=text.format(name)))))
        for name in ("Relu", "Abs", "Det")
    }

    assert {"Relu": "first", "Abs": "second", "Det": ""} == {name: each[0].refusal.node for name, each in nodes.items()}


def test_one_release_names_the_node_for_another(tmp_path: Path) -> None:
    """A node named by one release is used for all releases, so that one fault gives one finding."""
    silent, named = (done(*[refused(RESHAPE.format(name))] * 2) for name in ("", "first"))
    found, _ = collect_evidence(run_model(tmp_path), [ran(OLD, "all", silent), ran(NEW, "all", named)], {}, {})

    assert [{attempt.refusal.node for attempt in runs.attempts} for runs in found] == [{"first"}, {"first"}]
    assert [runs.node_places for runs in found] == [{"first": Place("build.py", 2)}] * 2


def test_load_that_is_refused(tmp_path: Path) -> None:
    """A refused load is one attempt per level, without a case, explained by its family."""
    text = (
        "[ONNXRuntimeError] : 1 : FAIL : {model.cc:147} Unsupported model IR version: 14, max supported IR version: 13"
    )
    (attempt,) = _attempts(tmp_path, ran(NEW, "all", Refused(failure=Failure(type="Fail", text=text))))

    assert (attempt.outcome, attempt.case.name, attempt.refusal.family) == ("load-refused", "", "ir")
    assert attempt.refusal.means == ""
    assert attempt.refusal.fix == "lower the IR version with `onnxgate fix`"


@pytest.mark.parametrize(("during", "name"), [("load", ""), ("case sizes batch=3", "sizes batch=3"), ("start", "")])
def test_crash_is_one_attempt(tmp_path: Path, during: str, name: str) -> None:
    """A crash is one attempt for the running case; the other cases of the level have none."""
    (attempt,) = _attempts(tmp_path, ran(NEW, "all", Crashed(signal="SIGSEGV", during=during, log="")))

    assert (attempt.outcome, attempt.case.name, attempt.end.signal, attempt.end.during) == (
        "crashed",
        name,
        "SIGSEGV",
        during,
    )


def test_time_out_is_one_attempt(tmp_path: Path) -> None:
    """A timeout is one attempt for the running case, with the limit."""
    observation = TimedOut(limit_s=2.5, during="case sizes batch=1", log="")
    (attempt,) = _attempts(tmp_path, ran(NEW, "disabled", observation))

    assert (attempt.outcome, attempt.end.limit_s, attempt.case.name) == ("timed-out", 2.5, "sizes batch=1")


def test_unavailable_runtime_has_no_attempts(tmp_path: Path) -> None:
    """An unavailable runtime is reported once for all levels, without attempts."""
    gone = Unavailable(reason="no wheel for Python 3.11 here", hint="install one")
    fine = saved(tmp_path, FINE, FINE)
    jobs = [ran(OLD, "all", gone), ran(OLD, "disabled", gone), ran(NEW, "all", done(fine, fine))]
    found, undone = collect_evidence(run_model(tmp_path), jobs, {}, {})

    assert [runs.runtime for runs in found] == [NEW]
    assert undone == (IncompleteCheck(Stage.RUNTIME, "m.onnx", OLD, "no wheel for Python 3.11 here", "install one"),)
    assert undone[0].hint == "install one"


def test_a_target_that_is_optional_already_is_not_made_optional(tmp_path: Path) -> None:
    """The hint of a skipped runtime names only what is left to do."""
    gone = [ran(OLD, "all", Unavailable(reason="no wheel", hint=f"use Linux{OPTIONAL_TARGET_HINT}"))]
    _, undone = collect_evidence(run_model(tmp_path), gone, {}, {})
    _, skipped = collect_evidence(run_model(tmp_path), gone, {}, {}, {}, {OLD})

    assert [it.hint for it in (*undone, *skipped)] == [f"use Linux{OPTIONAL_TARGET_HINT}", "use Linux"]


def test_case_that_runs_elsewhere_is_usable(tmp_path: Path) -> None:
    """A case that completes on one runtime is usable on the others."""
    fine, bad = saved(tmp_path, FINE, FINE), refused(RESHAPE.format("first"))
    found, _ = collect_evidence(
        run_model(tmp_path), [ran(OLD, "all", done(bad, bad)), ran(NEW, "all", done(fine, bad))], {}, {}
    )

    assert [runs.usable_cases for runs in found] == [("sizes batch=1",), ()]


@pytest.mark.parametrize(("node", "is_same"), [("first", True), ("second", False)])
def test_no_other_inputs_are_suggested_for_an_invalid_node(tmp_path: Path, node: str, *, is_same: bool) -> None:
    """If another release rejects the node when it loads the model, the inputs are not the cause."""
    text = f"Node ({node}) Op (Relu) [ShapeInferenceError] Incompatible dimensions"
    invalid, bad = Refused(failure=Failure(type="Fail", text=text)), refused(RESHAPE.format("first"))
    found, _ = collect_evidence(
        run_model(tmp_path), [ran(OLD, "all", done(bad, bad)), ran(NEW, "all", invalid)], {}, {}
    )
    (hit,) = run_failed.judge(found[0])

    assert is_same == (hit.fix == INVALID_NODE_FIX)


def test_predictions_and_limits_are_passed_on(tmp_path: Path) -> None:
    """Each runtime has its own predictions."""
    fine = saved(tmp_path, FINE, FINE)
    jobs = [ran(name, "all", done(fine, fine)) for name in (OLD, NEW)]
    found, _ = collect_evidence(run_model(tmp_path), jobs, {}, {OLD: ("opset-too-new",)})

    assert [(runs.predicted, runs.memory_limit_mib) for runs in found] == [(("opset-too-new",), 512), ((), 512)]


def _finite(folder: Path, got: CaseResult, source: CaseResult | None) -> tuple[tuple[str, ...], str]:
    one = (case(1),)
    eager = {} if source is None else {one[0].name: source}
    (runs,), _ = collect_evidence(run_model(folder), [ran(NEW, "all", done(got), cases=one)], eager, {})
    return runs.attempts[0].outputs.not_finite, runs.attempts[0].source


def test_outputs_that_are_not_finite(tmp_path: Path) -> None:
    """Without a source, non-finite outputs are named."""
    assert _finite(tmp_path, saved(tmp_path, STRANGE, FINE), None) == (("y",), "none")
    assert _finite(tmp_path, saved(tmp_path, FINE, FINE), None) == ((), "none")
    assert _finite(tmp_path, saved(tmp_path, None, FINE), None) == ((), "none")


def test_source_that_is_not_finite_at_the_same_place(tmp_path: Path) -> None:
    """Non-finite values are accepted only where the source has them too."""
    elsewhere = np.array([[np.inf, 1.0]], np.float32)
    got = saved(tmp_path, STRANGE, FINE)

    assert _finite(tmp_path, got, saved(tmp_path, STRANGE, FINE)) == ((), "not-finite")
    assert _finite(tmp_path, got, saved(tmp_path, elsewhere, FINE)) == (("y",), "finite")
    assert _finite(tmp_path, got, saved(tmp_path, FINE, FINE)) == (("y",), "finite")


def test_non_finite_values_with_other_shapes(tmp_path: Path) -> None:
    """If the shapes differ, non-finite values are accepted only if the source has some too."""
    got = saved(tmp_path, STRANGE, FINE)
    for value, expected in ((1.0, (("y",), "finite")), (np.nan, ((), "not-finite"))):
        assert _finite(tmp_path, got, saved(tmp_path, np.full((4, 2), value), FINE)) == expected


def test_output_without_a_number_here_and_in_the_source(tmp_path: Path) -> None:
    """An output is blank only if it is entirely NaN both here and in the source."""
    blank, half = np.full((1, 2), np.nan, np.float32), np.array([[np.nan, 1.0]], np.float32)
    actual = []
    for ours, theirs in ((blank, blank), (blank, half), (half, blank)):
        eager = {case(1).name: saved(tmp_path, theirs, FINE)}
        jobs = [ran(NEW, "all", done(saved(tmp_path, ours, FINE)), cases=(case(1),))]
        (runs,), _ = collect_evidence(run_model(tmp_path), jobs, eager, {})
        actual.append(runs.attempts[0].outputs.blank)

    assert actual == [("y",), (), ()]


def test_source_that_fails_on_a_case(tmp_path: Path) -> None:
    """A failure of the source is recorded next to the runtime's."""
    eager = {"sizes batch=3": refused("index out of range in self")}
    observation = done(saved(tmp_path, FINE, FINE), refused(RESHAPE.format("first")))
    (runs,), _ = collect_evidence(run_model(tmp_path), [ran(NEW, "all", observation)], eager, {})

    assert [attempt.source for attempt in runs.attempts] == ["none", "failed"]


def test_wrong_result_type_is_an_internal_error(tmp_path: Path) -> None:
    """A result of another job type raises an error, so that it is never counted as a pass."""
    with pytest.raises(TypeError, match="unexpected result of a run: Completed"):
        _attempts(tmp_path, ran(NEW, "all", Completed(result=LoadResult(providers=()))))


@pytest.mark.parametrize("at_load", [True, False])
def test_missing_locale_is_incomplete(tmp_path: Path, at_load: bool) -> None:
    """A missing locale makes the check incomplete, whether a release reports it when loading or when running."""
    text = "Failed to construct locale with name:en_US.UTF-8:locale::facet::_S_create_c_locale name not valid"
    failed = Refused(failure=Failure(type="Fail", text=text)) if at_load else done(refused(text), refused(text))
    fine = saved(tmp_path, FINE, FINE)
    runs, undone = collect_evidence(
        run_model(tmp_path), (ran(OLD, "all", done(fine, fine)), ran(NEW, "all", failed)), {}, {}
    )

    assert [run.runtime for run in runs] == [OLD]
    assert undone == (
        IncompleteCheck(
            Stage.RUNTIME,
            "m.onnx",
            NEW,
            "the model needs the locale `en_US.UTF-8`, which is not installed on this machine",
        ),
    )


def test_unstable_and_aliased_outputs(tmp_path: Path) -> None:
    """Unstable and aliased outputs are recorded; the layout of a non-tensor output counts as that output."""
    shown = msgspec.structs.replace(saved(tmp_path, FINE, FINE), unstable=("y", "y (layout)"), aliased=("z",))
    first, second = _attempts(tmp_path, ran(NEW, "all", done(shown, saved(tmp_path, FINE, FINE))))

    assert (first.outputs.unstable, first.outputs.aliased) == (("y",), ("z",))
    assert (second.outputs.unstable, second.outputs.aliased) == ((), ())


def test_random_operators_that_reach_what_differs(tmp_path: Path) -> None:
    """Random operators are recorded only for the outputs that differ."""
    model = replace(run_model(tmp_path), view=ModelView(onnx.parser.parse_model(DRAWING)))
    shown = msgspec.structs.replace(saved(tmp_path, FINE, FINE), unstable=("y",))
    (runs,), _ = collect_evidence(model, [ran(NEW, "all", done(shown, saved(tmp_path, FINE, FINE)))], {}, {})

    assert runs.drawn == {"y": ("RandomNormalLike",)}


def test_shapes_are_compared_with_the_file(tmp_path: Path) -> None:
    """Output shapes are compared with the declared ones if the model's facts are known."""
    graph = run_model(tmp_path).view.proto.graph
    facts = ModelFacts(
        "m.onnx", "", 0, 8, {}, "", read_value_infos(graph.input), read_value_infos(graph.output), {}, ()
    )
    arrays = (np.ones((1, 2), np.float32), np.ones((3, 2), np.float32))
    np.save(tmp_path / "x.npy", arrays[1])
    one = msgspec.structs.replace(case(3), inputs={"x": str(tmp_path / "x.npy")})
    observed = ran(NEW, "all", done(saved(tmp_path, *arrays)), cases=(one,))
    (judged,), _ = collect_evidence(replace(run_model(tmp_path), facts=facts), [observed], {}, {})
    (unjudged,), _ = collect_evidence(run_model(tmp_path), [observed], {}, {})

    wrong = WrongShape(output="y", declared="(batch, 2)", shape="(1, 2)", axes=("batch",), is_read=True)
    assert judged.attempts[0].outputs.wrong_shapes == (wrong,)
    assert unjudged.attempts[0].outputs.wrong_shapes == ()


NOT_USED = Refused(
    failure=Failure(
        type="ProviderNotUsedError",
        text="the session has no `CUDAExecutionProvider`; available: `CPUExecutionProvider`",
    )
)


def test_provider_that_is_silently_not_used(tmp_path: Path) -> None:
    """An unused provider is an observation on a required target, and a skipped check on an optional one."""
    both = [ran(NEW, "all", NOT_USED), ran(NEW, "disabled", NOT_USED)]
    (runs,), nothing = collect_evidence(run_model(tmp_path), both, {}, {})
    no_runs, skipped = collect_evidence(run_model(tmp_path), both, {}, {}, {}, {NEW})

    assert [attempt.outcome for attempt in runs.attempts] == ["provider-not-used"] * 2
    assert (runs.unused_providers, nothing) == (("CUDAExecutionProvider",), ())
    assert no_runs == ()
    assert [(entry.runtime, entry.reason) for entry in skipped] == [(NEW, NOT_USED.failure.text)]


def test_optional_runtime_that_runs_is_judged(tmp_path: Path) -> None:
    """An optional runtime that runs is checked like any other."""
    (runs,), undone = collect_evidence(run_model(tmp_path), [ran(NEW, "all", done(), cases=())], {}, {}, {}, {NEW})

    assert ([attempt.outcome for attempt in runs.attempts], undone) == (["completed"], ())


@pytest.mark.parametrize(
    ("signal", "during", "expected"),
    [("SIGFPE", "load", True), ("SIGSEGV", "load", False), ("SIGFPE", "case sizes batch=1", False)],
)
def test_predictions_of_a_crash(tmp_path: Path, signal: str, during: str, expected: bool) -> None:
    """The process must end with the predicted signal while it loads the model."""
    crashed = ran(NEW, "all", Crashed(signal=signal, during=during, log=""))
    (runs,), _ = collect_evidence(run_model(tmp_path), [crashed], {}, {})
    gaps = [SupportGap("attribute-unsupported", problem, signal=end) for problem, end in (("a", "SIGFPE"), ("b", ""))]
    operation = Operation("ai.onnx", "Div", 17, 17, (), (), (), static=False)
    prediction = RefusedOperations((), tuple((gap, operation) for gap in gaps))

    assert find_predicted_crashes(runs, prediction) == (HitReference("attribute-unsupported", "a"),) * expected
    assert find_predicted_crashes(runs, None) == ()
