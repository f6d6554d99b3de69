"""Write the report as Markdown: as a document or a GitHub job summary."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from onnxgate.core.escape import escape_markdown, markdown_code, neutralize_commands
from onnxgate.core.report import Finding, NotDone, Report
from onnxgate.core.text import LONG_LIMIT, pluralize, truncate
from onnxgate.formats import wording
from onnxgate.formats.markdown.mermaid import render_mermaid
from onnxgate.formats.table_columns import RuntimeColumn, join_columns, list_words

VERDICT_MARKS = {"pass": "✅", "fail": "❌", "undecided": "🟡"}
LEVEL_MARKS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}
IGNORED_MARK = "🔕"
SKIPPED_MARK = "⏭️"


@dataclass(frozen=True, slots=True)
class Page:
    """Size limits of a Markdown page. If `html` is true, it may contain HTML for collapsed sections and line breaks."""

    max_bytes: int = 0  # of one part; 0: no limit
    html: bool = True
    open_rows: int = 0  # of the table that are not collapsed; 0: all
    open_findings: int = 0  # that are not collapsed; 0: all
    differences: int = 0  # of one model since the baseline; 0: all
    drawings: int = 0  # 0: all
    longest: int = LONG_LIMIT  # characters of a message, a fix or a reason


def join_parts(parts: Iterable[Iterable[str]]) -> str:
    """Join the lines of all parts of a page. CI workflow commands are escaped, so that they have no effect in a log."""
    return "\n".join(neutralize_block(line) for part in parts for line in part) + "\n"


def neutralize_block(block: str) -> str:
    """Escape CI workflow commands in a block of text, so that they have no effect if the text is printed to a log."""
    return "\n".join(neutralize_commands(line) for line in block.split("\n"))


def render_fitting(blocks: Iterable[str], page: Page) -> Iterator[str]:
    """Yield as many blocks of text as fit within the page's size limit, and a line that counts the omitted blocks."""
    shown, left_out = split_fitting(blocks, page)
    yield from shown
    if left_out:
        yield f"\n… and {left_out} more in the full report\n"


def split_fitting(blocks: Iterable[str], page: Page) -> tuple[list[str], int]:
    """Return as many blocks of text as fit within the page's size limit, and the number of omitted blocks."""
    free_bytes, shown, left_out = page.max_bytes, [], 0
    for block in map(neutralize_block, blocks):
        size = len(block.encode()) + 1
        if page.max_bytes and (left_out or size > free_bytes):
            left_out += 1
        else:
            free_bytes -= size
            shown.append(block)
    return shown, left_out


def render_folded(title: str, lines: Sequence[str], page: Page) -> Iterator[str]:
    """Yield lines of Markdown in a collapsed section, or below a heading if the page must not contain HTML."""
    if lines:
        yield f"\n<details><summary>{title}</summary>\n" if page.html else f"\n### {title}\n"
        yield from render_fitting(lines, page)
        yield "\n</details>\n" if page.html else ""


def render_head(report: Report, heading: str) -> Iterator[str]:
    """Yield the part of the page that answers the question of a reader who has five seconds.

    It contains the verdict, what was checked, the number of findings by rule, and what the check leaves out.
    """
    weakening = wording.describe_weakening(report)
    yield f"{heading} {VERDICT_MARKS[report.verdict]} onnxgate: {report.verdict}{weakening and f' — ⚠️ {weakening}'}\n"
    yield f"{_render_subject(report)}\n"
    yield from (f"- {item}" for item in _list_counts(report))
    if reason := wording.explain_failure(report):
        yield f"\n{escape_markdown(capitalize_first(reason))}."
    if limits := wording.describe_limits(report):
        yield f"\n⚠️ **Limited check:** {escape_markdown('; '.join(limits))}"
    yield ""


def _render_subject(report: Report) -> str:
    facts = wording.describe_subject(report)
    return ", ".join(
        [escape_markdown(wording.describe_extent(report)), *(f"{name} {markdown_code(value)}" for name, value in facts)]
    )


def _list_counts(report: Report) -> Iterator[str]:
    count = len(wording.merge_gaps(report.undecided))
    undecided = [f"{VERDICT_MARKS['undecided']} **{count} undecided:** could not be checked"] if count else []
    yield from undecided if report.verdict == "undecided" else ()
    yield from _list_rule_counts(report)
    yield from undecided if report.verdict != "undecided" else ()
    if ignored := wording.describe_ignored(report):
        yield f"{IGNORED_MARK} **{ignored}**"
    if skipped := len(wording.merge_gaps(report.skipped)):
        yield f"{SKIPPED_MARK} {skipped} skipped"


