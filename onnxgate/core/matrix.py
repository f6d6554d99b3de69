"""The matrix: on which releases models load, as predicted and as seen. What `onnxgate matrix --output json` says.

Sorted; no clock, no host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from onnxgate.core.findings import name_runtimes

VERSION = 1

Predicted = Literal["loads", "refused", "unknown"]
Observed = Literal["", "loads", "refused", "crashed", "timed-out", "unavailable"]
Verdict = Literal["pass", "fail", "undecided"]
EXIT_STATUS: dict[Verdict, int] = {"pass": 0, "fail": 1, "undecided": 3}
NO_DATA_RULE = "no-support-data"
"""The rule for missing data; all others are about the model itself."""
CONTRADICTED_PREDICTIONS: dict[Observed, Predicted] = {"loads": "refused", "refused": "loads", "crashed": "loads"}
"""The prediction that contradicts each observation."""


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a release refuses a model, or why that cannot be told. `node` is "" where it is about the whole model."""

    rule: str
    node: str
    message: str  # the same for all releases
    detail: str = ""  # what this one has, as a verb phrase: "implements up to 19"


NO_KERNELS = Reason(rule=NO_DATA_RULE, node="", message="the kernels of this release are not known")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One model on one release. `observed` is "" where nobody looked; `error` is what was said then."""

    runtime: str  # "onnxruntime 1.18.1"
    predicted: Predicted
    reasons: tuple[Reason, ...] = ()
    observed: Observed = ""
    error: str = ""

    @property
    def state(self) -> Predicted:
        """The observation if it decides, the prediction otherwise; a load that timed out decides nothing."""
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
        return CONTRADICTED_PREDICTIONS.get(self.observed) == self.predicted

    @property
    def unexplained_error(self) -> str:
        """The error of the observation, if it decides and no predicted reason explains it."""
        explained = self.predicted == "refused" and self.observed == "refused" and self.reasons
        return "" if self.state == "loads" or self.observed == "unavailable" or explained else self.error


class MatrixModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model on every release asked for, ascending."""

    path: str
    runtimes: tuple[Entry, ...]

    def on(self, state: Predicted) -> tuple[str, ...]:
        """Return the releases with that outcome."""
        return tuple(entry.runtime for entry in self.runtimes if entry.state == state)

    @property
    def outcome(self) -> Predicted:
        """The outcome on all releases: loads if one does, otherwise that of the newest one."""
        return "loads" if self.on("loads") else self.runtimes[-1].state


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
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


def build_matrix(models: Sequence[MatrixModel], version: str) -> Matrix:
    """Build the matrix with its verdict; a model that no release loads and the newest refuses is a failure.

    `version` is that of onnxgate.
    """
    outcomes = {model.outcome for model in models}
    is_undecided = "unknown" in outcomes or any(
        entry.observed in ("unavailable", "timed-out") for model in models for entry in model.runtimes
    )
    verdict: Verdict = "fail" if "refused" in outcomes else "undecided" if is_undecided else "pass"
    return Matrix(onnxgate=version, verdict=verdict, exit=EXIT_STATUS[verdict], models=tuple(models))


