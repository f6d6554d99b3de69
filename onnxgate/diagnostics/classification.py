"""Find the catalogue entry that explains an error text, and the kind of error, node and operator in the text."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator

import msgspec

from onnxgate.core.jobs import Failure
from onnxgate.diagnostics.catalogue import (
    Entry,
    compile_pattern,
    engines,
    exporters,
    longest_literal,
    onnx,
    onnxruntime_files,
    onnxruntime_graphs,
    onnxruntime_load,
    packages,
    render_template,
)

MAX_TEXT_LENGTH = 60_000
"""Maximum number of characters of an error text that are searched for known errors; the rest is ignored."""
_BLANKS = r"[ \t\r\f\v]{1,200}"
_FRAME = " \t|│╰╭╯╮─▶"


class Diagnosis(msgspec.Struct, frozen=True):
    """An explained error: the catalogue entry that matches its text, and the names and numbers found in the text."""

    entry: Entry
    captured: dict[str, str]  # named groups of the pattern, in order
    pattern: str = ""
    start: int = 0  # position in the normalized text
    end: int = 0

    @property
    def means(self) -> str:
        """Return what the error means, as one clause without a period."""
        return render_template(self.entry.means, self.captured)

    @property
    def why(self) -> str:
        """Return the cause of the error; "" if its meaning already states the cause."""
        return render_template(self.entry.why, self.captured)

    @property
    def fix(self) -> str:
        """Return the fix for the error, which may name a release to upgrade to."""
        return render_template(self.entry.fix, self.captured)

    @property
    def affected(self) -> str:
        """Return the releases in which the error occurs; "" if they are unknown or irrelevant."""
        return render_template(self.entry.affected, self.captured)


def normalize_text(text: str) -> str:
    """Collapse whitespace and remove frames drawn around lines, so that an error looks the same in all logs."""
    lines = (re.sub(_BLANKS, " ", line).strip(_FRAME) for line in text[:MAX_TEXT_LENGTH].splitlines())
    return "\n".join(line for line in lines if line)


@functools.lru_cache(maxsize=256)
def classify(text: str) -> Diagnosis | None:
    """Return the explanation of an error text by the first catalogue entry that matches; None if none matches."""
    text = normalize_text(text)
    return next(match_patterns(text, find_literals(text.replace("\n", " ")), len(text)), None)


def find_literals(flat: str) -> tuple[int, ...]:
    """Return the indexes in `list_patterns()` of the patterns that may match a text.

    These are the patterns whose longest literal occurs in `flat`, which is the text as a single line.
    """
    return tuple(place for place, (_, _, literal) in enumerate(list_patterns()) if literal in flat)


def match_patterns(text: str, places: Iterable[int], end: int) -> Iterator[Diagnosis]:
    """Yield an explanation for each pattern that matches a normalized text at a position before `end`.

    `places` are the indexes in `list_patterns()` of the patterns to try.
    """
    for place in places:
        entry, pattern, _ = list_patterns()[place]
        match = compile_pattern(pattern).search(text)
        if match and match.start() < end:
            captured = {name: value for name, value in match.groupdict().items() if value}
            yield Diagnosis(entry, captured, pattern, match.start(), match.end())


@functools.cache
def list_patterns() -> tuple[tuple[Entry, str, str], ...]:
    """Return (entry, pattern, longest literal text in the pattern) for all patterns of the catalogue.

    They are in the order in which they are matched.
    """
    return tuple(
        (entry, pattern, longest_literal(pattern))
        for entry in list_entries()
        for pattern in ((entry.patterns,) if isinstance(entry.patterns, str) else entry.patterns)
    )


ENTRIES_BY_PROGRAM: dict[str, tuple[Entry, ...]] = {
    "ONNX Runtime: running a model": onnxruntime_graphs.RUNNING,
    "ONNX Runtime: files and providers": onnxruntime_files.ENTRIES,
    "ONNX Runtime: loading a model": (*onnxruntime_load.ENTRIES, *onnxruntime_graphs.LOADING),
    "PyTorch exporters": exporters.TORCH_ONNX,
    "onnx package": onnx.ENTRIES,
    "OpenVINO": engines.OPENVINO,
    "tract": engines.TRACT,
    "OpenCV DNN": engines.OPENCV,
    "ONNX reference evaluator": engines.REFERENCE_EVALUATOR,
    "ONNX Runtime Web": engines.ONNXRUNTIME_WEB,
    "scikit-learn, TensorFlow and JAX exporters": exporters.OTHER_EXPORTERS,
    "pip": packages.PIP,
    "uv": packages.UV,
    "NumPy": packages.NUMPY,
    "protobuf": packages.PROTOBUF,
    "Git LFS, disk and Python modules": packages.SYSTEM,
}
"""Program that writes the error texts -> its catalogue entries, in the order in which they are matched."""


@functools.cache
def list_entries() -> tuple[Entry, ...]:
    """Return all entries of the catalogue in the order in which they are matched.

    General entries, which match many different errors, come last.
    """
    return tuple(sorted(itertools.chain(*ENTRIES_BY_PROGRAM.values()), key=lambda entry: entry.general))


# Source: texts of onnxruntime 1.8 to 1.31, tract 0.23.9 and OpenCV 5.0.0.
_NODE_PATTERNS = (
    r"returned while running \w+ node\. Name:'(.{1,300}?)' Status Message",
    r'In Node, \("(.{1,300}?)", ',
    r"node with name '(.{1,300}?)'(?:$|\n)",
    r"Could not find an implementation for the node ([^:\n]{1,300}):[\w.]{1,100}\(\d{1,9}\)",
    r"Failed to find kernel for [\w.]{1,100}\(\d{1,9}\) \(node:'(.{1,300}?)' ep:",
    r"Node \((.{1,300}?)\) Op \(",
    r"Node ?\((.{1,300}?)\) (?:with schema\(.{0,300}?\) )?has \w{1,20} size",
    r"(?:in|of) node \((.{1,300}?)\)(?:\.| is invalid| does not match)",
    r"two nodes with same node name \((.{1,300}?)\)\.",
    r'node #\d{1,9} "(.{1,300}?)" ',
    r"\]:\(onnx_node!(.{1,300}?)\)(?!\))",
)

# Source: openvino 2026.4.1 and 2023.3; the opset follows the name of an operator of the default domain.
_UNCONVERTED_OPERATORS = (
    r"(?:No conversion rule found for operations|does not support the following ONNX operations): ([^\n]{1,10000})"
)

_LOAD_PREFIX = r"^\[ONNXRuntimeError\] : \d{1,9} : \w{1,40} : (?:Load model from \S.{0,400}? failed: ?)?"
"""Pattern for the prefix of ONNX Runtime's errors from loading a model. The prefix may contain the file name."""

