"""What the runtime stage goes by: the family of a refusal, what it is about, and the node that it names."""

from __future__ import annotations

import functools
import re

from onnxgate.texts.classify import Known, classify

# Source: names of nodes in texts of onnxruntime 1.8 to 1.31, tract 0.23.9 and OpenCV 5.0.0.
_NODES = (
    r"returned while running \w+ node\. Name:'(.{1,300}?)' Status Message",
    r'In Node, \("(.{1,300}?)", ',
    r"node with name '(.{1,300}?)'(?:$|\n)",
    r"Could not find an implementation for the node ([^():]{1,300}):[\w.]{1,100}\(\d{1,9}\)",
    r"Failed to find kernel for [\w.]{1,100}\(\d{1,9}\) \(node:'(.{1,300}?)' ep:",
    r"Node \((.{1,300}?)\) Op \(",
    r"Node ?\((.{1,300}?)\) (?:with schema\(.{0,300}?\) )?has \w{1,20} size",
    r"(?:in|of) node \((.{1,300}?)\)(?:\.| is invalid| does not match)",
    r"two nodes with same node name \((.{1,300}?)\)\.",
    r'node #\d{1,9} "(.{1,300}?)" ',
    r"\]:\(onnx_node!(.{1,300}?)\)",
)

# Source: openvino 2026.4.1 and 2023.3; operators of the default domain have their opset behind the name.
_UNCONVERTED = (
    r"(?:No conversion rule found for operations|does not support the following ONNX operations): ([^\n]{1,10000})"
)

_OPENING = r"^\[ONNXRuntimeError\] : \d{1,9} : \w{1,40} : (?:Load model from \S.{0,400}? failed: ?)?"
"""Names the file."""

_RUN = "Non-zero status code returned while running "
"""Whatever it says of the cause, the model was loaded."""


@functools.lru_cache(maxsize=256)
def known(text: str) -> Known | None:
    """What a runtime's text says."""
    return classify(text)


def family(text: str) -> str:
    """Which family a text belongs to, "" for none of them."""
    each = known(text)
    if _RUN in text:
        return "run_node"
    return each.entry.family if each else ""


def meaning(text: str) -> str:
    """What a text means, in one clause; "" where it is unknown, or says it well enough by itself."""
    each = known(text)
    return "" if each is None or each.entry.general else each.means


def fix_anywhere(text: str) -> str:
    """What is to be done, in words that are the same for all releases; "" where the text is unknown."""
    each = known(text)
    return each.anywhere if each else ""


def gist(text: str) -> tuple[str, ...]:
    """What a text says, without what differs between a model and one of its nodes alone: its family, and its words."""
    each, name = known(text), family(text)
    if each and name:
        return (name, *each.captured.values())
    return ("", " ".join(_compiled(_OPENING).sub("", text).split()))


def node_name(text: str) -> str | None:
    """The node that a text names; most texts name none, or one without a name."""
    for pattern in _NODES:
        if found := _compiled(pattern).search(text):
            return found.group(1)
    return None


def operator(text: str) -> tuple[str, str] | None:
    """Domain ("" where it is not said, or the default one) and name of the operator that a runtime does not have."""
    each = known(text)
    if each is None or each.entry.family not in ("no_op", "no_kernel") or not (name := each.captured.get("op")):
        return None
    prefix, _, last = name.rpartition(".")
    return (each.captured.get("domain", prefix), last)


def unsupported(text: str) -> tuple[str, ...]:
    """All operators that an engine does not have, where its text lists every one: `Det`, `my.domain.Op`."""
    found = _compiled(_UNCONVERTED).search(text)
    names = found.group(1).split(", ") if found else []
    return tuple(dict.fromkeys(re.sub(r"-\d{1,9}$", "", name.strip()) for name in names))


def missing_locale(text: str) -> str | None:
    """The locale that a text says this machine lacks, whether the model was loaded or run; None for other texts."""
    each = known(text)
    return each.captured.get("locale") if each and each.entry.name == "locale-missing" else None


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
