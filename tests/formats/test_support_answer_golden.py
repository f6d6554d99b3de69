"""Every format of sample answers about support matches its golden file exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial

import jsonschema
import pytest

from onnxgate.core.report_json import build_schema, encode_json
from onnxgate.formats import support_answer
from onnxgate.support.answers.operator_answers import SupportAnswer
from tests.harness.reports.sample_answers import list_samples
from tests.harness.reports.sample_reports import FOLDER

FORMATS: dict[str, Callable[[SupportAnswer], str]] = {
    "text": partial(support_answer.format_text, width=80),
    "verbose.text": partial(support_answer.format_text, width=80, verbose=True),
    "md": support_answer.format_markdown,
}


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_samples(format_name: str) -> None:
    """The outputs of all samples equal the golden file."""
    expected = (FOLDER / f"support.{format_name}").read_bytes().decode()

    assert expected == "\n".join(f"# {name}\n\n{FORMATS[format_name](it)}" for name, it in list_samples().items())


@pytest.mark.parametrize("sample", list_samples().values(), ids=list_samples())
def test_no_line_is_wider_than_the_terminal(sample: SupportAnswer) -> None:
    """Text is wrapped, also inside of tables."""
    lines = support_answer.format_text(sample, width=80, verbose=True).splitlines()

    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("sample", list_samples().values(), ids=list_samples())
def test_color_changes_no_character(sample: SupportAnswer) -> None:
    """Without its escape sequences, the colored text equals the plain one, except for trailing spaces."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", support_answer.format_text(sample, color=True))

    assert support_answer.format_text(sample) == "\n".join(line.rstrip() for line in plain.split("\n"))


def test_quiet_text_is_the_sentence() -> None:
    """With `--quiet`, only the answer remains."""
    assert support_answer.format_text(list_samples()["opsets"], quiet=True) == (
        "`Old` is supported by all 5 known releases of onnxruntime (1.16.3–1.18.1), by a kernel, at opset 7–8; "
        "it is deprecated since opset 10\n"
    )


@pytest.mark.parametrize("sample", list_samples().values(), ids=list_samples())
def test_samples_conform_to_the_schema(sample: SupportAnswer) -> None:
    """The JSON output is valid for the published schema."""
    jsonschema.Draft202012Validator(build_schema(SupportAnswer, "")).validate(json.loads(encode_json(sample)))
