"""The text that a person reads."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from onnxgate.core.report import Cell, CellState, Measured, ReportedModel
from onnxgate.formats import text
from tests.harness.reports.sample_reports import MINORS, finding, not_done, report, runtime, sample


def test_a_pass_is_a_table_and_one_line() -> None:
    """Where nothing is wrong, nothing else is said."""
    expected = """\
        onnxruntime
        1.18.1  1.19.2  1.20.1  1.21.1  1.22.1
m.onnx  pass    pass    pass    pass    pass

pass: 1 model on 5 runtimes
"""

    assert expected == text.format(report())


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_lines_fit_the_terminal(width: int) -> None:
    """No line is longer than the terminal is wide, except for a command, and one whose last word cannot be broken."""
    lines = [line for line in text.format(sample(), width=width).splitlines()[:-1] if "onnxgate check" not in line]
    too_long = [line for line in lines if len(line) > width]

    assert [line for line in too_long if " " in line.strip() and len(line.rpartition(" ")[0]) > width] == []


def test_a_command_is_one_line_however_narrow_the_terminal() -> None:
    """It can be copied; the folder of its inputs is said where it is known."""
    said = text.format(sample(), width=40, inputs=Path("stored")).splitlines()
    command = sample().replays[0].command

    assert [f"  {command}"] == [line for line in said if "onnxgate check" in line]
    assert [f"    with the inputs of {Path('stored', 'classifier-0c9a2f41d7e3.npz')}"] == [
        line for line in said if ".npz" in line
    ]


def test_no_word_is_broken() -> None:
    """A narrow terminal has the same words as a wide one."""
    table = "runtimes"
    wide, narrow = (text.format(sample(), width=width).partition(table)[0].split() for width in (0, 50))

    assert {word for word in wide if "/" in word} == {word for word in narrow if "/" in word}


def test_a_wide_table_is_cut_into_blocks() -> None:
    """Each block has the models' names and as many runtimes as fit."""
    said = text.format(report(), width=30)

    assert said.count("m.onnx  pass") == 2
    assert all(len(line) <= 30 for line in said.splitlines())


def test_each_engine_is_named_over_its_columns() -> None:
    """Columns of two engines are told apart."""
    two = report(
        runtimes=(runtime("1.18.1"), runtime("2026.1", "openvino")),
        cells=(Cell(model="m.onnx", runtime="openvino 2026.1", state="fail"),),
    )

    assert text.format(two).splitlines()[:3] == [
        "        onnxruntime  openvino",
        "        1.18.1       2026.1",
        "m.onnx  -            FAIL",
    ]


def test_models_that_pass_are_counted_where_they_are_many() -> None:
    """One row is left of 30: that of the model that fails."""
    models = [f"m{number:02}.onnx" for number in range(30)]
    name = f"onnxruntime {MINORS[0]}"
    cells = tuple(Cell(model=each, runtime=name, state="fail" if each == "m07.onnx" else "pass") for each in models)
    many = report(models=tuple(ReportedModel(path=each, sha256="") for each in models), cells=cells)

    said = text.format(many)

    assert "m07.onnx  FAIL" in said
    assert "m08.onnx" not in said
    assert "29 more models: pass wherever promised" in said


def test_a_model_without_any_cell_is_not_counted_as_passing() -> None:
    """With many models, one that was never looked at keeps its row."""
    models = [f"m{number:02}.onnx" for number in range(30)]
    name = f"onnxruntime {MINORS[0]}"
    cells = tuple(Cell(model=each, runtime=name, state="pass") for each in models[1:])
    many = report(models=tuple(ReportedModel(path=each, sha256="") for each in models), cells=cells)

    assert "m00.onnx  -" in text.format(many)


def test_what_was_not_done_is_said_with_reason_and_hint() -> None:
    """One reason for two models and two stages is said once."""
    undone = not_done(["a.onnx", "b.onnx"]) + not_done(["a.onnx", "b.onnx"], stage="parity")
    undone = tuple(msgspec.structs.replace(each, hint="install one") for each in undone)

    said = text.format(report(undecided=undone, verdict="undecided", exit=3))

    assert (
        "undecided\n  runtime, parity: a.onnx and b.onnx\n    no interpreter was found\n    hint: install one\n" in said
    )
    assert said.endswith("undecided: 1 model on 5 runtimes; 4 undecided\n")


