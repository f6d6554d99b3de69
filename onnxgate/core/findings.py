"""Objects that rules yield (levels, stages, places, relations, hits), and fingerprints of findings."""

from __future__ import annotations

import enum
import functools
import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec
from packaging.version import InvalidVersion, Version

from onnxgate.core.advice import Advice
from onnxgate.core.text import join_phrases


class Level(str, enum.Enum):
    """Severity of a finding. By default, only errors make the check fail."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Stage(str, enum.Enum):
    """Stages of a check in order of cost. `BUDGET` and `GATE` are for rules that belong to no stage."""

    FILE = "file"
    LOCK = "lock"
    SUPPORT = "support"
    RUNTIME = "runtime"
    PARITY = "parity"
    EXPORT = "export"
    BUDGET = "budget"
    GATE = "gate"


STATIC_STAGES = (Stage.FILE, Stage.LOCK, Stage.SUPPORT)
DYNAMIC_STAGES = (Stage.RUNTIME, Stage.PARITY, Stage.EXPORT)
ALL_STAGES = (*STATIC_STAGES, *DYNAMIC_STAGES)


class Place(msgspec.Struct, frozen=True, order=True):
    """Location of a finding. `path` is relative to the config's folder, with `/` as separator.

    Line numbers start at 1; 0 means that there is no line.
    """

    path: str
    line: int = 0
    end_line: int = 0


class RelationKind(enum.Enum):
    """Relation between a hit (the source) and other hits on the same model (the targets)."""

    CONTRADICTS = "contradicts"  # drops the target on the same runtime
    CONFIRMS = "confirms"  # confirms the target on the same runtime
    EXPLAINED_BY = "explained-by"  # confirms the target and drops the source
    FOLLOWS_FROM = "follows-from"  # drops the source, unless an ignore accepts the target
    OPEN_UNTIL_RUN = "open-until-run"  # has no target; drops the source if the model was run on that runtime
    DECIDED_BY_RUNS = "decided-by-runs"  # has no target; limits the source to `runtimes` that do not run the model


class HitReference(msgspec.Struct, frozen=True, order=True):
    """Selects hits of one rule: those with the given `topic`, or all if it is empty."""

    rule: str
    topic: str = ""


class Relation(msgspec.Struct, frozen=True):
    """One relation between a hit and the hits selected by `to` on the same model."""

    kind: RelationKind
    to: HitReference | None = None
    runtimes: tuple[str, ...] = ()  # the runtimes that decide; only for `DECIDED_BY_RUNS`


OPEN_UNTIL_RUN = Relation(RelationKind.OPEN_UNTIL_RUN)


def _relate(kind: RelationKind, *targets: str | HitReference) -> tuple[Relation, ...]:
    return tuple(Relation(kind, HitReference(target) if isinstance(target, str) else target) for target in targets)


contradicts = functools.partial(_relate, RelationKind.CONTRADICTS)
"""Return relations that link an observation to the predictions that it refutes."""
confirms = functools.partial(_relate, RelationKind.CONFIRMS)
"""Return relations that link an observation to the predictions that it confirms. The observation is still reported."""
explained_by = functools.partial(_relate, RelationKind.EXPLAINED_BY)
"""Return relations that link an observation to the predictions that it confirms. Only the predictions are reported."""
follows_from = functools.partial(_relate, RelationKind.FOLLOWS_FROM)
"""Return relations that link a hit to the problems that cause it."""


def decided_by_runs(runtimes: Sequence[str]) -> Relation:
    """Return the relation of a claim about the whole model that each of the runtimes confirms or refutes."""
    return Relation(RelationKind.DECIDED_BY_RUNS, runtimes=tuple(runtimes))


class OnRuntime(msgspec.Struct, frozen=True):
    """The runtime that a hit is about, with details that apply only to this runtime and to others of its engine."""

    name: str
    detail: str = ""  # a verb phrase that this runtime adds to the message: "implements up to 19"
    works_since: str = ""
    works_until: str = ""
    others: tuple[str, ...] = ()  # names of further runtimes of this engine about which the hit is the same

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all runtimes."""
        return (self.name, *self.others)


