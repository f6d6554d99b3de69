"""The HTML page contains everything in the report, and no text from a model is interpreted."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onnxgate.core.escape import escape_unprintable
from onnxgate.core.report import Cell, Change, Drawing, DrawnEdge, DrawnNode, Measured, Report, ReportedModel
from onnxgate.formats import html as html_page
from onnxgate.formats import wording
from onnxgate.formats.html import agreement
from tests.harness.github import workflow_commands
from tests.harness.reports import hostile_reports
from tests.harness.reports.sample_reports import MINORS, finding, not_done, report, sample

VOID = {"meta", "br", "input"}
RULE_PAGE = r"https://github\.com/onnxgate/onnxgate/blob/main/docs/rules/[a-z-]+\.md"
OURS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "nav",
        "main",
        "footer",
        "section",
        "article",
        "form",
    ),
    *("h1", "h2", "h3", "h4", "p", "span", "strong", "code", "pre", "ul", "li", "dl", "dt", "dd", "div", "a", "button"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "label", "input", "output"),
    *("figure", "figcaption", "ol", "svg", "g", "rect", "text", "path", "circle", "script"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "hidden", "type", "placeholder"),
    *("autocomplete", "checked", "scope", "colspan", "rowspan", "title", "tabindex", "role", "data-level"),
    *("aria-label", "aria-hidden", "aria-live", "width", "height", "x", "y", "cx", "cy", "d", "dx"),
}


class Page(HTMLParser):
    """Elements, attributes and texts as a browser's parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an element."""
        assert len(attrs) == len({name for name, _ in attrs})
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an SVG element without content."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Check that end tags match their start tags."""
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        """Record visible text."""
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        """Return the visible text of the page."""
        return "".join(self.texts)

    def values(self, attribute: str) -> list[str]:
        """Return the values of an attribute, in document order."""
        return [found for _, attributes in self.elements if (found := attributes.get(attribute)) is not None]


def test_the_same_report_gives_the_same_bytes() -> None:
    """The page contains no timestamps or random identifiers."""
    assert html_page.format(sample()) == html_page.format(sample())


def test_every_model_runtime_and_state_is_in_the_matrix() -> None:
    """The matrix has a row per model, a column per runtime, and the state as text in each cell."""
    page = html_page.format(sample())
    table = page[page.index('<table class="matrix">') : page.index("</table>")]
    rows = re.findall(r"<tr>(.*?)</tr>", table, flags=re.DOTALL)[2:]
    names = wording.list_runtimes(sample())
    cells = {
        (re.sub("<.*?>", "", row.partition("</th>")[0]), names[column]): label.partition(";")[0]
        for row in rows
        for column, label in enumerate(re.findall(r'<(?:td|a)[^>]*? aria-label="(.*?)"', row))
    }

    assert [model.path for model in sample().models] == sorted({model for model, _ in cells})
    shown = [cell for row in wording.cells_by_model(sample()).values() for cell in row.values()]
    assert {(cell.model, cell.runtime): wording.STATE_MEANINGS[cell.state] for cell in shown} == cells


def test_every_finding_is_whole() -> None:
    """Every finding is shown with message, fix, location, node and runtimes; ignored ones with their reason."""
    page = html_page.format(sample())
    cards = re.findall(r"<article.*?</article>", page, flags=re.DOTALL)
    spoken = wording.list_active_findings(sample())

    assert len(spoken) == len(cards)
    for each, card in zip(spoken, cards, strict=True):
        actual = Page(card).text
        parts = (
            each.rule,
            each.level,
            each.message,
            each.fix,
            wording.format_place(each.place),
            each.node,
            each.fingerprint,
        )
        assert [] == [part for part in parts if part.replace("`", "") not in actual]
        assert wording.describe_runtimes(each.runtimes, sample()) in actual
        assert f"works since{each.works_since}" in actual or not each.works_since
    for accepted in wording.list_ignored_findings(sample()):
        assert accepted.message.replace("`", "") in Page(page).text
        assert accepted.ignored in Page(page).text


def test_every_figure_is_in_a_table() -> None:
    """Every measurement is shown with its case, metric and bound, grouped by pair and output."""
    text = Page(html_page.format(sample())).text

    for measurement in sample().measured:
        value = "not finite" if measurement.value is None else f"{measurement.value:.4g}"
        row = f"{measurement.case}{measurement.metric}{value}{measurement.bound:.4g}{measurement.bound_from}"
        assert row in text
        assert measurement.pair in text
    assert "1.2e-05 is allowed" in text


