"""Text report."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len

from onnxgate.core.report import Cell, CellState, Measured, ReportedModel
from onnxgate.formats import text
from tests.harness.reports.sample_reports import MINORS, finding, not_done, report, runtime, sample


def test_a_pass_is_a_table_and_one_line() -> None:
    """Without findings, nothing else is printed."""
    expected = """\
        onnxruntime
        1.18–1.22
m.onnx  ok

pass: 1 model on 5 runtimes
"""

    assert expected == text.format(report())


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_lines_fit_the_terminal(width: int) -> None:
    """No line exceeds the terminal width, except commands and lines whose last word cannot be broken."""
    lines = [line for line in text.format(sample(), width=width).splitlines()[:-1] if "onnxgate check" not in line]
    too_long = [line for line in lines if len(line) > width]

    assert [line for line in too_long if " " in line.strip() and len(line.rpartition(" ")[0]) > width] == []


def test_command_is_one_line_at_any_width() -> None:
    """A command can be copied from one line; the folder of its inputs is shown if it is known."""
    output = text.format(sample(), width=40, inputs=Path("stored")).splitlines()
    command = sample().replays[0].command

    assert [f"  {command}"] == [line for line in output if "onnxgate check" in line]
    assert [f"    inputs: {Path('stored', 'classifier-0c9a2f41d7e3.npz')}"] == [
        line for line in output if ".npz" in line
    ]


def test_no_word_is_broken() -> None:
    """A narrow terminal shows the same words as a wide one."""
    table = "runtimes"
    wide, narrow = (text.format(sample(), width=width).partition(table)[0].split() for width in (0, 50))

    assert {word for word in wide if "/" in word} == {word for word in narrow if "/" in word}


def test_a_wide_table_is_cut_into_blocks() -> None:
    """Each block has the model names and as many runtimes as fit."""
    states: list[CellState] = ["pass", "fail", "pass", "fail", "pass"]
    cells = tuple(
        Cell(model="m.onnx", runtime=f"onnxruntime {minor}", state=state)
        for minor, state in zip(MINORS, states, strict=True)
    )
    output = text.format(report(cells=cells), width=28)

    assert output.count("\nm.onnx  ") == 2
    assert all(len(line) <= 28 for line in output.splitlines())


def test_each_engine_is_named_over_its_columns() -> None:
    """Columns of different engines have separate headings."""
    two = report(
        runtimes=(runtime("1.18.1"), runtime("2026.1", "openvino")),
        cells=(Cell(model="m.onnx", runtime="openvino 2026.1", state="fail"),),
    )

    assert text.format(two).splitlines()[:3] == [
        "        onnxruntime  openvino",
        "        1.18.1       2026.1",
        "m.onnx  –            FAIL",
    ]


def test_many_passing_models_are_summarized() -> None:
    """Of 30 models only the failing one has its own row."""
    models = [f"m{number:02}.onnx" for number in range(30)]
    name = f"onnxruntime {MINORS[0]}"
    cells = tuple(Cell(model=model, runtime=name, state="fail" if model == "m07.onnx" else "pass") for model in models)
    many = report(models=tuple(ReportedModel(path=model, sha256="") for model in models), cells=cells)

    output = text.format(many)

    assert "m07.onnx  FAIL" in output
    assert "m08.onnx" not in output
    assert "29 more models: ok on all required runtimes" in output


def test_a_model_without_any_cell_is_not_counted_as_passing() -> None:
    """A model that was not checked keeps its row, however many models there are."""
    models = [f"m{number:02}.onnx" for number in range(30)]
    name = f"onnxruntime {MINORS[0]}"
    cells = tuple(Cell(model=model, runtime=name, state="pass") for model in models[1:])
    many = report(models=tuple(ReportedModel(path=model, sha256="") for model in models), cells=cells)

    assert "m00.onnx  –" in text.format(many)


def test_incomplete_checks_have_reason_and_hint() -> None:
    """The same reason for several models and stages is printed only once."""
    incomplete = not_done(["a.onnx", "b.onnx"]) + not_done(["a.onnx", "b.onnx"], stage="parity")
    incomplete = tuple(msgspec.structs.replace(entry, hint="install one") for entry in incomplete)

    output = text.format(report(undecided=incomplete, verdict="undecided", exit=3))

    assert (
        "undecided\n  runtime, parity: a.onnx and b.onnx\n    no interpreter was found\n    hint: install one\n"
        in output
    )
    assert output.endswith("undecided: 1 model on 5 runtimes: 1 undecided\n")


def test_quiet_leaves_the_verdict() -> None:
    """`--quiet` prints only the last line."""
    assert text.format(report(), quiet=True) == "pass: 1 model on 5 runtimes\n"


def test_the_scope_is_in_the_last_line() -> None:
    """Stages that were skipped did not pass."""
    assert (
        text.format(report(scope="skipped stages: export"), quiet=True)
        == "pass: 1 model on 5 runtimes; skipped stages: export\n"
    )


def test_the_last_line_names_runtimes_without_a_prediction() -> None:
    """Without the runtime stage, a runtime on which no model was predicted is named, also by `-q`."""
    unknown, known = (f"onnxruntime {release}" for release in MINORS[:2])
    cells = (
        Cell(model="a.onnx", runtime=unknown, state="not predicted"),
        Cell(model="b.onnx", runtime=unknown, state="warning"),
        Cell(model="a.onnx", runtime=known, state="not predicted"),
        Cell(model="b.onnx", runtime=known, state="predicted"),
    )
    static = report(cells=cells, stages=("file", "support"), scope="skipped stages: runtime")

    assert (
        text.format(static, quiet=True)
        == f"pass: 1 model on 5 runtimes; not predicted: {unknown}; skipped stages: runtime\n"
    )
    assert text.format(report(cells=cells), quiet=True) == "pass: 1 model on 5 runtimes\n"


def test_the_last_line_counts_findings() -> None:
    """Zero counts are omitted."""
    findings = tuple(finding(level=level) for level in ("error", "error", "warning", "note"))
    output = text.format(report(findings=findings, verdict="fail", exit=1), quiet=True)

    assert output == "fail: 1 model on 5 runtimes: 2 errors, 1 warning, 1 note\n"


@pytest.mark.parametrize(("elapsed_s", "expected"), [(None, ""), (2.06, " (2.1 s)"), (125.4, " (2 min 5 s)")])
def test_the_elapsed_time_is_last(elapsed_s: float | None, expected: str) -> None:
    """The elapsed time is only printed if it is given, so that reports are deterministic."""
    assert text.format(report(), elapsed_s=elapsed_s, quiet=True) == f"pass: 1 model on 5 runtimes{expected}\n"


def test_remarks_have_a_heading() -> None:
    """Remarks are printed before the verdict."""
    assert "notes\n  m.onnx: loads since 1.18.1\n\npass" in text.format(
        report(remarks=("m.onnx: loads since 1.18.1",), cells=())
    )


def test_verbose_lists_the_runtimes() -> None:
    """`-v` lists each runtime, because the table may show a range."""
    line = "  onnxruntime 1.18.1: Python 3.11; target `server`\n"

    assert line in text.format(report(), verbosity=1)
    assert line not in text.format(report())


def test_verbose_prints_comparisons_and_cache_use() -> None:
    """Numbers of comparisons and reused results are only printed with `-v`."""
    cells = (Cell(model="m.onnx", runtime="onnxruntime 1.18.1", state="pass", compared=True),)
    it = report(cells=cells, counts={"ran": 1, "reused": 3})
    lines = (
        "  outputs compared with the source: 1 of 1 model, 1 of 1 run\n"
        "  3 results reused from cache (disable with `--no-cache`)\n"
    )

    assert lines in text.format(it, verbosity=1)
    assert "reused" not in text.format(it)


def test_long_names_do_not_split_the_table() -> None:
    """A table of models with long paths stays one table, because paths are shortened at their beginning."""
    paths = [f"{'folder/' * 20}{name}.onnx" for name in ("first", "second")]
    cells = tuple(Cell(model=path, runtime="onnxruntime 1.18.1", state="pass") for path in paths)
    models = tuple(ReportedModel(path=path, sha256="") for path in paths)
    lines = text.format(report(models=models, cells=cells), width=60).splitlines()

    assert max(map(len, lines)) <= 60
    assert "…/folder/folder/first.onnx   ok      –" in lines


def test_shortened_names_stay_different() -> None:
    """Models whose paths differ only at the beginning are not confused."""
    paths = [f"{first}{'/folder' * 20}/model.onnx" for first in "ab"]
    cells = tuple(Cell(model=path, runtime="onnxruntime 1.18.1", state="pass") for path in paths)
    models = tuple(ReportedModel(path=path, sha256="") for path in paths)
    output = text.format(report(models=models, cells=cells), width=60)

    assert all(path in output for path in paths)


def test_wide_characters_and_the_verdict_are_wrapped() -> None:
    """Lines fit into the terminal also if their characters are two columns wide, and so does the last line."""
    wide = "模型 " * 40
    output = text.format(
        report(findings=(finding(message=wide),), scope="skipped stages: " + "runtime, " * 12), width=60
    )

    assert max(map(cell_len, output.splitlines())) <= 60
    assert output.count("模型") == 40


def test_a_command_is_not_broken() -> None:
    """Code that fits on a line can be copied, however the lines around it are wrapped."""
    it = report(findings=(finding(fix="run `onnxgate fix m.onnx --target onnxruntime>=1.18` to convert it"),))

    assert any(
        "`onnxgate fix m.onnx --target onnxruntime>=1.18`" in line for line in text.format(it, width=66).split("\n")
    )


def test_figures_need_more_verbosity() -> None:
    """Measurements are details; the one nearest to its bound is listed first."""
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
        for pair, value in (("a against far", 1e-9), ("a against near", 1e-6))
    )
    measured = report(measured=figures)

    assert "max difference" not in text.format(measured, verbosity=1)
    assert (
        "runs\n"
        "  m.onnx: `y`: max difference 1e-06 (tolerance 1e-05 from the lock); a against near\n"
        "  m.onnx: `y`: max difference 1e-09 (tolerance 1e-05 from the lock); a against far\n"
    ) in text.format(measured, verbosity=2)


def test_models_without_a_source_are_counted() -> None:
    """The notes state which selected stages were skipped for models without a source."""

    def notes(count: int, *stages: str) -> str:
        return text.format(report(counts={"without_source": count}, stages=stages))

    assert "notes\n  2 models have no `source`; parity with source was skipped\n" in notes(2, "parity")
    assert "  1 model has no `source`; parity with source and export were skipped\n" in notes(1, "parity", "export")
    assert "source" not in notes(2, "file")


def test_a_node_is_named_once() -> None:
    """The node is not repeated if the message already contains its name."""
    output = text.format(
        report(findings=(finding("`conv1` is unknown", node="conv1"), finding("no kernel", node="conv2")))
    )

    assert output.count("conv1") == 1
    assert "node: conv2" in output


def test_many_predicted_models_are_summarized() -> None:
    """A check without runs summarizes predicted models and does not list 30 of them."""
    models = [f"m{number:02}.onnx" for number in range(30)]
    name = f"onnxruntime {MINORS[0]}"
    states: dict[str, CellState] = {"m03.onnx": "not predicted", "m07.onnx": "fail", "m09.onnx": "pass"}
    cells = tuple(Cell(model=model, runtime=name, state=states.get(model, "predicted")) for model in models)

    output = text.format(report(models=tuple(ReportedModel(path=model, sha256="") for model in models), cells=cells))

    assert [line.split()[0] for line in output.splitlines() if ".onnx" in line] == ["m03.onnx", "m07.onnx"]
    assert "1 more model: ok on all required runtimes\n27 more models: likely on all required runtimes\n" in output
    assert "likely: predicted to load, not run; –: not checked\n" in output


def test_an_undecided_check_can_be_accepted() -> None:
    """The way is named once, unless nothing can be accepted or the entries are printed."""
    acceptable = not_done(["a", "b"], fingerprint="0123")

    assert text.format(report(undecided=acceptable)).count("--show-ignores") == 1
    assert "--show-ignores" not in text.format(report(undecided=acceptable), snippets={"0123": ["[[ignore]]"]})
    assert "--show-ignores" not in text.format(report(undecided=not_done(["a"])))
