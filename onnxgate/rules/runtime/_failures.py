"""What the attempts of one model on one runtime come to: the gravest fault, what its inputs prove, and its words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnxgate.core.findings import Place
from onnxgate.diagnostics.short_texts import shorten_failure
from onnxgate.evidence.runtime import Attempt, ModelRuns, is_unusable, select_worst_attempts


def select_refused_attempts(runs: ModelRuns) -> tuple[Attempt, ...]:
    """Cases that the runtime refused though the inputs are usable; none where something graver happened."""
    if select_worst_attempts(runs):
        return ()
    return tuple(
        attempt for attempt in runs.attempts if attempt.outcome == "run-refused" and not is_unusable(attempt, runs)
    )


@dataclass(frozen=True, slots=True)
class BrokenSizes:
    """Sizes at which the model does not run, and sizes at which it does: only the axes that tell them apart."""

    attempts: tuple[Attempt, ...]
    fails_at: dict[str, int]
    runs_at: dict[str, int]


def find_broken_sizes(runs: ModelRuns) -> tuple[BrokenSizes, ...]:
    """The axes that break a model, each set of them once.

    None where not every failure is told from the cases that run by an axis, or where the memory limit was hit.
    """
    bad = select_refused_attempts(runs)
    failing = {attempt.case.name for attempt in bad}
    good = [
        attempt
        for attempt in runs.attempts
        if attempt.outcome == "completed" and attempt.case.name not in failing and attempt.case.sizes
    ]
    if not good or any(attempt.refusal.failure is not None and attempt.refusal.failure.memory for attempt in bad):
        return ()
    attempts_by_axes: dict[frozenset[str], list[Attempt]] = {}
    for each in bad:
        axes = (
            axis for axis, size in each.case.sizes.items() if size not in {other.case.sizes.get(axis) for other in good}
        )
        attempts_by_axes.setdefault(frozenset(axes), []).append(each)
    if frozenset() in attempts_by_axes:
        return ()
    least = [axes for axes in attempts_by_axes if not any(other < axes for other in attempts_by_axes)]
    return tuple(_create_broken_sizes(attempts_by_axes[axes], axes, good) for axes in least)


def _create_broken_sizes(attempts: Sequence[Attempt], axes: frozenset[str], good: Sequence[Attempt]) -> BrokenSizes:
    named = [axis for axis in attempts[0].case.sizes if axis in axes]
    fails_at, runs_at = ({axis: attempt.case.sizes[axis] for axis in named} for attempt in (attempts[0], good[0]))
    return BrokenSizes(tuple(attempts), fails_at, runs_at)


def find_failing_node(attempts: Iterable[Attempt]) -> str:
    """The node that the attempts name: that of the unoptimised graph where they differ, since fusion renames nodes."""
    named = [attempt for attempt in attempts if attempt.refusal.node]
    return next(
        (attempt.refusal.node for attempt in named if attempt.optimization == "disabled"),
        named[0].refusal.node if named else "",
    )


def find_failing_place(runs: ModelRuns, node: str) -> Place:
    """The source line that made the node, else where the model stands."""
    return runs.node_places.get(node, runs.place)


def describe_failure(attempts: Sequence[Attempt], runs: ModelRuns) -> str:
    """The detail of a failure: what the runtime says, and at which level where another went well."""
    meaning = attempts[0].refusal.known_limit or attempts[0].refusal.means
    note = f" ({meaning})" if meaning else ""
    return f"says `{shorten_failure(attempts[0].refusal.failure)}`{note}{describe_level(attempts, runs)}"


def describe_level(attempts: Iterable[Attempt], runs: ModelRuns) -> str:
    """Which optimisation level this happens at, in words; "" where it happens at every level that was tried."""
    here = {attempt.optimization for attempt in attempts}
    elsewhere = {attempt.optimization for attempt in runs.attempts} - here
    return f" with optimisation `{min(here)}`, not with `{min(elsewhere)}`" if elsewhere else ""


def describe_memory_limit(attempts: Iterable[Attempt], runs: ModelRuns) -> str:
    """The end of a sentence about a memory limit that was hit; "" where none was."""
    if not any(attempt.refusal.failure is not None and attempt.refusal.failure.memory for attempt in attempts):
        return ""
    return f" within {runs.memory_limit_mib} MiB of memory" if runs.memory_limit_mib else ": memory runs out"


def format_sizes(sizes: dict[str, int]) -> str:
    """`batch=3 time=50`."""
    return " ".join(f"{axis}={size}" for axis, size in sizes.items())
