"""The memory that a job may take: one figure for the limit and for the messages about it."""

from __future__ import annotations

import os
from pathlib import Path

from onnxgate.core.jobs import Load
from onnxgate.runtimes.worker_spec import JobLimits, default_memory_mib, memory_limit_mib
from tests.harness.models import write
from tests.model.reading.test_external_data import external_model


def test_limit_follows_from_the_model_alone(tmp_path: Path) -> None:
    """Other files in the model's folder do not raise the limit; its external data do."""
    model = write(tmp_path / "model.onnx", external_model())
    for name, size_mib in (("w.bin", 8), ("other.bin", 64)):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, size_mib * 2**20)

    limit_mib = memory_limit_mib(Load(model=str(model)), JobLimits())

    assert limit_mib == default_memory_mib(model.stat().st_size + 8 * 2**20)


def test_limit_of_a_file_that_is_no_model(tmp_path: Path) -> None:
    """It follows from the size of the file."""
    (tmp_path / "m.onnx").write_bytes(b"\xff" * 100)

    assert memory_limit_mib(Load(model=str(tmp_path / "m.onnx")), JobLimits()) == default_memory_mib(100)
    assert memory_limit_mib(Load(model=str(tmp_path / "none.onnx")), JobLimits()) == default_memory_mib(0)
