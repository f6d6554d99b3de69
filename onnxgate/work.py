"""What the stages that start processes are given, and what they bring; light, so that static runs need no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxgate.config.project import Project
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.findings import Place, Stage, Undone
from onnxgate.inputs.asked import ALL, Asked
from onnxgate.lock.types import Lock
from onnxgate.model.facts import ModelFacts
from onnxgate.plan import PlannedModel
from onnxgate.report import Measured, Replay
from onnxgate.runtimes.jobs import Case

if TYPE_CHECKING:
    from onnxgate.baseline.revisions import Revision
    from onnxgate.stages.parity import ParityModel
    from onnxgate.stages.runtime import Ran
    from onnxgate.store import Store
    from onnxgate.support.harvested import Kept
    from onnxgate.support.operations import Prediction

    Watch = Callable[[ParityModel, Sequence[Ran]], None]


@dataclass(slots=True)
class Execution:
    """What running the models, and exporting them again, brought."""

    subjects: list[object] = field(default_factory=list)  # evidence for the rules
    undone: list[Undone] = field(default_factory=list)
    skipped: list[Undone] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    ran: set[tuple[str, str]] = field(default_factory=set)  # (model, runtime) of which there is an observation
    faulty: list[ModelRuns] = field(default_factory=list)  # those of which not every attempt completed
    compared: set[tuple[str, str]] = field(default_factory=set)  # those whose outputs were held against the source's
    cases: dict[str, tuple[Case, ...]] = field(default_factory=dict)  # what each model was run on; gone with the files
    replays: tuple[Replay, ...] = ()
    reused: list[tuple[str, str]] = field(default_factory=list)  # (model's file, runtime) of each run taken over


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be executed, and what is known of it already."""

    project: Project
    lock: Lock
    models: tuple[PlannedModel, ...]  # readable, and not broken as files
    facts: Mapping[str, ModelFacts]
    places: Mapping[str, Place]
    stages: frozenset[Stage]
    predicted: Mapping[tuple[str, str], tuple[str, ...]]  # (model, runtime) -> rules that say it is refused
    predictions: Mapping[tuple[str, str], Prediction] = field(default_factory=dict)  # likewise, node by node
    kept: Mapping[str, Kept] = field(default_factory=dict)  # what was harvested of runtimes, by name
    asked: Asked = ALL  # the input cases
    against: Revision | None = None  # of which models with budgets are the baselines
    store: Store | None = None  # results that may be taken over
    watch: Watch | None = None  # is shown what each model gave, while the files are there
