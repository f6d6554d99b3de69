"""Every format of the sample report matches its golden file exactly."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from onnxgate.core import report_json
from onnxgate.core.report import Report
from onnxgate.formats import github, gitlab, html, junit, markdown, sarif, text
from onnxgate.formats.markdown.pull_request_comment import format_comment
from tests.harness.reports.sample_reports import FOLDER, finding, report, sample

FORMATS = {
    "json": report_json.format,
    "text": text.format,
    "github": github.format,
    "md": markdown.format_summary,
    "markdown": markdown.format,
    "comment": format_comment,
    "sarif": sarif.format,
    "junit.xml": junit.format,
    "gitlab.json": gitlab.format,
}


@pytest.mark.parametrize(("name", "format_"), FORMATS.items(), ids=FORMATS)
def test_the_sample(name: str, format_: Callable[[Report], str]) -> None:
    """The output equals the golden file."""
    expected = (FOLDER / f"sample.{name}").read_bytes().decode()

    assert expected == format_(sample())


def test_colour_changes_no_character() -> None:
    """Without its escape sequences, colored output equals plain output."""
    assert text.format(sample()) == re.sub(r"\x1b\[[0-9;]*m", "", text.format(sample(), color=True))


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"gitlab.json", "github"}))
def test_an_accepted_undecided_check_is_listed_with_its_reason(name: str) -> None:
    """It is not hidden, although the check passes; GitLab and annotations show no ignored findings."""
    accepted = finding("does not run on any inputs", rule="undecided", level="warning", ignored="needs real audio")
    text_of_report = FORMATS[name](report(findings=(accepted,)))

    assert "needs real audio" in text_of_report
    assert "does not run on any inputs" in text_of_report


def test_an_accepted_undecided_check_is_counted() -> None:
    """The last line and the summary name the number of accepted undecided checks."""
    accepted = finding("does not run", rule="undecided", level="warning", ignored="needs real audio")
    answer = report(findings=(accepted, finding(ignored="known")))

    assert "2 ignored (1 undecided)" in text.format(answer, quiet=True)
    assert "1 ignored finding, 1 ignored undecided check" in markdown.format(answer)


def test_an_accepted_undecided_check_is_not_a_passed_test() -> None:
    """In JUnit, it is a skipped test of each runtime that it concerns; in HTML, its stage is not complete."""
    accepted = finding("does not run", rule="undecided", level="warning", ignored="needs real audio")
    plain = report()
    answer = report(findings=(accepted,), cells=tuple(replace(cell, state="warning") for cell in plain.cells))

    assert junit.format(answer).count("<skipped") == len(plain.cells)
    assert "failure" not in re.sub(r'failures="0"', "", junit.format(answer))
    assert "◐" in html.format(answer)
    assert "◐" not in html.format(plain)
