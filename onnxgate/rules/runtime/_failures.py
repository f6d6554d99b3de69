"""What the attempts of one model on one runtime come to: the gravest fault, what its inputs prove, and its words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnxgate.core.findings import Place
from onnxgate.core.jobs import Failure
from onnxgate.evidence.runtime import Attempt, ModelRuns

MAX_FAILURE_LENGTH = 200

FATAL_OUTCOMES = ("crashed", "timed-out", "load-refused")
"""Outcomes that end a level, gravest first; where one is there, what else happened is not said."""

_PREFIXES = re.compile(
    r"^(?:\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from \S.*? failed: ?|\{\w+\.(?:cc|h):\d+\} |\w+\.(?:cc|h):\d+ "
    r"|Non-zero status code returned while running \w+ node\. Name:'.*?' Status Message: |Fatal error: )"
)
"""Parts of a text of ONNX Runtime that say where, not what; line numbers change with every release."""

_CONDITION = re.compile(r"^[^.]{1,120} was false\. (?=\S)")
"""The condition in C++ before the sentence that explains it; it changes with releases, the sentence does not."""

_OUT_OF_BOUNDS = re.compile(r"out of (?:data )?bounds|index is out of range|must be within the inclusive range")
"""Source: Gather, GatherElements, GatherND, ScatterElements, ArrayFeatureExtractor of ONNX Runtime 1.15 to 1.31."""

_UNKNOWN_CATEGORY = re.compile("Unknown Category")
"""Source: OneHotEncoder of ONNX Runtime 1.15 to 1.31, where `zeros` is 0."""


def select_worst_attempts(runs: ModelRuns) -> tuple[Attempt, ...]:
    """The attempts with the gravest outcome of those that end a level; none where every case came to its end."""
    for outcome in FATAL_OUTCOMES:
        found = tuple(attempt for attempt in runs.attempts if attempt.outcome == outcome)
        if found:
            return found
    return ()


def select_refused_attempts(runs: ModelRuns) -> tuple[Attempt, ...]:
    """Cases that the runtime refused though the inputs are usable; none where something graver happened."""
    if select_worst_attempts(runs):
        return ()
    return tuple(
        attempt for attempt in runs.attempts if attempt.outcome == "run-refused" and not is_unusable(attempt, runs)
    )


def is_unusable(attempt: Attempt, runs: ModelRuns) -> bool:
    """Whether a failure tells of the inputs rather than of the model.

    That is so where the source fails on them too, and where nothing proves generated inputs and a value is out of
    bounds, or their sizes are a mere guess.
    """
    if attempt.outcome != "run-refused" or attempt.refusal.failure is None:
        return False
    return (
        attempt.source == "failed"
        or has_guessed_sizes(attempt, runs)
        or (_is_unproven(attempt, runs) and _is_out_of_range(attempt))
    )


def has_guessed_sizes(attempt: Attempt, runs: ModelRuns) -> bool:
    """Whether a case that failed has sizes that nobody told and of which nothing proves that the model takes them.

    Where a case runs on some runtime, the sizes that it has of the axes behind the leading ones are proven, and any
    size of a leading axis should do.
    """
    if attempt.outcome != "run-refused" or not attempt.case.guessed or not _is_unproven(attempt, runs):
        return False
    doubtful = [axis for axis in attempt.case.guessed if axis not in attempt.case.leading]
    return not any(
        all(accepted_attempt.case.sizes.get(axis) == attempt.case.sizes[axis] for axis in doubtful)
        for accepted_attempt in _accepted_attempts(runs)
    )


def is_proven_fault(attempt: Attempt) -> bool:
    """Whether an output that is not finite is the model's fault: its source gives numbers there, or inputs are real."""
    return attempt.source == "finite" or attempt.case.origin in ("user", "source")


def find_not_finite(runs: Sequence[ModelRuns]) -> frozenset[tuple[str, str]]:
    """Case and output of which it is the model's proven fault, said as such, that they are not finite."""
    attempts = [
        attempt
        for model in runs
        if not select_worst_attempts(model)
        for attempt in model.attempts
        if is_proven_fault(attempt)
    ]
    return frozenset((attempt.case.name, output) for attempt in attempts for output in attempt.outputs.not_finite)


