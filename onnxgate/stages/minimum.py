"""From which release of ONNX Runtime on a model loads, before and now: predicted over all releases of known kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from onnxgate.config.types import Target
from onnxgate.evidence.changes import Minimum
from onnxgate.lock.types import LockedRuntime
from onnxgate.model.facts import ModelFacts
from onnxgate.plan import PlannedRuntime
from onnxgate.stages.operators import honest
from onnxgate.stages.supported import GPU, known_support
from onnxgate.support import limits, releases
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


def by_operators(proto: ModelProto, targets: Sequence[Target]) -> Verdicts:
    """What each release does with a model. What an extension or a provider of a target may bring is not known."""
    prepared = prepare(proto)
    verdicts: dict[str, Verdict] = {}
    for release in releases.known():
        known = known_support(_planned(release, targets), {})
        assert known is not None
        prediction = predict(prepared, known.implementation, known.limits, known.planned.providers)
        verdicts[release] = honest(prediction, known).verdict
    return verdicts


def minimum(then: Verdicts, now: Verdicts, targets: Sequence[Target]) -> Minimum | None:
    """None where it is the same, or where one release's answer is not known."""
    if "unknown" in (*then.values(), *now.values()):
        return None
    lost = _admitted((each for each in then if (then[each], now[each]) == ("loads", "refused")), targets)
    found = Minimum(before=_since(then), after=_since(now), lost=lost)
    return found if found.lost or found.before != found.after else None


def may_be_lost(then: Verdicts, now: Verdicts, targets: Sequence[Target]) -> tuple[str, ...]:
    """Promised releases that refuse the model now, and of which nobody knows whether they loaded it before."""
    return _admitted((each for each in then if (then[each], now[each]) == ("unknown", "refused")), targets)


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
