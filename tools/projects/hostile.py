"""Sources of `fixtures/projects/hostile`: models that crash, hang, exhaust memory or inject commands."""

from __future__ import annotations

from pathlib import Path

import onnx

from projects import handmade
from projects.expected import LOCK, Expected

FOLDER = Path("fixtures/projects/hostile")

SPEECH = (
    "\n::error file=README.md,line=1::obeyed%0A::set-output name=verdict::pass"
    "\r\n  ##[error]obeyed \x1b[31mred\x1b]0;title\x07"
)
"""Both kinds of GitHub workflow commands, with escaped characters, line breaks and terminal escapes."""

EXPECTED = (
    Expected("missing-kernel", "segfault", LOCK, runtimes=("1.16.3",)),
    Expected("runtime-crashed", "segfault", LOCK, runtimes=("1.16.3",)),
    Expected("runtime-timed-out", "endless", LOCK, runtimes=("1.16.3",)),
    Expected("run-failed", "greedy", LOCK, runtimes=("1.16.3",)),
    Expected("run-failed", "strings %0A ##[error]obeyed", LOCK, runtimes=("1.16.3",)),
)


def handmade_files() -> dict[str, bytes]:
    """Return all models of the project by path."""
    models = {
        "healthy": handmade.scaled(2),
        "segfault": _segfault(),
        "endless": _endless(),
        "greedy": _greedy(),
        "strings %0A ##[error]obeyed": _strings(),
    }
    return {f"models/{name}.onnx": model.SerializeToString() for name, model in models.items()}


def _segfault() -> onnx.ModelProto:
    """Return a model that crashes ONNX Runtime 1.16.3, whose shape inference of this operator assumes a known rank.

    Source: 1.16.3 ends with SIGSEGV when it creates the session.
    """
    return handmade.model(
        "g (float[batch, 32, 2] table, int64[1] queries, int64[1] keys) => (float[a, b, c, d] biases) {"
        " sizes = Shape <start = 0, end = 1> (table)"
        " axes = Sub(sizes, sizes)"
        " [flatten] flat = Squeeze(table, axes)"
        " [bias] biases = com.microsoft.RelativePositionBias <max_distance = 128> (flat, queries, keys) }",
        opsets='"": 18, "com.microsoft": 1',
    )


def _endless() -> onnx.ModelProto:
    """Return a model with a loop of 2 ** 63 - 1 iterations."""
    return handmade.model(
        "g (float[batch, 4] rows) => (float[batch, 4] turned)"
        " <int64 rounds = {9223372036854775807}, bool go = {1}> {"
        " [turn] turned = Loop(rounds, go, rows) <body = body (int64 round, bool on, float[batch, 4] state)"
        " => (bool still, float[batch, 4] next) { still = Identity(on) next = Neg(state) }> }"
    )


def _greedy() -> onnx.ModelProto:
    """Return a model that allocates 200 GB per row at run time."""
    return handmade.model(
        "g (float[batch, 4] rows) => (float largest) <int64[1] many = {12500000000}> {"
        " sizes = Shape(rows)"
        " cells = ReduceProd <keepdims = 1> (sizes)"
        " length = Mul(cells, many)"
        " [fill] filled = ConstantOfShape(length)"
        " [largest] largest = ReduceMax <keepdims = 0> (filled) }"
    )


def _strings() -> onnx.ModelProto:
    """Return a model that fails in a node; all its names contain commands and escapes."""
    model = handmade.model(
        "g (float[batch, 4] rows) => (float[batch, 3] folded) <int64[2] shape = {0, 3}> {"
        " [fold] folded = Reshape(rows, shape) }"
    )
    graph, node = model.graph, model.graph.node[0]
    for named in (graph, node, graph.input[0], graph.output[0], graph.initializer[0]):
        named.name += SPEECH
    node.input[:] = [graph.input[0].name, graph.initializer[0].name]
    node.output[:] = [graph.output[0].name]
    for value in (graph.input[0], graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param += SPEECH
    for text in ("producer_name", "producer_version", "domain", "doc_string"):
        setattr(model, text, text + SPEECH)
    for holder in (model, node):
        holder.metadata_props.add(key="note" + SPEECH, value="value" + SPEECH)
    node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=f'File "export{SPEECH}.py", line 1, in forward')
    return model
