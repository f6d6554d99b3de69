"""Hits weighed in one place: predictions confirmed or contradicted, runtimes merged, levels and ignores applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnxgate import rules
from onnxgate.core.findings import (
    ALL_STAGES,
    STATIC_STAGES,
    Claim,
    Hit,
    HitReference,
    IncompleteCheck,
    Level,
    Place,
    RuleHit,
    Stage,
    join_phrases,
    name_runtimes,
    runtime_sort_key,
    version_sort_key,
)
from onnxgate.core.fingerprints import assign_fingerprints
from onnxgate.core.report import Finding, ReportedPlace
from onnxgate.gate.request import GateOutcome, GateRequest, GateState
from onnxgate.gate.results import ignore_matching
from onnxgate.gate.results.ignore_matching import Ignores
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.external_data import hash_content
from onnxgate.project.config.loader import UNKNOWN_NAME_FIX, ModelNames, find_unknown_names
from onnxgate.project.plan import PlannedModel, locked_runtimes
from onnxgate.rules.definition import AnyRule

LEVELS = (Level.ERROR, Level.WARNING, Level.NOTE)


def apply_rules(subjects: Iterable[object], rules: Iterable[AnyRule], levels: Mapping[str, str]) -> Iterator[RuleHit]:
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
                    yield RuleHit(rule.id, rule.stage, _resolve_level(rule, hit, levels), hit, silent=off)


def _resolve_level(rule: AnyRule, hit: Hit, levels: Mapping[str, str]) -> Level:
    """The config's level wins, except over a note: that is what a rule says of what is proven to be no fault."""
    if levels.get(rule.id, "off") != "off" and hit.level is not Level.NOTE:
        return Level(levels[rule.id])
    return hit.level or rule.level


@dataclass(frozen=True, slots=True)
class ResolvedHit:
    """A hit with what observations said of it."""

    judged: RuleHit
    confirmed: bool


HitKey = tuple[HitReference, str, str]  # rule or claim, model, runtime
ANY_RUNTIME = "*"  # in place of a runtime


def resolve_hits(judged: Sequence[RuleHit], accepts: Callable[[RuleHit], bool] = lambda _: False) -> list[ResolvedHit]:
    """Drop what an observation contradicts, what only confirms a prediction, and what only follows from a cause.

    `accepts` tells which hits an ignore of the config is about: what somebody accepted does not hide what follows.
    """
    judged = assign_fingerprints(judged)
    contradicted = {(claim, each.hit.model, each.hit.runtime) for each in judged for claim in each.hit.contradicts}
    confirmed = {(claim, each.hit.model, each.hit.runtime) for each in judged for claim in each.hit.confirms}
    standing = [each for each in judged if not each.silent and contradicted.isdisjoint(_identifying_keys(each))]
    said: dict[HitKey, list[RuleHit]] = {}
    for each in standing:
        for key in _identifying_keys(each):
            said.setdefault(key, []).append(each)
    kept = []
    for each in standing:
        hit = each.hit
        explains = {key for key in _related_keys(hit.explained_by, hit) if _at_least_as_severe(said.get(key, ()), each)}
        causes = [
            cause
            for key in _related_keys(hit.follows_from, hit)
            for cause in _at_least_as_severe(said.get(key, ()), each)
        ]
        confirmed |= explains
        if not explains and all(accepts(cause) for cause in causes):
            kept.append(each)
    return [ResolvedHit(each, not confirmed.isdisjoint(_identifying_keys(each))) for each in kept]


def _identifying_keys(judged: RuleHit) -> tuple[HitKey, ...]:
    """How others may speak of a hit: as one of its rule, or by what it is about; on its runtime, or on any."""
    hit = judged.hit
    names: tuple[HitReference, ...] = (judged.rule, Claim(judged.rule, hit.about)) if hit.about else (judged.rule,)
    return tuple((name, hit.model, runtime) for name in names for runtime in (hit.runtime, ANY_RUNTIME))


def _related_keys(names: Iterable[HitReference], hit: Hit) -> set[HitKey]:
    """Where such rules would speak of the same: on the hit's runtime, or of the model as a whole.

    What is about the model as a whole is the same as what they say of it on any runtime.
    """
    return {(name, hit.model, runtime) for name in names for runtime in (hit.runtime or ANY_RUNTIME, "")}


