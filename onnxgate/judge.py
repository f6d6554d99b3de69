"""Hits weighed in one place: predictions confirmed or contradicted, runtimes merged, levels and ignores applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnxgate.findings import (
    Claim,
    Hit,
    Judged,
    Level,
    Place,
    Said,
    Stage,
    listed,
    name_runtimes,
    runtime_order,
    version_order,
)
from onnxgate.fingerprints import stamped
from onnxgate.ignores import Ignores
from onnxgate.report import Finding, ReportedPlace
from onnxgate.rules.registry import AnyRule

LEVELS = (Level.ERROR, Level.WARNING, Level.NOTE)


def judge(subjects: Iterable[object], rules: Iterable[AnyRule], levels: Mapping[str, str]) -> Iterator[Judged]:
    """Every rule on every subject of its type. `levels` is the config's `[rules]`.

    A rule that is off says nothing; what it saw answers predictions all the same.
    """
    by_type: dict[type, list[AnyRule]] = {}
    for rule in rules:
        by_type.setdefault(rule.subject, []).append(rule)
    for subject in subjects:
        for rule in by_type.get(type(subject), ()):
            off = levels.get(rule.id) == "off"
            for hit in rule.judge(subject):
                if not off or hit.contradicts or hit.confirms:
                    yield Judged(rule.id, rule.stage, _level(rule, hit, levels), hit, silent=off)


def _level(rule: AnyRule, hit: Hit, levels: Mapping[str, str]) -> Level:
    """The config's level wins, except over a note: that is what a rule says of what is proven to be no fault."""
    if levels.get(rule.id, "off") != "off" and hit.level is not Level.NOTE:
        return Level(levels[rule.id])
    return hit.level or rule.level


@dataclass(frozen=True, slots=True)
class Weighed:
    """A hit with what observations said of it."""

    judged: Judged
    confirmed: bool


Key = tuple[Said, str, str]  # rule or claim, model, runtime
ANY = "*"  # in place of a runtime


def weigh(judged: Sequence[Judged], accepts: Callable[[Judged], bool] = lambda _: False) -> list[Weighed]:
    """Drop what an observation contradicts, what only confirms a prediction, and what only follows from a cause.

    `accepts` tells which hits an ignore of the config is about: what somebody accepted does not hide what follows.
    """
    judged = stamped(judged)
    contradicted = {(claim, each.hit.model, each.hit.runtime) for each in judged for claim in each.hit.contradicts}
    confirmed = {(claim, each.hit.model, each.hit.runtime) for each in judged for claim in each.hit.confirms}
    standing = [each for each in judged if not each.silent and contradicted.isdisjoint(_own_keys(each))]
    said: dict[Key, list[Judged]] = {}
    for each in standing:
        for key in _own_keys(each):
            said.setdefault(key, []).append(each)
    kept = []
    for each in standing:
        hit = each.hit
        explains = {key for key in _keys(hit.explained_by, hit) if _graver(said.get(key, ()), each)}
        causes = [cause for key in _keys(hit.follows_from, hit) for cause in _graver(said.get(key, ()), each)]
        confirmed |= explains
        if not explains and all(accepts(cause) for cause in causes):
            kept.append(each)
    return [Weighed(each, not confirmed.isdisjoint(_own_keys(each))) for each in kept]


def _own_keys(judged: Judged) -> tuple[Key, ...]:
    """How others may speak of a hit: as one of its rule, or by what it is about; on its runtime, or on any."""
    hit = judged.hit
    names: tuple[Said, ...] = (judged.rule, Claim(judged.rule, hit.about)) if hit.about else (judged.rule,)
    return tuple((name, hit.model, runtime) for name in names for runtime in (hit.runtime, ANY))


def _keys(names: Iterable[Said], hit: Hit) -> set[Key]:
    """Where such rules would speak of the same: on the hit's runtime, or of the model as a whole.

    What is about the model as a whole is the same as what they say of it on any runtime.
    """
    return {(name, hit.model, runtime) for name in names for runtime in (hit.runtime or ANY, "")}


def _graver(causes: Iterable[Judged], consequence: Judged) -> list[Judged]:
    return [cause for cause in causes if LEVELS.index(cause.level) <= LEVELS.index(consequence.level)]


