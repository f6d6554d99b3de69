"""The report as Markdown: document and job summary, and the parts that the comment shares with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from onnxgate.core.escape import escape_markdown, escape_mermaid_label, markdown_code, neutralize_commands
from onnxgate.core.report import Cell, Change, Drawing, DrawnEdge, DrawnNode, Finding, Measured, NotDone, Report
from onnxgate.core.text import LONG_LIMIT, pluralize, truncate
from onnxgate.formats import wording

VERDICT_MARKS = {"pass": "✅", "fail": "❌", "undecided": "❔"}
LEVEL_MARKS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}
CELL_MARKS = {
    "pass": "✅",
    "warning": "⚠️",
    "fail": "❌",
    "predicted": "🔮",
    "not predicted": "❓",
    "undecided": "❔",
    "skipped": "⏭️",
    "not asked": "–",
}
STATES_WORST_FIRST = ("fail", "undecided", "not predicted", "warning", "skipped", "predicted", "not asked", "pass")
MARK_MEANINGS = {mark: wording.STATE_MEANINGS[state] for state, mark in CELL_MARKS.items()}


@dataclass(frozen=True, slots=True)
class Page:
    """Limits of a page; `html` allows elements that fold and break lines, as GitHub renders them."""

    max_bytes: int = 0  # bytes of one part; 0: no limit
    html: bool = True
    differences: int = 0  # of one model since the baseline; 0: all
    drawings: int = 0  # 0: all
    longest: int = LONG_LIMIT  # characters of a message, a fix, a reason


def join_parts(parts: Iterable[Iterable[str]]) -> str:
    """Join parts to one text without workflow commands."""
    return "\n".join(neutralize_block(line) for part in parts for line in part) + "\n"


def neutralize_block(block: str) -> str:
    """Return the lines without workflow commands."""
    return "\n".join(neutralize_commands(line) for line in block.split("\n"))


def render_fitting(blocks: Iterable[str], page: Page) -> Iterator[str]:
    """Yield the blocks that fit into a part, and the number of the others."""
    shown, left_out = split_fitting(blocks, page)
    yield from shown
    if left_out:
        yield f"\n… and {left_out} more: the report has all"


def split_fitting(blocks: Iterable[str], page: Page) -> tuple[list[str], int]:
    """Return the first blocks that fit into a part, and the number of the others."""
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
    """Yield lines that their title unfolds if the page allows HTML, or else below a heading."""
    if lines:
        yield f"\n<details><summary>{title}</summary>\n" if page.html else f"\n### {title}\n"
        yield from render_fitting(lines, page)
        yield "\n</details>\n" if page.html else ""


def render_remarks(report: Report, page: Page) -> Iterator[str]:
    """Yield a paragraph for each remark."""
    return render_fitting((f"{escape_markdown(truncate(remark, page.longest))}\n" for remark in report.remarks), page)


def render_changes(report: Report, page: Page) -> Iterator[str]:
    """Yield the changes since the baseline, models with the worst findings first."""
    title = wording.changes_title(report)
    if title and not report.changes:
        yield f"{escape_markdown(capitalize_first(title))}.\n"
    elif title:
        weights = wording.rank_models(report)
        yield f"\n### {escape_markdown(capitalize_first(title))}\n"
        yield from render_fitting(
            (_render_change(change, weights, page) for change in wording.sort_changes(report)), page
        )
        yield ""


def capitalize_first(text: str) -> str:
    """Return the text with a capital first letter."""
    return f"{text[:1].upper()}{text[1:]}"


def _render_change(change: Change, weights: dict[str, int], page: Page) -> str:
    """Render a change, marked with the level of the model's worst finding."""
    weight = weights.get(change.model, wording.NO_FINDING_RANK)
    mark = f"{LEVEL_MARKS[wording.LEVELS[weight]]} " if weight < wording.NO_FINDING_RANK else ""
    before = f" from {markdown_code(truncate(change.before))}" if change.before else ""
    lines = [f"- {mark}{markdown_code(truncate(change.model))} {wording.CHANGE_KINDS[change.kind]}{before}"]
    lines += [
        f"  - {escape_markdown(difference)}"
        for difference in wording.list_differences(change, page.differences or len(change.said))
    ]
    return "\n".join(lines)


