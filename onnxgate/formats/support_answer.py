"""Write the output of `onnxgate support` as plain text or Markdown: the answer in one sentence, and tables."""

from __future__ import annotations

import itertools
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from onnxgate.core.escape import escape_markdown, neutralize_commands
from onnxgate.core.text import join_phrases, pluralize
from onnxgate.formats.markdown import render_row
from onnxgate.formats.operator_support import (
    Page,
    Scope,
    Table,
    describe_operators,
    list_notes,
    list_type_names,
)
from onnxgate.formats.text import Column, Terminal
from onnxgate.model.facts import DEFAULT_DOMAIN, INTERNAL_DOMAINS
from onnxgate.support.answers.operator_answers import (
    ChangeKind,
    ReleaseDifference,
    ReleaseSupport,
    SupportAnswer,
    SupportSpan,
)
from onnxgate.support.operators import PROBED_ENGINES

_MAX_SOURCES = 4
"""Maximum number of packages that text lists."""
_MIN_WIDTH = 24
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
_LEGEND = {
    "kernel ": "`kernel 13+` implements version 13 of the operator, `kernel 7-12` versions 7 to 12",
    "schema ": "`schema` is the definition of a version",
    " for ": "`A for B`: A replaces B",
    " +": "`+` and `-`: added and removed types, attributes, inputs and outputs",
    "?": "`?`: optional",
    "…": "`…`: any number of them",
    "!": "`!`: required",
}
"""Meanings of marks in descriptions of changes."""


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


def format_markdown(answer: SupportAnswer, *, quiet: bool = False, verbose: bool = False) -> str:
    """Render an answer as Markdown, without a heading; `quiet` and `verbose` as in `format_text`."""
    page = _make_page(answer, verbose=verbose)
    lines = []
    for sentence in page.sentences:
        lines += [f"**{escape_markdown(sentence)}**", ""]
    for table in () if quiet else page.tables:
        lines += [f"{escape_markdown(table.title)}:", ""] if table.title else []
        lines += [f"| {' | '.join(table.heads)} |", "|---" * len(table.heads) + "|"]
        lines += [render_row(escape_markdown(row[0]), [*map(escape_markdown, row[1:])]) for row in table.rows]
        lines.append("")
    if not quiet:
        lines += [f"- {label}: {escape_markdown(text)}" for label, text in page.advice]
        lines += [""] if page.advice and page.notes else []
        lines += map(escape_markdown, page.notes)
    return "\n".join(neutralize_commands(line) for line in lines).strip("\n") + "\n"


def _render_table(table: Table, paper: Terminal) -> Iterator[str]:
    columns = list(zip(*(table.heads, *table.rows), strict=True))
    widths = [max(map(len, column)) for column in columns]
    if paper.width and len(columns) > 1:
        free = paper.width - sum(widths[:-2]) - 2 * (len(widths) - 1)
        words = [max(len(word) for text in column for word in text.split()) for column in columns]
        if widths[-2] + widths[-1] > free:
            widths[-2] = min(widths[-2], max(_MIN_WIDTH, words[-2], free - widths[-1]))
            widths[-1] = max(free - widths[-2], _MIN_WIDTH)
    cells: list[tuple[str, ...]] = []
    for row in table.rows:
        wrapped = [
            textwrap.wrap(text, width, break_on_hyphens=False) or [""] for text, width in zip(row, widths, strict=True)
        ]
        cells += itertools.zip_longest(*wrapped, fillvalue="")
    by_column = list(zip(*cells, strict=True)) or [()] * len(columns)
    yield from paper.table([Column("", head, texts) for head, texts in zip(table.heads, by_column, strict=True)], {})


def _make_page(answer: SupportAnswer, *, verbose: bool) -> Page:
    if answer.newest is not None:
        page = _describe_newest(answer, verbose=verbose)
    elif answer.difference is not None:
        page = _describe_difference(answer.engine, answer.difference)
    elif answer.operators:
        page = describe_operators(answer, verbose=verbose)
    else:
        page = _describe_releases(answer, verbose=verbose)
    if verbose and len(answer.sources) > _MAX_SOURCES:
        page.notes.append("`--output json` contains the packages with their digests")
    elif verbose and answer.sources:
        rows = [(source.release, f"{source.file} {source.digest}") for source in answer.sources]
        page.tables.append(Table("packages", ("release", "package"), rows))
    return page


