"""Annotations are within GitHub's limits, have the correct location, and are sorted by severity."""

from __future__ import annotations

import msgspec
import pytest

from onnxgate.core.report import ReportedPlace
from onnxgate.formats import github
from tests.harness.github import workflow_commands
from tests.harness.reports.sample_reports import finding, not_done, report


def annotations(**changes: object) -> list[workflow_commands.Command]:
    """Return the commands that the runner finds in the formatted report."""
    return list(workflow_commands.commands(github.format(report(**changes))))


def test_tenth_annotation_counts_the_rest() -> None:
    """The runner shows ten annotations per level; the tenth counts the remaining findings."""
    findings = tuple(
        finding(str(number), level=level) for level in ("note", "error", "warning") for number in range(12)
    )

    got = annotations(findings=findings)

    assert [each.name for each in got] == ["error"] * 10 + ["warning"] * 10 + ["notice"] * 10
    assert got[9].data == "3 more errors; see the job summary or the report"
    assert got == workflow_commands.annotations(github.format(report(findings=findings)))


def test_nine_annotations_need_no_count() -> None:
    """If all findings are shown, no annotation for a count is added."""
    assert len(annotations(findings=tuple(finding(str(number)) for number in range(9)))) == 9


@pytest.mark.parametrize("letter", ["a", "%", "模", "\U0001f600", "\n"])
def test_long_messages_are_truncated_below_githubs_limit(letter: str) -> None:
    """A message is cut below 4096 UTF-16 code units, GitHub's limit, so that GitHub does not cut it silently."""
    (got,) = annotations(findings=(finding(letter * 9000, fix=letter * 9000),))

    assert len(got.data.encode("utf-16-le")) // 2 < 4096
    assert got.data.endswith(("…", "fix: ")) or "…" in got.data


def test_place_is_below_gits_root() -> None:
    """Paths are relative to the root of the git repository; line 0 is omitted."""
    places = (
        ReportedPlace(path="export.py", line=3, end_line=5),
        ReportedPlace(path="m.onnx"),
        ReportedPlace(path="a.py", line=3),
    )

    got = annotations(folder="ml", findings=tuple(finding(str(n), place=place) for n, place in enumerate(places)))

    assert [each.properties for each in got] == [
        {"file": "ml/a.py", "line": "3", "title": "load-failed"},
        {"file": "ml/export.py", "line": "3", "endLine": "5", "title": "load-failed"},
        {"file": "ml/m.onnx", "title": "load-failed"},
    ]


@pytest.mark.parametrize(("status", "level"), [(3, "error"), (1, "warning"), (0, "warning")])
def test_undecided_is_an_error_only_without_a_verdict(status: int, level: str) -> None:
    """All models with the same reason share one annotation; it is an error only if the verdict is undecided."""
    (got,) = annotations(exit=status, undecided=not_done([f"{n}.onnx" for n in range(7)]))

    assert level == got.name
    assert got.data == "runtime: 0.onnx, 1.onnx, 2.onnx and 4 more models: no interpreter was found"


def test_the_fix_is_the_messages_second_line() -> None:
    """The line break before the fix is preserved."""
    (got,) = annotations(findings=(finding(fix="run `git lfs pull`"),))

    assert got.data == "m.onnx: does not load\nfix: run `git lfs pull`"


def test_ignored_findings_are_not_annotated() -> None:
    """Ignored findings are not annotated on a pull request."""
    assert annotations(findings=(finding(ignored="known"),)) == []


def test_the_last_line_is_the_verdict() -> None:
    """The verdict is the last line of the log."""
    output = github.format(report(skipped=not_done(), findings=(msgspec.structs.replace(finding(), level="note"),)))

    assert output.splitlines()[-1] == "pass: 1 model on 5 runtimes: 1 note, 1 skipped"
