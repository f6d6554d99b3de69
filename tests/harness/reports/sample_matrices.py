"""Small matrices for tests: the sample, and pieces to build others from."""

from __future__ import annotations

import msgspec

from onnxgate.core.matrix import Entry, Matrix, MatrixModel, Observed, Predicted, Reason, build_matrix
from tests.harness.reports.sample_reports import FOLDER

LETTERS: dict[str, Predicted] = {"+": "loads", "x": "refused", "?": "unknown"}
RELEASES = ("1.16.0", "1.16.3", "1.17.1", "1.17.3", "1.18.0", "1.18.1")
KERNEL = Reason(rule="missing-kernel", node="det", message="there is no kernel for `Det(22)`")


def sample() -> Matrix:
    """The matrix that golden files are made from."""
    return msgspec.json.decode((FOLDER / "matrix.json").read_bytes(), type=Matrix)


def entry(
    release: str,
    predicted: Predicted = "refused",
    *reasons: Reason,
    observed: Observed = "",
    error: str = "",
) -> Entry:
    """One release of ONNX Runtime; what is not predicted to load has a reason."""
    given = reasons or ((KERNEL,) if predicted != "loads" else ())
    return Entry(runtime=f"onnxruntime {release}", predicted=predicted, reasons=given, observed=observed, error=error)


def model(letters: str, path: str = "m.onnx") -> MatrixModel:
    """`x?++++` on the six releases."""
    entries = (entry(release, LETTERS[letter]) for release, letter in zip(RELEASES, letters, strict=True))
    return MatrixModel(path=path, runtimes=tuple(entries))


def matrix(*models: MatrixModel) -> Matrix:
    """The models with their verdict."""
    return build_matrix(models, "0.1.0")