def _describe_releases(answer: SupportAnswer, *, verbose: bool) -> Page:
    described = answer.described
    if answer.opset is not None or answer.ir_version is not None:
        return _describe_accepting_releases(answer, verbose=verbose)
    if len(described) == 1:
        return _describe_release(answer.engine, described[0], answer)
    first, last = described[0].release, described[-1].release
    sentence = f"{pluralize(len(described), 'known release')} of {answer.engine}, {first}–{last}"
    requirement = shlex.quote(answer.requirement or answer.engine)
    if any(row.ir_version or row.opsets for row in described):
        hint = f"`onnxgate support --runtime {requirement} --opset` shows the versions to export at"
    else:
        hint = f"`onnxgate support OPERATOR --runtime {requirement}` shows which of them support an operator"
    return Page([sentence], [_make_release_table(described, verbose=verbose)], [("hint", hint)], [])


def _make_release_table(described: Sequence[ReleaseSupport], *, verbose: bool = False) -> Table:
    """Return a table of versions; consecutive releases with the same versions share a row unless `verbose`."""
    domains = [it for it in ("ai.onnx", "ai.onnx.ml") if any(it in row.opsets for row in described)]
    heads = ("releases", "IR version", *(f"opset of {domain}" for domain in domains))

    def list_versions(row: ReleaseSupport) -> tuple[str, ...]:
        return str(row.ir_version or "any"), *(str(row.opsets.get(domain, "any")) for domain in domains)

    if verbose:
        counts = ("not known" if it.operators is None else str(sum(it.operators.values())) for it in described)
        rows = [(it.release, *list_versions(it), count) for it, count in zip(described, counts, strict=True)]
        return Table("", (*heads, "operators"), rows)
    groups = [(versions, list(members)) for versions, members in itertools.groupby(described, key=list_versions)]
    ends = [dict.fromkeys((members[0].release, members[-1].release)) for _, members in groups]
    return Table("", heads, [("–".join(names), *versions) for names, (versions, _) in zip(ends, groups, strict=True)])


def _describe_accepting_releases(answer: SupportAnswer, *, verbose: bool) -> Page:
    """Return which releases accept the IR version and the opset in question."""
    scope, versions = Scope(answer), (answer.ir_version, answer.opset)
    names = [f"{name} {version}" for name, version in zip(("IR version", "opset"), versions, strict=True) if version]
    subject = f"{join_phrases(names)} {'is' if len(names) == 1 else 'are'}"
    spans = [SupportSpan(it.release, it.release, "kernel") for it in answer.described if it.accepts(*versions)]
    if spans:
        sentence = f"{subject} accepted {scope.name_by(spans)}"
    else:
        sentence = f"{subject} not accepted by {scope.name_all(negated=True)}"
    unreleased = [
        SupportSpan(it.release, it.release, "none")
        for it in answer.described
        if it.accepts(answer.ir_version)
        and not it.accepts(*versions)
        and (answer.opset or 0) <= it.unreleased_opsets.get(DEFAULT_DOMAIN, 0)
    ]
    advice: list[tuple[Literal["fix", "hint"], str]] = []
    if unreleased:
        ranges = scope.name_ranges(unreleased)
        advice.append(("hint", f"with `ALLOW_RELEASED_ONNX_OPSET_ONLY=0`, {ranges} accept it as well"))
    return Page([sentence], [_make_release_table(answer.described, verbose=verbose)], advice, [])


def _describe_release(engine: str, release: ReleaseSupport, answer: SupportAnswer) -> Page:
    opset = release.opsets.get(DEFAULT_DOMAIN)
    versions = [f"IR version {release.ir_version}" if release.ir_version else "any IR version"]
    versions.append(f"opset {opset} of {DEFAULT_DOMAIN}" if opset else f"any opset of {DEFAULT_DOMAIN}")
    accepted = f"models up to {' and '.join(versions)}" if release.ir_version or opset else "any IR version and opset"
    sentence = f"{engine} {release.release} accepts {accepted}"
    counts = release.operators or {}
    public = [it for it in release.opsets if it.startswith(("ai.onnx", "com.microsoft")) and it not in INTERNAL_DOMAINS]
    heads = ("domain", "newest opset", "operators" if engine in PROBED_ENGINES else "operators with a kernel")
    rows = [
        (domain, str(release.opsets.get(domain, "any")), str(counts.get(domain, ""))) for domain in counts or public
    ]
    columns = len(heads) if counts else 2
    tables = [Table("", heads[:columns], [row[:columns] for row in rows])]
    if release.external_data is not None:
        places = [("the model's folder", "yes")]
        places += [(_LAYOUTS[name], "yes" if reads else "no") for name, reads in release.external_data.items()]
        tables.append(Table("", ("external data in", "is read"), places))
    if release.refused_interface_types:
        refused = ", ".join(list_type_names(release.refused_interface_types, shorten=True))
        tables.append(Table("", ("values", "refused types"), [("inputs and outputs of the model", refused)]))
    advice: list[tuple[Literal["fix", "hint"], str]] = []
    for domain, newest in release.unreleased_opsets.items():
        text = f"opset {newest} of {domain} is accepted only with `ALLOW_RELEASED_ONNX_OPSET_ONLY=0`"
        advice.append(("hint", text))
    if release.operators is None:
        advice.append(("hint", "the operators of this release are not known; kernels are known since 1.16.0"))
    return Page([sentence], tables, advice, list_notes(answer) if release.operators else [])


