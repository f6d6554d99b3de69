"""Select and describe the failed attempts to run a model on one runtime."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

import msgspec

from onnxgate.core.findings import Place
from onnxgate.core.text import join_quoted
from onnxgate.diagnostics.classification import shorten_failure
from onnxgate.evidence.runtime import Attempt, ModelRuns, is_unusable, select_worst_attempts


def select_refused_attempts(runs: ModelRuns) -> tuple[Attempt, ...]:
    """Return the runs that the runtime refused although their inputs are usable.

    Return nothing if the model did not load, or if a run crashed or timed out.
    """
    if select_worst_attempts(runs):
        return ()
    return tuple(
        attempt for attempt in runs.attempts if attempt.outcome == "run-refused" and not is_unusable(attempt, runs)
    )


class BrokenSizes(msgspec.Struct, frozen=True):
    """Sizes of some dynamic axes at which a model fails to run, and sizes of the same axes at which it runs."""

    attempts: tuple[Attempt, ...]
    fails_at: dict[str, int]
    runs_at: dict[str, int]

    @property
    def topic(self) -> str:
        """The axes, by which other findings refer to the finding about these sizes."""
        return " ".join(self.fails_at)


def find_broken_sizes(runs: ModelRuns) -> tuple[BrokenSizes, ...]:
    """Return the smallest sets of dynamic axes whose sizes make the model fail.

    Return nothing if the sizes do not explain all failures, or if a run exceeded the memory limit.
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
    for attempt in bad:
        sizes = attempt.case.sizes
        broken_axes = (axis for axis, size in sizes.items() if size not in {run.case.sizes.get(axis) for run in good})
        attempts_by_axes.setdefault(frozenset(broken_axes), []).append(attempt)
    if frozenset() in attempts_by_axes:
        return ()
    broken = []
    for axes, attempts in attempts_by_axes.items():
        if not any(fewer < axes for fewer in attempts_by_axes):
            fails_at = {axis: size for axis, size in attempts[0].case.sizes.items() if axis in axes}
            runs_at = {axis: good[0].case.sizes[axis] for axis in fails_at}
            broken.append(BrokenSizes(tuple(attempts), fails_at, runs_at))
    return tuple(broken)


def find_failing_node(attempts: Iterable[Attempt]) -> str:
    """Return the name of the node at which runs failed; "" if it is unknown.

    Runs without optimization are preferred, because the optimizer renames the nodes that it fuses.
    """
    named = [attempt for attempt in attempts if attempt.refusal.node]
    return next(
        (attempt.refusal.node for attempt in named if attempt.optimization == "disabled"),
        named[0].refusal.node if named else "",
    )


def find_failing_place(runs: ModelRuns, node: str) -> Place:
    """Return the line of source code that created a node, or the place of the model if this line is unknown."""
    return runs.node_places.get(node, runs.place)


def describe_failure(attempts: Sequence[Attempt], runs: ModelRuns) -> str:
    """Describe failed runs: the runtime's error text and, if another optimization level works, the level that fails."""
    meaning = attempts[0].refusal.known_limit or attempts[0].refusal.means
    note = f" ({meaning})" if meaning else ""
    return f"reports `{shorten_failure(attempts[0].refusal.failure)}`{note}{describe_level(attempts, runs)}"


def describe_level(attempts: Iterable[Attempt], runs: ModelRuns) -> str:
    """Return a remark such as " (only with optimization `all`)"; "" if the attempts cover all tested levels."""
    levels = {attempt.optimization for attempt in attempts}
    others = {attempt.optimization for attempt in runs.attempts} - levels
    return f" (only with optimization `{min(levels)}`)" if others else ""


def describe_memory_limit(attempts: Iterable[Attempt], runs: ModelRuns) -> str:
    """Return the end of a sentence, such as " within 4096 MiB of memory"; "" if no attempt ran out of memory."""
    if not any(attempt.refusal.failure is not None and attempt.refusal.failure.memory for attempt in attempts):
        return ""
    return f" within {runs.memory_limit_mib} MiB of memory" if runs.memory_limit_mib else " (out of memory)"


def format_sizes(sizes: dict[str, int]) -> str:
    """Format the sizes of dynamic axes, such as "batch=3 time=50"."""
    return " ".join(f"{axis}={size}" for axis, size in sizes.items())


def suggest_sizes(sizes: dict[str, int]) -> str:
    """Return the advice to configure sizes for the model, such as "set `sizes = { time = [50] }` for …"."""
    table = ", ".join(f"{_format_key(axis)} = [{size}]" for axis, size in sizes.items())
    return f"set `sizes = {{ {table} }}` for the model in `onnxgate.toml`"


def _format_key(axis: str) -> str:
    """Format the name of an axis as a TOML key."""
    return axis if re.fullmatch(r"[A-Za-z0-9_-]+", axis) else json.dumps(axis, ensure_ascii=False)


def name_outputs(names: Sequence[str]) -> str:
    """Join the names of outputs, such as "outputs `a`, `b`"."""
    return f"{'output' if len(names) == 1 else 'outputs'} {join_quoted(names)}"
