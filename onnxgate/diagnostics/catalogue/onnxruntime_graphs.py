"""Known error texts of ONNX Runtime about types, shapes and values in a graph that is loaded or run."""

from __future__ import annotations

from onnxgate.core.text import pluralize
from onnxgate.diagnostics.catalogue import CapturedGroups, Entry


def _suggest_locale(captured: CapturedGroups) -> str:
    """Return a fix: the command that installs a missing locale, such as `de_DE.UTF-8`, on Debian and Ubuntu."""
    locale = captured["locale"]
    name, _, charset = locale.partition(".")
    if not charset:
        return f"install the locale `{locale}` on the operating system"
    return f"on Debian or Ubuntu, run `apt-get install locales && localedef -i {name} -f {charset} {locale}`"


def _suggest_cast(captured: CapturedGroups) -> str:
    name = captured.get("expected", "").removeprefix("tensor(").removesuffix(")")
    dtype = {"float": "float32", "double": "float64", "string": "object"}.get(name, name)
    return f"convert the input with `array.astype(numpy.{dtype or '…'})`"


_UNLIMITED = str(2**31 - 1)
_ELEMENT_TYPES = {
    "1": "float32",
    "2": "uint8",
    "3": "int8",
    "4": "uint16",
    "5": "int16",
    "6": "int32",
    "7": "int64",
    "8": "string",
    "9": "bool",
    "10": "float16",
    "11": "float64",
    "16": "bfloat16",
}
"""Number of a tensor's element type in ONNX -> name of this type, such as `float16`.

Source: `TensorProto.DataType` in onnx.proto.
"""


def _describe_arity(captured: CapturedGroups) -> str:
    actual, side, least, most = (captured[name] for name in ("actual", "side", "least", "most"))
    number = f"{least} to {most}"
    if most in (least, _UNLIMITED):
        number = least if most == least else f"at least {least}"
    return f"a node has {pluralize(int(actual), side)}; its operator takes {number}"


def _describe_missing_input(captured: CapturedGroups) -> str:
    if "name" in captured:
        return f"required inputs are missing: {captured['name']}"
    return f"the model requires {pluralize(int(captured['expected']), 'input')} but received {captured['actual']}"


def _describe_channels(captured: CapturedGroups) -> str:
    channels = pluralize(int(captured["actual"]), "channel")
    return (
        f"a `Conv` received {channels}; its weights require {pluralize(int(captured['expected']), 'channel')} per group"
    )


def _describe_rank(captured: CapturedGroups) -> str:
    axes = pluralize(int(captured["actual"]), "axis", "axes")
    return f"input `{captured['name']}` has {axes}; the model requires {captured['expected']}"


def _describe_output_type(captured: CapturedGroups) -> str:
    declared, inferred = (_ELEMENT_TYPES.get(captured[name], captured[name]) for name in ("declared", "inferred"))
    return f"an output is declared as {declared}, but the operator returns {inferred}"


