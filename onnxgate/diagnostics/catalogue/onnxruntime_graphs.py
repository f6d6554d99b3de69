"""Error texts of ONNX Runtime that refuse a model for its types, shapes or graph."""

from __future__ import annotations

from onnxgate.diagnostics.entry import Entry

ENTRIES = (
    Entry(
        name="types-differ",
        says=(
            r"Type Error: Type parameter \((?P<parameter>\w{1,60})\) of Optype \((?P<op>\w{1,100})\) bound to"
            r" different types "
            r"\((?P<types>[^\n]{1,200}?) in node \((?P<node>.{0,300}?)\)",
            r"\(op_type:(?P<op>\w{1,100}), node name: ?(?P<node>[^)\n]{0,300})\): (?P<parameter>\S{1,60}) has"
            r" inconsistent type"
            r" (?P<types>\S{1,100})",
        ),
        means="inputs of `{op}` that must share a type do not: {types}",
        why="a model that was converted to float16 in part, or an exporter's constant of another type",
        fix="put a Cast in front of one of the inputs, or convert the float32 model as a whole",
        rules=("type-mismatch", "invalid-model"),
        family="type",
    ),
    Entry(
        name="output-type-wrong",
        says=(
            r"Type Error: Type \((?P<declared>\S{1,100})\) of output arg \((?P<name>.{0,300}?)\) of node"
            r" \((?P<node>.{0,300}?)\)"
            r" does not match expected type \((?P<inferred>\S{1,100}?)\)",
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
        says=(
            r"Type Error: Type '(?P<type>[^'\n]{1,100})' of input parameter \((?P<name>.{0,300}?)\) of operator"
            r" \((?P<op>\w{1,100})\)"
            r" in node \((?P<node>.{0,300}?)\) is invalid",
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
        says=(r"Type Error: (?P<said>[^\n]{1,300})",),
        means="the types of a node do not fit its schema",
        fix="look at the node's inputs with `onnxgate diff --textconv`, and put a Cast where they differ",
        rules=("type-mismatch", "invalid-model"),
        family="type",
        source="facts: texts of this family; releases before 1.8",
        general=True,
    ),
    Entry(
        name="shape-inference-failed",
        says=(
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
        says=(r"Unrecognized attribute: (?P<attribute>\S{1,100}) for operator (?P<op>\S{1,100})",),
        means="`{op}` has no attribute `{attribute}` at the imported opset",
        why="the attribute came, or went, with another opset: the graph and its stamp do not fit (a failed"
        " conversion leaves this)",
        fix="export again at the opset that the graph is written for, or take the attribute away",
        rules=("attribute-unsupported", "invalid-model"),
        family="attribute",
    ),
    Entry(
        name="attribute-missing",
        says=(r"Required attribute '(?P<attribute>[^'\n]{1,100})' is missing",),
        means="a node lacks its attribute `{attribute}`",
        fix="give the node the attribute, or export again",
        rules=("attribute-unsupported", "invalid-model"),
        family="attribute",
    ),
    Entry(
        name="attribute-type-wrong",
        says=(
            r"Mismatched attribute type in '(?P<attribute>[^'\n]{0,300})'"
            r"(?:\. Expected: '(?P<expected>\w{1,40})', actual: '(?P<actual>\w{1,40})')?",
        ),
        means="the attribute `{attribute}` has another type than the operator wants",
        fix="write the attribute in the type of the operator's schema",
        rules=("attribute-unsupported", "invalid-model"),
        family="attribute",
    ),
    Entry(
        name="arity-wrong",
        says=(
            r"has (?P<side>input|output) size (?P<asked>\d{1,9}) not in range \[min=(?P<least>\d{1,20}),"
            r" max=(?P<most>\d{1,20})\]",
        ),
        means="a node has {asked} {side}s where its operator takes {least} to {most}",
        why="the operator gained or lost an {side} with another opset, or the graph was edited by hand",
        fix="export again at the opset that the graph is written for",
        rules=("attribute-unsupported", "invalid-model"),
        family="arity",
    ),
    Entry(
        name="name-duplicated",
        says=(
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
        says=(r"two nodes with same node name \((?P<node>.{0,300}?)\)",),
        means="two nodes are called `{node}`",
        fix="rename one, or leave the names of nodes away: they need none",
        rules=("invalid-model",),
        family="structure",
    ),
    Entry(
        name="graph-cyclic",
        says=(r"the graph is not acyclic",),
        means="nodes of the graph wait for each other",
        fix="export again; a node was wired to a value that it helps to compute",
        rules=("invalid-model",),
        family="structure",
    ),
    Entry(
        name="input-undefined",
        says=(
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
        says=(r"Graph output \((?P<name>.{0,300}?)\) does not exist",),
        means="the graph promises an output `{name}` that no node gives",
        fix="name an output that a node gives, or export again",
        rules=("invalid-model",),
        family="structure",
    ),
    Entry(
        name="weight-size-wrong",
        says=(
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
        says=(r"Batchwise recurrent operations \(layout == 1\) are not supported",),
        means="a GRU, LSTM or RNN has `layout=1`, which ONNX Runtime has no kernel of",
        fix="export with the sequence first (`batch_first=False`), or put a Transpose before and behind it",
        affected="every onnxruntime up to 1.31.1, on the CPU",
        rules=("attribute-unsupported",),
        family="constructor",
    ),
    Entry(
        name="locale-missing",
        says=(r"Failed to construct locale with name: ?(?P<locale>[^\s:]{1,100})",),
        means="the model asks for the locale `{locale}`, which this machine lacks",
        why="StringNormalizer takes its rules from the operating system",
        fix="install the locale `{locale}` (Debian: package `locales`, then `locale-gen {locale}`)",
        affected="onnxruntime 1.27 and newer say it when the model is loaded, older ones when it is run",
        family="locale",
    ),
    Entry(
        name="initialization-failed",
        says=(r"Exception during initialization: (?P<said>[^\n]{1,300})",),
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
