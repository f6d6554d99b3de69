"""What a report of one shard tells its merge: what concerns more than its own models, before it is weighed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from onnxgate import accepting, judge, rules, weighing
from onnxgate.config.names import entry_names
from onnxgate.findings import Stage
from onnxgate.fingerprints import stamped
from onnxgate.ignores import matches_model
from onnxgate.plan import locked_runtimes, reported
from onnxgate.report import (
    AskedName,
    ReportedPlace,
    ReportedRuntime,
    Shard,
    SharedHit,
    SharedIgnore,
    SharedNames,
)
from onnxgate.request import Outcome, Request
from onnxgate.shards import Share, digest


def shard_of(request: Request, outcome: Outcome, share: Share, scope: str) -> Shard:
    """The part of the report about the other parts. `scope` is what the whole check leaves out."""
    division = share.division
    return Shard(
        index=share.index,
        of=division.of,
        plan=division.plan,
        key=_key(request, share),
        config=division.state.config,
        lock=division.state.lock,
        models=division.state.models,
        division=division.shards,
        scope=scope,
        locked=tuple(locked(request)),
        levels=_levels(request.project.config.rules),
        hits=tuple(_hits(request, outcome, share)),
        ignores=tuple(_ignores(request, outcome, share)),
        names=tuple(_names(request, outcome, share)),
    )


def locked(request: Request) -> Iterator[ReportedRuntime]:
    """Every runtime of the lock, in its order."""
    return itertools.starmap(reported, locked_runtimes(request.project, request.lock))


def _key(request: Request, share: Share) -> str:
    """Equal in all shards of one check: of the same state, divided alike, with the same options."""
    against = request.against.commit if request.against is not None else ""
    stages = sorted(stage.value for stage in request.stages)
    return digest([share.division.plan, stages, request.asked.seed, request.honour_ignores, against])


def _levels(levels: Mapping[str, str]) -> dict[str, str]:
    """What the config makes of the gate's own rules, which speak when all is known."""
    own = {rule.id for rule in rules.ALL if rule.stage is Stage.GATE}
    return {rule: level for rule, level in sorted(levels.items()) if rule in own}


def _hits(request: Request, outcome: Outcome, share: Share) -> Iterator[SharedHit]:
    """What rules say of no model of the check."""
    ignores = weighing.ignores_of(request, outcome.gathered)
    for each in judge.weigh(outcome.gathered.judged, ignores.accepts):
        hit, judged = each.judged.hit, each.judged
        if hit.model not in share.whole:
            yield SharedHit(
                rule=judged.rule,
                level=judged.level.value,
                stage=judged.stage.value,
                message=hit.message,
                place=_place(hit.place.path, hit.place.line, hit.place.end_line),
                fix=hit.fix,
                model=hit.model,
                node=hit.node,
                runtime=hit.runtime,
                detail=hit.detail,
                works_since=hit.works_since,
                works_until=hit.works_until,
                identity=hit.identity,
                confirmed=each.confirmed,
            )


def _ignores(request: Request, outcome: Outcome, share: Share) -> Iterator[SharedIgnore]:
    """What each ignore met in this shard, and whether the shard leaves anything open that it is about."""
    ignores = weighing.ignores_of(request, outcome.gathered)
    scope = weighing.judged_scope(request, outcome.gathered, outcome.blocked, ignores)
    scope = replace(scope, models=scope.models | share.whole)
    own = {model.path for model in request.models}
    judged = [each for each in stamped(outcome.gathered.judged) if each.hit.model in own]
    _, met = ignores.apply(judge.merge(judge.weigh(judged, ignores.accepts), ()))
    present = {each.fingerprint for each in judged}
    for index, use in enumerate(accepting.uses(ignores, scope, met, present)):
        entry, place = ignores.entries[index], use.place
        listed = entry.fingerprints or ()
        yield SharedIgnore(
            rule=entry.rule,
            model=entry.model,
            reason=entry.reason,
            place=_place(place.path, place.line, place.end_line),
            until=use.until,
            expired=use.expired,
            sha256=use.sha256,
            fingerprints=entry.fingerprints,
            covered=use.stage_ran,
            content_there=entry.sha256 is None
            or accepting.may_hold(
                entry.sha256.lower(), [path for path in own if matches_model(entry.model, path)], scope
            ),
            found=tuple(sorted(set(listed) & present if listed else met[index])),
        )


def _names(request: Request, outcome: Outcome, share: Share) -> Iterator[SharedNames]:
    """What the models of this shard are asked to call their axes and outputs, and what they call them."""
    if not {Stage.RUNTIME, Stage.PARITY} & request.stages:
        return
    known = weighing.names_of(outcome.gathered.facts)
    others = share.others(model.path for model in request.models)
    paths = [model.path for model in request.project.models() if model.path not in others]
    for each in entry_names(request.project, known, paths):
        if each.asked:
            yield SharedNames(
                asked=tuple(AskedName(where=one.where, kind=one.kind, name=one.name) for one in each.asked),
                axes=tuple(sorted(each.axes)),
                outputs=tuple(sorted(each.outputs)),
                whole=each.whole,
            )


def _place(path: str, line: int, end_line: int) -> ReportedPlace:
    return ReportedPlace(path=path, line=line, end_line=end_line)
