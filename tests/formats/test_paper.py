"""What plain text is written on."""

from __future__ import annotations

import pytest

from onnxgate.formats import paper
from onnxgate.formats.paper import Column, Paper


def test_every_cell_is_measured_a_few_times_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows there are: a table of thousands of models takes no longer for each of them."""
    measured: list[str] = []

    def counted(text: str) -> int:
        measured.append(text)
        return len(text)

    monkeypatch.setattr(paper, "cell_len", counted)
    columns = [Column("", "head", [f"{column}.{row}" for row in range(200)]) for column in range(3)]
    lines = list(Paper().table(columns, {}))

    assert len(lines) == 202
    assert len(measured) < 4 * 600
