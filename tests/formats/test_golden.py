"""Every format of the sample report matches its golden file exactly."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onnxgate.core import report_json
from onnxgate.core.report import Report
from onnxgate.formats import github, gitlab, junit, markdown, sarif, text
from tests.harness.reports.sample_reports import FOLDER, sample

FORMATS = {
    "json": report_json.format,
    "text": text.format,
    "github": github.format,
    "md": markdown.format_summary,
    "markdown": markdown.format,
    "comment": markdown.format_comment,
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
    import re

    assert text.format(sample()) == re.sub(r"\x1b\[[0-9;]*m", "", text.format(sample(), color=True))
