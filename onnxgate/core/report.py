"""The report of a check and the preview of an upgrade, from which formats are made. Sorted; without time and host."""

from __future__ import annotations

from typing import Literal

import msgspec

VERSION = 1
RATIO_METRICS = frozenset({"sqnr_db", "cosine", "top1"})
"""Metrics of which more is better: signal over noise in dB, the angle's cosine, the share of rows that agree on which
element is the largest."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One object of the report."""


class ReportedPlace(Part, frozen=True, kw_only=True):
    """Where a finding is shown. `path` is relative to the report's `folder`; a line of 0 is no line."""

    path: str  # relative to the config's folder, with `/`
    line: int = 0  # from 1; 0 where there is none
    end_line: int = 0  # 0 where it is one line


class ReportedModel(Part, frozen=True, kw_only=True):
    """One model that was judged."""

    path: str  # relative to the config's folder
    sha256: str


class ReportedRuntime(Part, frozen=True, kw_only=True):
    """One locked runtime of one target."""

    target: str  # its name in the config
    engine: str  # with the version it is the name: "onnxruntime", "onnxruntime+onnxruntime-extensions"
    version: str  # the exact release
    python: str  # "" in an environment of the user's own
    providers: tuple[str, ...]


class Finding(Part, frozen=True, kw_only=True):
    """One instance of a rule, over all the runtimes that it concerns."""

    rule: str  # its name, which is never used for something else
    level: Literal["error", "warning", "note"]  # as the config weighs it
    stage: str  # which found it
    message: str  # what is wrong
    fix: str  # what to do
    model: str  # its path; "" where it is about the project
    node: str  # its name; "" where it is about no single one
    runtimes: tuple[str, ...]  # all that it concerns, ascending
    place: ReportedPlace  # where it is shown
    works_since: str  # the first release on which it works; "" where that is not known
    works_until: str  # the last release on which it worked; "" where that is not known
    confirmed: bool  # it was predicted, and a real run says so too
    fingerprint: str  # knows it again over commits
    ignored: str = ""  # the ignore's reason; "" where it is not ignored


class NotDone(Part, frozen=True, kw_only=True):
    """What was not decided or was skipped, and why."""

    stage: str
    model: str  # "" for the whole project
    runtime: str  # "" for all, or none in particular
    reason: str  # why not
    hint: str = ""  # what to do


class Measured(Part, frozen=True, kw_only=True):
    """One figure, and the bound that it was held against."""

    model: str
    output: str
    pair: str  # "onnxruntime 1.18.1 against the source"
    case: str  # which inputs: "sizes batch=3"
    metric: str  # "worst_abs", "cosine", "time ratio": what `value` is
    value: float | None  # None: not finite, or no number
    bound: float | None  # None: it is told beside one that was held against a bound
    bound_from: str  # "config", "lock", "type"


class Replay(Part, frozen=True, kw_only=True):
    """What shows the findings about one model's runs and outputs again."""

    model: str
    rules: tuple[str, ...]  # whose findings it shows
    cases: tuple[str, ...]  # the fewest input cases on which they are found
    seed: int
    command: str  # for a shell, in the config's folder
    inputs: tuple[str, ...] = ()  # files below the cache's folder `inputs`: what was fed, but for the user's own files


class Against(Part, frozen=True, kw_only=True):
    """The git revision that models were held against."""

    name: str  # as it was asked for, or chosen: "origin/main"
    commit: str


class Change(Part, frozen=True, kw_only=True):
    """What became of one model since the baseline, in words for a reviewer."""

    model: str  # its path now; of a removed model the one that it had
    kind: Literal["added", "removed", "renamed", "changed"]
    before: str = ""  # the path that a renamed model had
    said: tuple[str, ...] = ()  # one difference each, the gravest first


class DrawnNode(Part, frozen=True, kw_only=True):
    """One box of a drawing."""

    name: str  # a node's, or that of the value which a box stands for
    operator: str = ""  # "Conv", "com.microsoft.Gelu"; "" of a value
    kind: Literal["node", "failing", "input", "output", "weight", "more"] = "node"


class DrawnEdge(Part, frozen=True, kw_only=True):
    """One arrow, between boxes by their number."""

    source: int
    target: int
    value: str = ""  # the name of what flows


class Drawing(Part, frozen=True, kw_only=True):
    """The neighbourhood of a node that a finding names: what feeds it, and what it feeds."""

    model: str
    node: str
    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]


class SharedHit(Part, frozen=True, kw_only=True):
    """What a rule says of the project or of a runtime, and of no model of the check: every shard may say it."""

    rule: str
    level: Literal["error", "warning", "note"]
    stage: str
    message: str
    place: ReportedPlace
    fix: str = ""
    model: str = ""  # one that is no model of the check: it was removed
    node: str = ""
    runtime: str = ""
    detail: str = ""
    works_since: str = ""
    works_until: str = ""
    identity: str = ""
    confirmed: bool = False


class SharedIgnore(Part, frozen=True, kw_only=True):
    """An ignore of the config, of which only all shards together know whether it was used."""

    rule: str
    model: str  # the glob
    reason: str
    place: ReportedPlace
    until: str
    expired: bool
    sha256: str
    fingerprints: tuple[str, ...] | None  # those that it lists
    covered: bool  # the shard leaves nothing open that it is about
    content_there: bool  # a model of the shard has that content, or may have it
    found: tuple[str, ...]  # fingerprints that it met, or of those that it lists the ones that are there


