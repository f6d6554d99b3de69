"""Describe the support of operators: one sentence for each operator, and tables of types, opsets and releases."""

from __future__ import annotations

import itertools
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from onnxgate.core.text import join_phrases, join_quoted, pluralize
from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.support.answers.operator_answers import (
    OperatorSupport,
    SupportAnswer,
    SupportSpan,
    SupportWay,
    TypeSupport,
    VersionSupport,
    join_spans,
    list_ranges,
)
from onnxgate.support.answers.type_names import shorten_type
from onnxgate.support.operators import PROBED_ENGINES

WAYS: dict[SupportWay, str] = {
    "kernel": "kernel",
    "converted": "supported",
    "function": "function body",
    "cast": "casts to float",
    "folded": "removed at load",
    "unknown": "not known",
    "none": "not supported",
}
"""How tables name each way in which releases run an operator."""
_PHRASES: dict[SupportWay, str] = {
    "kernel": "by a kernel",
    "function": "by its function body",
    "cast": "by a kernel between casts to float",
    "folded": "by removing the node while loading",
}
"""How sentences name each of them; an engine that converts operators supports all of them in that way."""
_ORIGINS = {
    "onnxruntime-web": "from the kernels of the ONNX Runtime releases with the same numbers, without those whose "
    "models {engine} refused ({releases}); kernels that no such model reaches are assumed"
}
"""Where the answers about an engine come from, unless its packages report it."""
_PROBED_ORIGIN = (
    "from models with one node that {engine} loaded or refused ({releases}); a release between two with the same "
    "result is assumed to have it"
)
_OLDEST_OPSET = 7
"""Oldest opset that ONNX Runtime supports fully; older ones are listed only on request."""
_MAX_CONTAINERS = 4
"""Maximum number of sequence types, and of optional types, that a row lists unless all details are requested."""