def test_page_shows_reasons_differences_and_commands() -> None:
    """The page contains reasons, hints, differences, commands, digests and providers."""
    text = Page(html_page.format(sample())).text
    whole = sample()

    said = [part for each in (*whole.undecided, *whole.skipped) for part in (each.reason, each.hint)]
    said += [part for change in whole.changes for part in (change.model, *change.differences)]
    said += [replay.command for replay in whole.replays]
    said += [model.sha256 for model in whole.models]
    said += [
        f"{runtime.target}{runtime.engine} {runtime.version}{runtime.python}{runtime.providers[0]}"
        for runtime in whole.runtimes
    ]
    assert [] == [part for part in said if part.replace("`", "") not in text]
    assert "origin/main (1a2b3c4)" in text


def test_skipped_stages_are_shown() -> None:
    """Skipped stages are shown, so that a static pass is not mistaken for a complete one."""
    text = Page(html_page.format(report(stages=("file",), scope="runtime, parity skipped"))).text

    assert "file checked" in text
    assert "parity skipped" in text
    assert "runtime, parity skipped" in text


def test_failed_cell_links_to_its_finding() -> None:
    """A failed cell links to the first finding of its runtime, and an undecided one to the reasons."""
    names = [f"onnxruntime {version}" for version in MINORS]
    actual = (finding("one", runtimes=(names[0],)), finding("two", runtimes=(names[1],)))
    states = ("fail", "fail", "undecided", "skipped", "pass")
    cells = tuple(Cell(model="m.onnx", runtime=n, state=s) for n, s in zip(names, states, strict=True))
    gap = not_done()

    page = html_page.format(report(findings=actual, cells=cells, undecided=gap, skipped=gap))
    row = page[page.index('<th scope="row">') : page.index("</table>")]

    links = [
        "#finding-0",
        "#finding-0",
        "#finding-1",
        "#undecided",
        "#skipped",
    ]  # the model's name links to the worst
    assert links == re.findall(r'href="(.*?)"', row)
    assert {link[1:] for link in links} <= set(Page(page).values("id"))


def test_the_failing_node_is_drawn_in_its_finding() -> None:
    """The diagram has one line per node in data-flow order, with arrows from its inputs and the failing node marked."""
    page = html_page.format(sample())
    (drawing,) = sample().drawings
    card = page[page.index('id="finding-0"') : page.index("</article>")]
    drawn = card[card.index('<figure class="drawing"') : card.index("</figure>")]

    assert len(drawing.nodes) == drawn.count('<li class="box ')
    assert len(drawing.edges) == drawn.count('<span class="arrow"')
    assert '<li class="box failing"><strong>Conv</strong> <code>/head/Reshape</code> from ' in drawn
    assert "inputs from: input x, weight weight|1; outputs to: Relu relu" in drawn
    assert drawn.index("<code>x<") < drawn.index("<code>/head/Reshape<") < drawn.index("<code>relu<")
    assert page.count('<li class="box failing">') == 1


def test_one_drawing_for_several_findings_of_a_node() -> None:
    """Findings of the same node share one diagram; an unnamed node is identified by its output."""
    nodes = (DrawnNode(name="y", operator="Neg", kind="failing"),)
    drawing = Drawing(model="m.onnx", node="y", nodes=nodes, edges=())
    named = finding("cannot: the node that makes `y`, and 3 more")

    page = html_page.format(report(findings=(named, finding("fails", node="y")), drawings=(drawing,)))

    assert page.count('class="drawing"') == 1
    assert page.count('<a href="#finding-0">See the diagram of this node above</a>') == 1


def test_a_figure_beyond_its_bound_is_another_mark() -> None:
    """A value within its bound is a dot, one beyond it a diamond, and a non-finite one is at the end; for ratios more
    is better.
    """
    plain = Measured(
        model="m", output="y", pair="a against b", case="", metric="worst_abs", value=0.5, bound=1.0, bound_from="type"
    )
    figures = [plain, replace(plain, value=2.0), replace(plain, value=None), replace(plain, value=0.0)]
    ratios = [replace(plain, metric="sqnr_db", value=value, bound=20.0) for value in (30.0, 25.0, 10.0)]

    (first,), (second,) = list(agreement.render_plots(figures)), list(agreement.render_plots(ratios))

    assert (first.count("<circle"), first.count("<path")) == (2, 2)
    assert '<circle cx="2%"' in first  # 0 has a separate position on a logarithmic axis
    assert '<svg x="98%"' in first
    assert "worst: not finite (limit 1)" in first
    assert (second.count("<circle"), second.count("<path")) == (2, 1)
    assert "worst: 10 (minimum 20)" in second


