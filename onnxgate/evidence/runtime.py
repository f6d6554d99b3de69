"""Subjects of the runtime stage's rules: the runs of a model, and which of them count against it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from onnxgate.core.findings import Place
from onnxgate.core.jobs import Failure


class WrongShape(msgspec.Struct, frozen=True, kw_only=True):
    """An output whose shape contradicts what the file declares."""

    output: str
    declared: str  # "(batch, 10)"
    shape: str  # "(2, 10)"


class UnsupportedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator that an engine does not have, and the nodes that use it."""

    operator: str  # "Det", or with its domain if that is not the default one
    words: str = ""  # "node `det`, and 3 more"; "" if no node of the model has it
    node: str = ""  # the first one's name
    place: Place | None = None  # the source line that made it


class AttemptCase(msgspec.Struct, frozen=True, kw_only=True):
    """The input case of an attempt."""

    name: str = ""  # "" if the attempt ended before a case began
    origin: Literal["", "generated", "source", "user"] = ""
    sizes: dict[str, int] = {}
    guessed: tuple[str, ...] = ()  # axes whose size nothing determines
    leading: tuple[str, ...] = ()  # those of them that are the first axis of an input: any size should work


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The failure with which a runtime refused a model or a case, and its diagnosis."""

    failure: Failure | None = None
    family: str = ""  # of the text: "ir", "opset", "no_kernel", "run_node", …; "" if it is not a known one
    means: str = ""  # the meaning of a known text that is unclear
    fix: str = ""  # the fix, whatever the release
    node: str = ""  # the model's own node that the text names
    unsupported: tuple[UnsupportedOperator, ...] = ()  # if the text lists all operators that the engine does not have
    known_limit: str = ""  # of the engine, if the text shows it


class Interruption(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a worker that crashed or timed out."""

    signal: str = ""
    during: str = ""
    limit_s: float = 0.0


class OutputFaults(msgspec.Struct, frozen=True, kw_only=True):
    """The faulty outputs of a case, by name."""

    not_finite: tuple[str, ...] = ()  # hold NaN or infinity; with a source, only at its finite elements
    blank: tuple[str, ...] = ()  # are NaN everywhere, here and in the source
    unstable: tuple[str, ...] = ()  # differed when the same case was run again in the same session
    aliased: tuple[str, ...] = ()  # lie in the memory of an input
    wrong_shapes: tuple[WrongShape, ...] = ()


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One model on one runtime at one optimisation level in one case."""

    optimization: Literal["all", "disabled"]
    # "provider-not-used": the session silently runs on other providers than the requested ones.
    outcome: Literal["completed", "load-refused", "run-refused", "crashed", "timed-out", "provider-not-used"]
    case: AttemptCase = AttemptCase()
    # The source on the same case: not run, failed, or run; then "finite" unless NaN and infinity are only in outputs
    # of the runtime that are not finite at the same elements of the source's.
    source: Literal["none", "failed", "finite", "not-finite"] = "none"
    refusal: Refusal = Refusal()
    end: Interruption = Interruption()
    outputs: OutputFaults = OutputFaults()


class IsolatedNode(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of node of a refused model, loaded alone to find the cause of the refusal."""

    operator: str  # "Det", or with its domain if that is not the default one
    words: str  # "node `det`, and 3 more"
    outcome: Literal["refused", "loads", "unknown"]  # unknown: it decides nothing
    node: str = ""  # the first one's name
    place: Place | None = None  # the source line that made it
    rule: str = ""  # the rule that predicted its refusal; "" if none did
    claim: str = ""  # the topic of that prediction
    explains: tuple[str, ...] = ()  # the levels at which the model is refused for the same reason
    refusal: Refusal = Refusal()


class ModelRuns(msgspec.Struct, frozen=True, kw_only=True):
    """All attempts of one model on one runtime."""

    model: str
    place: Place
    runtime: str
    attempts: tuple[Attempt, ...]
    predicted: tuple[str, ...] = ()  # error-level rules of the support stage with a hit on this model and runtime
    memory_limit_mib: int = 0
    # Cases that completed on at least one other runtime: an input that some engine takes is a usable input.
    usable_cases: tuple[str, ...] = ()
    # Of a model that is refused: the nodes that are predicted to be, and those that were tried.
    alone: tuple[IsolatedNode, ...] = ()
    node_places: dict[str, Place] = {}  # node name -> source line, for nodes that a failure names
    drawn: dict[str, tuple[str, ...]] = {}  # unstable output -> the random operators that reach it
    unused_providers: tuple[str, ...] = ()  # requested providers that the session does not use