class Table(NamedTuple):
    """A table with a title; the texts of the last two columns are wrapped."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


class Page(NamedTuple):
    """An answer without layout."""

    sentences: list[str]
    tables: list[Table]
    advice: list[tuple[Literal["fix", "hint"], str]]
    notes: list[str]


def describe_operators(answer: SupportAnswer, *, verbose: bool) -> Page:
    """Return the page about the operators in an answer; with `verbose`, with the types at all opsets."""
    scope = Scope(answer)
    sentences: list[str] = []
    tables: list[Table] = []
    for operator in answer.operators:
        sentences.append(scope.summarize(operator))
        tables += scope.make_tables(operator, verbose=verbose)
    advice: list[tuple[Literal["fix", "hint"], str]] = []
    advice += [("hint", text) for it in answer.other_opsets if (text := scope.suggest_opsets(it))]
    if not verbose and any(len(operator.versions) > 1 for operator in answer.operators):
        has_types = any(version.fixed for operator in answer.operators for version in operator.versions)
        selection = "`--opset N` selects one" if has_types else "`--opset N` and `--type T` select one"
        advice.append(("hint", f"`-v` lists {'all opsets' if has_types else 'the types at all opsets'}; {selection}"))
    unexplained = next(filter(None, map(_find_unexplained_type, answer.operators)), "")
    if unexplained:
        advice.append(("hint", f"`--type {shlex.quote(unexplained)}` shows why its support is not known"))
    return Page(sentences, tables, advice, list_notes(answer))


def _find_unexplained_type(operator: OperatorSupport) -> str:
    """Return a type in the tables about an operator whose support is not known for a reason that they do not show."""
    version = _find_focus(operator)
    shown = {span.reason for span in version.spans}
    if version.fixed:
        return ""
    unknown = (it for it in version.types for span in it.spans if span.way == "unknown" and span.reason not in shown)
    return next((f"{it.parameter}={shorten_type(it.type)}" for it in unknown), "")


class Scope:
    """The releases that an answer is about, and how texts name ranges of them."""

    def __init__(self, answer: SupportAnswer) -> None:
        self._engine, self._releases, self._requirement = answer.engine, answer.releases, answer.requirement

    def name_range(self, since: str, until: str) -> str:
        """Return a range such as `1.18.0–1.21.1` or `since 1.18.0`."""
        if until == self._releases[-1] and not self._requirement:
            return f"since {since}"
        if since == until:
            return since
        return f"{since}–{until}"

    def name_ranges(self, spans: Sequence[SupportSpan]) -> str:
        """Return the ranges of releases in spans, such as `1.17.0–1.17.3 and since 1.19.0`."""
        return join_phrases([self.name_range(*it) for it in list_ranges(spans, self._releases)])

    def covers_all(self, spans: Sequence[SupportSpan]) -> bool:
        """Return whether the spans contain all releases."""
        return list_ranges(spans, self._releases) == [(self._releases[0], self._releases[-1])]

    def name_all(self, *, negated: bool = False) -> str:
        """Return all releases in words, such as `all 34 known releases (1.16.0–1.32.0)`; `negated`, after "not"."""
        first, last, count = self._releases[0], self._releases[-1], len(self._releases)
        if count == 1:
            return f"{self._engine} {first}"
        if count == 2:
            number = "either of the 2" if negated else "both"
        else:
            number = f"any of the {count}" if negated else f"all {count}"
        matching = f" that match `{self._requirement}`" if self._requirement else ""
        return f"{number} known releases of {self._engine}{matching} ({first}–{last})"

    def summarize(self, operator: OperatorSupport) -> str:
        """Return the answer about an operator in one sentence."""
        version = _find_focus(operator)
        within = f" in models with opset {operator.ai_onnx} of {DEFAULT_DOMAIN}" if operator.ai_onnx else ""
        subject = f"`{operator.label}`{_name_fixed_types(operator)}{within}"
        newest = self._judge(version.spans)
        last = operator.versions[-1]
        if len(operator.versions) == 1:
            end = f"{self._name_opset_limits(operator, version)}{self._name_limits(version)}"
            return f"{subject}{_name_at(version)} {newest}{end}"
        best = self._judge(operator.find_best_spans(self._releases))
        end = self._name_opset_limits(operator, version)
        end += self._name_limits(version)
        end += f"; it is deprecated since opset {last.first_opset}" if last.deprecated else ""
        supported = [it for it in operator.versions if it.is_supported]
        if not supported:
            is_refused = all(span.way == "none" for it in operator.versions for span in it.spans)
            return f"{subject} {best}{', at any opset' if is_refused else ''}{end}"
        if best == newest:
            opsets = _name_opset_range(supported[0].first_opset, supported[-1].last_opset)
            return f"{subject} {newest}, at opset {opsets}{end}"
        ways = {span.way for it in supported for span in it.spans if span.way != "none"}
        if len(ways) == 1:
            newest = self._locate([span for span in version.spans if span.way != "none"])
        else:
            newest = f"it {newest}"
        return f"{subject} {best}; at opset {_name_opsets(version)}, {newest}{end}"

    def _name_limits(self, version: VersionSupport) -> str:
        """Return what limits the support of a version, such as `, but not with … (2025.4.0–2026.2.1); …`."""
        supported = {span: span.reason.split("; ") for span in version.spans if span.is_supported}
        ordered = dict.fromkeys(it for found in sorted(supported.values(), key=len, reverse=True) for it in found if it)
        parts = []
        for reason in ordered:
            spans = [span for span, found in supported.items() if reason in found]
            parts.append(reason + (f" ({self.name_ranges(spans)})" if len(spans) < len(supported) else ""))
        return f", but {'; '.join(parts)}" if parts else ""

    def _name_opset_limits(self, operator: OperatorSupport, version: VersionSupport) -> str:
        """Return which releases do not accept all opsets of a version, such as ` (1.17.0–1.17.3: up to opset 20)`."""
        parts = []
        for limit, group in itertools.groupby(self._releases, key=operator.opset_limits.get):
            if limit is not None and version.first_opset <= limit < (version.last_opset or 0):
                releases = list(group)
                parts.append(f"{self.name_range(releases[0], releases[-1])}: up to opset {limit}")
        return f" ({'; '.join(parts)})" if parts else ""

    def suggest_opsets(self, operator: OperatorSupport) -> str:
        """Return the opsets at which releases support an operator, in one sentence; "" if there are none."""
        supported = [it for it in operator.versions if it.is_supported]
        if not supported:
            return ""
        opsets = _name_opset_range(supported[0].first_opset, supported[-1].last_opset)
        best = self._judge(operator.find_best_spans(self._releases))
        return f"at opset {opsets}, `{operator.label}` {best}"

    def _locate(self, spans: Sequence[SupportSpan]) -> str:
        """Return the releases of spans in words, such as `since 1.18.0` or `by 1.18.0–1.18.1`."""
        if self.covers_all(spans):
            return f"by {self.name_all()}"
        ranges = self.name_ranges(spans)
        return ranges if ranges.startswith("since") else f"by {ranges}"

    def _judge(self, spans: Sequence[SupportSpan]) -> str:
        """Return a verb phrase: which releases support something, and how."""
        supported = [span for span in spans if span.is_supported]
        unknown = [span for span in spans if span.way == "unknown"]
        if not supported:
            if unknown:
                return f"may be supported {self.name_by(unknown)}: {unknown[-1].reason}"
            reasons = {span.reason for span in spans}
            reason = "".join(f": {it}" for it in reasons if it and len(reasons) == 1)
            return f"is not supported by {self.name_all(negated=True)}{reason}"
        ways = list(dict.fromkeys(span.way for span in supported))
        verb = f"is supported {self.name_by(supported)}"
        maybe = f" and may be supported {self._place(unknown)} ({unknown[-1].reason})" if unknown else ""
        if len(ways) == 1:
            phrase = f", {_PHRASES[ways[0]]}" if ways[0] in _PHRASES else ""
            return f"{verb}{phrase}{',' if maybe and phrase else ''}{maybe}"
        by_way = [f"{_PHRASES[way]} {self._place(supported, way)}" for way in ways]
        return f"{verb}: {join_phrases(by_way)}{',' if maybe else ''}{maybe}"

    def name_by(self, spans: Sequence[SupportSpan]) -> str:
        """Return the releases of spans with the engine, such as `since onnxruntime 1.18.0`."""
        if self.covers_all(spans):
            return f"by {self.name_all()}"
        ranges = self.name_ranges(spans)
        return f"since {self._engine} {ranges[6:]}" if ranges.startswith("since ") else f"by {self._engine} {ranges}"

    def _place(self, spans: Sequence[SupportSpan], way: SupportWay | None = None) -> str:
        ranges = self.name_ranges([span for span in spans if way in (None, span.way)])
        return ranges if ranges.startswith("since") else f"on {ranges}"

    def make_tables(self, operator: OperatorSupport, *, verbose: bool) -> Iterator[Table]:
        """Yield the tables about an operator: types at the newest opset, refusals, and the other opsets."""
        focus = _find_focus(operator)
        label = operator.label
        shown = list(reversed(operator.versions)) if verbose else [focus]
        for version in shown:
            yield from self._make_version_tables(label, version, verbose=verbose)
        if verbose:
            return
        rows = []
        for (is_focus, cell), group in itertools.groupby(
            reversed(operator.versions), key=lambda it: (it is focus, self._describe_version(it))
        ):
            versions = list(group)
            first, last = versions[-1].first_opset, versions[0].last_opset
            if not is_focus and (last is None or last >= _OLDEST_OPSET):
                rows.append((_name_opset_range(first, last), cell))
        if rows:
            yield Table("other opsets", ("opset", "releases"), rows)

    def _make_version_tables(self, label: str, version: VersionSupport, *, verbose: bool) -> Iterator[Table]:
        counts = Counter(row.parameter for row in version.types)
        free = [it for it in version.types if it.parameter not in version.fixed and counts[it.parameter] > 1]
        if not version.fixed and not free:
            free = list(version.types)
        title = f"{label}{_name_at(version)}{' (deprecated)' if version.deprecated else ''}"
        is_refused = all(span.way == "none" for span in version.spans)
        has_conditions = any(span.reason for span in version.spans if span.way != "none")
        if free and not is_refused:
            yield self._make_type_table(title, free, verbose=verbose, has_names=bool(version.fixed))
            title = ""
        if version.fixed or (verbose and len(version.spans) > 1) or has_conditions or is_refused:
            rows = [
                (self.name_range(span.since, span.until), WAYS[span.way] + (f": {span.reason}" if span.reason else ""))
                for span in join_spans(version.spans, with_reasons=True)
            ]
            yield Table(title, ("releases", "support"), rows)

    def _describe_version(self, version: VersionSupport) -> str:
        return f"{self._list_ways(version.spans)}{' (deprecated)' if version.deprecated else ''}"

    def _make_type_table(self, title: str, types: Sequence[TypeSupport], *, verbose: bool, has_names: bool) -> Table:
        """Return a table of types; types with the same releases share a row, and equal parameters share rows."""
        cells: dict[str, dict[str, list[str]]] = {}  # parameter -> releases -> types
        for row in types:
            cells.setdefault(row.parameter, {}).setdefault(self._list_ways(row.spans), []).append(row.type)
        parameters: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for parameter, groups in cells.items():
            ordered = sorted(groups.items(), key=lambda group: group[0] == WAYS["none"])
            key = tuple(
                (", ".join(list_type_names(names, shorten=not verbose)), releases) for releases, names in ordered
            )
            parameters.setdefault(key, []).append(parameter)
        if len(cells) == 1 and not has_names:
            return Table(title, ("types", "releases"), [row for key in parameters for row in key])
        rows = [
            (", ".join(names) if not index else "", *row)
            for key, names in parameters.items()
            for index, row in enumerate(key)
        ]
        return Table(title, ("", "types", "releases"), rows)

    def _list_ways(self, spans: Sequence[SupportSpan]) -> str:
        """Return a cell such as `kernel since 1.18.0; function body 1.17.0–1.17.3`."""
        spans = join_spans(spans, with_reasons=False)
        parts = []
        for way in WAYS:
            own = [span for span in spans if span.way == way]
            if own and way != "none":
                everywhere = len(spans) == 1
                ranges = "on all releases" if everywhere and len(self._releases) > 1 else self.name_ranges(own)
                parts.append(f"{WAYS[way]} {ranges}")
        return "; ".join(parts) or WAYS["none"]


def _find_focus(operator: OperatorSupport) -> VersionSupport:
    """Return the newest version that a release supports; the newest version if there is none."""
    supported = [it for it in operator.versions if it.is_supported]
    return (supported or operator.versions)[-1]


def _name_fixed_types(operator: OperatorSupport) -> str:
    """Return the types in question with their parameters, such as ` with `V=int4` (before opset 14, `T=int4`)`."""
    groups = itertools.groupby(operator.versions, key=lambda version: version.fixed)
    *older, newest = [
        (join_quoted([f"{name}={shorten_type(it)}" for name, it in fixed.items()]), list(versions)[-1].last_opset)
        for fixed, versions in groups
    ]
    before = ", ".join(f"before opset {(last or 0) + 1}, {pairs}" for pairs, last in reversed(older))
    return f" with {newest[0]}{f' ({before})' if before else ''}" if newest[0] else ""


def _name_opsets(version: VersionSupport) -> str:
    return _name_opset_range(version.first_opset, version.last_opset)


def _name_at(version: VersionSupport) -> str:
    """Return ` at opset 20+`; "" for operators that exist in all opsets of their domain."""
    is_everywhere = (version.first_opset, version.last_opset) == (1, None)
    return "" if is_everywhere else f" at opset {_name_opsets(version)}"


def _name_opset_range(first: int, last: int | None) -> str:
    return f"{first}+" if last is None else str(first) if first == last else f"{first}–{last}"


def list_type_names(types: Sequence[str], *, shorten: bool) -> list[str]:
    """Return the names of types; with `shorten`, long lists of sequences and optionals are only counted."""
    names = [shorten_type(it) for it in types]
    for kind, prefix in (("sequence", "seq("), ("optional", "optional(")):
        own = [name for name in names if name.startswith(prefix)]
        if shorten and len(own) > _MAX_CONTAINERS:
            names = [*(name for name in names if name not in own), pluralize(len(own), f"{kind} type")]
    return names


def list_notes(answer: SupportAnswer) -> list[str]:
    """Return what an answer rests on, and what is not known."""
    first, last = answer.releases[0], answer.releases[-1]
    ends = first if first == last else f"{pluralize(len(answer.releases), 'release')}, {first}–{last}"
    is_probed = answer.engine in PROBED_ENGINES
    origin = _ORIGINS.get(answer.engine, _PROBED_ORIGIN if is_probed else "from the packages of {engine} ({releases})")
    others = "devices" if is_probed else "execution providers"
    notes = [
        f"{origin.format(engine=answer.engine, releases=f'{ends}, {answer.platform}')}; attribute values and shapes "
        f"are not considered (`onnxgate check MODEL` considers them); other {others} may differ"
    ]
    if answer.engine == "tract":
        notes.append("tract refuses many models although it supports each of their nodes")
    return notes
