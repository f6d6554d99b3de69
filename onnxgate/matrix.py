"""The matrix: on which releases models load, as predicted and as seen. What `onnxgate matrix --output json` says.

Sorted; no clock, no host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from onnxgate.findings import name_runtimes

VERSION = 1

Predicted = Literal["loads", "refused", "unknown"]
Observed = Literal["", "loads", "refused", "crashed", "timed-out", "unavailable"]
Verdict = Literal["pass", "fail", "undecided"]
NO_DATA = "no-support-data"
"""The rule of what is not known for want of data; all others doubt the model itself."""
AGAINST: dict[Observed, Predicted] = {"loads": "refused", "refused": "loads", "crashed": "loads"}
"""What must not have been predicted of that which was seen."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One object of the matrix."""


class Reason(Part, frozen=True, kw_only=True):
    """Why a release refuses a model, or why that cannot be told. `node` is "" where it is about the whole model."""

    rule: str
    node: str
    message: str  # the same for all releases
    detail: str = ""  # what this one has, as a verb phrase: "implements up to 19"


class Entry(Part, frozen=True, kw_only=True):
    """One model on one release. `observed` is "" where nobody looked; `error` is what was said then."""

    runtime: str  # "onnxruntime 1.18.1"
    predicted: Predicted
    reasons: tuple[Reason, ...] = ()
    observed: Observed = ""
    error: str = ""

    @property
    def state(self) -> Predicted:
        """What counts: what was seen, else what is predicted; a load that never ended tells nothing."""
        match self.observed:
            case "loads":
                return "loads"
            case "refused" | "crashed":
                return "refused"
            case "timed-out":
                return "unknown"
            case _:
                return self.predicted

    @property
    def contradicted(self) -> bool:
        """The prediction was wrong."""
        return AGAINST.get(self.observed) == self.predicted

    @property
    def told(self) -> str:
        """What was said when it was tried, where that counts and nothing that was predicted explains it."""
        explained = self.predicted == "refused" and self.observed == "refused" and self.reasons
        return "" if self.state == "loads" or self.observed == "unavailable" or explained else self.error


class MatrixModel(Part, frozen=True, kw_only=True):
    """One model on every release asked for, ascending."""

    path: str
    runtimes: tuple[Entry, ...]

    def on(self, state: Predicted) -> tuple[str, ...]:
        """The releases on which that counts."""
        return tuple(entry.runtime for entry in self.runtimes if entry.state == state)

    @property
    def outcome(self) -> Predicted:
        """Of all releases together: whether one is known to load it, else what the newest one does."""
        return "loads" if self.on("loads") else self.runtimes[-1].state


class Matrix(Part, frozen=True, kw_only=True):
    """Models by releases."""

    version: int = VERSION
    onnxgate: str
    verdict: Verdict
    exit: int
    models: tuple[MatrixModel, ...]

    @property
    def entries(self) -> Iterator[Entry]:
        """Those of all models."""
        return (entry for model in self.models for entry in model.runtimes)


def sum_up(models: Sequence[MatrixModel], version: str) -> Matrix:
    """The matrix with its verdict. `version` is onnxgate's own."""
    verdict, status = _decide(models)
    return Matrix(onnxgate=version, verdict=verdict, exit=status, models=tuple(models))


def _decide(models: Sequence[MatrixModel]) -> tuple[Verdict, int]:
    """A model that no release is known to load, and the newest refuses, closes the gate; other doubts are no pass."""
    outcomes = {model.outcome for model in models}
    if "refused" in outcomes:
        return "fail", 1
    unseen = any(entry.observed in ("unavailable", "timed-out") for model in models for entry in model.runtimes)
    return ("undecided", 3) if unseen or "unknown" in outcomes else ("pass", 0)


def in_words(reason: Reason) -> str:
    """A reason with its rule, and with its node where the message does not name that by itself."""
    named = f"node `{reason.node}`" if reason.node and f"`{reason.node}`" not in reason.message else ""
    return ": ".join(part for part in (reason.rule, named, reason.message) if part)