def render_matrix(report: Report, page: Page) -> Iterator[str]:
    """Yield the table of models x runtimes and the meaning of its marks."""
    runtimes = wording.list_runtimes(report)
    if not runtimes or not report.cells:
        return
    matrix = wording.cells_by_model(report)
    head = [
        _render_row("", [_render_runtime_name(runtime, page) for runtime in runtimes]),
        _render_row("---", [":-:"] * len(runtimes)),
    ]
    if page.max_bytes and sum(len(line.encode()) for line in head) > page.max_bytes // 2:
        yield f"{pluralize(len(runtimes), 'runtime')}: too many for a table here; the report has all\n"
        return
    yield from head
    yield from render_fitting(_render_matrix_rows(matrix, runtimes, page), page)
    shown = {_cell_mark(row.get(runtime)) for row in matrix.values() for runtime in runtimes}
    yield ""
    yield " · ".join(f"{mark} {meaning}" for mark, meaning in MARK_MEANINGS.items() if mark in shown)
    yield ""


def _render_matrix_rows(matrix: dict[str, dict[str, Cell]], runtimes: Sequence[str], page: Page) -> list[str]:
    """Return the rows by model, or the worst first if they do not all fit."""
    rows = {model: _render_model_row(model, row, runtimes) for model, row in matrix.items()}
    if page.max_bytes and sum(len(row.encode()) + 1 for row in rows.values()) > page.max_bytes:
        return [rows[model] for model in sorted(rows, key=lambda model: _worst_state_rank(matrix[model].values()))]
    return list(rows.values())


def _worst_state_rank(cells: Iterable[Cell]) -> int:
    """Return the index in STATES_WORST_FIRST of the worst cell."""
    return min((STATES_WORST_FIRST.index(cell.state) for cell in cells), default=STATES_WORST_FIRST.index("not asked"))


def _render_runtime_name(runtime: str, page: Page) -> str:
    """Render a runtime's name, on two lines if the page allows HTML, to keep columns narrow."""
    engine, _, release = truncate(runtime).rpartition(" ")
    return ("<br>" if page.html else " ").join(escape_markdown(part) for part in (engine, release) if part)


