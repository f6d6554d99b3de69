"""The heat map: which releases share a column, and what stands in a cell."""

from __future__ import annotations

import pytest

from onnxgate.core.matrix import Matrix, MatrixModel, Reason
from onnxgate.formats import support_matrix
from tests.harness.reports.sample_matrices import KERNEL, entry, matrix, model, sample

MINORS = tuple(f"1.{minor}.{patch}" for minor in range(8, 32) for patch in (0, 1))


def heat(said: Matrix, width: int = 0) -> list[str]:
    """The lines of the table alone."""
    return support_matrix.format_text(said, width=width).partition("\n\n")[0].split("\n")


def test_patches_that_agree_share_a_column() -> None:
    """As long as every model has the same of them."""
    assert heat(matrix(model("xx++++", "a.onnx"), model("++++++", "b.onnx"))) == [
        "       onnxruntime 1.",
        "       16 17 18",
        "a.onnx x  +  +",
        "b.onnx +  +  +",
    ]


def test_patches_that_differ_have_columns_of_their_own() -> None:
    """Where one model tells them apart, no model's answer is lost."""
    assert heat(matrix(model("x+++++", "a.onnx"), model("+++++?", "b.onnx")))[1:] == [
        "       16.0 16.3 17 18.0 18.1",
        "a.onnx  x    +   +   +    +",
        "b.onnx  +    +   +   +    ?",
    ]


def test_a_narrow_terminal_has_runs_that_agree() -> None:
    """Nothing is cut: neighbours that are alike in all rows become one column."""
    letters = {release: "loads" if release >= "1.18" or release[3:4] == "." else "refused" for release in MINORS}
    entries = tuple(entry(release, "refused" if release < "1.18" else "loads") for release in letters)
    wide = matrix(MatrixModel(path="models/classifier.onnx", runtimes=entries))

    assert max(map(len, heat(wide))) > 60
    assert heat(wide, width=60)[1:] == [
        "                       8-9 10-17 18-31",
        "models/classifier.onnx  +    x     +",
    ]


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_lines_fit_the_terminal(width: int) -> None:
    """No line that has a blank to break at is longer than the terminal is wide."""
    lines = support_matrix.format_text(sample(), width=width).splitlines()[:-1]

    assert [line for line in lines if len(line) > width and " " in line.strip()] == []


def test_only_what_occurs_is_explained() -> None:
    """The legend of a matrix that loads everywhere has one entry."""
    assert "\n+: loads\n" in support_matrix.format_text(matrix(model("++++++")))


def test_what_was_seen_stands_in_the_cell() -> None:
    """What could not be verified, what was predicted wrongly, and how a load ended."""
    entries = (
        entry("1.16.3", "loads", observed="unavailable", error="no wheels"),
        entry("1.17.3", "loads", observed="crashed", error="SIGSEGV during load"),
        entry("1.18.1", "refused", observed="timed-out", error="it had not ended"),
        entry("1.19.2", "refused", observed="loads"),
    )

    assert heat(matrix(MatrixModel(path="m.onnx", runtimes=entries)))[-1] == "m.onnx +~ c! t  +!"


def test_quiet_leaves_the_verdict() -> None:
    """`--quiet` says the last line alone."""
    said = support_matrix.format_text(matrix(model("++++++"), model("xxxxxx", "b.onnx")), quiet=True)

    assert said == "fail: 2 models on 6 releases; 1 loads on none; predicted, nothing was run\n"


@pytest.mark.parametrize(
    ("letters", "said"),
    [
        (["++++++"], "pass: 1 model on 6 releases; predicted, nothing was run"),
        (["??????"], "undecided: 1 model on 6 releases; 1 is not known to load on any; predicted, nothing was run"),
        (
            ["xxxxxx", "xxxxxx", "xx????"],
            "fail: 3 models on 6 releases; 2 load on none, 1 is not known to load on any; predicted, nothing was run",
        ),
        (
            ["xxxxxx", "x????x"],
            "fail: 2 models on 6 releases; 2 load on none that is known; predicted, nothing was run",
        ),
    ],
)
def test_the_last_line(letters: list[str], said: str) -> None:
    """How many models load on none, and that nothing was run."""
    assert support_matrix.format_text(matrix(*map(model, letters)), quiet=True) == f"{said}\n"


def test_a_name_that_is_made_harmless_keeps_its_columns() -> None:
    """It is measured as it is shown."""
    lines = heat(matrix(model("++++++", "a.onnx"), model("xxxxxx", "##[error]\u202e.onnx")))

    assert lines[3] == r"#\x23[error]\u202e.onnx x  x  x"
    assert lines[2] == "a.onnx".ljust(len(r"#\x23[error]\u202e.onnx")) + " +  +  +"


def test_verbose_says_every_reason() -> None:
    """The first one stands for all of them otherwise, and how to see them is said."""
    more = Reason(rule="type-mismatch", node="", message="types differ", detail="wants one")
    said = matrix(
        MatrixModel(path="m.onnx", runtimes=(entry("1.17.3", "refused", KERNEL, more), entry("1.18.1", "loads")))
    )
    short, long = (support_matrix.format_text(said, verbose=verbose) for verbose in (False, True))

    assert "for `Det(22)`, and 1 more reason\n  `-v` says all reasons\n" in short
    assert (
        "  refused by onnxruntime 1.17.3\n    missing-kernel: node `det`: there is no kernel for `Det(22)`\n"
        "    type-mismatch: types differ (1.17.3 wants one)\n" in long
    )
    assert "`-v`" not in long
