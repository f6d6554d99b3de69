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


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to one model on one runtime at one optimisation level in one case."""

    optimization: Literal["all", "disabled"]
    # "provider-not-used": the session silently runs on other providers than those that were asked for.
    outcome: Literal["completed", "load-refused", "run-refused", "crashed", "timed-out", "provider-not-used"]
    case: str = ""  # "" where it ended before a case began
    origin: Literal["", "generated", "source", "user"] = ""
    sizes: dict[str, int] = {}
    guessed: tuple[str, ...] = ()  # axes whose size nobody told
    leading: tuple[str, ...] = ()  # those of them that are the first of an input: any size should do
    failure: Failure | None = None
    family: str = ""  # of the failure's text: "ir", "opset", "no_kernel", "run_node", …; "" for none that is known
    means: str = ""  # what the failure's text means, where it is a known one that says it badly
    fix: str = ""  # what is to be done about it, whatever the release
    node: str = ""  # the model's own node that the failure names
    signal: str = ""
    during: str = ""
    limit_s: float = 0.0
    # Outputs that hold NaN or infinity; where there is a source, only at places where the source is finite.
    not_finite: tuple[str, ...] = ()
    reference_finite: bool | None = None  # the source is finite at those places; None: the source gave nothing
    blank: tuple[str, ...] = ()  # outputs that are NaN everywhere, here and in the source
    reference_failed: bool = False  # the source itself failed on this case
    unstable: tuple[str, ...] = ()  # outputs that differed when the same case was run again in the same session
    aliased: tuple[str, ...] = ()  # outputs that lie in the memory of what was fed
    wrong_shapes: tuple[WrongShape, ...] = ()
    unsupported: tuple[
        UnsupportedOperator, ...
    ] = ()  # all operators that the engine does not have, where its text lists them
    known_limit: str = ""  # of the engine, where the failure's text tells of it


class IsolatedNode(msgspec.Struct, frozen=True, kw_only=True):
    """What loading one kind of node of a refused model alone says of why the model is refused."""

    operator: str  # "Det", or with its domain where that is not the default one
    words: str  # "node `det`, and 3 more"
    outcome: Literal["refused", "loads", "unknown"]  # unknown: it decides nothing
    node: str = ""  # the first one's name
    place: Place | None = None  # the source line that made it
    rule: str = ""  # that predicted that it is refused; "" for one that nobody predicted
    claim: str = ""  # what that prediction is about
    explains: tuple[str, ...] = ()  # the levels at which the model is refused for what this node is refused for
    failure: Failure | None = None
    family: str = ""  # of the failure's text
    fix: str = ""  # what is to be done about it, whatever the release


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