LOADING = (
    Entry(
        name="types-differ",
        patterns=(
            r"Type Error: Type parameter \((?P<parameter>\w{1,60})\) of Optype \((?P<op>\w{1,100})\) bound to"
            r" different types \((?P<types>[^\n]{1,200}?) in node \((?P<node>.{0,300}?)\)(?![^\s.])",
            r"\(op_type:(?P<op>\w{1,100}), node name: ?(?P<node>.{0,300}?)\): (?P<parameter>\S{1,60}) has"
            r" inconsistent type (?P<type>\S{1,100})",
        ),
        means=(
            "`{parameter}` of `{op}` must have the same type as the other inputs, not {type}",
            "the inputs of `{op}` must have the same type, not {types}",
        ),
        why="a common cause is that only part of the model was converted to float16",
        fix="insert a `Cast` node so that the types match, or convert the whole model to float16",
        rules=("type-mismatch", "invalid-model"),
        family="type",
    ),
    Entry(
        name="output-type-wrong",
        patterns=(
            r"Type Error: Type \((?P<declared>\S{1,100})\) of output arg \((?P<name>.{0,300}?)\) of node"
            r" \((?P<node>.{0,300}?)\) does not match expected type \((?P<inferred>\S{1,100}?)\)(?!\))",
            r"\[TypeInferenceError\] Inferred elem type differs from existing elem type: \((?P<inferred>\w{1,40})\) vs"
            r" \((?P<declared>\w{1,40})\)",
        ),
        means=_describe_output_type,
        fix="declare the type that the operator returns, or insert a `Cast` after the operator",
        rules=("type-mismatch", "invalid-model"),
        family="type",
    ),
    Entry(
        name="type-not-allowed",
        patterns=(
            r"Type Error: Type '(?P<type>[^'\n]{1,100})' of input parameter \((?P<name>.{0,300}?)\) of operator"
            r" \((?P<op>\w{1,100})\) in node \((?P<node>.{0,300}?)\) is invalid",
            r"MLDataType for: (?P<type>\S{1,100}) is not currently registered or supported",
        ),
        means=(
            "`{op}` does not accept {type} at this opset",
            "{type} is not supported",
        ),
        why="bfloat16 and small integer types require newer opsets",
        fix="insert a `Cast` before the node, or export at a newer opset",
        rules=("type-mismatch", "invalid-model"),
        family="type",
    ),
    Entry(
        name="type-wrong",
        patterns=r"Type Error: (?P<detail>[^\n]{1,300})",
        means="the input or output types of a node are not valid for its operator",
        fix="run `onnxgate diff --textconv FILE` to see the types, and insert a `Cast` where types do not match",
        rules=("type-mismatch", "invalid-model"),
        family="type",
        example="Type Error: Data in initializer 'w' has element type tensor(float16) but usage of"
        " initializer in graph expects tensor(float)",
        source="onnxruntime, graph.cc",
        general=True,
    ),
    Entry(
        name="shape-inference-failed",
        patterns=(
            r"Node \((?P<node>.{0,300}?)\) Op \((?P<op>\w{1,100})\) \[\w{1,20}InferenceError\]"
            r" (?P<detail>[^\n]{1,300})",
            r"\(op_type:(?P<op>\w{1,100}), node name: ?(?P<node>.{0,300}?)\): \[\w{1,20}InferenceError\]"
            r" (?P<detail>[^\n]{1,300})",
            r"\[(?:Shape|Type)InferenceError\] (?P<detail>[^\n]{1,300})",
        ),
        means=(
            "shapes or attributes of `{op}` are inconsistent: {detail}",
            "shapes or attributes are inconsistent: {detail}",
        ),
        why="the graph was edited, or sizes of the example inputs were stored as constants",
        fix="correct the shape or attribute that the error names, or re-export; `onnxgate matrix --verify FILE` loads "
        "the new model on each release",
        anywhere="correct the shape or attribute that the error names, or export the model again",
        rules=("invalid-model", "attribute-unsupported"),
        family="shape_inference",
        self_explanatory=True,
    ),
    Entry(
        name="attribute-unknown",
        patterns=r"Unrecognized attribute: (?P<attribute>\S{1,100}) for operator (?P<op>\S{1,100})",
        means="`{op}` has no attribute `{attribute}` at the imported opset",
        fix="re-export the model, or remove the attribute",
        rules=("attribute-unsupported", "invalid-model"),
        family="attribute",
        self_explanatory=True,
    ),
    Entry(
        name="attribute-missing",
        patterns=r"Required attribute '(?P<attribute>[^'\n]{1,100})' is missing",
        means="a node lacks the required attribute `{attribute}`",
        fix="set the attribute, or re-export",
        rules=("attribute-unsupported", "invalid-model"),
        family="attribute_missing",
        self_explanatory=True,
    ),
    Entry(
        name="attribute-type-wrong",
        patterns=r"Mismatched attribute type in '(?P<attribute>[^'\n]{0,300})'"
        r"(?:\. Expected: '(?P<expected>\w{1,40})', actual: '(?P<actual>\w{1,40})')?",
        means=(
            "the attribute `{attribute}` has type {actual}, but the operator requires {expected}",
            "the attribute `{attribute}` has the wrong type",
        ),
        fix="set the attribute to a value of the required type",
        rules=("attribute-unsupported", "invalid-model"),
        family="attribute",
        self_explanatory=True,
    ),
    Entry(
        name="arity-wrong",
        patterns=r"has (?P<side>input|output) size (?P<actual>\d{1,9}) not in range \[min=(?P<least>\d{1,20}),"
        r" max=(?P<most>\d{1,20})\]",
        means=_describe_arity,
        why="the node was written for a different opset, or edited manually",
        fix="re-export the model",
        rules=("attribute-unsupported", "invalid-model"),
        family="arity",
    ),
    Entry(
        name="name-duplicated",
        patterns=(
            r"Duplicate definition of name \((?P<name>.{0,300}?)\)",
            r"Duplicate definition-site for \((?P<name>.{0,300}?)\)",
        ),
        means="two nodes produce the value `{name}`",
        why="graphs were merged without renaming their values",
        fix="rename the output of one of the nodes, or merge the graphs with a prefix (`onnx.compose.add_prefix`)",
        rules=("invalid-model",),
        family="structure",
    ),
    Entry(
        name="node-name-duplicated",
        patterns=r"two nodes with same node name \((?P<node>.{0,300}?)\)(?![^\s.])",
        means="two nodes are named `{node}`",
        fix="rename one of the nodes, or delete its name (node names are optional)",
        rules=("invalid-model",),
        family="structure",
        self_explanatory=True,
    ),
    Entry(
        name="graph-cyclic",
        patterns=r"the graph is not acyclic",
        means="the graph has a cycle: a node depends on its own output",
        fix="re-export the model",
        rules=("invalid-model",),
        family="structure",
    ),
    Entry(
        name="input-undefined",
        patterns=(
            r"Node input '(?P<name>.{0,300}?)' is not a graph input, initializer, or output of a previous node",
            # Source: 1.8 and older name only the node.
            r"This is an invalid model\. Error: Node (?P<node>.{0,300}?) input (?P<name>.{0,300}?) does not exist",
        ),
        means="a node reads `{name}`, which is not defined",
        why="a node or weight was removed although it is still used",
        fix="re-export, or add the value as an input or initializer",
        rules=("invalid-model",),
        family="structure",
        self_explanatory=True,
    ),
    Entry(
        name="output-undefined",
        patterns=r"Graph output \((?P<name>.{0,300}?)\) does not exist",
        means="the graph declares output `{name}`, which no node produces",
        fix="correct the name of the output, or re-export",
        rules=("invalid-model",),
        family="structure",
        self_explanatory=True,
    ),
    Entry(
        name="weight-size-wrong",
        patterns=(
            r"raw_data size \((?P<size>\d{1,20}) bytes\) does not match expected"
            r" size[^\n]{0,80}\((?P<expected>\d{1,20}) bytes\)",
            r"source and destination buffer size mismatch",
            r"in to_array[\s\S]{1,600}?ValueError: buffer size must be a multiple of element size",
            r"UnpackTensor: the pre-allocated size does not match the raw data size, expected"
            r" (?P<expected>\d{1,20}), got (?P<size>\d{1,20})",
        ),
        means=(
            "an initializer has {size} bytes, but its shape and type require {expected}",
            "the data of an initializer does not match its shape and type",
        ),
        why="the file was truncated or edited",
        fix="re-export the model",
        rules=("invalid-model", "external-data-corrupt"),
        family="raw_size",
    ),
    Entry(
        name="layout-unsupported",
        patterns=r"Batchwise recurrent operations \(layout == 1\) are not supported",
        means="a GRU, LSTM or RNN has `layout=1`, for which ONNX Runtime has no kernel",
        fix="export with `batch_first=False`, or insert a `Transpose` before and after the node",
        affected="all onnxruntime releases up to 1.32.0, on the CPU",
        rules=("attribute-unsupported",),
        family="constructor",
    ),
    Entry(
        name="locale-missing",
        patterns=r"Failed to construct locale with name: ?(?P<locale>[^\s:]{1,100})",
        means="the model needs the locale `{locale}`, which is not installed",
        fix=_suggest_locale,
        affected="all releases; 1.27 and newer fail to load the model, and older releases load the model but fail to "
        "run it",
        family="locale",
    ),
    Entry(
        name="optimizer-fused-cast",
        patterns=r"Attempting to get index by a name which does not exist: ?InsertedPrecisionFreeCast_",
        means="the graph optimizer of this release breaks a normalization of a float16 model",
        fix='pass `disabled_optimizers=["SimplifiedLayerNormFusion"]` to `InferenceSession`, or use another release',
        anywhere='pass `disabled_optimizers=["SimplifiedLayerNormFusion"]` to `InferenceSession` and accept the '
        "finding with an `[[ignore]]` entry",
        affected="onnxruntime 1.23 to 1.27",
        rules=("load-failed",),
        family="optimizer",
        example="Exception during initialization: itr != node_args.end() was false. Attempting to get index by a name "
        "which does not exist:InsertedPrecisionFreeCast_weightfor node: Mul/SimplifiedLayerNormFusion/",
        source="a float16 decoder, loaded on 1.17.3 to 1.31.1",
    ),
    Entry(
        name="integer-division-by-zero",
        patterns=r"Integer (?:division|modulo) by zero",
        means="an integer is divided by 0",
        fix="correct the divisor, and export the model again",
        affected="onnxruntime 1.25 to 1.32; the process ends with SIGFPE on older releases",
        rules=("load-failed",),
        family="constructor",
        example="Integer division by zero",
        source="`Div` and `Mod` of int64 by an initializer 0, run on 1.15.1 to 1.32.0",
    ),
    Entry(
        name="initialization-failed",
        patterns=r"Exception during initialization: (?P<detail>[^\n]{1,300})",
        means="a kernel could not be created: {detail}",
        why="the usual cause is a kernel that does not support the value of an attribute or weight",
        fix="re-export with a different value, or find a release that supports the current value: `onnxgate matrix "
        "--verify FILE`",
        rules=("attribute-unsupported", "load-failed"),
        family="constructor",
        example="Exception during initialization: mode attribute is . It can only be nearest(default) or"
        " linear or cubic.",
        source="PaddlePaddle/Paddle2ONNX#1540",
        general=True,
        self_explanatory=True,
    ),
)

