"""The job summary has complete tables and stays within GitHub's size limit."""

from __future__ import annotations

import re

import cmarkgfm

from onnxgate.core.report import Cell, CellState, ReportedModel
from onnxgate.formats import markdown
from onnxgate.formats.markdown.pull_request_comment import format_comment
from tests.harness.reports.sample_reports import MINORS, finding, not_done, report, sample


def rendered(markdown: str) -> str:
    """Render Markdown with GitHub's own library."""
    return cmarkgfm.github_flavored_markdown_to_html(markdown, cmarkgfm.Options.CMARK_OPT_UNSAFE)


def test_every_row_has_a_cell_for_every_runtime() -> None:
    """The sample's table has a header and four models, and joins eight runtimes to four columns."""
    rows = re.findall(r"<tr>(.*?)</tr>", rendered(markdown.format_summary(sample())), flags=re.DOTALL)

    assert [len(re.findall(r"<t[dh]\b", row)) for row in rows] == [5] * 5


def test_a_huge_report_stays_below_the_limit() -> None:
    """Findings, rows and reasons beyond the size limit are counted."""
    models = [f"models/{'x' * 200}/{number}.onnx" for number in range(3000)]
    huge = report(
        models=tuple(ReportedModel(path=model, sha256="") for model in models),
        cells=tuple(Cell(model=each, runtime=f"onnxruntime {MINORS[0]}", state="fail") for each in models),
        findings=tuple(finding("##[error]" * 500, model=model) for model in models),
        undecided=tuple(entry for n, model in enumerate(models) for entry in not_done([model], reason=f"{n}" * 300)),
        skipped=tuple(entry for n, model in enumerate(models) for entry in not_done([model], reason=f"{n}" * 300)),
    )

    output = markdown.format_summary(huge)

    assert len(output.encode()) < 1024 * 1024
    assert len(re.findall(r"… and \d+ more in the full report", output)) == 4


def test_the_legend_explains_the_words_that_occur() -> None:
    """The legend omits `ok` and `FAIL`, which are self-explanatory."""
    cell = Cell(model="m.onnx", runtime=f"onnxruntime {MINORS[0]}", state="predicted")

    assert "predicted, not run" not in markdown.format_summary(report())
    assert "\nlikely: predicted to load, not run; –: not checked\n" in markdown.format_summary(report(cells=(cell,)))


def test_a_literal_of_a_message_is_a_code_span() -> None:
    """Backticks in messages become code spans."""
    page = rendered(markdown.format_summary(report(findings=(finding("imports opset 22 of `ai.onnx`, not <b>"),))))

    assert "imports opset 22 of <code>ai.onnx</code>, not &lt;b&gt;" in page


def test_a_table_without_room_for_all_has_the_worst_rows() -> None:
    """If a table is too large, failing rows are kept and passing rows omitted first."""
    models = [f"models/{'x' * 60}/{number:04}.onnx" for number in range(3000)]
    states: dict[str, CellState] = {models[2998]: "undecided", models[2999]: "fail"}
    many = report(
        models=tuple(ReportedModel(path=model, sha256="") for model in models),
        cells=tuple(
            Cell(model=each, runtime=f"onnxruntime {MINORS[0]}", state=states.get(each, "pass")) for each in models
        ),
    )

    for page in (markdown.format_summary(many), format_comment(many)):
        rows = re.findall(r"^\| `models/x+/(\d+)\.onnx`", page, flags=re.MULTILINE)
        assert rows[:4] == ["2999", "2998", "0000", "0001"]
        assert f"… and {3000 - len(rows)} more in the full report" in page


def test_the_table_fits_on_a_screen() -> None:
    """Rows beyond the first ones are collapsed, in a table of their own with the same head."""
    models = [f"{number:02}.onnx" for number in range(30)]
    cells = tuple(Cell(model=it, runtime=f"onnxruntime {MINORS[0]}", state="pass") for it in models)
    page = markdown.format_summary(
        report(models=tuple(ReportedModel(path=it, sha256="") for it in models), cells=cells)
    )
    shown, _, folded = page.partition("<details><summary>18 more models</summary>\n\n")

    assert shown.count(".onnx` |") == 12
    assert folded.startswith("| onnxruntime | 1.18.1")
    assert folded.count(".onnx` |") == 18


def test_findings_beyond_the_first_are_collapsed() -> None:
    """The table and the changes can be reached without much scrolling."""
    page = markdown.format_summary(report(findings=tuple(finding(f"is {number}") for number in range(25))))

    assert page.partition("<details><summary>15 more findings</summary>")[0].count("**[`load-failed`]") == 10
