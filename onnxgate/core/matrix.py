"""The matrix: which releases can load each model, predicted or observed, as written by `onnxgate matrix --output json`.

The matrix is sorted and contains neither times nor host names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from onnxgate.core.findings import Stage
from onnxgate.core.report import Finding, NotDone, Report, ReportedPlace
from onnxgate.core.text import join_phrases, pluralize

VERSION = 1

Predicted = Literal["loads", "refused", "unknown"]
Observed = Literal["", "loads", "refused", "crashed", "timed-out", "unavailable"]
Verdict = Literal["pass", "fail", "undecided"]
NO_DATA_RULE = "no-support-data"
"""Rule whose findings mean that a release has no support data. Findings of all other rules are about the model."""
CONTRADICTED_PREDICTIONS: dict[Observed, Predicted] = {"loads": "refused", "refused": "loads", "crashed": "loads"}
"""For each observed result of loading a model, the prediction that it contradicts."""


VERDICTS: dict[Predicted, Verdict] = {"loads": "pass", "refused": "fail", "unknown": "undecided"}


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a release refuses a model, or why no prediction was possible."""

    rule: str  # name of the rule that reports the problem; "" if unknown
    node: str  # name of the affected node; "" for the whole model
    message: str  # description of the problem; the same text for all releases
    detail: str = ""  # detail about this release, such as "supports opsets up to 19"
    works_since: str = ""  # first release without this problem; "" if there is none or it is unknown


UNCERTAIN_RULES = ("invalid-model", "external-data-corrupt", "external-data-escapes")
"""Rules of the file stage for which it is not predicted whether the model loads, the most important one first."""
NO_KERNELS = Reason(rule=NO_DATA_RULE, node="", message="no kernel data")


OBSERVED_RULES: dict[Observed, str] = {
    "refused": "load-failed",
    "crashed": "runtime-crashed",
    "timed-out": "runtime-timed-out",
}
"""For each observation that no prediction explains, the rule of the error that is reported."""
UNKNOWN_REASON = Reason(rule="", node="", message="the reason is unknown")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one model on one release."""

    runtime: str  # name of the release, such as "onnxruntime 1.18.1"
    predicted: Predicted  # predicted result of loading the model
    reasons: tuple[Reason, ...] = ()  # why the release refuses the model, or why the prediction is unknown
    observed: Observed = ""  # result of loading the model; "" without `--verify`
    error: str = ""  # error message if loading failed or could not be tried

    @property
    def state(self) -> Predicted:
        """The result: the observation if it is conclusive, otherwise the prediction; `unknown` after a timeout."""
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
        """Whether the observation contradicts the prediction."""
        return CONTRADICTED_PREDICTIONS.get(self.observed) == self.predicted

    @property
    def unexplained_error(self) -> str:
        """The observed error; "" if a predicted reason or a fault of the file explains it."""
        faulty = self.predicted == "refused" or any(reason.rule in UNCERTAIN_RULES for reason in self.reasons)
        explained = self.observed == "refused" and self.reasons and faulty
        predicted = self.observed == "unavailable" and self.predicted != "unknown"
        return "" if self.state == "loads" or predicted or explained else self.error

    @property
    def effective_reasons(self) -> tuple[Reason, ...]:
        """The reasons why the release does not load the model, most important first."""
        if self.state == "loads":
            return ()
        if self.unexplained_error:
            return (Reason(rule=OBSERVED_RULES.get(self.observed, ""), node="", message=self.unexplained_error),)
        return self.reasons or (UNKNOWN_REASON,)


class MatrixModel(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one model on all selected releases."""

    path: str  # path of the model
    runtimes: tuple[Entry, ...]  # one result for each release, in ascending order

    def on(self, state: Predicted) -> tuple[str, ...]:
        """Return the releases on which the model has this outcome."""
        return tuple(entry.runtime for entry in self.runtimes if entry.state == state)

    @property
    def outcome(self) -> Predicted:
        """`loads` if the model loads on any release, otherwise the outcome on the newest release."""
        return "loads" if self.on("loads") else self.runtimes[-1].state

    def rate(self, *, required: bool) -> Verdict:
        """Return the verdict of the model.

        The model passes if it loads on at least one release, and fails if it loads on none and the newest release
        refuses it. With `required`, it passes if it loads on all releases, and fails if any release refuses it.
        """
        outcome = self.outcome
        if required:
            states = {entry.state for entry in self.runtimes}
            outcome = next(state for state in ("refused", "unknown", "loads") if state in states)
        return VERDICTS[outcome]


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """Results of each model on each release, with the overall verdict."""

    version: int = VERSION  # version of this format
    onnxgate: str  # version of onnxgate that wrote the matrix
    verdict: Verdict  # overall result
    exit: int  # exit status of the command
    models: tuple[MatrixModel, ...]  # models that were checked
    findings: tuple[Finding, ...] = ()  # errors and warnings
    undecided: tuple[NotDone, ...] = ()  # checks that could not be completed
    remarks: tuple[str, ...] = ()  # additional information, such as parts of a check that were skipped

    @property
    def entries(self) -> Iterator[Entry]:
        """The results of all models on all releases."""
        return (entry for model in self.models for entry in model.runtimes)


