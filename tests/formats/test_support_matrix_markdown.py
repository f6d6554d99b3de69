"""Support matrix as rendered by GitHub."""

from __future__ import annotations

import re

import cmarkgfm

from onnxgate.core.matrix import Matrix, MatrixModel
from onnxgate.formats import support_matrix
from tests.harness.reports.sample_matrices import entry, matrix, model, sample


def rendered(said: Matrix) -> str:
    """Render the matrix with GitHub's Markdown library."""
    return cmarkgfm.github_flavored_markdown_to_html(
        support_matrix.format_markdown(said), cmarkgfm.Options.CMARK_OPT_UNSAFE
    )


def test_every_row_has_a_cell_for_every_column() -> None:
    """The sample's table has a header and three models with the same number of cells."""
    rows = re.findall(r"<tr>(.*?)</tr>", rendered(sample()), flags=re.DOTALL)

    assert len({len(re.findall(r"<t[dh]\b", row)) for row in rows}) == 1
    assert len(rows) == 4


def test_one_engine_is_named_once() -> None:
    """A single engine is named in the first header cell."""
    assert "| onnxruntime | 1.16 | 1.17–1.18 |\n" in support_matrix.format_markdown(matrix(model("xx++++")))


def test_columns_name_their_engine() -> None:
    """With two engines, each column names its engine."""
    other = entry("1.18.1", "loads")
    entries = (*model("xx++++").runtimes, type(other)(runtime="openvino 2026.1", predicted="loads"))

    assert "| onnxruntime<br>1.17–1.18 | openvino<br>2026.1 |" in support_matrix.format_markdown(
        matrix(MatrixModel(path="m.onnx", runtimes=entries))
    )


def test_columns_are_joined() -> None:
    """Adjacent releases with equal cells share a column."""
    releases = [f"1.{minor}.0" for minor in range(8, 32)]
    entries = tuple(entry(release, "loads" if int(release.split(".")[1]) > 17 else "refused") for release in releases)

    assert "| onnxruntime | 1.8–1.17 | 1.18–1.31 |" in support_matrix.format_markdown(
        matrix(MatrixModel(path="m.onnx", runtimes=entries))
    )


def test_models_with_the_same_answer_are_joined() -> None:
    """The sentence is that of the text output, and the names are below it."""
    page = support_matrix.format_markdown(matrix(*(model("xx++++", f"{it}.onnx") for it in "abcd")), has_table=False)

    assert "- ok 4 models load on onnxruntime 1.17.1–1.18.1; 1.16.0–1.16.3 refused: " in page
    assert "\n  - `a.onnx`, `b.onnx`, `c.onnx`, `d.onnx`\n" in page
    assert "|" not in page


def test_wrong_predictions_come_first() -> None:
    """Incorrect predictions come first, so that they are not overlooked."""
    page = rendered(sample())

    assert page.index("Wrong predictions") < page.index("<table>")
