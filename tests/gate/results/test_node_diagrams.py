"""Selection of the nodes for diagrams, and of the model files they are read from."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from onnxgate.commands.files_without_config import make_request
from onnxgate.core.report import Finding
from onnxgate.gate import pipeline
from onnxgate.gate.results.verdict import build_report
from onnxgate.model.subgraphs import node_context
from tests.harness.models import write
from tests.harness.reports.sample_reports import finding

CHAIN = "g (float[N, 4] x) => (float[N, 4] y) { [act] a = Relu (x) b = Neg (a) [last] y = Abs (b) }"


def about(node: str, model: str = "m.onnx", **changes: object) -> Finding:
    """Return a finding in a node."""
    return finding(model=model, node=node, **changes)


def test_errors_first_and_each_node_once(tmp_path: Path) -> None:
    """Errors come before warnings, each node is drawn once, and notes and ignored findings are not drawn."""
    actual = [
        about("w", level="warning"),
        about("e"),
        about("e", rule="run-failed"),
        about("n", level="note"),
        about("i", ignored="known"),
        about("m", model=""),
        about(""),
    ]

    assert [("m.onnx", "e"), ("m.onnx", "w")] == [
        (named_node.model, named_node.node) for named_node in node_context.find_named_nodes(actual)
    ]


@pytest.mark.parametrize("message", ["an operator: the node that makes `b` in `f`", "the Neg that makes `b` is first"])
def test_unnamed_node_is_identified_by_its_output(tmp_path: Path, message: str) -> None:
    """An unnamed node is identified by its output, both in the message and in the diagram."""
    (drawn,) = node_context.draw_named_nodes(
        [finding(message, model="m.onnx")], {"m.onnx": write(tmp_path / "m.onnx", CHAIN)}
    )

    assert "b" == drawn.node
    assert [("b", "Neg", "failing")] == [(n.name, n.operator, n.kind) for n in drawn.nodes if n.kind == "failing"]


def test_missing_nodes_are_not_drawn(tmp_path: Path) -> None:
    """Missing nodes, invalid or missing files, and models that were not selected are not drawn."""
    (tmp_path / "broken.onnx").write_bytes(b"\xff\xff")
    files = {
        "m.onnx": write(tmp_path / "m.onnx", CHAIN),
        "broken.onnx": tmp_path / "broken.onnx",
        "gone.onnx": tmp_path / "gone.onnx",
    }
    actual = [about("no"), *(about("act", model=model) for model in ("broken.onnx", "gone.onnx", "other.onnx"))]

    assert () == node_context.draw_named_nodes(actual, files)


def test_at_most_twenty_and_reports_can_be_joined(tmp_path: Path) -> None:
    """At most twenty diagrams are created, and merging two partial reports gives the same ones as a complete report."""
    nodes = " ".join(f"[n{n:02}] v{n + 1} = Relu (v{n})" for n in range(30))
    path = write(tmp_path / "m.onnx", f"g (float[N] v0) => (float[N] v30) {{ {nodes} }}")
    files = {"a.onnx": path, "b.onnx": path}
    a = [about(f"n{n:02}", "a.onnx", level="warning" if n < 15 else "error") for n in range(30)]
    b = [about(f"n{n:02}", "b.onnx", level="error" if n < 10 else "warning") for n in range(30)]
    both = sorted([*a, *b], key=lambda each: (each.level, each.model))
    whole = node_context.draw_named_nodes(both, files)

    assert node_context.MAX_DIAGRAMS == len(whole)
    assert {("a.onnx", f"n{n:02}") for n in range(15, 30)} <= {(each.model, each.node) for each in whole}
    assert whole == tuple(sorted(whole, key=lambda each: (each.model, each.node)))
    assert whole == node_context.select_most_severe(
        both, [*node_context.draw_named_nodes(a, files), *node_context.draw_named_nodes(b, files)]
    )


def test_many_findings_about_one_model_cost_little(tmp_path: Path) -> None:
    """Only nodes with a diagram are drawn, and the model is not searched once for each finding."""
    nodes = " ".join(f"[n{n}] v{n + 1} = Relu (v{n})" for n in range(1000))
    path = write(tmp_path / "m.onnx", f"g (float[N] v0) => (float[N] v1000) {{ {nodes} }}")
    before = time.process_time()

    drawn = node_context.draw_named_nodes([about(f"n{n}") for n in range(1000)], {"m.onnx": path})

    assert node_context.MAX_DIAGRAMS == len(drawn)
    assert time.process_time() - before < 2


DETERMINANT = "g (double[3, 3] x) => (double y) { [det] y = Det (x) }"


def test_the_report_of_a_check_has_the_drawing(tmp_path: Path) -> None:
    """A check of a model file adds the diagram to the report."""
    write(tmp_path / "m.onnx", DETERMINANT)
    request = make_request([tmp_path], None, tmp_path, 1)
    report = build_report(request, pipeline.run(request), "error")
    (drawn,) = report.drawings

    assert ("m.onnx", "det") == (drawn.model, drawn.node)
    assert ["det", "x", "y"] == [node.name for node in drawn.nodes]


def test_diagrams_are_not_imported_without_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without findings, the diagram module is not imported."""
    import sys

    write(tmp_path / "m.onnx")
    request = make_request([tmp_path], None, tmp_path, 1)
    outcome = replace(pipeline.run(request), findings=())
    monkeypatch.setitem(sys.modules, "onnxgate.model.subgraphs.node_context", None)

    assert () == build_report(request, outcome, "error").drawings
