"""Convert hits into findings: resolve relations, merge runtimes, apply levels and ignores."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext

import msgspec

from onnxgate import rules
from onnxgate.core.advice import render_advice
from onnxgate.core.findings import (
    ALL_STAGES,
    STATIC_STAGES,
    UNDECIDED_RULE,
    Hit,
    HitReference,
    IncompleteCheck,
    Level,
    OnRuntime,
    Place,
    RelationKind,
    RuleHit,
    Stage,
    assign_fingerprints,
    name_runtimes,
    runtime_sort_key,
    sort_runtimes,
    version_sort_key,
)
from onnxgate.core.report import Finding, ReportedPlace
from onnxgate.core.text import join_phrases
from onnxgate.gate.request import GateOutcome, GateRequest, StageResults
from onnxgate.gate.results import ignore_matching
from onnxgate.gate.results.ignore_matching import Ignores
from onnxgate.inputs.axis_sizes import name_axes
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.external_data import hash_content
from onnxgate.project.config import globs
from onnxgate.project.config.loader import UNKNOWN_NAME_FIX, ModelNames, find_unknown_names
from onnxgate.project.engines import engine_family, parse_engine
from onnxgate.project.plan import PlannedModel, locked_runtimes
from onnxgate.rules.definition import AnyRule

LEVELS = (Level.ERROR, Level.WARNING, Level.NOTE)


def apply_rules(
    subjects: Iterable[object],
    rules: Iterable[AnyRule],
    levels: Mapping[str, str],
    contain: Callable[[object], AbstractContextManager[object]] = nullcontext,
) -> Iterator[RuleHit]:
    """Apply each rule to each subject of its type. `levels` is the `[rules]` table in the config.

    For disabled rules, keep only hits that confirm or contradict a prediction, and mark them as silent. `contain`
    returns a context that may catch the error of one rule about this subject.

    Raises:
        TypeError: no rule is defined for evidence of a subject's type.
    """
    by_type = _group_by_subject(tuple(rules))
    for subject in subjects:
        if type(subject) not in by_type:
            raise TypeError(f"no rule is defined for evidence of the type `{type(subject).__name__}`")
        for rule in by_type[type(subject)]:
            try:
                yield from _apply_rule(rule, subject, levels.get(rule.id))
            except Exception:
                with contain(subject):  # not around each rule, since there are many pairs of rules and subjects
                    raise


def _apply_rule(rule: AnyRule, subject: object, configured: str | None) -> Iterator[RuleHit]:
    off = configured == "off"
    for hit in rule.judge(subject):
        level = hit.level or rule.level
        if configured and not off and hit.level is not Level.NOTE:  # notes keep their level
            level = Level(configured)
        if not off or any(RELATION_EFFECTS[relation.kind].is_observation for relation in hit.relations):
            stated = _without_deciding_runs(hit) if configured else hit
            yield RuleHit(rule.id, rule.stage, level, stated, silent=off)


def _without_deciding_runs(hit: Hit) -> Hit:
    """Return the hit without the relation by which runs change its level."""
    relations = tuple(it for it in hit.relations if it.kind is not RelationKind.DECIDED_BY_RUNS)
    return hit if len(relations) == len(hit.relations) else msgspec.structs.replace(hit, relations=relations)


@functools.lru_cache(maxsize=8)
def _group_by_subject(rules: tuple[AnyRule, ...]) -> dict[type, list[AnyRule]]:
    by_type: dict[type, list[AnyRule]] = {}
    for rule in rules:
        by_type.setdefault(rule.subject, []).append(rule)
    return by_type


class ResolvedHit(msgspec.Struct, frozen=True):
    """A remaining hit, and whether an observation confirms it."""

    judged: RuleHit
    confirmed: bool


class RelationEffect(msgspec.Struct, frozen=True):
    """Effect of one kind of relation from one hit (source) to another hit (target), if the target exists.

    An observation refers to a target on the same runtime, and applies even if the rule of the source is off. For all
    other relations, the target can also be a hit on the whole model or, if the source is a hit on the whole model, a
    hit on any runtime. This target must be at least as severe as the source.
    """

    is_observation: bool = False
    drops_target: bool = False
    confirms_target: bool = False
    drops_source: bool = False
    is_void_if_ignored: bool = False  # no effect if an ignore accepts the target


RELATION_EFFECTS = {
    RelationKind.CONTRADICTS: RelationEffect(is_observation=True, drops_target=True),
    RelationKind.CONFIRMS: RelationEffect(is_observation=True, confirms_target=True),
    RelationKind.EXPLAINED_BY: RelationEffect(confirms_target=True, drops_source=True),
    RelationKind.FOLLOWS_FROM: RelationEffect(drops_source=True, is_void_if_ignored=True),
    RelationKind.OPEN_UNTIL_RUN: RelationEffect(),  # `gate.request.apply_runs`
    RelationKind.DECIDED_BY_RUNS: RelationEffect(),  # `gate.request.apply_runs`
}

HitKey = tuple[HitReference, str, str]  # rule and topic, model, runtime
ANY_RUNTIME = "*"


def resolve_hits(judged: Sequence[RuleHit], accepts: Callable[[RuleHit], bool] = lambda _: False) -> list[ResolvedHit]:
    """Drop and confirm hits according to their relations. `accepts` returns whether an ignore accepts a hit.

    Dropped hits can still be causes of other hits; contradicted hits cannot.
    """
    judged = assign_fingerprints(judged)
    targets = {target for rule_hit in judged for _, target in _iterate_effects(rule_hit.hit)}
    contradicted: set[HitKey] = set()
    confirmed: set[HitKey] = set()
    for rule_hit in judged:
        for effect, target in _iterate_effects(rule_hit.hit):
            keys = [(target, rule_hit.hit.model, runtime) for runtime in rule_hit.hit.runtimes]
            if effect.is_observation and effect.drops_target:
                contradicted.update(keys)
            if effect.is_observation and effect.confirms_target:
                confirmed.update(keys)
    sources = {runtime for rule_hit in judged if rule_hit.hit.relations for runtime in rule_hit.hit.runtimes} | {""}
    standing: list[RuleHit] = []
    by_key: dict[HitKey, list[RuleHit]] = {}
    for rule_hit in judged:
        left = None if rule_hit.silent else rule_hit.exclude(_select_runtimes(rule_hit, targets, contradicted))
        if left is not None:
            standing.append(left)
            for reference in _list_references(left, targets):
                for runtime in (ANY_RUNTIME, *sources.intersection(left.hit.runtimes)):
                    by_key.setdefault((reference, left.hit.model, runtime), []).append(left)
    remaining = [
        left
        for rule_hit in standing
        if (left := rule_hit.exclude(_list_redundant(rule_hit, by_key, confirmed, accepts))) is not None
    ]
    resolved: list[ResolvedHit] = []
    for rule_hit in remaining:
        certain = _select_runtimes(rule_hit, targets, confirmed)
        parts = (rule_hit.exclude(certain), rule_hit.exclude({*rule_hit.hit.runtimes} - certain) if certain else None)
        resolved += [ResolvedHit(part, bool(index)) for index, part in enumerate(parts) if part is not None]
    return resolved


def _list_redundant(
    rule_hit: RuleHit,
    by_key: Mapping[HitKey, Sequence[RuleHit]],
    confirmed: set[HitKey],
    accepts: Callable[[RuleHit], bool],
) -> list[str]:
    """Return the runtimes on which the relations of a hit drop it; add the targets that they confirm to `confirmed`."""
    if not rule_hit.hit.relations:
        return []
    return [it for it in rule_hit.hit.runtimes if _is_redundant(rule_hit, it, by_key, confirmed, accepts)]


def _is_redundant(
    rule_hit: RuleHit,
    name: str,
    by_key: Mapping[HitKey, Sequence[RuleHit]],
    confirmed: set[HitKey],
    accepts: Callable[[RuleHit], bool],
) -> bool:
    is_redundant = False
    for effect, target in _iterate_effects(rule_hit.hit):
        if effect.is_observation:
            continue
        for runtime in {name or ANY_RUNTIME, ""}:  # "": the whole model
            key = (target, rule_hit.hit.model, runtime)
            severity = LEVELS.index(rule_hit.level)
            causes = [it for it in by_key.get(key, ()) if LEVELS.index(it.level) <= severity]
            if causes and effect.confirms_target:
                confirmed.add(key)
            if effect.drops_source and any(not (effect.is_void_if_ignored and accepts(it)) for it in causes):
                is_redundant = True
    return is_redundant


def _iterate_effects(hit: Hit) -> Iterator[tuple[RelationEffect, HitReference]]:
    for relation in hit.relations:
        if relation.to is not None:
            yield RELATION_EFFECTS[relation.kind], relation.to


def _list_references(judged: RuleHit, targets: Set[HitReference]) -> Set[HitReference]:
    """Return those of `targets`, to which relations refer, that select a hit: with and without its topic."""
    return {HitReference(judged.rule), HitReference(judged.rule, judged.hit.topic)} & targets if targets else set()


def _select_runtimes(judged: RuleHit, targets: Set[HitReference], keys: Set[HitKey]) -> set[str]:
    """Return the runtimes of a hit on which one of `keys` selects it."""
    references = _list_references(judged, targets) if keys else ()
    model = judged.hit.model
    return {
        runtime
        for reference in references
        for runtime in judged.hit.runtimes
        if (reference, model, runtime) in keys or (reference, model, ANY_RUNTIME) in keys
    }


def merge_runtimes(resolved: Sequence[ResolvedHit], locked: Sequence[str]) -> list[Finding]:
    """Merge hits that differ only in their runtime into findings, worst first. `locked` names all locked runtimes."""
    groups: dict[tuple[object, ...], list[ResolvedHit]] = {}
    for resolved_hit in resolved:
        hit, judged = resolved_hit.judged.hit, resolved_hit.judged
        key = (judged.rule, judged.level, judged.stage, hit.model, hit.message, hit.place, hit.fix)
        groups.setdefault(key, []).append(resolved_hit)
    return sorted((_merge_group(group, locked) for group in groups.values()), key=finding_sort_key)


def _merge_group(group: list[ResolvedHit], locked: Sequence[str]) -> Finding:
    first = group[0].judged
    distinct = {resolved_hit.judged.hit for resolved_hit in group}
    hits = sorted(distinct, key=lambda hit: runtime_sort_key(hit.oldest_runtime))
    runtimes = sort_runtimes(frozenset(name for hit in hits for name in hit.runtimes if name))
    states = [hit.on for hit in hits if hit.on]
    by_engine: dict[str, list[OnRuntime]] = {}
    for on in states:
        by_engine.setdefault(engine_family(parse_engine(on.name)), []).append(on)
    since, until = _find_working_span(states) if len(by_engine) == 1 else ("", "")
    availability = list(_describe_availability({engine: _find_working_span(own) for engine, own in by_engine.items()}))
    return Finding(
        rule=first.rule,
        level=first.level.value,
        stage=first.stage.value,
        message=_join_message(first.hit.message, states, availability, locked),
        fix=render_advice(first.hit.fix),
        model=first.hit.model,
        node=next((hit.node for hit in hits if hit.node), ""),
        runtimes=runtimes,
        place=report_place(first.hit.place),
        works_since=since,
        works_until=until,
        confirmed=bool(runtimes) and all(resolved_hit.confirmed for resolved_hit in group),
        fingerprint=first.fingerprint,
    )


def _find_working_span(states: Iterable[OnRuntime]) -> tuple[str, str]:
    """Return the first release since which a model works on releases of one engine, and the last on which it worked."""
    since = max((on.works_since for on in states), key=version_sort_key, default="")
    return since, min((on.works_until for on in states), key=version_sort_key, default="")


def _describe_availability(spans: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Yield what is known about the releases on which a model works; each engine is named if there are several."""
    sinces, untils = (
        [f"{engine} {span[index]}" if len(spans) > 1 else span[index] for engine, span in spans.items() if span[index]]
        for index in (0, 1)
    )
    if untils:
        yield f"last worked on {join_phrases(untils)}"
    if sinces:
        yield f"works {'again ' if untils else ''}since {join_phrases(sinces)}"


