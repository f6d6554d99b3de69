"""Error texts and limitations of OpenVINO, tract, OpenCV DNN, the ONNX reference evaluator and ONNX Runtime Web."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec
from packaging.specifiers import SpecifierSet

from onnxgate.diagnostics.catalogue import CapturedGroups, Entry
from onnxgate.project.engines import parse_engine

if TYPE_CHECKING:
    from onnxgate.model.numeric_traits import NumericTraits


_DATA_FIX = "move the data into the model with `onnxgate fix`, or export the model again"
_INSPECTION_FIX = "run `onnxgate check FILE` to find the cause"
_OPERATOR_FIX = "export without this operator"
_UNSUPPORTED_FIX = f"{_OPERATOR_FIX}, or remove targets with this engine from the model's `targets`"


def _describe_device(captured: CapturedGroups) -> str:
    return f"OpenVINO cannot use the device `{captured['device'].upper()}`"


OPENVINO = (
    Entry(
        name="openvino-operator-unknown",
        patterns=(
            r"No conversion rule found for operations: (?P<op>[^\n]{1,300})",
            r"OpenVINO does not support the following ONNX operations: (?P<op>[^\n]{1,300})",
        ),
        means="OpenVINO does not support: {op}",
        why="operators in `com.microsoft` are usually added by an ONNX Runtime optimizer",
        fix="use the unoptimized model, export without the unsupported operators, or try a newer OpenVINO release",
        rules=("load-failed",),
        self_explanatory=True,
    ),
    Entry(
        name="openvino-not-a-model",
        patterns=(
            r"Unable to read the model: \"?(?P<file>\S{1,300}?)\"? Please check that model format",
            r"onnx: Could not open the file: \"(?P<file>[^\"\n]{1,300})\"",
            r"Could not open the file: \"(?P<file>[^\"\n]{1,300})\"",
        ),
        means="OpenVINO cannot read `{file}` as a model",
        fix=_INSPECTION_FIX,
        rules=("not-a-model", "lfs-pointer"),
    ),
    Entry(
        name="openvino-external-data",
        patterns=(
            r"[Ii]nvalid external data: ExternalDataInfo\((?:data_full_path|data_file_path): (?P<file>[^,\n]{0,300})",
            r"Invalid usage of method for externally stored data in file \((?P<file>[^,\n]{0,300})",
        ),
        means="OpenVINO cannot read the external data `{file}`",
        fix="keep the model and its data in one folder under their original names",
        rules=("external-data-missing",),
    ),
    Entry(
        name="openvino-external-size",
        patterns=r"The size of the external data file does not match the byte size of an initializer"
        r" '(?P<name>[^'\n]{0,300})'",
        means="tensor `{name}` has no plain length in its external data, and the file does not end with the tensor",
        fix=_DATA_FIX,
        rules=("external-data-refused", "external-data-corrupt"),
        family="ext_policy",
        example="The size of the external data file does not match the byte size of an initializer 'w' in the model",
        source="OpenVINO 2024.5.0 to 2026.4.1",
    ),
    Entry(
        name="openvino-input-shape",
        patterns=r"Can't set the input tensor with (?:index|name): (?P<name>[^,\n]{1,200}), because the model input"
        r" \(shape=(?P<expected>[^)\n]{1,100})\)"
        r" and the tensor \(shape=(?P<actual>\([^)\n]{0,100}\))\) are incompatible",
        means="an input has shape {actual}; the model requires {expected}",
        fix="pass an input of the required shape, re-export with a dynamic axis, or call `model.reshape` in OpenVINO",
        rules=("input-shape-narrowed",),
    ),
    Entry(
        name="openvino-input-name",
        patterns=r"Port for tensor name (?P<name>[^\n]{1,200}?) was not found",
        means="the model has no input or output `{name}`",
        fix="use the names in `compiled_model.inputs` and `compiled_model.outputs`",
        rules=("input-renamed", "output-renamed"),
        self_explanatory=True,
    ),
    Entry(
        name="openvino-device",
        patterns=(
            r"Cannot load library [^\n]{1,300}openvino_intel_(?P<device>gpu|npu)_plugin[^\n]{0,200}",
            r"Failed to create plugin [^\n]{0,200} for device (?P<device>\w{1,20})",
            r"(?P<device>GPU) cannot find available devices",
        ),
        means=_describe_device,
        why="the driver or the device is missing",
        fix="install the driver of the device, or compile the model for `CPU` or `AUTO`",
        rules=("provider-not-used",),
    ),
    Entry(
        name="openvino-attribute",
        patterns=r"Node \((?P<node>[^\n]{0,300}?)\): unknown attribute '(?P<name>[^'\n]{1,100})'",
        means="node `{node}` lacks the attribute `{name}`, which OpenVINO requires",
        why="OpenVINO has an operator with the same name but different attributes",
        fix="set the attribute, or export without the custom operator",
        rules=("invalid-model", "load-failed"),
    ),
    Entry(
        name="openvino-aten",
        patterns=r"Only `embedding_bag` is supported as ATen `operator` attribute\. Got: (?P<op>\w{1,100})",
        means="the model contains `{op}`, a PyTorch operator that is not part of ONNX",
        fix="export at a newer opset or with `dynamo=True`",
        rules=("load-failed", "unknown-domain"),
    ),
    Entry(
        name="openvino-types-differ",
        patterns=(
            r"While validating node '(?P<op>[^'\n]{1,400})'[^\n]{0,300}\nArgument element types are inconsistent",
            r"Argument element types are inconsistent",
        ),
        means=(
            "the inputs of {op} must have the same type",
            "the inputs of a node must have the same type",
        ),
        why="a common cause is that only part of the model was converted to float16",
        fix="insert a `Cast` node so that the types match, or convert the whole model to float16",
        rules=("type-mismatch", "load-failed"),
    ),
    Entry(
        name="openvino-shape",
        patterns=(
            r"While validating (?:ONNX )?node '(?P<op>[^'\n]{1,300})'",
            r"Conversion is failed for: (?P<op>[^\n]{1,200})",
        ),
        means="OpenVINO cannot convert node {op}: its shapes, types or attributes are inconsistent",
        fix="correct the node that the error names, or export with operators and attributes that OpenVINO supports",
        rules=("invalid-model", "load-failed"),
        general=True,
    ),
)
TRACT = (
    Entry(
        name="tract-operator-unknown",
        patterns=r"(?:node #\d{1,9} \"(?P<node>[^\"\n]{0,300})\" )?Unimplemented\((?P<op>\w{1,100})\)",
        means="tract does not support the operator `{op}`",
        fix=_UNSUPPORTED_FIX,
        anywhere=_OPERATOR_FIX,
        rules=("load-failed",),
        family="no_op",
    ),
    Entry(
        name="tract-not-a-model",
        patterns=r"failed to decode Protobuf message: (?P<detail>[^\n]{1,200})",
        means="tract cannot read the file as a model: {detail}",
        fix=_INSPECTION_FIX,
        rules=("not-a-model", "lfs-pointer"),
    ),
    Entry(
        name="tract-external-data",
        patterns=(
            r"Canonicalizing ONNX external data path \"(?P<file>[^\"\n]{0,300})\"",
            r"Opening \"(?P<file>[^\"\n]{0,300})\" Caused by:",
        ),
        means="tract cannot find the external data `{file}`",
        fix="keep the model and its data in one folder under their original names",
        rules=("external-data-missing",),
    ),
    Entry(
        name="tract-external-number",
        patterns=r"Error while parsing (?P<key>offset|length) value on external data description",
        means="tract does not accept the spelling of the {key} of a tensor in external data",
        fix=_DATA_FIX,
        rules=("external-data-refused", "external-data-corrupt"),
        family="ext_policy",
        example="Error while parsing length value on external data description",
        source="tract 0.21.8 to 0.23.9",
    ),
    Entry(
        name="tract-external-size",
        patterns=r"Raw tensor data length \((?P<size>\d{1,20})\) does not match shape",
        means="the data of a tensor has {size} bytes, which does not fit its shape and type",
        why="tract reads the whole file if the external data of a tensor has no length",
        fix=_DATA_FIX,
        rules=("external-data-refused", "external-data-corrupt"),
        family="ext_policy",
        example="Raw tensor data length (48) does not match shape [4] of F32 (16 bytes)",
        source="tract 0.23.9",
    ),
    Entry(
        name="tract-analysis",
        patterns=r"Failed analyse for node #\d{1,9} \"(?P<node>[^\"\n]{0,300})\" (?P<op>\w{1,100})",
        means="tract cannot infer types and shapes for node `{node}`",
        why="the shapes are inconsistent, or tract does not support this form of the operator",
        fix="use fixed input sizes, or export with another form of the operator",
        rules=("load-failed", "invalid-model"),
    ),
    Entry(
        name="tract-input",
        patterns=r"Clashing resolution for expression\. (?P<expected>\S{1,60}) != (?P<actual>\d{1,20})",
        means="an input has size {actual}, which the model does not accept",
        fix="pass an input of the size that the model requires, or re-export with a dynamic axis",
        rules=("input-shape-narrowed",),
    ),
)
OPENCV = (
    Entry(
        name="opencv-operator-unknown",
        patterns=r"Can't create layer \"(?P<node>[^\"\n]{0,300})\" of type \"(?P<op>[\w.]{1,100})\"",
        means="OpenCV DNN does not support the operator `{op}`",
        fix=_UNSUPPORTED_FIX,
        anywhere=_OPERATOR_FIX,
        rules=("load-failed",),
        family="no_op",
    ),
    Entry(
        name="opencv-not-a-model",
        patterns=(r"Failed to parse ONNX model: (?P<file>\S{1,300})", r"Can't read ONNX file: (?P<file>\S{1,300})"),
        means="OpenCV cannot read `{file}` as a model",
        fix=_INSPECTION_FIX,
        rules=("not-a-model", "lfs-pointer"),
    ),
    Entry(
        name="opencv-node",
        patterns=(
            r"tensor\.has_shape\(\) in function '(?:dumpValueInfoProto|parseValueInfo)'",
            r"Node \[(?P<op>[\w.]{1,100})@(?P<domain>[\w.]{1,100})\]:\(onnx_node!(?P<node>[^\n]{0,300}?)\) parse error",
        ),
        means="OpenCV cannot read part of the graph",
        why="OpenCV requires declared output shapes, and has limited support for quantized models and dynamic shapes",
        fix="add shapes with `onnx.shape_inference.infer_shapes`, or remove targets with this engine from the "
        "model's `targets`",
        anywhere="add shapes with `onnx.shape_inference.infer_shapes`",
        rules=("load-failed",),
        general=True,
    ),
)
REFERENCE_EVALUATOR = (
    Entry(
        name="reference-operator-unknown",
        patterns=(
            r"Node type '(?=\w{1,100}' from domain '(?P<domain>[^'\n]{0,100})')(?P<op>\w{1,100})' from domain",
            r"No registered schema for operator '(?P<op>\w{1,100})' and domain '(?P<domain>[^'\n]{0,100})'",
            r"Domain '(?P<domain>[^'\n]{0,100})' \(node type: '(?P<op>\w{1,100})'\) is not specified",
        ),
        means="the ONNX reference evaluator does not support the operator `{op}`",
        fix="pass an implementation of the operator with `new_ops=[…]`, or use a different engine",
        rules=("load-failed", "unknown-operator"),
        family="no_op",
    ),
    Entry(
        name="reference-version-missing",
        patterns=r"No implementation for operator '(?P<op>\w{1,100})' domain '(?P<domain>[^'\n]{0,100})' and version"
        r" (?P<since>\d{1,9})",
        means="the ONNX reference evaluator does not implement version {since} of `{op}`, only newer versions",
        fix="convert the model to a newer opset, or use a different engine",
        rules=("load-failed",),
        family="no_kernel",
    ),
    Entry(
        name="reference-input-missing",
        patterns=r"Unable to find input '(?P<name>[^'\n]{0,300})' in known results",
        means="input `{name}` is missing",
        fix="pass all inputs of the graph",
        rules=("input-added",),
    ),
)
ONNXRUNTIME_WEB = (
    Entry(
        name="web-external-data",
        patterns=(
            r"Failed to load external data file \"{1,2}(?P<file>[^\"\n]{1,300})\"{1,2}, error: ",
            r"Module\.MountedFiles is not available",
        ),
        means=(
            "ONNX Runtime Web did not receive the external data `{file}`",
            "ONNX Runtime Web did not receive the external data",
        ),
        fix='create the session with `externalData: [{{ path: "model.onnx.data", data: url }}]`',
        rules=("external-data-missing",),
        family="ext_missing",
    ),
    Entry(
        name="web-interface-type",
        # Source: onnxruntime-web 1.22 to 1.30, which describe the inputs and outputs of each session that they create.
        patterns=r"unsupported data type: (?P<number>\d{1,3})",
        means="an input or output of the model has element type {number}, which ONNX Runtime Web cannot represent",
        fix="change the type of the input or output to `tensor(float)`, and cast it in the model",
        affected="onnxruntime-web 1.22 and newer",
        rules=("type-mismatch",),
        family="interface_type",
        example="unsupported data type: 16",
        source="onnxruntime-web 1.30.0",
    ),
    Entry(
        name="web-no-message",
        patterns=r"C\+\+ exception without a message \(onnxruntime-web",
        means="ONNX Runtime Web refused the model; releases before 1.24 do not report why",
        fix="load the model with onnxruntime-web 1.24 or newer, or with onnxruntime, to see the reason",
        affected="onnxruntime-web before 1.24",
        family="no_message",
        example="C++ exception without a message (onnxruntime-web reports messages since 1.24; this is 1.22.0)",
        source="onnxgate's adapter of ONNX Runtime Web",
        self_explanatory=True,
    ),
)


class EngineLimit(msgspec.Struct, frozen=True):
    """A known limitation of some releases of an engine, and how to recognize it."""

    engine: str
    releases: str  # a version specifier
    words: str  # text after "a known limitation of <engine>: "
    quantized: bool = False  # outputs of quantized models differ
    operators: frozenset[str] = frozenset()  # applies only to models with all of these operators
    pattern: str = ""  # matches the engine's error text


# Source of entries without their own: a CNN, BERT, GPT-2 and ViT with two layers each, in float, float16 and int8.
ENGINE_LIMITS = (
    EngineLimit(
        # Source: a model of these three nodes differs by 0.76; with any of nine other operators, results are correct.
        "tract",
        "<=0.23.9",
        "`Softmax` between `DequantizeLinear` and `QuantizeLinear` gives wrong results without an error",
        quantized=True,
        operators=frozenset({"Softmax", "QuantizeLinear", "DequantizeLinear"}),
    ),
    EngineLimit(
        "tract",
        "<=0.23.9",
        "`Gemm` is not supported in float16",
        pattern=r"(?i)gemm[\s\S]*\bf16|\bf16\b[\s\S]*gemm",
    ),
    EngineLimit(
        # Source: an Equal node with two boolean inputs, which exporters write for a floor division.
        "tract",
        "<=0.23.9",
        "`Equal` is not supported for booleans",
        pattern=r"Eq\s+Caused by:\s+Bool is not a number",
    ),
    EngineLimit(
        # Source: outputs of `Shape`, and of `Cast` to int64, on 0.21.8 and 0.22.4.
        "tract",
        "<0.23",
        "its Python package cannot return the integers that tract computes from sizes",
        pattern=r"Unsupported DatumType in the public API TDim",
    ),
    EngineLimit(
        "openvino",
        "<=2026.4.1",
        "int8 values may be off by one rounding step, and later layers can amplify this difference",
        quantized=True,
    ),
    EngineLimit(
        "onnx",
        "<=1.23.2",
        "the reference evaluator does not support some cases of `GatherElements`",
        pattern=r"cannot reshape array of size \d+ into shape",
    ),
    EngineLimit(
        # Source: a bidirectional GRU fails on 1.13.1–1.22.0 and runs on 1.23.2.
        "onnx",
        "<1.23",
        "the reference evaluator does not support bidirectional recurrent layers",
        pattern=r"Unsupported value 2 for num_directions and operator '(GRU|LSTM|RNN)'",
    ),
    EngineLimit(
        # Source: `No implementation for operator 'DequantizeLinear' domain '' and version 18, found 19, 21, 23, 25`.
        "onnx",
        "<=1.23.2",
        "the reference evaluator implements some operators only for newer opsets "
        "(`DequantizeLinear`: opset 19 and newer)",
        pattern=r"No implementation for operator '\w+' domain '' and version \d+, found \d",
    ),
    EngineLimit(
        "opencv-python-headless",
        "<=5.0.0.93",
        "`GatherND` does not support booleans, and most quantized models cannot be loaded",
        pattern=r"GatherND|bufidx|zpshape",
    ),
)


def find_value_limit(runtime: str, comparability: NumericTraits, operators: Collection[str]) -> str:
    """Describe the known limitation of an engine that may change the outputs of a quantized model with these operators.

    Return "" if no limitation is known, or if the model is not quantized or only its weights are.
    """
    if not comparability.quantized or comparability.weights_only:
        return ""
    return _describe_limit(runtime, lambda limit: limit.quantized and limit.operators.issubset(operators))


def find_text_limit(runtime: str, text: str) -> str:
    """Describe the known limitation of an engine that explains one of its error texts; "" if there is none."""
    return _describe_limit(runtime, lambda limit: limit.pattern != "" and re.search(limit.pattern, text) is not None)


def _describe_limit(runtime: str, applies: Callable[[EngineLimit], bool]) -> str:
    engine, release = parse_engine(runtime), runtime.rpartition(" ")[2]
    for limit in ENGINE_LIMITS:
        if (
            limit.engine == engine
            and SpecifierSet(limit.releases).contains(release, prereleases=True)
            and applies(limit)
        ):
            return f"a known limitation of {engine}: {limit.words}"
    return ""
