"""What several shards say of the project: weighed once more, when all is known."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from onnxgate import accepting, judge, rules
from onnxgate.config.types import Ignore
from onnxgate.evidence.ignores import IgnoreUse
from onnxgate.findings import Hit, Judged, Level, Place, Stage
from onnxgate.fingerprints import stamped
from onnxgate.ignores import Ignores
from onnxgate.report import Finding, NotDone, ReportedPlace, Shard, SharedHit, SharedIgnore

TODAY, ENDED = datetime.date(2000, 1, 2), datetime.date(2000, 1, 1)
"""Stand for the days of the shards, which said themselves which ignores have ended."""


class Shared:
    """`shards` are of one check."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        self._known = [f"{runtime.engine} {runtime.version}" for runtime in shards[0].locked]
        self._ignores = [tuple(each) for each in zip(*(shard.ignores for shard in shards), strict=True)]

    def findings(self, about_models: Sequence[Finding], misnamed: Sequence[NotDone]) -> tuple[Finding, ...]:
        """All findings: those about models, about the project, and about the ignores of both."""
        ignores = Ignores([_entry(each) for each in self._ignores], TODAY)
        hits = list(dict.fromkeys(hit for shard in self._shards for hit in shard.hits))
        judged = stamped([_judged(hit) for hit in hits])
        confirmed = [hit.confirmed for hit in hits]
        weighed = [judge.Weighed(*each) for each in zip(judged, confirmed, strict=True)]
        of_project, met = ignores.apply(judge.merge(weighed, self._known))
        present = {each.fingerprint for each in judged}
        findings = sorted([*about_models, *of_project], key=judge.order)
        open_stages = self._left_open(misnamed)
        uses = [
            _use(each, (present if each[0].fingerprints else met[index]), open_stages)
            for index, each in enumerate(self._ignores)
        ]
        own = list(judge.judge(uses, rules.ALL, self._shards[0].levels))
        return (*findings, *judge.merge(judge.weigh(own), self._known))

    def _left_open(self, misnamed: Sequence[NotDone]) -> frozenset[Stage]:
        """Stages of which nothing can be concluded from what was not found."""
        stages = {Stage(each.stage) for each in misnamed}
        return frozenset(stages | (accepting.AFTER_RUNS if Stage.RUNTIME in stages else frozenset()))


def _judged(said: SharedHit) -> Judged:
    hit = Hit(
        place=_place(said.place),
        message=said.message,
        model=said.model,
        node=said.node,
        fix=said.fix,
        runtime=said.runtime,
        detail=said.detail,
        works_since=said.works_since,
        works_until=said.works_until,
        identity=said.identity,
    )
    return Judged(said.rule, Stage(said.stage), Level(said.level), hit)


def _place(place: ReportedPlace) -> Place:
    return Place(place.path, place.line, place.end_line)


def _entry(of_shards: Sequence[SharedIgnore]) -> Ignore:
    """The entry as far as it is about the project. It has ended where any shard says so."""
    first = of_shards[0]
    return Ignore(
        rule=first.rule,
        reason=first.reason,
        model=first.model,
        until=ENDED if any(each.expired for each in of_shards) else None,
        sha256=first.sha256 or None,
        fingerprints=first.fingerprints,
    )


def _use(of_shards: Sequence[SharedIgnore], found: frozenset[str] | set[str], left_open: frozenset[Stage]) -> IgnoreUse:
    """What came of an entry in all shards, and of what it `found` of the project."""
    first, rule = of_shards[0], rules.by_id.get(of_shards[0].rule)
    listed = first.fingerprints or ()
    every = found.union(*(each.found for each in of_shards))
    gone = sum(each not in every for each in listed)
    return IgnoreUse(
        place=_place(first.place),
        rule=first.rule,
        model=first.model,
        until=first.until,
        expired=any(each.expired for each in of_shards),
        used=gone < len(listed) if listed else bool(every),
        stage_ran=all(each.covered for each in of_shards) and (rule is None or rule.stage not in left_open),
        sha256=first.sha256,
        content_there=any(each.content_there for each in of_shards),
        listed=len(listed),
        gone=gone,
    )