_SOURCE_LOCATION = r"(?:/onnxruntime_src/[^\n]{0,600}?\)(?: const)?(?: \[with [^\]\n]{0,200}\])? (?=[A-Za-z_!\[]))?"
"""Pattern for a position in ONNX Runtime's source code, as in its error texts. It changes with each release."""
RUNNING = (
    Entry(
        name="input-dimension-wrong",
        patterns=r"Got invalid dimensions for input: (?P<name>\S{1,300})(?: for the following indices index:"
        r" (?P<axis>\d{1,9}) Got: (?P<actual>\d{1,20}) Expected: (?P<expected>\d{1,20}))?",
        means=(
            "input `{name}` has size {actual} on axis {axis}; the model requires {expected}",
            "a size of input `{name}` does not match the model",
        ),
        fix="pass an input of the required size, or re-export with a dynamic axis (`dynamic_shapes`, `dynamic_axes`)",
        rules=("input-shape-narrowed", "dynamic-axis-lost"),
        family="run_shape",
    ),
    Entry(
        name="input-rank-wrong",
        patterns=r"Invalid rank for input: (?P<name>\S{1,300}) Got: (?P<actual>\d{1,9})"
        r" Expected: (?P<expected>\d{1,9})",
        means=_describe_rank,
        fix="add an axis to the input or remove one; often, the batch axis is missing",
        rules=("input-shape-narrowed",),
        family="run_shape",
        self_explanatory=True,
    ),
    Entry(
        name="input-type-wrong",
        patterns=r"Unexpected input data type\. Actual: \((?P<actual>\S{1,100}?)\) ?, expected:"
        r" \((?P<expected>\S{1,100}?)\)(?!\))",
        means="an input has type {actual}; the model requires {expected}",
        why="NumPy creates float64 arrays by default",
        fix=_suggest_cast,
        rules=("input-type-changed",),
        family="run_dtype",
        self_explanatory=True,
    ),
    Entry(
        name="input-missing",
        patterns=(
            r"Required inputs \((?P<name>[^\n]{1,300}?)\) are missing from input feed",
            r"Model requires (?P<expected>\d{1,9}) inputs\. Input Feed contains (?P<actual>\d{1,9})",
        ),
        means=_describe_missing_input,
        why="an input was added or renamed when the model was exported again",
        fix="pass every input that `session.get_inputs()` lists",
        rules=("input-added", "input-renamed"),
        family="run_feed",
        self_explanatory=True,
    ),
    Entry(
        name="input-name-unknown",
        patterns=r"Invalid (?:Feed Input Name|input name): ?(?P<name>[^\s'\"]{1,300})",
        means="the model has no input `{name}`",
        why="the input was renamed, or was removed because it is unused",
        fix="use the input names that `session.get_inputs()` lists, or set `input_names` at export",
        rules=("input-removed", "input-renamed"),
        family="run_feed",
        self_explanatory=True,
    ),
    Entry(
        name="output-name-unknown",
        patterns=r"Invalid (?:Output Name|output name): ?(?P<name>[^\s'\"]{1,300})",
        means="the model has no output `{name}`",
        fix="request only outputs that `session.get_outputs()` lists",
        rules=("output-removed", "output-renamed"),
        family="run_feed",
        self_explanatory=True,
    ),
    Entry(
        name="output-shape-warned",
        patterns=r"Expected shape from model of (?P<expected>\{[^}\n]{0,200}\}) does not match actual shape of"
        r" (?P<actual>\{[^}\n]{0,200}\}) for output (?P<name>\S{1,300})",
        means="output `{name}` is declared as {expected} but has shape {actual}",
        fix="re-export the model with dynamic output axes",
        rules=("output-shape-wrong", "dynamic-axis-lost"),
        example="Expected shape from model of {1,3} does not match actual shape of {2,3} for output y",
        source="onnxruntime 1.8 and newer, execution_frame.cc, VerifyOutputSizes",
        self_explanatory=True,
    ),
    Entry(
        name="reshape-failed",
        patterns=r"The input tensor cannot be reshaped to the requested shape"
        r"(?:\. Input shape: ?(?P<actual>\{[^}\n]{0,200}\}), requested shape: ?(?P<expected>\{[^}\n]{0,200}\}))?",
        means=(
            "a `Reshape` to {expected} received an input of shape {actual}",
            "a `Reshape` received a different number of elements than its target shape has",
        ),
        why="a size of the example inputs, usually a batch size of 1, was stored as a constant",
        fix="in the source, reshape to -1 or a computed size; re-export with an example batch size of 2 or more",
        rules=("dynamic-axis-broken", "run-failed"),
        family="run_node",
    ),
    Entry(
        name="broadcast-failed",
        patterns=(
            r"Attempting to broadcast an axis by a dimension other than 1\. (?P<actual>\d{1,20}) by"
            r" (?P<expected>\d{1,20})",
            r"Status Message: (?:\S{1,300} )?invalid expand shape",
        ),
        means=(
            "two inputs of an operator have incompatible sizes: {actual} and {expected}",
            "two inputs of an operator have incompatible sizes",
        ),
        why="a constant was created with the size of the example inputs",
        fix="re-export with a dynamic axis, or pass inputs of the same size as the example inputs",
        rules=("dynamic-axis-broken", "run-failed"),
        family="run_node",
    ),
    Entry(
        name="matmul-failed",
        patterns=(
            r"MatMul dimension mismatch",
            r"GEMM: Dimension mismatch, W: ?(?P<expected>\{[^}\n]{0,200}\}) K: ?(?P<actual>\d{1,20})",
        ),
        means="the operands of a matrix product have incompatible sizes",
        why="the number of features depends on the input size, but the weights have a fixed size",
        fix="pass inputs of the size used for training, or insert a pooling layer before the matrix product",
        rules=("dynamic-axis-broken", "run-failed"),
        family="run_node",
    ),
    Entry(
        name="concat-failed",
        patterns=r"Non concat axis dimensions must match: Axis (?P<axis>\d{1,9}) has mismatched dimensions of"
        r" (?P<actual>\d{1,20}) and (?P<expected>\d{1,20})",
        means="the inputs of a `Concat` have different sizes on axis {axis}: {actual} and {expected}",
        fix="pass inputs whose sizes are divisible by the model's strides, or re-export with a dynamic axis",
        rules=("dynamic-axis-broken", "run-failed"),
        family="run_node",
        self_explanatory=True,
    ),
    Entry(
        name="split-failed",
        patterns=r"Cannot split using values in 'split' attribute\. Axis=-?\d{1,9}"
        r" Input shape=(?P<shape>\{[^}\n]{0,200}\})"
        r"[\s\S]{1,160}?Sum of sizes in 'split' \(must equal size of selected axis\) was (?P<sum>\d{1,20})",
        means="a `Split` with sizes that sum to {sum} received an input of shape {shape}",
        fix="re-export with `num_outputs` or computed sizes, or pass an input whose split axis has size {sum}",
        rules=("dynamic-axis-broken", "run-failed"),
        family="run_node",
    ),
    Entry(
        name="conv-failed",
        patterns=r"Input channels C is not equal to kernel channels \* group\. C: (?P<actual>\d{1,20}) kernel channels:"
        r" (?P<expected>\d{1,20})",
        means=_describe_channels,
        fix="transpose the input (NHWC to NCHW), or convert the image to the required number of channels",
        rules=("run-failed",),
        family="run_node",
    ),
    Entry(
        name="index-out-of-bounds",
        patterns=(
            r"indices element out of data bounds, idx=(?P<actual>-?\d{1,20}) must be within the inclusive range"
            r" \[(?P<least>-?\d{1,20}),(?P<most>-?\d{1,20})\]",
            r"GatherElements op: Out of range value in index tensor",
            r"invalid indice found",
            r"indices out of bounds",
        ),
        means=(
            "index {actual} is outside the range {least} to {most}",
            "an index is out of bounds",
        ),
        why="a token is not in the vocabulary, or a position exceeds the maximum length",
        fix="use real inputs (`inputs` in `onnxgate.toml`) and the tokenizer that belongs to the model",
        rules=("inputs-unusable", "run-failed"),
        family="run_node",
        self_explanatory=True,
    ),
    Entry(
        name="memory-exhausted",
        patterns=(
            r"Failed to allocate memory for requested buffer of size (?P<size>\d{1,30})",
            r"std::bad_alloc",
            r"bad allocation",
        ),
        means=(
            "a buffer of {size} bytes could not be allocated",
            "the process ran out of memory",
        ),
        fix="pass smaller inputs; for `onnxgate check`, raise `memory-mib` in `[limits]` of `onnxgate.toml`",
        rules=("run-failed", "memory-over-budget"),
        family="run_node",
        self_explanatory=True,
    ),
    Entry(
        name="node-failed",
        patterns=r"Non-zero status code returned while running (?P<op>\w{1,100}) node\. Name:'(?P<node>.{0,300}?)'"
        r" Status Message: " + _SOURCE_LOCATION + r"(?P<detail>[^\n]{1,300})",
        means="node `{node}` ({op}) failed: {detail}",
        fix="inspect the inputs of the node, or run `onnxgate check FILE`, which tests several input sizes",
        rules=("run-failed",),
        family="run_node",
        general=True,
        self_explanatory=True,
    ),
)
