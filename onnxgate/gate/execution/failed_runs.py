"""Nodes of refused models, loaded alone: each once on a runtime, and no more than help to say what is wrong."""

from __future__ import annotations

import hashlib
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
from onnxgate.inputs.axis_sizes import SizeSetting, list_alternative_settings, vary_setting
from onnxgate.inputs.cases import REAL_INPUTS_HINT
from onnxgate.model.facts import ModelFacts
from onnxgate.project.config.project import SelectedModel
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.runtime import isolated_nodes
from onnxgate.stages.runtime.isolated_nodes import IsolatedLoad, NodeKind, RefusingRuntime, collect_node_kinds
from onnxgate.stages.runtime.stage import ExecutedModel, ObservedRun

MAX_NODE_KINDS = 200
"""So many kinds of nodes of one model are loaded alone on one runtime."""
MAX_WAIT_S = 60.0
"""So long one model's nodes may take on one runtime, once the first of them was answered."""
NODE_TIME_S = 30.0
"""So long one node may take."""
MAX_FATAL_LOADS = 3
"""After so many that crash or hang, no more are tried: each costs a new process."""
NODE_IR_VERSION = 7
"""Stamped on nodes of a model whose IR version is refused. Source: every ONNX Runtime since 1.3 takes it."""

SubmitLoad = Callable[[PlannedRuntime, Load], Future[Observation]]
PendingNode = tuple[NodeKind, tuple[Future[Observation], ...]]


@dataclass(slots=True)
class NodeLoads:
    """What came of it."""

    alone: dict[str, tuple[IsolatedNode, ...]] = field(default_factory=dict)  # by runtime
    skipped: list[IncompleteCheck] = field(default_factory=list)


@dataclass(slots=True)
class NodeLoader:
    """Asks runtimes; `folder` is where the models of nodes are written to."""

    submit: SubmitLoad
    folder: Path
    _asked: dict[tuple[str, str, str], Future[Observation]] = field(default_factory=dict)

    def examine(self, model: ExecutedModel, refusing: Mapping[PlannedRuntime, RefusingRuntime]) -> NodeLoads:
        """Load the nodes of a model alone on each runtime that refuses it: those predicted first, then what is left."""
        examined = NodeLoads()
        worth = {planned: each for planned, each in refusing.items() if not each.is_hopeless}
        if not worth:
            return examined
        kinds = collect_node_kinds(model.proto)
        first = {planned: isolated_nodes.select_predicted_kinds(each, kinds) for planned, each in worth.items()}
        seen = self._round(worth, first, model.proto.ir_version)
        rest = {
            planned: isolated_nodes.select_remaining_kinds(each, kinds, seen[planned])
            for planned, each in worth.items()
        }
        more = self._round(worth, rest, model.proto.ir_version)
        for planned, each in worth.items():
            both = {**seen[planned], **more[planned]}
            wanted = len(first[planned]) + len(rest[planned])
            examined.alone[planned.name] = isolated_nodes.evaluate_isolated_nodes(each, kinds, both, model)
            examined.skipped += _report_untried(model.path, planned.name, len(both), wanted)
        return examined

    def _round(
        self,
        refusing: Mapping[PlannedRuntime, RefusingRuntime],
        wanted: Mapping[PlannedRuntime, Sequence[NodeKind]],
        ir_version: int,
    ) -> dict[PlannedRuntime, dict[NodeKind, IsolatedLoad]]:
        """What became of nodes, of all runtimes at the same time; one that was not tried is not there."""
        asked = {
            planned: list(self._ask(planned, refusing[planned], kinds[:MAX_NODE_KINDS], ir_version))
            for planned, kinds in wanted.items()
        }
        return {planned: dict(_await_loads(each)) for planned, each in asked.items()}

    def _ask(
        self, planned: PlannedRuntime, refusing: RefusingRuntime, kinds: Iterable[NodeKind], ir_version: int
    ) -> Iterator[PendingNode]:
        stamped = min(ir_version, NODE_IR_VERSION) if refusing.is_ir_refused else ir_version
        for kind in kinds:
            data = kind.model(stamped)
            if data is not None:
                yield kind, tuple(self._load(planned, data, level) for level in refusing.levels)

    def _load(self, planned: PlannedRuntime, data: bytes, level: Optimization) -> Future[Observation]:
        digest = hashlib.sha256(data).hexdigest()
        key = (planned.name, digest, level)
        if key not in self._asked or self._asked[key].cancelled():
            job = Load(
                model=str(self._file(digest, data)),
                optimization=level,
                providers=planned.providers,
                extensions=planned.extensions,
            )
            self._asked[key] = self.submit(planned, job)
        return self._asked[key]

    def _file(self, digest: str, data: bytes) -> Path:
        """Written once: another runtime may be reading it."""
        path = (self.folder / digest[:32] / "node.onnx").absolute()
        if not path.exists():
            path.parent.mkdir(parents=True)
            path.write_bytes(data)
        return path


