"""Every format over one sample report, character by character."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onnxgate.formats import comment, github, gitlab, json, junit, markdown, sarif, summary, text
from onnxgate.report import Report
from tests.formats.reports import FOLDER, sample

FORMATS = {
    "json": json.format,
    "text": text.format,
    "github": github.format,
    "md": summary.format,
    "markdown": markdown.format,
    "comment": comment.format,
    "sarif": sarif.format,
    "junit.xml": junit.format,
    "gitlab.json": gitlab.format,
}


@pytest.mark.parametrize(("name", "format_"), FORMATS.items(), ids=FORMATS)
def test_the_sample(name: str, format_: Callable[[Report], str]) -> None:
    """The golden file is what the format says now."""
    expected = (FOLDER / f"sample.{name}").read_bytes().decode()

    assert expected == format_(sample())


def test_colour_changes_no_character() -> None:
    """Without its styles, the coloured report is the plain one."""
    import re

    assert text.format(sample()) == re.sub(r"\x1b\[[0-9;]*m", "", text.format(sample(), color=True))