def _list_rule_counts(report: Report) -> Iterator[str]:
    for level, counts in itertools.groupby(wording.count_rules(report), key=lambda it: it.level):
        of_level = list(counts)
        rules = [f"{link_rule(it.rule)}{f' × {it.count}' if it.count > 1 else ''}" for it in of_level]
        shown = rules[: wording.MAX_COUNTED_RULES]
        more = [f"{len(rules) - len(shown)} more rules"] if len(rules) > len(shown) else []
        total = pluralize(sum(it.count for it in of_level), level)
        yield f"{LEVEL_MARKS[level]} **{total}:** {', '.join([*shown, *more])}"


def link_rule(rule: str) -> str:
    """Render the name of a rule as a link to its page."""
    name, url = markdown_code(truncate(rule)), wording.rule_url(rule)
    return f"[{name}]({url})" if url else name


def render_remarks(report: Report, page: Page) -> Iterator[str]:
    """Yield the remarks of the report as a Markdown section."""
    if report.remarks:
        yield "\n### Notes\n"
        remarks = (f"- {escape_markdown(truncate(remark, page.longest))}" for remark in report.remarks)
        yield from render_fitting(remarks, page)


def render_changes(report: Report, page: Page) -> Iterator[str]:
    """Yield the models that have changed since the baseline, as Markdown. Models with the worst findings come first."""
    title = wording.changes_title(report)
    if title and not report.changes:
        yield f"\n{escape_markdown(capitalize_first(title))}.\n"
    elif title:
        ranks = wording.rank_models(report)
        yield f"\n### {escape_markdown(capitalize_first(title))}\n"
        blocks = []
        for change in wording.sort_changes(report):
            mark = f"{LEVEL_MARKS[wording.LEVELS[ranks[change.model]]]} " if change.model in ranks else ""
            before = f" from {markdown_code(truncate(change.before))}" if change.before else ""
            head = f"- {mark}{markdown_code(truncate(change.model))} {wording.CHANGE_KINDS[change.kind]}{before}"
            differences = wording.list_differences(change, page.differences or len(change.differences))
            blocks.append("\n".join([head, *(f"  - {escape_markdown(difference)}" for difference in differences)]))
        yield from render_fitting(blocks, page)
        yield ""


def capitalize_first(text: str) -> str:
    """Capitalize the first letter of a text."""
    return f"{text[:1].upper()}{text[1:]}"


def render_matrix(report: Report, page: Page) -> Iterator[str]:
    """Yield a Markdown table with the result of each model on each runtime, and its legend."""
    runtimes = wording.list_runtimes(report)
    if not runtimes or not report.cells:
        return
    matrix = wording.cells_by_model(report)
    cells = {
        runtime: [
            wording.STATE_WORDS[row[runtime].state if runtime in row else "not selected"] for row in matrix.values()
        ]
        for runtime in runtimes
    }
    columns = join_columns(runtimes, cells)
    head = list(render_heads(columns, page))
    if page.max_bytes and sum(len(line.encode()) for line in head) > page.max_bytes // 2:
        yield f"{pluralize(len(runtimes), 'runtime')}: the table is too wide for this page; see the full report\n"
        return
    yield from head
    words = dict(zip(matrix, zip(*(column.cells for column in columns), strict=True), strict=True))
    rows = [render_words(model, words[model]) for model in wording.list_models_worst_first(report)]
    shown, left_out = split_fitting(rows, page)
    is_open = page.open_rows or len(shown)
    yield from shown[:is_open]
    yield ""
    yield from render_legend(list_words(columns))
    if folded := shown[is_open:]:
        yield from (f"<details><summary>{pluralize(len(folded), 'more model')}</summary>\n", *head, *folded)
        yield "\n</details>\n"
    if left_out:
        yield f"… and {left_out} more in the full report\n"


def render_heads(columns: Sequence[RuntimeColumn], page: Page) -> Iterator[str]:
    """Yield the first two lines of a Markdown table of models by runtime.

    A single engine is named in the first column; several engines are named above their releases.
    """
    engines = {column.engine for column in columns}
    line_break = "<br>" if page.html else " "
    names = []
    for column in columns:
        parts = (column.label,) if len(engines) == 1 else (column.engine, column.label)
        names.append(line_break.join(escape_markdown(truncate(part)) for part in parts if part))
    yield render_row(escape_markdown(truncate(columns[0].engine)) if len(engines) == 1 else "", names)
    yield render_row("---", [":-:"] * len(columns))


