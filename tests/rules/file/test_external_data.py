"""Levels of the rules about external data."""

from __future__ import annotations

import pytest

from onnxgate.core.findings import Level, Place
from onnxgate.evidence.file import ModelFile
from onnxgate.model.reading.external_data import ExternalUse
from onnxgate.rules.file.external_data_missing import external_data_missing


@pytest.mark.parametrize(
    ("runtimes", "is_unused", "expected"),
    [
        ((), True, Level.WARNING),
        (("onnxruntime 1.31.1", "onnxruntime-web 1.30.0"), True, Level.WARNING),
        (("onnxruntime 1.31.1", "tract 0.23.9"), True, None),
        (("onnxruntime 1.31.1",), False, None),
    ],
)
def test_level_of_missing_data(runtimes: tuple[str, ...], is_unused: bool, expected: Level | None) -> None:
    """Only ONNX Runtime loads a model with missing data that no node uses; tract refuses it."""
    use = ExternalUse("w.bin", "w", "missing", is_unused=is_unused)
    subject = ModelFile("m.onnx", Place("m.onnx"), runtimes=runtimes, external=(use,))
    (hit,) = external_data_missing.judge(subject)

    assert expected == hit.level
