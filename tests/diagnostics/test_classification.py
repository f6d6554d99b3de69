"""Family, node and operators recognized in known error messages."""

from __future__ import annotations

import pytest

from onnxgate.core.jobs import Failure
from onnxgate.diagnostics.classification import (
    classify,
    describe_fix,
    describe_meaning,
    failure_family,
    find_missing_operator,
    find_node_name,
    list_entries,
    list_unsupported_operators,
    shorten_failure,
)

IN_NODE = (
    'This is an invalid model. In Node, ("n0", NotAnOp, "", -1) : ("x": tensor(float),) -> ("y": tensor(float),) , '
)
RUN = (
    "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Add node. Name:'add0' Status Message: "
)

# Text, family, node. Printed by onnxruntime 1.15.1 to 1.31.1, without the C++ signature.
TEXTS = [
    (
        "Exception during initialization: Failed to construct locale with name:en_US.UTF-8:locale::facet::"
        "_S_create_c_locale name not valid:Please, install necessary language-pack-en",
        "locale",
        None,
    ),
    (
        "Exception during initialization: {graph_utils.cc:29} itr != node_args.end() was false. Attempting to get index"
        " by a name which does not exist:InsertedPrecisionFreeCast_wfor node: /norm/Mul/SimplifiedLayerNormFusion/",
        "optimizer",
        None,
    ),
    ("{model.cc:256} Unsupported model IR version: 14, max supported IR version: 13", "ir", None),
    ("{model.cc:111} Unknown model file format version.", "ir", None),
    ("{model.cc:100} Missing model IR version.", "ir", None),
    ("Missing opset in the model. All ModelProtos MUST have at least one entry", "opset", None),
    (
        "{model_load_utils.h:46} ONNX Runtime only *guarantees* support for models stamped with official released onnx"
        " opset versions. Opset 28 is under development and support for this is limited.\nCurrent official support for"
        " domain ai.onnx is till opset 26.",
        "opset",
        None,
    ),
    ("Could not find an implementation for Conv(11) node with name 'conv0'", "no_kernel", "conv0"),
    ("Could not find an implementation for Conv(11) node with name ''", "no_kernel", None),
    ("Could not find an implementation for the node conv0:Conv(11)", "no_kernel", "conv0"),
    ("Failed to find kernel for Cast(25) (node:'' ep:'CPUExecutionProvider').", "no_kernel", None),
    ("Failed to find kernel for Cast(25) (node:'c0' ep:'CPUExecutionProvider').", "no_kernel", "c0"),
    (f"{IN_NODE}Error No Op registered for NotAnOp with domain_version of 13", "no_op", "n0"),
    ("Fatal error: com.microsoft:NotAnOp(-1) is not a registered function/op", "no_op", None),
    ("Fatal error: NotAnOp is not a registered function/op", "no_op", None),
    # Printed by tract 0.23.9, the reference evaluator of onnx 1.23.2 and OpenCV 5.0.0.
    ('Translating node #1 "first" Unimplemented(OpA) ToTypedTranslator', "no_op", "first"),
    ("Node type 'OpA' from domain 'my.dom' is unknown, known functions: [].", "no_op", None),
    (
        "No implementation for operator 'DequantizeLinear' domain '' and version 18, found 19, 21, 23, 25, None.",
        "no_kernel",
        None,
    ),
    (
        'Node [OpA@my.dom]:(onnx_node!n1) parse error: Can\'t create layer "onnx_node_output_0!a" of type "my.dom.OpA"',
        "no_op",
        "n1",
    ),
    (f"{IN_NODE}Error No opset import for domain 'my.domain'", "no_import", "n0"),
    (f"{IN_NODE}Error Op registered for Upsample is deprecated in domain_version of 10", "deprecated", "n0"),
    (
        "Type Error: Type parameter (T) of Optype (Add) bound to different types (tensor(float) and tensor(int64)"
        " in node (add0).",
        "type",
        "add0",
    ),
    (
        "Type Error: Type (tensor(int64)) of output arg (y) of node (abs0) does not match expected type"
        " (tensor(float)).",
        "type",
        "abs0",
    ),
    (
        "This is an invalid model. Type Error: Type 'tensor(bool)' of input parameter (x) of operator (Abs)"
        " in node (abs0) is invalid.",
        "type",
        "abs0",
    ),
    ("MLDataType for: tensor(int4) is not currently registered or supported", "type", None),
    (
        "Node (mm0) Op (MatMul) [ShapeInferenceError] Incompatible dimensions for matrix multiplication",
        "shape_inference",
        "mm0",
    ),
    (f"{IN_NODE}Error Unrecognized attribute: foo for operator Abs", "attribute", "n0"),
    (f"{IN_NODE}Error Required attribute 'to' is missing.", "attribute_missing", "n0"),
    (f"{IN_NODE}Error Mismatched attribute type in 'n0 : to'. Expected: 'INT', actual: 'FLOAT'", "attribute", "n0"),
    ("Node (add0) has input size 1 not in range [min=2, max=2].", "arity", "add0"),
    ("Node(add0) with schema(::Add:13) has input size 1 not in range [min=2, max=2].", "arity", "add0"),
    ("This is an invalid model. Error: Duplicate definition of name (y).", "structure", None),
    ("This is an invalid model. Error: two nodes with same node name (n0).", "structure", "n0"),
    ("This is an invalid model. Error: the graph is not acyclic.", "structure", None),
    (
        "Invalid model. Node input 'nope' is not a graph input, initializer, or output of a previous node.",
        "structure",
        None,
    ),
    ("{graph.cc:9} This is an invalid model. Graph output (zz) does not exist in the graph.", "structure", None),
    ("GetFileLength for nope.bin failed:Invalid fd was supplied: -1", "ext_missing", None),
    ("filesystem error: cannot get file size: No such file or directory [nope.bin]", "ext_missing", None),
    (
        'External data path validation failed for initializer: w. Error: External data path does not exist: "nope.bin"',
        "ext_missing",
        None,
    ),
    (
        "External initializer: w offset: 0 size to read: 8 given file_length: 4 are out of bounds or can not be read"
        " in full.",
        "ext_range",
        None,
    ),
    (
        "TensorProto: w external data size mismatch. Computed size: 8, external_data.length: 16",
        "ext_range",
        None,
    ),
    ("model format error! Missing 'location'", "ext_range", None),
    ("Absolute paths not allowed for external data location", "ext_policy", None),
    ("Absolute path not allowed for external data location", "ext_policy", None),
    ('External data path: "../outside/ok.bin" (resolved path: x) escapes both model directory: y', "ext_policy", None),
    ("External data path (for model) escapes model directory.", "ext_policy", None),
    ("!model_path.empty() was false. model_path must not be empty.", "ext_policy", None),
    ("Load model from x.onnx failed:Protobuf parsing failed.", "protobuf", None),
    ("{model.cc:134} ModelProto does not have a graph.", "no_graph", None),
    ("No graph was found in the protobuf.", "no_graph", None),
    ("Load model X failed. File doesn't exist", "no_file", None),
    (
        "Initializer 'w': raw_data size (6 bytes) does not match expected size from shape and data type (8 bytes)",
        "raw_size",
        None,
    ),
    ("CopyLittleEndian source and destination buffer size mismatch", "raw_size", None),
    (
        "Exception during initialization: {deep_cpu_gru.h:56} layout_ == 0 was false. Batchwise recurrent operations"
        " (layout == 1) are not supported.",
        "constructor",
        None,
    ),
    (
        "Got invalid dimensions for input: x for the following indices\n index: 0 Got: 3 Expected: 2\n Please fix",
        "run_shape",
        None,
    ),
    ("Invalid rank for input: x Got: 2 Expected: 1 Please fix", "run_shape", None),
    ("Unexpected input data type. Actual: (tensor(int64)) , expected: (tensor(float))", "run_dtype", None),
    ("Required inputs (['x']) are missing from input feed ([]).", "run_feed", None),
    ("Invalid input name: q", "run_feed", None),
    ("Invalid Feed Input Name:q", "run_feed", None),
    (f"{RUN}{{element_wise_ops.h:563}} axis == 1 || axis == largest was false. 2 by 3", "run_node", "add0"),
    (f"{RUN}indices element out of data bounds, idx=9 must be within the inclusive range [-2,1]", "run_node", "add0"),
    ("unsupported data type: 16", "interface_type", None),
    (
        "C++ exception without a message (onnxruntime-web reports messages since 1.24; this is 1.22.0)",
        "no_message",
        None,
    ),
    ("an unknown text", "", None),
]


