"""After failed runs: other input sizes, and single nodes loaded alone."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, TimeoutError
from dataclasses import dataclass, field
from pathlib import Path

from onnxgate.core.findings import IncompleteCheck, Stage, runtime_sort_key
from onnxgate.core.jobs import (
    CaseResult,
    Completed,
    Crashed,
    InputCase,
    Load,
    Observation,
    Optimization,
    RunResult,
    TimedOut,
)
from onnxgate.evidence.runtime import IsolatedNode, ModelRuns, has_guessed_sizes, is_unusable
from onnxgate.inputs.axis_sizes import list_alternative_settings, vary_setting
from onnxgate.inputs.cases import REAL_INPUTS_HINT
from onnxgate.model.facts import ModelFacts
from onnxgate.model.subgraphs.reduced_models import extract_node
from onnxgate.project.config.project import SelectedModel
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages import isolated_nodes
from onnxgate.stages.isolated_nodes import IsolatedLoad, NodeKind, RefusingRuntime, collect_node_kinds
from onnxgate.stages.runtime import ExecutedModel, ObservedRun

MAX_NODE_KINDS = 200
"""Limit of node kinds of one model that are loaded alone on one runtime."""
MAX_WAIT_S = 60.0
"""Limit for the nodes of one model on one runtime, after the first answer."""
NODE_TIME_S = 30.0
"""Limit for one node."""
MAX_FATAL_LOADS = 3
"""Loading stops after this many crashes and timeouts: each costs a new process."""
NODE_IR_VERSION = 7
"""IR version of nodes from a model whose own is refused. Source: every ONNX Runtime since 1.3 supports it."""

PendingNode = tuple[NodeKind, tuple[Future[Observation], ...]]


@dataclass(slots=True)
class NodeLoads:
    """Results of loading nodes alone."""

    alone: dict[str, tuple[IsolatedNode, ...]] = field(default_factory=dict)  # by runtime
    skipped: list[IncompleteCheck] = field(default_factory=list)
    answers: list[Future[Observation]] = field(default_factory=list)  # cancelled ones, too


@dataclass(slots=True)
class NodeLoader:
    """Loads nodes on runtimes; their models are written to `folder`."""

    submit: Callable[[PlannedRuntime, Load], Future[Observation]]
    folder: Path
    _submitted: dict[tuple[str, str, str], Future[Observation]] = field(default_factory=dict)

    def examine(self, model: ExecutedModel, refusing: Mapping[PlannedRuntime, RefusingRuntime]) -> NodeLoads:
        """Load the nodes of a model alone on each runtime that refuses it: those predicted first, then what is left."""
        examined = NodeLoads()
        worth = {planned: refusal for planned, refusal in refusing.items() if not refusal.is_hopeless}
        if not worth:
            return examined
        kinds = collect_node_kinds(model.view)
        first = {planned: isolated_nodes.select_predicted_kinds(refusal, kinds) for planned, refusal in worth.items()}
        loaded = self._round(worth, first, model, examined.answers)
        rest = {
            planned: isolated_nodes.select_remaining_kinds(refusal, kinds, loaded[planned])
            for planned, refusal in worth.items()
        }
        more = self._round(worth, rest, model, examined.answers)
        for planned, refusal in worth.items():
            loads = {**loaded[planned], **more[planned]}
            count = len(first[planned]) + len(rest[planned])
            examined.alone[planned.name] = isolated_nodes.evaluate_isolated_nodes(refusal, kinds, loads, model)
            if len(loads) != count:
                reason = f"{len(loads)} of {count} kinds of nodes could be loaded alone to find all that is refused"
                examined.skipped.append(IncompleteCheck(Stage.RUNTIME, model.path, planned.name, reason))
        return examined

    def _round(
        self,
        refusing: Mapping[PlannedRuntime, RefusingRuntime],
        kinds: Mapping[PlannedRuntime, Sequence[NodeKind]],
        model: ExecutedModel,
        answers: list[Future[Observation]],
    ) -> dict[PlannedRuntime, dict[NodeKind, IsolatedLoad]]:
        """Load nodes on all runtimes at the same time; the result leaves out nodes that were not tried."""
        pending = {
            planned: list(self._submit_nodes(planned, refusing[planned], selected[:MAX_NODE_KINDS], model))
            for planned, selected in kinds.items()
        }
        answers += [answer for loads in pending.values() for _, futures in loads for answer in futures]
        return {planned: dict(_await_loads(loads)) for planned, loads in pending.items()}

    def _submit_nodes(
        self, planned: PlannedRuntime, refusing: RefusingRuntime, kinds: Iterable[NodeKind], model: ExecutedModel
    ) -> Iterator[PendingNode]:
        ir_version = model.view.proto.ir_version
        if any(refusal.family == "ir" for refusal in refusing.refusals):
            ir_version = min(ir_version, NODE_IR_VERSION)
        for kind in kinds:
            data = extract_node(kind.first.proto, kind.around, ir_version, model.folder / model.path)
            if data is not None:
                yield kind, tuple(self._load(planned, data, refusal.level) for refusal in refusing.refusals)

    def _load(self, planned: PlannedRuntime, data: bytes, level: Optimization) -> Future[Observation]:
        digest = hashlib.sha256(data).hexdigest()
        key = (planned.name, digest, level)
        if key not in self._submitted or self._submitted[key].cancelled():
            path = (self.folder / digest[:32] / "node.onnx").absolute()
            if not path.exists():  # it is written once: another runtime may be reading it
                path.parent.mkdir(parents=True)
                path.write_bytes(data)
            job = Load(model=str(path), optimization=level, providers=planned.providers, extensions=planned.extensions)
            self._submitted[key] = self.submit(planned, job)
        return self._submitted[key]


def _await_loads(pending: Sequence[PendingNode]) -> Iterator[tuple[NodeKind, IsolatedLoad]]:
    """Yield the outcome of each load in order, until the time is used up; cancel the rest."""
    ends_at: float | None = None
    fatal = 0
    for kind, futures in pending:
        try:
            observations = [
                future.result(None if ends_at is None else max(0.0, ends_at - time.monotonic())) for future in futures
            ]
        except TimeoutError:
            break
        ends_at = min(ends_at or math.inf, time.monotonic() + MAX_WAIT_S)
        yield kind, isolated_nodes.combine_levels(observations)
        fatal += any(isinstance(observation, Crashed | TimedOut) for observation in observations)
        if fatal == MAX_FATAL_LOADS:
            break
    for _, futures in pending:  # finished ones are not affected
        for future in futures:
            future.cancel()


# Other input sizes


def has_failed_case(ran: Sequence[ObservedRun]) -> bool:
    """True if a runtime refuses a generated case; the source can then show if its inputs are usable."""
    return any(case.origin == "generated" and result.failure is not None for _, case, result in _case_results(ran))


def _needs_sizes(ran: Sequence[ObservedRun], eager: Mapping[str, CaseResult] | None) -> bool:
    """True if neither a runtime nor the source accepts the first generated case, whose sizes are a guess."""
    results = [(case, result) for _, case, result in _case_results(ran) if case.origin == "generated"]
    if not results:
        return False
    base = results[0][0]
    source = (eager or {}).get(base.name)
    runs = any(case.name == base.name and result.failure is None for case, result in results)
    return bool(base.guessed) and not runs and (source is None or source.failure is not None)


def find_sizes(
    facts: ModelFacts,
    model: SelectedModel,
    ran: Sequence[ObservedRun],
    eager: Mapping[str, CaseResult] | None,
    attempt: Callable[[str, dict[str, int]], Sequence[ObservedRun]],
) -> tuple[dict[str, int], ...]:
    """Find settings to run in place of the first ones if those are guesses that do not run; none if no guess runs.

    `attempt` runs one setting on a runtime, the newest that ran cases. A crash or timeout ends the search.
    """
    if not _needs_sizes(ran, eager):
        return ()
    newest = max((name for name, _, _ in _case_results(ran)), key=runtime_sort_key)
    sizes = model.settings.sizes
    results = [(case, result.failure is None) for _, case, result in _case_results(ran)]
    completed = sorted((case for case, has_run in results if has_run), key=lambda case: case.origin != "source")
    settings = [dict(case.sizes) for case in completed if case.sizes]
    tried: list[dict[str, int]] = [dict(case.sizes) for case, has_run in results if not has_run]
    for setting in (*settings, *list_alternative_settings(facts.inputs, sizes)):
        if setting in tried:
            continue
        tried.append(setting)
        answers = [result for _, _, result in _case_results(attempt(newest, setting))]
        if any(answer.failure is None for answer in answers):
            return vary_setting(facts.inputs, sizes, setting)
        if not answers:
            return ()
    return ()


def explain_no_completed_run(runs: Sequence[ModelRuns]) -> tuple[str, str]:
    """Explain with a hint why no case ran; ("", "") if one ran, or if none was unusable."""
    attempts = [(attempt, model) for model in runs for attempt in model.attempts]
    unusable = [attempt for attempt, model in attempts if is_unusable(attempt, model)]
    if not unusable or any(attempt.outcome == "completed" and attempt.case.name for attempt, _ in attempts):
        return "", ""
    if not unusable[0].case.sizes:
        return "its inputs cannot be run", REAL_INPUTS_HINT
    sized = f"{REAL_INPUTS_HINT}, or sizes that the model takes: `sizes`"
    return "its inputs cannot be run at any of the sizes that were tried", sized


def find_undecided_cases(runs: Sequence[ModelRuns]) -> set[str]:
    """Find the cases that cannot be run, except those with guessed sizes."""
    return {
        attempt.case.name
        for model in runs
        for attempt in model.attempts
        if is_unusable(attempt, model) and not has_guessed_sizes(attempt, model)
    }


def _case_results(ran: Sequence[ObservedRun]) -> Iterator[tuple[str, InputCase, CaseResult]]:
    """Yield every completed case, on each runtime and at each level."""
    for run in ran:
        if isinstance(run.observation, Completed) and isinstance(run.observation.result, RunResult):
            for case, result in zip(run.job.cases, run.observation.result.cases, strict=True):
                yield run.runtime, case, result
