"""Text about the releases that load models: the table of `onnxgate matrix`, and one line per model."""

from __future__ import annotations

import time

import msgspec
import pytest

from onnxgate.core.matrix import Matrix, MatrixModel, Observed, Reason
from onnxgate.core.report import NotDone
from onnxgate.formats import support_matrix
from tests.harness.reports.sample_matrices import KERNEL, RELEASES, entry, matrix, model, sample
from tests.harness.reports.sample_reports import finding

NO_KERNEL = "node `det`: there is no kernel for `Det(22)`"


def table(it: Matrix, width: int = 0) -> list[str]:
    """Return the lines of the table."""
    return support_matrix.format_text(it, width=width).partition("\n\n")[0].split("\n")


def test_releases_with_equal_cells_share_a_column() -> None:
    """A range is named by minors if it contains all their patches."""
    assert table(matrix(model("xx++++", "a.onnx"), model("++++++", "b.onnx"))) == [
        "        onnxruntime",
        "        1.16    1.17–1.18",
        "a.onnx  FAIL    likely",
        "b.onnx  likely  likely",
    ]


def test_patches_that_differ_have_their_own_columns() -> None:
    """Releases are only joined if all models have equal cells."""
    assert table(matrix(model("x+++++", "a.onnx"), model("+++++?", "b.onnx")))[1:] == [
        "        1.16.0  1.16.3–1.18.0  1.18.1",
        "a.onnx  FAIL    likely         likely",
        "b.onnx  likely  likely         ?",
    ]


def test_a_range_has_no_gap() -> None:
    """`1.16–1.24` would claim something about releases that were not checked."""
    entries = tuple(entry(release, "loads") for release in ("1.16.3", "1.17.3", "1.24.1"))

    assert table(matrix(MatrixModel(path="m.onnx", runtimes=entries)))[1].split() == ["1.16–1.17", "1.24.1"]


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_lines_fit_the_terminal(width: int) -> None:
    """Lines are wrapped at spaces."""
    lines = support_matrix.format_text(sample(), width=width).splitlines()[:-1]

    assert [line for line in lines if len(line) > width and " " in line.strip()] == []


def test_a_wide_table_has_short_labels() -> None:
    """The major version moves to the heading, before the table is split into blocks."""
    letters = ("x?x?x?", "?x?x?x")
    wide, narrow = (
        table(matrix(*(model(it, f"{number}.onnx") for number, it in enumerate(letters))), width) for width in (0, 50)
    )

    assert wide[1].split() == ["1.16.0", "1.16.3", "1.17.1", "1.17.3", "1.18.0", "1.18.1"]
    assert narrow[:2] == [
        "        onnxruntime 1.",
        "        16.0  16.3  17.1  17.3  18.0  18.1",
    ]


@pytest.mark.parametrize(
    ("runtimes", "cells"), [((), ["FAIL"]), (("onnxruntime 1.17.1",), ["likely", "FAIL", "likely"])]
)
def test_an_error_of_the_file_is_a_failure(runtimes: tuple[str, ...], cells: list[str]) -> None:
    """A cell agrees with the word below the table, on each runtime that the error is about."""
    error = finding("returns its input", rule="input-passthrough", stage="file", runtimes=runtimes)

    assert table(matrix(model("++++++"), findings=(error,)))[-1].split() == ["m.onnx", *cells]


def test_the_legend_explains_the_words_that_occur() -> None:
    """The legend omits `FAIL`, which is self-explanatory."""
    assert "\nlikely: predicted to load, not run\n" in support_matrix.format_text(matrix(model("x+++++")))
    assert "\nlikely: predicted to load, not run; ?: could not be checked\n" in support_matrix.format_text(
        matrix(model("x?++++"))
    )