def report_place(place: Place) -> ReportedPlace:
    """Convert the place of a hit for the report."""
    return ReportedPlace(path=place.path, line=place.line, end_line=place.end_line)


def finding_sort_key(finding: Finding) -> tuple[object, ...]:
    """Return the sort key of findings, worst first."""
    place = (finding.place.path, finding.place.line)
    return (LEVELS.index(Level(finding.level)), finding.model, finding.rule, place, finding.message)


def _join_message(message: str, states: Sequence[OnRuntime], availability: Sequence[str], locked: Sequence[str]) -> str:
    """Add the state on each runtime to a message (or only its name), and the releases on which the model works."""
    if any(on.detail for on in states):
        message = f"{message}; {_describe_runtimes(states, locked)}"
        remarks = [*availability]
    else:
        names = {name for on in states for name in on.names}
        remarks = [*([name_runtimes(names, locked)] if states else []), *availability]
    return f"{message} ({'; '.join(remarks)})" if remarks else message


def _describe_runtimes(states: Sequence[OnRuntime], locked: Sequence[str]) -> str:
    """Return the state of each runtime as text, for example "onnxruntime 1.16.3 supports up to 19; 1.17.3 up to 20"."""
    groups: dict[str, list[str]] = {}
    for on in states:
        runtimes = groups.setdefault(on.detail, [])
        runtimes += [name for name in on.names if name not in runtimes]
    phrases: list[str] = []
    engine = previous_verb = ""
    for detail, runtimes in groups.items():
        names, same_engine = name_runtimes(runtimes, locked), runtimes[0].partition(" ")[0]
        if same_engine == engine:
            names = names.replace(f"{engine} ", "")
        verb, _, rest = detail.partition(" ")
        if len(runtimes) > 1:
            verb = PLURAL_VERBS.get(verb) or verb.removesuffix("s")
        if verb == previous_verb and same_engine == engine and rest:
            verb = ""
        phrases.append(" ".join(filter(None, (names, verb, rest))))
        engine, previous_verb = same_engine, verb or previous_verb
    return "; ".join(phrases)


