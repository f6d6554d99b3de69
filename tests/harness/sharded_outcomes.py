"""Random outcomes of the gate, as a whole check and as the shards of the same check would produce them."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Collection
from pathlib import Path

from hypothesis import strategies as st
from msgspec.structs import replace

from onnxgate.core.findings import ALL_STAGES, Hit, IncompleteCheck, Level, OnRuntime, Place, RuleHit, Stage
from onnxgate.core.report import Change, Measured, Replay, Report
from onnxgate.gate.request import (
    ChangeResult,
    Checkout,
    ExecutionResult,
    FileResult,
    GateOutcome,
    GateRequest,
    IgnorePolicy,
    LockResult,
    Selection,
    StageResult,
    StageResults,
    StepResult,
)
from onnxgate.gate.results import resolution
from onnxgate.gate.results.verdict import build_report
from onnxgate.gate.sharding.plan import CheckState, Division, Share
from onnxgate.gate.sharding.shard_report import build_shard_report
from onnxgate.model.facts import ModelFacts, ValueInfo
from onnxgate.project.config.project import Project
from onnxgate.project.config.schema import Target
from onnxgate.project.lock.comparison import target_policy
from onnxgate.project.lock.types import Lock, LockedTarget
from onnxgate.project.plan import plan_models
from tests.harness.locks import project_of, runtime
from tests.harness.models import write

PATHS = ("a.onnx", "b.onnx", "c.onnx", "d.onnx", "e.onnx")
RUNTIMES = ("onnxruntime 1.18.1", "onnxruntime 1.19.2", "onnxruntime 1.20.1")
CONFIG = """
models = ["*.onnx"]
[targets.old]
runtime = "onnxruntime>=1.18,<1.20"
[targets.new]
runtime = "onnxruntime==1.20.1"
[targets.unused]
runtime = "onnxruntime==1.22.1"
[[model]]
path = "*.onnx"
targets = ["old", "new"]
[[model]]
path = "a.onnx"
targets = ["old"]
[[model]]
path = "[bc].onnx"
targets = ["new"]
sizes = { batch = [1], time = [3] }
[[model]]
path = "*.onnx"
sizes = { batch = [2] }
tolerance = { y = { rtol = 1e-3, atol = 1e-5 } }
[rules]
ignore-expired = "warning"
lock-stale = "error"
[[ignore]]
rule = "load-failed"
model = "a.onnx"
reason = "about one"
[[ignore]]
rule = "run-failed"
reason = "about all"
[[ignore]]
rule = "lock-stale"
reason = "about the project"
[[ignore]]
rule = "not-a-model"
reason = "ended"
until = 2020-01-01
[[ignore]]
rule = "opset-too-new"
model = "[ab].onnx"
reason = "of one content"
sha256 = "1111111111111111111111111111111111111111111111111111111111111111"
[[ignore]]
rule = "undecided"
model = "b.onnx"
reason = "cannot be run"
[[ignore]]
rule = "missing-kernel"
reason = "some of them"
fingerprints = ["LISTED", "0123456789abcdef"]
"""
RULES = {
    "load-failed": Stage.RUNTIME,
    "run-failed": Stage.RUNTIME,
    "not-a-model": Stage.FILE,
    "opset-too-new": Stage.SUPPORT,
    "missing-kernel": Stage.SUPPORT,
    "source-mismatch": Stage.PARITY,
}
OF_PROJECT = {"lock-stale": Stage.LOCK, "no-support-data": Stage.SUPPORT}

stages = st.sampled_from(ALL_STAGES)
paths = st.sampled_from(PATHS)
names = st.sampled_from(["", *RUNTIMES])
words = st.sampled_from(["x", "y", "lacks `Conv`"])


def judged_by(rules: dict[str, Stage], models: st.SearchStrategy[str]) -> st.SearchStrategy[RuleHit]:
    """Generate hits of one rule."""
    hits = st.builds(
        Hit,
        place=st.builds(Place, st.sampled_from(["onnxgate.lock", "a.onnx"]), st.integers(0, 2)),
        message=words,
        model=models,
        node=st.sampled_from(["", "n"]),
        fix=st.sampled_from(["", "mend it"]),
        on=st.none()
        | st.builds(
            OnRuntime,
            names.filter(bool),
            st.sampled_from(["", "supports up to 19"]),
            works_since=st.sampled_from(["", "1.20.1"]),
        ),
    )
    return st.builds(
        lambda rule, level, hit: RuleHit(rule, rules[rule], level, hit),
        st.sampled_from(sorted(rules)),
        st.sampled_from(Level),
        hits,
    )


def undone(models: st.SearchStrategy[str]) -> st.SearchStrategy[IncompleteCheck]:
    """Generate incomplete checks."""
    return st.builds(IncompleteCheck, stages, models, names, words, cause=st.sampled_from(("", "inputs", "source")))


measured = st.builds(
    Measured,
    model=paths,
    output=words,
    pair=words,
    case=words,
    metric=words,
    value=st.none() | st.floats(0, 1),
    bound=st.none(),
    bound_from=st.just(""),
)


@st.composite
def gathereds(draw: st.DrawFn) -> StageResults:
    """Generate everything that a whole check may gather."""
    sha256s = st.sampled_from(["1" * 64, "2" * 64])
    axes = st.lists(st.sampled_from(["batch", "time"]), max_size=2).map(tuple)
    facts = {
        path: _facts(path, draw(sha256s), draw(axes), draw(words)) for path in PATHS if draw(st.integers(0, 9)) > 0
    }
    pairs = st.frozensets(st.tuples(paths, st.sampled_from(RUNTIMES)), max_size=6)
    replayed = draw(st.frozensets(paths, max_size=2))
    changed = draw(st.lists(st.sampled_from([*PATHS, "removed.onnx"]), unique=True, max_size=3))
    open_ones = [*draw(st.lists(undone(paths), max_size=3)), *draw(st.lists(undone(st.just("")), max_size=1))]
    hits = [
        *draw(st.lists(judged_by(RULES, paths), max_size=8)),
        *draw(st.lists(judged_by(OF_PROJECT, st.just("")), max_size=4)),
    ]
    ran = draw(pairs)
    return StageResults(
        file=FileResult(hits=tuple(hits), remarks=tuple(draw(st.lists(words, max_size=2, unique=True)))),
        lock=LockResult(facts),
        change=ChangeResult(tuple(Change(model=path, kind="changed") for path in sorted(changed))),
        unchecked=StageResult(
            undone=tuple(open_ones) if draw(st.booleans()) else (),
            skipped=tuple(draw(st.lists(undone(st.just("") | paths), max_size=3))),
        ),
        execution=ExecutionResult(
            StepResult(measured=tuple(draw(st.lists(measured, max_size=6)))),
            ran=ran,
            completed=ran,
            compared=draw(pairs),
            replays=tuple(_replay(path) for path in sorted(replayed)),
        ),
    )


def _facts(path: str, sha256: str, axes: tuple[str, ...], output: str) -> ModelFacts:
    shape = (ValueInfo("x", "tensor(float)", axes),)
    return ModelFacts(path, sha256, 1, 8, {"ai.onnx": 18}, "", shape, (ValueInfo(output, "tensor(float)"),), {}, ())


def _replay(path: str) -> Replay:
    return Replay(model=path, rules=tuple(RULES), cases=("x",), seed=0, command="onnxgate check")


def make_project(folder: Path) -> Project:
    """Create the five models and their config."""
    for path in PATHS:
        write(folder / path)
    (folder / "onnxgate.lock").write_text("", encoding="utf-8")
    return project_of(folder, CONFIG.replace("LISTED", "f" * 16))


def request_of(project: Project, chosen: frozenset[Stage], share: Share | None = None) -> GateRequest:
    """Return a check of the project, or of one shard of it."""
    models = project.models()
    rows = {"old": (runtime("1.18.1"), runtime("1.19.2")), "new": (runtime("1.20.1"),), "unused": (runtime("1.22.1"),)}
    locked = {
        name: LockedTarget(policy=target_policy(_target(project, name)), runtimes=each) for name, each in rows.items()
    }
    return GateRequest(
        checkout=Checkout(
            project=project,
            lock=Lock(targets=locked),
            lock_text="",
            lock_name="onnxgate.lock",
            models=models if share is None else share.own(models),
        ),
        selection=Selection(chosen),
        ignores=IgnorePolicy(datetime.date(2026, 11, 1)),
        open_host=contextlib.nullcontext,  # type: ignore[arg-type]
        share=share,
    )


def _target(project: Project, name: str) -> Target:
    return project.config.targets[name]


def report_of(request: GateRequest, gathered: StageResults) -> Report:
    """Build the report from the gathered results."""
    planned = plan_models(request.project, request.lock, request.models)
    unchecked = gathered.unchecked
    unchecked = replace(unchecked, undone=(*unchecked.undone, *_misnamed(request, gathered)))
    gathered = replace(gathered, unchecked=unchecked)
    outcome: GateOutcome = resolution.build_outcome(request, planned, gathered, frozenset())
    if request.share is None:
        return build_report(request, outcome, "error")
    return build_shard_report(request, outcome, request.share, "error")


def _misnamed(request: GateRequest, gathered: StageResults) -> list[IncompleteCheck]:
    dynamic = request.stages & {Stage.RUNTIME, Stage.PARITY, Stage.EXPORT}
    return resolution.report_unknown_names(request, gathered.facts) if dynamic else []


def shard_of(
    project: Project, chosen: frozenset[Stage], gathered: StageResults, division: Division, index: int
) -> Report:
    """Build the report of one shard from the gathered results."""
    share = Share(index, division)
    request = request_of(project, chosen, share)
    own = set(division.of_shard(index))
    planned = plan_models(project, request.lock, request.models)
    used = {runtime.name for model in planned for runtime in model.runtimes}
    return report_of(request, _part(gathered, own, used))


def _part(gathered: StageResults, own: Collection[str], used: Collection[str]) -> StageResults:
    """Return the results about these models, and those that every shard, or every shard with a given runtime, has."""

    def mine(model: str, runtime_name: str = "") -> bool:
        return model in own or (not model and (not runtime_name or runtime_name in used))

    execution = gathered.execution
    return replace(
        gathered,
        file=replace(
            gathered.file, hits=tuple(hit for hit in gathered.file.hits if mine(hit.hit.model, hit.hit.runtimes[0]))
        ),
        lock=LockResult({path: facts for path, facts in gathered.facts.items() if path in own}),
        change=ChangeResult(tuple(it for it in gathered.change.changes if it.model in own or it.model not in PATHS)),
        unchecked=StageResult(
            undone=tuple(it for it in gathered.unchecked.undone if mine(it.model, it.runtime)),
            skipped=tuple(it for it in gathered.unchecked.skipped if mine(it.model, it.runtime)),
        ),
        execution=replace(
            execution,
            step=StepResult(measured=tuple(it for it in execution.step.measured if it.model in own)),
            ran=frozenset(pair for pair in execution.ran if pair[0] in own),
            completed=frozenset(pair for pair in execution.completed if pair[0] in own),
            compared=frozenset(pair for pair in execution.compared if pair[0] in own),
            replays=tuple(replay for replay in execution.replays if replay.model in own),
        ),
    )


def division_of(chosen: tuple[int, ...], of: int) -> Division:
    """Return a division with the given shares."""
    return Division(CheckState("0.1.0", "c" * 64, "d" * 64, PATHS), of, chosen)


divisions = st.integers(1, 5).flatmap(
    lambda of: st.builds(
        division_of, st.lists(st.integers(1, of), min_size=len(PATHS), max_size=len(PATHS)).map(tuple), st.just(of)
    )
)
chosen_stages = st.sampled_from(
    [frozenset(ALL_STAGES), frozenset(ALL_STAGES[:3]), frozenset({Stage.PARITY}), frozenset({Stage.RUNTIME})]
)
