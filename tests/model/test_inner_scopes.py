"""Faults in local functions and subgraphs, which `onnx.checker` does not report."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.model.reading.structure import read_view
from onnxgate.model.validity import find_fault
from tests.harness.models import parse, write
from tests.model.equality.test_model_comparison import BRANCHES

HEAD = '<ir_version: 8, opset_import: ["": 16, "my": 1, "com.microsoft": 1]>'
CONTRIB = '<domain: "my", opset_import: ["com.microsoft": 1]> f '
FUNCTION = '<domain: "my", opset_import: ["": 16]> f '


def fault_of(tmp_path: Path, call: str, function: str) -> str:
    """Return the fault of a model with a local function; "" if it is valid."""
    model = parse(f"g (float[3] x) => (float[3] y) {{ {call} }}\n{function}", HEAD)
    path = write(tmp_path / "model.onnx", model)
    fault = find_fault(read_view(path, large_bytes=10**9, small_bytes=64), path)
    return "" if fault is None else fault.message


@pytest.mark.parametrize(
    ("call", "function", "expected"),
    [
        ("y = my.f (x)", FUNCTION + "(a) => (b) { }", "has the output `b`, which no node of it computes"),
        ("y = Neg (x)", FUNCTION + "(a) => (a) { b = Neg (a) }", "has the output `a`, which no node of it computes"),
        ("y = my.f (x)", FUNCTION + "(a) => () { b = Neg (a) }", "has 0 outputs, but is called with 1"),
        ("y = my.f (x, x)", FUNCTION + "(a) => (b) { b = Neg (a) }", "has 1 input, but is called with 2"),
        ("y, z = my.f (x)", FUNCTION + "(a) => (b) { b = Neg (a) }", "has 1 output, but is called with 2"),
        (
            "y = Neg (x)",
            FUNCTION + "(a) => (b) { b = ai.onnx.Neg (a) }",
            "`Neg` in its local function `my.f` has the domain `ai.onnx`, but the function imports an empty one",
        ),
        (
            "y = my.f (x)",
            '<domain: "my", opset_import: ["ai.onnx": 16]> f (a) => (b) { b = ai.onnx.Neg (a) }',
            "`Neg` has the domain `ai.onnx`, which must be empty",
        ),
        (
            "y = Neg (x)",
            FUNCTION + "(a) => (b) { b = com.microsoft.Gelu (a) }",
            "its local function `my.f` uses `com.microsoft.Gelu`, but does not import the domain",
        ),
        (
            "y = Neg (x)",
            FUNCTION + "(a) => (b) { k = com.microsoft.Constant () b = Add (a, k) }",
            "its local function `my.f` uses `com.microsoft.Constant`, but does not import the domain",
        ),
    ],
)
def test_functions_that_runtimes_refuse(tmp_path: Path, call: str, function: str, expected: str) -> None:
    """Each release refuses these functions when it loads the model, some of them although they are not called."""
    assert expected in fault_of(tmp_path, call, function)


@pytest.mark.parametrize(
    ("call", "function"),
    [
        ("y = my.f (x)", FUNCTION + "(a, c) => (b) { b = Neg (a) }"),
        ("y = my.f (x)", FUNCTION + "(a) => (b) { b = Neg (a) }"),
        ("y = Neg (x)", FUNCTION + "(a) => () { b = Neg (a) }"),
        ("y = Neg (x)", '<domain: "my", opset_import: ["ai.onnx": 16]> f (a) => (b) { b = ai.onnx.Neg (a) }'),
        (
            "y = Neg (x)",
            '<domain: "my", opset_import: ["com.microsoft": 1]> f (a) => (b) { b = com.microsoft.Gelu (a) }',
        ),
    ],
)
def test_functions_that_runtimes_accept(tmp_path: Path, call: str, function: str) -> None:
    """Inputs may be omitted, and functions that are not called may be incomplete."""
    assert fault_of(tmp_path, call, function) == ""


@pytest.mark.parametrize(("call", "engines"), [("y = Neg (x)", ("openvino", "tract")), ("y = my.f (x)", ())])
def test_engines_that_ignore_functions(tmp_path: Path, call: str, engines: tuple[str, ...]) -> None:
    """A function that is not called does not matter to engines without local functions."""
    path = write(
        tmp_path / "model.onnx", parse(f"g (float[3] x) => (float[3] y) {{ {call} }}\n{FUNCTION}(a) => (b) {{ }}", HEAD)
    )

    fault = find_fault(read_view(path, large_bytes=10**9, small_bytes=64), path)

    assert fault is not None
    assert engines == fault.accepted_by


def test_worse_faults_come_first(tmp_path: Path) -> None:
    """A fault that all engines refuse is reported rather than one that some ignore."""
    text = f"g (float[3] x) => (float[4] y) {{ y = MatMul (x, x, x) }}\n{FUNCTION}(a) => (b) {{ }}"
    path = write(tmp_path / "model.onnx", parse(text, HEAD))

    fault = find_fault(read_view(path, large_bytes=10**9, small_bytes=64), path)

    assert fault is not None
    assert "input size 3" in fault.message


def test_domain_of_nodes_in_branches(tmp_path: Path) -> None:
    """The long name of the default domain is accepted in the main graph only."""
    path = write(tmp_path / "model.onnx", parse(BRANCHES.replace("= Relu", "= ai.onnx.Relu")))

    fault = find_fault(read_view(path, large_bytes=10**9, small_bytes=64), path)

    assert fault is not None
    assert "`Relu` has the domain `ai.onnx`" in fault.message
    assert fault.accepted_by == ("tract",)


def test_nodes_next_to_unknown_operators(tmp_path: Path) -> None:
    """onnx reports no errors after an operator that it does not know, but runtimes find them."""
    body = "(float[2, 3] x, float[2, 3] w) => (float y, float z) { y = com.microsoft.FastGelu (x) z = MatMul (x, w) }"
    path = write(tmp_path / "model.onnx", parse(f"g {body}", HEAD))

    fault = find_fault(read_view(path, large_bytes=10**9, small_bytes=64), path)

    assert fault is not None
    assert "Incompatible dimensions" in fault.message
