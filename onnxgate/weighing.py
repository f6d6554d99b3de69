"""What was gathered, weighed: findings with ignores applied, and what of it closes the gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxgate import accepting, judge, rules
from onnxgate.config.names import SPELL, Names, unknown_names
from onnxgate.findings import ALL_STAGES, STATIC_STAGES, Claim, Hit, Level, Stage, Undone
from onnxgate.fingerprints import stamped
from onnxgate.ignores import Ignores
from onnxgate.model.content import content_sha256
from onnxgate.model.facts import ModelFacts
from onnxgate.plan import PlannedModel, locked_runtimes
from onnxgate.report import Finding
from onnxgate.request import Gathered, Outcome, Request


def weighed(
    request: Request, planned: tuple[PlannedModel, ...], gathered: Gathered, blocked: frozenset[str]
) -> Outcome:
    """What comes of what was gathered, under the ignores of the request."""
    findings = _findings(request, gathered, blocked)
    return Outcome(planned, findings, gathered, blocked, _failed(gathered, findings))


def blocked(request: Request, gathered: Gathered) -> set[str]:
    """Broken files: an error of the file stage that no ignore accepts, and whatever could not be read at all."""
    static = [each for each in gathered.judged if each.stage not in accepting.DYNAMIC]
    return judge.blocked(static, ignores_of(request, gathered))


def misnamed(request: Request, facts: Mapping[str, ModelFacts]) -> list[Undone]:
    """Sizes and tolerances that the config asks for by a name that no model has."""
    asked = {Stage.RUNTIME, Stage.PARITY} & request.stages
    problems = unknown_names(request.project, names_of(facts)) if asked else ()
    return [Undone(min(asked, key=ALL_STAGES.index), "", "", problem, SPELL) for problem in problems]


def names_of(facts: Mapping[str, ModelFacts]) -> dict[str, Names]:
    """What each model calls its axes and outputs."""
    return {path: Names(_axes(each), [value.name for value in each.outputs]) for path, each in facts.items()}


def _axes(facts: ModelFacts) -> set[str]:
    from onnxgate.inputs.sizes import axis_names

    return {dim for value in facts.inputs for dim in axis_names(value) if isinstance(dim, str)}


def ignores_of(request: Request, gathered: Gathered) -> Ignores:
    """The config's, with the content that each model has now."""
    entries = request.project.config.ignore if request.honour_ignores else ()
    contents = {}
    if any(entry.sha256 is not None for entry in entries):
        contents = {path: content_sha256(facts) for path, facts in gathered.facts.items()}
    return Ignores(entries, request.today, contents)


def _findings(request: Request, gathered: Gathered, blocked: frozenset[str]) -> tuple[Finding, ...]:
    known = [runtime.name for _, _, runtime in locked_runtimes(request.project, request.lock)]
    ignores = ignores_of(request, gathered)
    judged = stamped(gathered.judged)
    weighed, met = ignores.apply(judge.merge(judge.weigh(judged, ignores.accepts), known))
    present = {each.fingerprint for each in judged}
    uses = accepting.uses(ignores, judged_scope(request, gathered, blocked, ignores), met, present)
    if request.share is not None:  # what concerns models of other shards, their merge says
        uses = accepting.decided(uses, request.share.others(each.path for each in request.models))
    own = list(judge.judge(uses, rules.ALL, request.project.config.rules))
    return tuple(weighed + judge.merge(judge.weigh(own), known))


def _failed(gathered: Gathered, findings: Sequence[Finding]) -> frozenset[tuple[str, str]]:
    """Where an error was observed that no ignore accepts: by itself, or through the finding that explains it."""
    counted = {
        (finding.rule, finding.model) for finding in findings if finding.level == "error" and not finding.ignored
    }
    return frozenset(
        (each.hit.model, each.hit.runtime)
        for each in gathered.judged
        if each.level is Level.ERROR
        and each.stage not in STATIC_STAGES
        and any((rule, each.hit.model) in counted for rule in _causes(each.hit))
    )


def _causes(hit: Hit) -> set[str]:
    return {said.rule if isinstance(said, Claim) else said for said in (*hit.explained_by, *hit.follows_from)}


def judged_scope(request: Request, gathered: Gathered, blocked: frozenset[str], ignores: Ignores) -> accepting.Scope:
    """What the rules could know: of a model that is not here, broken or not run, they know less."""
    selected = frozenset(model.path for model in request.models)
    stages, held = _judged_stages(request), request.against is not None
    scope = accepting.Scope(request.project, selected, stages, ignores.contents, held)
    scope.leave_undone([*gathered.undone, *gathered.skipped])
    scope.leave_open(stages - {Stage.LOCK}, gathered.away)
    scope.leave_open(stages, selected - gathered.facts.keys())
    scope.leave_open(accepting.DYNAMIC, blocked)
    scope.leave_open(accepting.AFTER_RUNS, {runs.model for runs in gathered.execution.faulty})
    if request.asked.cases:
        scope.leave_open(accepting.DYNAMIC, [accepting.EVERY])
    return scope


def _judged_stages(request: Request) -> frozenset[Stage]:
    """The stages whose rules were asked; those about budgets were where sizes were read and models were run."""
    of_budgets = {Stage.FILE, Stage.RUNTIME} <= request.stages
    return request.stages | {Stage.BUDGET} if of_budgets else request.stages
