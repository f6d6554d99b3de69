"""What the error texts of engines mean: the text decides, since classes and line numbers change with releases."""

from __future__ import annotations

import re

# Source: error texts of onnxruntime 1.15.1 to 1.31.1, one case each; the first that matches is the right one. Of tract
# 0.23.9, ONNX's reference evaluator 1.23.2 and OpenCV 5.0.0 what they say of operators that they do not have.
FAMILIES: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "run_node": r"Non-zero status code returned while running (\w+) node\. Name:'(.*?)' Status Message: (.*)",
        "run_shape": r"Got invalid dimensions for input: (\S+)"
        r"|Invalid rank for input: (\S+) Got: (\d+) Expected: (\d+)",
        "run_dtype": r"Unexpected input data type\. Actual: \((.+?)\) , expected: \((.+?)\)",
        "run_feed": r"Required inputs \((.+?)\) are missing from input feed"
        r"|Invalid (?:Feed Input Name|input name): ?(\S+)",
        "ir": r"Unsupported model IR version: (\d+), max supported IR version: (\d+)"
        r"|Unknown model file format version|Missing model IR version",
        "opset": r"Opset (\d+) is under development[\s\S]*domain (\S+) is till opset (\d+)|Missing opset in the model",
        "no_kernel": r"Could not find an implementation for (?:the node )?(?:[^():]*:)?([\w.]+)\((\d+)\)"
        r"|Failed to find kernel for ([\w.]+)\((\d+)\)"
        r"|No implementation for operator '(\w+)' domain '[^']*' and version (\d+)",
        "no_op": r"No Op registered for (\S+) with domain_version of (\d+)"
        r"|(?:([\w.]+):)?(\w+)(?:\(-?\d+\))? is not a registered function/op"
        r"|Unimplemented\((\w+)\)|Node type '(?=\w+' from domain '([^']*)')(\w+)' from domain"
        r"|Can't create layer \"[^\"]*\" of type \"([\w.]+)\"",
        "no_import": r"No opset import for domain '([^']*)'",
        "deprecated": r"Op registered for (\S+) is deprecated in domain_version of (\d+)",
        "type": r"Type Error: (.*)|MLDataType for: .* is not currently registered or supported",
        "shape_inference": r"(?:Node \((.*?)\) Op \((\w+)\) )?\[\w*InferenceError\] (.*)",
        "attribute": r"Unrecognized attribute: (\S+) for operator (\S+)|Required attribute '(\S+)' is missing"
        r"|Mismatched attribute type in '(.*?)'",
        "arity": r"has (\w+) size (\d+) not in range \[min=(\d+), max=(\d+)\]",
        "structure": r"Duplicate definition of name|two nodes with same node name|the graph is not acyclic"
        r"|is not a graph input, initializer, or output|Graph output \((.*?)\) does not exist",
        "ext_missing": r"GetFileLength for (.*?) failed|cannot get file size: No such file"
        r'|External data path does not exist: "(.*?)"',
        "ext_range": r"are out of bounds or can not be read in full|external data size mismatch|Missing 'location'",
        "ext_policy": r"Absolute paths? not allowed for external data location|External data path[\s\S]*escapes"
        r"|model_path must not be empty",
        "protobuf": r"Protobuf parsing failed",
        "no_graph": r"ModelProto does not have a graph|No graph was found in the protobuf",
        "no_file": r"File doesn't exist",
        "raw_size": r"raw_data size \((\d+) bytes\) does not match expected size"
        r"|source and destination buffer size mismatch",
        "locale": r"Failed to construct locale with name: ?([^\s:]+)",
        "constructor": r"Exception during initialization: (.*)",
    }.items()
}

_NODES = tuple(
    re.compile(pattern)
    for pattern in (
        r"returned while running \w+ node\. Name:'(.+?)' Status Message",
        r'In Node, \("(.+?)", ',
        r"node with name '(.+?)'(?:$|\n)",
        r"Could not find an implementation for the node ([^():]+):[\w.]+\(\d+\)",
        r"Failed to find kernel for [\w.]+\(\d+\) \(node:'(.+?)' ep:",
        r"Node \((.+?)\) Op \(",
        r"Node ?\((.+?)\) (?:with schema\(.*?\) )?has \w+ size",
        r"(?:in|of) node \((.+?)\)(?:\.| is invalid| does not match)",
        r"two nodes with same node name \((.+?)\)\.",
        r'node #\d+ "(.+?)" ',
        r"\]:\(onnx_node!(.+?)\)",
    )
)

# Source: openvino 2026.4.1; operators of the default domain have their opset behind the name.
_UNCONVERTED = re.compile(r"No conversion rule found for operations: ([^\n]+)")

_OPENING = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (?:Load model from \S.*? failed: ?)?")
"""Names the file."""


def family(text: str) -> str:
    """Which of `FAMILIES` a text belongs to, "" for none of them."""
    return next((name for name, pattern in FAMILIES.items() if pattern.search(text)), "")


def gist(text: str) -> tuple[str, ...]:
    """What a text says, without what differs between a model and one of its nodes alone: its family, and its words."""
    for name, pattern in FAMILIES.items():
        if found := pattern.search(text):
            return (name, *(group for group in found.groups() if group))
    return ("", " ".join(_OPENING.sub("", text).split()))


def node_name(text: str) -> str | None:
    """The node that a text names; most texts name none, or one without a name."""
    for pattern in _NODES:
        if found := pattern.search(text):
            return found.group(1)
    return None


def operator(text: str) -> tuple[str, str] | None:
    """Domain ("" where it is not said, or the default one) and name of the operator that a runtime does not have."""
    for name in ("no_op", "no_kernel"):
        if found := FAMILIES[name].search(text):
            *domain, last = (group for group in found.groups() if group and not group.isdigit())
            prefix, _, name = last.rpartition(".")
            return (domain[0] if domain else prefix, name)
    return None


def unsupported(text: str) -> tuple[str, ...]:
    """All operators that an engine does not have, where its text lists every one: `Det`, `my.domain.Op`."""
    found = _UNCONVERTED.search(text)
    names = found.group(1).split(", ") if found else []
    return tuple(dict.fromkeys(re.sub(r"-\d+$", "", name.strip()) for name in names))


def missing_locale(text: str) -> str | None:
    """The locale that a text says this machine lacks, whether the model was loaded or run; None for other texts."""
    found = FAMILIES["locale"].search(text)
    return found.group(1) if found else None