class AskedName(Part, frozen=True, kw_only=True):
    """A name in the config that only models can confirm."""

    where: str  # "line 30: `model[1].sizes.batch`"
    kind: Literal["dynamic axis", "output"]
    name: str


class SharedNames(Part, frozen=True, kw_only=True):
    """One `[[model]]` entry of the config: the names that it asks for, and those that this shard's models have."""

    asked: tuple[AskedName, ...]
    axes: tuple[str, ...]
    outputs: tuple[str, ...]
    whole: bool  # all that it matches were read, as far as they are this shard's


class Shard(Part, frozen=True, kw_only=True):
    """Which part of a check a report is about, and what its merge needs to know of the other parts."""

    index: int  # from 1
    of: int
    plan: str  # digest of config, lock, models and division
    key: str  # digest of the plan and of the options: equal in all shards of one check
    config: str  # digest of the config's text
    lock: str  # digest of the lock's text
    models: tuple[str, ...]  # every model of the check, sorted
    division: tuple[int, ...]  # the shard that judges each of them
    scope: str  # what the whole check leaves out
    locked: tuple[ReportedRuntime, ...]  # every runtime of the lock
    levels: dict[str, str] = {}  # what the config makes of rules about ignores
    hits: tuple[SharedHit, ...] = ()
    ignores: tuple[SharedIgnore, ...] = ()  # one per entry of the config
    names: tuple[SharedNames, ...] = ()  # one per entry that asks for names
    digest: str = ""  # of the report without this digest


CellState = Literal["pass", "warning", "fail", "predicted", "not predicted", "undecided", "skipped", "not asked"]


class Cell(Part, frozen=True, kw_only=True):
    """What became of one model on one runtime."""

    model: str
    runtime: str
    state: CellState  # what is said of the two together
    compared: bool = False  # its outputs were compared with the source's


class Report(Part, frozen=True, kw_only=True):
    """One run of the gate."""

    version: int = VERSION  # of this format; keys are added within one version
    onnxgate: str  # the release that wrote it
    verdict: Literal["pass", "fail", "undecided"]  # what the gate says
    exit: int  # the exit status that goes with it
    folder: str  # the config's folder below git's root, "" where they are the same
    scope: str  # what was left out because it was not asked for; "" for the whole gate
    stages: tuple[str, ...]  # those that were asked for
    models: tuple[ReportedModel, ...]
    runtimes: tuple[ReportedRuntime, ...]
    cells: tuple[Cell, ...]  # by model, in the order of the runtimes
    findings: tuple[Finding, ...]  # the gravest first
    undecided: tuple[NotDone, ...]  # what was asked for and could not be done
    skipped: tuple[NotDone, ...]  # what need not be done, or means nothing here
    measured: tuple[Measured, ...]  # figures against their bounds
    counts: dict[str, int]  # how many of each
    replays: tuple[Replay, ...] = ()  # by model
    against: Against | None = None  # the revision that models were held against
    changes: tuple[Change, ...] = ()  # by model
    drawings: tuple[Drawing, ...] = ()  # by model and node
    remarks: tuple[str, ...] = ()  # answers that are no findings: on which releases a file's stamps are taken
    shard: Shard | None = None  # the check was divided, and this is one part of it


LEVELS = ("error", "warning", "note")
SUMMED_COUNTS = ("models", "without_source", "ran", "compared", "reused")
"""Counts about models alone: those of a check are the sums of those of its shards."""
RECOUNTED_COUNTS = (*(f"{level}s" for level in LEVELS), "ignored", "runtimes", "undecided", "skipped")
COUNT_NAMES = frozenset((*SUMMED_COUNTS, *RECOUNTED_COUNTS))
FailOn = Literal["error", "warning", "never"]
Verdict = Literal["pass", "fail", "undecided"]


class AddedRuntime(Part, frozen=True, kw_only=True):
    """One model on one runtime that the lock does not have yet."""

    model: str
    runtime: str  # "onnxruntime 1.31.1"
    state: CellState  # the state that `check` would report
    breaks: tuple[Finding, ...] = ()  # errors and warnings that no runtime of the lock has with this model today
    outputs: tuple[Measured, ...] = ()  # for each output its largest difference from the runtime before
    before: str = ""  # the newest locked runtime of the same engine, the reference of outputs; "" if there is none
    unlike: str = ""  # why outputs could not be compared


class Preview(Part, frozen=True, kw_only=True):
    """An upgrade, tried before anything is written."""

    pins: tuple[str, ...]  # what would change in the lock, a line each
    arrivals: tuple[AddedRuntime, ...]  # by model and runtime
    others: tuple[Finding, ...]  # new findings on runtimes that stay: their reference is another runtime
    repairs: tuple[Finding, ...]  # findings on runtimes of today that no runtime has afterwards
    remains: tuple[Finding, ...]  # errors and warnings that are there before and after
    undecided: tuple[NotDone, ...]  # undecided today, and decided afterwards
    after: Report  # the report of `check` with the new lock

    @property
    def breaks(self) -> tuple[Finding, ...]:
        """All breaks of the upgrade, without duplicates."""
        return (*dict.fromkeys(finding for arrival in self.arrivals for finding in arrival.breaks), *self.others)

    @property
    def beyond(self) -> tuple[Measured, ...]:
        """Outputs that change beyond tolerance; ratios that are lower than required."""
        rows = (row for arrival in self.arrivals for row in arrival.outputs)
        return tuple(row for row in rows if _exceeds_tolerance(row))


def _exceeds_tolerance(row: Measured) -> bool:
    if row.value is None or row.bound is None:
        return True
    return row.value < row.bound if row.metric in RATIO_METRICS else row.value > row.bound
