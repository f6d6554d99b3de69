"""Reports of shards as they come from other jobs: foreign data, of which only what fits together is merged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from onnxgate import __version__
from onnxgate.findings import Stage, listed
from onnxgate.formats.json import is_whole
from onnxgate.merging import COUNTED
from onnxgate.report import LEVELS, VERSION, Finding, NotDone, Report, Shard, SharedHit, SharedIgnore
from onnxgate.shards import KEY_CHARACTERS, MOST

LARGEST_BYTES = 256 * 2**20
AGAIN = "run the shard's job again, or look in its log for why it did not end"
STAGES = frozenset(stage.value for stage in Stage)
SETTINGS = frozenset((*LEVELS, "off"))
"""What the config may make of a rule."""
STAGE = "gate"
"""What is missing was not judged by any stage."""


@dataclass(frozen=True, slots=True)
class Given:
    """One file as it was given: the report of a shard, or why it is none."""

    name: str
    report: Report | None
    problem: str = ""
    hint: str = AGAIN


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known of the check beside its reports; "" and () where nothing is."""

    plan: str = ""  # the beginning of the plan's digest
    config: str = ""
    lock: str = ""
    models: tuple[str, ...] = ()


@dataclass(slots=True)
class Collected:
    """Reports of different shards of one check, and what is missing or does not belong to them."""

    reports: list[Report] = field(default_factory=list)
    gaps: list[NotDone] = field(default_factory=list)


def report_files(paths: Iterable[Path], leave_out: Iterable[Path]) -> Iterator[Path]:
    """The files themselves, and what ends in `.json` in folders; `leave_out` are files that are written."""
    written = {path.resolve() for path in leave_out}
    for path in paths:
        found = sorted(each for each in path.rglob("*.json") if each.is_file()) if path.is_dir() else [path]
        yield from (each for each in found if each.resolve() not in written)