class Hit(msgspec.Struct, frozen=True):
    """One problem in one model, as yielded by a rule.

    `message` does not name the runtimes. Hits that differ only in `on` become one finding.
    """

    place: Place
    message: str
    model: str = ""
    node: str = ""
    fix: Advice = ""
    on: OnRuntime | None = None  # None: the hit is about the model as a whole
    topic: str = ""  # distinguishes predictions of one rule, so that an observation can refer to one of them
    relations: tuple[Relation, ...] = ()
    level: Level | None = None  # None: the rule's own level
    # Distinguishes findings of this rule in one model, and must be the same after a new export: names of operators,
    # inputs and outputs, but not messages, numbered nodes, measured values or baselines.
    identity: str = ""

    @property
    def runtimes(self) -> tuple[str, ...]:
        """Names of the runtimes that the hit is about; "" stands for the model as a whole."""
        return self.on.names if self.on else ("",)

    @property
    def oldest_runtime(self) -> str:
        """Name of the oldest of `runtimes`."""
        names = self.runtimes
        return names[0] if len(names) == 1 else sort_runtimes(frozenset(names))[0]

    @property
    def deciding_runtimes(self) -> tuple[str, ...]:
        """Names of the runtimes whose runs decide whether the hit applies; empty if no runs decide."""
        return next((it.runtimes for it in self.relations if it.kind is RelationKind.DECIDED_BY_RUNS), ())


@dataclass(frozen=True, slots=True)
class RuleHit:
    """A hit with the rule that yielded it."""

    rule: str
    stage: Stage
    level: Level
    hit: Hit
    silent: bool = False  # the rule is off; only the relations of the hit are used
    fingerprint: str = field(default="", compare=False)  # of the finding that it becomes; set by `assign_fingerprints`

    def exclude(self, runtimes: Collection[str]) -> RuleHit | None:
        """Return the hit on its other runtimes; None if there are none."""
        names = [name for name in self.hit.runtimes if name not in runtimes] if runtimes else self.hit.runtimes
        if not names:
            return None
        if self.hit.on is None or len(names) == len(self.hit.runtimes):
            return self
        on = msgspec.structs.replace(self.hit.on, name=names[0], others=tuple(names[1:]))
        return replace(self, hit=msgspec.structs.replace(self.hit, on=on))


@dataclass(frozen=True, slots=True)
class IncompleteCheck:
    """A requested check that could not be done (undecided) or does not apply (skipped), with the reason."""

    stage: Stage
    model: str
    runtime: str
    reason: str
    hint: str = field(default="", compare=False)
    by_design: bool = False  # the check does not apply and is skipped
    transient: bool = field(default=False, compare=False)  # the next run may not have this problem
    prevents_run: bool = field(default=True, compare=False)  # whether runs of the model may be missing
    decided_by_runs: bool = field(default=False, compare=False)  # skipped if all required runtimes run the model
    # Stable name of a cause that lies in the model and its inputs, without measured values and messages of runtimes. If
    # it is "", the machine, the project or the gate is the cause, and no ignore accepts the incomplete check.
    cause: str = field(default="", compare=False)

    @property
    def fingerprint(self) -> str:
        """Stable id for an `[[ignore]]` entry, equal for all stages and runtimes; "" if no ignore can accept it."""
        if not self.cause or not self.model:
            return ""
        return _digest_identity((UNDECIDED_RULE, self.model, self.cause))


CHANGED_FILES = (
    "the model files changed during the check",
    "make sure that no other program writes to the model files, and re-run the check",
)
"""Reason and hint of an incomplete check whose results may belong to different contents of the files."""
UNDECIDED_RULE = "undecided"
"""Name of incomplete checks in `[[ignore]]` entries, in place of a rule."""


def mask_numbers(text: str) -> str:
    """Replace numbers in a name or message by `#`: `node_Conv_12` and `node_Conv_14` become `node_Conv_#`."""
    return re.sub(r"[0-9]+", "#", text)


def strip_versions(text: str) -> str:
    """Remove versions and the opsets of operators from a message: `Det(11)` becomes `Det`."""
    return re.sub(r"(?<=\w)\([0-9]+\)|(?<=\bopset) [0-9]+", "", text)


@functools.lru_cache(maxsize=1024)
def version_sort_key(text: str) -> Version:
    """Return a sort key for a release. Strings that are not versions come first."""
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def is_release_within(release: str, first: str, last: str) -> bool:
    """Return whether a release is between two releases, including them; "" means no bound."""
    version = version_sort_key(release)
    return (not first or version >= version_sort_key(first)) and (not last or version <= version_sort_key(last))


