"""Error texts of the onnx package: checker, version converter, helpers, and names removed from newer releases."""

from __future__ import annotations

from onnxgate.diagnostics.catalogue import Entry

ENTRIES = (
    Entry(
        name="checker-ir-too-new",
        patterns=r"Your model ir_version(?: (?P<asked>\d{1,9}))? is higher than the checker's"
        r"(?: \((?P<limit>\d{1,9})\))?",
        means="the model's IR version is newer than the `onnx` package that checks it",
        why="the model was written by a newer `onnx` than the one that reads it",
        fix="upgrade `onnx` where it is checked, or stamp the model down with `onnxgate fix`",
        rules=("ir-version-too-new",),
    ),
    Entry(
        name="checker-opset-missing",
        patterns=r"model with IR version >= 3 must specify opset_import",
        means="the model imports no opset",
        fix="add an opset import for each domain that is used",
        rules=("invalid-model",),
    ),
    Entry(
        name="checker-field-missing",
        patterns=(
            r"The model does not have an ir_version set properly",
            r"Field '(?P<field>[^'\n]{1,100})' of '?(?P<name>[^'\s]{1,100})'? is required to be non-empty",
        ),
        means="a required field of the model is empty",
        why="what wrote it left it out; or the file is empty, or no ONNX model, and was read as one",
        fix="look at the size of the file first; else set the field and save it again",
        rules=("invalid-model", "not-a-model"),
    ),
    Entry(
        name="checker-name-duplicated",
        patterns=r"Graph must be in single static assignment \(SSA\) form, however '(?P<name>[^'\n]{0,300})' has been"
        r" used",
        means="two nodes give the same value `{name}`",
        fix="give each value one name: `onnx.compose.add_prefix` renames a whole graph",
        rules=("invalid-model",),
    ),
    Entry(
        name="checker-not-sorted",
        patterns=r"Nodes in a graph must be topologically sorted, however input '(?P<name>[^'\n]{0,300})' of node",
        means="a node reads `{name}` before anything gives it, or nothing does",
        why="ONNX Runtime sorts nodes itself and takes such a file; the standard and other engines do not",
        fix="sort the nodes (`onnx_ir` has a pass for it), or give the missing value",
        rules=("invalid-model",),
    ),
    Entry(
        name="checker-tensor-wrong",
        patterns=r"TensorProto \( ?tensor name: (?P<name>[^)\n]{0,300})\) should contain one and only one value field",
        means="the weight `{name}` has no values, or has them twice",
        fix="write the weight again with `onnx.numpy_helper.from_array`",
        rules=("invalid-model",),
    ),
    Entry(
        name="converter-adapter-missing",
        patterns=(
            r"No Adapter From Version \$?(?P<opset>\d{1,9}) for (?P<op>\w{1,100})",
            r"No Adapter (?:To|For) Version \$?(?P<opset>\d{1,9}) for (?P<op>\w{1,100})",
            r"No Previous Version of (?P<op>\w{1,100}) exists",
        ),
        means="onnx's version converter cannot take `{op}` across this opset",
        why="down-conversion is written for few operators, and an operator that is new in an opset has no older form",
        fix="export again at the opset that is wanted; a newer `onnx` has more adapters",
        rules=("export-opset-ignored",),
    ),
    Entry(
        name="converter-version-unknown",
        patterns=r"invalid version \(must be between (?P<least>\d{1,9}) and (?P<limit>\d{1,9})\)",
        means="onnx's version converter goes from opset {least} to {limit}; the model's or the one asked is another",
        why="the installed `onnx` is older than the opset, or the number is wrong",
        fix="ask for an opset up to {limit}, or upgrade `onnx`",
        rules=("opset-too-new",),
    ),
    Entry(
        name="converter-input-computed",
        patterns=r"adapters/(?P<adapter>\w{1,80})\.h:\d{1,9}: adapt: [\s\S]{1,200}?No initializer or constant input",
        means="onnx's version converter needs a constant where the graph computes the value",
        why="what is an input of the operator now was an attribute in the older opset",
        fix="export again at the opset that is wanted, or fold constants before converting",
        rules=("export-opset-ignored",),
    ),
    Entry(
        name="converter-operator-unknown",
        patterns=(
            r"Op '%s' has no registered schema; cannot convert it[^\n]{0,60}%lld\.(?P<op>[A-Za-z_]{1,100})",
            r"convert_version[\s\S]{0,600}?IndexError: (?:_Map_base|map|unordered_map)::at",
        ),
        means="onnx's version converter does not know an operator of the model",
        why="it converts operators of the default domain only; custom operators and those of `com.microsoft` end it",
        fix="convert before custom operators are put in, or export again at the opset that is wanted",
        rules=("unknown-operator",),
    ),
    Entry(
        name="helper-size-wrong",
        patterns=(
            r"Number of values \((?P<asked>\d{1,20})\) does not match tensor dimensions requiring"
            r" (?P<expected>\d{1,20}) elements",
            r"Number of values does not match tensor's size\. Expected (?P<expected>\d{1,20}), but it is"
            r" (?P<asked>\d{1,20})",
        ),
        means="a tensor is given {asked} values where its shape has place for {expected}",
        fix="give the shape of the values, or flatten them first",
    ),
    Entry(
        name="onnx-name-removed",
        patterns=(
            r"module 'onnx' has no attribute '(?P<name>mapping)'",
            r"cannot import name '(?P<name>\w{1,60})' from 'onnx(?:\.\w{1,40})?'",
            r"module 'onnx\.(?:helper|numpy_helper|utils)' has no attribute '(?P<name>\w{1,60})'",
        ),
        means="`{name}` is not in the installed `onnx`: newer releases took it away, or only newer ones have it",
        why="a package that reads or writes ONNX was written for another release of `onnx`",
        fix="upgrade that package, or pin `onnx` to a release that has the name: `onnx.mapping` went with 1.19,"
        " `helper.float32_to_bfloat16` with 1.20",
        rules=("toolchain-drift",),
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
        means="the model with its weights is over 2 GiB, which one protobuf file cannot hold",
        fix="save the weights beside it: `onnx.save(model, path, save_as_external_data=True)`; and check it by"
        " its path",
        source="onnx/onnx#5848, facts: failure 18",
    ),
)
