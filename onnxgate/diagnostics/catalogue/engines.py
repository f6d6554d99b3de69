"""Error texts and limits of OpenVINO, tract, OpenCV DNN, the reference evaluator of ONNX and ONNX Runtime Web."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec
from packaging.specifiers import SpecifierSet

from onnxgate.diagnostics.catalogue import Entry
from onnxgate.project.engines import parse_engine

if TYPE_CHECKING:
    from onnxgate.model.numeric_traits import NumericTraits


_INSPECTION_FIX = "look at what it is with `head -c 100 FILE`; `onnxgate check FILE` names the cause"
_UNSUPPORTED_FIX = "export with operators that every runtime knows, or leave the model out of this target"
ENTRIES = (
    Entry(
        name="openvino-operator-unknown",
        patterns=(
            r"No conversion rule found for operations: (?P<op>[^\n]{1,300})",
            r"OpenVINO does not support the following ONNX operations: (?P<op>[^\n]{1,300})",
        ),
        means="OpenVINO has no conversion for: {op}",
        why="it lists all operators that it does not have; those of `com.microsoft` are left by an optimiser of"
        " ONNX Runtime",
        fix="export without them, or convert the model before it is optimised for ONNX Runtime; newer releases"
        " know more",
        rules=("load-failed",),
    ),
    Entry(
        name="openvino-not-a-model",
        patterns=(
            r"Unable to read the model: \"?(?P<file>\S{1,300}?)\"? Please check that model format",
            r"onnx: Could not open the file: \"(?P<file>[^\"\n]{1,300})\"",
            r"Could not open the file: \"(?P<file>[^\"\n]{1,300})\"",
        ),
        means="OpenVINO cannot read `{file}` as a model",
        why="it is not there, a Git LFS pointer, a cut download, or of another format",
        fix=_INSPECTION_FIX,
        rules=("not-a-model", "lfs-pointer"),
    ),
    Entry(
        name="openvino-external-data",
        patterns=(
            r"[Ii]nvalid external data: ExternalDataInfo\((?:data_full_path|data_file_path): (?P<file>[^,\n]{0,300})",
            r"Invalid usage of method for externally stored data in file \((?P<file>[^,\n]{0,300})",
        ),
        means="OpenVINO cannot read the weights in `{file}`",
        fix="keep both files in one folder under the names that they were saved with",
        rules=("external-data-missing",),
    ),
    Entry(
        name="openvino-input-shape",
        patterns=r"Can't set the input tensor with (?:index|name): (?P<name>[^,\n]{1,200}), because the model input"
        r" \(shape=(?P<expected>[^)\n]{1,100})\)"
        r" and the tensor \(shape=(?P<asked>\([^)\n]{0,100}\))\) are incompatible",
        means="an input has shape {asked}; the model takes {expected}",
        fix="feed that shape, or export again with the axis dynamic (`model.reshape` changes it for OpenVINO alone)",
        rules=("input-shape-narrowed",),
    ),
    Entry(
        name="openvino-input-name",
        patterns=r"Port for tensor name (?P<name>[^\n]{1,200}?) was not found",
        means="the model has no input or output `{name}`",
        fix="use the names of `compiled.inputs` and `compiled.outputs`",
        rules=("input-renamed", "output-renamed"),
    ),
    Entry(
        name="openvino-device",
        patterns=(
            r"Cannot load library [^\n]{1,300}openvino_intel_(?P<device>gpu|npu)_plugin[^\n]{0,200}",
            r"Failed to create plugin [^\n]{0,200} for device (?P<device>\w{1,20})",
            r"(?P<device>GPU) cannot find available devices",
        ),
        means="OpenVINO cannot use the device {device} here",
        why="its driver (OpenCL for the GPU) is not installed, or the machine has no such device",
        fix="install the driver, or compile for `CPU` or `AUTO`",
        rules=("provider-not-used",),
    ),
    Entry(
        name="openvino-attribute",
        patterns=r"Node \((?P<node>[^)\n]{0,300})\): unknown attribute '(?P<name>[^'\n]{1,100})'",
        means="the node `{node}` lacks the attribute `{name}` that OpenVINO wants",
        why="OpenVINO has an operator of this name whose attributes are others, or the exporter left it out",
        fix="give the node the attribute, or export again without the custom operator",
        rules=("invalid-model", "load-failed"),
    ),
    Entry(
        name="openvino-aten",
        patterns=r"Only `embedding_bag` is supported as ATen `operator` attribute\. Got: (?P<op>\w{1,100})",
        means="the exporter left `{op}`, an operator of PyTorch, in the model that ONNX has no counterpart of",
        fix="export without the fallback to ATen, at a newer opset or with the exporter of `torch.export`",
        rules=("load-failed", "unknown-domain"),
    ),
    Entry(
        name="openvino-types-differ",
        patterns=(
            r"While validating node '(?P<op>[^'\n]{1,400})'[^\n]{0,300}\nArgument element types are inconsistent",
            r"Argument element types are inconsistent",
        ),
        means="inputs that must share a type do not: {op}",
        why="a model that was converted to float16 in part, or an exporter's constant of another type",
        fix="put a Cast in front of one of the inputs, or convert the float32 model as a whole",
        rules=("type-mismatch", "load-failed"),
    ),
    Entry(
        name="openvino-shape",
        patterns=(
            r"While validating (?:ONNX )?node '(?P<op>[^'\n]{1,300})'",
            r"Conversion is failed for: (?P<op>[^\n]{1,200})",
        ),
        means="OpenVINO cannot take the node {op}: its shapes, types or attributes contradict each other",
        fix="export again; `onnx.checker.check_model(path, full_check=True)` shows whether the model itself is wrong",
        rules=("invalid-model", "load-failed"),
        general=True,
    ),
    Entry(
        name="tract-operator-unknown",
        patterns=r"(?:node #\d{1,9} \"(?P<node>[^\"\n]{0,300})\" )?Unimplemented\((?P<op>\w{1,100})\)",
        means="tract has no operator `{op}`",
        why="it names the first one only",
        fix=_UNSUPPORTED_FIX,
        rules=("load-failed",),
        family="no_op",
    ),
    Entry(
        name="tract-not-a-model",
        patterns=r"failed to decode Protobuf message: (?P<said>[^\n]{1,200})",
        means="tract cannot read the file as a model: {said}",
        why="it is a Git LFS pointer, a cut download, or of another format",
        fix=_INSPECTION_FIX,
        rules=("not-a-model", "lfs-pointer"),
    ),
    Entry(
        name="tract-external-data",
        patterns=(
            r"Canonicalizing ONNX external data path \"(?P<file>[^\"\n]{0,300})\"",
            r"Opening \"(?P<file>[^\"\n]{0,300})\" Caused by:",
        ),
        means="tract does not find the weights in `{file}`",
        fix="keep both files in one folder under the names that they were saved with, and load the model from"
        " that folder",
        rules=("external-data-missing",),
    ),
    Entry(
        name="tract-analysis",
        patterns=r"Failed analyse for node #\d{1,9} \"(?P<node>[^\"\n]{0,300})\" (?P<op>\w{1,100})",
        means="tract finds no types and shapes for node `{node}`",
        why="shapes contradict each other, or it lacks a rule for this form of the operator",
        fix="fix the sizes of inputs that are dynamic, or run `onnx.shape_inference` to see whether the model"
        " itself is wrong",
        rules=("load-failed", "invalid-model"),
    ),
    Entry(
        name="tract-input",
        patterns=r"Clashing resolution for expression\. (?P<expected>\S{1,60}) != (?P<asked>\d{1,20})",
        means="an input has size {asked} where the model says {expected}",
        fix="feed that size, or export again with the axis dynamic",
        rules=("input-shape-narrowed",),
    ),
    Entry(
        name="opencv-operator-unknown",
        patterns=r"Can't create layer \"(?P<node>[^\"\n]{0,300})\" of type \"(?P<op>[\w.]{1,100})\"",
        means="OpenCV DNN has no operator `{op}`",
        fix=_UNSUPPORTED_FIX,
        rules=("load-failed",),
        family="no_op",
    ),
    Entry(
        name="opencv-not-a-model",
        patterns=(r"Failed to parse ONNX model: (?P<file>\S{1,300})", r"Can't read ONNX file: (?P<file>\S{1,300})"),
        means="OpenCV cannot read `{file}` as a model",
        why="it is not there, a Git LFS pointer, a cut download, or of another format",
        fix=_INSPECTION_FIX,
        rules=("not-a-model", "lfs-pointer"),
    ),
    Entry(
        name="opencv-node",
        patterns=(
            r"tensor\.has_shape\(\) in function '(?:dumpValueInfoProto|parseValueInfo)'",
            r"Node \[(?P<op>[\w.]{1,100})@(?P<domain>[\w.]{1,100})\]:\(onnx_node!(?P<node>[^)\n]{0,300})\) parse error",
        ),
        means="OpenCV cannot read a part of the graph",
        why="it wants a shape for each output, and reads few quantized and dynamic models",
        fix="write the shapes into the model (`onnx.shape_inference.infer_shapes`), or leave it out of this target",
        rules=("load-failed",),
        general=True,
    ),
    Entry(
        name="reference-operator-unknown",
        patterns=(
            r"Node type '(?=\w{1,100}' from domain '(?P<domain>[^'\n]{0,100})')(?P<op>\w{1,100})' from domain",
            r"No registered schema for operator '(?P<op>\w{1,100})' and domain '(?P<domain>[^'\n]{0,100})'",
            r"Domain '(?P<domain>[^'\n]{0,100})' \(node type: '(?P<op>\w{1,100})'\) is not specified",
        ),
        means="ONNX's reference evaluator has no operator `{op}`",
        fix="give an implementation with `new_ops=[…]`, or leave the model out of this target",
        rules=("load-failed", "unknown-operator"),
        family="no_op",
    ),
    Entry(
        name="reference-version-missing",
        patterns=r"No implementation for operator '(?P<op>\w{1,100})' domain '(?P<domain>[^'\n]{0,100})' and version"
        r" (?P<since>\d{1,9})",
        means="ONNX's reference evaluator has `{op}` of newer opsets only, not at {since}",
        fix="convert the model to a newer opset, or leave it out of this target",
        rules=("load-failed",),
        family="no_kernel",
    ),
    Entry(
        name="reference-input-missing",
        patterns=r"Unable to find input '(?P<name>[^'\n]{0,300})' in known results",
        means="the input `{name}` is not fed",
        fix="feed all inputs of the graph",
        rules=("input-added",),
    ),
    Entry(
        name="web-external-data",
        patterns=(
            r"Failed to load external data file \"{1,2}(?P<file>[^\"\n]{1,300})\"{1,2}, error: ",
            r"Module\.MountedFiles is not available",
        ),
        means="ONNX Runtime Web was not given the file with the weights, `{file}`",
        why="a browser has no folder to look in: each file of weights must be handed over with the model",
        fix="create the session with `externalData: [{{ path: …, data: … }}]`, the path as the model names it",
        rules=("external-data-missing",),
        family="ext_missing",
    ),
)


class EngineLimit(msgspec.Struct, frozen=True):
    """One limit of some releases of an engine, and its symptom."""

    engine: str
    releases: str  # a version specifier
    words: str  # after "a known limit of <engine>: "
    quantized: bool = False  # outputs of models that round to steps differ
    operators: frozenset[str] = frozenset()  # of models with all of these
    pattern: str = ""  # a refusal in these words


# Source, unless an entry has its own: measured on a CNN, BERT, GPT-2 and ViT of two layers in float, float16 and int8.
ENGINE_LIMITS = (
    EngineLimit(
        # Source: the three nodes alone are 0.76 off; nine other operators in the place of Softmax are right.
        "tract",
        "<=0.23.9",
        "it computes a Softmax between DequantizeLinear and QuantizeLinear wrongly, and says nothing",
        quantized=True,
        operators=frozenset({"Softmax", "QuantizeLinear", "DequantizeLinear"}),
    ),
    EngineLimit(
        "tract",
        "<=0.23.9",
        "it has no Gemm in float16",
        pattern=r"(?i)gemm[\s\S]*\bf16|\bf16\b[\s\S]*gemm",
    ),
    EngineLimit(
        # Source: an Equal of two booleans, as exporters of floor division write it.
        "tract",
        "<=0.23.9",
        "it compares no booleans",
        pattern=r"Eq\s+Caused by:\s+Bool is not a number",
    ),
    EngineLimit(
        "openvino",
        "<=2026.4.1",
        "where a value lies between two int8 steps it may take the other one, and that can grow",
        quantized=True,
    ),
    EngineLimit(
        "onnx",
        "<=1.23.2",
        "its reference evaluator cannot run every GatherElements",
        pattern=r"cannot reshape array of size \d+ into shape",
    ),
    EngineLimit(
        # Source: a GRU of both directions on 1.13.1 to 1.22.0; 1.23.2 runs it.
        "onnx",
        "<1.23",
        "its reference evaluator runs recurrent layers in one direction only",
        pattern=r"Unsupported value 2 for num_directions and operator '(GRU|LSTM|RNN)'",
    ),
    EngineLimit(
        # Source: `No implementation for operator 'DequantizeLinear' domain '' and version 18, found 19, 21, 23, 25`.
        "onnx",
        "<=1.23.2",
        "its reference evaluator has some operators of newer opsets alone: DequantizeLinear since 19",
        pattern=r"No implementation for operator '\w+' domain '' and version \d+, found \d",
    ),
    EngineLimit(
        "opencv-python-headless",
        "<=5.0.0.93",
        "its GatherND takes no booleans, and it reads few quantized models",
        pattern=r"GatherND|bufidx|zpshape",
    ),
)


def find_value_limit(runtime: str, comparability: NumericTraits, operators: Collection[str]) -> str:
    """Return the reason why an engine's outputs may differ for these operators, "" if none is known."""
    if not comparability.quantized:
        return ""
    return _describe_limit(runtime, lambda limit: limit.quantized and limit.operators.issubset(operators))


def find_text_limit(runtime: str, text: str) -> str:
    """Return the known limit that explains an error text, "" if there is none."""
    return _describe_limit(runtime, lambda limit: limit.pattern != "" and re.search(limit.pattern, text) is not None)


def _describe_limit(runtime: str, applies: Callable[[EngineLimit], bool]) -> str:
    engine, release = parse_engine(runtime), runtime.rpartition(" ")[2]
    for limit in ENGINE_LIMITS:
        if (
            limit.engine == engine
            and SpecifierSet(limit.releases).contains(release, prereleases=True)
            and applies(limit)
        ):
            return f"a known limit of {engine}: {limit.words}"
    return ""
