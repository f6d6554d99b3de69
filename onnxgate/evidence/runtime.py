"""Evidence about the runs of models, from which the rules of the runtime stage create findings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from onnxgate.core.findings import HitReference, Place
from onnxgate.core.jobs import Failure


class WrongShape(msgspec.Struct, frozen=True, kw_only=True):
    """An output of a run whose shape does not match the shape that the model declares."""

    output: str
    declared: str  # "(batch, 10)"
    shape: str  # "(2, 10)"
    axes: tuple[str, ...] = ()  # input axes that wrong sizes refer to; () if only fixed sizes or the rank are wrong
    misnamed: bool = False  # wrong axes have names of input axes, but none is at the same place as in an input
    is_read: bool = False  # a node also reads the output, so a runtime may use its declared shape


class UnsupportedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator of a model that an engine does not support, and the nodes that use it."""

    operator: str  # "Det", with the domain unless it is the default domain
    words: str = ""  # "node `det`, and 3 more"; "" if no node of the model uses the operator
    node: str = ""  # name of the first node
    place: Place | None = None  # the source line that created the first node


class AttemptCase(msgspec.Struct, frozen=True, kw_only=True):
    """The input case with which a model was run: its name, origin and sizes."""

    name: str = ""  # "" if the attempt ended before a case began
    origin: Literal["", "generated", "source", "user"] = ""
    sizes: dict[str, int] = {}
    guessed: tuple[str, ...] = ()  # axes for which a size was guessed
    leading: tuple[str, ...] = ()  # guessed axes that are the first axis of an input, for which any size should work
    chosen: dict[str, int | float | bool] = {}  # values of inputs that were chosen to reach a branch
    named: tuple[str, ...] = ()  # inputs in `chosen` that a node compares with their value for equality
    # Guessed axes of which a search found only one valid size, which is not this one. If the attempt crashed: those of
    # which a search found other sizes.
    refused: tuple[str, ...] = ()
    assumed: dict[str, tuple[float, ...]] = {}  # inputs from which sizes are computed -> their guessed values


class WrongConstant(msgspec.Struct, frozen=True, kw_only=True):
    """A node that cannot be computed because of its constant inputs, whatever the inputs of the model are.

    Without `is_certain`, another node may have caused the failure, or the node may not have run.
    """

    operator: str  # "Gather"
    words: str  # "the node that makes `z`"
    fault: str  # "the index 9 is out of range for 4 elements"
    node: str = ""  # name of the node
    place: Place | None = None  # the source line that created the node
    is_certain: bool = True


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The error with which a runtime refused to load a model or to run an input case, and what is known about it."""

    failure: Failure | None = None
    family: str = ""  # family of the error text: "ir", "opset", "no_kernel", "run_node", …; "" if unknown
    means: str = ""  # the meaning of a known error text that is unclear
    fix: str = ""  # a fix that does not depend on the release
    node: str = ""  # the node of the unmodified model that the text names
    unsupported: tuple[UnsupportedOperator, ...] = ()  # for texts that list all unsupported operators
    known_limit: str = ""  # the limitation of the engine that causes the error, if known
    wrong_constant: WrongConstant | None = None  # constant inputs of the node that caused the error


class Interruption(msgspec.Struct, frozen=True, kw_only=True):
    """How and when the worker process that ran a model crashed or timed out."""

    signal: str = ""
    during: str = ""
    limit_s: float = 0.0
    wrong_constant: WrongConstant | None = None  # constant inputs of the node that caused the crash


class OutputFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Names of the faulty outputs of a run, grouped by kind of fault."""

    not_finite: tuple[
        str, ...
    ] = ()  # contain NaN or infinity; with a source, only in elements that are finite in the source
    blank: tuple[str, ...] = ()  # contain only NaN, as in the source
    unstable: tuple[str, ...] = ()  # differed when the case ran twice in the same session
    aliased: tuple[str, ...] = ()  # share memory with an input
    wrong_shapes: tuple[WrongShape, ...] = ()


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to run a model with one runtime, optimization level and input case, and its outcome."""

    optimization: Literal["all", "disabled"]
    # "provider-not-used": the session silently uses other providers than the requested ones.
    outcome: Literal["completed", "load-refused", "run-refused", "crashed", "timed-out", "provider-not-used"]
    case: AttemptCase = AttemptCase()
    # Result of the source for the same case. "not-finite": source and runtime return NaN or infinity in the same
    # elements, and the runtime in no others. "finite": the source completed, but this does not apply.
    source: Literal["none", "failed", "finite", "not-finite"] = "none"
    refusal: Refusal = Refusal()
    end: Interruption = Interruption()
    outputs: OutputFaults = OutputFaults()


class IsolatedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A group of identical nodes of a model that does not load.

    One of them is loaded in a model that contains only this node, to find out whether it is the cause.
    """

    operator: str  # "Det", with the domain unless it is the default domain
    words: str  # "node `det`, and 3 more"
    outcome: Literal["refused", "loads", "unknown"]
    node: str = ""  # name of the first node
    place: Place | None = None  # the source line that created the first node
    rule: str = ""  # the rule that predicted that the node does not load; "" if there was no prediction
    claim: str = ""  # the topic of that prediction
    explains: tuple[str, ...] = ()  # optimization levels at which the model does not load for the same reason
    refusal: Refusal = Refusal()


class UnreachedBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A branch of an `If` node or the body of a `Loop` that no input case reached, and what would choose it."""

    words: str  # "node `If_0`"
    branch: Literal["then", "else", "body"]
    node: str = ""  # name of the node
    place: Place | None = None  # the source line that created the node
    values: dict[str, int | float | bool] = {}  # input -> a value that chooses the branch; empty if none was found
    sizes: dict[str, int] = {}  # dynamic axis -> a size that chooses the branch; empty if none was found
    inputs: tuple[str, ...] = ()  # inputs whose values decide whether the branch runs


class ModelRuns(msgspec.Struct, frozen=True, kw_only=True):
    """All attempts to run one model on one runtime."""

    model: str
    place: Place
    runtime: str
    attempts: tuple[Attempt, ...]
    predicted: tuple[str, ...] = ()  # error-level rules of the support stage with a hit on this model and runtime
    memory_limit_mib: int = 0
    # Cases that completed on at least one other runtime, which proves that their inputs are usable.
    usable_cases: tuple[str, ...] = ()
    # For a model that does not load: nodes with a predicted failure, and nodes that were loaded individually.
    alone: tuple[IsolatedNode, ...] = ()
    node_places: dict[str, Place] = {}  # node name -> source line, for nodes that a failure names
    drawn: dict[str, tuple[str, ...]] = {}  # unstable output -> random operators on which it depends
    predicted_crashes: tuple[HitReference, ...] = ()  # predictions of the crash that ended the load
    invalid_nodes: tuple[str, ...] = ()  # nodes whose shapes or attributes another runtime rejects when loading
    unused_providers: tuple[str, ...] = ()  # requested providers that the session does not use
    unreached: tuple[UnreachedBranch, ...] = ()


FATAL_OUTCOMES = ("crashed", "timed-out", "load-refused")
"""Outcomes of a run after which its optimization level is not tested with further input cases, most severe first."""

_VALUE_FAULTS = {
    "an index is out of bounds": re.compile(
        r"out of (?:data )?bounds|index is out of range|must be within the inclusive range"
    ),
    "a value is not a known category": re.compile("Unknown Category"),
}
"""Reason why input values are invalid -> regular expression that matches the runtime's error text.