_RUN_FAILURE = "Non-zero status code returned while running "
"""Text that all errors of ONNX Runtime from running a loaded model contain."""


def failure_family(text: str) -> str:
    """Return the kind ("family") of an error text, such as "no_kernel"; "" if it is of no known kind."""
    diagnosis = classify(text)
    if _RUN_FAILURE in text:
        return "run_node"
    return diagnosis.entry.family if diagnosis else ""


def describe_meaning(text: str) -> str:
    """Return what an error text means, as one clause; "" if it is unknown or only a general entry matches.

    It is also "" if the text states its meaning, and is short enough to be shown in full.
    """
    diagnosis = classify(text)
    if diagnosis is None or diagnosis.entry.general:
        return ""
    is_shown = not shorten_failure(Failure(type="", text=text)).endswith(ELLIPSIS)
    return "" if diagnosis.entry.self_explanatory and is_shown else diagnosis.means


def describe_fix(text: str) -> str:
    """Return a fix for an error text that does not change the target; "" if the text is unknown."""
    diagnosis = classify(text)
    return render_template(diagnosis.entry.anywhere or diagnosis.entry.fix, diagnosis.captured) if diagnosis else ""


def failure_key(text: str) -> tuple[str, ...]:
    """Return a key by which the error texts of different models can be compared.

    A model and a single-node model that fail because of the same problem have equal keys.
    """
    diagnosis, name = classify(text), failure_family(text)
    if diagnosis and name:
        return (name, *diagnosis.captured.values())
    return ("", " ".join(re.sub(_LOAD_PREFIX, "", text).split()))


def find_node_name(text: str) -> str | None:
    """Return the name of the node that an error text mentions; None if it mentions no node."""
    for pattern in _NODE_PATTERNS:
        if match := re.search(pattern, text):
            return match.group(1)
    return None


def find_running_node(text: str) -> tuple[str, str] | None:
    """Return the operator and the name, which may be "", of the node that failed to run; None if none is mentioned."""
    match = re.search(r"returned while running (\w{1,100}) node\. Name:'(.{0,300}?)' Status Message", text)
    return (match.group(1), match.group(2)) if match else None


def find_missing_operator(text: str) -> tuple[str, str] | None:
    """Return the domain and name of the unsupported operator in an error text; None if the text names no operator.

    The domain is "" if it is the default domain or unknown.
    """
    diagnosis = classify(text)
    if diagnosis is None or diagnosis.entry.family not in ("no_op", "no_kernel") or "op" not in diagnosis.captured:
        return None
    prefix, _, last = diagnosis.captured["op"].rpartition(".")
    return (diagnosis.captured.get("domain", prefix), last)


def list_unsupported_operators(text: str) -> tuple[str, ...]:
    """Return the unsupported operators listed in an engine's error text, such as `Det` or `my.domain.Op`."""
    match = re.search(_UNCONVERTED_OPERATORS, text)
    names = match.group(1).split(", ") if match else []
    return tuple(dict.fromkeys(re.sub(r"-\d{1,9}$", "", name.strip()) for name in names))


def find_missing_locale(text: str) -> str | None:
    """Return the name of the locale that an error text reports as missing; None if it is about another problem."""
    diagnosis = classify(text)
    return diagnosis.captured.get("locale") if diagnosis and diagnosis.entry.name == "locale-missing" else None


MAX_FAILURE_LENGTH = 200
ELLIPSIS = "…"

_PREFIXES = (
    r"^(?:\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from \S.*? failed: ?|\{\w+\.(?:cc|h):\d+\} |\w+\.(?:cc|h):\d+ "
    r"|Non-zero status code returned while running \w+ node\. Name:'.*?' Status Message: |Fatal error: "
    r"|Exception during initialization: (?=\[ONNXRuntimeError\])|operator\(\) )"
)
"""Pattern for prefixes of error texts, such as a position in source code. They are removed, because they change
between releases.
"""

_CONDITION = r"^[^.]{1,120} was false\. (?=\S)"
"""Pattern for the C++ condition before the explanation in an error text. It is removed, because it changes between
releases.
"""


def shorten_failure(failure: Failure | None) -> str:
    """Return the text of an error as one short line without positions in source code.

    If the error has no text, return its type.
    """
    text = (failure.text.strip() or failure.type) if failure is not None else ""
    text = " ".join(text.split()).replace("`", "'")
    replaced = 1
    while replaced:
        text, replaced = re.subn(_PREFIXES, "", text)
    text = re.sub(_CONDITION, "", text)
    return text if len(text) <= MAX_FAILURE_LENGTH else text[: MAX_FAILURE_LENGTH - 1] + ELLIPSIS
