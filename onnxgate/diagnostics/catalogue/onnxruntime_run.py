"""Error texts of ONNX Runtime about models that load and do not run."""

from __future__ import annotations

from onnxgate.diagnostics.entry import Entry

_NODE_PREFIX = (
    r"Non-zero status code returned while running (?P<op>\w{1,100}) node\. Name:'(?P<node>.{0,300}?)' Status Message: "
)
_SOURCE_LOCATION = r"(?:/onnxruntime_src/[^\n]{0,600}?\)(?: const)?(?: \[with [^\]\n]{0,200}\])? (?=[A-Za-z_!\[]))?"
"""Where in the code of ONNX Runtime; it changes with each release."""
ENTRIES = (
    Entry(
        name="input-dimension-wrong",
        says=(
            r"Got invalid dimensions for input: (?P<name>\S{1,300})(?: for the following indices index:"
            r" (?P<axis>\d{1,9})"
            r" Got: (?P<asked>\d{1,20}) Expected: (?P<expected>\d{1,20}))?",
        ),
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
        says=(r"Invalid rank for input: (?P<name>\S{1,300}) Got: (?P<asked>\d{1,9}) Expected: (?P<expected>\d{1,9})",),
        means="input `{name}` has {asked} axes; the model takes {expected}",
        fix="add or drop the axis that differs; a missing batch axis is the usual cause",
        rules=("input-shape-narrowed",),
        family="run_shape",
    ),
    Entry(
        name="input-type-wrong",
        says=(
            r"Unexpected input data type\. Actual: \((?P<actual>\S{1,100}?)\) ?, expected:"
            r" \((?P<expected>\S{1,100}?)\)",
        ),
        means="an input is fed as {actual}; the model takes {expected}",
        why="numpy's own default is float64, and integers are int64 on most systems",
        fix="convert it: `array.astype(…)` to {expected}",
        rules=("input-type-changed",),
        family="run_dtype",
    ),
    Entry(
        name="input-missing",
        says=(
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
        says=(r"Invalid (?:Feed Input Name|input name): ?(?P<name>[^\s'\"]{1,300})",),
        means="the model has no input `{name}`",
        why="an exporter or an optimiser removed or renamed an input that nothing used",
        fix="feed the names of `session.get_inputs()`, or pin them with `input_names` when exporting",
        rules=("input-removed", "input-renamed"),
        family="run_feed",
    ),
    Entry(
        name="output-name-unknown",
        says=(r"Invalid (?:Output Name|output name): ?(?P<name>[^\s'\"]{1,300})",),
        means="the model has no output `{name}`",
        fix="ask for the names of `session.get_outputs()`",
        rules=("output-removed", "output-renamed"),
        family="run_feed",
    ),
    Entry(
        name="output-shape-warned",
        says=(
            r"Expected shape from model of (?P<expected>\{[^}\n]{0,200}\}) does not match actual shape of"
            r" (?P<actual>\{[^}\n]{0,200}\}) for output (?P<name>\S{1,300})",
        ),
        means="output `{name}` is declared as {expected} and has {actual}",
        why="the exporter wrote a fixed size where the size depends on the input",
        fix="export again with dynamic axes on the outputs as well",
        rules=("output-shape-wrong", "dynamic-axis-lost"),
        source="the warning of onnxruntime 1.8 and newer, execution_frame.cc, VerifyOutputSizes",
    ),
    Entry(
        name="reshape-failed",
        says=(
            r"The input tensor cannot be reshaped to the requested shape"
            r"(?:\. Input shape: ?(?P<asked>\{[^}\n]{0,200}\}), requested shape: ?(?P<expected>\{[^}\n]{0,200}\}))?",
        ),
        means=("a Reshape to {expected} got {asked}", "a Reshape got another number of elements than it has place for"),
        why="a size of the example inputs, most often batch 1, was baked into a constant while inputs say that it"
        " is dynamic",
        fix="export again with -1 or computed sizes in the Reshape; use an example batch of 2 or more",
        rules=("dynamic-axis-broken", "run-failed"),
        family="run_node",
    ),
    Entry(
        name="broadcast-failed",
        says=(
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
        says=(
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
        says=(
            r"Non concat axis dimensions must match: Axis (?P<axis>\d{1,9}) has mismatched dimensions of"
            r" (?P<asked>\d{1,20}) and (?P<expected>\d{1,20})",
        ),
        means="a Concat got inputs that differ on axis {axis}: {asked} and {expected}",
        fix="feed sizes that the strides of the model divide, or export again with that axis dynamic",
        rules=("dynamic-axis-broken", "run-failed"),
        family="run_node",
    ),
    Entry(
        name="split-failed",
        says=(
            r"Cannot split using values in 'split' attribute\. Axis=-?\d{1,9} Input shape=(?P<shape>\{[^}\n]{0,200}\})"
            r"[\s\S]{1,160}?Sum of sizes in 'split' \(must equal size of selected axis\) was (?P<sum>\d{1,20})",
        ),
        means="a Split is made for a size of {sum} on its axis, and got {shape}",
        why="the exporter wrote the sizes of the example inputs into the graph",
        fix="export again with that axis dynamic (`Split` by `num_outputs`, computed sizes), or feed the size of {sum}",
        rules=("dynamic-axis-broken", "run-failed"),
        family="run_node",
    ),
    Entry(
        name="conv-failed",
        says=(
            r"Input channels C is not equal to kernel channels \* group\. C: (?P<asked>\d{1,20}) kernel channels:"
            r" (?P<expected>\d{1,20})",
        ),
        means="a Conv got {asked} channels; its weights are for {expected} times its groups",
        why="the axes are in another order (NHWC where the model takes NCHW), or the image has another number of"
        " colours",
        fix="transpose the input, or convert the image (`RGB` has 3 channels)",
        rules=("run-failed",),
        family="run_node",
    ),
    Entry(
        name="index-out-of-bounds",
        says=(
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
        says=(
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
        says=(_NODE_PREFIX + _SOURCE_LOCATION + r"(?P<said>[^\n]{1,300})",),
        means="node `{node}` ({op}) stopped the run: {said}",
        why="a shape or a value that is only known while the model runs does not fit",
        fix="look at what reaches the node; `onnxgate check` runs the model at several sizes and names the source line",
        rules=("run-failed",),
        family="run_node",
        general=True,
    ),
)
