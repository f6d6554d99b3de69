"""JSON report."""

from __future__ import annotations

import json as standard_json

import jsonschema
import msgspec

from onnxgate.core import report_json
from onnxgate.core.report import Report
from tests.harness.reports.sample_reports import finding, report, sample


def test_report_round_trip() -> None:
    """A report survives a round trip."""
    assert sample() == msgspec.json.decode(report_json.format(sample()), type=Report)


def test_sample_conforms_to_the_published_schema() -> None:
    """The schema accepts the rendered report and rejects invalid values."""
    schema = report_json.report_schema()
    written = standard_json.loads(report_json.format(sample()))

    jsonschema.validate(written, schema)
    written["findings"][0]["level"] = "fatal"

    assert not jsonschema.Draft202012Validator(schema).is_valid(written)


def test_undecodable_file_name_is_escaped() -> None:
    """A lone surrogate, as Python decodes a non-UTF-8 byte in a file name, does not crash the command."""
    written = report_json.format(report(findings=(finding(model="m\udcff.onnx"),)))

    assert msgspec.json.decode(written, type=Report).findings[0].model == r"m\udcff.onnx"


def test_ends_with_a_newline() -> None:
    """The JSON report is a text file and ends with a newline."""
    assert report_json.format(report()).endswith("}\n")