def test_observations_in_cells() -> None:
    """A load that was verified is `ok`; a prediction that could not be verified stays a prediction."""
    entries = (
        entry("1.16.3", "loads", observed="unavailable", error="no wheels"),
        entry("1.17.3", "loads", observed="crashed", error="SIGSEGV during load"),
        entry("1.18.1", "refused", observed="timed-out", error="did not end"),
        entry("1.19.2", "refused", observed="loads"),
    )

    assert table(matrix(MatrixModel(path="m.onnx", runtimes=entries)))[-1].split() == [
        "m.onnx",
        "likely",
        "FAIL",
        "?",
        "ok",
    ]


def lines(it: Matrix, *, verbose: bool = False) -> list[str]:
    """Return the lines of a check without a config."""
    return support_matrix.format_text(it, has_table=False, verbose=verbose).splitlines()[:-2]


def test_one_line_per_model() -> None:
    """Each line has the verdict, the releases that load the model, and why the others do not."""
    assert lines(matrix(model("xx++++", "a.onnx"), model("++++++", "b.onnx"))) == [
        f"ok    a.onnx: loads on onnxruntime 1.17.1–1.18.1; 1.16.0–1.16.3 refused: {NO_KERNEL}",
        "ok    b.onnx: loads on onnxruntime 1.16.0–1.18.1",
    ]


def test_a_finding_in_the_sentence_adds_its_rule_and_fix() -> None:
    """The reason is already in the sentence and is not repeated."""
    error = finding(KERNEL.message, rule="missing-kernel", stage="support", node="det", fix="export at opset 21")

    assert lines(matrix(model("xxxxxx"), findings=(error,))) == [
        f"FAIL  m.onnx: does not load on onnxruntime 1.16.0–1.18.1: {NO_KERNEL} [missing-kernel]",
        "      fix: export at opset 21",
    ]


def test_other_findings_follow() -> None:
    """A model that loads may have another fault."""
    error = finding("returns its input", rule="input-passthrough", stage="support", fix="add a node")

    assert lines(matrix(model("++++++"), findings=(error,))) == [
        "FAIL  m.onnx: has 1 error, listed below; loads on onnxruntime 1.16.0–1.18.1",
        "      error: returns its input [input-passthrough]",
        "      fix: add a node",
    ]


def test_similar_findings_are_counted() -> None:
    """A rule and its fix are printed once, however many nodes they are about; `-v` prints all."""
    leaks = tuple(
        finding(f"contains `/home/{name}`", rule="path-leaked", stage="file", level="warning", fix="remove it")
        for name in ("a", "b", "c")
    )

    assert lines(matrix(model("++++++"), findings=leaks)) == [
        "warn  m.onnx: loads on onnxruntime 1.16.0–1.18.1",
        "      warning: contains `/home/a`, and 2 more [path-leaked]",
        "      fix: remove it",
        "",
        "hint: `-v` lists all reasons and findings",
    ]
    assert sum("contains" in line for line in lines(matrix(model("++++++"), findings=leaks), verbose=True)) == 3


def test_findings_that_the_sentence_counts_are_not_listed() -> None:
    """The sentence names one of 30 unknown operators, and has the number of the others."""
    operators = [Reason(rule="unknown-operator", node=f"n{it}", message=f"`Foo{it}` is unknown") for it in range(30)]
    errors = tuple(
        finding(it.message, rule=it.rule, stage="support", node=it.node, fix="use others") for it in operators
    )
    model = MatrixModel(path="m.onnx", runtimes=(entry("1.18.1", "refused", *operators),))

    assert lines(matrix(model, findings=errors)) == [
        "FAIL  m.onnx: does not load on onnxruntime 1.18.1: node `n0`: `Foo0` is unknown (and 29 more reasons) "
        "[unknown-operator]",
        "      fix: use others",
        "",
        "hint: `-v` lists all reasons and findings",
    ]
    assert "`Foo29` is unknown" in lines(matrix(model, findings=errors), verbose=True)[-1]