def runtime_sort_key(name: str) -> tuple[str, Version]:
    """Return a sort key for names of runtimes, which puts `onnxruntime 1.9.0` before `onnxruntime 1.10.0`."""
    engine, _, release = name.partition(" ")
    return engine, version_sort_key(release)


@functools.lru_cache(maxsize=256)
def sort_runtimes(names: frozenset[str]) -> tuple[str, ...]:
    """Return the names of runtimes, oldest first. The result is cached, since many findings have the same runtimes."""
    return tuple(sorted(names, key=runtime_sort_key))


def name_runtimes(runtimes: Iterable[str], known: Sequence[str]) -> str:
    """Join names of runtimes, as in `onnxruntime 1.16.3 and 1.20.1–1.22.1, and openvino 2026.4.1`.

    Three or more runtimes that are neighbors in `known` form a range.
    """
    return _name_runtimes(frozenset(runtimes), tuple(known))


@functools.lru_cache(maxsize=256)
def _name_runtimes(runtimes: frozenset[str], known: tuple[str, ...]) -> str:
    by_engine: dict[str, list[str]] = {}
    for name in sort_runtimes(runtimes):
        by_engine.setdefault(name.partition(" ")[0], []).append(name.partition(" ")[2])
    phrases = [f"{engine} {_format_releases(engine, releases, known)}" for engine, releases in by_engine.items()]
    if len(phrases) > 1 and any(" and " in phrase for phrase in phrases):
        return f"{', '.join(phrases[:-1])}, and {phrases[-1]}"
    return join_phrases(phrases)


def _format_releases(engine: str, releases: Sequence[str], known: tuple[str, ...]) -> str:
    every = _sort_releases(engine, known)
    runs: list[list[str]] = []
    for release in releases:
        after = every.index(release) - 1 if release in every else -1
        if runs and after >= 0 and runs[-1][-1] == every[after]:
            runs[-1].append(release)
        else:
            runs.append([release])
    words = [[f"{run[0]}–{run[-1]}"] if len(run) > 2 else run for run in runs]
    return join_phrases([word for run in words for word in run])


@functools.lru_cache(maxsize=16)
def _sort_releases(engine: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the releases of one engine, oldest first."""
    names = (name.partition(" ") for name in sort_runtimes(frozenset(known)))
    return tuple(release for known_engine, _, release in names if known_engine == engine)


FindingIdentity = tuple[str, str, str]  # rule; model, or file if there is no model; `Hit.identity`


def assign_fingerprints(hits: Sequence[RuleHit]) -> list[RuleHit]:
    """
    Return the hits with fingerprints, which are equal for hits that become one finding.

    Findings with the same identity are numbered by their oldest runtime and then by location, so that an additional
    finding gets a new fingerprint.
    """
    if all(hit.fingerprint or hit.silent for hit in hits):
        return list(hits)
    by_identity: dict[FindingIdentity, dict[tuple[object, ...], list[int]]] = {}
    for index, hit in enumerate(hits):
        if not hit.silent:
            fields = (hit.level, hit.stage, hit.hit.message, hit.hit.place, hit.hit.fix)  # all except the runtime
            by_identity.setdefault(_finding_identity(hit), {}).setdefault(fields, []).append(index)
    marked = list(hits)
    for base, apart in by_identity.items():
        members = list(apart.values())
        if len(members) > 1:
            members.sort(key=lambda indices: min(_hit_sort_key(hits[index]) for index in indices))
        for number, indices in enumerate(members):
            texts = (*base, *([str(number)] if number else []))  # the first one has no number
            fingerprint = _digest_identity(texts)
            for index in indices:
                marked[index] = replace(hits[index], fingerprint=fingerprint)
    return marked


def _digest_identity(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode(errors="surrogatepass")).hexdigest()[:16]


def _finding_identity(judged: RuleHit) -> FindingIdentity:
    return judged.rule, judged.hit.model or judged.hit.place.path, judged.hit.identity


def _hit_sort_key(judged: RuleHit) -> tuple[object, ...]:
    hit = judged.hit
    return (runtime_sort_key(hit.oldest_runtime), hit.place, hit.node, judged.level.value, hit.message, hit.fix)
