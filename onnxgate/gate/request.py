"""Inputs and results of the gate. To keep static checks fast, this module imports nothing that runs models."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.findings import (
    OPEN_UNTIL_RUN,
    IncompleteCheck,
    Level,
    OnRuntime,
    Place,
    RuleHit,
    Stage,
    name_runtimes,
)
from onnxgate.core.jobs import InputCase
from onnxgate.core.report import Change, Finding, Measured, Replay
from onnxgate.evidence.parity import SOURCE, Comparison
from onnxgate.evidence.runtime import ModelRuns, has_guessed_sizes
from onnxgate.inputs.case_selection import ALL_CASES, CaseSelection
from onnxgate.model.facts import ModelFacts
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.lock.types import Lock
from onnxgate.project.plan import PlannedModel
from onnxgate.support.matching.operations import LoadVerdict, RefusedOperations

if TYPE_CHECKING:
    from onnxgate.project.git.revisions import Revision
    from onnxgate.stages.parity.output_comparison import ParityModel
    from onnxgate.stages.runtime import ObservedRun
    from onnxgate.support.harvest import BuildSupport

    ObserveRuns = Callable[[ParityModel, Sequence[ObservedRun]], None]
    from onnxgate.gate.sharding.plan import Share
    from onnxgate.runtimes.pool import WorkerPool


class Checkout(msgspec.Struct, frozen=True):
    """The checked-out project and its selected models."""

    project: Project
    lock: Lock
    lock_text: str
    lock_name: str  # path of the lock as reported, such as "onnxgate.lock"
    models: tuple[SelectedModel, ...]
    unexported: tuple[str, ...] = ()  # selected models that cannot be checked, because their files do not exist yet


class Selection(msgspec.Struct, frozen=True):
    """Selected stages and input cases."""

    stages: frozenset[Stage]
    inputs: CaseSelection = ALL_CASES


class IgnorePolicy(msgspec.Struct, frozen=True):
    """Whether `[[ignore]]` entries apply, and the current date, which decides whether they have expired."""

    today: datetime.date
    honoured: bool = True


class Baseline(msgspec.Struct, frozen=True):
    """The revision that models are compared with, or why there is none.

    `missing` is the reason why a revision that exists is unavailable, `hint` how to get it. `remark` is the reason why
    there is nothing to compare with.
    """

    revision: Revision | None = None
    remark: str = ""
    missing: str = ""
    hint: str = ""
    is_disabled: bool = False  # in CI, which would have a baseline


class RunCaches(msgspec.Struct, frozen=True):
    """Cache folders of the dynamic stages; None disables a cache."""

    results: Path | None = None  # results of runs, by content
    fresh: bool = False  # cached results are replaced instead of reused
    inputs: Callable[[], Path] | None = None  # inputs that reproduce a finding
    support: Callable[[], Path] | None = None  # harvested support data of builds


class StaticSettings(msgspec.Struct, frozen=True):
    """Settings for reading models in the static stages."""

    jobs: int = 0  # number of child processes; 0 reads models in this process
    folder: Callable[[], Path] | None = None  # cache of static results
    fresh: bool = False  # cached results are replaced instead of reused
    report_reuse: Callable[[int, int], None] | None = None  # called with the number of reused models and of all models


class GateRequest(msgspec.Struct, frozen=True):
    """All inputs of one check."""

    checkout: Checkout
    selection: Selection
    ignores: IgnorePolicy
    open_host: Callable[[], AbstractContextManager[WorkerPool]]
    baseline: Baseline = Baseline()
    share: Share | None = None  # set if the models are one shard of a check
    caches: RunCaches = RunCaches()
    static: StaticSettings = StaticSettings()
    watch: ObserveRuns | None = None  # receives the runs of each model while their files exist

    @property
    def project(self) -> Project:
        """Project of the checkout."""
        return self.checkout.project

    @property
    def lock(self) -> Lock:
        """Lock of the checkout."""
        return self.checkout.lock

    @property
    def models(self) -> tuple[SelectedModel, ...]:
        """Selected models."""
        return self.checkout.models

    @property
    def stages(self) -> frozenset[Stage]:
        """Selected stages."""
        return self.selection.stages


class RunnableModel(msgspec.Struct, frozen=True):
    """A readable, valid model for the dynamic stages."""

    planned: PlannedModel
    facts: ModelFacts
    place: Place
    refused_by: Mapping[str, tuple[str, ...]] = msgspec.field(
        default_factory=dict
    )  # runtime -> rules that predict its refusal
    predictions: Mapping[str, RefusedOperations] = msgspec.field(
        default_factory=dict
    )  # runtime -> predicted refusals of operations

    @property
    def path(self) -> str:
        """Path of the model."""
        return self.planned.path


class ExecutionSettings(msgspec.Struct, frozen=True):
    """Settings of the dynamic stages for all models."""

    project: Project
    lock: Lock
    stages: frozenset[Stage]
    inputs: CaseSelection = ALL_CASES
    revision: Revision | None = None  # baseline for models with a budget
    harvested: Mapping[str, BuildSupport] = msgspec.field(default_factory=dict)  # by runtime
    watch: ObserveRuns | None = None


class StepResult(msgspec.Struct, frozen=True):
    """Evidence and incomplete checks of one step of the dynamic stages."""

    subjects: tuple[object, ...] = ()  # evidence for the rules
    undone: tuple[IncompleteCheck, ...] = ()
    skipped: tuple[IncompleteCheck, ...] = ()
    measured: tuple[Measured, ...] = ()


class CollectedModel(msgspec.Struct, frozen=True):
    """Results of a model on all its runtimes."""

    cases: tuple[InputCase, ...]  # their files are temporary
    runs: tuple[ModelRuns, ...]
    step: StepResult
    observed: tuple[str, ...] = ()  # runtime of each run
    is_lasting: bool = False  # reproducible, so that it can be cached


class ExecutionResult(msgspec.Struct, frozen=True):
    """Result of running and re-exporting the models."""

    step: StepResult = StepResult()  # of all models
    ran: frozenset[tuple[str, str]] = frozenset()  # (model, runtime) that have an observation
    completed: frozenset[tuple[str, str]] = frozenset()  # (model, runtime) that completed at least one input case
    faulty: tuple[ModelRuns, ...] = ()  # runs with an attempt that did not complete
    compared: frozenset[tuple[str, str]] = frozenset()  # (model, runtime) compared with the source
    collected: Mapping[str, CollectedModel] = msgspec.field(default_factory=dict)  # by path
    reused: tuple[tuple[str, str], ...] = ()  # (model file, runtime) of each run that was reused from a cache
    replays: tuple[Replay, ...] = ()
    hits: tuple[RuleHit, ...] = ()

    @property
    def accepted(self) -> frozenset[tuple[str, str]]:
        """(model, runtime) that completed all cases."""
        return self.completed - {(runs.model, runs.runtime) for runs in self.faulty}


class StageResult(msgspec.Struct, frozen=True, kw_only=True):
    """Common fields of the stage results."""

    hits: tuple[RuleHit, ...] = ()
    undone: tuple[IncompleteCheck, ...] = ()
    skipped: tuple[IncompleteCheck, ...] = ()
    remarks: tuple[str, ...] = ()


class FileResult(StageResult, frozen=True):
    """Result of the file stage."""

    missing: Mapping[str, tuple[str, str]] = msgspec.field(default_factory=dict)  # incomplete model -> reason and hint


class LockResult(StageResult, frozen=True):
    """Result of comparing the models with the lock."""

    facts: Mapping[str, ModelFacts] = msgspec.field(
        default_factory=dict
    )  # by path; read from the file or, for Git LFS pointers, from the lock
    places: Mapping[str, Place] = msgspec.field(default_factory=dict)  # places of findings about these models
    failures: Mapping[str, tuple[str, str]] = msgspec.field(default_factory=dict)  # model without facts -> reason, hint


class ChangeResult(StageResult, frozen=True):
    """Result of comparing the models with the baseline."""

    changes: tuple[Change, ...] = ()  # by model


class SupportStageResult(StageResult, frozen=True):
    """Result of the support stage."""

    verdicts: Mapping[tuple[str, str], LoadVerdict] = msgspec.field(default_factory=dict)  # by model and runtime
    predictions: Mapping[tuple[str, str], RefusedOperations] = msgspec.field(
        default_factory=dict
    )  # for models that may be run
    harvested: Mapping[str, BuildSupport] = msgspec.field(default_factory=dict)  # by runtime


class PolicyResult(StageResult, frozen=True):
    """Result of comparing the policy with the policy at the baseline."""

    new_ignores: frozenset[int] = frozenset()  # indexes of `[[ignore]]` entries that accept more than at the baseline


class StageResults(msgspec.Struct, frozen=True):
    """The result of each stage."""

    policy: PolicyResult = PolicyResult()
    file: FileResult = FileResult()
    lock: LockResult = LockResult()
    change: ChangeResult = ChangeResult()
    support: SupportStageResult = SupportStageResult()
    execution: ExecutionResult = ExecutionResult()
    unchecked: StageResult = StageResult()  # incomplete checks that belong to no stage

    @property
    def judged(self) -> list[RuleHit]:
        """Hits of all stages, except hits that a run has made obsolete."""
        hits = [hit for part in self._parts for hit in part.hits]
        return apply_runs([*hits, *self.execution.hits], self.execution)

    @property
    def undone(self) -> list[IncompleteCheck]:
        """Requested checks that could not be completed."""
        return [undone for part in self._parts for undone in part.undone] + [*self.execution.step.undone]

    @property
    def skipped(self) -> list[IncompleteCheck]:
        """Checks that do not apply or are optional."""
        return [skipped for part in self._parts for skipped in part.skipped] + [*self.execution.step.skipped]

    @property
    def remarks(self) -> list[str]:
        """Messages that are not findings."""
        return [remark for part in self._parts for remark in part.remarks]

    @property
    def _parts(self) -> tuple[StageResult, ...]:
        return self.policy, self.file, self.lock, self.change, self.support, self.unchecked

    @property
    def facts(self) -> Mapping[str, ModelFacts]:
        """Facts of the models, by path."""
        return self.lock.facts


class GateOutcome(msgspec.Struct, frozen=True):
    """All data for the report."""

    planned: tuple[PlannedModel, ...]
    findings: tuple[Finding, ...]
    gathered: StageResults
    blocked: frozenset[str]  # models with broken files, which were not run
    # (model, runtime) of each observed error that an error finding without an ignore explains
    failed: frozenset[tuple[str, str]]
    accepted: frozenset[str] = frozenset()  # fingerprints of the undecided checks that an ignore accepts

    @property
    def undecided(self) -> list[IncompleteCheck]:
        """Requested checks that could not be completed, except those that an ignore accepts."""
        return [undone for undone in self.gathered.undone if undone.fingerprint not in self.accepted]


def join_steps(steps: Iterable[StepResult]) -> StepResult:
    """Join the results of steps in order."""
    parts = tuple(steps)
    return StepResult(
        subjects=tuple(subject for part in parts for subject in part.subjects),
        undone=tuple(undone for part in parts for undone in part.undone),
        skipped=tuple(skipped for part in parts for skipped in part.skipped),
        measured=tuple(measured for part in parts for measured in part.measured),
    )


def create_execution_result(step: StepResult, runs: Iterable[ModelRuns]) -> ExecutionResult:
    """Create the execution result from evidence. `runs` includes runs that no selected stage reports."""
    runs = tuple(runs)
    return ExecutionResult(
        step,
        ran=frozenset((it.model, it.runtime) for it in runs),
        completed=frozenset(
            (it.model, it.runtime)
            for it in runs
            if any(attempt.outcome == "completed" and attempt.case.name for attempt in it.attempts)
        ),
        faulty=tuple(
            it
            for it in runs
            if any(attempt.outcome != "completed" and not has_guessed_sizes(attempt, it) for attempt in it.attempts)
        ),
        compared=frozenset(
            (subject.model, subject.runtime)
            for subject in step.subjects
            if isinstance(subject, Comparison) and subject.reference == SOURCE
        ),
    )


def join_executions(results: Iterable[ExecutionResult]) -> ExecutionResult:
    """Join the execution results of different models."""
    parts = tuple(results)
    return ExecutionResult(
        join_steps(part.step for part in parts),
        ran=frozenset(pair for part in parts for pair in part.ran),
        completed=frozenset(pair for part in parts for pair in part.completed),
        faulty=tuple(runs for part in parts for runs in part.faulty),
        compared=frozenset(pair for part in parts for pair in part.compared),
        collected={path: model for part in parts for path, model in part.collected.items()},
        reused=tuple(pair for part in parts for pair in part.reused),
        replays=tuple(sorted((replay for part in parts for replay in part.replays), key=lambda replay: replay.model)),
        hits=tuple(hit for part in parts for hit in part.hits),
    )


def apply_runs(judged: Sequence[RuleHit], execution: ExecutionResult) -> list[RuleHit]:
    """Drop hits that a run has made obsolete, and limit hits that the runs decide to what the runs confirm."""
    accepted = execution.accepted
    refused = {
        (it.hit.model, runtime)
        for it in judged
        if it.stage is Stage.SUPPORT and it.level is Level.ERROR
        for runtime in it.hit.runtimes
    }
    resulting: list[RuleHit] = []
    for rule_hit in judged:
        hit = rule_hit.hit
        if any((hit.model, name) in execution.ran for name in hit.deciding_runtimes):
            resulting += _limit_to_failures(rule_hit, accepted, refused)
        elif OPEN_UNTIL_RUN not in hit.relations:
            resulting.append(rule_hit)
        elif left := rule_hit.exclude([name for name in hit.runtimes if (hit.model, name) in execution.ran]):
            resulting.append(left)
    return resulting


def _limit_to_failures(
    rule_hit: RuleHit, accepted: Collection[tuple[str, str]], refused: Collection[tuple[str, str]]
) -> Iterator[RuleHit]:
    """Yield the hit for each deciding runtime that is not known to run the model, or a warning if there is none.

    `accepted` contains the (model, runtime) pairs that completed all cases. If there are any, pairs that are predicted
    to fail for another reason, in `refused`, do not count as failures.
    """
    hit, runtimes = rule_hit.hit, rule_hit.hit.deciding_runtimes
    accepting = [name for name in runtimes if (hit.model, name) in accepted]
    explained = [name for name in runtimes if accepting and (hit.model, name) in refused]
    failing = [name for name in runtimes if name not in accepting and name not in explained]
    for name in failing:
        yield replace(rule_hit, hit=msgspec.structs.replace(hit, on=OnRuntime(name)))
    if not failing:
        message = f"{hit.message}; {describe_acceptance(accepting, runtimes)}"
        level = Level.WARNING if rule_hit.level is Level.ERROR else rule_hit.level
        yield replace(rule_hit, level=level, hit=msgspec.structs.replace(hit, message=message))


def describe_acceptance(accepting: Sequence[str], known: Sequence[str]) -> str:
    """State which runtimes accept a model in spite of a fault."""
    return f"{name_runtimes(accepting, known)} accept{'' if len(accepting) > 1 else 's'} it"
