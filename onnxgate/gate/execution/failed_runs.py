"""Handle failed runs: load nodes in isolation, and explain runs that did not complete."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, TimeoutError
from dataclasses import dataclass, field
from pathlib import Path

from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.jobs import (
    Crashed,
    Load,
    Observation,
    Optimization,
    TimedOut,
)
from onnxgate.core.process_pool import FailedCallError, describe_failure
from onnxgate.evidence.runtime import IsolatedNode, ModelRuns, has_guessed_sizes, has_guessed_values, is_unusable
from onnxgate.inputs.cases import NO_COMPLETED_RUN, REAL_INPUTS_HINT, UNTESTED_BRANCH
from onnxgate.model.subgraphs.reduced_models import extract_node
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages import isolated_nodes
from onnxgate.stages.isolated_nodes import IsolatedLoad, NodeKind, RefusingRuntime, collect_node_kinds
from onnxgate.stages.runtime import ExecutedModel

MAX_NODE_KINDS = 200
"""Maximum number of node kinds per model and runtime that are loaded in isolation."""
MAX_WAIT_S = 60.0
"""Time limit for all nodes of one model on one runtime, after the first result."""
NODE_TIME_S = 30.0
"""Time limit for one node."""
MAX_FATAL_LOADS = 3
"""Maximum number of crashes and timeouts, after each of which a new process must be started."""
NODE_IR_VERSION = 7
"""IR version of isolated nodes if a runtime rejects the IR version of the model. Works since ONNX Runtime 1.3."""

PendingNode = tuple[NodeKind, tuple[Future[Observation], ...]]


@dataclass(slots=True)
class NodeLoads:
    """Results of loading isolated nodes."""

    alone: dict[str, tuple[IsolatedNode, ...]] = field(default_factory=dict)  # by runtime
    skipped: list[IncompleteCheck] = field(default_factory=list)
    answers: list[Future[Observation]] = field(default_factory=list)  # including cancelled ones


@dataclass(slots=True)
class NodeLoader:
    """Loads isolated nodes to find those that a runtime refuses. Each node is written to `folder` as its own model."""

    submit: Callable[[PlannedRuntime, Load], Future[Observation]]
    folder: Path
    _submitted: dict[tuple[str, str, str], Future[Observation]] = field(default_factory=dict)

    def examine(self, model: ExecutedModel, refusing: Mapping[PlannedRuntime, RefusingRuntime]) -> NodeLoads:
        """Load isolated nodes on each runtime that refuses the model; start with nodes predicted to be refused."""
        examined = NodeLoads()
        worth = {planned: refusal for planned, refusal in refusing.items() if not refusal.is_hopeless}
        if not worth:
            return examined
        try:
            kinds = collect_node_kinds(model.view)
        except FailedCallError as error:
            reason, hint = describe_failure(error.failure, "inferring the types of its nodes")
            examined.skipped += [
                IncompleteCheck(Stage.RUNTIME, model.path, planned.name, reason, hint) for planned in worth
            ]
            return examined
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
                limits = f"{MAX_NODE_KINDS} nodes, {MAX_WAIT_S:g} s, {MAX_FATAL_LOADS} crashes"
                reason = f"support was tested for only {len(loads)} of {count} distinct nodes (limits: {limits})"
                examined.skipped.append(IncompleteCheck(Stage.RUNTIME, model.path, planned.name, reason))
        return examined

    def _round(
        self,
        refusing: Mapping[PlannedRuntime, RefusingRuntime],
        kinds: Mapping[PlannedRuntime, Sequence[NodeKind]],
        model: ExecutedModel,
        answers: list[Future[Observation]],
    ) -> dict[PlannedRuntime, dict[NodeKind, IsolatedLoad]]:
        """Load nodes on all runtimes concurrently. Nodes that were not tested are missing from the result."""
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
            if not path.exists():  # another runtime may be reading it
                path.parent.mkdir(parents=True)
                path.write_bytes(data)
            job = Load(model=str(path), optimization=level, providers=planned.providers, extensions=planned.extensions)
            self._submitted[key] = self.submit(planned, job)
        return self._submitted[key]


def _await_loads(pending: Sequence[PendingNode]) -> Iterator[tuple[NodeKind, IsolatedLoad]]:
    """Yield the outcome of each load in order until the time limit, then cancel the others."""
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
    for _, futures in pending:  # no effect on completed futures
        for future in futures:
            future.cancel()


def explain_no_completed_run(runs: Sequence[ModelRuns]) -> tuple[str, str, str]:
    """Return a reason, a hint and a cause if all cases, or all those of a branch, failed because of invalid inputs.

    Otherwise, all three are "".
    """
    attempts = [(attempt, model) for model in runs for attempt in model.attempts]
    unusable = [attempt for attempt, model in attempts if is_unusable(attempt, model)]
    if any(attempt.outcome == "completed" and attempt.case.name for attempt, _ in attempts):
        return _explain_untested_branch(runs)
    if not unusable:
        return "", "", ""
    if not unusable[0].case.sizes:
        return "the model does not run on the generated inputs", REAL_INPUTS_HINT, NO_COMPLETED_RUN
    sized = f"{REAL_INPUTS_HINT}, or set valid `sizes`"
    return "the model does not run on generated inputs of any tested size", sized, NO_COMPLETED_RUN


def _explain_untested_branch(runs: Sequence[ModelRuns]) -> tuple[str, str, str]:
    failed = [it.case.chosen for model in runs for it in model.attempts if has_guessed_values(it, model)]
    if not failed:
        return "", "", ""
    values = " and ".join(f"`{name}` = {str(value).lower()}" for name, value in failed[0].items())
    return f"a branch was not tested, because the model does not run with {values}", REAL_INPUTS_HINT, UNTESTED_BRANCH


def find_undecided_cases(runs: Sequence[ModelRuns]) -> set[str]:
    """Find the cases with invalid inputs, except those with guessed sizes."""
    return {
        attempt.case.name
        for model in runs
        for attempt in model.attempts
        if is_unusable(attempt, model) and not has_guessed_sizes(attempt, model)
    }