def read(path: Path) -> Given:
    """A file's report, where it is a whole one of a shard that this onnxgate wrote."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return Given(str(path), None, f"it has more than {LARGEST_BYTES} bytes")
        content = path.read_bytes()
    except OSError as error:
        return Given(str(path), None, f"it cannot be read: {(error.strerror or str(error)).lower()}")
    return decode(str(path), content)


class _Head(msgspec.Struct):
    version: int
    onnxgate: str


def decode(name: str, content: bytes) -> Given:
    """The report that a file's content is."""
    if not content.strip():
        return Given(name, None, "it is empty: the job that writes it did not end")
    try:
        head = msgspec.json.decode(content, type=_Head)
        if head.version != VERSION:
            return Given(name, None, f"it is a report of version {head.version}; this onnxgate reads {VERSION}", SAME)
        if head.onnxgate != __version__:
            return Given(name, None, f"onnxgate {head.onnxgate} wrote it, and this is {__version__}", SAME)
        report = msgspec.json.decode(content, type=Report)
    except msgspec.ValidationError as error:
        return Given(name, None, f"it is no report of onnxgate: {error}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Given(name, None, f"it is cut off, or no JSON: {error}")
    if report.shard is None:
        return Given(name, None, "it is the report of a whole check, and of no shard", ONLY)
    problem = _damage(report, report.shard)
    return Given(name, None, problem) if problem else Given(name, report)


SAME = "judge, plan and merge with one version of onnxgate"
ONLY = "give `onnxgate merge` what `onnxgate check --shard i/N --output json=FILE` wrote, and nothing else"


def _damage(report: Report, shard: Shard) -> str:
    """What cannot be so in a report that was written to its end; "" where all of it can."""
    if not is_whole(report):
        return "it was changed after it was written: its content is not that of its digest"
    if not 1 <= shard.of <= MOST or not 1 <= shard.index <= shard.of or len(shard.division) != len(shard.models):
        return f"it says that it is shard {shard.index} of {shard.of}, divided as no check is"
    own = tuple(path for path, index in zip(shard.models, shard.division, strict=True) if index == shard.index)
    if own != tuple(model.path for model in report.models):
        return "it did not judge the models of its shard"
    if not (_stages(report, shard) <= STAGES and set(shard.levels.values()) <= SETTINGS):
        return "it names a stage or a level that there is not"
    if not set(report.counts) <= COUNTED:
        return "it counts what no onnxgate counts"
    ruled: tuple[Finding | SharedHit | SharedIgnore, ...] = (*report.findings, *shard.hits, *shard.ignores)
    if not all(_is_rule(each.rule) for each in ruled):
        return "it names a rule as none is named"
    if (report.exit, report.verdict) not in {(0, "pass"), (1, "fail"), (3, "undecided")}:
        return f"its verdict is `{report.verdict}` with the exit status {report.exit}"
    return "it says `pass`, and leaves something undecided" if report.exit == 0 and report.undecided else ""


def _stages(report: Report, shard: Shard) -> set[str]:
    """All that are named; what nobody judged is of none."""
    said: tuple[Finding | NotDone | SharedHit, ...]
    said = (*report.findings, *report.undecided, *report.skipped, *shard.hits)
    return {*report.stages, *(each.stage for each in said)} - {STAGE}


def _is_rule(name: str) -> bool:
    return re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", name) is not None


def collect(given: Sequence[Given], expected: Expected) -> Collected:
    """The reports that belong together, each shard once, and all that is wrong beside them."""
    collected = Collected()
    for each in given:
        if each.report is None:
            collected.gaps.append(_gap(f"`{each.name}` was not merged: {each.problem}", each.hint))
    sound = [(each.name, each.report) for each in given if each.report is not None]
    if not sound:
        collected.gaps += _nobody(expected, bool(given))
        return collected
    common, _ = Counter(_common(report) for _, report in sound).most_common(1)[0]
    preferred = [_common(report) for _, report in sound if expected.plan and _fits(report, expected)]
    common = preferred[0] if preferred else common
    for name, report in sound:
        if _common(report) != common:
            collected.gaps.append(_gap(f"`{name}` was not merged: {_why_other(report)}", SAME_CHECK))
    collected.reports = _once([pair for pair in sound if _common(pair[1]) == common], collected.gaps)
    lead = collected.reports[0].shard
    assert lead is not None
    collected.gaps += _unexpected(lead, expected)
    collected.gaps += _missing(lead, [report.shard.index for report in collected.reports if report.shard])
    return collected


SAME_CHECK = "give the reports of one plan: of one commit, with the same PATHS and options"


def _gap(reason: str, hint: str, model: str = "") -> NotDone:
    return NotDone(stage=STAGE, model=model, runtime="", reason=reason, hint=hint)


def _nobody(expected: Expected, any_given: bool) -> list[NotDone]:
    said = "none of the reports is one of a shard" if any_given else "there is no report of any shard"
    hint = "give what `onnxgate check --shard i/N --output json=FILE` wrote"
    return [_gap(said, hint, model) for model in expected.models or ("",)]


def _common(report: Report) -> object:
    """What all shards of one check have in common."""
    shard = report.shard
    assert shard is not None
    state = (shard.key, shard.plan, shard.of, shard.config, shard.lock, shard.models, shard.division)
    rules = (shard.scope, shard.locked, tuple(shard.levels.items()), len(shard.ignores))
    asked = tuple(each.asked for each in shard.names)
    return (*state, *rules, asked, report.folder, report.stages, report.against, tuple(report.counts))


def _fits(report: Report, expected: Expected) -> bool:
    return report.shard is not None and report.shard.plan.startswith(expected.plan)


def _why_other(report: Report) -> str:
    shard = report.shard
    assert shard is not None
    return f"it is shard {shard.index} of {shard.of} of another check than the others (`{shard.key[:KEY_CHARACTERS]}`)"


def _once(sound: Sequence[tuple[str, Report]], gaps: list[NotDone]) -> list[Report]:
    """One report per shard; of two that differ the one that closes the gate, if one does."""
    by_shard: dict[int, list[tuple[str, Report]]] = {}
    for name, report in sound:
        assert report.shard is not None
        by_shard.setdefault(report.shard.index, []).append((name, report))
    for index, pairs in by_shard.items():
        if any(report != pairs[0][1] for _, report in pairs):
            names = listed([f"`{name}`" for name, _ in pairs])
            gaps.append(_gap(f"shard {index} was judged more than once, and not alike: {names}", "give one of them"))
    return [min(pairs, key=lambda pair: pair[1].exit != 1)[1] for _, pairs in sorted(by_shard.items())]


def _unexpected(lead: Shard, expected: Expected) -> Iterator[NotDone]:
    if expected.plan and not lead.plan.startswith(expected.plan):
        plan = lead.plan[:KEY_CHARACTERS]
        yield _gap(f"the shards are of plan `{plan}`, and `{expected.plan}` was asked for", SAME_CHECK)
    for name, there, here in (("config", lead.config, expected.config), ("lock", lead.lock, expected.lock)):
        if here and here != there:
            yield _gap(f"the shards were judged by another {name} than the one that is here", SAME_CHECK)


def _missing(lead: Shard, there: Sequence[int]) -> Iterator[NotDone]:
    """The models of shards that have no report, one each."""
    for path, index in zip(lead.models, lead.division, strict=True):
        if index not in there:
            hint = f"its job did not end, or its report was not given: run shard {index}/{lead.of} again"
            yield _gap(f"shard {index} of {lead.of} is missing: nobody judged its models", hint, path)