def render_reason(reason: Reason) -> str:
    """Return a reason with its rule, and with its node unless the message names it."""
    named = f"node `{reason.node}`" if reason.node and f"`{reason.node}`" not in reason.message else ""
    return ": ".join(part for part in (reason.rule, named, reason.message) if part)


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Releases that do not load a model for the same first reason; ascending."""

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
        """The reason, the detail of the newest release, and the number of further reasons; "" without a reason."""
        reasons = self.reasons
        others = f", and {self.more} more reason{'s' if self.more > 1 else ''}" if self.more else ""
        return f"{reasons[0]}{others}" if reasons else ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """All reasons of the newest release, the first one first."""
        newest = self.entries[-1]
        if newest.unexplained_error:
            return (newest.unexplained_error,)
        release = newest.runtime.rpartition(" ")[2]
        details = [f" ({release} {reason.detail})" if reason.detail else "" for reason in newest.reasons]
        return tuple(f"{render_reason(reason)}{detail}" for reason, detail in zip(newest.reasons, details, strict=True))

    @property
    def more(self) -> int:
        """The largest number of further reasons on one release."""
        return (
            0 if self.entries[-1].unexplained_error else max(0, max(len(entry.reasons) for entry in self.entries) - 1)
        )


def group_by_reason(model: MatrixModel) -> list[ReasonGroup]:
    """Yield why the model does not load on other releases; the newest releases first."""
    alike: dict[tuple[Predicted, str], list[Entry]] = {}
    for entry in reversed(model.runtimes):
        if entry.state != "loads":
            reason = render_reason(entry.reasons[0]) if entry.reasons else ""
            alike.setdefault((entry.state, entry.unexplained_error or reason), []).append(entry)
    return [ReasonGroup(tuple(reversed(entries))) for entries in alike.values()]


@dataclass(frozen=True, slots=True)
class WorkingRange:
    """The releases that load a model, in one sentence, and the reasons of the others."""

    sentence: str  # "loads on onnxruntime 1.18.0 to 1.31.1; 1.17 lacks opset 21 of `ai.onnx`"
    others: tuple[ReasonGroup, ...]  # without those of which the sentence says all that is known


def describe_working_range(model: MatrixModel) -> WorkingRange:
    """Describe the working range. The sentence has the reason of the nearest refusing release only."""
    runtimes = [entry.runtime for entry in model.runtimes]
    groups = group_by_reason(model)
    nearest = _nearest_refusing_release(model)
    clauses = [_describe_loading(model, runtimes)]
    if nearest is not None and len(runtimes) == 1:
        clauses = [f"{clauses[0]}, which {_describe_refusal(nearest)}"]
    elif nearest is not None:
        clauses.append(f"{_name_nearest_release(nearest, groups, runtimes)} {_describe_refusal(nearest)}")
    clauses += _describe_unknown(model, groups, runtimes)
    return WorkingRange("; ".join(clauses), tuple(group for group in groups if not _lacks_kernel_data(group)))


def _describe_loading(model: MatrixModel, runtimes: Sequence[str]) -> str:
    if loading := model.on("loads"):
        loaded = f"loads on {name_runtimes(loading, runtimes)}"
        for entry in model.runtimes:  # a fault such as invalid weights may not prevent loading
            doubts = [reason for reason in entry.reasons if reason.rule != NO_DATA_RULE]
            if entry.state == "loads" and entry.predicted == "unknown" and doubts:
                return f"{loaded}, although {render_reason(doubts[0])}"
        return loaded
    refused = model.on("refused")
    if len(runtimes) == 1:
        return f"{'does not' if refused else 'is not known to'} load on {runtimes[0]}"
    count = len(refused or runtimes)
    phrase = "loads on none of" if refused else "is not known to load on any of"
    return f"{phrase} {count} release{'s' if count != 1 else ''}"


def _nearest_refusing_release(model: MatrixModel) -> Entry | None:
    """Return the refusing release next to the working range: just below, otherwise just above."""
    states = [entry.state for entry in model.runtimes]
    last = max((index for index, state in enumerate(states) if state == "loads"), default=len(states))
    refusing = [index for index, state in enumerate(states) if state == "refused"]
    below, above = [index for index in refusing if index < last], [index for index in refusing if index > last]
    return model.runtimes[below[-1] if below else above[0]] if refusing else None


def _name_nearest_release(nearest: Entry, groups: Sequence[ReasonGroup], runtimes: Sequence[str]) -> str:
    """Return the release, or its minor if all patches of it refuse the model for the same reason."""
    minor = nearest.runtime.rpartition(".")[0]
    patches = {runtime for runtime in runtimes if runtime.rpartition(".")[0] == minor}
    alike = next(set(group.runtimes) for group in groups if nearest in group.entries)
    return _strip_engine_name(minor if len(patches) > 1 and patches <= alike else nearest.runtime, runtimes)


REFUSAL_PHRASES = {
    "missing-kernel": ("there is no kernel for ", "lacks a kernel for "),
    "opset-too-new": ("imports ", "lacks "),
    "ir-version-too-new": ("uses ", "does not support "),
}
"""Beginnings of the messages of a rule, and the verb phrase for a release that refuses the model."""


def _describe_refusal(nearest: Entry) -> str:
    """Return why it refuses the model, without its own detail."""
    if nearest.unexplained_error or not nearest.reasons:
        return f"refuses it: {nearest.unexplained_error}" if nearest.unexplained_error else "refuses it"
    first, count = nearest.reasons[0], len(nearest.reasons)
    before, after = REFUSAL_PHRASES.get(first.rule, ("", "refuses it: "))
    phrase = f"{after}{first.message.removeprefix(before)}"
    return f"{phrase} (the first of {count} reasons)" if count > 1 else phrase


def _describe_unknown(model: MatrixModel, groups: Sequence[ReasonGroup], runtimes: Sequence[str]) -> Iterator[str]:
    """Yield a clause about the releases whose outcome is unknown."""
    unknown = model.on("unknown")
    where = _strip_engine_name(name_runtimes(unknown, runtimes), runtimes)
    if unknown and all(_lacks_kernel_data(group) for group in groups if group.state == "unknown"):
        yield f"kernels are not known on {where}"
    elif unknown and len(unknown) < len(runtimes):
        yield f"not known on {where}"


def _lacks_kernel_data(group: ReasonGroup) -> bool:
    return all(entry.reasons == (NO_KERNELS,) and not entry.unexplained_error for entry in group.entries)


def _strip_engine_name(phrase: str, runtimes: Sequence[str]) -> str:
    """Remove the engine's name if all runtimes have the same one."""
    engines = {runtime.rpartition(" ")[0] for runtime in runtimes}
    return phrase.removeprefix(f"{engines.pop()} ") if len(engines) == 1 else phrase
