"""Fixes of `invalid-model` that fit the fault."""

from __future__ import annotations

import pytest

from onnxgate.core.advice import Advice, render_advice
from onnxgate.core.findings import Level, Place
from onnxgate.evidence.file import GraphFaults, ModelFile
from onnxgate.model.validity import ModelFault
from onnxgate.rules.file.invalid_model import ACCEPTED_FIX, DEFAULT_FIX, invalid_model


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("two nodes are named `a`", "rename one of the nodes, or remove its name, which is optional"),
        ("Field 'type' of 'value_info' is required but missing.", "run `onnxgate fix m.onnx` to add the inferred type"),
        ("Nodes in a graph must be topologically sorted, however", "sort the nodes with `onnx_ir"),
        ("Inferred shape and existing shape differ in rank: (2) vs (1)", "run `onnxgate fix --rule output-shape-wrong"),
        ("another fault", render_advice(DEFAULT_FIX)),
    ],
)
def test_the_fix_fits_the_fault(message: str, expected: str) -> None:
    """A new export is suggested only if nothing simpler is known."""
    fixes: list[Advice] = []
    for about in ("", "accepted"):
        fault = ModelFault(message, "", harmless=bool(about), about=about)
        (hit,) = invalid_model.judge(ModelFile("m.onnx", Place("m.onnx"), graph=GraphFaults(invalid=fault)))
        fixes.append(hit.fix)

    assert render_advice(fixes[0]).startswith(expected)
    assert fixes[1] == (*fixes[0], ACCEPTED_FIX)


@pytest.mark.parametrize(
    ("runtimes", "level"),
    [
        (("onnxruntime 1.16.3",), Level.WARNING),
        (("onnxruntime 1.16.0", "openvino 2026.4.1"), Level.WARNING),
        (("onnxruntime 1.16.3", "onnxruntime 1.17.3"), None),
        (("onnxruntime 1.160.0",), None),
        (("openvino-other 1.16.3",), None),
        ((), None),
    ],
)
def test_a_fault_that_all_required_runtimes_accept_is_a_warning(runtimes: tuple[str, ...], level: Level | None) -> None:
    """A fault names the engines that accept it, or the releases."""
    faults = GraphFaults(invalid=ModelFault("f", accepted_by=("openvino", "onnxruntime 1.16")))
    (hit,) = invalid_model.judge(ModelFile("m.onnx", Place("m.onnx"), graph=faults, runtimes=runtimes))

    assert hit.level == level