PLURAL_VERBS = {"does": "do", "has": "have", "is": "are"}


def find_blocked_models(judged: Sequence[RuleHit], ignores: Ignores) -> set[str]:
    """Return the models that must not be run because of a file error that no ignore accepts."""
    errors = [
        resolved_hit
        for resolved_hit in resolve_hits(judged, ignores.accepts)
        if resolved_hit.judged.stage is Stage.FILE
        and resolved_hit.judged.level is Level.ERROR
        and rules.by_id[resolved_hit.judged.rule].blocks_run
    ]
    applied, _ = ignores.apply(merge_runtimes(errors, ()))
    return {finding.model for finding in applied if not finding.ignored}


def build_outcome(
    request: GateRequest, planned: tuple[PlannedModel, ...], gathered: StageResults, blocked: frozenset[str]
) -> GateOutcome:
    """Build the outcome of the collected hits with the ignores of the request."""
    names = [runtime.name for _, _, runtime in locked_runtimes(request.project, request.lock)]
    ignores = select_ignores(request, gathered)
    judged = assign_fingerprints(gathered.judged)
    gaps = list_acceptable_gaps(request, gathered)
    applied, met = ignores.apply([*merge_runtimes(resolve_hits(judged, ignores.accepts), names), *gaps])
    findings = sorted((it for it in applied if it.rule != UNDECIDED_RULE or it.ignored), key=finding_sort_key)
    present = collect_fingerprints(judged, gaps)
    uses = ignore_matching.find_ignore_uses(ignores, determine_scope(request, gathered, blocked, ignores), met, present)
    if request.share is not None:  # `merge` reports ignores that match models of other shards
        others = request.share.others(model.path for model in request.models)
        uses = [use for use in uses if not any(globs.matches(use.model, path) for path in others)]
    about_ignores = list(apply_rules(uses, rules.ALL, request.project.config.rules))
    findings += merge_runtimes(resolve_hits(about_ignores), names)
    accepted = frozenset(finding.fingerprint for finding in findings if finding.rule == UNDECIDED_RULE)
    return GateOutcome(planned, tuple(findings), gathered, blocked, _observed_errors(gathered, findings), accepted)


