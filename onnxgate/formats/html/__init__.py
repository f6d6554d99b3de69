"""Write the report as a self-contained HTML page. All strings that come from models are escaped."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files

from onnxgate.core.findings import UNDECIDED_RULE
from onnxgate.core.report import Cell, Finding, NotDone, Report
from onnxgate.core.text import LONG_LIMIT, pluralize, truncate
from onnxgate.formats import wording
from onnxgate.formats.html import agreement
from onnxgate.formats.html.findings import Anchors, collect_anchors, render_findings
from onnxgate.formats.html.markup import (
    LEVEL_MARKS,
    VERDICT_MARKS,
    Markup,
    escape_html,
    join_lines,
    join_markup,
    link_rule,
    render_aside,
    render_code,
    render_prose,
    render_scrolled,
    tag,
)


def format(report: Report) -> str:
    """Render a report as an HTML 5 page that also works without scripts, in dark mode, in print and on phones."""
    anchors = collect_anchors(report)
    problems = {
        "findings": render_findings(report, anchors),
        "undecided": render_gaps("Could not be checked", "undecided", report.undecided, report),
    }
    sections = {
        **(dict(reversed(problems.items())) if report.verdict == "undecided" else problems),
        "ignored": render_ignored(report),
        "notes": render_notes(report),
        "changes": render_changes(report),
        "matrix": render_matrix(report, anchors),
        "agreement": agreement.render_agreement(report),
        "skipped": render_gaps("Skipped", "skipped", report.skipped, report),
        "replay": render_replays(report),
        "inventory": render_inventory(report),
    }
    shown = {name: section for name, section in sections.items() if section is not None}
    links = (tag("a", name.capitalize(), href=f"#{name}") for name in shown)
    style, script = _read_asset("page.css"), _read_asset("page.js")
    body = join_lines(
        tag("a", "Skip to content", href="#main", class_="skip"),
        render_banner(report, anchors),
        tag("nav", join_markup(links, "\n"), aria_label="sections"),
        tag("main", join_lines(shown.values()), id="main"),
        tag("footer", f"onnxgate {report.onnxgate}"),
        tag("script", Markup(script)),
    )
    page = tag("html", _render_head(report, style, script), tag("body", body), lang="en")
    return f"<!doctype html>\n{page}\n"


def _render_head(report: Report, style: str, script: str) -> Markup:
    policy = (
        f"default-src 'none'; style-src '{_csp_digest(style)}'; script-src '{_csp_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    weakened = " (policy weakened)" if wording.count_weakenings(report) else ""
    title = f"{VERDICT_MARKS[report.verdict][1]}{weakened}: {pluralize(len(report.models), 'model')} - onnxgate"
    return tag(
        "head",
        join_lines(
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", escape_html(title)),
            tag("style", Markup(style)),
        ),
    )


def _read_asset(name: str) -> str:
    text = files("onnxgate.formats.html").joinpath(name).read_text(encoding="utf-8")
    return f"\n{text.replace(chr(13), '')}"


def _csp_digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


STAGES = ("file", "lock", "support", "runtime", "parity", "export")
GATE_STAGE = "gate"
"""Name used in place of a stage for undecided checks that affect all stages, for example because of a missing shard."""
MAX_DIFFERENCES = 40
"""Maximum number of differences from the baseline that are shown for each model."""


def render_banner(report: Report, anchors: Anchors) -> Markup:
    """Render the head of the page, which answers the question of a reader who has five seconds.

    It contains the verdict, what was checked and what was left out, the number of findings by rule, and the stages.
    """
    mark, word = VERDICT_MARKS[report.verdict]
    stages = (*STAGES, *(stage for stage in report.stages if stage not in STAGES))
    weakening, limits = wording.describe_weakening(report), "; ".join(wording.describe_limits(report))
    reason = wording.explain_failure(report)
    warned = tag("span", f"! {weakening}", class_="weakened") if weakening else None
    return tag(
        "header",
        tag("p", "onnxgate", tag("button", "Theme", type="button", id="theme", hidden=True), class_="brand"),
        tag("h1", tag("span", mark, class_="mark", aria_hidden="true"), word, warned),
        tag("p", wording.describe_extent(report), class_="verdict"),
        tag("dl", (tag("div", tag("dt", name), tag("dd", value)) for name, value in wording.describe_subject(report))),
        tag("p", tag("strong", "! Limited check: "), render_prose(limits), class_="limits") if limits else None,
        tag("ul", _render_counts(report, anchors), class_="counts"),
        tag("p", render_prose(f"{reason[0].upper()}{reason[1:]}.")) if reason else None,
        tag("ul", (_render_stage(stage, report) for stage in stages), class_="stages"),
        tag("ul", (tag("li", render_prose(line)) for line in wording.describe_comparisons(report)), class_="extent"),
        class_=f"banner {report.verdict}",
    )


def _render_counts(report: Report, anchors: Anchors) -> Iterator[Markup]:
    """Render the number of findings by rule, and the numbers of undecided checks, ignored findings and skipped checks.

    If the verdict is undecided, the undecided checks come first.
    """
    others = {
        "undecided": f"? {len(wording.merge_gaps(report.undecided))} undecided" if report.undecided else "",
        "ignored": wording.describe_ignored(report),
        "skipped": f"{len(wording.merge_gaps(report.skipped))} skipped" if report.skipped else "",
    }
    links = {
        anchor: tag("li", tag("a", text, href=f"#{anchor}"), class_=f"of-{anchor}")
        for anchor, text in others.items()
        if text
    }
    if report.verdict == "undecided" and "undecided" in links:
        yield links.pop("undecided")
    yield from _render_rule_counts(report, anchors)
    yield from links.values()


def _render_rule_counts(report: Report, anchors: Anchors) -> Iterator[Markup]:
    """Render one item for each level. A rule links to its first finding on the page."""
    first: dict[tuple[str, str], int] = {}
    for number, finding in enumerate(anchors.findings):
        first.setdefault((finding.level, finding.rule), number)
    for level, counts in itertools.groupby(wording.count_rules(report), key=lambda it: it.level):
        of_level = list(counts)
        rules = [
            join_markup(
                (
                    tag("a", render_code(it.rule), href=f"#finding-{first[level, it.rule]}"),
                    f" × {it.count}" if it.count > 1 else "",
                )
            )
            for it in of_level[: wording.MAX_COUNTED_RULES]
        ]
        more = [f"{len(of_level) - len(rules)} more rules"] if len(of_level) > len(rules) else []
        total = f"{LEVEL_MARKS[level]} {pluralize(sum(it.count for it in of_level), level)}"
        yield tag("li", tag("strong", total), " ", join_markup([*rules, *more], ", "), class_=level)


def _render_stage(stage: str, report: Report) -> Markup:
    """Render the state of a stage. Only a check that passes has green stages."""
    levels = [finding.level for finding in wording.list_active_findings(report) if finding.stage == stage]
    left_open = {gap.stage for gap in (*report.undecided, *report.skipped)}
    left_open |= {finding.stage for finding in report.findings if finding.rule == UNDECIDED_RULE}
    if stage not in report.stages:
        mark, progress, style = "–", "skipped", "not-ran"
    elif "error" in levels:
        mark, progress, style = LEVEL_MARKS["error"], pluralize(levels.count("error"), "error"), "broken"
    elif left_open & {stage, GATE_STAGE}:
        mark, progress, style = "◐", "incomplete", "part"
    else:
        mark, progress, style = "✓", "checked", "ran" if report.verdict == "pass" else "plain"
    shown = tag("span", mark, aria_hidden="true")
    return tag("li", shown, f" {stage} ", tag("span", progress, class_="how"), class_=style)


def render_notes(report: Report) -> Markup | None:
    """Render the section with the remarks of the report."""
    remarks = (tag("li", render_prose(truncate(remark))) for remark in report.remarks)
    return tag("section", tag("h2", "Notes"), tag("ul", remarks), id="notes") if report.remarks else None


def render_changes(report: Report) -> Markup | None:
    """Render the list of models that have changed since the baseline, with their differences."""
    title = wording.changes_title(report)
    if not title:
        return None
    items = []
    for change in wording.sort_changes(report):
        differences = wording.list_differences(change, MAX_DIFFERENCES)
        sublist = tag("ul", (tag("li", render_prose(text)) for text in differences)) if differences else None
        items.append(tag("li", render_code(truncate(change.model)), f" {wording.describe_change(change)}", sublist))
    return tag(
        "section",
        tag("h2", tag("span", f"{title[0].upper()}{title[1:]}")),
        tag("ul", join_lines(items), class_="changes") if items else None,
        id="changes",
    )


def render_matrix(report: Report, anchors: Anchors) -> Markup | None:
    """Render the table that shows the result of each model on each runtime.

    A cell links to its first finding, or to the section with the undecided, skipped or ignored checks.
    """
    runtimes = wording.list_runtimes(report)
    if not runtimes or not report.cells:
        return None
    matrix = wording.cells_by_model(report)
    rows = []
    for model in wording.list_models_worst_first(report):
        name = render_code(truncate(model))
        if numbers := anchors.by_model.get(model):
            name = tag("a", name, href=f"#finding-{numbers[0]}")
        columns = (_render_matrix_cell(matrix[model].get(runtime), anchors) for runtime in runtimes)
        rows.append(tag("tr", tag("th", name, scope="row"), columns))
    parts = [runtime.rpartition(" ")[::2] for runtime in runtimes]
    engines = [(engine, len(list(group))) for engine, group in itertools.groupby(part[0] for part in parts)]
    corner = tag("th", "model", scope="col", rowspan=2)
    heads = join_lines(
        tag("tr", corner, (tag("th", engine, scope="colgroup", colspan=count) for engine, count in engines)),
        tag("tr", (tag("th", release, scope="col") for _, release in parts)),
    )
    shown, folded = rows[:MAX_OPEN_ROWS], rows[MAX_OPEN_ROWS:]
    summary = tag("summary", pluralize(len(folded), "more model"))
    return tag(
        "section",
        tag("h2", "Models by runtime"),
        _render_matrix_table(heads, shown),
        tag("details", summary, _render_matrix_table(heads, folded)) if folded else None,
        _render_matrix_legend([cell for cells in matrix.values() for cell in cells.values()]),
        id="matrix",
    )


MAX_OPEN_ROWS = 15
"""Maximum number of rows of the table that are not collapsed, so that the table fits on one screen."""


def _render_matrix_table(heads: Markup, rows: Sequence[Markup]) -> Markup:
    table = tag(
        "table",
        tag("caption", "models by runtime", class_="unseen"),
        tag("thead", heads),
        tag("tbody", join_lines(*rows)),
        class_="matrix",
    )
    return render_scrolled(table, "models by runtime")


def _render_matrix_legend(cells: Sequence[Cell]) -> Markup:
    counts: Counter[str] = Counter(cell.state for cell in cells)
    items = (
        tag(
            "li",
            tag("span", word, class_=f"sign {state.replace(' ', '-')}", aria_hidden="true"),
            f" {wording.STATE_MEANINGS[state]} ",
            tag("span", str(counts[state]), class_="quiet"),
        )
        for state, word in wording.STATE_WORDS.items()
        if counts[state]
    )
    compared = any(cell.compared for cell in cells)
    note = tag("li", "underlined: outputs compared with the source", class_="quiet") if compared else None
    return tag("ul", items, note, class_="legend")


TABLE_ANCHORS = {"undecided": "undecided", "skipped": "skipped", "warning": "ignored"}
"""State of a table cell without findings -> HTML id of the section that explains this state."""


def _render_matrix_cell(cell: Cell | None, anchors: Anchors) -> Markup:
    state = cell.state if cell else "not selected"
    style = state.replace(" ", "-") + (" compared" if cell and cell.compared else "")
    findings = anchors.of_cell(cell) if cell and state in ("fail", "warning") else []
    anchor = f"finding-{findings[0]}" if findings else TABLE_ANCHORS.get(state, "")
    label = wording.STATE_MEANINGS[state] + (f"; {pluralize(len(findings), 'finding')}" if findings else "")
    word = wording.STATE_WORDS[state]
    if not anchor:
        return tag("td", word, class_=style, aria_label=label, title=label)
    return tag("td", tag("a", word, href=f"#{anchor}", aria_label=label, title=label), class_=style)


def render_gaps(title: str, anchor: str, items: Sequence[NotDone], report: Report) -> Markup | None:
    """Render a section that lists undecided or skipped checks, grouped by reason."""
    gaps = (
        tag(
            "li",
            tag("p", render_prose(gap.about(report)), class_="about"),
            tag("p", render_prose(truncate(gap.reason, LONG_LIMIT))),
            render_aside("Hint", gap.hint),
        )
        for gap in wording.merge_gaps(items)
    )
    return tag("section", tag("h2", title), tag("ul", join_lines(gaps), class_="gaps"), id=anchor) if items else None


def render_ignored(report: Report) -> Markup | None:
    """Render the section that lists the ignored findings. Only newly ignored ones are not collapsed."""
    ignored = wording.list_ignored_findings(report)
    if not ignored:
        return None
    new = [finding for finding in ignored if finding.newly_ignored]
    others = ignored[len(new) :]
    summary = tag("summary", pluralize(len(others), f"{'older ' if new else ''}ignored finding"))
    return tag(
        "section",
        tag("h2", "Ignored"),
        tag("ul", join_lines(*map(_render_ignored_finding, new)), class_="gaps") if new else None,
        tag("details", summary, tag("ul", join_lines(*map(_render_ignored_finding, others)), class_="gaps"))
        if others
        else None,
        id="ignored",
    )


def _render_ignored_finding(finding: Finding) -> Markup:
    badge = (tag("strong", "new", class_="new"), " ") if finding.newly_ignored else ()
    subject = render_code(truncate(wording.finding_subject(finding)))
    about = tag("p", badge, f"{finding.level} ", link_rule(finding.rule), " in ", subject, class_="about")
    message = tag("p", render_prose(wording.render_message(finding)))
    return tag("li", about, message, render_aside("Ignored because", finding.ignored))


def render_replays(report: Report) -> Markup | None:
    """Render the section that lists the commands that reproduce findings."""
    if not report.replays:
        return None
    replays = []
    for replay in report.replays:
        rules = join_markup((render_code(rule) for rule in replay.rules), ", ")
        about = tag("p", render_code(truncate(replay.model)), ": ", rules)
        replays.append(tag("div", about, tag("pre", render_code(replay.command), tabindex=0), class_="replay"))
    folder = join_markup(("the folder ", render_code(report.folder))) if report.folder else "the folder of the config"
    return tag(
        "section",
        tag("h2", "To reproduce"),
        tag("p", "Each command reproduces findings of a run. Run the command in ", folder, ".", class_="lead"),
        join_lines(replays),
        id="replay",
    )


def render_inventory(report: Report) -> Markup:
    """Render the section that lists the checked models with their hashes, and the runtimes."""
    models = ((render_code(truncate(model.path)), render_code(model.sha256 or "-")) for model in report.models)
    runtimes = (
        (
            runtime.target,
            f"{runtime.engine} {runtime.version}",
            runtime.python or "–",
            ", ".join(runtime.providers),
        )
        for runtime in report.runtimes
    )
    return tag(
        "section",
        tag("h2", "Inventory"),
        _render_inventory_table(pluralize(len(report.models), "model"), ("model", "sha256"), models),
        _render_inventory_table(
            pluralize(len(report.runtimes), "runtime"), ("target", "runtime", "Python", "providers"), runtimes
        ),
        id="inventory",
    )


def _render_inventory_table(summary: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    body = join_lines(tag("tr", (tag("td", cell) for cell in row)) for row in rows)
    head = tag("thead", tag("tr", (tag("th", head, scope="col") for head in heads)))
    table = tag("table", head, tag("tbody", body), class_="figures")
    return tag("details", tag("summary", summary), render_scrolled(table, heads[0]))