@pytest.mark.parametrize("count", [1, 200])
def test_a_plot_of_one_figure_and_of_many(count: int) -> None:
    """All points are inside the plot; of 200 pairs, those nearest to their bounds are drawn and the others counted."""
    figures = [
        Measured(
            model="m",
            output="y",
            pair=f"r{n}",
            case="",
            metric="worst_abs",
            value=10.0 ** -(n % 9),
            bound=2.0,
            bound_from="type",
        )
        for n in range(count)
    ]

    (plot,) = agreement.render_plots(figures)
    places = [float(each) for each in re.findall(r'(?:cx|x)="([\d.]+)%"', plot)]

    assert all(0 <= place <= 100 for place in places)
    assert plot.count("<circle") == min(count, agreement.MAX_PLOT_ROWS)
    assert ("pairs further from the limits" in plot) == (count > agreement.MAX_PLOT_ROWS)
    assert (">1<" in plot) == (count == 1) or "worst: 1 (limit 2)" in plot


def test_a_large_report_stays_small() -> None:
    """The page for 200 models on 30 runtimes with four cases is a few MB; tables count the rows they omit, plots show
    all.
    """
    names = [f"onnxruntime 1.{minor}.0" for minor in range(30)]
    models = [f"models/number-{number}.onnx" for number in range(200)]
    whole = report(
        models=tuple(ReportedModel(path=model, sha256="0" * 64) for model in models),
        runtimes=tuple(replace(sample().runtimes[0], version=name.partition(" ")[2]) for name in names),
        cells=tuple(Cell(model=model, runtime=name, state="fail") for model in models for name in names),
        findings=tuple(finding("does not load " * 10, model=model, runtimes=tuple(names)) for model in models),
        measured=tuple(
            Measured(
                model=model,
                output="y",
                pair=name,
                case=f"{case}",
                metric="worst_abs",
                value=10.0**-case,
                bound=1.0,
                bound_from="type",
            )
            for model in models
            for name in names
            for case in range(4)
        ),
    )

    page = html_page.format(whole)

    assert len(page) < 5_000_000
    assert f"The tables omit the {24_000 - agreement.MAX_TABLE_ROWS} values" in page
    assert page.count("96 values of 24 pairs") == 200


