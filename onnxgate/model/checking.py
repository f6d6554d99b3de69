"""Whether a model is valid: `onnx.checker` in full on a copy without weights, and what it leaves unsaid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.model.calls import RECURSIVE, endless, label, reaches, why_not_followed
from onnxgate.model.copying import checkable, is_away, lacks_shape, with_dense_weights, with_shapes
from onnxgate.model.extent import wrong_extent
from onnxgate.model.structure import graphs, tensors
from onnxgate.model.types import element_name

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

_FIRST_IR_WITH_OPSETS = 3
_NODE = (
    re.compile(r"Bad node spec for node\. Name: (.*) OpType: "),
    re.compile(r"of node: \s*[nN]ame: (.*) OpType: "),
    re.compile(r"node name: (.*?)\)"),
)
_INFERENCE = re.compile(r"\[(?:Shape|Type)InferenceError\] (?:Inference error\(s\): )?")
_HARMLESS = re.compile(r"Inferred shape and existing shape differ in (?:rank|dimension)")
_ABOUT: dict[str, re.Pattern[str]] = {
    "operator": re.compile(r"No Op registered for "),
    "domain": re.compile(r"No opset import for domain"),
    "deprecated": re.compile(r"is deprecated in domain_version"),
    "attribute": re.compile(r"Unrecognized attribute: |Required attribute .* is missing|Mismatched attribute type"),
    "arguments": re.compile(r"has (?:in|out)put size \d+ not in range"),
    "type": re.compile(r"has inconsistent type |has unsupported type: "),
}
"""What onnx's words are about, where a runtime judges the same by its own schemas. Source: onnx 1.16 to 1.23."""
_OURS = "Cannot parse data from external tensors"
"""Shape inference needs data that the copy does not have: nothing that is wrong with the model."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What makes a model invalid."""

    message: str
    node: str = ""  # the node that it is about, where there is one
    harmless: bool = False  # every runtime that we know loads it all the same
    about: str = ""  # of `_ABOUT`, where a runtime would judge the same: "operator", "type"; or "output shape"


def fault(model: ModelProto, path: Path) -> Fault | None:
    """The first fault of the model at `path`, None where it is valid.

    A model that is newer than the installed onnx is only looked at by ourselves: that onnx cannot judge it.

    Raises:
        OSError, UnreadableModel: data that were left in the file cannot be read there.
    """
    own = next(_own_faults(model, path), None)
    if own or unchecked(model):
        return own
    return _checker_fault(checkable(model, path)) or next(_shapeless(model.graph), None)


def _own_faults(model: ModelProto, path: Path) -> Iterator[Fault]:
    if not model.HasField("graph"):
        yield Fault("it has no graph")
    if not model.HasField("ir_version"):
        yield Fault("it has no IR version")
    if not model.opset_import and model.ir_version >= _FIRST_IR_WITH_OPSETS:
        yield Fault("it imports no opset")
    for key in endless(model, reaches(model)):
        yield Fault(f"its local function `{label(key)}` {RECURSIVE}")
    for graph in graphs(model):
        yield from _repeated_names(graph)
        yield from _mistyped_inputs(graph)
    for name, tensor in tensors(model):
        if wrong := wrong_extent(tensor, path):
            yield Fault(f"tensor `{name}` {wrong}")


def _repeated_names(graph: GraphProto) -> Iterator[Fault]:
    """Source: ONNX Runtime 1.15 to 1.31 refuses two nodes of one name in one graph; onnx.checker does not look."""
    seen: set[str] = set()
    for node in graph.node:
        if node.name and node.name in seen:
            yield Fault(f"two nodes are named `{node.name}`", node.name)
        seen.add(node.name)
    initializers: set[str] = set()
    for tensor in graph.initializer:
        if tensor.name in initializers:
            yield Fault(f"two initializers are named `{tensor.name}`")
        initializers.add(tensor.name)


def _mistyped_inputs(graph: GraphProto) -> Iterator[Fault]:
    """Weights that are inputs too, of another type; `onnx.checker` does not see those whose data are away."""
    types = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    for tensor in graph.initializer:
        declared = types.get(tensor.name, tensor.data_type)
        if declared not in (0, tensor.data_type) and is_away(tensor):
            own, other = element_name(tensor.data_type), element_name(declared)
            yield Fault(f"initializer `{tensor.name}` is tensor({own}), and the input of its name tensor({other})")


def _shapeless(graph: GraphProto) -> Iterator[Fault]:
    for role, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            if lacks_shape(value):
                yield Fault(
                    f"{role} `{value.name}` says no shape, not even a rank", harmless=True, about=f"{role} shape"
                )


def unchecked(model: ModelProto) -> str:
    """Why the installed onnx cannot judge the model; "" where it can."""
    import onnx

    newest = {"ai.onnx": onnx.defs.onnx_opset_version(), "ai.onnx.ml": onnx.defs.onnx_ml_opset_version()}
    imports = [imported for holder in (model, *model.functions) for imported in holder.opset_import]
    unknown = [f"IR version {model.ir_version}"] if model.ir_version > onnx.IR_VERSION else []
    for imported in imports:
        domain = imported.domain or "ai.onnx"
        if imported.version > newest.get(domain, imported.version):
            unknown.append(f"opset {imported.version} of `{domain}`")
    if not unknown and (reason := why_not_followed(model)):
        return f"{reason}: only onnxgate's own checks ran"
    if not unknown:
        return ""
    return (
        f"onnx {onnx.__version__} does not know {' and '.join(dict.fromkeys(unknown))}: only onnxgate's own checks ran"
    )


def _checker_fault(copy: ModelProto) -> Fault | None:
    """`check_model(full_check=True)` in its two halves; the first one wants shapes that the second one must not see."""
    from onnx import checker, shape_inference

    try:
        checker.check_model(with_shapes(copy).SerializeToString())
        shape_inference.infer_shapes(with_dense_weights(copy).SerializeToString(), check_type=True, strict_mode=True)
    except (
        checker.ValidationError,
        shape_inference.InferenceError,
        RuntimeError,
        ValueError,
        IndexError,
        OverflowError,
    ) as error:
        return _said(str(error))
    return None


def _said(text: str) -> Fault | None:
    """onnx's words as a fault: one line, without its tags and its context."""
    if _OURS in text:
        return None
    message = _INFERENCE.sub("", text.partition("\n\n==> Context:")[0]).strip()
    if "(op_type:" in message:
        lines = message.splitlines()
        harmless = all(map(_HARMLESS.search, lines))
        first = next((line for line in lines if not _HARMLESS.search(line)), lines[0])
        return Fault(first.rpartition("): ")[2], _node(first), harmless, _about(first))
    return Fault(" ".join(message.split()), _node(text), about=_about(message))


def _about(text: str) -> str:
    return next((about for about, pattern in _ABOUT.items() if pattern.search(text)), "")


def _node(text: str) -> str:
    return next((found[1].strip() for pattern in _NODE if (found := pattern.search(text))), "")
