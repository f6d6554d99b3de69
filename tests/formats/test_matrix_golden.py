"""Every format of a matrix over one sample, character by character."""

from __future__ import annotations

import re
from collections.abc import Callable

import jsonschema
import pytest

from onnxgate.formats import matrix_json, matrix_markdown, matrix_text
from onnxgate.matrix import Matrix
from tests.formats.matrices import FOLDER, sample

FORMATS = {"json": matrix_json.format, "text": matrix_text.format, "md": matrix_markdown.format}


@pytest.mark.parametrize(("name", "format_"), FORMATS.items(), ids=FORMATS)
def test_the_sample(name: str, format_: Callable[[Matrix], str]) -> None:
    """The golden file is what the format says now."""
    expected = (FOLDER / f"matrix.{name}").read_bytes().decode()

    assert expected == format_(sample())


def test_colour_changes_no_character() -> None:
    """Without its styles, the coloured matrix is the plain one, blanks at the ends of lines aside."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", matrix_text.format(sample(), color=True))

    assert matrix_text.format(sample()) == "\n".join(line.rstrip() for line in plain.split("\n"))


def test_the_sample_holds_to_the_schema() -> None:
    """What is published is what is written."""
    import json

    jsonschema.Draft202012Validator(matrix_json.json_schema()).validate(json.loads(matrix_json.format(sample())))
