"""What one run of the gate is asked, what it gathers, and what comes of it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.config.project import Project, SelectedModel
from onnxgate.findings import Judged, Place, Stage, Undone
from onnxgate.inputs.asked import ALL, Asked
from onnxgate.lock.types import Lock
from onnxgate.model.facts import ModelFacts
from onnxgate.plan import PlannedModel
from onnxgate.report import Change, Finding
from onnxgate.support.operations import Prediction, Verdict
from onnxgate.work import Execution

if TYPE_CHECKING:
    from onnxgate.baseline.revisions import Revision
    from onnxgate.runtimes.host import Host
    from onnxgate.shards import Share
    from onnxgate.support.harvested import Kept
    from onnxgate.work import Watch


@dataclass(frozen=True, slots=True)
class Request:
    """What one run of the gate is asked to judge."""

    project: Project
    lock: Lock
    lock_text: str
    lock_name: str  # the lock's path for places: "onnxgate.lock"
    models: tuple[SelectedModel, ...]
    stages: frozenset[Stage]
    today: datetime.date
    open_host: Callable[[], AbstractContextManager[Host]]
    honour_ignores: bool = True
    support_folder: Callable[[], Path] | None = None  # where harvests of builds are kept; None: there are none
    asked: Asked = ALL  # the input cases
    inputs_folder: Callable[[], Path] | None = None  # where inputs are stored that show a finding; None: nowhere
    against: Revision | None = None  # the baseline
    unheld: str = ""  # why there is none, where one is expected
    share: Share | None = None  # `models` are one part of a check
    results_folder: Path | None = None  # where results of the same content may be taken from; None: all is run
    fresh: bool = False  # none is taken from there, and those that are made take their place
    jobs: int = 0  # child processes in which the static stages look at models; 0: in this one
    static_folder: Callable[[], Path] | None = None  # where it is kept what they said before; None: nowhere
    watch: Watch | None = None  # is shown what each model gave, while the files are there


@dataclass(slots=True)
class Gathered:
    """What has been found so far; grows stage by stage."""

    judged: list[Judged] = field(default_factory=list)
    undone: list[Undone] = field(default_factory=list)
    skipped: list[Undone] = field(default_factory=list)
    facts: dict[str, ModelFacts] = field(default_factory=dict)  # of models that could be read or are proven by the lock
    places: dict[str, Place] = field(default_factory=dict)  # where findings about each of them stand
    away: dict[str, tuple[str, str]] = field(default_factory=dict)  # models that are not all here: why, what helps
    verdicts: dict[tuple[str, str], Verdict] = field(default_factory=dict)  # of predictions, by model and runtime
    predictions: dict[tuple[str, str], Prediction] = field(default_factory=dict)  # in full, where models are to be run
    kept: Mapping[str, Kept] = field(default_factory=dict)  # what was harvested of runtimes, by name
    remarks: list[str] = field(default_factory=list)  # what is to be said and is no finding
    changes: list[Change] = field(default_factory=list)  # since the baseline, by model
    execution: Execution = field(default_factory=Execution)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that the report is made from."""

    planned: tuple[PlannedModel, ...]
    findings: tuple[Finding, ...]
    gathered: Gathered
    blocked: frozenset[str]  # models that are broken as files, and therefore were not run
    failed: frozenset[
        tuple[str, str]
    ]  # (model, runtime) of every observed error, also of those that a finding explains
