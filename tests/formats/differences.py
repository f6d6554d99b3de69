"""The difference that golden files are made from."""

from __future__ import annotations

from onnxgate.formats import diff_json
from onnxgate.model.difference import Difference
from tests.formats.reports import FOLDER


def sample() -> Difference:
    """Two models of which every section has something to say."""
    return diff_json.parse((FOLDER / "diff.json").read_bytes())