@dataclass(frozen=True, slots=True)
class Group:
    """Releases that do not load a model, and all for the same first reason; ascending."""

    entries: tuple[Entry, ...]

    @property
    def state(self) -> Predicted:
        """Refused, or not known."""
        return self.entries[0].state

    @property
    def runtimes(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(entry.runtime for entry in self.entries)

    @property
    def because(self) -> str:
        """The reason, what the newest of them has, and how many more reasons there are; "" where there is none."""
        every = self.every
        others = f", and {self.more} more reason{'s' if self.more > 1 else ''}" if self.more else ""
        return f"{every[0]}{others}" if every else ""

    @property
    def every(self) -> tuple[str, ...]:
        """All reasons of the newest of them, the first one first."""
        newest = self.entries[-1]
        if newest.told:
            return (newest.told,)
        return tuple(f"{in_words(reason)}{_detail(newest, reason)}" for reason in newest.reasons)

    @property
    def more(self) -> int:
        """How many reasons there are besides the first one, on the release that has most."""
        return 0 if self.entries[-1].told else max(0, max(len(entry.reasons) for entry in self.entries) - 1)


def groups(model: MatrixModel) -> list[Group]:
    """Why the model does not load elsewhere; that of the newest releases first."""
    alike: dict[tuple[Predicted, str], list[Entry]] = {}
    for entry in reversed(model.runtimes):
        if entry.state != "loads":
            reason = in_words(entry.reasons[0]) if entry.reasons else ""
            alike.setdefault((entry.state, entry.told or reason), []).append(entry)
    return [Group(tuple(reversed(entries))) for entries in alike.values()]


def _detail(entry: Entry, reason: Reason) -> str:
    return f" ({_release(entry.runtime)} {reason.detail})" if reason.detail else ""


def _release(runtime: str) -> str:
    return runtime.rpartition(" ")[2]


@dataclass(frozen=True, slots=True)
class Range:
    """Where a model loads, in one sentence; and why it does not elsewhere, as far as the sentence leaves it out."""

    sentence: str  # "loads on onnxruntime 1.18.0 to 1.31.1; 1.17.3 does not: imports opset 21 of `ai.onnx`"
    others: tuple[Group, ...]


def working_range(model: MatrixModel) -> Range:
    """The sentence says of the nearest releases why they refuse the model."""
    every = [entry.runtime for entry in model.runtimes]
    found = groups(model)
    nearest = _nearest(model, found)
    unknown = [group for group in found if group.state == "unknown"]
    clauses = [_where(model, every)]
    if nearest is not None:
        clauses.append(_refusal(nearest, every, loads=bool(model.on("loads"))))
    if unknown:
        clauses.append(_not_known(model, unknown, every))
    told = [nearest, *unknown] if len(unknown) == 1 else [nearest]
    return Range("; ".join(clauses), tuple(group for group in found if group not in told))


def _where(model: MatrixModel, every: Sequence[str]) -> str:
    if loading := model.on("loads"):
        return f"loads on {name_runtimes(loading, every)}{_doubt(model)}"
    count = f"{len(every)} release{'s' if len(every) != 1 else ''}"
    return f"is not known to load on any of {count}" if model.on("unknown") else f"loads on none of {count}"


def _doubt(model: MatrixModel) -> str:
    """What is wrong with the model itself, although it was seen to load: data that are no weights, say."""
    for entry in model.runtimes:
        doubts = [reason for reason in entry.reasons if reason.rule != NO_DATA]
        if entry.state == "loads" and entry.predicted == "unknown" and doubts:
            return f", although {in_words(doubts[0])}"
    return ""


def _nearest(model: MatrixModel, found: Sequence[Group]) -> Group | None:
    """Who refuses the model next to where it loads: just below the newest of these releases, else just above."""
    states = [entry.state for entry in model.runtimes]
    last = max((index for index, state in enumerate(states) if state == "loads"), default=len(states))
    refusing = [index for index, state in enumerate(states) if state == "refused"]
    below, above = [index for index in refusing if index < last], [index for index in refusing if index > last]
    if not refusing:
        return None
    runtime = model.runtimes[below[-1] if below else above[0]].runtime
    return next(group for group in found if runtime in group.runtimes)


def _refusal(group: Group, every: Sequence[str], *, loads: bool) -> str:
    one = len(group.runtimes) == 1
    verb = ("does not" if one else "do not") if loads else ("refuses it" if one else "refuse it")
    because = f": {group.because}" if group.because else ""
    return f"{_releases(group.runtimes, every)} {verb}{because}"


def _not_known(model: MatrixModel, unknown: Sequence[Group], every: Sequence[str]) -> str:
    because = f" ({unknown[0].because})" if len(unknown) == 1 and unknown[0].because else ""
    return f"not known on {_releases(model.on('unknown'), every)}{because}"


def _releases(runtimes: Sequence[str], every: Sequence[str]) -> str:
    """Without the engine, which is named already, where there is only one."""
    said = name_runtimes(runtimes, every)
    engines = {runtime.rpartition(" ")[0] for runtime in every}
    return said.removeprefix(f"{engines.pop()} ") if len(engines) == 1 else said
