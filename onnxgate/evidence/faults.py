"""What the attempts of one model on one runtime come to: the gravest fault, what its inputs prove, and its words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from onnxgate.evidence.runtime import Attempt, ModelRuns
from onnxgate.findings import Place
from onnxgate.runtimes.jobs import Failure

WORDS_LIMIT = 200

FATAL = ("crashed", "timed-out", "load-refused")
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


def gravest(runs: ModelRuns) -> tuple[Attempt, ...]:
    """The attempts with the gravest outcome of those that end a level; none where every case came to its end."""
    for outcome in FATAL:
        found = tuple(attempt for attempt in runs.attempts if attempt.outcome == outcome)
        if found:
            return found
    return ()


def refused(runs: ModelRuns) -> tuple[Attempt, ...]:
    """Cases that the runtime refused though the inputs are usable; none where something graver happened."""
    if gravest(runs):
        return ()
    return tuple(each for each in runs.attempts if each.outcome == "run-refused" and not is_unusable(each, runs))


def is_unusable(attempt: Attempt, runs: ModelRuns) -> bool:
    """Whether a failure tells of the inputs rather than of the model.

    That is so where the source fails on them too, and where a generated index is out of bounds, no source says
    otherwise, and no other runtime took it.
    """
    if attempt.outcome != "run-refused" or attempt.failure is None:
        return False
    if attempt.reference_failed:
        return True
    unproven = attempt.origin == "generated" and attempt.reference_finite is None
    return unproven and attempt.case not in runs.usable_cases and bool(_OUT_OF_BOUNDS.search(attempt.failure.text))


def broken_sizes(runs: ModelRuns) -> tuple[dict[str, int], dict[str, int]] | None:
    """Sizes at which the model does not run, and sizes at which it does: only the axes that tell them apart.

    None where no axis does, or where the memory limit was hit.
    """
    bad = refused(runs)
    failing = {each.case for each in bad}
    good = [each for each in runs.attempts if each.outcome == "completed" and each.case not in failing and each.sizes]
    if not bad or not good or any(each.failure is not None and each.failure.memory for each in bad):
        return None
    axes = [axis for axis in bad[0].sizes if _values(bad, axis).isdisjoint(_values(good, axis))]
    if not axes:
        return None
    return {axis: bad[0].sizes[axis] for axis in axes}, {axis: good[0].sizes[axis] for axis in axes}


def _values(attempts: Iterable[Attempt], axis: str) -> set[int | None]:
    return {attempt.sizes.get(axis) for attempt in attempts}


def node_of(attempts: Iterable[Attempt]) -> str:
    """The node that the attempts name: that of the unoptimised graph where they differ, since fusion renames nodes."""
    named = [attempt for attempt in attempts if attempt.node]
    return next((each.node for each in named if each.optimization == "disabled"), named[0].node if named else "")


def place_of(runs: ModelRuns, node: str) -> Place:
    """The source line that made the node, else where the model stands."""
    return runs.node_places.get(node, runs.place)


def words(failure: Failure | None) -> str:
    """What the runtime said, as one short line without its own file names."""
    text = " ".join((failure.text if failure is not None else "").split()).replace("`", "'")
    before = ""
    while before != text:
        before, text = text, _PREFIXES.sub("", text)
    text = _CONDITION.sub("", text)
    return text if len(text) <= WORDS_LIMIT else text[: WORDS_LIMIT - 1] + "…"


def saying(attempts: Sequence[Attempt], runs: ModelRuns) -> str:
    """The detail of a failure: what the runtime says, and at which level where another went well."""
    return f"says `{words(attempts[0].failure)}`{only_at(attempts, runs)}"


def only_at(attempts: Iterable[Attempt], runs: ModelRuns) -> str:
    """Which optimisation level this happens at, in words; "" where it happens at every level that was tried."""
    here = {attempt.optimization for attempt in attempts}
    elsewhere = {attempt.optimization for attempt in runs.attempts} - here
    return f" with optimisation `{min(here)}`, not with `{min(elsewhere)}`" if elsewhere else ""


def within_memory(attempts: Iterable[Attempt], runs: ModelRuns) -> str:
    """The end of a sentence about a memory limit that was hit; "" where none was."""
    if not any(attempt.failure is not None and attempt.failure.memory for attempt in attempts):
        return ""
    return f" within {runs.memory_limit_mib} MiB of memory" if runs.memory_limit_mib else ": memory runs out"


def said_sizes(sizes: dict[str, int]) -> str:
    """`batch=3 time=50`."""
    return " ".join(f"{axis}={size}" for axis, size in sizes.items())
