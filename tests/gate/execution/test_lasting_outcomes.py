"""Outcomes that can be cached because another check of the same content would reproduce them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import onnx

from onnxgate.core.findings import Place, Stage
from onnxgate.gate.execution import executor
from onnxgate.gate.request import ExecutionSettings, RunnableModel
from onnxgate.model.reading.fact_extraction import read_facts
from onnxgate.project.lock.types import Lock
from onnxgate.project.plan import PlannedModel
from tests.gate.execution.test_size_retries import NEW, OLD, Runtimes, _planned
from tests.harness.locks import project_of
from tests.harness.models import parse

FAILURE = "Non-zero status code returned while running Relu node. Name:'n' Status Message: bad"
CONFIG = 'models = ["*.onnx"]\n[targets.t]\nruntime = "onnxruntime"\n'


def _lasting(folder: Path, text: str, traced: str = "") -> dict[str, bool]:
    """Run two models that fail with a text; the node of the `traced` one has a stack trace."""
    for name in ("a.onnx", "b.onnx"):
        model = parse()
        model.graph.node[0].name = "n"
        if name == traced:
            model.graph.node[0].metadata_props.add(
                key="pkg.torch.onnx.stack_trace", value='File "/somewhere/net.py", line 3, in forward\n    x = y'
            )
        onnx.save(model, folder / name)
    project = project_of(folder, CONFIG)
    runtimes = tuple(_planned(name) for name in (OLD, NEW))
    models = [
        RunnableModel(
            PlannedModel(selected, runtimes), read_facts(selected.absolute, selected.path), Place("onnxgate.lock")
        )
        for selected in project.models()
    ]
    settings = ExecutionSettings(project, Lock(targets={}, models={}), frozenset({Stage.RUNTIME}))
    host = cast("Any", Runtimes(lambda _, __: False, None, text))
    with executor.execute(models, settings, host) as done:
        return {path: collected.is_lasting for path, collected in done.collected.items()}


def test_known_failures_last(tmp_path: Path) -> None:
    """A failure with a known cause is due to the model and can be cached."""
    assert {"a.onnx": True, "b.onnx": True} == _lasting(tmp_path, FAILURE)


def test_unknown_failures_do_not_last(tmp_path: Path) -> None:
    """A failure with an unknown cause may be due to the machine and is not cached."""
    assert {"a.onnx": False, "b.onnx": False} == _lasting(tmp_path, "pthread_create failed")


def test_places_in_source_files_do_not_last(tmp_path: Path) -> None:
    """Source files are not part of the cache key, so an outcome that refers to one is not cached."""
    assert {"a.onnx": False, "b.onnx": True} == _lasting(tmp_path, FAILURE, traced="a.onnx")
