"""The model difference from which golden files are created."""

from __future__ import annotations

import msgspec

from onnxgate.model.diff.result import Difference
from tests.harness.reports.sample_reports import FOLDER


def sample() -> Difference:
    """Return two models with content for every section."""
    return msgspec.json.decode((FOLDER / "diff.json").read_bytes(), type=Difference)