def _at_least_as_severe(causes: Iterable[RuleHit], consequence: RuleHit) -> list[RuleHit]:
    return [cause for cause in causes if LEVELS.index(cause.level) <= LEVELS.index(consequence.level)]


def merge_runtimes(weighed: Sequence[ResolvedHit], known: Sequence[str]) -> list[Finding]:
    """Findings, worst first; those that differ only in the runtime become one. `known` names all locked runtimes."""
    groups: dict[tuple[object, ...], list[ResolvedHit]] = {}
    for each in weighed:
        hit, judged = each.judged.hit, each.judged
        key = (judged.rule, judged.level, judged.stage, hit.model, hit.message, hit.place, hit.fix)
        groups.setdefault(key, []).append(each)
    return sorted((_merge_group(group, known) for group in groups.values()), key=finding_sort_key)


def _merge_group(group: list[ResolvedHit], known: Sequence[str]) -> Finding:
    first = group[0].judged
    hits = sorted({each.judged.hit for each in group}, key=lambda hit: runtime_sort_key(hit.runtime))
    runtimes = tuple(dict.fromkeys(hit.runtime for hit in hits if hit.runtime))
    since, until = _sorted_versions(hit.works_since for hit in hits), _sorted_versions(hit.works_until for hit in hits)
    return Finding(
        rule=first.rule,
        level=first.level.value,
        stage=first.stage.value,
        message=_compose_message(first.hit.message, hits, known, since[-1], until[0]),
        fix=first.hit.fix,
        model=first.hit.model,
        node=next((hit.node for hit in hits if hit.node), ""),
        runtimes=runtimes,
        place=_report_place(first.hit.place),
        works_since=since[-1],
        works_until=until[0],
        confirmed=bool(runtimes) and all(each.confirmed for each in group),
        fingerprint=first.fingerprint,
    )


def _report_place(place: Place) -> ReportedPlace:
    return ReportedPlace(path=place.path, line=place.line, end_line=place.end_line)


def finding_sort_key(finding: Finding) -> tuple[object, ...]:
    """How findings are sorted, worst first."""
    place = (finding.place.path, finding.place.line)
    return (LEVELS.index(Level(finding.level)), finding.model, finding.rule, place, finding.message)


def _sorted_versions(versions: Iterable[str]) -> list[str]:
    return sorted(set(versions), key=version_sort_key) or [""]


def _compose_message(message: str, hits: Sequence[Hit], known: Sequence[str], since: str, until: str) -> str:
    said = [message]
    on_runtimes = _describe_runtimes([hit for hit in hits if hit.runtime], known)
    if on_runtimes:
        said.append(on_runtimes)
    if until:
        said.append(f"works until {until}")
    if since:
        said.append(f"works since {since}")
    return "; ".join(said)


def _describe_runtimes(hits: Sequence[Hit], known: Sequence[str]) -> str:
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
    return join_phrases(phrases)


def find_blocked_models(judged: Sequence[RuleHit], ignores: Ignores) -> set[str]:
    """Models that an error of the file stage, not ignored, keeps from being run; some of its faults keep none.

    One that follows from what the support stage says does not: whether the runtimes refuse the model, they tell.
    """
    kept = resolve_hits(judged, ignores.accepts)
    errors = [each for each in kept if each.judged.stage is Stage.FILE and each.judged.level is Level.ERROR]
    findings = merge_runtimes([error for error in errors if not error.judged.hit.runs_anyway], ())
    weighed, _ = ignores.apply(findings)
    return {finding.model for finding in weighed if not finding.ignored}


def build_outcome(
    request: GateRequest, planned: tuple[PlannedModel, ...], gathered: GateState, blocked: frozenset[str]
) -> GateOutcome:
    """What comes of what was gathered, under the ignores of the request."""
    findings = _resolve_findings(request, gathered, blocked)
    return GateOutcome(planned, findings, gathered, blocked, _observed_errors(gathered, findings))


def find_broken_models(request: GateRequest, gathered: GateState) -> set[str]:
    """Broken files: an error of the file stage that no ignore accepts, and whatever could not be read at all."""
    static = [each for each in gathered.judged if each.stage not in ignore_matching.DYNAMIC_RULE_STAGES]
    return find_blocked_models(static, select_ignores(request, gathered))