def _report_untried(model: str, runtime: str, tried: int, wanted: int) -> list[IncompleteCheck]:
    if tried == wanted:
        return []
    reason = f"{tried} of {wanted} kinds of nodes could be loaded alone to find all that is refused"
    return [IncompleteCheck(Stage.RUNTIME, model, runtime, reason)]


def _await_loads(asked: Sequence[PendingNode]) -> Iterator[tuple[NodeKind, IsolatedLoad]]:
    """The outcome of each, in order, until patience ends; what waits then is not done."""
    ends_at, fatal = float("inf"), 0
    for index, (kind, futures) in enumerate(asked):
        try:
            observations = [future.result(_remaining_s(ends_at)) for future in futures]
        except TimeoutError:
            return _cancel_loads(asked[index:])
        ends_at = min(ends_at, time.monotonic() + MAX_WAIT_S)
        yield kind, isolated_nodes.combine_levels(observations)
        fatal += any(isinstance(observation, Crashed | TimedOut) for observation in observations)
        if fatal == MAX_FATAL_LOADS:
            return _cancel_loads(asked[index + 1 :])


def _remaining_s(ends_at: float) -> float | None:
    return None if ends_at == float("inf") else max(0.0, ends_at - time.monotonic())


def _cancel_loads(asked: Sequence[PendingNode]) -> None:
    for _, futures in asked:
        for future in futures:
            future.cancel()


SourceResults = Mapping[str, CaseResult]
TrySizes = Callable[[SizeSetting], Sequence[ObservedRun]]


def has_failed_case(ran: Sequence[ObservedRun]) -> bool:
    """Whether a generated case was refused somewhere: whether its inputs are usable is worth asking the source."""
    return any(case.origin == "generated" and got.failure is not None for _, case, got in _case_results(ran))


def needs_sizes(ran: Sequence[ObservedRun], eager: SourceResults | None) -> bool:
    """Whether nothing took the first generated case, whose sizes are a guess: not one runtime, nor the source."""
    found = [(case, got) for _, case, got in _case_results(ran) if case.origin == "generated"]
    if not found:
        return False
    base = found[0][0]
    source = (eager or {}).get(base.name)
    taken = any(case.name == base.name and got.failure is None for case, got in found)
    return bool(base.guessed) and not taken and (source is None or source.failure is not None)


def find_sizes(
    facts: ModelFacts, model: SelectedModel, ran: Sequence[ObservedRun], attempt: TrySizes
) -> tuple[SizeSetting, ...]:
    """The settings to run in place of the first ones; none where no guess runs.

    `attempt` runs one setting on one runtime. What crashes or hangs there ends the search.
    """
    sizes = model.settings.sizes
    tried: list[SizeSetting] = [dict(case.sizes) for _, case, got in _case_results(ran) if got.failure is not None]
    for setting in (*_completed_sizes(ran), *list_alternative_settings(facts.inputs, sizes)):
        if setting in tried:
            continue
        tried.append(setting)
        found = attempt(setting)
        if any(got.failure is None for _, _, got in _case_results(found)):
            return vary_setting(facts.inputs, sizes, setting)
        if not any(True for _ in _case_results(found)):
            return ()
    return ()


def newest_runtime(ran: Sequence[ObservedRun]) -> str:
    """The newest runtime on which cases were run."""
    return max((name for name, _, _ in _case_results(ran)), key=runtime_sort_key)


def explain_no_completed_run(runs: Sequence[ModelRuns]) -> tuple[str, str]:
    """Why nothing is known of how a model runs, and what would help; ("", "") where a case ran or none was unusable."""
    attempts = [(attempt, model) for model in runs for attempt in model.attempts]
    unusable = [each for each, model in attempts if is_unusable(each, model)]
    if not unusable or any(each.outcome == "completed" and each.case.name for each, _ in attempts):
        return "", ""
    if not unusable[0].case.sizes:
        return "its inputs cannot be run", REAL_INPUTS_HINT
    sized = f"{REAL_INPUTS_HINT}, or sizes that the model takes: `sizes`"
    return "its inputs cannot be run at any of the sizes that were tried", sized


def find_undecided_cases(runs: Sequence[ModelRuns]) -> set[str]:
    """Cases of which it is not known whether the model gives the right outputs; mere guesses are not promised."""
    return {
        attempt.case.name
        for model in runs
        for attempt in model.attempts
        if is_unusable(attempt, model) and not has_guessed_sizes(attempt, model)
    }


def _completed_sizes(ran: Sequence[ObservedRun]) -> list[SizeSetting]:
    """The sizes at which the model has run already, those of its source's example first."""
    completed = [case for _, case, got in _case_results(ran) if got.failure is None and case.sizes]
    return [dict(case.sizes) for case in sorted(completed, key=lambda case: case.origin != "source")]


def _case_results(ran: Sequence[ObservedRun]) -> Iterator[tuple[str, InputCase, CaseResult]]:
    """Every case that came to its end, on each runtime and at each level."""
    for each in ran:
        match each.observation:
            case Completed(result=RunResult(cases=results)):
                for case, got in zip(each.job.cases, results, strict=True):
                    yield each.runtime, case, got
            case _:
                pass
