"""The IR version that a model file requires, and relative paths in its stack traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from onnxgate.runtimes.worker.exporters import model_file, source

RELU = helper.make_node("Relu", ["x"], ["y"])


def model(
    opset: int = 18, *nodes: Any, ir_version: int = 13, type: int = TensorProto.FLOAT, **more: Any
) -> onnx.ModelProto:
    """Return a model with these nodes over one vector."""
    x, y = (helper.make_tensor_value_info(name, type, [2]) for name in ("x", "y"))
    graph = helper.make_graph(list(nodes) or [RELU], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version, **more)


def inside_an_if(tensor: onnx.TensorProto) -> onnx.NodeProto:
    """Return a node whose branches contain the tensor."""
    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    branch = helper.make_graph([constant], "branch", [], [helper.make_tensor_value_info("c", tensor.data_type, [2])])
    return helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)


def with_weight(made: onnx.ModelProto, *, sparse: bool = False) -> onnx.ModelProto:
    """Add an initializer that is not a graph input."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    if sparse:
        indices = helper.make_tensor("i", TensorProto.INT64, [1], [0])
        made.graph.sparse_initializer.append(helper.make_sparse_tensor(weight, indices, [2]))
    else:
        made.graph.initializer.append(weight)
    return made


def inside_an_optional() -> onnx.NodeProto:
    """Return a node with an attribute of an optional type."""
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    return helper.make_node("Optional", [], ["y"], type=kind)


INT4 = helper.make_tensor("c", TensorProto.INT4, [2], [1, 2])
FUNCTION = helper.make_function("local", "F", ["x"], ["y"], [RELU], [helper.make_opsetid("", 18)])
OVERLOADED = helper.make_function("local", "F", ["x"], ["y"], [RELU], [helper.make_opsetid("", 18)], overload="two")
NEWER = helper.make_function("local", "F", ["x"], ["y"], [RELU], [helper.make_opsetid("", 21)])


@pytest.mark.parametrize(
    ("made", "needed"),
    [
        (model(18), 8),
        (model(20), 9),
        (model(21), 10),
        (model(23), 11),
        (model(9999), 13),
        (model(18, type=TensorProto.FLOAT8E5M2), 9),
        (model(18, type=TensorProto.INT4), 10),
        (model(18, type=TensorProto.FLOAT4E2M1), 11),
        (model(18, inside_an_if(INT4)), 10),
        (model(13, functions=[FUNCTION]), 8),
        (model(18, functions=[OVERLOADED]), 10),
        (model(18, functions=[NEWER]), 10),
        (model(8), 3),
        (with_weight(model(8)), 4),
        (model(8, type=TensorProto.BFLOAT16), 4),
        (with_weight(model(8), sparse=True), 6),
        (model(8, inside_an_optional()), 8),
    ],
)
def test_needed(made: onnx.ModelProto, needed: int) -> None:
    """The opset, element types anywhere in the graph and function features determine the required IR version."""
    assert model_file.required_ir_version(made) == needed


@pytest.mark.parametrize(
    ("stamped", "highest", "left"), [(13, 9, 9), (13, 7, 8), (8, 12, 8), (13, None, 13), (7, 5, 7)]
)
def test_lower(stamped: int, highest: int | None, left: int) -> None:
    """The IR version is lowered to the limit or the required version, and never raised."""
    made = model(18, ir_version=stamped)
    changed = model_file.lower_ir_version(made, highest)

    assert made.ir_version == left
    assert changed == (stamped != left)


def test_traces(tmp_path: Path) -> None:
    """Project files are named relative to the project, installed files relative to their package, others unchanged."""
    (tmp_path / "export").mkdir()
    own = tmp_path / "export" / "net.py"
    own.touch()
    packaged = "/home/me/.venv/lib/python3.11/site-packages/timm/layers.py"
    made = model()
    entry = made.graph.node[0].metadata_props.add()
    entry.key = "pkg.torch.onnx.stack_trace"
    files = (own, packaged, "/usr/lib/a.py")
    entry.value = "\n".join(f'File "{file}", line 3, in forward\n    x' for file in files)

    assert model_file.make_traces_relative(made, (str(tmp_path), str(tmp_path)))
    assert entry.value.count("    x") == 3
    assert [line for line in entry.value.splitlines() if line.startswith("File")] == [
        'File "export/net.py", line 3, in forward',
        'File "timm/layers.py", line 3, in forward',
        'File "/usr/lib/a.py", line 3, in forward',
    ]
    assert not model_file.make_traces_relative(made, (str(tmp_path), str(tmp_path)))


@pytest.mark.parametrize(
    ("expected_message", "line"),
    [
        ("one\ntwo\n\nthree", "one two"),
        ("\x1b[31mred\x1b[0m   words\n", "red words"),
        ("Wrong key. For more information about this error, see: https://x.org/y\n\nThe rest", "Wrong key."),
        (
            'Violated (h)! For more information, run with TORCH_LOGS="+dynamic".\n  - Not all h',
            "Violated (h)! - Not all h",
        ),
        ("", ""),
        ("x" * 700, "x" * 597 + "..."),
    ],
)
def test_one_line(expected_message: str, line: str) -> None:
    """A message is reduced to one line: its first paragraph without escape sequences and generic advice."""
    assert source.one_line(expected_message) == line


def test_chain_that_bites_its_tail(tmp_path: Path) -> None:
    """An exception that is its own cause is described once."""
    try:
        error = ValueError("again")
        raise error from error
    except ValueError as caught:
        described = source.describe_error(caught, (str(tmp_path),))

    assert described == {"type": "ValueError", "text": "again", "memory": False, "source": ""}