def report_unknown_names(request: GateRequest, facts: Mapping[str, ModelFacts]) -> list[IncompleteCheck]:
    """Sizes and tolerances that the config asks for by a name that no model has."""
    asked = {Stage.RUNTIME, Stage.PARITY} & request.stages
    problems = find_unknown_names(request.project, list_model_names(facts)) if asked else ()
    return [
        IncompleteCheck(min(asked, key=ALL_STAGES.index), "", "", problem, UNKNOWN_NAME_FIX) for problem in problems
    ]


def list_model_names(facts: Mapping[str, ModelFacts]) -> dict[str, ModelNames]:
    """What each model calls its axes and outputs."""
    return {path: ModelNames(_axes(fact), [value.name for value in fact.outputs]) for path, fact in facts.items()}


def _axes(facts: ModelFacts) -> set[str]:
    from onnxgate.inputs.axis_sizes import name_axes

    return {dim for value in facts.inputs for dim in name_axes(value) if isinstance(dim, str)}


def select_ignores(request: GateRequest, gathered: GateState) -> Ignores:
    """The config's, with the content that each model has now."""
    entries = request.project.config.ignore if request.ignores.honoured else ()
    contents = {}
    if any(entry.sha256 is not None for entry in entries):
        contents = {path: hash_content(facts) for path, facts in gathered.facts.items()}
    return Ignores(entries, request.ignores.today, contents)


def _resolve_findings(request: GateRequest, gathered: GateState, blocked: frozenset[str]) -> tuple[Finding, ...]:
    known = [runtime.name for _, _, runtime in locked_runtimes(request.project, request.lock)]
    ignores = select_ignores(request, gathered)
    judged = assign_fingerprints(gathered.judged)
    weighed, met = ignores.apply(merge_runtimes(resolve_hits(judged, ignores.accepts), known))
    present = {each.fingerprint for each in judged}
    uses = ignore_matching.find_ignore_uses(ignores, determine_scope(request, gathered, blocked, ignores), met, present)
    if request.share is not None:  # what concerns models of other shards, their merge says
        uses = ignore_matching.exclude_shared_uses(uses, request.share.others(model.path for model in request.models))
    own = list(apply_rules(uses, rules.ALL, request.project.config.rules))
    return tuple(weighed + merge_runtimes(resolve_hits(own), known))


def _observed_errors(gathered: GateState, findings: Sequence[Finding]) -> frozenset[tuple[str, str]]:
    """Where an error was observed that no ignore accepts: by itself, or through the finding that explains it."""
    counted = {
        (finding.rule, finding.model) for finding in findings if finding.level == "error" and not finding.ignored
    }
    return frozenset(
        (each.hit.model, each.hit.runtime)
        for each in gathered.judged
        if each.level is Level.ERROR
        and each.stage not in STATIC_STAGES
        and any((rule, each.hit.model) in counted for rule in _cause_rules(each.hit))
    )


def _cause_rules(hit: Hit) -> set[str]:
    return {said.rule if isinstance(said, Claim) else said for said in (*hit.explained_by, *hit.follows_from)}


def determine_scope(
    request: GateRequest, gathered: GateState, blocked: frozenset[str], ignores: Ignores
) -> ignore_matching.CheckScope:
    """What the rules could know: of a model that is not here, broken or not run, they know less."""
    selected = frozenset(model.path for model in request.models)
    stages, held = _ruled_stages(request), request.baseline.revision is not None
    scope = ignore_matching.CheckScope(request.project, selected, stages, ignores.contents, held)
    scope.leave_undone([*gathered.undone, *gathered.skipped])
    scope.leave_open(stages - {Stage.LOCK}, gathered.away)
    scope.leave_open(stages, selected - gathered.facts.keys())
    scope.leave_open(ignore_matching.DYNAMIC_RULE_STAGES, blocked)
    scope.leave_open(ignore_matching.STAGES_AFTER_RUNS, {runs.model for runs in gathered.execution.faulty})
    if request.selection.inputs.cases:
        scope.leave_open(ignore_matching.DYNAMIC_RULE_STAGES, [ignore_matching.ALL_MODELS])
    return scope


def _ruled_stages(request: GateRequest) -> frozenset[Stage]:
    """The stages whose rules were asked; those about budgets were where sizes were read and models were run."""
    of_budgets = {Stage.FILE, Stage.RUNTIME} <= request.stages
    return request.stages | {Stage.BUDGET} if of_budgets else request.stages
