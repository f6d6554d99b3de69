"""The support stage: what each locked runtime takes, matched with what the models say. Nothing is executed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.evidence.support import ModelOnRuntime, RuntimeSupport, UnpredictedRuntime
from onnxgate.findings import Place
from onnxgate.lock.types import LockedRuntime
from onnxgate.model.facts import ModelFacts
from onnxgate.support import limits


def gather_model(model: ModelFacts, place: Place, runtimes: Sequence[LockedRuntime]) -> Iterator[ModelOnRuntime]:
    """The model beside each of its runtimes that there is data of."""
    known = [support for runtime in runtimes if (support := runtime_support(runtime)) is not None]
    if not known:
        return
    common_opsets = _common_opsets(known)
    for support in known:
        yield ModelOnRuntime(
            model=model,
            place=place,
            runtime=support,
            common_ir=min(each.max_ir for each in known),
            common_opsets=common_opsets,
            ir_works_since=limits.ir_works_since(model.ir_version),
            opset_works_since={d: limits.opset_works_since(d, v) for d, v in model.needed_opsets.items()},
        )


def gather_unpredicted(runtimes: Sequence[LockedRuntime], place: Place) -> Iterator[UnpredictedRuntime]:
    """The runtimes of which nothing is known."""
    for runtime in runtimes:
        if runtime_support(runtime) is None:
            yield UnpredictedRuntime(place, runtime.name, "is not in the support data of this onnxgate")


def runtime_support(runtime: LockedRuntime) -> RuntimeSupport | None:
    """What is known of one runtime, None where it is nothing."""
    known = limits.limits_of(runtime.release) if runtime.engine == limits.table().engine else None
    return None if known is None else RuntimeSupport(runtime.name, known.ir, known.opsets)


def _common_opsets(supports: Sequence[RuntimeSupport]) -> dict[str, int]:
    domains = {domain for support in supports for domain in support.newest_opsets}
    return {domain: min(s.newest_opsets[domain] for s in supports if domain in s.newest_opsets) for domain in domains}