FATAL_OUTCOMES = ("crashed", "timed-out", "load-refused")
"""Outcomes that end a level, most severe first. They hide everything else that happened."""

_VALUE_FAULTS = {
    "an index is out of bounds": re.compile(
        r"out of (?:data )?bounds|index is out of range|must be within the inclusive range"
    ),
    "a value is not a known category": re.compile("Unknown Category"),
}
"""Source: Gather, GatherElements, GatherND, ScatterElements, ArrayFeatureExtractor of ONNX Runtime 1.15 to 1.31, and
OneHotEncoder of the same releases if `zeros` is 0."""


def select_worst_attempts(runs: ModelRuns) -> tuple[Attempt, ...]:
    """Return the attempts with the most severe outcome that ends a level, or none if no level was ended."""
    for outcome in FATAL_OUTCOMES:
        if attempts := tuple(attempt for attempt in runs.attempts if attempt.outcome == outcome):
            return attempts
    return ()


def is_unusable(attempt: Attempt, runs: ModelRuns) -> bool:
    """Return whether a failure is about the inputs rather than about the model.

    It is if the source fails on them too. It also is if nothing proves that generated inputs are valid, and a value is
    out of bounds or their sizes are a guess.
    """
    if attempt.outcome != "run-refused" or attempt.refusal.failure is None:
        return False
    has_value_fault = any(pattern.search(attempt.refusal.failure.text) for pattern in _VALUE_FAULTS.values())
    return (
        attempt.source == "failed"
        or has_guessed_sizes(attempt, runs)
        or (has_value_fault and _is_unproven(attempt, runs))
    )


def explain_unusable(attempt: Attempt) -> str:
    """Describe why the inputs of a case cannot be used."""
    text = attempt.refusal.failure.text if attempt.refusal.failure is not None else ""
    if attempt.source == "failed":
        return "the source fails too"
    return next((fault for fault, pattern in _VALUE_FAULTS.items() if pattern.search(text)), "the sizes are guesses")


def has_guessed_sizes(attempt: Attempt, runs: ModelRuns) -> bool:
    """Return whether a case that failed has guessed sizes of which nothing proves that the model supports them.

    A case that runs on some runtime proves its sizes of all axes but the leading ones, of which any size should work.
    """
    case = attempt.case
    if attempt.outcome != "run-refused" or not case.guessed or not _is_unproven(attempt, runs):
        return False
    doubtful = [axis for axis in case.guessed if axis not in case.leading]
    proven = [
        usable.case.sizes
        for usable in runs.attempts
        if usable.case.name and (usable.outcome == "completed" or usable.case.name in runs.usable_cases)
    ]
    return not any(all(sizes.get(axis) == case.sizes[axis] for axis in doubtful) for sizes in proven)


def _is_unproven(attempt: Attempt, runs: ModelRuns) -> bool:
    """Return whether no source, other runtime or other level ran the generated inputs."""
    case = attempt.case
    if case.origin != "generated" or attempt.source in ("finite", "not-finite") or case.name in runs.usable_cases:
        return False
    return not any(level.outcome == "completed" and level.case.name == case.name for level in runs.attempts)


def is_proven_fault(attempt: Attempt) -> bool:
    """Return whether a non-finite output is the model's fault: its source is finite there, or the inputs are real."""
    return attempt.source == "finite" or attempt.case.origin in ("user", "source")


def find_not_finite(runs: Sequence[ModelRuns]) -> frozenset[tuple[str, str]]:
    """Return case and output of the non-finite outputs that are reported as the model's fault."""
    return frozenset(
        (attempt.case.name, output)
        for model in runs
        if not select_worst_attempts(model)
        for attempt in filter(is_proven_fault, model.attempts)
        for output in attempt.outputs.not_finite
    )