def _render_row(first: str, cells: Sequence[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


def _render_model_row(model: str, row: dict[str, Cell], runtimes: Sequence[str]) -> str:
    return _render_row(markdown_code(truncate(model)), [_cell_mark(row.get(runtime)) for runtime in runtimes])


def _cell_mark(cell: Cell | None) -> str:
    return CELL_MARKS[cell.state if cell else "not asked"]


def render_comparisons(report: Report, page: Page) -> Iterator[str]:
    """Yield the comparisons, and the figures nearest to their bounds."""
    for sentence in wording.describe_comparisons(report):
        yield f"{capitalize_first(sentence)}.\n"
    figures = [
        f"- {escape_markdown(wording.describe_measurement(figure))}"
        for figure in wording.select_tightest(report.measured)
    ]
    yield from render_folded("Nearest to what is allowed", figures, page)


def render_findings(report: Report, page: Page) -> Iterator[str]:
    """Yield the active findings by subject, worst first, and then the ignored ones."""
    blocks = [
        f"{'' if number else _render_heading(subject)}{render_finding(finding, page)}"
        for subject, about in wording.group_by_subject(wording.list_active_findings(report))
        for number, finding in enumerate(about)
    ]
    yield from render_fitting(blocks, page)
    accepted = wording.list_ignored_findings(report)
    yield from render_folded(pluralize(len(accepted), "ignored finding"), list(map(_render_ignored, accepted)), page)


def _render_heading(subject: str) -> str:
    """Return the heading as part of its first finding, so that none stands alone at the limit of a part."""
    return f"\n### {markdown_code(truncate(subject))}\n\n"


def render_finding(one: Finding, page: Page, *, about: str = "") -> str:
    """Render a finding as an entry of a list; `about` names its subject if there is no heading."""
    where = markdown_code(truncate(wording.format_place(one.place)))
    lines = [
        f"- {LEVEL_MARKS[one.level]} **{markdown_code(truncate(one.rule))}**{about} at {where}  ",
        f"  {escape_markdown(wording.render_message(one, page.longest))}",
    ]
    if one.node and one.node not in one.message:
        lines.append(f"  - node {markdown_code(truncate(one.node))}")
    if one.fix:
        lines.append(f"  - **fix:** {escape_markdown(truncate(one.fix, page.longest))}")
    return "\n".join(lines)


def _render_ignored(one: Finding) -> str:
    subject = markdown_code(truncate(wording.finding_subject(one)))
    return f"- {markdown_code(truncate(one.rule))} in {subject}: {escape_markdown(truncate(one.ignored))}"


def render_drawings(report: Report, page: Page) -> Iterator[str]:
    """Yield the drawings of failing nodes."""
    shown = report.drawings[: page.drawings or len(report.drawings)]
    if shown:
        yield "\n### Where it fails\n"
        yield from render_fitting(map(_render_drawing, shown), page)
        more = len(report.drawings) - len(shown)
        yield f"… and {pluralize(more, 'more drawing')}: the report has all\n" if more else ""


def _render_drawing(drawing: Drawing) -> str:
    title = f"{markdown_code(truncate(drawing.node))} in {markdown_code(truncate(drawing.model))}"
    return f"{title}:\n\n{render_mermaid(drawing)}\n"


def render_not_done(report: Report, page: Page) -> Iterator[str]:
    """Yield undecided and skipped checks."""
    yield from render_gaps("Could not be done", report.undecided, report, page)
    yield from render_gaps("Skipped", report.skipped, report, page)


def render_gaps(title: str, items: Sequence[NotDone], report: Report, page: Page) -> Iterator[str]:
    """Yield gaps, each reason once."""
    if items:
        yield f"\n### {title}\n"
        yield from render_fitting((_render_gap(gap, report, page) for gap in wording.merge_gaps(items)), page)


def _render_gap(gap: wording.Gap, report: Report, page: Page) -> str:
    hint = f"\n  - **hint:** {escape_markdown(truncate(gap.hint, page.longest))}" if gap.hint else ""
    return f"- {escape_markdown(gap.about(report))}: {escape_markdown(truncate(gap.reason, page.longest))}{hint}"


def describe_extent(report: Report) -> str:
    """Return `4 models on 8 runtimes`."""
    runtimes = pluralize(len(wording.list_runtimes(report)), "runtime")
    return f"{pluralize(len(report.models), 'model')} on {runtimes}"


def render_replays(report: Report, page: Page) -> Iterator[str]:
    """Yield the commands that reproduce findings, complete, so that they can be copied."""
    commands = [f"- {markdown_code(replay.command)}" for replay in report.replays]
    where = [f"In {markdown_code(report.folder)}:\n"] if commands and report.folder else []
    yield from render_folded("Replay", [*where, *commands], page)


MAX_BOXES = 49
"""Boxes of a drawing; GitHub is slow with more."""
MAX_LABEL_NAME = 60
"""Characters of a name in a label."""
BOX_SHAPES = {"input": "[/{}/]", "output": r"[\{}\]", "weight": "[({})]", "more": "({})"}
"""Shapes of boxes other than nodes, which are rectangles."""
BOX_STYLES = {
    "failing": "fill:#ffebe9,stroke:#cf222e,stroke-width:3px,color:#82071e",
    "more": "fill:none,stroke:#8c959f,stroke-dasharray:4 3",
}
"""Legible on GitHub's light theme and on its dark one."""


def render_mermaid(drawing: Drawing) -> str:
    """Render a drawing as a fenced flowchart without a final newline; at most MAX_BOXES boxes."""
    numbers = _select_boxes(drawing)
    lines = [
        "```mermaid",
        "flowchart TB",
        *(f"  n{index}{_render_box(drawing.nodes[index])}" for index in numbers),
        *(f"  n{edge.source} --> n{edge.target}" for edge in _select_edges(drawing.edges, numbers)),
        *_render_styles(drawing, numbers),
        "```",
    ]
    return "\n".join(lines)


def _select_boxes(drawing: Drawing) -> list[int]:
    """Return the first boxes in their order, and always the failing node."""
    numbers = range(len(drawing.nodes))
    first = sorted(numbers, key=lambda index: (drawing.nodes[index].kind != "failing", index))[:MAX_BOXES]
    return sorted(first)


def _select_edges(edges: Sequence[DrawnEdge], numbers: Sequence[int]) -> list[DrawnEdge]:
    """Return one arrow between two boxes, for any number of values."""
    unique = {(edge.source, edge.target): edge for edge in edges if {edge.source, edge.target} <= set(numbers)}
    return list(unique.values())


def _render_box(node: DrawnNode) -> str:
    return BOX_SHAPES.get(node.kind, "[{}]").format(f'"{escape_mermaid_label(_box_label(node)) or "unnamed"}"')


def _box_label(node: DrawnNode) -> str:
    """Return operator and name."""
    parts = (
        part if len(part) <= MAX_LABEL_NAME else f"{part[: MAX_LABEL_NAME - 1]}…" for part in (node.operator, node.name)
    )
    return " · ".join(filter(None, parts))


def _render_styles(drawing: Drawing, numbers: Sequence[int]) -> Iterator[str]:
    for kind, style in BOX_STYLES.items():
        of_kind = ",".join(f"n{index}" for index in numbers if drawing.nodes[index].kind == kind)
        if of_kind:
            yield f"  classDef {kind} {style}"
            yield f"  class {of_kind} {kind}"


DOCUMENT_PAGE = Page(html=False)


def format(report: Report) -> str:
    """Render the complete document; nothing is left out or folded."""
    return join_parts(
        [
            [
                f"# {VERDICT_MARKS[report.verdict]} onnxgate",
                "",
                f"**{escape_markdown(wording.render_verdict(report))}**",
                "",
            ],
            render_remarks(report, DOCUMENT_PAGE),
            render_changes(report, DOCUMENT_PAGE),
            _render_document_matrix(report),
            render_findings(report, DOCUMENT_PAGE),
            render_drawings(report, DOCUMENT_PAGE),
            render_not_done(report, DOCUMENT_PAGE),
            _render_document_measurements(report),
            render_replays(report, DOCUMENT_PAGE),
        ]
    )


def _render_document_matrix(report: Report) -> Iterator[str]:
    if report.cells:
        yield "\n### Models and runtimes\n"
        yield from render_matrix(report, DOCUMENT_PAGE)


def _render_document_measurements(report: Report) -> Iterator[str]:
    """Yield every figure with its inputs."""
    sentences = [capitalize_first(sentence) for sentence in wording.describe_comparisons(report)]
    if sentences or report.measured:
        yield "\n### Measured\n"
        yield from (f"{sentence}.\n" for sentence in sentences)
        yield from (_render_measurement(figure) for figure in report.measured)


def _render_measurement(figure: Measured) -> str:
    case = f", case {markdown_code(truncate(figure.case))}" if figure.case else ""
    return f"- {escape_markdown(wording.describe_measurement(figure))}{case}"


SUMMARY_LIMIT_BYTES = 1024 * 1024
"""GitHub drops a step's summary that has more bytes (Source: actions/runner FileCommandManager.cs)."""
SUMMARY_PAGE = Page(max_bytes=80_000, differences=20, drawings=3)
"""Ten parts have a limit, together below that of GitHub."""


def format_summary(report: Report) -> str:
    """Render the job summary of at most 1 MiB; what is left out is counted."""
    verdict = escape_markdown(wording.render_verdict(report))
    return join_parts(
        [
            [f"## {VERDICT_MARKS[report.verdict]} onnxgate", "", f"**{verdict}**", ""],
            render_remarks(report, SUMMARY_PAGE),
            render_changes(report, SUMMARY_PAGE),
            render_matrix(report, SUMMARY_PAGE),
            render_comparisons(report, SUMMARY_PAGE),
            render_findings(report, SUMMARY_PAGE),
            render_drawings(report, SUMMARY_PAGE),
            render_not_done(report, SUMMARY_PAGE),
            render_replays(report, SUMMARY_PAGE),
        ]
    )
