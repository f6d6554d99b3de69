"""The report of a check and the preview of an upgrade. Both are sorted, and contain neither times nor host names."""

from __future__ import annotations

from typing import Literal

import msgspec

VERSION = 1
RATIO_METRICS = frozenset({"sqnr_db", "cosine", "top1"})
"""Metrics for which higher is better: signal-to-noise ratio in dB, cosine similarity, and top-1 agreement.

Top-1 agreement is the share of rows whose largest element has the same index.
"""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of all objects in the report."""


class ReportedPlace(Part, frozen=True, kw_only=True):
    """The file and lines of a finding."""

    path: str  # relative to the config's folder, with `/`
    line: int = 0  # counted from 1; 0 for the whole file
    end_line: int = 0  # 0 for a single line


class ReportedModel(Part, frozen=True, kw_only=True):
    """One model that was checked."""

    path: str  # relative to the config's folder
    sha256: str


class ReportedRuntime(Part, frozen=True, kw_only=True):
    """One locked runtime of one target."""

    target: str  # name in the config
    engine: str  # such as "onnxruntime" or "onnxruntime+onnxruntime-extensions"
    version: str  # exact release
    python: str  # minor version, such as "3.11"; "" in your own environment
    providers: tuple[str, ...]


class Finding(Part, frozen=True, kw_only=True):
    """One problem at one place, for all affected runtimes."""

    rule: str
    level: Literal["error", "warning", "note"]  # as configured
    stage: str
    message: str  # the problem, as a phrase that follows the model's name
    fix: str
    model: str  # path; "" for the project
    node: str  # "" for the whole model
    runtimes: tuple[str, ...]  # affected runtimes in ascending order
    place: ReportedPlace
    works_since: str  # first release that works; "" if unknown
    works_until: str  # last release that worked; "" if unknown
    confirmed: bool  # whether a run confirmed the prediction
    fingerprint: str  # identifier that is stable across commits
    ignored: str = ""  # reason given in the ignore; "" if not ignored


class NotDone(Part, frozen=True, kw_only=True):
    """A check that is undecided or was skipped, and why."""

    stage: str
    model: str  # "" for the project
    runtime: str  # "" for all runtimes
    reason: str
    hint: str = ""


class Measured(Part, frozen=True, kw_only=True):
    """One measured value and its bound."""

    model: str
    output: str
    pair: str  # runtime and reference
    case: str  # input case, such as "sizes batch=3"
    metric: str  # such as "worst_abs", "cosine" or "time ratio"
    value: float | None  # null if it is infinite or NaN
    bound: float | None  # null if the value is only informational
    bound_from: str  # source of the bound: "config", "lock" or "type"


class Replay(Part, frozen=True, kw_only=True):
    """How to reproduce the findings about runs and outputs of one model."""

    model: str
    rules: tuple[str, ...]
    cases: tuple[str, ...]  # minimal set of cases that reproduces the findings
    seed: int
    command: str  # shell command, to be run in the config's folder
    inputs: tuple[str, ...] = ()  # generated input files in the cache


class Against(Part, frozen=True, kw_only=True):
    """The git revision that models were compared with."""

    name: str  # revision as given, such as "origin/main"
    commit: str


class Change(Part, frozen=True, kw_only=True):
    """The differences between one model and its baseline."""

    model: str  # path, even if the model was removed
    kind: Literal["added", "removed", "renamed", "changed"]
    before: str = ""  # former path of a renamed model
    said: tuple[str, ...] = ()  # differences, most severe first


class DrawnNode(Part, frozen=True, kw_only=True):
    """One box in a drawing."""

    name: str  # name of the node or the value
    operator: str = ""  # such as "Conv" or "com.microsoft.Gelu"; "" for a value
    kind: Literal["node", "failing", "input", "output", "weight", "more"] = "node"


class DrawnEdge(Part, frozen=True, kw_only=True):
    """One arrow in a drawing, given by the indexes of the boxes that it connects."""

    source: int
    target: int
    value: str = ""  # name of the value


class Drawing(Part, frozen=True, kw_only=True):
    """The graph around the node of a finding."""

    model: str
    node: str
    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]


class SharedHit(Part, frozen=True, kw_only=True):
    """A problem with the project, a runtime or a removed model, which several shards may report."""

    rule: str
    level: Literal["error", "warning", "note"]
    stage: str
    message: str
    place: ReportedPlace
    fix: str = ""
    model: str = ""  # path of a removed model
    node: str = ""
    runtime: str = ""
    detail: str = ""
    works_since: str = ""
    works_until: str = ""
    identity: str = ""
    confirmed: bool = False


class SharedIgnore(Part, frozen=True, kw_only=True):
    """An ignore in the config. Whether it was used is known only after all shards are merged."""

    rule: str
    model: str  # glob of model paths
    reason: str
    place: ReportedPlace
    until: str
    expired: bool
    sha256: str
    fingerprints: tuple[str, ...] | None  # listed in the entry
    covered: bool  # whether the shard checked everything that the ignore applies to
    content_there: bool  # whether a model in the shard has, or may have, this SHA-256
    found: tuple[str, ...]  # fingerprints of matching findings


class AskedName(Part, frozen=True, kw_only=True):
    """A name in the config that has to exist in a model."""

    where: str  # "onnxgate.toml:30: `model[1].sizes.batch`"
    kind: Literal["dynamic axis", "output"]
    name: str


class SharedNames(Part, frozen=True, kw_only=True):
    """The names in one `[[model]]` entry of the config, and the names in the matching models of this shard."""

    asked: tuple[AskedName, ...]
    axes: tuple[str, ...]
    outputs: tuple[str, ...]
    whole: bool  # whether all matching models of this shard were read


class Shard(Part, frozen=True, kw_only=True):
    """The part of a check that this report covers, and the data needed to merge it with the other parts."""

    index: int  # counted from 1
    of: int  # number of shards
    plan: str  # digest of config, lock, models and assignment to shards
    key: str  # digest of plan and options, the same in all shards of a check
    config: str  # digest of the config
    lock: str  # digest of the lock
    models: tuple[str, ...]  # all models of the check, sorted
    division: tuple[int, ...]  # for each model, the index of its shard
    scope: str  # parts that the whole check skipped; "" for a complete check
    locked: tuple[ReportedRuntime, ...]  # all runtimes in the lock
    levels: dict[str, str] = {}  # configured levels of rules about ignores
    hits: tuple[SharedHit, ...] = ()
    ignores: tuple[SharedIgnore, ...] = ()  # one per ignore in the config
    names: tuple[SharedNames, ...] = ()  # one per `[[model]]` entry that contains names
    digest: str = ""  # digest of the report without this field


CellState = Literal["pass", "warning", "fail", "predicted", "not predicted", "undecided", "skipped", "not asked"]


class Cell(Part, frozen=True, kw_only=True):
    """The state of one model on one runtime."""

    model: str
    runtime: str
    state: CellState
    compared: bool = False  # whether outputs were compared with the source


class Report(Part, frozen=True, kw_only=True):
    """The result of one check."""

    version: int = VERSION
    onnxgate: str  # version of onnxgate
    verdict: Literal["pass", "fail", "undecided"]
    exit: int  # exit status
    folder: str  # config's folder in the repository; "" for its root
    scope: str  # skipped parts; "" for a complete check
    stages: tuple[str, ...]  # selected stages
    models: tuple[ReportedModel, ...]
    runtimes: tuple[ReportedRuntime, ...]
    cells: tuple[Cell, ...]  # sorted by model, then in the order of `runtimes`
    findings: tuple[Finding, ...]  # most severe first
    undecided: tuple[NotDone, ...]  # selected checks that could not be completed
    skipped: tuple[NotDone, ...]  # checks that do not apply
    measured: tuple[Measured, ...]
    counts: dict[str, int]
    replays: tuple[Replay, ...] = ()  # sorted by model
    against: Against | None = None
    changes: tuple[Change, ...] = ()  # sorted by model
    drawings: tuple[Drawing, ...] = ()  # sorted by model and node
    remarks: tuple[str, ...] = ()  # additional information, such as the releases that load a model
    shard: Shard | None = None  # null except in the report of a shard


LEVELS = ("error", "warning", "note")
SUMMED_COUNTS = ("models", "without_source", "ran", "compared", "reused")
"""Names of counts in a report that are added up when the reports of shards are merged."""
RECOUNTED_COUNTS = (*(f"{level}s" for level in LEVELS), "ignored", "runtimes", "undecided", "skipped")
COUNT_NAMES = frozenset((*SUMMED_COUNTS, *RECOUNTED_COUNTS))
FailOn = Literal["error", "warning", "never"]
Verdict = Literal["pass", "fail", "undecided"]


class AddedRuntime(Part, frozen=True, kw_only=True):
    """Results of one model on one runtime that the upgrade adds."""

    model: str
    runtime: str  # such as "onnxruntime 1.31.1"
    state: CellState  # the state that `check` would report
    breaks: tuple[Finding, ...] = ()  # new errors and warnings of this model
    outputs: tuple[Measured, ...] = ()  # largest difference of each output from the previous runtime
    before: str = ""  # newest locked runtime of the same engine, with which outputs are compared; "" if none
    unlike: str = ""  # why outputs could not be compared


class Preview(Part, frozen=True, kw_only=True):
    """The effects of an upgrade that was not written to the lock."""

    pins: tuple[str, ...]  # changes to the lock, one per line
    arrivals: tuple[AddedRuntime, ...]  # sorted by model and runtime
    others: tuple[Finding, ...]  # new findings on runtimes that do not change, caused by a changed reference
    repairs: tuple[Finding, ...]  # current findings that the upgrade resolves
    remains: tuple[Finding, ...]  # errors and warnings that the upgrade does not resolve
    undecided: tuple[NotDone, ...]  # checks that are undecided only before the upgrade
    after: Report  # the report that `check` would write with the new lock

    @property
    def breaks(self) -> tuple[Finding, ...]:
        """All new errors and warnings, without duplicates."""
        return (*dict.fromkeys(finding for arrival in self.arrivals for finding in arrival.breaks), *self.others)

    @property
    def beyond(self) -> tuple[Measured, ...]:
        """Measured changes in outputs that exceed the tolerance, and measured ratios that are lower than required."""
        rows = (row for arrival in self.arrivals for row in arrival.outputs)
        return tuple(row for row in rows if _exceeds_tolerance(row))


def _exceeds_tolerance(row: Measured) -> bool:
    if row.value is None or row.bound is None:
        return True
    return row.value < row.bound if row.metric in RATIO_METRICS else row.value > row.bound
