"""The difference that golden files are made from."""

from __future__ import annotations

import msgspec

from onnxgate.model.diff.result import Difference
from tests.harness.reports.sample_reports import FOLDER


def sample() -> Difference:
    """Two models of which every section has something to say."""
    return msgspec.json.decode((FOLDER / "diff.json").read_bytes(), type=Difference)
