"""What is known of the runtimes that a model is promised on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onnxgate.lock.types import LockedRuntime
from onnxgate.plan import PlannedRuntime
from onnxgate.support import limits, releases
from onnxgate.support.limits import Limits
from onnxgate.support.table import Implementation

if TYPE_CHECKING:
    from onnxgate.support.harvested import Kept

GPU = "onnxruntime-gpu"
"""A build with the limits and schemas of the release of the same number, and with kernels of its own."""
Judged = Literal["all", "schemas", "stamps"]


@dataclass(frozen=True, slots=True)
class Known:
    """One runtime, and how much of it is known."""

    planned: PlannedRuntime
    limits: Limits
    implementation: Implementation | None
    judged: Judged
    reason: str = ""  # why that is not all, as a verb phrase

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.planned.name

    @property
    def whole(self) -> Implementation | None:
        """What it implements, where its kernels are known."""
        return self.implementation if self.judged == "all" else None


def known_support(planned: PlannedRuntime, kept: Mapping[str, Kept]) -> Known | None:
    """What is known of one runtime, None where it is nothing. `kept` is what was harvested, by the runtime's name."""
    runtime = planned.runtime
    own = kept.get(planned.name)
    if own is not None:
        return _harvested(planned, own)
    measured = limits.limits_of(runtime.release) if _is_of_family(runtime) else None
    if measured is None:
        return None
    implementation = releases.implementation(runtime.release)
    if runtime.environment:
        return Known(planned, measured, None, "stamps", "is a build of one's own, whose kernels are not known")
    if implementation is None:
        return Known(
            planned, measured, None, "stamps", "has no kernels in the support data: wheels tell them since 1.16"
        )
    if runtime.engine == GPU:
        return Known(planned, measured, implementation, "schemas", "is a build of whose kernels there is no data")
    return Known(planned, measured, implementation, "all")


def _harvested(planned: PlannedRuntime, own: Kept) -> Known:
    if own.implementation is None:
        return Known(planned, own.limits, None, "stamps", "does not say which kernels it has")
    return Known(planned, own.limits, own.implementation, "all")


def _is_of_family(runtime: LockedRuntime) -> bool:
    return runtime.engine in (limits.table().engine, GPU)