def collect_fingerprints(judged: Iterable[RuleHit], gaps: Iterable[Finding]) -> set[str]:
    """Return the fingerprints of hits and of undecided checks that an ignore may accept."""
    return {hit.fingerprint for hit in judged} | {gap.fingerprint for gap in gaps}


def list_acceptable_gaps(request: GateRequest, gathered: StageResults) -> list[Finding]:
    """Return the undecided checks that an ignore may accept, as findings.

    The cause must lie in the model and its inputs, and another selected stage must have checked the model. Otherwise an
    ignore could hide a fault of the machine or the project, or that nothing was checked at all.
    """
    if request.stages.isdisjoint({*STATIC_STAGES, Stage.RUNTIME}):
        return []
    undone = sorted(gathered.undone, key=lambda it: ALL_STAGES.index(it.stage))
    return [
        Finding(
            rule=UNDECIDED_RULE,
            level=Level.WARNING.value,
            stage=it.stage.value,
            message=it.reason,
            fix=it.hint,
            model=it.model,
            node="",
            runtimes=(it.runtime,) if it.runtime else (),
            place=report_place(gathered.lock.places.get(it.model, Place(it.model))),
            works_since="",
            works_until="",
            confirmed=False,
            fingerprint=it.fingerprint,
        )
        for it in {(it.fingerprint, it.runtime): it for it in reversed(undone) if it.fingerprint}.values()
    ]


