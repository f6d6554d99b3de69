"""Write the output of `onnxgate support` as plain text or Markdown: the answer in one sentence, and tables."""

from __future__ import annotations

import itertools
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from onnxgate.core.escape import escape_markdown, neutralize_commands
from onnxgate.core.text import join_phrases, join_quoted, pluralize
from onnxgate.formats.markdown import render_row
from onnxgate.formats.text import Column, Terminal
from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.support.answers import (
    ChangeKind,
    OperatorSupport,
    ReleaseDifference,
    ReleaseSupport,
    SupportAnswer,
    SupportSpan,
    SupportWay,
    TypeSupport,
    VersionSupport,
)

WAYS: dict[SupportWay, str] = {
    "kernel": "kernel",
    "function": "function body",
    "cast": "kernel, with casts to float",
    "folded": "removed",
    "unknown": "not known",
    "none": "not supported",
}
"""How tables name each way in which releases run an operator."""
_PHRASES: dict[SupportWay, str] = {
    "kernel": "by a kernel",
    "function": "by its function body",
    "cast": "by a kernel between casts to float",
    "folded": "by removing the node",
}
_OLDEST_OPSET = 7
"""Oldest opset that ONNX Runtime supports fully; older ones are listed only on request."""
_TENSOR = re.compile(r"(?<![a-z_])tensor\(([a-z0-9]+)\)")
_MIN_TYPES_WIDTH = 24
_LAYOUTS = {
    "outside": "a folder outside the model's",
    "link": "a link to a file outside the folder",
    "linked_model": "a folder in which model and data are links",
    "absolute": "an absolute path",
}
_CHANGE_TITLES: dict[ChangeKind, str] = {
    "added": "new operators",
    "removed": "removed operators",
    "changed": "changed operators",
}
NOT_CONSIDERED = "attribute values and shapes are not considered"


