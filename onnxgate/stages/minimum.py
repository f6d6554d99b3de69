"""From which release of ONNX Runtime on a model loads, before and now: predicted over all releases of known kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onnxgate.config.types import Target
from onnxgate.evidence.changes import Minimum
from onnxgate.lock.types import LockedRuntime
from onnxgate.model.facts import ModelFacts
from onnxgate.plan import PlannedRuntime
from onnxgate.stages.operators import honest
from onnxgate.stages.supported import GPU, known_support
from onnxgate.support import limits, releases
from onnxgate.support.operations import Prepared
from onnxgate.support.predict import predict
from onnxgate.support.spans import span
from onnxgate.support.typing import prepare

if TYPE_CHECKING:
    from onnx import ModelProto

Verdict = Literal["loads", "refused", "unknown"]
Verdicts = Mapping[str, Verdict]
"""By release, ascending."""


def concerned(targets: Sequence[Target]) -> tuple[Target, ...]:
    """The targets that promise releases of ONNX Runtime."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    family = (limits.table().engine, GPU)
    return tuple(each for each in targets if canonicalize_name(Requirement(each.runtime).name) in family)


def by_stamps(facts: ModelFacts) -> Verdicts:
    """What is known of a model that is not here: it is refused, or it may load."""
    taken = {each: limits.limits_of(each) for each in releases.known()}
    return {
        release: "unknown" if limit and limits.loads(limit, facts.ir_version, facts.needed_opsets) else "refused"
        for release, limit in taken.items()
    }


def alike(targets: Sequence[Target]) -> tuple[tuple[Target, ...], ...]:
    """Targets that bring the same with them: what a provider or an extension of one may do, it does for no other."""
    groups: dict[tuple[frozenset[str], frozenset[str]], list[Target]] = {}
    for each in targets:
        groups.setdefault((frozenset(each.providers), frozenset(each.extensions)), []).append(each)
    return tuple(tuple(group) for group in groups.values())


def by_operators(proto: ModelProto, groups: Sequence[Sequence[Target]]) -> tuple[Verdicts, ...]:
    """For each group what each release does with a model. What its extensions and providers may bring is not known."""
    prepared = prepare(proto)
    return tuple(_by_operators(prepared, group) for group in groups)


def _by_operators(prepared: Prepared, targets: Sequence[Target]) -> Verdicts:
    verdicts: dict[str, Verdict] = {}
    for release in releases.known():
        known = known_support(_planned(release, targets), {})
        assert known is not None
        prediction = predict(prepared, known.implementation, known.limits, known.planned.providers)
        verdicts[release] = honest(prediction, known).verdict
    return verdicts


@dataclass(frozen=True, slots=True)
class View:
    """What releases do with a model for targets that bring the same with them, then and now."""

    targets: Sequence[Target]
    then: Verdicts
    now: Verdicts

    @property
    def is_known(self) -> bool:
        """Whether every release's answer is."""
        return "unknown" not in (*self.then.values(), *self.now.values())

    def admitted(self, then: Verdict, now: Verdict) -> set[str]:
        """The releases that its targets promise and that answered so and answer so."""
        return set(
            _admitted((each for each in self.then if (self.then[each], self.now[each]) == (then, now)), self.targets)
        )


def minimum(views: Sequence[View]) -> Minimum | None:
    """None where it is the same, or where nothing is known to be lost and not every release's answer is known.

    Without `before` and `after` where some are lost and others are not known.
    """
    known = next((each for each in views if each.is_known), None)
    before, after = (_since(known.then), _since(known.now)) if known is not None else ("", "")
    found = Minimum(before=before, after=after, lost=_promised(views, "loads", "refused"))
    return found if found.lost or found.before != found.after else None


def may_be_lost(views: Sequence[View]) -> tuple[str, ...]:
    """Promised releases that refuse the model now, and of which nobody knows whether they loaded it before."""
    return _promised(views, "unknown", "refused")


def may_be_refused(views: Sequence[View]) -> tuple[str, ...]:
    """Promised releases that loaded the model, and of which nobody knows whether they do now."""
    return _promised(views, "loads", "unknown")


def _promised(views: Sequence[View], then: Verdict, now: Verdict) -> tuple[str, ...]:
    found = set[str]().union(*(each.admitted(then, now) for each in views))
    return tuple(release for release in releases.known() if release in found)


def _planned(release: str, targets: Sequence[Target]) -> PlannedRuntime:
    return PlannedRuntime(
        runtime=LockedRuntime(engine=limits.table().engine, release=release),
        targets=(),
        levels=(),
        providers=tuple(dict.fromkeys(each for target in targets for each in target.providers)),
        required=False,
        extensions=tuple(dict.fromkeys(each for target in targets for each in target.extensions)),
    )


def _since(verdicts: Verdicts) -> str:
    """The first release from which on every one loads it; where the newest does not, the first that does."""
    every = list(verdicts)
    loads = [verdict == "loads" for verdict in verdicts.values()]
    if all(loads):
        return every[0]
    return span(every, loads)[0] or next((each for each, works in zip(every, loads, strict=True) if works), "")


def _admitted(found: Iterable[str], targets: Sequence[Target]) -> tuple[str, ...]:
    """The releases that a requirement admits, be they locked or not; a build of one's own is none of them."""
    from packaging.requirements import Requirement

    admitted = [Requirement(each.runtime).specifier for each in targets if each.python is None]
    return tuple(release for release in found if any(specifier.contains(release) for specifier in admitted))
