"""Layout of plain text on a terminal."""

from __future__ import annotations

import pytest

from onnxgate.formats import text as terminal
from onnxgate.formats.text import Column, Terminal


def test_cell_width_is_measured_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of width measurements per cell is constant, so that tables with thousands of models stay fast."""
    measured: list[str] = []

    def counted(text: str) -> int:
        measured.append(text)
        return len(text)

    monkeypatch.setattr(terminal, "cell_len", counted)
    columns = [Column("", "head", [f"{column}.{row}" for row in range(200)]) for column in range(3)]
    lines = list(Terminal().table(columns, {}))

    assert len(lines) == 201
    assert len(measured) < 4 * 600


def test_names_of_groups_never_run_together() -> None:
    """A group name as wide as its columns is separated from the next one."""
    columns = [Column("", "", ["m"]), Column("engine", "1.18.1", ["pass"]), Column("engine+more", "1.18.1", ["pass"])]
    first = next(iter(Terminal().table(columns, {})))
    tight = next(iter(Terminal().table([Column("abc", "1", ["x"]), Column("abcd", "2", ["y"])], {})))

    assert ["engine", "engine+more"] == first.split()
    assert ["abc", "abcd"] == tight.split()


def test_names_of_groups_stand_over_their_columns() -> None:
    """A column is at least as wide as the group name above it."""
    columns = [Column("", "", ["m"]), Column("opencv-python-headless", "5.0", ["pass"]), Column("tract", "0.23", ["x"])]
    names, heads, cells = Terminal().table(columns, {})

    assert names.index("tract") == heads.index("0.23") == cells.index("x")


@pytest.mark.parametrize("indent", [0, 11])
def test_only_unindented_line_is_the_changes_heading(indent: int) -> None:
    """Only an unindented line is the heading of the changes; indented messages may start with the same words."""
    actual = "changed since it was locked: imports opset 16 instead of 17"
    (line,) = Terminal().wrapped(actual, indent)

    assert (line == " " * indent + actual) == (indent > 0)


def test_code_with_punctuation_fits() -> None:
    """A command stays on one line only if the punctuation after it also fits."""
    command = f"`{'x ' * 14}x`"  # 31 columns, with the comma 32
    wide, narrow = (list(Terminal(width=width).wrapped(f"run {command}, or not", 0)) for width in (35, 34))

    assert f"   {command}," in wide
    assert [len(line) for line in narrow if len(line) > 34] == []