@pytest.mark.parametrize(("text", "expected", "node"), TEXTS)
def test_a_text_has_one_family_and_at_most_one_node(text: str, expected: str, node: str | None) -> None:
    """Prefixes that a release prints are ignored."""
    printed = f"[ONNXRuntimeError] : 1 : FAIL : Load model from x.onnx failed:{text}"

    assert (expected, node) == (failure_family(text), find_node_name(text))
    assert (expected, node) == (failure_family(printed), find_node_name(printed))


def test_each_family_has_a_text() -> None:
    """Each family has at least one known text, so that no pattern is a guess."""
    assert {entry.family for entry in list_entries()} == {expected for _, expected, _ in TEXTS}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Fatal error: acme:Do(-1) is not a registered function/op", ("acme", "Do")),
        ("Error No Op registered for NotAnOp with domain_version of 13", ("", "NotAnOp")),
        ("Could not find an implementation for Conv(11) node with name ''", ("", "Conv")),
        ("Failed to find kernel for com.microsoft.QuickGelu(1) (node:'' ep:'CPU')", ("com.microsoft", "QuickGelu")),
        ("Type Error: Type parameter (T) of Optype (Add) bound to different types", None),
        ('Translating node #1 "first" Unimplemented(OpA) ToTypedTranslator', ("", "OpA")),
        ("Node type 'OpA' from domain 'my.dom' is unknown, known functions: [].", ("my.dom", "OpA")),
        ("No implementation for operator 'Sum' domain '' and version 18, found 19, None.", ("", "Sum")),
        ('Can\'t create layer "a" of type "my.dom.OpA"', ("my.dom", "OpA")),
    ],
)
def test_missing_operator(text: str, expected: tuple[str, str] | None) -> None:
    """Operators are extracted only from messages about a missing implementation."""
    assert expected == find_missing_operator(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "No conversion rule found for operations: Nope-18, my.dom.OpA, my.dom.OpB\n",
            ("Nope", "my.dom.OpA", "my.dom.OpB"),
        ),
        ("Fatal error: acme:Do(-1) is not a registered function/op", ()),
    ],
)
def test_lists_of_operators(text: str, expected: tuple[str, ...]) -> None:
    """Only OpenVINO's message lists all unsupported operators."""
    assert expected == list_unsupported_operators(text)


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("1.99", "request an existing release; the newest known release is onnxruntime "),
        ("1.18.7", "request an existing release; known releases of onnxruntime 1.18: 1.18.0, 1.18.1"),
        ("1.18.1", "use Python 3.8–3.12, for which onnxruntime 1.18 has wheels"),
        ("1.18", "use Python 3.8–3.12, for which onnxruntime 1.18 has wheels"),
        ("1.5.0", "use Python 3.7–3.8, for which onnxruntime 1.5 has wheels"),
    ],
)
def test_fix_for_a_release_without_wheel(release: str, expected: str) -> None:
    """Python versions are named only for an existing release."""
    known = classify(f"ERROR: No matching distribution found for onnxruntime=={release}")

    assert known is not None
    assert known.fix.startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Node (n) Op (MatMul) [ShapeInferenceError] Incompatible dimensions", ""),
        (
            f"In Node, {'x' * 200}, Error Unrecognized attribute: foo for operator Gelu",
            "`Gelu` has no attribute `foo` at the imported opset",
        ),
        ("Node (n) has input size 1 not in range [min=2, max=2].", "a node has 1 input; its operator takes 2"),
        ("a text that no entry matches", ""),
    ],
)
def test_meaning_is_not_repeated(text: str, expected: str) -> None:
    """A text that states its meaning needs no explanation, unless it is too long to be shown in full."""
    assert expected == describe_meaning(text)


def test_prefixes_of_nested_errors_are_not_quoted() -> None:
    """An error of a kernel that is created when the model is loaded has the prefixes of two errors."""
    prefixes = "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Exception during initialization: "
    nested = f"{prefixes}[ONNXRuntimeError] : 1 : FAIL : operator() Integer modulo by zero"

    assert shorten_failure(Failure(type="Fail", text=nested)) == "Integer modulo by zero"
    assert describe_fix(nested) == "correct the divisor, and export the model again"