def merge(weighed: Sequence[Weighed], known: Sequence[str]) -> list[Finding]:
    """Findings, worst first; those that differ only in the runtime become one. `known` names all locked runtimes."""
    groups: dict[tuple[object, ...], list[Weighed]] = {}
    for each in weighed:
        hit, judged = each.judged.hit, each.judged
        key = (judged.rule, judged.level, judged.stage, hit.model, hit.message, hit.place, hit.fix)
        groups.setdefault(key, []).append(each)
    return sorted((_finding(group, known) for group in groups.values()), key=order)


def _finding(group: list[Weighed], known: Sequence[str]) -> Finding:
    first = group[0].judged
    hits = sorted({each.judged.hit for each in group}, key=lambda hit: runtime_order(hit.runtime))
    runtimes = tuple(dict.fromkeys(hit.runtime for hit in hits if hit.runtime))
    since, until = _versions(hit.works_since for hit in hits), _versions(hit.works_until for hit in hits)
    return Finding(
        rule=first.rule,
        level=first.level.value,
        stage=first.stage.value,
        message=_compose(first.hit.message, hits, known, since[-1], until[0]),
        fix=first.hit.fix,
        model=first.hit.model,
        node=next((hit.node for hit in hits if hit.node), ""),
        runtimes=runtimes,
        place=_reported(first.hit.place),
        works_since=since[-1],
        works_until=until[0],
        confirmed=bool(runtimes) and all(each.confirmed for each in group),
        fingerprint=first.fingerprint,
    )


def _reported(place: Place) -> ReportedPlace:
    return ReportedPlace(path=place.path, line=place.line, end_line=place.end_line)


def order(finding: Finding) -> tuple[object, ...]:
    """How findings are sorted, worst first."""
    place = (finding.place.path, finding.place.line)
    return (LEVELS.index(Level(finding.level)), finding.model, finding.rule, place, finding.message)


def _versions(versions: Iterable[str]) -> list[str]:
    return sorted(set(versions), key=version_order) or [""]


def _compose(message: str, hits: Sequence[Hit], known: Sequence[str], since: str, until: str) -> str:
    said = [message]
    on_runtimes = _details([hit for hit in hits if hit.runtime], known)
    if on_runtimes:
        said.append(on_runtimes)
    if until:
        said.append(f"works until {until}")
    if since:
        said.append(f"works since {since}")
    return "; ".join(said)


def _details(hits: Sequence[Hit], known: Sequence[str]) -> str:
    """What each runtime adds: "onnxruntime 1.16.3 implements up to 19 and 1.17.3 up to 20"."""
    groups: dict[str, list[str]] = {}
    for hit in hits:
        runtimes = groups.setdefault(hit.detail, [])
        if hit.runtime not in runtimes:
            runtimes.append(hit.runtime)
    phrases: list[str] = []
    engine = verb = ""
    for detail, runtimes in groups.items():
        names, same_engine = name_runtimes(runtimes, known), runtimes[0].partition(" ")[0]
        if same_engine == engine:
            names = names.replace(f"{engine} ", "")
        if not detail:
            phrases.append(f"on {names}" if engine != same_engine else names)
        else:
            each = "each of " if len(runtimes) > 1 else ""
            words = detail.partition(" ")
            same_verb = words[0] == verb and same_engine == engine and not each and words[2]
            phrases.append(f"{each}{names} {words[2] if same_verb else detail}")
            verb = words[0]
        engine = same_engine
    return listed(phrases)


def blocked(judged: Sequence[Judged], ignores: Ignores) -> set[str]:
    """Models that an error of the file stage, not ignored, keeps from being run; some of its faults keep none.

    One that follows from what the support stage says does not: whether the runtimes refuse the model, they tell.
    """
    kept = weigh(judged, ignores.accepts)
    errors = [each for each in kept if each.judged.stage is Stage.FILE and each.judged.level is Level.ERROR]
    findings = merge([each for each in errors if not each.judged.hit.runs_anyway], ())
    weighed, _ = ignores.apply(findings)
    return {finding.model for finding in weighed if not finding.ignored}
