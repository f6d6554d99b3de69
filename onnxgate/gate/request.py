"""What the stages that start processes are given, and what they bring; light, so that static runs need no more."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.core.findings import IncompleteCheck, Place, RuleHit, Stage
from onnxgate.core.jobs import InputCase
from onnxgate.core.report import Change, Finding, Measured, Replay
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.inputs.case_selection import ALL_CASES, CaseSelection
from onnxgate.model.facts import ModelFacts
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.lock.types import Lock
from onnxgate.project.plan import PlannedModel
from onnxgate.support.matching.operations import LoadVerdict, RefusedOperations

if TYPE_CHECKING:
    from onnxgate.gate.cache.run_results import ResultCache
    from onnxgate.project.git.revisions import Revision
    from onnxgate.stages.parity.stage import ParityModel
    from onnxgate.stages.runtime.stage import ObservedRun
    from onnxgate.support.harvest.cache import BuildSupport

    ObserveRuns = Callable[[ParityModel, Sequence[ObservedRun]], None]
    from onnxgate.gate.sharding.plan import Share
    from onnxgate.runtimes.pool.scheduler import WorkerPool


@dataclass(slots=True)
class ExecutionResult:
    """What running the models, and exporting them again, brought."""

    subjects: list[object] = field(default_factory=list)  # evidence for the rules
    undone: list[IncompleteCheck] = field(default_factory=list)
    skipped: list[IncompleteCheck] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    ran: set[tuple[str, str]] = field(default_factory=set)  # (model, runtime) of which there is an observation
    faulty: list[ModelRuns] = field(default_factory=list)  # those of which not every attempt completed
    compared: set[tuple[str, str]] = field(default_factory=set)  # those whose outputs were held against the source's
    cases: dict[str, tuple[InputCase, ...]] = field(
        default_factory=dict
    )  # what each model was run on; gone with the files
    replays: tuple[Replay, ...] = ()
    reused: list[tuple[str, str]] = field(default_factory=list)  # (model's file, runtime) of each run taken over


@dataclass(frozen=True, slots=True)
class ExecutionRequest:
    """What is to be executed, and what is known of it already."""

    project: Project
    lock: Lock
    models: tuple[PlannedModel, ...]  # readable, and not broken as files
    facts: Mapping[str, ModelFacts]
    places: Mapping[str, Place]
    stages: frozenset[Stage]
    predicted: Mapping[tuple[str, str], tuple[str, ...]]  # (model, runtime) -> rules that say it is refused
    predictions: Mapping[tuple[str, str], RefusedOperations] = field(default_factory=dict)  # likewise, node by node
    kept: Mapping[str, BuildSupport] = field(default_factory=dict)  # what was harvested of runtimes, by name
    asked: CaseSelection = ALL_CASES  # the input cases
    against: Revision | None = None  # of which models with budgets are the baselines
    store: ResultCache | None = None  # results that may be taken over
    watch: ObserveRuns | None = None  # is shown what each model gave, while the files are there


@dataclass(frozen=True, slots=True)
class GateRequest:
    """What one run of the gate is asked to judge."""

    project: Project
    lock: Lock
    lock_text: str
    lock_name: str  # the lock's path for places: "onnxgate.lock"
    models: tuple[SelectedModel, ...]
    stages: frozenset[Stage]
    today: datetime.date
    open_host: Callable[[], AbstractContextManager[WorkerPool]]
    honour_ignores: bool = True
    support_folder: Callable[[], Path] | None = None  # where harvests of builds are kept; None: there are none
    asked: CaseSelection = ALL_CASES  # the input cases
    inputs_folder: Callable[[], Path] | None = None  # where inputs are stored that show a finding; None: nowhere
    against: Revision | None = None  # the baseline
    unheld: str = ""  # why there is none, where one is expected
    share: Share | None = None  # `models` are one part of a check
    results_folder: Path | None = None  # where results of the same content may be taken from; None: all is run
    fresh: bool = False  # none is taken from there, and those that are made take their place
    jobs: int = 0  # child processes in which the static stages look at models; 0: in this one
    static_folder: Callable[[], Path] | None = None  # where it is kept what they said before; None: nowhere
    watch: ObserveRuns | None = None  # is shown what each model gave, while the files are there


@dataclass(slots=True)
class GateState:
    """What has been found so far; grows stage by stage."""

    judged: list[RuleHit] = field(default_factory=list)
    undone: list[IncompleteCheck] = field(default_factory=list)
    skipped: list[IncompleteCheck] = field(default_factory=list)
    facts: dict[str, ModelFacts] = field(default_factory=dict)  # of models that could be read or are proven by the lock
    places: dict[str, Place] = field(default_factory=dict)  # where findings about each of them stand
    away: dict[str, tuple[str, str]] = field(default_factory=dict)  # models that are not all here: why, what helps
    verdicts: dict[tuple[str, str], LoadVerdict] = field(default_factory=dict)  # of predictions, by model and runtime
    predictions: dict[tuple[str, str], RefusedOperations] = field(default_factory=dict)  # if models are to be run
    kept: Mapping[str, BuildSupport] = field(default_factory=dict)  # what was harvested of runtimes, by name
    remarks: list[str] = field(default_factory=list)  # what is to be said and is no finding
    changes: list[Change] = field(default_factory=list)  # since the baseline, by model
    execution: ExecutionResult = field(default_factory=ExecutionResult)


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """Everything that the report is made from."""

    planned: tuple[PlannedModel, ...]
    findings: tuple[Finding, ...]
    gathered: GateState
    blocked: frozenset[str]  # models that are broken as files, and therefore were not run
    failed: frozenset[
        tuple[str, str]
    ]  # (model, runtime) of every observed error, also of those that a finding explains
