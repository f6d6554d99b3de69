"""The report of a check and the preview of an upgrade. Both are sorted, and contain neither times nor host names."""

from __future__ import annotations

from typing import Literal

import msgspec

VERSION = 1
FailOn = Literal["error", "warning", "never"]
Verdict = Literal["pass", "fail", "undecided"]
RATIO_METRICS = frozenset({"sqnr_db", "cosine", "top1"})
"""Metrics for which higher is better: signal-to-noise ratio in dB, cosine similarity, and top-1 agreement.

Top-1 agreement is the share of rows whose largest element has the same index.
"""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of all objects in the report."""


class ReportedPlace(Part, frozen=True, kw_only=True):
    """The file and lines of a finding."""

    path: str  # file, relative to the config's folder, with `/` as separator
    line: int = 0  # first line, counted from 1; 0 for the whole file
    end_line: int = 0  # last line; 0 if there is only one line


class ReportedModel(Part, frozen=True, kw_only=True):
    """One model that was checked."""

    path: str  # path, relative to the config's folder
    sha256: str  # SHA-256 of the file; "" if it could not be read


class ReportedRuntime(Part, frozen=True, kw_only=True):
    """One locked runtime of one target."""

    target: str  # name of the target in the config
    engine: str  # name of the engine, such as "onnxruntime" or "onnxruntime+onnxruntime-extensions"
    version: str  # exact release
    python: str  # Python version, such as "3.11"; "" for Node.js and your own environment
    providers: tuple[str, ...]  # execution providers that the target requests


class Finding(Part, frozen=True, kw_only=True):
    """One problem at one place, for all affected runtimes."""

    rule: str  # name of the rule; "undecided" for an undecided check that an `[[ignore]]` entry accepts
    level: Literal["error", "warning", "note"]  # severity, as configured
    stage: str  # stage that found the problem
    message: str  # the problem, as a phrase that follows the model's name
    fix: str  # how to fix the problem; "" if there is no suggestion
    model: str  # path of the model; "" if the finding is about the project
    node: str  # name of the affected node; "" for the whole model
    runtimes: tuple[str, ...]  # affected runtimes in ascending order
    place: ReportedPlace  # file and lines to which the finding refers
    works_since: str  # first release without the problem; "" if unknown or of several engines
    works_until: str  # last release without the problem; "" if unknown or of several engines
    confirmed: bool  # whether a prediction was confirmed by loading or running the model
    fingerprint: str  # identifier that stays the same across commits
    ignored: str = ""  # reason in the `[[ignore]]` entry; "" if the finding is not ignored
    newly_ignored: bool = False  # whether the ignore that accepts the finding is missing in the config of the baseline


class NotDone(Part, frozen=True, kw_only=True):
    """A check that is undecided or was skipped, and why."""

    stage: str  # stage to which the check belongs
    model: str  # path of the model; "" for the whole project
    runtime: str  # name of the runtime; "" for all runtimes
    reason: str  # why the check is undecided or was skipped
    hint: str = ""  # suggested next step; "" if there is none
    fingerprint: str = ""  # identifier for an `[[ignore]]` entry with the rule `undecided`; "" if none can accept it


class Measured(Part, frozen=True, kw_only=True):
    """One measured value and its limit."""

    model: str  # path of the model
    output: str  # name of the output; "" for a benchmark
    pair: str  # what was compared, such as "onnxruntime 1.18.1 against the source"
    case: str  # input case, such as "sizes batch=3"
    metric: str  # name of the metric, such as "worst_abs", "cosine" or "time ratio"
    value: float | None  # measured value; null if it is infinite or NaN
    bound: float | None  # limit for the value; null if there is no limit
    bound_from: (
        str  # origin of the limit: "config", "lock", "measured" (in this check) or "type" (default for the type)
    )


class Replay(Part, frozen=True, kw_only=True):
    """How to reproduce the findings about runs and outputs of one model."""

    model: str  # path of the model
    rules: tuple[str, ...]  # names of the rules that reported the findings
    cases: tuple[str, ...]  # smallest set of input cases that reproduces the findings
    seed: int  # seed of the generated inputs
    command: str  # shell command that reproduces the findings; run it in the config's folder
    inputs: tuple[str, ...] = ()  # files with the generated inputs, in onnxgate's cache


class Against(Part, frozen=True, kw_only=True):
    """The git revision that models were compared with."""

    name: str  # revision as given, such as "origin/main"
    commit: str  # full hash of the commit


class ReportedCheckout(Part, frozen=True, kw_only=True):
    """The repository and the commit that were checked, as given by the CI system."""

    repository: str  # full name, such as "example/models"
    commit: str  # full hash of the commit; in a pull request, of its last commit


class Change(Part, frozen=True, kw_only=True):
    """The differences between one model and its baseline."""

    model: str  # path of the model; for a removed model, its former path
    kind: Literal["added", "removed", "renamed", "changed"]  # kind of change
    before: str = ""  # previous path of a renamed model; "" for other changes
    differences: tuple[str, ...] = ()  # descriptions of the differences, most severe first


BoxKind = Literal["node", "failing", "input", "output", "weight", "more"]


class DrawnNode(Part, frozen=True, kw_only=True):
    """One box in a drawing."""

    name: str  # name of the node or value
    operator: str = ""  # such as "Conv" or "com.microsoft.Gelu"; "" for a value
    kind: BoxKind = "node"  # "failing" is the node of the finding; "more" stands for boxes that were left out


class DrawnEdge(Part, frozen=True, kw_only=True):
    """One arrow in a drawing, given by the indexes of the boxes that it connects."""

    source: int  # index of the box where the arrow starts
    target: int  # index of the box where the arrow ends
    value: str = ""  # name of the value that is passed


class Drawing(Part, frozen=True, kw_only=True):
    """The graph around the node of a finding."""

    model: str  # path of the model
    node: str  # name of the node in the finding
    nodes: tuple[DrawnNode, ...]  # boxes of the drawing
    edges: tuple[DrawnEdge, ...]  # arrows of the drawing


class SharedHit(Part, frozen=True, kw_only=True):
    """A problem with the project, a runtime or a removed model, which several shards may report."""

    rule: str  # name of the rule
    level: Literal["error", "warning", "note"]  # severity, as configured
    stage: str  # stage that found the problem
    message: str  # the problem, as a phrase
    place: ReportedPlace  # file and lines to which the problem refers
    fix: str = ""  # how to fix the problem; "" if there is no suggestion
    model: str = ""  # path of a removed model; "" for other problems
    node: str = ""  # name of the affected node; "" if there is none
    runtime: str = ""  # name of the affected runtime; "" if there is none
    detail: str = ""  # addition to the message that applies only to this runtime
    works_since: str = ""  # first release without the problem; "" if unknown
    works_until: str = ""  # last release without the problem; "" if unknown
    identity: str = ""  # text that distinguishes findings of the same rule
    confirmed: bool = False  # whether a prediction was confirmed by loading or running the model


class SharedIgnore(Part, frozen=True, kw_only=True):
    """An ignore in the config. Whether it was used is known only after all shards are merged."""

    rule: str  # name of the ignored rule
    model: str  # glob pattern of model paths
    reason: str  # reason given in the config
    place: ReportedPlace  # lines of the ignore in the config
    until: str  # date on which the ignore expires; "" if it does not expire
    expired: bool  # whether this date has passed
    sha256: str  # SHA-256 of the model to which the ignore is limited; "" for any model
    fingerprints: tuple[str, ...] | None  # fingerprints that the ignore lists; null if it lists none
    covered: bool  # whether the shard checked everything to which the ignore applies
    content_there: bool  # whether a model in the shard has, or may have, this SHA-256
    found: tuple[str, ...]  # fingerprints of the findings that the ignore matches
    is_new: bool = False  # whether the ignore is missing in the config of the baseline


class ConfiguredName(Part, frozen=True, kw_only=True):
    """A name in the config that has to exist in a model."""

    where: str  # place in the config, such as "onnxgate.toml:30: `model[1].sizes.batch`"
    kind: Literal["dynamic axis", "output"]  # what the name refers to
    name: str  # name as written in the config


class SharedNames(Part, frozen=True, kw_only=True):
    """The names in one `[[model]]` entry of the config, and the names in the matching models of this shard."""

    configured: tuple[ConfiguredName, ...]  # names in the config entry
    axes: tuple[str, ...]  # names of the dynamic axes in the matching models
    outputs: tuple[str, ...]  # names of the outputs in the matching models
    whole: bool  # whether all matching models of this shard were read
    models: tuple[str, ...] = ()  # the matching models of this shard


class Shard(Part, frozen=True, kw_only=True):
    """The part of a check that this report covers, and the data needed to merge it with the other parts."""

    index: int  # number of the shard, counted from 1
    of: int  # total number of shards
    plan: str  # digest of the config, the lock, the models and their assignment to shards
    key: str  # digest of the plan and the options; all shards of a check have the same
    config: str  # digest of the config
    lock: str  # digest of the lock
    models: tuple[str, ...]  # all models of the check, sorted
    division: tuple[int, ...]  # number of the shard that checks each model, in the order of `models`
    scope: str  # parts that no shard checks, such as "skipped stages: parity"; "" for a complete check
    locked: tuple[ReportedRuntime, ...]  # all runtimes in the lock
    levels: dict[str, str] = {}  # configured levels of rules about ignores
    hits: tuple[SharedHit, ...] = ()  # problems that do not belong to a model of this check
    ignores: tuple[SharedIgnore, ...] = ()  # one per ignore in the config
    names: tuple[SharedNames, ...] = ()  # one per `[[model]]` entry that contains names
    digest: str = ""  # digest of the report without this field, to detect changes


CellState = Literal["pass", "warning", "fail", "predicted", "not predicted", "undecided", "skipped", "not selected"]


class Cell(Part, frozen=True, kw_only=True):
    """The state of one model on one runtime."""

    model: str  # path of the model
    runtime: str  # name of the runtime
    state: CellState  # "predicted": predicted to load, not run; "not predicted": no prediction, not run
    compared: bool = False  # whether outputs were compared with the source


class Report(Part, frozen=True, kw_only=True):
    """The result of one check."""

    version: int = VERSION  # version of the report format
    onnxgate: str  # version of onnxgate that wrote the report
    verdict: Verdict  # overall result of the check
    exit: int  # exit status of the command
    folder: str  # config's folder, relative to the repository root; "" for the root
    scope: str  # parts that were not checked, such as "skipped stages: parity"; "" for a complete check
    stages: tuple[str, ...]  # stages that were selected
    models: tuple[ReportedModel, ...]  # models that were checked
    runtimes: tuple[ReportedRuntime, ...]  # locked runtimes that the models require
    cells: tuple[Cell, ...]  # state of each model on each runtime; sorted by model, then in the order of `runtimes`
    findings: tuple[Finding, ...]  # problems, most severe first; includes ignored findings
    undecided: tuple[NotDone, ...]  # selected checks that could not be completed
    skipped: tuple[NotDone, ...]  # checks that do not apply
    measured: tuple[Measured, ...]  # measured differences of outputs, and ratios of time and memory; sorted by model
    counts: dict[str, int]  # totals, such as the numbers of "errors", "warnings" and "models"
    replays: tuple[Replay, ...] = ()  # how to reproduce findings; sorted by model
    against: Against | None = None  # git revision of the baseline; null if models were not compared with a revision
    changes: tuple[Change, ...] = ()  # models that differ from the revision in `against`; sorted by model
    drawings: tuple[Drawing, ...] = ()  # drawings of the graph around each node in a finding; sorted by model and node
    remarks: tuple[str, ...] = ()  # additional information, such as the releases that load a model
    shard: Shard | None = None  # data for `onnxgate merge`; null if the report covers a whole check
    checkout: ReportedCheckout | None = None  # repository and commit that were checked; null outside CI
    fail_on: FailOn = "error"  # lowest level of a finding that makes the check fail


LEVELS = ("error", "warning", "note")
SUMMED_COUNTS = ("models", "without_source", "ran", "compared", "reused")
"""Names of counts in a report that are added up when the reports of shards are merged."""
RECOUNTED_COUNTS = (*(f"{level}s" for level in LEVELS), "ignored", "runtimes", "undecided", "skipped")
COUNT_NAMES = frozenset((*SUMMED_COUNTS, *RECOUNTED_COUNTS))


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


class UpgradeProposal(Part, frozen=True, kw_only=True):
    """A new lock that is proposed for a commit, with a preview of its effects."""

    version: int = 1  # version of this format
    onnxgate: str  # version of onnxgate that wrote the proposal
    command: str  # command that writes the new lock
    lock_path: str  # path of the lock, relative to the root of the git repository
    lock_sha256: str  # SHA-256 of the current lock with `\n` as line ending
    new_lock: str  # content of the new lock; "" if the current lock already has the newest releases
    preview: Preview | None  # null if the lock would not change


def _exceeds_tolerance(row: Measured) -> bool:
    if row.value is None or row.bound is None:
        return True
    return row.value < row.bound if row.metric in RATIO_METRICS else row.value > row.bound