def render_words(model: str, words: Iterable[str]) -> str:
    """Render the table row of a model; the word for a failure is bold."""
    cells = (f"**{word}**" if word == "FAIL" else escape_markdown(word) for word in words)
    return render_row(markdown_code(truncate(model)), cells)


def render_legend(words: set[str]) -> Iterator[str]:
    """Yield the legend of a table of results, which explains the words in its cells."""
    meanings = [f"{escape_markdown(word)}: {text}" for word, text in wording.WORD_MEANINGS.items() if word in words]
    if meanings:
        yield from ("; ".join(meanings), "")


def render_row(first: str, cells: Iterable[str]) -> str:
    """Render one row of a Markdown table."""
    return f"| {first} | {' | '.join(cells)} |"


def render_comparisons(report: Report, page: Page) -> Iterator[str]:
    """Yield sentences about the comparisons with the source, and the measured values nearest to their limits."""
    yield from (f"{capitalize_first(sentence)}.\n" for sentence in wording.describe_comparisons(report))
    yield from render_folded("Largest differences", _list_measurements(report), page)


def _list_measurements(report: Report) -> list[str]:
    return [f"- {escape_markdown(measurement)}" for measurement in wording.describe_measurements(report.measured)]


def render_findings(report: Report, page: Page) -> Iterator[str]:
    """Yield the findings that are not ignored as Markdown, worst first, below a heading for each level."""
    blocks = []
    for level, findings in itertools.groupby(wording.list_active_findings(report), key=lambda finding: finding.level):
        first, *others = (render_finding(finding, page) for finding in findings)
        heading = f"\n### {LEVEL_MARKS[level]} {pluralize(len(others) + 1, level)}\n\n"
        blocks += [f"{heading}{first}", *others]  # a heading is never without a finding
    shown, left_out = split_fitting(blocks, page)
    is_open = page.open_findings or len(shown)
    yield from shown[:is_open]
    if folded := shown[is_open:]:
        yield f"\n<details><summary>{pluralize(len(folded), 'more finding')}</summary>\n"
        yield from (*folded, "\n</details>\n")
    if left_out:
        yield f"\n… and {left_out} more in the full report\n"


def render_ignored(report: Report, page: Page) -> Iterator[str]:
    """Yield the ignored findings as Markdown. Newly ignored ones are not collapsed."""
    ignored = wording.list_ignored_findings(report)
    new = [finding for finding in ignored if finding.newly_ignored]
    if new:
        yield f"\n### {IGNORED_MARK} {pluralize(len(new), 'newly ignored finding')}\n"
        yield from render_fitting((_render_ignored_finding(finding, page) for finding in new), page)
    old = [_render_ignored_finding(finding, page) for finding in ignored[len(new) :]]
    yield from render_folded(pluralize(len(old), "ignored finding"), old, page)


def _render_ignored_finding(finding: Finding, page: Page) -> str:
    new = "**new:** " if finding.newly_ignored else ""
    subject = markdown_code(truncate(wording.finding_subject(finding)))
    message = escape_markdown(wording.render_message(finding, page.longest))
    reason = escape_markdown(truncate(finding.ignored))
    head = f"- {new}{finding.level} {link_rule(finding.rule)} in {subject}: {message}"
    return f"{head}\n  - **ignored because:** {reason}"


def render_finding(finding: Finding, page: Page) -> str:
    """Render a finding as a Markdown list item that names its model and its place."""
    place = markdown_code(truncate(wording.format_place(finding.place)))
    model = f" {markdown_code(truncate(finding.model))}" if finding.model not in ("", finding.place.path) else ""
    lines = [
        f"- {LEVEL_MARKS[finding.level]} **{link_rule(finding.rule)}**{model} at {place}  ",
        f"  {escape_markdown(wording.render_message(finding, page.longest))}",
    ]
    if finding.node and finding.node not in finding.message:
        lines.append(f"  - node {markdown_code(truncate(finding.node))}")
    if finding.fix:
        lines.append(f"  - **fix:** {escape_markdown(truncate(finding.fix, page.longest))}")
    return "\n".join(lines)


def render_drawings(report: Report, page: Page) -> Iterator[str]:
    """Yield a Mermaid diagram of the graph around each failing node."""
    shown = report.drawings[: page.drawings or len(report.drawings)]
    if shown:
        yield "\n### Failing nodes\n"
        blocks = (
            f"{markdown_code(truncate(drawing.node))} in {markdown_code(truncate(drawing.model))}:\n\n"
            f"{render_mermaid(drawing)}\n"
            for drawing in shown
        )
        yield from render_fitting(blocks, page)
        more = len(report.drawings) - len(shown)
        yield f"… and {pluralize(more, 'more drawing')} in the full report\n" if more else ""