def build_matrix(models: Sequence[MatrixModel], report: Report) -> Matrix:
    """Build the matrix from a report and its models.

    Findings of level `note` are omitted, since the entries of the matrix contain the reasons.
    """
    return Matrix(
        onnxgate=report.onnxgate,
        verdict=report.verdict,
        exit=report.exit,
        models=tuple(models),
        findings=tuple(finding for finding in report.findings if finding.level != "note"),
        undecided=report.undecided,
        remarks=report.remarks,
    )


def list_load_failures(model: MatrixModel) -> Iterator[Finding]:
    """Yield an error for each failed load that no prediction explains."""
    for span in list_reasons(model):
        if span.state == "refused" and span.reason.rule in OBSERVED_RULES.values():
            yield Finding(
                rule=span.reason.rule,
                level="error",
                stage=Stage.RUNTIME.value,
                message=f"does not load: {span.reason.message}",
                fix="",
                model=model.path,
                node="",
                runtimes=span.runtimes,
                place=ReportedPlace(path=model.path),
                works_since="",
                works_until="",
                confirmed=False,
                fingerprint="",
            )


PREDICTION_SCOPE = "predicted, not run"


def describe_scope(models: Sequence[MatrixModel]) -> str:
    """Summarize the verification, as in `37 results verified, 3 wrong predictions`, or state that nothing was run."""
    verified = [entry for model in models for entry in model.runtimes if entry.observed]
    if not verified:
        return PREDICTION_SCOPE
    missing = sum(entry.observed in ("unavailable", "timed-out") for entry in verified)
    wrong = sum(entry.contradicted for entry in verified)
    parts = [pluralize(len(verified) - missing, "result") + " verified"]
    parts += [pluralize(wrong, "wrong prediction")] if wrong else []
    parts += [f"{missing} could not be verified"] if missing else []
    return ", ".join(parts)


def render_reason(reason: Reason) -> str:
    """Return a reason as text, with its rule, and with its node if the message does not contain it."""
    return ": ".join(part for part in (reason.rule, _render_message(reason)) if part)


def _render_message(reason: Reason) -> str:
    named = f"node `{reason.node}`: " if reason.node and f"`{reason.node}`" not in reason.message else ""
    return f"{named}{reason.message}"


class ReasonSpan(msgspec.Struct, frozen=True):
    """A reason why a model does not load, and the releases to which it applies."""

    reason: Reason
    runtimes: tuple[str, ...]  # ascending
    state: Predicted  # state of the model on these releases: refused or unknown