Source: Gather, GatherElements, GatherND, ScatterElements and ArrayFeatureExtractor of ONNX Runtime 1.15–1.31, and
OneHotEncoder of the same releases if `zeros` is 0.
"""


def select_worst_attempts(runs: ModelRuns) -> tuple[Attempt, ...]:
    """Return the attempts to run a model that had the most severe of the `FATAL_OUTCOMES`; empty if none had any.

    Crashes at guessed sizes that other sizes replaced are left out.
    """
    for outcome in FATAL_OUTCOMES:
        if attempts := tuple(it for it in runs.attempts if it.outcome == outcome and not is_avoided_crash(it)):
            return attempts
    return ()


def is_avoided_crash(attempt: Attempt) -> bool:
    """Return whether an attempt crashed at guessed sizes, and other cases with other sizes replaced it."""
    return attempt.outcome == "crashed" and bool(attempt.case.refused)


def is_unusable(attempt: Attempt, runs: ModelRuns) -> bool:
    """Return whether a failed run is probably caused by the inputs rather than by the model.

    This is assumed if the source also fails with these inputs. It is also assumed for generated inputs that no other
    run has shown to be valid, if a value is out of bounds, or if sizes or values were guessed. The inputs are not the
    cause if constant inputs of the node are, unless values were chosen to reach a branch.
    """
    if attempt.outcome != "run-refused" or attempt.refusal.failure is None:
        return False
    has_value_fault = bool(find_value_fault(attempt.refusal.failure.text))
    if attempt.refusal.wrong_constant is not None and not attempt.case.chosen:
        return False
    return (
        attempt.source == "failed"
        or has_guessed_sizes(attempt, runs)
        or has_guessed_values(attempt, runs)
        or _has_assumed_values(attempt, runs)
        or (has_value_fault and _is_unproven(attempt, runs))
    )


def explain_unusable(attempt: Attempt) -> str:
    """Return the reason why the inputs of a failed run are considered unusable."""
    text = attempt.refusal.failure.text if attempt.refusal.failure is not None else ""
    if attempt.source == "failed":
        return "the source also fails with these inputs"
    default = "the input sizes were guessed and may be invalid"
    if attempt.case.assumed:
        names = " and ".join(f"`{name}`" for name in attempt.case.assumed)
        default = f"sizes are computed from the values of {names}, which were guessed and may be invalid"
    if attempt.case.chosen:
        values = " and ".join(f"`{name}` = {str(value).lower()}" for name, value in attempt.case.chosen.items())
        default = f"{values} was guessed from the conditions in the graph and may be invalid"
    return find_value_fault(text) or default


def find_value_fault(text: str) -> str:
    """Return why a value is invalid according to an error text; "" if the text is about something else."""
    return next((fault for fault, pattern in _VALUE_FAULTS.items() if pattern.search(text)), "")


def has_guessed_sizes(attempt: Attempt, runs: ModelRuns) -> bool:
    """Return whether a run failed with guessed input sizes, and no other run shows that the model supports these sizes.

    Sizes of the first axis of an input are ignored, because a model should support any size of this axis.
    """
    case = attempt.case
    if attempt.outcome != "run-refused" or not case.guessed or not _is_unproven(attempt, runs):
        return False
    doubtful = [axis for axis in case.guessed if axis not in case.leading]
    proven = [usable.sizes for usable in _list_proven_cases(runs)]
    return not any(all(sizes.get(axis) == case.sizes[axis] for axis in doubtful) for sizes in proven)


def has_refused_sizes(attempt: Attempt, runs: ModelRuns) -> bool:
    """Return whether a run failed because a search found a single valid size for some axes, which it does not have."""
    refused = attempt.case.refused
    if not refused or not has_guessed_sizes(attempt, runs):
        return False
    valid = {tuple(case.sizes.get(axis) for axis in refused) for case in _list_proven_cases(runs)}
    return len(valid) == 1 and any(other.outcome == "completed" for other in runs.attempts)


def has_guessed_values(attempt: Attempt, runs: ModelRuns) -> bool:
    """Return whether a run failed with values chosen for a branch, and no other run shows that they are valid.

    A single value is valid if the graph compares the input with it, and the sizes are not guessed.
    """
    case = attempt.case
    if attempt.outcome != "run-refused" or not case.chosen or not _is_unproven(attempt, runs):
        return False
    if tuple(case.chosen) == case.named and len(case.chosen) == 1 and set(case.guessed) <= set(case.leading):
        return False
    return not any(case.chosen.items() <= proven.chosen.items() for proven in _list_proven_cases(runs))


def _has_assumed_values(attempt: Attempt, runs: ModelRuns) -> bool:
    """Return whether a run failed with guessed values from which sizes are computed, and no other run accepted them."""
    is_failed = attempt.outcome == "run-refused" and bool(attempt.case.assumed) and _is_unproven(attempt, runs)
    return is_failed and not any(case.assumed == attempt.case.assumed for case in _list_proven_cases(runs))


def _list_proven_cases(runs: ModelRuns) -> list[AttemptCase]:
    """Return the cases that completed on this or another runtime."""
    return [
        usable.case
        for usable in runs.attempts
        if usable.case.name and (usable.outcome == "completed" or usable.case.name in runs.usable_cases)
    ]


def _is_unproven(attempt: Attempt, runs: ModelRuns) -> bool:
    """Return whether the inputs of a failed run are generated, and neither the source nor another run accepted them."""
    case = attempt.case
    if case.origin != "generated" or attempt.source in ("finite", "not-finite") or case.name in runs.usable_cases:
        return False
    return not any(level.outcome == "completed" and level.case.name == case.name for level in runs.attempts)


def is_proven_fault(attempt: Attempt) -> bool:
    """Return whether NaN or infinity in the outputs of a run is caused by the model rather than by its inputs.

    This is assumed if the source is finite in the same elements, or if the inputs are not generated.
    """
    return attempt.source == "finite" or attempt.case.origin in ("user", "source")


def find_not_finite(runs: Sequence[ModelRuns]) -> frozenset[tuple[str, str]]:
    """Return the input case and output name of each output in which the model itself causes NaN or infinity."""
    return frozenset(
        (attempt.case.name, output)
        for model in runs
        if not select_worst_attempts(model)
        for attempt in filter(is_proven_fault, model.attempts)
        for output in attempt.outputs.not_finite
    )