def render_problems(report: Report, page: Page) -> Iterator[str]:
    """Yield the findings and the undecided checks. The reasons why the verdict is undecided come first."""
    parts = [render_findings(report, page), render_undecided(report, page)]
    return itertools.chain.from_iterable(reversed(parts) if report.verdict == "undecided" else parts)


def render_undecided(report: Report, page: Page) -> Iterator[str]:
    """Yield a Markdown section that lists the undecided checks."""
    if report.undecided:
        yield f"\n### {VERDICT_MARKS['undecided']} Could not be checked\n"
        yield from render_fitting(_list_gaps(report.undecided, report, page), page)


def render_skipped(report: Report, page: Page) -> Iterator[str]:
    """Yield a collapsed Markdown section that lists the skipped checks."""
    gaps = _list_gaps(report.skipped, report, page)
    return render_folded(f"{len(gaps)} skipped", gaps, page)


def _list_gaps(items: Sequence[NotDone], report: Report, page: Page) -> list[str]:
    """Return undecided or skipped checks as Markdown list items; checks with the same reason share one item."""
    blocks = []
    for gap in wording.merge_gaps(items):
        hint = f"\n  - **hint:** {escape_markdown(truncate(gap.hint, page.longest))}" if gap.hint else ""
        reason = escape_markdown(truncate(gap.reason, page.longest))
        blocks.append(f"- {escape_markdown(gap.about(report))}: {reason}{hint}")
    return blocks


def render_replays(report: Report, page: Page) -> Iterator[str]:
    """Yield the commands that reproduce findings, as Markdown. They are never shortened, so that they can be copied."""
    commands = [f"- {markdown_code(replay.command)}" for replay in report.replays]
    folder = [f"In {markdown_code(report.folder)}:\n"] if commands and report.folder else []
    yield from render_folded("To reproduce", [*folder, *commands], page)


DOCUMENT_PAGE = Page(html=False)


def format(report: Report) -> str:
    """Render the complete report as a Markdown document; nothing is omitted or collapsed."""
    matrix = list(render_matrix(report, DOCUMENT_PAGE))
    return join_parts(
        [
            render_head(report, "#"),
            render_problems(report, DOCUMENT_PAGE),
            render_ignored(report, DOCUMENT_PAGE),
            render_remarks(report, DOCUMENT_PAGE),
            render_changes(report, DOCUMENT_PAGE),
            ["\n### Models and runtimes\n", *matrix] if report.cells else [],
            render_drawings(report, DOCUMENT_PAGE),
            render_skipped(report, DOCUMENT_PAGE),
            _render_runs(report),
            render_replays(report, DOCUMENT_PAGE),
        ]
    )


def _render_runs(report: Report) -> Iterator[str]:
    sentences = [f"{capitalize_first(sentence)}.\n" for sentence in wording.describe_comparisons(report)]
    measurements = _list_measurements(report)
    if sentences or measurements:
        yield from ("\n### Runs\n", *sentences, *measurements)


MAX_OPEN_ROWS = 12
"""Maximum number of rows of a table that are not collapsed in a job summary, so that the table fits on one screen."""
SUMMARY_PAGE = Page(max_bytes=75_000, open_rows=MAX_OPEN_ROWS, open_findings=10, differences=20, drawings=3)
"""Size limits of the GitHub job summary. Its parts together stay below 1 MiB; GitHub drops a longer summary.

Source: actions/runner, FileCommandManager.cs.
"""


def format_summary(report: Report) -> str:
    """Render the GitHub job summary, which has at most 1 MiB. If entries are omitted, their number is shown."""
    matrix = list(render_matrix(report, SUMMARY_PAGE))
    return join_parts(
        [
            render_head(report, "##"),
            render_problems(report, SUMMARY_PAGE),
            render_ignored(report, SUMMARY_PAGE),
            render_remarks(report, SUMMARY_PAGE),
            render_changes(report, SUMMARY_PAGE),
            ["\n### Models and runtimes\n", *matrix] if matrix else [],
            render_comparisons(report, SUMMARY_PAGE),
            render_drawings(report, SUMMARY_PAGE),
            render_skipped(report, SUMMARY_PAGE),
            render_replays(report, SUMMARY_PAGE),
        ]
    )