def find_broken_models(request: GateRequest, gathered: StageResults) -> set[str]:
    """Return the models with file errors that no ignore accepts."""
    static = [hit for hit in gathered.judged if hit.stage not in ignore_matching.DYNAMIC_RULE_STAGES]
    return find_blocked_models(static, select_ignores(request, gathered))


def report_unknown_names(request: GateRequest, facts: Mapping[str, ModelFacts]) -> list[IncompleteCheck]:
    """Return an incomplete check for each axis or output name in the config that none of its models has."""
    requested = {Stage.RUNTIME, Stage.PARITY} & request.stages
    problems = find_unknown_names(request.project, list_model_names(facts)) if requested else ()
    return [
        IncompleteCheck(min(requested, key=ALL_STAGES.index), model, "", problem, UNKNOWN_NAME_FIX, prevents_run=False)
        for model, problem in problems
    ]


def list_model_names(facts: Mapping[str, ModelFacts]) -> dict[str, ModelNames]:
    """Return the names of axes and outputs of each model."""
    return {
        path: ModelNames(
            {dim for value in fact.inputs for dim in name_axes(value) if isinstance(dim, str)},
            [value.name for value in fact.outputs],
        )
        for path, fact in facts.items()
    }


def select_ignores(request: GateRequest, gathered: StageResults) -> Ignores:
    """Return the ignores in the config, with the current content of each model."""
    entries = request.project.config.ignore if request.ignores.honoured else ()
    contents = {}
    if any(entry.sha256 is not None for entry in entries):
        contents = {path: hash_content(facts) for path, facts in gathered.facts.items()}
    return Ignores(entries, request.ignores.today, contents, gathered.policy.new_ignores)


def _observed_errors(gathered: StageResults, findings: Sequence[Finding]) -> frozenset[tuple[str, str]]:
    """Return the (model, runtime) pairs with observed errors that are explained by an error that no ignore accepts."""
    counted = {
        (finding.rule, finding.model) for finding in findings if finding.level == "error" and not finding.ignored
    }
    return frozenset(
        (rule_hit.hit.model, runtime)
        for rule_hit in gathered.judged
        if rule_hit.level is Level.ERROR
        and rule_hit.stage not in STATIC_STAGES
        and any(
            (target.rule, rule_hit.hit.model) in counted
            for effect, target in _iterate_effects(rule_hit.hit)
            if effect.drops_source
        )
        for runtime in rule_hit.hit.runtimes
    )


def determine_scope(
    request: GateRequest, gathered: StageResults, blocked: frozenset[str], ignores: Ignores
) -> ignore_matching.CheckScope:
    """Determine for which models and stages the rules had complete evidence."""
    selected, has_baseline = frozenset(model.path for model in request.models), request.baseline.revision is not None
    stages = request.stages
    if {Stage.FILE, Stage.RUNTIME} <= stages:
        stages |= {Stage.BUDGET}  # sizes were read, and models were run
    scope = ignore_matching.CheckScope(request.project, selected, stages, ignores.contents, has_baseline)
    for check in (*gathered.undone, *gathered.skipped):  # these and subsequent stages are incomplete
        after = ignore_matching.STAGES_AFTER_RUNS if check.stage is Stage.RUNTIME else frozenset()
        scope.leave_open({check.stage, *after}, [check.model])
    scope.leave_open(stages - {Stage.LOCK}, gathered.file.missing)
    scope.unanswered = {*blocked, *(check.model for check in gathered.undone if not check.fingerprint)}
    scope.leave_open(stages, selected - gathered.facts.keys())
    scope.leave_open(ignore_matching.DYNAMIC_RULE_STAGES, blocked)
    scope.leave_open(ignore_matching.STAGES_AFTER_RUNS, {runs.model for runs in gathered.execution.faulty})
    if request.selection.inputs.cases:
        scope.leave_open(ignore_matching.DYNAMIC_RULE_STAGES, [ignore_matching.ALL_MODELS])
        scope.unanswered.add(ignore_matching.ALL_MODELS)
    return scope