def _accepted_attempts(runs: ModelRuns) -> list[Attempt]:
    """The attempts at cases that were run, here or on another runtime."""
    return [
        attempt
        for attempt in runs.attempts
        if attempt.case.name and (_is_completed(attempt) or attempt.case.name in runs.usable_cases)
    ]


def _is_completed(attempt: Attempt) -> bool:
    return attempt.outcome == "completed"


def explain_unusable(attempt: Attempt) -> str:
    """Why the inputs of a case cannot be run, in words."""
    text = attempt.refusal.failure.text if attempt.refusal.failure is not None else ""
    if attempt.source == "failed":
        return "its source fails on them too"
    if _OUT_OF_BOUNDS.search(text):
        return "an index is out of bounds"
    if _UNKNOWN_CATEGORY.search(text):
        return "a value is none of the categories that it knows"
    return "their sizes are a guess"


def _is_unproven(attempt: Attempt, runs: ModelRuns) -> bool:
    """Whether neither the source, nor another runtime, nor another level took the generated inputs."""
    if (
        attempt.case.origin != "generated"
        or attempt.source in ("finite", "not-finite")
        or attempt.case.name in runs.usable_cases
    ):
        return False
    return not any(each.outcome == "completed" and each.case.name == attempt.case.name for each in runs.attempts)


def _is_out_of_range(attempt: Attempt) -> bool:
    text = attempt.refusal.failure.text if attempt.refusal.failure is not None else ""
    return bool(_OUT_OF_BOUNDS.search(text) or _UNKNOWN_CATEGORY.search(text))


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
    failing = {each.case.name for each in bad}
    good = [
        attempt
        for attempt in runs.attempts
        if attempt.outcome == "completed" and attempt.case.name not in failing and attempt.case.sizes
    ]
    if not good or any(each.refusal.failure is not None and each.refusal.failure.memory for each in bad):
        return ()
    found: dict[frozenset[str], list[Attempt]] = {}
    for each in bad:
        axes = (
            axis for axis, size in each.case.sizes.items() if size not in {other.case.sizes.get(axis) for other in good}
        )
        found.setdefault(frozenset(axes), []).append(each)
    if frozenset() in found:
        return ()
    least = [axes for axes in found if not any(other < axes for other in found)]
    return tuple(_create_broken_sizes(found[axes], axes, good) for axes in least)


def _create_broken_sizes(attempts: Sequence[Attempt], axes: frozenset[str], good: Sequence[Attempt]) -> BrokenSizes:
    named = [axis for axis in attempts[0].case.sizes if axis in axes]
    fails_at, runs_at = ({axis: each.case.sizes[axis] for axis in named} for each in (attempts[0], good[0]))
    return BrokenSizes(tuple(attempts), fails_at, runs_at)


def find_failing_node(attempts: Iterable[Attempt]) -> str:
    """The node that the attempts name: that of the unoptimised graph where they differ, since fusion renames nodes."""
    named = [attempt for attempt in attempts if attempt.refusal.node]
    return next(
        (each.refusal.node for each in named if each.optimization == "disabled"), named[0].refusal.node if named else ""
    )


def find_failing_place(runs: ModelRuns, node: str) -> Place:
    """The source line that made the node, else where the model stands."""
    return runs.node_places.get(node, runs.place)


def shorten_failure(failure: Failure | None) -> str:
    """What the runtime said, as one short line without its own file names; where it said nothing, the error's name."""
    said = (failure.text.strip() or failure.type) if failure is not None else ""
    text = " ".join(said.split()).replace("`", "'")
    before = ""
    while before != text:
        before, text = text, _PREFIXES.sub("", text)
    text = _CONDITION.sub("", text)
    return text if len(text) <= MAX_FAILURE_LENGTH else text[: MAX_FAILURE_LENGTH - 1] + "…"


def describe_failure(attempts: Sequence[Attempt], runs: ModelRuns) -> str:
    """The detail of a failure: what the runtime says, and at which level where another went well."""
    meaning = attempts[0].refusal.known_limit or attempts[0].refusal.means
    known = f" ({meaning})" if meaning else ""
    return f"says `{shorten_failure(attempts[0].refusal.failure)}`{known}{describe_level(attempts, runs)}"


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