def _describe_newest(answer: SupportAnswer, *, verbose: bool) -> Page:
    assert answer.newest is not None
    newest, scope = answer.newest, Scope(answer)
    opset = newest.opsets.get(DEFAULT_DOMAIN)
    parts = [f"opset {opset}"] if opset else []
    parts += [f"IR version {newest.ir_version}"] if newest.ir_version else []
    if not parts:
        return Page([f"{scope.name_all()} accept any opset and IR version"], [], [], [])
    verb = "accept" if len(answer.releases) > 1 else "accepts"
    sentence = f"export at {' and '.join(parts)}: {scope.name_all()} {verb} them"
    requirement = answer.requirement or answer.engine
    advice: list[tuple[Literal["fix", "hint"], str]] = []
    if opset:
        advice.append(("fix", f'`torch.onnx.export(model, args, "model.onnx", opset_version={opset})`'))
    advice.append(
        ("hint", f"a type may still have no kernel: `onnxgate check model.onnx --target {shlex.quote(requirement)}`")
    )
    return Page([sentence], [_make_release_table(answer.described, verbose=verbose)], advice, [])


def _describe_difference(engine: str, difference: ReleaseDifference) -> Page:
    older, newer = difference.older, difference.newer
    by_kind: Mapping[ChangeKind, list[tuple[str, str]]] = {kind: [] for kind in _CHANGE_TITLES}
    counts = dict.fromkeys(_CHANGE_TITLES, 0)
    for change in difference.changes:
        by_kind[change.kind].append((", ".join(change.operators), "; ".join(change.details)))
        counts[change.kind] += len(change.operators)
    numbers = [f"{pluralize(count, 'operator')} {kind}" for kind, count in counts.items() if count]
    unchanged = f"`{difference.operator}` did not change" if difference.operator else "no operator changed"
    summary = join_phrases(numbers) or unchanged
    sentence = f"from {engine} {older.release} to {newer.release}: {summary}"
    tables = []
    limits = list(_compare_limits(older, newer))
    if limits:
        tables.append(Table("limits", ("", older.release, newer.release), limits))
    for kind, title in _CHANGE_TITLES.items():
        if by_kind[kind]:
            tables.append(Table(title, ("operators", "changes"), by_kind[kind]))
    details = " ".join(detail for change in difference.changes for detail in change.details)
    legend = "; ".join(meaning for mark, meaning in _LEGEND.items() if mark in details)
    return Page([sentence], tables, [], [legend] if legend else [])


def _compare_limits(older: ReleaseSupport, newer: ReleaseSupport) -> Iterator[tuple[str, str, str]]:
    if older.ir_version != newer.ir_version:
        yield "IR version", str(older.ir_version), str(newer.ir_version)
    for domain in dict.fromkeys((*older.opsets, *newer.opsets)):
        # a release with limits lists all of its domains
        before, after = (str(it.opsets.get(domain, "none" if it.opsets else "any")) for it in (older, newer))
        if before != after and domain not in INTERNAL_DOMAINS:
            yield f"opset of {domain}", before, after
    for name, place in _LAYOUTS.items():
        reads = [None if it.external_data is None else it.external_data.get(name) for it in (older, newer)]
        if reads[0] != reads[1] and None not in reads:
            before, after = ("read" if it else "refused" for it in reads)
            yield f"external data in {place}", before, after
    refused = [it.refused_interface_types for it in (older, newer)]
    changes = (refused[0], refused[1], "refused", "accepted"), (refused[1], refused[0], "accepted", "refused")
    for types, others, before, after in changes:
        for name in list_type_names([it for it in types if it not in others], shorten=True):
            yield f"inputs and outputs of {name}", before, after
