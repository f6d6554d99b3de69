"""Subjects of the runtime stage's rules: recorded observations, values only."""

from __future__ import annotations

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
    """An operator that an engine does not have, and who asks for it."""

    operator: str  # "Det", or with its domain where that is not the default one
    words: str = ""  # "node `det`, and 3 more"; "" where no node of the model has it
    node: str = ""  # the first one's name
    place: Place | None = None  # the source line that made it


class AttemptCase(msgspec.Struct, frozen=True, kw_only=True):
    """The case that was run."""

    name: str = ""  # "" if the attempt ended before a case began
    origin: Literal["", "generated", "source", "user"] = ""
    sizes: dict[str, int] = {}
    guessed: tuple[str, ...] = ()  # axes whose size nothing determines
    leading: tuple[str, ...] = ()  # those of them that are the first axis of an input: any size should work


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The failure with which a runtime refused a model or a case, and what its text means."""

    failure: Failure | None = None
    family: str = ""  # of the text: "ir", "opset", "no_kernel", "run_node", …; "" if it is not a known one
    means: str = ""  # the meaning of a known text that is unclear
    fix: str = ""  # the fix, whatever the release
    node: str = ""  # the model's own node that the text names
    unsupported: tuple[UnsupportedOperator, ...] = ()  # if the text lists all operators that the engine does not have
    known_limit: str = ""  # of the engine, if the text shows it


class Interruption(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker that crashed or ran out of time ended."""

    signal: str = ""
    during: str = ""
    limit_s: float = 0.0


class OutputFaults(msgspec.Struct, frozen=True, kw_only=True):
    """The names of a case's outputs that are not as they should be."""

    not_finite: tuple[str, ...] = ()  # hold NaN or infinity; with a source, only at elements where it is finite
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
    predicted: tuple[str, ...] = ()  # error-level rules of the support stage that spoke on this model and runtime
    memory_limit_mib: int = 0
    # Cases that completed on at least one other runtime: an input that some engine takes is a usable input.
    usable_cases: tuple[str, ...] = ()
    alone: tuple[
        IsolatedNode, ...
    ] = ()  # of a model that is refused: those that are predicted to be, and what was tried
    node_places: dict[str, Place] = {}  # node name -> source line, for nodes that a failure names
    drawn: dict[str, tuple[str, ...]] = {}  # unstable output -> the random operators that reach it
    unused_providers: tuple[str, ...] = ()  # asked for, and not what the session runs on