def list_reasons(model: MatrixModel) -> list[ReasonSpan]:
    """Return all reasons why a model does not load, those on the newest releases first.

    `detail` is taken from the newest release.
    """
    listed = [(entry.effective_reasons, entry) for entry in reversed(model.runtimes)]
    groups: dict[tuple[Predicted, int], list[tuple[tuple[Reason, ...], Entry]]] = {}
    for reasons, entry in listed:  # many releases have the same object
        groups.setdefault((entry.state, id(reasons)), []).append((reasons, entry))
    newest: dict[tuple[Predicted, Reason], Reason] = {}
    spans: dict[tuple[Predicted, Reason], list[tuple[str, ...]]] = {}
    for (state, _), group in groups.items():
        names = tuple(entry.runtime for _, entry in reversed(group))
        for key, reason in {(state, _without_detail(it)): it for it in group[0][0]}.items():
            newest.setdefault(key, reason)
            spans.setdefault(key, []).append(names)
    return [ReasonSpan(newest[key], _join_names(model, parts), key[0]) for key, parts in spans.items()]


def _join_names(model: MatrixModel, parts: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Join the names of releases in ascending order."""
    if len(parts) == 1:
        return parts[0]
    names = {name for part in parts for name in part}
    return tuple(entry.runtime for entry in model.runtimes if entry.runtime in names)


def _without_detail(reason: Reason) -> Reason:
    return msgspec.structs.replace(reason, detail="")


class WorkingRange(msgspec.Struct, frozen=True):
    """A sentence that states which releases load a model and why the others do not."""

    sentence: str  # "loads on onnxruntime 1.18.0–1.31.1; 1.8.0–1.17.3 refused: IR version 10, supported since 1.18.0"
    named: tuple[Reason, ...]  # the reasons in the sentence
    omitted: int  # number of reasons that are not in the sentence


def describe_working_range(model: MatrixModel, *, required: bool = False) -> WorkingRange:
    """Describe which releases load the model, and why the others do not, with as few reasons as possible.

    With `required`, the releases that do not load the model come first. Otherwise, releases without kernel data are
    omitted if the result on any other release is known, because `describe_missing_data` lists them.
    """
    runtimes = [entry.runtime for entry in model.runtimes]
    spans = list_reasons(model)
    groups = [group for state in ("refused", "unknown") for group in _cover_releases(spans, state)]
    groups.sort(
        key=lambda group: (required and group.state == "refused", runtimes.index(group.runtimes[-1])), reverse=True
    )
    loading = model.on("loads")
    if not required and (loading or model.on("refused")):
        groups = [group for group in groups if NO_KERNELS not in group.reasons]
    named = [reason for group in groups for reason in group.named]
    described: dict[tuple[Predicted, str], list[str]] = {}  # releases with the same description are joined
    for group in groups:
        described.setdefault((group.state, _describe_reasons(group, runtimes[-1])), []).extend(group.runtimes)
    clauses = []
    working = name_releases(loading, runtimes)
    if loading and not (required and groups):
        clauses.append(f"loads on {working}")
    for (state, reasons), names in described.items():
        if clauses:
            clauses.append(f"{name_releases(names, runtimes, engine=False)} {state}: {reasons}")
        else:
            unknown = (
                "could not be run" if any(entry.observed for entry in model.runtimes) else "could not be predicted"
            )
            phrase = "does not load" if state == "refused" else unknown
            clauses.append(f"{phrase} on {name_releases(names, runtimes)}: {reasons}")
    if loading and required and groups:
        engines = {runtime.rpartition(" ")[0] for runtime in runtimes}
        clauses.append(f"loads on {working.removeprefix(f'{engines.pop()} ') if len(engines) == 1 else working}")
    return WorkingRange("; ".join(clauses), tuple(named), len({span.reason for span in spans}) - len(set(named)))


def describe_missing_data(models: Sequence[MatrixModel]) -> str:
    """State for which releases a result is unknown because there is no kernel data; "" if there are none."""
    names = {
        entry.runtime: None
        for model in models
        for entry in model.runtimes
        if entry.state == "unknown" and NO_KERNELS in entry.effective_reasons
    }
    if not names:
        return ""
    runtimes = [entry.runtime for entry in models[0].runtimes]
    releases = name_releases([runtime for runtime in runtimes if runtime in names], runtimes)
    return (
        f"onnxgate has no kernel data for {releases}, so it can predict that these releases refuse a model, "
        "but not that they load it"
    )


class _ReleaseGroup(msgspec.Struct, frozen=True):
    """Releases that do not load a model for the same reasons."""

    reasons: tuple[Reason, ...]
    runtimes: tuple[str, ...]
    state: Predicted

    @property
    def named(self) -> tuple[Reason, ...]:
        """The reasons that the summary names: the first one.

        If that is about a version field, the others about version fields with the same `works_since` are added.
        """
        first = self.reasons[0]
        return (
            tuple(it for it in self.reasons if it.rule in SUPPORT_RULES and it.works_since == first.works_since)
            if first.rule in SUPPORT_RULES
            else (first,)
        )


def _cover_releases(spans: Sequence[ReasonSpan], state: Predicted) -> Iterator[_ReleaseGroup]:
    """Group the releases by reason, and yield the largest group first. Each release is in one group only."""
    spans = [span for span in spans if span.state == state]
    remaining = {runtime: None for span in spans for runtime in span.runtimes}
    while remaining:
        left = [[runtime for runtime in span.runtimes if runtime in remaining] for span in spans]
        largest = max(left, key=len)
        yield _ReleaseGroup(
            tuple(span.reason for span, runtimes in zip(spans, left, strict=True) if runtimes == largest),
            tuple(largest),
            state,
        )
        for runtime in largest:
            del remaining[runtime]


SUPPORT_RULES = {
    "ir-version-too-new": r"IR version \d+",
    "opset-too-new": r"opset \d+ of `[^`]*`",
    "opset-experimental": r"opset \d+ of `[^`]*`",
}
"""For each rule about a version field, the pattern of that field in its messages."""


def _describe_reasons(group: _ReleaseGroup, newest: str) -> str:
    """Describe the main reasons, such as `IR version 10, supported since 1.18.0`, and count the others."""
    first = group.reasons[0]
    others = len(group.reasons) - len(group.named)
    more = f" (and {others} more reason{'s' if others > 1 else ''})" if others else ""
    since = first.works_since
    fields = [re.search(SUPPORT_RULES[it.rule], it.message) for it in group.named if it.rule in SUPPORT_RULES]
    if fields and all(fields):
        names = join_phrases([field[0] for field in fields if field])
        is_newest = group.runtimes[-1] == newest
        support = f", supported since {since}" if since else ", not supported by any release yet" if is_newest else ""
        return f"{names}{support}{more}"
    return f"{_render_message(first)}{f' (works since {since})' if since else ''}{more}"


def name_releases(names: Sequence[str], runtimes: Sequence[str], *, engine: bool = True) -> str:
    """Join release names, with a range for consecutive entries of `runtimes`: `onnxruntime 1.8.0–1.17.3 and 1.19.0`.

    If `engine` is False, the engine's name is omitted if all runtimes have the same engine.
    """
    text = _join_ranges([(run[0], run[-1]) for run in _find_runs(names, runtimes)])
    engines = {runtime.rpartition(" ")[0] for runtime in runtimes}
    return text if engine or len(engines) > 1 else text.removeprefix(f"{engines.pop()} ")


def _find_runs(names: Sequence[str], runtimes: Sequence[str]) -> list[list[str]]:
    """Split the names into groups of runtimes that are consecutive in `runtimes` and have the same engine."""
    runs: list[list[str]] = []
    for index, runtime in enumerate(runtimes):
        if runtime not in names:
            continue
        before = runtimes[index - 1] if index else ""
        if runs and runs[-1][-1] == before and before.rpartition(" ")[0] == runtime.rpartition(" ")[0]:
            runs[-1].append(runtime)
        else:
            runs.append([runtime])
    return runs


def _join_ranges(ranges: Sequence[tuple[str, str]]) -> str:
    """Join ranges of releases and group them by engine, as in `onnxruntime 1.18.0–1.20.1 and 1.22.0`."""
    by_engine: dict[str, list[str]] = {}
    for first, last in ranges:
        engine, _, release = first.rpartition(" ")
        end = last.rpartition(" ")[2]
        by_engine.setdefault(engine, []).append(release if release == end else f"{release}–{end}")
    return "; ".join(f"{engine} {join_phrases(releases)}" for engine, releases in by_engine.items())