def test_models_with_the_same_answer_are_joined() -> None:
    """The reason is printed once for three or more models; fewer have their own lines."""
    names = ("a b.onnx", "c.onnx", "d.onnx", "e.onnx")
    faults = {"f": "is a folder", "g": "is empty", "h": "is a folder", "i": "is a folder", "j": "is a folder"}
    errors = tuple(
        finding(message, rule="not-a-model", stage="file", model=f"{name}.onnx", fix="commit it")
        for name, message in faults.items()
    )
    refused = [
        MatrixModel(
            path=f"{name}.onnx", runtimes=(entry("1.18.1", "refused", Reason(rule=it.rule, node="", message="")),)
        )
        for name, it in zip(faults, errors, strict=True)
    ]

    assert lines(matrix(*(model("xx++++", name) for name in names[:2]))) == [
        f"ok    {name}: loads on onnxruntime 1.17.1–1.18.1; 1.16.0–1.16.3 refused: {NO_KERNEL}" for name in names[:2]
    ]
    assert lines(matrix(model("++++++", "0.onnx"), *(model("xx++++", name) for name in names))) == [
        "ok    0.onnx: loads on onnxruntime 1.16.0–1.18.1",
        f"ok    4 models load on onnxruntime 1.17.1–1.18.1; 1.16.0–1.16.3 refused: {NO_KERNEL}",
        "      `a b.onnx`, c.onnx, d.onnx, e.onnx",
    ]
    assert lines(matrix(*refused, findings=errors)) == [
        "FAIL  4 models: each is a folder [not-a-model]",
        "      f.onnx, h.onnx, i.onnx, j.onnx",
        "      fix: commit it",
        "FAIL  g.onnx: is empty [not-a-model]",
        "      fix: commit it",
    ]


def test_notes_are_not_listed() -> None:
    """Notes would repeat the reasons in the model's line."""
    note = finding(KERNEL.message, rule="missing-kernel", stage="support", node="det", level="note")

    assert len(lines(matrix(model("x+++++"), findings=(note,)))) == 1


def test_a_fault_of_the_file_replaces_the_releases() -> None:
    """A fault of the file is more useful than a list of the releases that reject the model."""
    reason = Reason(rule="not-a-model", node="", message="is an HTML page")
    entries = (entry("1.17.3", "refused", reason), entry("1.18.1", "refused", reason))
    error = finding("is an HTML page", rule="not-a-model", stage="file", fix="commit the model")

    assert lines(matrix(MatrixModel(path="m.onnx", runtimes=entries), findings=(error,))) == [
        "FAIL  m.onnx: is an HTML page [not-a-model]",
        "      fix: commit the model",
    ]

    gap = NotDone(stage="support", model="m.onnx", runtime="", reason="the prediction crashed", hint="report this")

    assert lines(matrix(MatrixModel(path="m.onnx", runtimes=entries), findings=(error,), undecided=(gap,)))[2:] == [
        "      undecided: the prediction crashed",
        "      hint: report this",
    ]


def test_an_undecided_model_has_a_hint() -> None:
    """A model that could not be checked is not a pass."""
    gap = NotDone(stage="file", model="m.onnx", runtime="", reason="is a Git LFS pointer", hint="run `git lfs pull`")

    assert lines(matrix(model("??????"), undecided=(gap,))) == [
        "?     m.onnx: is a Git LFS pointer",
        "      hint: run `git lfs pull`",
    ]


def test_remarks_have_a_heading() -> None:
    """Remarks follow the lines of the models."""
    assert lines(matrix(model("++++++"), remarks=("m.onnx: opset 6 is not known",)))[1:] == [
        "",
        "notes",
        "  m.onnx: opset 6 is not known",
    ]


