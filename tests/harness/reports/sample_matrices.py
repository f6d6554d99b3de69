"""Small matrices for tests: a sample, and functions that build others."""

from __future__ import annotations

from typing import Any

import msgspec

from onnxgate.core.matrix import Entry, Matrix, MatrixModel, Observed, Predicted, Reason, build_matrix
from tests.harness.reports.sample_reports import FOLDER, report

LETTERS: dict[str, Predicted] = {"+": "loads", "x": "refused", "?": "unknown"}
RELEASES = ("1.16.0", "1.16.3", "1.17.1", "1.17.3", "1.18.0", "1.18.1")
KERNEL = Reason(rule="missing-kernel", node="det", message="there is no kernel for `Det(22)`")


def sample() -> Matrix:
    """Return the matrix from which golden files are created."""
    return msgspec.json.decode((FOLDER / "matrix.json").read_bytes(), type=Matrix)


def entry(
    release: str,
    predicted: Predicted = "refused",
    *reasons: Reason,
    observed: Observed = "",
    error: str = "",
) -> Entry:
    """Return one release of ONNX Runtime; one that is not predicted to load has a reason."""
    given = reasons or ((KERNEL,) if predicted != "loads" else ())
    return Entry(runtime=f"onnxruntime {release}", predicted=predicted, reasons=given, observed=observed, error=error)


def model(letters: str, path: str = "m.onnx") -> MatrixModel:
    """Return a model with one state letter, such as in `x?++++`, for each of the six releases."""
    entries = (entry(release, LETTERS[letter]) for release, letter in zip(RELEASES, letters, strict=True))
    return MatrixModel(path=path, runtimes=tuple(entries))


def matrix(*models: MatrixModel, **changes: Any) -> Matrix:
    """Return the matrix of the models, for a passing report with changes."""
    return build_matrix(models, report(**changes))
