"""C++ functions of the onnx package, run in another process so that a crash fails only one repair."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import onnx.version_converter


def main(arguments: list[str]) -> None:
    """Run `infer INPUT OUTPUT`, `convert INPUT OUTPUT OPSET` or `blame INPUT OUTPUT OPSET`.

    `blame` writes the names of the operators that cannot be converted alone. On failure, print a message and exit
    with 1.
    """
    action, source, output, *rest = arguments
    model = onnx.load(source, load_external_data=False)
    try:
        if action == "blame":
            Path(output).write_text("\n".join(_find_unconvertible(model, int(rest[0]))), encoding="utf-8")
            return
        if action == "infer":
            model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        else:
            model = onnx.version_converter.convert_version(model, int(rest[0]))
    except Exception as error:  # noqa: BLE001 - it is printed
        print(" ".join(str(error).split())[:500])
        sys.exit(1)
    Path(output).write_bytes(model.SerializeToString())


def _find_unconvertible(model: onnx.ModelProto, opset: int) -> list[str]:
    """Return the operators of the nodes of the main graph that cannot be converted, in the order of the nodes."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    types = {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}
    weights = {tensor.name: tensor for tensor in graph.initializer}
    names: dict[str, None] = {}
    for node in graph.node:
        label = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        if label not in names and not _is_convertible(model, node, types, weights, opset):
            names[label] = None
    return list(names)


def _is_convertible(
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    types: dict[str, onnx.ValueInfoProto],
    weights: dict[str, onnx.TensorProto],
    opset: int,
) -> bool:
    values = [*dict.fromkeys(name for name in node.input if name)]
    alone = onnx.helper.make_graph(
        [node],
        "node",
        [types[name] for name in values if name in types and name not in weights],
        [types.get(name) or onnx.ValueInfoProto(name=name) for name in node.output if name],
        initializer=[weights[name] for name in values if name in weights],
    )
    single = onnx.helper.make_model(alone, opset_imports=model.opset_import, ir_version=model.ir_version)
    try:
        onnx.version_converter.convert_version(single, opset)
    except Exception:  # noqa: BLE001 - any error means that the node cannot be converted
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
