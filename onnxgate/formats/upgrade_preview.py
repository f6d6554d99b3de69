"""Write the preview of a lock upgrade (`onnxgate lock --upgrade --preview`) as plain text or Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnxgate.core.escape import escape_markdown, escape_unprintable, markdown_code, neutralize_commands, quote_name
from onnxgate.core.findings import name_runtimes, runtime_sort_key
from onnxgate.core.report import AddedRuntime, Finding, Measured, Preview
from onnxgate.core.text import pluralize, truncate
from onnxgate.formats import text, wording
from onnxgate.formats.markdown import (
    LEVEL_MARKS,
    VERDICT_MARKS,
    Page,
    join_parts,
    link_rule,
    render_finding,
    render_folded,
    render_heads,
    render_legend,
    render_words,
    split_fitting,
)
from onnxgate.formats.table_columns import join_columns, list_words
from onnxgate.formats.text import Column, Terminal

NO_CHANGES = "no changes; the lock already has the newest releases that the config allows"


def format(
    preview: Preview,
    command: str = "onnxgate lock --upgrade",
    *,
    color: bool = False,
    width: int = 0,
    quiet: bool = False,
) -> str:
    """Render the changes to the lock, their effect on each model, and the verdict of `check` after the upgrade.

    `command` is the command that writes the new lock.
    """
    paper = Terminal(color, width)
    lines: list[str] = []
    if not quiet:
        for section in (
            [paper.ink("changes to the lock" if preview.pins else "no changes to the lock", "heading")],
            *(paper.wrapped(pin, 2) for pin in preview.pins),
            [""],
            _render_findings("new findings", preview.breaks, paper),
            _render_findings("resolved findings", preview.repairs, paper),
            _render_findings("unchanged findings", preview.remains, paper),
            _render_table(preview, paper),
            _render_outputs(preview, paper),
            _render_undecided(preview, paper),
        ):
            lines += section
    lines += [
        f"after the upgrade: {text.render_verdict(preview.after, color=color)}",
        _render_tally(preview, command),
        "",
    ]
    return "\n".join(neutralize_commands(line) for line in lines)


def _render_findings(title: str, findings: Sequence[Finding], paper: Terminal) -> Iterator[str]:
    if not findings:
        return
    yield paper.ink(title, "heading")
    for finding in findings:
        level = paper.ink(finding.level, finding.level)
        subject = escape_unprintable(truncate(wording.finding_subject(finding)))
        yield f"  {level} {paper.ink(finding.rule, 'heading')} {subject}"
        yield from paper.wrapped(wording.render_message(finding), 4)
        if finding.fix:
            yield from paper.wrapped(finding.fix, 4, "fix: ")
    yield ""


def _render_table(preview: Preview, paper: Terminal) -> Iterator[str]:
    models = sorted({arrival.model for arrival in preview.arrivals})
    runtimes = sorted({arrival.runtime for arrival in preview.arrivals}, key=runtime_sort_key)
    if not models:
        return
    states = {(it.model, it.runtime): text.STATE_WORDS.get(it.state, it.state) for it in preview.arrivals}
    columns = [Column("", "", [quote_name(truncate(model)) for model in models])]
    for runtime in runtimes:
        engine, _, release = runtime.partition(" ")
        columns.append(Column(engine, release, [states.get((model, runtime), "–") for model in models]))
    yield from paper.table(columns, text.STYLES)
    yield ""


def _render_outputs(preview: Preview, paper: Terminal) -> Iterator[str]:
    for model in sorted({arrival.model for arrival in preview.arrivals}):
        yield paper.ink(quote_name(truncate(model)), "heading")
        for sentence, runtimes in _group_differences(preview, model):
            yield from paper.wrapped(f"{runtimes}: {sentence}", 2)
        yield ""


def _group_differences(preview: Preview, model: str) -> Iterator[tuple[str, str]]:
    """Yield each sentence about the outputs of one model, and the names of the runtimes that it is about."""
    added = [arrival.runtime for arrival in preview.arrivals]
    groups: dict[str, list[str]] = {}
    for arrival in preview.arrivals:
        for sentence in _describe_differences(arrival) if arrival.model == model else ():
            groups.setdefault(sentence, []).append(arrival.runtime)
    yield from ((sentence, name_runtimes(runtimes, added)) for sentence, runtimes in groups.items())


def _describe_differences(arrival: AddedRuntime) -> list[str]:
    if arrival.unlike:
        return [f"outputs were not compared: {arrival.unlike}"]
    differences = [
        f"{_describe_difference(output)} (compared with {arrival.before})"
        for output in arrival.outputs
        if output.value != (None if output.metric in wording.RATIO_METRICS else 0)
    ]
    return differences or [f"outputs are bit-identical to {arrival.before}"]


def _describe_difference(row: Measured) -> str:
    output = f"`{truncate(row.output)}`"
    if row.value is None or row.bound is None:
        return f"{output}: the difference is not finite"
    if row.metric in wording.RATIO_METRICS:
        actual, needed = (wording.RATIO_METRICS[row.metric].format(value) for value in (row.value, row.bound))
        return f"{output}: {actual}, minimum {needed}"
    if row.metric != "worst_abs":
        return f"{output}: {row.metric} differs"
    return f"{output}: max difference {row.value:.2g}, tolerance {row.bound:.2g}"


def _render_undecided(preview: Preview, paper: Terminal) -> Iterator[str]:
    gaps = wording.merge_gaps((*preview.undecided, *preview.after.undecided))
    if not gaps:
        return
    yield paper.ink("undecided", "heading")
    for gap in gaps:
        yield from paper.wrapped(f"{gap.about(preview.after)}: {gap.reason}", 2)
        if gap.hint:
            yield from paper.wrapped(gap.hint, 4, "hint: ")
    yield ""


def _render_tally(preview: Preview, command: str) -> str:
    is_incomplete = bool(preview.arrivals and preview.after.undecided)
    parts = [
        pluralize(len(preview.breaks), "new finding") if preview.breaks else "no new findings",
        f"{len(preview.repairs)} resolved" if preview.repairs else "",
        f"{pluralize(len(preview.beyond), 'output')} beyond tolerance" if preview.beyond else "",
        "some checks were undecided" if is_incomplete else "",
    ]
    write_hint = f"; run `{escape_unprintable(command)}` to upgrade" if preview.pins else ""
    return f"preview: {', '.join(part for part in parts if part)}; the lock was not changed{write_hint}"


# 60,000 bytes at most in total: GitHub rejects the description of a pull request with more than 65,536 characters.
PINS_PAGE = Page(max_bytes=6_000, longest=500)
NEW_FINDINGS_PAGE = Page(max_bytes=18_000, longest=500)
SECTION_PAGE = Page(max_bytes=6_000, longest=500)
"""Size limits of the sections in Markdown; the last one is for each of five sections."""


def format_markdown(preview: Preview | None, command: str = "onnxgate lock --upgrade") -> str:
    """Render the preview as Markdown with at most 60,000 bytes; None is an upgrade that changes nothing.

    `command` is the command that writes the new lock. If entries are omitted, their number is shown.
    """
    if preview is None:
        return f"No changes: {NO_CHANGES.partition('; ')[2]}.\n"
    pins = [f"- {escape_markdown(truncate(pin, PINS_PAGE.longest))}" for pin in preview.pins]
    return join_parts(
        [
            _summarize_preview(preview),
            ["\n### Changes to the lock\n", *_fit(pins, PINS_PAGE)] if pins else [],
            _render_markdown_table(preview),
            _render_new_findings(preview.breaks),
            _render_resolved_findings(preview.repairs),
            _render_markdown_gaps(preview),
            _fold("Outputs compared with the locked releases", _list_output_changes(preview)),
            _fold(
                pluralize(len(preview.remains), "unchanged finding"),
                [render_finding(finding, SECTION_PAGE) for finding in preview.remains],
            ),
            [f"\nTo upgrade by hand, run {markdown_code(truncate(command))}.\n"] if pins else [],
        ]
    )


def _fit(blocks: Iterable[str], page: Page) -> Iterator[str]:
    shown, left_out = split_fitting(blocks, page)
    yield from shown
    if left_out:
        yield f"\n… and {left_out} more; `onnxgate lock --upgrade --preview` prints all\n"


def _fold(title: str, blocks: Sequence[str]) -> Iterator[str]:
    return render_folded(title, list(_fit(blocks, SECTION_PAGE)), Page())


def _summarize_preview(preview: Preview) -> Iterator[str]:
    """Yield what a reader must know first: the verdict after the upgrade, and the number of findings by rule."""
    verdict = preview.after.verdict
    yield f"After the upgrade, the verdict of `onnxgate check` is {VERDICT_MARKS[verdict]} **{verdict}**.\n"
    if preview.breaks:
        count = pluralize(len(preview.breaks), "new finding")
        yield f"- {_mark(preview.breaks)} **{count}:** {_link_rules(preview.breaks)}"
    if preview.beyond:
        count = pluralize(len(preview.beyond), "output")
        yield f"- {LEVEL_MARKS['error']} **{count}** changed by more than the tolerance"
    gaps = wording.merge_gaps((*preview.undecided, *preview.after.undecided))
    if gaps:
        yield f"- {VERDICT_MARKS['undecided']} **{len(gaps)} undecided:** could not be checked"
    if preview.repairs:
        count = pluralize(len(preview.repairs), "resolved finding")
        yield f"- {VERDICT_MARKS['pass']} **{count}:** {_link_rules(preview.repairs)}"
    if not (preview.breaks or preview.beyond or gaps):
        yield f"- {VERDICT_MARKS['pass']} no new findings"


def _link_rules(findings: Sequence[Finding]) -> str:
    rules = list(dict.fromkeys(finding.rule for finding in findings))
    more = [f"{len(rules) - wording.MAX_COUNTED_RULES} more rules"] if len(rules) > wording.MAX_COUNTED_RULES else []
    return ", ".join([*map(link_rule, rules[: wording.MAX_COUNTED_RULES]), *more])


def _render_markdown_table(preview: Preview) -> Iterator[str]:
    """Yield the results of each model on the runtimes that the upgrade adds, as a Markdown table."""
    models = sorted({arrival.model for arrival in preview.arrivals})
    runtimes = sorted({arrival.runtime for arrival in preview.arrivals}, key=runtime_sort_key)
    if not models:
        return
    words = {(it.model, it.runtime): wording.STATE_WORDS[it.state] for it in preview.arrivals}
    missing = wording.STATE_WORDS["not selected"]
    columns = join_columns(
        runtimes, {runtime: [words.get((model, runtime), missing) for model in models] for runtime in runtimes}
    )
    yield "\n### Models on the new releases\n"
    heads = list(render_heads(columns, SECTION_PAGE))
    if sum(len(line.encode()) for line in heads) > SECTION_PAGE.max_bytes // 2:
        yield f"{pluralize(len(runtimes), 'runtime')}: the table is too wide for this page\n"
        return
    rows = zip(models, zip(*(column.cells for column in columns), strict=True), strict=True)
    lines = (f"{render_words(model, cells)} {_describe_effect(preview, model)} |" for model, cells in rows)
    shown, left_out = split_fitting(lines, SECTION_PAGE)
    yield from (f"{heads[0]} effect |", f"{heads[1]} --- |", *shown, "")
    yield from render_legend(list_words(columns))
    if left_out:
        yield f"… and {pluralize(left_out, 'more model')}\n"


def _describe_effect(preview: Preview, model: str) -> str:
    """Return whether the upgrade breaks or repairs the model; "" if neither."""
    if any(finding.model == model and finding.level == "error" for finding in preview.breaks):
        return f"{LEVEL_MARKS['error']} breaks"
    states = {arrival.state for arrival in preview.arrivals if arrival.model == model}
    is_repaired = any(finding.model == model and finding.level == "error" for finding in preview.repairs)
    return f"{VERDICT_MARKS['pass']} repaired" if is_repaired and not states & {"fail", "undecided"} else ""


def _render_new_findings(findings: Sequence[Finding]) -> Iterator[str]:
    if findings:
        yield f"\n### {_mark(findings)} {pluralize(len(findings), 'new finding')}\n"
        yield from _fit((render_finding(finding, NEW_FINDINGS_PAGE) for finding in findings), NEW_FINDINGS_PAGE)


def _render_resolved_findings(findings: Sequence[Finding]) -> Iterator[str]:
    if findings:
        yield f"\n### {VERDICT_MARKS['pass']} {pluralize(len(findings), 'resolved finding')}\n"
        blocks = []
        for finding in findings:
            subject = markdown_code(truncate(wording.finding_subject(finding)))
            message = escape_markdown(wording.render_message(finding, SECTION_PAGE.longest))
            blocks.append(f"- **{link_rule(finding.rule)}** {subject}: {message}")
        yield from _fit(blocks, SECTION_PAGE)


def _mark(findings: Sequence[Finding]) -> str:
    return LEVEL_MARKS["error" if any(finding.level == "error" for finding in findings) else "warning"]


def _render_markdown_gaps(preview: Preview) -> Iterator[str]:
    blocks = []
    for gap in wording.merge_gaps((*preview.undecided, *preview.after.undecided)):
        reason = escape_markdown(truncate(gap.reason, SECTION_PAGE.longest))
        hint = f"\n  - **hint:** {escape_markdown(truncate(gap.hint, SECTION_PAGE.longest))}" if gap.hint else ""
        blocks.append(f"- {escape_markdown(truncate(gap.about(preview.after)))}: {reason}{hint}")
    if blocks:
        yield f"\n### {VERDICT_MARKS['undecided']} Could not be checked\n"
        yield from _fit(blocks, SECTION_PAGE)


def _list_output_changes(preview: Preview) -> list[str]:
    """Return a list item for each model, with an item for each sentence about its outputs below it."""
    blocks = []
    for model in sorted({arrival.model for arrival in preview.arrivals}):
        lines = [f"- {markdown_code(truncate(model))}"]
        for sentence, runtimes in _group_differences(preview, model):
            lines.append(f"  - {escape_markdown(truncate(runtimes))}: {escape_markdown(sentence)}")
        blocks.append("\n".join(lines))
    return blocks