def test_verbose_lists_all_reasons() -> None:
    """Without `-v`, the line has only the reasons that are needed to cover all releases."""
    more = Reason(rule="type-mismatch", node="", message="types differ", detail="needs one type")
    it = matrix(
        MatrixModel(path="m.onnx", runtimes=(entry("1.17.3", "refused", KERNEL, more), entry("1.18.1", "loads")))
    )

    assert lines(it, verbose=True) == [
        f"ok    m.onnx: loads on onnxruntime 1.18.1; 1.17.3 refused: {NO_KERNEL} (and 1 more reason)",
        f"      onnxruntime 1.17.3: missing-kernel: {NO_KERNEL}",
        "      onnxruntime 1.17.3: type-mismatch: types differ (1.17.3 needs one type)",
    ]


def test_omitted_reasons_of_a_failure_are_announced() -> None:
    """The first reason is not the only one to fix."""
    more = Reason(rule="type-mismatch", node="", message="types differ")
    error = finding(KERNEL.message, rule="missing-kernel", stage="support", node="det", fix="")
    model = MatrixModel(path="m.onnx", runtimes=(entry("1.17.3", "refused", KERNEL, more),))

    assert lines(matrix(model, findings=(error,)))[-1] == "hint: `-v` lists all reasons and findings"


def test_the_matrix_has_the_same_lines() -> None:
    """`matrix` and `check` without a config give the same answer in the same words."""
    it = matrix(model("xx++++", "a.onnx"), model("++++++", "b.onnx"))

    assert "\n".join(lines(it)) in support_matrix.format_text(it)


def test_quiet_prints_only_the_last_line() -> None:
    """`--quiet` prints only the verdict line, for both commands."""
    it = matrix(model("++++++"), model("xxxxxx", "b.onnx"), verdict="fail", findings=(finding(model="b.onnx"),))
    printed = {support_matrix.format_text(it, quiet=True, has_table=has_table) for has_table in (True, False)}

    assert printed == {"fail: 2 models checked against 6 releases up to 1.18.1: 1 error; predicted, not run\n"}


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (("",), "1 release; predicted, not run"),
        (("loads", "loads"), "2 releases up to 1.16.3; 2 results verified"),
        (
            ("loads", "refused"),
            "2 releases up to 1.16.3; 2 results verified, 1 wrong prediction",
        ),
        (
            ("loads", "unavailable"),
            "2 releases up to 1.16.3; 1 result verified, 1 could not be verified",
        ),
    ],
)
def test_the_last_line(observed: tuple[Observed, ...], expected: str) -> None:
    """After the verdict and the counts, the last line states what was run."""
    entries = tuple(entry(release, "loads", observed=it) for release, it in zip(RELEASES, observed, strict=False))

    printed = support_matrix.format_text(matrix(MatrixModel(path="m.onnx", runtimes=entries)), quiet=True)
    assert printed == f"pass: 1 model checked against {expected}\n"


def test_the_elapsed_time_is_last() -> None:
    """The elapsed time is only printed if it is known."""
    assert support_matrix.format_text(matrix(model("++++++")), elapsed_s=2.06).endswith("predicted, not run (2.1 s)\n")


def test_an_escaped_name_keeps_its_columns() -> None:
    """The width of a column is that of the escaped name."""
    rows = table(matrix(model("++++++", "a.onnx"), model("xxxxxx", "##[error]\u202e.onnx")))

    assert rows[3] == r"#\x23[error]\u202e.onnx  FAIL"
    assert rows[2] == "a.onnx".ljust(len(r"#\x23[error]\u202e.onnx")) + "  likely"


def test_many_models_take_linear_time() -> None:
    """The findings of all models were sorted for each of them: 4,000 models took 6 s."""
    models = [f"{number}.onnx" for number in range(4000)]
    findings = tuple(msgspec.structs.replace(finding("has a fault"), model=path) for path in models)
    gaps = tuple(NotDone(stage="support", model=path, runtime="", reason="is unknown", hint="") for path in models)
    many = msgspec.structs.replace(
        matrix(*(model("xxxxxx", path) for path in models)), findings=findings, undecided=gaps
    )
    started = time.process_time()

    assert len(support_matrix.answer_matrix(many)) == 1
    assert time.process_time() - started < 2.5
