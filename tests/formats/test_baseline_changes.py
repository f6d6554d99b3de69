"""Changes since the baseline, in text and on pages."""

from __future__ import annotations

import cmarkgfm
import pytest

from onnxgate.core.report import Against, Cell, Change, Drawing, DrawnNode, ReportedModel
from onnxgate.formats import markdown, text, wording
from onnxgate.formats.markdown.pull_request_comment import format_comment
from tests.harness.reports.sample_reports import MINORS, finding, not_done, report, runtime, sample

MAIN = Against(name="origin/main", commit="1a2b3c4d" * 5)
CHANGED = (
    Change(model="a.onnx", kind="added"),
    Change(model="b.onnx", kind="changed", differences=tuple(f"difference {n}" for n in range(30))),
    Change(model="c.onnx", kind="renamed", before="old.onnx"),
    Change(model="d.onnx", kind="removed"),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("origin/main", "origin/main (1a2b3c4)"), ("1a2b3c4d1a", "1a2b3c4d1a"), ("1a2b3c4d" * 5, "1a2b3c4d" * 5)],
)
def test_a_baseline_is_named_once(name: str, expected: str) -> None:
    """A baseline that was selected by its commit ID is shown only once."""
    assert expected == wording.baseline_name(Against(name=name, commit="1a2b3c4d" * 5))


def test_no_change_is_printed_only_after_a_complete_comparison() -> None:
    """ "No model changed" is printed only if there is a baseline and the lock stage was completed."""
    incomplete = not_done(stage="lock")

    assert (
        wording.changes_title(report(against=MAIN, stages=("lock",))) == "no model changed since origin/main (1a2b3c4)"
    )
    assert wording.changes_title(report(stages=("lock",))) == ""
    assert wording.changes_title(report(against=MAIN, stages=("file",))) == ""
    assert wording.changes_title(report(against=MAIN, stages=("lock",), undecided=incomplete)) == ""
    assert wording.changes_title(report(against=MAIN, changes=CHANGED, undecided=incomplete)).startswith(
        "changed since"
    )


def test_no_change_is_a_paragraph_of_its_own() -> None:
    """Without an empty line, Markdown would add the sentence to the fix of the last finding."""
    page = markdown.format_summary(report(against=MAIN, stages=("lock",), findings=(finding(fix="export it again"),)))

    assert "<p>No model changed since origin/main (1a2b3c4).</p>" in cmarkgfm.github_flavored_markdown_to_html(page)


def test_models_with_errors_come_first() -> None:
    """Models with errors are listed before new models; ignored findings do not count."""
    findings = (
        finding(model="d.onnx"),
        finding(model="c.onnx", level="warning"),
        finding(model="a.onnx", ignored="why"),
    )
    order = [change.model for change in wording.sort_changes(report(changes=CHANGED, findings=findings))]

    assert order == ["d.onnx", "c.onnx", "a.onnx", "b.onnx"]


def test_in_text() -> None:
    """Text output shows each changed model with its first differences."""
    output = text.format(report(against=MAIN, changes=CHANGED))

    assert output.startswith(
        "changed since origin/main (1a2b3c4)\n  a.onnx is new\n  b.onnx changed\n    difference 0\n"
    )
    assert "    difference 5\n    … and 24 more\n  c.onnx was renamed from old.onnx\n  d.onnx was removed\n\n" in output


@pytest.mark.parametrize(
    ("format_", "more"), [(markdown.format_summary, 10), (format_comment, 24), (markdown.format, 0)]
)
def test_on_pages(format_: object, more: int) -> None:
    """The full document lists all differences; other pages count those that they omit."""
    assert callable(format_)
    actual = format_(report(against=MAIN, changes=CHANGED, findings=(finding(model="b.onnx"),)))

    assert "- ❌ `b.onnx` changed\n  - difference 0\n" in actual
    assert "- `c.onnx` was renamed from `old.onnx`\n" in actual
    assert f"  - … and {more} more\n" in actual if more else "difference 29" in actual


def test_drawings_of_the_summary_are_few() -> None:
    """The summary contains few diagrams, because a page with many is slow to render."""
    drawn = tuple(Drawing(model="m.onnx", node=f"n{n}", nodes=(DrawnNode(name="x"),), edges=()) for n in range(8))

    assert markdown.format_summary(report(drawings=drawn)).count("```mermaid\n") == 3
    assert "… and 5 more drawings in the full report" in markdown.format_summary(report(drawings=drawn))
    assert markdown.format(report(drawings=drawn)).count("```mermaid\n") == 8


def test_a_comment_always_fits() -> None:
    """A comment fits GitHub's limits in characters and bytes for any report, including its marker and link."""
    models = [f"models/{'模' * 200}/{number}.onnx" for number in range(500)]
    names = [f"{number}.{'9' * 40}" for number in range(100)]
    huge = report(
        models=tuple(ReportedModel(path=model, sha256="") for model in models),
        runtimes=tuple(runtime(name) for name in names),
        cells=tuple(Cell(model=model, runtime=f"onnxruntime {names[0]}", state="fail") for model in models),
        findings=tuple(finding("\x1b|`@x " * 2000, model=model, fix="<b> " * 3000) for model in models),
        undecided=tuple(entry for n, model in enumerate(models) for entry in not_done([model], reason=f"{n}" * 9000)),
        against=MAIN,
        changes=tuple(Change(model=model, kind="changed", differences=("*" * 900,) * 50) for model in models),
        scope="x" * 9000,
        remarks=tuple(f"{model}: {'*' * 900}" for model in models),
    )

    output = format_comment(huge)

    assert len(output.encode()) <= 60_000
    assert f"… and {500 - output.count('- ❌ **[')} more findings in the job summary" in output
    assert "100 runtimes: the table is too wide for this page" in output


def test_a_comment_of_a_pass_is_short() -> None:
    """The comment of a pass has only a few lines."""
    output = format_comment(report(against=MAIN, stages=("lock",)))

    assert output.startswith("## ✅ onnxgate: pass\n\n1 model on 5 runtimes, baseline `origin/main (1a2b3c4)`\n")
    assert "\nNo model changed since origin/main (1a2b3c4).\n" in output
    assert len(output.splitlines()) < 20


def test_a_comment_shows_errors_and_warnings_with_their_fixes() -> None:
    """Errors come first, then warnings; notes and findings beyond the first twenty are counted."""
    findings = tuple(finding(f"error {n}", fix="repair it") for n in range(25)) + (finding(level="note"),) * 3
    output = format_comment(report(findings=findings, verdict="fail", exit=1))

    assert output.count("**fix:** repair it") == 20
    assert "… and 5 more findings and 3 notes in the job summary and the full report" in output


def test_a_wide_table_of_a_comment_is_folded() -> None:
    """A table with 5 cells is shown, and one with 32 is collapsed."""
    assert "<details>" not in format_comment(report())
    assert "<details><summary>4 models on 8 runtimes</summary>" in format_comment(sample())


def test_the_document_has_no_html_and_every_output() -> None:
    """The document may be shown where HTML is not rendered."""
    page = cmarkgfm.github_flavored_markdown_to_html(markdown.format(sample()))  # omits raw HTML

    assert "<!-- raw HTML omitted -->" not in page
    assert page.count("<li>models/") == len(wording.describe_measurements(sample().measured)) > 1
    assert MINORS[0] in page
