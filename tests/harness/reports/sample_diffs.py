"""The difference that golden files are made from."""

from __future__ import annotations

from onnxgate.formats import model_diff
from onnxgate.model.diff.result import Difference
from tests.harness.reports.sample_reports import FOLDER


def sample() -> Difference:
    """Two models of which every section has something to say."""
    return model_diff.parse_json((FOLDER / "diff.json").read_bytes())
