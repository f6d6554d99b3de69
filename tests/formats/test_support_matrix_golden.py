"""Every format of a sample matrix matches its golden file exactly."""

from __future__ import annotations

import re
from collections.abc import Callable

import jsonschema
import pytest

from onnxgate.core.matrix import Matrix
from onnxgate.core.report_json import build_schema, encode_json
from onnxgate.formats import support_matrix
from tests.harness.reports.sample_matrices import sample
from tests.harness.reports.sample_reports import FOLDER

FORMATS = {"json": encode_json, "text": support_matrix.format_text, "md": support_matrix.format_markdown}


@pytest.mark.parametrize(("name", "format_"), FORMATS.items(), ids=FORMATS)
def test_the_sample(name: str, format_: Callable[[Matrix], str]) -> None:
    """The output equals the golden file."""
    expected = (FOLDER / f"matrix.{name}").read_bytes().decode()

    assert expected == format_(sample())


def test_colour_changes_no_character() -> None:
    """Without its escape sequences, the colored matrix equals the plain one, except for trailing spaces."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", support_matrix.format_text(sample(), color=True))

    assert support_matrix.format_text(sample()) == "\n".join(line.rstrip() for line in plain.split("\n"))


def test_sample_conforms_to_the_schema() -> None:
    """The JSON output is valid for the published schema."""
    import json

    jsonschema.Draft202012Validator(build_schema(Matrix, "")).validate(json.loads(encode_json(sample())))
