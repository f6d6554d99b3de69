"""Error texts of ONNX Runtime about types, shapes and values of a graph, when it is loaded and when it is run."""

from __future__ import annotations

from onnxgate.diagnostics.catalogue import Entry

LOADING = (
    Entry(
        name="types-differ",
        patterns=(
            r"Type Error: Type parameter \((?P<parameter>\w{1,60})\) of Optype \((?P<op>\w{1,100})\) bound to"
            r" different types \((?P<types>[^\n]{1,200}?) in node \((?P<node>.{0,300}?)\)",
            r"\(op_type:(?P<op>\w{1,100}), node name: ?(?P<node>[^)\n]{0,300})\): (?P<parameter>\S{1,60}) has"
            r" inconsistent type (?P<types>\S{1,100})",
        ),
        means="inputs of `{op}` that must share a type do not: {types}",
        why="a model that was converted to float16 in part, or an exporter's constant of another type",
        fix="put a Cast in front of one of the inputs, or convert the float32 model as a whole",
        rules=("type-mismatch", "invalid-model"),
        family="type",
    ),
    Entry(
        name="output-type-wrong",
        patterns=(
            r"Type Error: Type \((?P<declared>\S{1,100})\) of output arg \((?P<name>.{0,300}?)\) of node"
            r" \((?P<node>.{0,300}?)\) does not match expected type \((?P<inferred>\S{1,100}?)\)",
            r"\[TypeInferenceError\] Inferred elem type differs from existing elem type: \((?P<inferred>\w{1,40})\) vs"
            r" \((?P<declared>\w{1,40})\)",
        ),
        means="an output is declared as {declared}, and the operator gives {inferred}",
        fix="declare the type that the operator gives, or put a Cast behind it",
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
        means="`{op}` is not defined for {type} at this opset",
        why="the operator's schema lists the types that it takes; bfloat16 and the small integers came with newer"
        " opsets",
        fix="put a Cast in front of it, or export at an opset whose schema has the type",
        rules=("type-mismatch", "invalid-model"),
        family="type",
    ),
    Entry(
        name="type-wrong",
        patterns=r"Type Error: (?P<said>[^\n]{1,300})",
        means="the types of a node do not fit its schema",
        fix="look at the node's inputs with `onnxgate diff --textconv`, and put a Cast where they differ",
        rules=("type-mismatch", "invalid-model"),
        family="type",
        source="facts: texts of this family; releases before 1.8",
        general=True,
    ),
    Entry(
        name="shape-inference-failed",
        patterns=(
            r"Node \((?P<node>.{0,300}?)\) Op \((?P<op>\w{1,100})\) \[\w{1,20}InferenceError\] (?P<said>[^\n]{1,300})",
            r"\(op_type:(?P<op>\w{1,100}), node name: ?(?P<node>[^)\n]{0,300})\): \[\w{1,20}InferenceError\]"
            r" (?P<said>[^\n]{1,300})",
            r"\[(?:Shape|Type)InferenceError\] (?P<said>[^\n]{1,300})",
        ),
        means="shapes or attributes of `{op}` contradict each other: {said}",
        why="the graph was changed after it was exported, or example inputs of one size were baked into constants",
        fix="export it again; `onnx.shape_inference.infer_shapes(model, strict_mode=True)` shows the same without"
        " a runtime",
        rules=("invalid-model", "attribute-unsupported"),
        family="shape_inference",
    ),
    Entry(
        name="attribute-unknown",
        patterns=r"Unrecognized attribute: (?P<attribute>\S{1,100}) for operator (?P<op>\S{1,100})",
        means="`{op}` has no attribute `{attribute}` at the imported opset",
        why="the attribute came, or went, with another opset: the graph and its stamp do not fit (a failed"
        " conversion leaves this)",
        fix="export again at the opset that the graph is written for, or take the attribute away",
        rules=("attribute-unsupported", "invalid-model"),
        family="attribute",
    ),
    Entry(
        name="attribute-missing",
        patterns=r"Required attribute '(?P<attribute>[^'\n]{1,100})' is missing",
        means="a node lacks its attribute `{attribute}`",
        fix="give the node the attribute, or export again",
        rules=("attribute-unsupported", "invalid-model"),
        family="attribute",
    ),
    Entry(
        name="attribute-type-wrong",
        patterns=r"Mismatched attribute type in '(?P<attribute>[^'\n]{0,300})'"
        r"(?:\. Expected: '(?P<expected>\w{1,40})', actual: '(?P<actual>\w{1,40})')?",
        means="the attribute `{attribute}` has another type than the operator wants",
        fix="write the attribute in the type of the operator's schema",
        rules=("attribute-unsupported", "invalid-model"),
        family="attribute",
    ),
    Entry(
        name="arity-wrong",
        patterns=r"has (?P<side>input|output) size (?P<asked>\d{1,9}) not in range \[min=(?P<least>\d{1,20}),"
        r" max=(?P<most>\d{1,20})\]",
        means="a node has {asked} {side}s where its operator takes {least} to {most}",
        why="the operator gained or lost an {side} with another opset, or the graph was edited by hand",
        fix="export again at the opset that the graph is written for",
        rules=("attribute-unsupported", "invalid-model"),
        family="arity",
    ),
    Entry(
        name="name-duplicated",
        patterns=(
            r"Duplicate definition of name \((?P<name>.{0,300}?)\)",
            r"Duplicate definition-site for \((?P<name>.{0,300}?)\)",
        ),
        means="two nodes give the same value `{name}`",
        why="graphs were merged without renaming, or an exporter aliases an input and an output",
        fix="give each value one name: `onnx.compose.add_prefix` renames a whole graph",
        rules=("invalid-model",),
        family="structure",
    ),
    Entry(
        name="node-name-duplicated",
        patterns=r"two nodes with same node name \((?P<node>.{0,300}?)\)",
        means="two nodes are called `{node}`",
        fix="rename one, or leave the names of nodes away: they need none",
        rules=("invalid-model",),
        family="structure",
    ),
    Entry(
        name="graph-cyclic",
        patterns=r"the graph is not acyclic",
        means="nodes of the graph wait for each other",
        fix="export again; a node was wired to a value that it helps to compute",
        rules=("invalid-model",),
        family="structure",
    ),
    Entry(
        name="input-undefined",
        patterns=(
            r"Node input '(?P<name>.{0,300}?)' is not a graph input, initializer, or output of a previous node",
            # Source: 1.8 and older name the node alone.
            r"This is an invalid model\. Error: Node (?P<node>.{0,300}?) input (?P<name>.{0,300}?) does not exist",
        ),
        means="a node reads `{name}`, which nothing gives",
        why="a node or a weight was removed while something still reads it",
        fix="export again, or give the missing value as an input or a weight",
        rules=("invalid-model",),
        family="structure",
    ),
    Entry(
        name="output-undefined",
        patterns=r"Graph output \((?P<name>.{0,300}?)\) does not exist",
        means="the graph promises an output `{name}` that no node gives",
        fix="name an output that a node gives, or export again",
        rules=("invalid-model",),
        family="structure",
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
        means="a weight holds another number of bytes than its shape and type ask for",
        why="the file was cut, or edited without adapting the shape",
        fix="write the model again from its source",
        rules=("invalid-model", "external-data-corrupt"),
        family="raw_size",
    ),
    Entry(
        name="layout-unsupported",
        patterns=r"Batchwise recurrent operations \(layout == 1\) are not supported",
        means="a GRU, LSTM or RNN has `layout=1`, which ONNX Runtime has no kernel of",
        fix="export with the sequence first (`batch_first=False`), or put a Transpose before and behind it",
        affected="every onnxruntime up to 1.31.1, on the CPU",
        rules=("attribute-unsupported",),
        family="constructor",
    ),
    Entry(
        name="locale-missing",
        patterns=r"Failed to construct locale with name: ?(?P<locale>[^\s:]{1,100})",
        means="the model asks for the locale `{locale}`, which this machine lacks",
        why="StringNormalizer takes its rules from the operating system",
        fix="install the locale `{locale}` (Debian: package `locales`, then `locale-gen {locale}`)",
        affected="onnxruntime 1.27 and newer say it when the model is loaded, older ones when it is run",
        family="locale",
    ),
    Entry(
        name="initialization-failed",
        patterns=r"Exception during initialization: (?P<said>[^\n]{1,300})",
        means="a kernel refused to be made: {said}",
        why="an attribute or a weight has a value that the kernel does not take, which no schema says",
        fix="export the node without what is refused, or use a release that takes it; `onnxgate matrix --verify`"
        " tells which do",
        rules=("attribute-unsupported", "load-failed"),
        family="constructor",
        source="facts: section 5, kernel constructor refuses",
        general=True,
    ),
)

