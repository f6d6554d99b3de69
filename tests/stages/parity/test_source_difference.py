"""Fresh exports of a source, with which committed models are compared."""

from __future__ import annotations

import pytest

from onnxgate.core.jobs import InputCase
from onnxgate.stages.parity.source_difference import rename_inputs
from tests.harness.models import parse


@pytest.mark.parametrize(
    ("committed", "fresh", "expected"),
    [
        ("x, y", "y, x", {"x": "1.npy", "y": "2.npy"}),
        ("x, y", "a, b", {"a": "1.npy", "b": "2.npy"}),
        ("x, y", "y, b", {"y": "1.npy", "b": "2.npy"}),
        ("x, y", "y", {"y": "2.npy"}),
        ("x, y", "x, unused, y", {"x": "1.npy", "y": "2.npy"}),
    ],
)
def test_inputs_of_a_fresh_export(committed: str, fresh: str, expected: dict[str, str]) -> None:
    """An export may use the parameters of `forward` as names, although the committed model has other ones."""
    models = [
        parse(f"g ({', '.join(f'float[2] {name}' for name in names.split(', '))}) => (float[2] z) {{ z = Neg (y) }}")
        for names in (committed, fresh)
    ]
    case = InputCase(name="c", origin="user", inputs={"x": "1.npy", "y": "2.npy"})

    assert expected == rename_inputs(case, *models).inputs
