"""No text from a model is interpreted in any format of a matrix or of a check without a config."""

from __future__ import annotations

import html
import json as standard_json
import re

import cmarkgfm
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxgate.core import report_json
from onnxgate.core.errors import ISSUE_TRACKER_URL
from onnxgate.core.matrix import Entry, Matrix, MatrixModel, Reason, build_matrix
from onnxgate.core.report_json import encode_json
from onnxgate.formats import support_matrix
from tests.harness.github import workflow_commands
from tests.harness.reports.hostile_reports import NAME, PATH, RUNTIME, TEXT
from tests.harness.reports.sample_reports import finding, report

slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
OUR_ELEMENTS = {"p", "strong", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "code", "br", "h3"}

REASONS = st.builds(Reason, rule=TEXT, node=TEXT, message=TEXT, detail=TEXT)
ENTRIES = st.fixed_dictionaries(
    {
        "predicted": st.sampled_from(["loads", "refused", "unknown"]),
        "reasons": st.lists(REASONS, max_size=2).map(tuple),
        "observed": st.sampled_from(["", "loads", "refused", "crashed", "timed-out", "unavailable"]),
        "error": TEXT,
    }
)


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    """Generate hostile models with entries for hostile releases."""
    runtimes = draw(st.lists(RUNTIME | NAME, min_size=1, max_size=4, unique=True))
    paths = draw(st.lists(PATH, max_size=3))
    models = [
        MatrixModel(path=path, runtimes=tuple(Entry(runtime=name, **draw(ENTRIES)) for name in runtimes))
        for path in paths
    ]
    findings = draw(st.lists(st.builds(finding, TEXT, rule=TEXT, node=TEXT, fix=TEXT), max_size=2).map(tuple))
    remarks = draw(st.lists(TEXT, max_size=2).map(tuple))
    return build_matrix(models, report(findings=findings, remarks=remarks))


FORMATS = {
    "text": support_matrix.format_text,
    "text for a terminal": lambda matrix: support_matrix.format_text(matrix, color=True, width=60),
    "text, every reason": lambda matrix: support_matrix.format_text(matrix, verbose=True),
    "check": lambda matrix: support_matrix.format_text(matrix, has_table=False, verbose=True),
    "check for a terminal": lambda matrix: support_matrix.format_text(matrix, has_table=False, color=True, width=60),
    "json": encode_json,
    "markdown": support_matrix.format_markdown,
}


@slow
@given(matrix=matrices())
def test_no_format_contains_commands(matrix: Matrix) -> None:
    """The runner finds no commands, and every character except newlines and onnxgate's colors is printable."""
    printed = {name: render(matrix) for name, render in FORMATS.items()}
    commands = {name: list(workflow_commands.commands(output)) for name, output in printed.items()}
    printed = {name: COLOURS.sub("", text) if "terminal" in name else text for name, text in printed.items()}

    assert {name: [] for name in FORMATS} == commands
    assert [] == [name for name, output in printed.items() if not output.replace("\n", "").isprintable()]


@slow
@given(matrix=matrices())
def test_json_preserves_the_matrix(matrix: Matrix) -> None:
    """Escaping in JSON preserves all values, except that invalid Unicode is spelled out."""
    back = msgspec.to_builtins(msgspec.json.decode(encode_json(matrix), type=Matrix))

    assert standard_json.dumps(back) == standard_json.dumps(report_json._escape_surrogates(msgspec.to_builtins(matrix)))


@slow
@given(matrix=matrices())
def test_markdown_contains_only_expected_elements(matrix: Matrix) -> None:
    """On GitHub, the page contains only expected elements, no link except to the issue tracker, and complete tables."""
    page = cmarkgfm.github_flavored_markdown_to_html(
        support_matrix.format_markdown(matrix), cmarkgfm.Options.CMARK_OPT_UNSAFE
    )
    page = page.replace(f'<a href="{ISSUE_TRACKER_URL}">{ISSUE_TRACKER_URL}</a>', "", 1)
    outside_code = html.unescape(re.sub(r"<code>.*?</code>", "", page, flags=re.DOTALL))
    rows = re.findall(r"<tr>(.*?)</tr>", page, flags=re.DOTALL)
    every = [entry for model in matrix.models for entry in model.runtimes]
    headings = any(entry.contradicted for entry in every) + any(
        entry.observed in ("unavailable", "timed-out") for entry in every
    )
    headings += bool(matrix.models and matrix.remarks)

    assert set() == set(re.findall(r"<(\w+)", page)) - OUR_ELEMENTS
    assert headings == page.count("<h3>")
    assert not re.search(r"@user|#12\b|https?://", outside_code)
    assert len(matrix.models) + bool(matrix.models) == len(rows)
    assert len({len(re.findall(r"<t[dh]\b", row)) for row in rows}) <= 1