def few(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Generate at most two values."""
    return st.lists(strategy, max_size=2).map(tuple)


CHANGES = st.builds(
    Change,
    model=hostile_reports.TEXT,
    kind=st.sampled_from(["added", "removed", "renamed", "changed"]),
    before=hostile_reports.TEXT,
    differences=few(hostile_reports.TEXT),
)
BOXES = st.builds(
    DrawnNode, name=hostile_reports.TEXT, operator=hostile_reports.TEXT, kind=st.sampled_from(["failing", "weight"])
)
ARROWS = st.builds(DrawnEdge, source=st.integers(-1, 3), target=st.integers(-1, 3), value=hostile_reports.TEXT)


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """Generate a report with a diagram for its first finding."""
    whole = draw(hostile_reports.REPORTS)
    findings = whole.findings[:1]
    drawings = (
        Drawing(model=finding.model, node=finding.node, nodes=draw(few(BOXES)), edges=draw(few(ARROWS)))
        for finding in findings
    )
    return replace(whole, drawings=tuple(drawings), changes=draw(few(CHANGES)), against=sample().against)


slow = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=100
)


@slow
@given(reports())
def test_untrusted_strings_are_not_markup(whole: Report) -> None:
    """All elements and attributes are expected ones, links stay inside the page, and no other script can run."""
    text = html_page.format(whole)
    page = Page(text)

    assert [] == page.unbalanced + page.open
    assert {tag for tag, _ in page.elements} <= OURS
    assert {name for _, attributes in page.elements for name in attributes} <= ATTRIBUTES
    assert [] == [link for link in page.values("href") if not re.fullmatch(rf"#[a-z0-9-]+|{RULE_PAGE}", link)]
    assert len(page.values("id")) == len(set(page.values("id")))
    assert text.count("<script>") == text.count("<style>") == 1
    assert text.replace("\n", "").isprintable()
    assert list(workflow_commands.commands(text)) == []
    _check_policy(text, page)


def _check_policy(text: str, page: Page) -> None:
    """Check that the policy has the hashes of the page's style and script and forbids everything else."""
    (policy,) = (each["content"] for tag, each in page.elements if each.get("http-equiv"))
    assert policy is not None

    for kind, name in (("style", "style"), ("script", "script")):
        (inside,) = re.findall(rf"<{name}>(.*?)</{name}>", text, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")


@pytest.mark.parametrize(
    "attack",
    [*hostile_reports.ATTACKS, '"><img src=x onerror=alert(1)>', "' onload='x", "javascript:alert(1)", "]]>", "--><b>"],
)
def test_attacks_are_shown_in_visible_form(attack: str) -> None:
    """Attack strings are shown in visible form, in messages, paths, nodes, runtimes and diagrams."""
    actual = finding(attack, model=f"{attack}.onnx", node=f"n{attack}", runtimes=(f"onnxruntime {attack}",))
    drawn = Drawing(
        model=f"{attack}.onnx", node=f"n{attack}", nodes=(DrawnNode(name=attack, kind="failing"),), edges=()
    )

    page = Page(html_page.format(report(findings=(actual,), drawings=(drawn,))))

    assert f"{escape_unprintable(attack)}.onnx" in page.text
    assert f"n{escape_unprintable(attack)}" in page.text
    assert {tag for tag, _ in page.elements} <= OURS


def test_invalid_edges_do_not_break_diagrams() -> None:
    """Edges that form a cycle or refer to missing nodes do not break the diagram."""
    nodes = tuple(DrawnNode(name=name, operator="Op") for name in "abc")
    pairs = ((0, 1), (1, 2), (2, 0), (1, 1), (0, 9), (-1, 0))
    edges = tuple(DrawnEdge(source=source, target=target, value="v") for source, target in pairs)
    drawing = Drawing(model="m.onnx", node="a", nodes=nodes, edges=edges)

    page = html_page.format(report(findings=(finding(node="a"),), drawings=(drawing,)))

    assert page.count('<span class="arrow"') == 3


def test_incomplete_stage_is_not_marked_checked() -> None:
    """A stage with undecided or skipped parts is incomplete; if a shard crashed, no stage is shown as checked."""
    stages = ("file", "runtime", "parity")
    incomplete = report(stages=stages, undecided=not_done(stage="runtime"), skipped=not_done(stage="parity"))
    lost = report(stages=stages, undecided=not_done(stage="gate"))

    output = Page(html_page.format(incomplete)).text
    assert all(each in output for each in ("file checked", "runtime incomplete", "parity incomplete", "export skipped"))
    assert not re.search(r"(file|runtime|parity) checked", Page(html_page.format(lost)).text)


def test_no_stage_is_green_unless_the_check_passes() -> None:
    """Green marks below a red verdict suggest that the result is mixed."""
    stages = ("file", "runtime", "parity")
    passing = html_page.format(report(stages=stages))
    failing = html_page.format(report(stages=stages, verdict="fail", exit=1, findings=(finding(), finding())))

    assert passing.count('<li class="ran">') == 3
    assert '<li class="ran">' not in failing
    assert '<li class="broken"><span aria-hidden="true">✕</span> runtime <span class="how">2 errors</span>' in failing


def test_the_table_fits_on_a_screen_with_the_failing_rows_first() -> None:
    """Rows beyond the first ones are collapsed; each state is worse than the ones below it."""
    states = ("pass", "predicted", "skipped", "warning", "undecided", "fail")
    models = [f"{number:02}.onnx" for number in range(30)]
    cells = tuple(
        Cell(model=model, runtime=f"onnxruntime {MINORS[0]}", state=states[int(model[:2]) // 5]) for model in models
    )
    listed = tuple(ReportedModel(path=model, sha256="") for model in models)
    page = html_page.format(report(models=listed, cells=cells, runtimes=report().runtimes[:1]))
    shown, _, folded = page.partition('id="matrix"')[2].partition("<details><summary>15 more models</summary>")
    expected = [f"{number:02}" for start in (25, 20, 15, 10, 5, 0) for number in range(start, start + 5)]

    assert expected[:15] == re.findall(r"(\d\d)\.onnx", shown)
    assert expected[15:] == re.findall(r"(\d\d)\.onnx", folded.partition("</section>")[0])


def test_many_findings_are_collapsed_and_the_page_stays_small() -> None:
    """500 findings are about half a megabyte; the rules and their counts are at the top."""
    many = tuple(finding(rule=f"rule-{'ab'[n % 2]}", node=f"/layers.{n}", fingerprint=f"{n:016x}") for n in range(500))
    page = html_page.format(report(verdict="fail", exit=1, findings=many))
    head, _, rest = page.partition("</header>")

    assert "✕ 500 errors" in head
    assert head.count("</a> × 250") == 2
    assert rest.partition("<summary>480 more findings</summary>")[0].count("<article ") == 20
    assert page.count("<article ") == 500
    assert len(page.encode()) < 500_000
