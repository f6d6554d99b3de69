"""Crashes of runtimes at sizes that onnxgate guessed, while other sizes are searched."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from onnxgate.core.jobs import InputCase
from onnxgate.gate.execution.size_search import list_crashing
from onnxgate.stages.runtime import ObservedRun


@dataclass(frozen=True, slots=True)
class CrashLog:
    """The runs of one model that crashed with a generated case, each with this case only.

    The model then runs with other sizes, but the crash is reported, since these sizes may occur in use.
    """

    _runs: dict[tuple[str, str], ObservedRun] = field(default_factory=dict)  # by runtime and case

    def add(self, ran: Sequence[ObservedRun]) -> None:
        """Record the crashes among runs."""
        for run in ran:
            for case in list_crashing(run):
                if case.origin == "generated":
                    job = msgspec.structs.replace(run.job, cases=(case,))
                    self._runs.setdefault((run.runtime, case.name), ObservedRun(run.runtime, job, run.observation))

    def list_runtimes(self) -> list[str]:
        """Return the runtimes that crashed."""
        return list(dict.fromkeys(runtime for runtime, _ in self._runs))

    def select_others(self, cases: Sequence[InputCase], failing: Collection[str]) -> tuple[InputCase, ...]:
        """Return the cases without those of `failing` that crashed, if other cases have other guessed sizes."""
        crashed = {name for _, name in self._runs if name in failing}
        kept = tuple(case for case in cases if case.name not in crashed)
        replaced = {run.job.cases[0].name for run in self.list_replaced(kept)}
        return tuple(case for case in cases if case.name not in crashed & replaced)

    def list_replaced(self, cases: Sequence[InputCase]) -> tuple[ObservedRun, ...]:
        """Return the crashes at guessed sizes that none of the cases has, each with the axes of these sizes.

        Sizes of leading axes are ignored, because a model should support any size of these axes.
        """
        return tuple(filter(None, (_mark_axes(run, cases) for run in self._runs.values())))


def list_crashed_cases(runs: Sequence[ObservedRun]) -> Iterator[InputCase]:
    """Yield the case of each crash, without duplicates."""
    names = set()
    for run in runs:
        (case,) = run.job.cases
        if case.name not in names:
            names.add(case.name)
            yield case


def _mark_axes(run: ObservedRun, cases: Sequence[InputCase]) -> ObservedRun | None:
    """Return a crash with the guessed axes that have other sizes in the cases; None if there are no such axes."""
    (case,) = run.job.cases
    inner = [axis for axis in case.guessed if axis not in case.leading]
    others = [other.sizes for other in cases if other.name != case.name and other.sizes.keys() >= {*inner}]
    differing = [[axis for axis in inner if sizes[axis] != case.sizes[axis]] for sizes in others]
    if not differing or not all(differing):
        return None
    marked = msgspec.structs.replace(case, refused=tuple(differing[0]))
    return ObservedRun(run.runtime, msgspec.structs.replace(run.job, cases=(marked,)), run.observation)