_SOURCE_LOCATION = r"(?:/onnxruntime_src/[^\n]{0,600}?\)(?: const)?(?: \[with [^\]\n]{0,200}\])? (?=[A-Za-z_!\[]))?"
"""Where in the code of ONNX Runtime; it changes with each release."""
RUNNING = (
    Entry(
        name="input-dimension-wrong",
        patterns=r"Got invalid dimensions for input: (?P<name>\S{1,300})(?: for the following indices index:"
        r" (?P<axis>\d{1,9}) Got: (?P<asked>\d{1,20}) Expected: (?P<expected>\d{1,20}))?",
        means=(
            "input `{name}` has size {asked} on axis {axis}; the model takes {expected} only",
            "input `{name}` has another size than the model takes",
        ),
        why="the axis was static when the model was exported",
        fix="feed that size, or export again with the axis dynamic (`dynamic_shapes`, `dynamic_axes`)",
        rules=("input-shape-narrowed", "dynamic-axis-lost"),
        family="run_shape",
    ),
    Entry(
        name="input-rank-wrong",
        patterns=r"Invalid rank for input: (?P<name>\S{1,300}) Got: (?P<asked>\d{1,9}) Expected: (?P<expected>\d{1,9})",
        means="input `{name}` has {asked} axes; the model takes {expected}",
        fix="add or drop the axis that differs; a missing batch axis is the usual cause",
        rules=("input-shape-narrowed",),
        family="run_shape",
    ),
    Entry(
        name="input-type-wrong",
        patterns=r"Unexpected input data type\. Actual: \((?P<actual>\S{1,100}?)\) ?, expected:"
        r" \((?P<expected>\S{1,100}?)\)",
        means="an input is fed as {actual}; the model takes {expected}",
        why="numpy's own default is float64, and integers are int64 on most systems",
        fix="convert it: `array.astype(…)` to {expected}",
        rules=("input-type-changed",),
        family="run_dtype",
    ),
    Entry(
        name="input-missing",
        patterns=(
            r"Required inputs \((?P<name>[^\n]{1,300}?)\) are missing from input feed",
            r"Model requires (?P<expected>\d{1,9}) inputs\. Input Feed contains (?P<asked>\d{1,9})",
        ),
        means=(
            "the model wants inputs that are not fed: {name}",
            "the model wants {expected} inputs, and {asked} are fed",
        ),
        why="an input was added or renamed by an export",
        fix="feed all of `session.get_inputs()`",
        rules=("input-added", "input-renamed"),
        family="run_feed",
    ),
    Entry(
        name="input-name-unknown",
        patterns=r"Invalid (?:Feed Input Name|input name): ?(?P<name>[^\s'\"]{1,300})",
        means="the model has no input `{name}`",
        why="an exporter or an optimiser removed or renamed an input that nothing used",
        fix="feed the names of `session.get_inputs()`, or pin them with `input_names` when exporting",
        rules=("input-removed", "input-renamed"),
        family="run_feed",
    ),
    Entry(
        name="output-name-unknown",
        patterns=r"Invalid (?:Output Name|output name): ?(?P<name>[^\s'\"]{1,300})",
        means="the model has no output `{name}`",
        fix="ask for the names of `session.get_outputs()`",
        rules=("output-removed", "output-renamed"),
        family="run_feed",
    ),
    Entry(
        name="output-shape-warned",
        patterns=r"Expected shape from model of (?P<expected>\{[^}\n]{0,200}\}) does not match actual shape of"
        r" (?P<actual>\{[^}\n]{0,200}\}) for output (?P<name>\S{1,300})",
        means="output `{name}` is declared as {expected} and has {actual}",
        why="the exporter wrote a fixed size where the size depends on the input",
        fix="export again with dynamic axes on the outputs as well",
        rules=("output-shape-wrong", "dynamic-axis-lost"),
        source="the warning of onnxruntime 1.8 and newer, execution_frame.cc, VerifyOutputSizes",
    ),
    Entry(
        name="reshape-failed",
        patterns=r"The input tensor cannot be reshaped to the requested shape"
        r"(?:\. Input shape: ?(?P<asked>\{[^}\n]{0,200}\}), requested shape: ?(?P<expected>\{[^}\n]{0,200}\}))?",
        means=("a Reshape to {expected} got {asked}", "a Reshape got another number of elements than it has place for"),
        why="a size of the example inputs, most often batch 1, was baked into a constant while inputs say that it"
        " is dynamic",
        fix="export again with -1 or computed sizes in the Reshape; use an example batch of 2 or more",
        rules=("dynamic-axis-broken", "run-failed"),
        family="run_node",
    ),
    Entry(
        name="broadcast-failed",
        patterns=(
            r"Attempting to broadcast an axis by a dimension other than 1\. (?P<asked>\d{1,20}) by"
            r" (?P<expected>\d{1,20})",
            r"Status Message: (?:\S{1,300} )?invalid expand shape",
        ),
        means=(
            "two inputs of an operation do not fit each other: sizes {asked} and {expected}",
            "two inputs of an operation do not fit each other",
        ),
        why="a constant has the size of the example inputs, or the inputs that are fed belong to different batches",
        fix="export again with that axis dynamic; or feed inputs of equal size",
        rules=("dynamic-axis-broken", "run-failed"),
        family="run_node",
    ),
    Entry(
        name="matmul-failed",
        patterns=(
            r"MatMul dimension mismatch",
            r"GEMM: Dimension mismatch, W: ?(?P<expected>\{[^}\n]{0,200}\}) K: ?(?P<asked>\d{1,20})",
        ),
        means="a matrix product got matrices that do not fit each other",
        why="the size of an input that was flattened changes the number of features, which the weights have fixed",
        fix="feed the size that the model was trained for, or pool before the linear layer",
        rules=("dynamic-axis-broken", "run-failed"),
        family="run_node",
    ),
    Entry(
        name="concat-failed",
        patterns=r"Non concat axis dimensions must match: Axis (?P<axis>\d{1,9}) has mismatched dimensions of"
        r" (?P<asked>\d{1,20}) and (?P<expected>\d{1,20})",
        means="a Concat got inputs that differ on axis {axis}: {asked} and {expected}",
        fix="feed sizes that the strides of the model divide, or export again with that axis dynamic",
        rules=("dynamic-axis-broken", "run-failed"),
        family="run_node",
    ),
    Entry(
        name="split-failed",
        patterns=r"Cannot split using values in 'split' attribute\. Axis=-?\d{1,9}"
        r" Input shape=(?P<shape>\{[^}\n]{0,200}\})"
        r"[\s\S]{1,160}?Sum of sizes in 'split' \(must equal size of selected axis\) was (?P<sum>\d{1,20})",
        means="a Split is made for a size of {sum} on its axis, and got {shape}",
        why="the exporter wrote the sizes of the example inputs into the graph",
        fix="export again with that axis dynamic (`Split` by `num_outputs`, computed sizes), or feed the size of {sum}",
        rules=("dynamic-axis-broken", "run-failed"),
        family="run_node",
    ),
    Entry(
        name="conv-failed",
        patterns=r"Input channels C is not equal to kernel channels \* group\. C: (?P<asked>\d{1,20}) kernel channels:"
        r" (?P<expected>\d{1,20})",
        means="a Conv got {asked} channels; its weights are for {expected} times its groups",
        why="the axes are in another order (NHWC where the model takes NCHW), or the image has another number of"
        " colours",
        fix="transpose the input, or convert the image (`RGB` has 3 channels)",
        rules=("run-failed",),
        family="run_node",
    ),
    Entry(
        name="index-out-of-bounds",
        patterns=(
            r"indices element out of data bounds, idx=(?P<asked>-?\d{1,20}) must be within the inclusive range"
            r" \[(?P<least>-?\d{1,20}),(?P<most>-?\d{1,20})\]",
            r"GatherElements op: Out of range value in index tensor",
            r"invalid indice found",
            r"indices out of bounds",
        ),
        means=("an index is {asked}; only {least} to {most} is there", "an index is out of bounds"),
        why="a token is not in the vocabulary, a position is past the longest sequence, or the inputs are random",
        fix="feed real inputs (`inputs` in `onnxgate.toml`), and compare the tokenizer's vocabulary with the model's",
        rules=("inputs-unusable", "run-failed"),
        family="run_node",
    ),
    Entry(
        name="memory-exhausted",
        patterns=(
            r"Failed to allocate memory for requested buffer of size (?P<size>\d{1,30})",
            r"std::bad_alloc",
            r"bad allocation",
        ),
        means=("there was no memory for a buffer of {size} bytes", "there was no memory left"),
        why="an input is larger than expected, or a size was computed wrongly (a negative or huge shape)",
        fix="feed smaller inputs, or give more memory (`memory-mib` in `[limits]`)",
        rules=("run-failed", "memory-over-budget"),
        family="run_node",
    ),
    Entry(
        name="node-failed",
        patterns=r"Non-zero status code returned while running (?P<op>\w{1,100}) node\. Name:'(?P<node>.{0,300}?)'"
        r" Status Message: " + _SOURCE_LOCATION + r"(?P<said>[^\n]{1,300})",
        means="node `{node}` ({op}) stopped the run: {said}",
        why="a shape or a value that is only known while the model runs does not fit",
        fix="look at what reaches the node; `onnxgate check` runs the model at several sizes and names the source line",
        rules=("run-failed",),
        family="run_node",
        general=True,
    ),
)
