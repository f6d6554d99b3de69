"""No text from a model is interpreted in any format, as verified with the runner's parser and GitHub's Markdown."""

from __future__ import annotations

import html
import json as standard_json
import re

import cmarkgfm
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxgate.core import escape, report_json
from onnxgate.core.report import Report
from onnxgate.formats import github, gitlab, junit, markdown, sarif, text, wording
from onnxgate.formats.markdown.pull_request_comment import format_comment
from tests.harness.github import workflow_commands
from tests.harness.reports.hostile_reports import ATTACKS, REPORTS, TEXT

PLAIN_FORMATS = {
    "text": text.format,
    "text for a terminal": lambda report: text.format(report, color=True, width=60),
    "verdict": text.render_verdict,
    "json": report_json.format,
    "summary": markdown.format_summary,
    "markdown": markdown.format,
    "comment": format_comment,
    "sarif": sarif.format,
    "junit": junit.format,
    "gitlab": gitlab.format,
}
PAGES = {"summary": markdown.format_summary, "markdown": markdown.format, "comment": format_comment}
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100)


@slow
@given(report=REPORTS)
def test_no_workflow_command(report: Report) -> None:
    """The runner finds no commands in any line of these formats."""
    actual = {name: list(workflow_commands.commands(render(report))) for name, render in PLAIN_FORMATS.items()}

    assert {name: [] for name in PLAIN_FORMATS} == actual


@slow
@given(report=REPORTS)
def test_github_finds_only_our_annotations(report: Report) -> None:
    """The runner finds exactly one annotation per entry of the report, with onnxgate's titles and valid locations."""
    log = github.format(report)
    got = list(workflow_commands.commands(log))
    spoken = [finding for finding in report.findings if not finding.ignored]
    rules = {escape.escape_log_line(finding.rule).strip() for finding in spoken}

    assert len(got) + len(report.remarks) + 2 == len(workflow_commands.lines(log))  # final line and trailing newline
    assert {command.name for command in got} <= {"error", "warning", "notice"}
    assert len(spoken) <= len(got) <= len(spoken) + len(report.undecided)
    assert {command.properties.get("title", "") for command in got} <= {*rules, "", "undecided"}
    assert {key for command in got for key in command.properties} <= {"file", "line", "endLine", "title"}


@slow
@given(report=REPORTS)
def test_no_terminal_control_characters(report: Report) -> None:
    """Except for newlines and onnxgate's colors, every character is printable, and none changes the text direction."""
    printed = {name: PLAIN_FORMATS[name](report) for name in ("text", "verdict", "junit", *PAGES)}
    printed["github"] = github.format(report)
    printed["text for a terminal"] = COLOURS.sub("", text.format(report, color=True, width=60))

    assert [] == [name for name, output in printed.items() if not output.replace("\n", "").isprintable()]


@slow
@given(report=REPORTS)
def test_json_preserves_the_report(report: Report) -> None:
    """Escaping in JSON preserves all values, except that invalid Unicode is spelled out."""
    back = msgspec.json.decode(report_json.format(report), type=Report)

    assert standard_json.dumps(_as_written(back)) == standard_json.dumps(_as_written(report))


def _as_written(report: Report) -> object:
    return report_json._escape_surrogates(msgspec.to_builtins(report))


@slow
@given(report=REPORTS)
def test_a_page_is_only_the_markdown_that_we_wrote(report: Report) -> None:
    """As rendered by GitHub, a page contains only expected elements, no links or mentions, and complete tables."""
    pages = {name: _rendered(render(report)) for name, render in PAGES.items()}
    for name, page in pages.items():
        outside_code = html.unescape(re.sub(r"<code>.*?</code>|<pre.*?</pre>", "", page, flags=re.DOTALL))

        assert set() == set(re.findall(r"<(\w+)", page)) - OUR_ELEMENTS - ({"pre"} if report.drawings else set()), name
        assert page.count("<pre") == (len(report.drawings) if name != "comment" else 0), name
        assert not re.search(r"@user|#12\b|https?://", outside_code.replace(RULE_LINK, "")), name
        _check_tables(page, len({(runtime.engine, runtime.version) for runtime in report.runtimes}))
    _check_headings(pages["summary"], report)


def _check_headings(summary: str, report: Report) -> None:
    """Check that the summary has one heading per level of the findings, and one for each other section."""
    levels = {finding.level for finding in report.findings if not finding.ignored}
    new = any(finding.ignored and finding.newly_ignored for finding in report.findings)
    table = report.runtimes and report.cells
    others = (report.undecided, new, report.remarks, report.against and report.changes, table, report.drawings)

    assert summary.count("<h3>") == len(levels) + sum(map(bool, others))
    assert summary.count("<h2>") == 1


OUR_ELEMENTS = {
    *("h1", "h2", "h3", "p", "strong", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "code"),
    *("br", "details", "summary", "a"),
}
RULE_LINK = f'<a href="{wording.HOME_URL}/blob/main/docs/rules/'


def _rendered(markdown: str) -> str:
    return cmarkgfm.github_flavored_markdown_to_html(markdown, cmarkgfm.Options.CMARK_OPT_UNSAFE)


def _check_tables(page: str, runtimes: int) -> None:
    for table in re.findall(r"<table>(.*?)</table>", page, flags=re.DOTALL):
        widths = {len(re.findall(r"<t[dh]\b", row)) for row in re.findall(r"<tr>(.*?)</tr>", table, flags=re.DOTALL)}

        assert len(widths) == 1
        assert 2 <= widths.pop() <= runtimes + 1  # adjacent runtimes may share a column


@pytest.mark.parametrize("attack", ATTACKS)
def test_each_attack_in_every_string(attack: str) -> None:
    """Each attack renders to its visible characters, in a table cell and in prose."""
    page = _rendered(
        f"| a | b |\n|---|---|\n| {escape.markdown_code(attack)} | {escape.escape_markdown(f'x {attack} y')} |\n"
    )

    assert len(re.findall(r"<t[dh]\b", page)) == 4
    assert not re.search(r"<(?!/?(table|thead|tbody|tr|th|td|code)\b)", page)


@given(foreign=TEXT)
def test_property_round_trip(foreign: str) -> None:
    """The runner unescapes a property to the visible form of the text, without surrounding whitespace."""
    line = f"::error title={escape.escape_command_property(foreign)},line=1::said"

    command = workflow_commands.parse(line)

    assert command is not None
    assert escape.escape_log_line(foreign).strip() == command.properties.get("title", "")
    assert command.data == "said"


@given(foreign=TEXT)
def test_log_line_keeps_readable_characters(foreign: str) -> None:
    """Only characters that would be interpreted are changed; letters, digits and spaces are preserved."""
    safe = escape.escape_log_line(foreign)

    assert safe.isprintable()
    assert workflow_commands.parse(safe) is None
    if foreign.isprintable() and workflow_commands.parse(foreign) is None and "##[" not in foreign:
        assert foreign == safe or foreign.lstrip().startswith("::")


@given(st.text())
def test_code_span_shows_the_visible_text(foreign: str) -> None:
    """A rendered code span contains only the visible text."""
    page = _rendered(f"a {escape.markdown_code(foreign)} b")
    shown = html.unescape(page.removeprefix("<p>a <code>").removesuffix("</code> b</p>\n"))

    assert escape.escape_unprintable(foreign).replace("|", r"\x7c").strip() == shown.strip()
