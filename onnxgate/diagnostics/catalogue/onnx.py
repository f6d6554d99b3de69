"""Error texts of the onnx package: checker, version converter, helpers, and names removed from newer releases."""

from __future__ import annotations

from onnxgate.core.text import pluralize
from onnxgate.diagnostics.catalogue import Entry

ENTRIES = (
    Entry(
        name="checker-ir-too-new",
        patterns=r"Your model ir_version(?: (?P<version>\d{1,9}))? is higher than the checker's"
        r"(?: \((?P<limit>\d{1,9})\))?",
        means=(
            "the model uses IR version {version}; the installed `onnx` supports up to {limit}",
            "the model's IR version is newer than the installed `onnx` supports",
        ),
        fix="upgrade `onnx`, or lower the IR version with `onnxgate fix`",
        rules=("ir-version-too-new",),
        self_explanatory=True,
    ),
    Entry(
        name="checker-opset-missing",
        patterns=r"model with IR version >= 3 must specify opset_import",
        means="the model imports no opset",
        fix="add an opset import for each operator domain that the model uses",
        rules=("invalid-model",),
        self_explanatory=True,
    ),
    Entry(
        name="checker-field-missing",
        patterns=(
            r"The model does not have an ir_version set properly",
            r"Field '(?P<field>[^'\n]{1,100})' of '?(?P<name>[^'\s]{1,100})'? is required to be non-empty",
        ),
        means=(
            "the required field `{field}` of `{name}` is empty",
            "a required field of the model is empty",
        ),
        why="the file may be empty, or not an ONNX model",
        fix="if the file is an ONNX model, add the missing field; otherwise, replace the file with an ONNX model",
        rules=("invalid-model", "not-a-model"),
        self_explanatory=True,
    ),
    Entry(
        name="checker-name-duplicated",
        patterns=r"Graph must be in single static assignment \(SSA\) form, however '(?P<name>[^'\n]{0,300})' has been"
        r" used",
        means="two nodes produce the value `{name}`",
        fix="rename the output of one of the nodes, or merge the graphs with a prefix (`onnx.compose.add_prefix`)",
        rules=("invalid-model",),
    ),
    Entry(
        name="checker-not-sorted",
        patterns=r"Nodes in a graph must be topologically sorted, however input '(?P<name>[^'\n]{0,300})' of node",
        means="a node reads `{name}`, but no earlier node produces it",
        why="ONNX Runtime sorts the nodes of a model; other engines do not",
        fix="sort the nodes (`onnx_ir.passes.common.TopologicalSortPass`), or add the missing value",
        rules=("invalid-model",),
    ),
    Entry(
        name="checker-tensor-wrong",
        patterns=r"TensorProto \( ?tensor name: (?P<name>[^)\n]{0,300})\) should contain one and only one value field",
        means="initializer `{name}` must have its values in exactly one field, such as `raw_data`",
        fix="create the initializer with `onnx.numpy_helper.from_array`",
        rules=("invalid-model",),
    ),
    Entry(
        name="converter-adapter-missing",
        patterns=(
            r"No Adapter From Version \$?(?P<opset>\d{1,9}) for (?P<op>\w{1,100})",
            r"No Adapter (?:To|For) Version \$?(?P<opset>\d{1,9}) for (?P<op>\w{1,100})",
            r"No Previous Version of (?P<op>\w{1,100}) exists",
        ),
        means="`onnx.version_converter` cannot convert `{op}` to the requested opset",
        why="few operators can be converted to an older opset",
        fix="re-export at the required opset, or upgrade `onnx`",
        rules=("export-opset-ignored",),
    ),
    Entry(
        name="converter-version-unknown",
        patterns=r"invalid version \(must be between (?P<least>\d{1,9}) and (?P<limit>\d{1,9})\)",
        means="`onnx.version_converter` supports opsets {least}–{limit}; "
        "the model's opset or the requested opset is outside this range",
        fix="request an opset up to {limit}, or upgrade `onnx`",
        rules=("opset-too-new",),
    ),
    Entry(
        name="converter-input-computed",
        patterns=r"adapters/(?P<adapter>\w{1,80})\.h:\d{1,9}: adapt: [\s\S]{1,200}?No initializer or constant input",
        means="`onnx.version_converter` requires a constant input, but the graph computes this input",
        why="at the older opset, this input is an attribute, and the value of an attribute must be constant",
        fix="re-export at the required opset, or fold constants before converting",
        rules=("export-opset-ignored",),
    ),
    Entry(
        name="converter-operator-unknown",
        patterns=(
            r"Op '%s' has no registered schema; cannot convert it[^\n]{0,60}%lld\.(?P<op>[A-Za-z_]{1,100})",
            r"convert_version[\s\S]{0,600}?IndexError: (?:_Map_base|map|unordered_map)::at",
        ),
        means="`onnx.version_converter` does not support an operator in the model",
        why="the converter supports only operators in the default domain",
        fix="convert the model before you add custom operators, or re-export at the required opset",
        rules=("unknown-operator",),
    ),
    Entry(
        name="helper-size-wrong",
        patterns=(
            r"Number of values \((?P<actual>\d{1,20})\) does not match tensor dimensions requiring"
            r" (?P<expected>\d{1,20}) elements",
            r"Number of values does not match tensor's size\. Expected (?P<expected>\d{1,20}), but it is"
            r" (?P<actual>\d{1,20})",
        ),
        means=lambda captured: (
            f"a tensor has {pluralize(int(captured['actual']), 'value')}, but its shape requires {captured['expected']}"
        ),
        fix="pass `dims=array.shape` and `vals=array.flatten()` to `make_tensor`",
        self_explanatory=True,
    ),
    Entry(
        name="onnx-name-removed",
        patterns=(
            r"module 'onnx' has no attribute '(?P<name>mapping)'",
            r"cannot import name '(?P<name>\w{1,60})' from 'onnx(?:\.\w{1,40})?'",
            r"module 'onnx\.(?:helper|numpy_helper|utils)' has no attribute '(?P<name>\w{1,60})'",
        ),
        means="the installed `onnx` has no `{name}`",
        why="another installed package requires an older or newer `onnx`",
        fix="upgrade that package, or pin a compatible `onnx` release "
        "(1.19 removed `onnx.mapping`; 1.20 removed `helper.float32_to_bfloat16`)",
        rules=("toolchain-drift",),
        self_explanatory=True,
    ),
    Entry(
        name="protobuf-too-large",
        patterns=(
            r"exceeds maximum protobuf size of 2GB",
            r"EncodeError: Failed to serialize proto",
            r"The proto size is larger than the 2 ?GB limit",
            r"This protobuf of onnx model is too large \(>2GB\)",
            r"onnx\.ModelProto\S{0,20} exceeded maximum protobuf size of 2GB",
        ),
        means="the model, including its weights, exceeds the protobuf size limit of 2 GiB",
        fix="save the model with `save_as_external_data=True`, and check it by path: `onnx.checker.check_model(path)`",
        source="onnx/onnx#5848",
    ),
)