class _Table(NamedTuple):
    """A table with a title; the texts of the last two columns are wrapped."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]


class _Page(NamedTuple):
    """An answer without layout."""

    sentences: list[str]
    tables: list[_Table]
    advice: list[tuple[Literal["fix", "hint"], str]]
    notes: list[str]


def format_text(
    answer: SupportAnswer, *, color: bool = False, width: int = 0, quiet: bool = False, verbose: bool = False
) -> str:
    """Render an answer as plain text.

    `width` is the terminal width; with 0, lines are not wrapped. With `quiet`, render only the sentence; with
    `verbose`, all opsets and the packages from which the answer comes.
    """
    paper, page = Terminal(color, width), _make_page(answer, verbose=verbose)
    lines: list[str] = []
    for sentence in page.sentences:
        lines += paper.wrapped(sentence, 0, own=True)
    for table in () if quiet else page.tables:
        lines += ["", *([paper.ink(table.title, "heading")] if table.title else ()), *_render_table(table, paper)]
    if not quiet:
        lines += [""] if page.advice else []
        for label, text in page.advice:
            lines += paper.wrapped(text, 0, f"{label}: ")
        lines += [""] if page.notes else []
        for note in page.notes:
            lines += paper.wrapped(note, 0, style="quiet", own=True)
    return "\n".join(neutralize_commands(line) for line in lines) + "\n"


def format_markdown(answer: SupportAnswer) -> str:
    """Render an answer as Markdown, without a heading."""
    page = _make_page(answer, verbose=False)
    lines = []
    for sentence in page.sentences:
        lines += [f"**{escape_markdown(sentence)}**", ""]
    for table in page.tables:
        lines += [f"{escape_markdown(table.title)}:", ""] if table.title else []
        lines += [f"| {' | '.join(table.heads)} |", "|---" * len(table.heads) + "|"]
        lines += [render_row(escape_markdown(row[0]), [*map(escape_markdown, row[1:])]) for row in table.rows]
        lines.append("")
    lines += [f"- {label}: {escape_markdown(text)}" for label, text in page.advice]
    lines += ["", *map(escape_markdown, page.notes)]
    return "\n".join(neutralize_commands(line) for line in lines).strip("\n") + "\n"


def _render_table(table: _Table, paper: Terminal) -> Iterator[str]:
    columns = list(zip(*(table.heads, *table.rows), strict=True))
    widths = [max(map(len, column)) for column in columns]
    if paper.width and len(columns) > 1:
        free = paper.width - sum(widths[:-2]) - 2 * (len(widths) - 1)
        if widths[-2] + widths[-1] > free:
            widths[-2] = min(widths[-2], max(_MIN_TYPES_WIDTH, free - widths[-1]))
            widths[-1] = max(free - widths[-2], _MIN_TYPES_WIDTH)
    cells: list[tuple[str, ...]] = []
    for row in table.rows:
        wrapped = [textwrap.wrap(text, width) or [""] for text, width in zip(row, widths, strict=True)]
        cells += itertools.zip_longest(*wrapped, fillvalue="")
    by_column = list(zip(*cells, strict=True)) or [()] * len(columns)
    yield from paper.table([Column("", head, texts) for head, texts in zip(table.heads, by_column, strict=True)], {})


def _make_page(answer: SupportAnswer, *, verbose: bool) -> _Page:
    if answer.newest is not None:
        return _describe_newest(answer)
    if answer.difference is not None:
        page = _describe_difference(answer.engine, answer.difference)
    elif answer.operators:
        page = _describe_operators(answer, verbose=verbose)
    else:
        page = _describe_releases(answer)
    if verbose:
        rows = [(source.release, source.file, source.sha256) for source in answer.sources]
        page.tables.append(_Table("packages", ("release", "file", "sha256"), rows))
    return page


def _describe_operators(answer: SupportAnswer, *, verbose: bool) -> _Page:
    scope = _Scope(answer)
    sentences, tables = [], []
    is_fixed = any(len(version.types) == 1 for operator in answer.operators for version in operator.versions)
    del is_fixed
    for operator in answer.operators:
        sentences.append(scope.summarize(operator))
        tables += scope.make_tables(operator, verbose=verbose)
    advice: list[tuple[Literal["fix", "hint"], str]] = []
    if not verbose and any(len(operator.versions) > 1 for operator in answer.operators):
        advice.append(("hint", "`-v` lists the types at all opsets; `--opset N` and `--type T` ask about one"))
    return _Page(sentences, tables, advice, _list_notes(answer))


def _list_notes(answer: SupportAnswer) -> list[str]:
    first, last = answer.releases[0], answer.releases[-1]
    count = pluralize(len(answer.releases), "release")
    ends = first if first == last else f"{first}–{last}"
    return [
        f"from the CPU packages of {count} ({ends}, {answer.platform}); {NOT_CONSIDERED}; other execution providers and "
        "platforms are not known"
    ]


class _Scope:
    """The releases that an answer is about, and how texts name ranges of them."""

    def __init__(self, answer: SupportAnswer) -> None:
        self._engine, self._releases, self._requirement = answer.engine, answer.releases, answer.requirement

    def name_range(self, since: str, until: str) -> str:
        """Return a range such as `1.18.0–1.21.1` or `since 1.18.0`."""
        if since == until:
            return since
        if until == self._releases[-1] and not self._requirement:
            return f"since {since}"
        return f"{since}–{until}"

    def name_ranges(self, spans: Sequence[SupportSpan]) -> str:
        """Return consecutive spans as one range, and join the ranges: `1.17.0–1.17.3 and since 1.19.0`."""
        ranges: list[tuple[str, str]] = []
        for span in spans:
            follows = ranges and self._releases.index(ranges[-1][1]) + 1 == self._releases.index(span.since)
            if follows:
                ranges[-1] = ranges[-1][0], span.until
            else:
                ranges.append((span.since, span.until))
        return join_phrases([self.name_range(*it) for it in ranges])

    def covers_all(self, spans: Sequence[SupportSpan]) -> bool:
        """Return whether the spans contain all releases."""
        count = sum(self._releases.index(it.until) - self._releases.index(it.since) + 1 for it in spans)
        return count == len(self._releases)

    @property
    def all_releases(self) -> str:
        """All releases in words, such as `all 34 known releases (1.16.0–1.32.0)`."""
        first, last = self._releases[0], self._releases[-1]
        if first == last:
            return f"{self._engine} {first}"
        matching = f" that match `{self._requirement}`" if self._requirement else ""
        return f"all {len(self._releases)} known releases of {self._engine}{matching} ({first}–{last})"

    def summarize(self, operator: OperatorSupport) -> str:
        """Return the answer about an operator in one sentence."""
        version = _find_focus(operator)
        subject = _name_operator(operator)
        is_single = len(operator.versions) == 1
        opset = f" at opset {_name_opsets(version)}" if operator.domain == DEFAULT_DOMAIN else ""
        fixed = [it for it in version.types if _is_fixed(it, version)]
        types = f" with {join_quoted(f'{it.parameter}={_shorten(it.type)}' for it in fixed)}" if fixed else ""
        newest = self._judge(version.spans)
        if is_single:
            return f"`{subject}`{opset}{types} {newest}"
        best = self._judge(_find_best_spans(operator, self._releases))
        if best == newest:
            return f"`{subject}`{types} {newest}, at opset {_name_all_opsets(operator)}"
        return (
            f"`{subject}`{types} {best}{'' if best == newest else f'; at opset {_name_opsets(version)}, it {newest}'}"
        )

    def _judge(self, spans: Sequence[SupportSpan]) -> str:
        """Return a verb phrase: which releases support something, and how."""
        supported = [span for span in spans if span.way not in ("none", "unknown")]
        unknown = [span for span in spans if span.way == "unknown"]
        if not supported:
            if unknown:
                return f"may be supported: {unknown[-1].reason}"
            reasons = {span.reason for span in spans}
            reason = f": {reasons.pop()}" if len(reasons) == 1 else ""
            negated = self.all_releases.replace("all ", "any of the ", 1)
            return f"is not supported by {negated}{reason}"
        ways = list(dict.fromkeys(span.way for span in supported))
        where = self.all_releases if self.covers_all(supported) else f"{self._engine} {self.name_ranges(supported)}"
        is_since = where.startswith(f"{self._engine} since ")
        verb = "is supported since " if is_since else "is supported by "
        where = where.replace(f"{self._engine} since ", f"{self._engine} ", 1) if is_since else where
        if len(ways) == 1:
            condition = f" {supported[-1].reason}" if ways[0] == "folded" and supported[-1].reason else ""
            return f"{verb}{where}, {_PHRASES[ways[0]]}{condition}"
        by_way = [f"{_PHRASES[way]} {self._place(supported, way)}" for way in ways]
        return f"{verb}{where}: {join_phrases(by_way)}"

    def _place(self, spans: Sequence[SupportSpan], way: SupportWay) -> str:
        ranges = self.name_ranges([span for span in spans if span.way == way])
        return ranges if ranges.startswith("since") else f"on {ranges}"

    def make_tables(self, operator: OperatorSupport, *, verbose: bool) -> Iterator[_Table]:
        """Yield the tables about an operator: types at the newest opset, refusals, and the other opsets."""
        focus = _find_focus(operator)
        label = _name_operator(operator)
        shown = list(reversed(operator.versions)) if verbose else [focus]
        for version in shown:
            yield from self._make_version_tables(label, version, is_only=len(operator.versions) == 1)
        others = [it for it in reversed(operator.versions) if it is not focus]
        if not verbose:
            others = [it for it in others if it.last_opset is None or it.last_opset >= _OLDEST_OPSET]
        if others and not verbose:
            rows = []
            for cell, group in itertools.groupby(others, key=lambda it: self._list_ways(it.spans)):
                versions = list(group)
                first, last = versions[-1].first_opset, versions[0].last_opset
                rows.append((_name_opset_range(first, last), cell))
            yield _Table("other opsets", ("opset", "releases"), rows)

    def _make_version_tables(self, label: str, version: VersionSupport, *, is_only: bool) -> Iterator[_Table]:
        fixed = [it for it in version.types if _is_fixed(it, version)]
        free = [it for it in version.types if it not in fixed]
        title = f"{label} at opset {_name_opsets(version)}{' (deprecated)' if version.deprecated else ''}"
        if free and not version.deprecated:
            yield self._make_type_table(title, free)
            title = ""
        refused = [span for span in version.spans if span.way in ("none", "unknown") or span.reason]
        if fixed or (refused and is_only) or version.deprecated:
            rows = [
                (self.name_range(span.since, span.until), WAYS[span.way] + (f": {span.reason}" if span.reason else ""))
                for span in _merge_spans(version.spans, with_reasons=True)
            ]
            yield _Table(title, ("releases", "support"), rows)

    def _make_type_table(self, title: str, types: Sequence[TypeSupport]) -> _Table:
        groups: dict[tuple[tuple[str, ...], str], list[str]] = {}
        by_parameter: dict[str, dict[str, list[str]]] = {}
        for row in types:
            by_parameter.setdefault(row.parameter, {}).setdefault(self._list_ways(row.spans), []).append(
                _shorten(row.type)
            )
        merged: dict[tuple[tuple[str, tuple[str, ...]], ...], list[str]] = {}
        for parameter, cells in by_parameter.items():
            key = tuple((cell, tuple(names)) for cell, names in cells.items())
            merged.setdefault(key, []).append(parameter)
        del groups
        rows = []
        for key, parameters in merged.items():
            for index, (cell, names) in enumerate(key):
                rows.append((", ".join(parameters) if not index else "", ", ".join(names), cell))
        if len(merged) == 1 and len(by_parameter) == 1:
            return _Table(title, ("types", "releases"), [row[1:] for row in rows])
        return _Table(title, ("", "types", "releases"), rows)

    def _list_ways(self, spans: Sequence[SupportSpan]) -> str:
        """Return a cell such as `kernel since 1.18.0; function body 1.17.0–1.17.3`."""
        spans = _merge_spans(spans, with_reasons=False)
        parts = []
        for way in WAYS:
            own = [span for span in spans if span.way == way]
            if own and way != "none":
                everywhere = len(spans) == 1
                ranges = "on all releases" if everywhere and len(self._releases) > 1 else self.name_ranges(own)
                parts.append(f"{WAYS[way]} {ranges}")
        return "; ".join(parts) or WAYS["none"]


def _merge_spans(spans: Iterable[SupportSpan], *, with_reasons: bool) -> list[SupportSpan]:
    """Join consecutive spans with the same way, and the same reason if this matters."""
    merged: list[SupportSpan] = []
    for _, group in itertools.groupby(spans, key=lambda it: (it.way, it.reason if with_reasons else "")):
        members = list(group)
        reason = members[-1].reason if with_reasons else ""
        merged.append(SupportSpan(members[0].since, members[-1].until, members[0].way, reason))
    return merged


def _find_focus(operator: OperatorSupport) -> VersionSupport:
    """Return the newest version that a release supports; the newest version if there is none."""
    supported = [it for it in operator.versions if any(span.way not in ("none", "unknown") for span in it.spans)]
    return (supported or operator.versions)[-1]


def _find_best_spans(operator: OperatorSupport, releases: Sequence[str]) -> list[SupportSpan]:
    """Return for each release the best way at any opset."""
    ranks: list[SupportWay] = ["kernel", "function", "cast", "folded", "unknown", "none"]
    best: dict[str, SupportSpan] = {}
    for version in operator.versions:
        for span in version.spans:
            for release in releases[releases.index(span.since) : releases.index(span.until) + 1]:
                before = best.get(release)
                if before is None or ranks.index(span.way) < ranks.index(before.way):
                    best[release] = SupportSpan(release, release, span.way, span.reason)
    return _merge_spans([best[release] for release in releases], with_reasons=False)


def _is_fixed(row: TypeSupport, version: VersionSupport) -> bool:
    """Return whether the question fixed the type of a parameter, so that its spans are those of the version."""
    same = [it for it in version.types if it.parameter == row.parameter]
    return len(same) == 1 and row.spans == version.spans and len(version.types) > 0


def _name_operator(operator: OperatorSupport) -> str:
    return operator.operator if operator.domain == DEFAULT_DOMAIN else f"{operator.domain}.{operator.operator}"


def _name_opsets(version: VersionSupport) -> str:
    return _name_opset_range(version.first_opset, version.last_opset)


def _name_all_opsets(operator: OperatorSupport) -> str:
    return _name_opset_range(operator.versions[0].first_opset, operator.versions[-1].last_opset)


def _name_opset_range(first: int, last: int | None) -> str:
    return f"{first}+" if last is None else str(first) if first == last else f"{first}–{last}"


def _shorten(value_type: str) -> str:
    """Return a type without `tensor(…)` around element types."""
    return _TENSOR.sub(r"\1", value_type)


def _describe_releases(answer: SupportAnswer) -> _Page:
    described = answer.described
    if len(described) == 1:
        return _describe_release(answer.engine, described[0], answer)
    domains = [it for it in ("ai.onnx", "ai.onnx.ml") if any(it in row.opsets for row in described)]
    rows = []
    for row in described:
        counts = row.operators or {}
        opsets = [str(row.opsets.get(domain, "any")) for domain in domains]
        rows.append((row.release, str(row.ir_version or "any"), *opsets, str(sum(counts.values()) or "not known")))
    first, last = described[0].release, described[-1].release
    sentence = f"{pluralize(len(described), 'known release')} of {answer.engine}, {first}–{last}"
    heads = ("release", "IR", *(f"opset of {domain}" for domain in domains), "operators")
    hint = (
        f"`onnxgate support --runtime '{answer.requirement or answer.engine}' --opset` names the versions to export at"
    )
    return _Page([sentence], [_Table("", heads, rows)], [("hint", hint)], [])


def _describe_release(engine: str, release: ReleaseSupport, answer: SupportAnswer) -> _Page:
    opset = release.opsets.get(DEFAULT_DOMAIN)
    versions = [f"IR version {release.ir_version}" if release.ir_version else "any IR version"]
    versions.append(f"opset {opset} of {DEFAULT_DOMAIN}" if opset else f"any opset of {DEFAULT_DOMAIN}")
    sentence = f"{engine} {release.release} accepts models up to {' and '.join(versions)}"
    counts = release.operators or {}
    domains = dict.fromkeys((*release.opsets, *counts))
    rows = [
        (domain, str(release.opsets.get(domain, "any")), str(counts[domain]) if domain in counts else "")
        for domain in domains
        if domain in counts or (not counts and domain in release.opsets)
    ]
    tables = [_Table("", ("domain", "newest opset", "operators with a kernel"), rows)]
    if release.external_data is not None:
        places = [("the model's folder", "yes")]
        places += [(_LAYOUTS[name], "yes" if reads else "no") for name, reads in release.external_data.items()]
        tables.append(_Table("", ("external data in", "is read"), places))
    advice: list[tuple[Literal["fix", "hint"], str]] = []
    for domain, newest in release.unreleased_opsets.items():
        text = f"opset {newest} of {domain} is accepted only with ALLOW_RELEASED_ONNX_OPSET_ONLY=0"
        advice.append(("hint", text))
    if release.operators is None:
        advice.append(("hint", "the operators of this release are not known; kernels are known since 1.16.0"))
    return _Page([sentence], tables, advice, _list_notes(answer) if release.operators else [])


def _describe_newest(answer: SupportAnswer) -> _Page:
    assert answer.newest is not None
    newest, scope = answer.newest, _Scope(answer)
    opset = newest.opsets.get(DEFAULT_DOMAIN)
    parts = [f"opset {opset}"] if opset else []
    parts += [f"IR version {newest.ir_version}"] if newest.ir_version else []
    if not parts:
        return _Page([f"{scope.all_releases} accept any opset and IR version"], [], [], [])
    verb = "accept" if len(answer.releases) > 1 else "accepts"
    sentence = f"export at {' and '.join(parts)}: {scope.all_releases} {verb} them"
    public = {domain: version for domain, version in newest.opsets.items() if domain.startswith("ai.onnx")}
    rows = [(domain, str(version)) for domain, version in (public or newest.opsets).items()]
    requirement = answer.requirement or answer.engine
    advice: list[tuple[Literal["fix", "hint"], str]] = []
    if opset:
        advice.append(("fix", f'torch.onnx.export(model, args, "model.onnx", opset_version={opset})'))
    advice.append(
        ("hint", f"a type may still have no kernel: `onnxgate check model.onnx --target {shlex.quote(requirement)}`")
    )
    return _Page([sentence], [_Table("", ("domain", "newest opset"), rows)], advice, [])


def _describe_difference(engine: str, difference: ReleaseDifference) -> _Page:
    older, newer = difference.older, difference.newer
    by_kind: Mapping[ChangeKind, list[tuple[str, str]]] = {kind: [] for kind in _CHANGE_TITLES}
    counts = dict.fromkeys(_CHANGE_TITLES, 0)
    for change in difference.changes:
        by_kind[change.kind].append((", ".join(change.operators), "; ".join(change.details)))
        counts[change.kind] += len(change.operators)
    numbers = [f"{count} {kind}" for kind, count in counts.items() if count]
    sentence = f"from {engine} {older.release} to {newer.release}: " + (
        f"operators {join_phrases(numbers)}" if numbers else "no operator changed"
    )
    tables = []
    limits = list(_compare_limits(older, newer))
    if limits:
        tables.append(_Table("versions and external data", ("", older.release, newer.release), limits))
    for kind, title in _CHANGE_TITLES.items():
        if by_kind[kind]:
            tables.append(_Table(title, ("operators", "changes"), by_kind[kind]))
    legend = (
        "`kernel 13+` implements version 13 of the operator, `kernel 7-12` versions 7 to 12, with the types in parentheses; "
        "`schema` is a version's definition"
    )
    return _Page([sentence], tables, [], [legend] if numbers else [])


def _compare_limits(older: ReleaseSupport, newer: ReleaseSupport) -> Iterator[tuple[str, str, str]]:
    if older.ir_version != newer.ir_version:
        yield "IR version", str(older.ir_version), str(newer.ir_version)
    for domain in dict.fromkeys((*older.opsets, *newer.opsets)):
        before, after = older.opsets.get(domain, "any"), newer.opsets.get(domain, "any")
        if before != after and not domain.startswith("com.ms.internal"):
            yield f"opset of {domain}", str(before), str(after)
    for name, place in _LAYOUTS.items():
        reads = [None if it.external_data is None else it.external_data.get(name) for it in (older, newer)]
        if reads[0] != reads[1] and None not in reads:
            yield f"external data in {place}", *("read" if it else "refused" for it in reads)