def test_quiet_leaves_the_verdict() -> None:
    """`--quiet` says the last line alone."""
    assert text.format(report(), quiet=True) == "pass: 1 model on 5 runtimes\n"


def test_the_scope_is_in_the_last_line() -> None:
    """What was not asked for is no part of the pass."""
    assert (
        text.format(report(scope="export not asked for"), quiet=True)
        == "pass: 1 model on 5 runtimes; export not asked for\n"
    )


def test_remarks_are_said() -> None:
    """Answers that are no findings stand before the verdict."""
    assert "m.onnx: loads since 1.18.1\n\npass" in text.format(
        report(remarks=("m.onnx: loads since 1.18.1",), cells=())
    )


def test_verbose_says_every_figure() -> None:
    """Without `--verbose` only the figure that came nearest to its bound is said."""
    cells = (Cell(model="m.onnx", runtime="onnxruntime 1.18.1", state="pass", compared=True),)
    figures = tuple(
        Measured(
            model="m.onnx",
            output="y",
            pair=pair,
            case="",
            metric="max_abs",
            value=value,
            bound=1e-5,
            bound_from="lock",
        )
        for pair, value in (("far", 1e-9), ("near", 1e-6))
    )
    measured = report(cells=cells, measured=figures)

    assert "far" not in text.format(measured)
    assert "`y` differs by at most 1e-06 where 1e-05 is allowed by what the lock recorded (near)" in text.format(
        measured
    )
    assert "(far)" in text.format(measured, verbose=True)


def test_models_without_a_source_are_counted() -> None:
    """What does not apply is no pass: it is said where it would have been asked for."""
    counts = {"without_source": 2}

    assert "2 models without a source: " in text.format(report(counts=counts, stages=("parity",)))
    assert "without a source" not in text.format(report(counts=counts, stages=("file",)))


def test_a_node_is_named_once() -> None:
    """A message that names its node is not followed by it again."""
    said = text.format(
        report(findings=(finding("`conv1` is unknown", node="conv1"), finding("no kernel", node="conv2")))
    )

    assert said.count("conv1") == 1
    assert "node: conv2" in said


def test_models_that_are_predicted_alike_are_counted_where_they_are_many() -> None:
    """A check of every commit runs nothing, and does not list 30 models for that."""
    models = [f"m{number:02}.onnx" for number in range(30)]
    name = f"onnxruntime {MINORS[0]}"
    states: dict[str, CellState] = {"m03.onnx": "not predicted", "m07.onnx": "fail", "m09.onnx": "pass"}
    cells = tuple(Cell(model=each, runtime=name, state=states.get(each, "predicted")) for each in models)

    said = text.format(report(models=tuple(ReportedModel(path=each, sha256="") for each in models), cells=cells))

    assert [line.split()[0] for line in said.splitlines() if ".onnx" in line] == ["m03.onnx", "m07.onnx"]
    assert "1 more model: pass wherever promised\n27 more models: predicted wherever promised\n" in said
    assert "predicted: from support data; nothing was run" in said


def test_of_many_figures_those_nearest_to_their_bounds_are_said() -> None:
    """A page is not filled with what did not differ; what is left out is counted, and `--verbose` has it."""
    cells = tuple(Cell(model=f"m{n:02}.onnx", runtime=f"onnxruntime {MINORS[0]}", state="pass") for n in range(30))
    figures = tuple(
        Measured(
            model=cell.model,
            output="y",
            pair="a against b",
            case="",
            metric="max_abs",
            value=1e-9 * n,
            bound=1e-5,
            bound_from="type",
        )
        for n, cell in enumerate(cells)
    )
    many = report(cells=cells, measured=figures)
    listed = [line for line in text.format(many).splitlines() if "(a against b)" in line]

    assert len(listed) == text.MAX_LISTED
    assert listed[0].startswith("  m29.onnx")
    assert listed[-1].startswith("  m10.onnx")
    assert "  and 10 more figures; `-v` shows all\n" in text.format(many)
    assert text.format(many, verbose=True).count("(a against b)") == 30
