"""Which entry a text belongs to, and what is said about it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onnxgate.diagnostics.catalogue import (
    engines,
    exporters,
    onnx,
    onnxruntime_files,
    onnxruntime_graphs,
    onnxruntime_load,
    onnxruntime_run,
    packages,
)
from onnxgate.diagnostics.entry import Entry, compile_pattern, longest_literal, render_template

MAX_TEXT_LENGTH = 60_000
"""Characters of a text that are looked at; what is longer than that is no message."""
_BLANKS = re.compile(r"[ \t\r\f\v]{1,200}")
_FRAME = " \t|│╰╭╯╮─▶"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A text whose entry is known, and what it names."""

    entry: Entry
    captured: dict[str, str]  # by the pattern's groups, in their order
    pattern: str = ""
    start: int = 0  # in the canonical text
    end: int = 0

    @property
    def means(self) -> str:
        """What the text means, in one clause."""
        return render_template(self.entry.means, self.captured)

    @property
    def why(self) -> str:
        """How it comes about; "" where that is plain."""
        return render_template(self.entry.why, self.captured)

    @property
    def fix(self) -> str:
        """What to do, with numbers."""
        return render_template(self.entry.fix, self.captured)

    @property
    def anywhere(self) -> str:
        """What to do, in words that are the same for all releases."""
        return render_template(self.entry.anywhere or self.entry.fix, self.captured)

    @property
    def affected(self) -> str:
        """The releases concerned; "" where that is not known, or where it is no matter of releases."""
        return render_template(self.entry.affected, self.captured)


def normalize_text(text: str) -> str:
    """The text with its blanks collapsed and without frames around lines, so that it reads alike wherever it was"
    " printed."""
    lines = (_BLANKS.sub(" ", line).strip(_FRAME) for line in text[:MAX_TEXT_LENGTH].splitlines())
    return "\n".join(line for line in lines if line)


def classify(text: str) -> Diagnosis | None:
    """What a text says; None where nobody knows it."""
    return find_first_entry(normalize_text(text))


def find_first_entry(text: str) -> Diagnosis | None:
    """The first entry in order that is found in a canonical text."""
    flat = text.replace("\n", " ")
    places = [place for place, (_, _, literal) in enumerate(list_patterns()) if literal in flat]
    return next(match_patterns(text, places, len(text)), None)


def match_patterns(text: str, places: Iterable[int], end: int) -> Iterator[Diagnosis]:
    """What is found in a canonical text, of the patterns at these places, and begins before a character."""
    for place in places:
        entry, pattern, _ = list_patterns()[place]
        match = compile_pattern(pattern).search(text)
        if match and match.start() < end:
            captured = {name: value for name, value in match.groupdict().items() if value}
            yield Diagnosis(entry, captured, pattern, match.start(), match.end())


@functools.cache
def list_patterns() -> tuple[tuple[Entry, str, str], ...]:
    """All patterns in the order in which they are tried, each with a piece that every text which it matches holds."""
    return tuple((entry, pattern, longest_literal(pattern)) for entry in list_entries() for pattern in entry.says)


ENTRIES_BY_PRODUCER: dict[str, tuple[Entry, ...]] = {
    "ONNX Runtime, running": onnxruntime_run.ENTRIES,
    "ONNX Runtime, files and providers": onnxruntime_files.ENTRIES,
    "ONNX Runtime, loading": (*onnxruntime_load.ENTRIES, *onnxruntime_graphs.ENTRIES),
    "torch.onnx": exporters.TORCH_ONNX,
    "onnx": onnx.ENTRIES,
    "Other engines": engines.ENTRIES,
    "Other exporters": exporters.OTHER_EXPORTERS,
    "pip": packages.PIP,
    "uv": packages.UV,
    "numpy": packages.NUMPY,
    "protobuf": packages.PROTOBUF,
    "Files and packages": packages.SYSTEM,
}
"""By who says it."""


@functools.cache
def list_entries() -> tuple[Entry, ...]:
    """All of them, the general ones last."""
    every = [entry for group in ENTRIES_BY_PRODUCER.values() for entry in group]
    return tuple(sorted(every, key=lambda entry: entry.general))


@functools.cache
def entries_by_name() -> dict[str, Entry]:
    """Each by its name."""
    return {entry.name: entry for entry in list_entries()}


# Source: names of nodes in texts of onnxruntime 1.8 to 1.31, tract 0.23.9 and OpenCV 5.0.0.
_NODE_PATTERNS = (
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
_UNCONVERTED_OPERATORS = (
    r"(?:No conversion rule found for operations|does not support the following ONNX operations): ([^\n]{1,10000})"
)

_LOAD_PREFIX = r"^\[ONNXRuntimeError\] : \d{1,9} : \w{1,40} : (?:Load model from \S.{0,400}? failed: ?)?"
"""Names the file."""

_RUN_FAILURE = "Non-zero status code returned while running "
"""Whatever it says of the cause, the model was loaded."""


@functools.lru_cache(maxsize=256)
def diagnose(text: str) -> Diagnosis | None:
    """What a runtime's text says."""
    return classify(text)


def failure_family(text: str) -> str:
    """Which family a text belongs to, "" for none of them."""
    each = diagnose(text)
    if _RUN_FAILURE in text:
        return "run_node"
    return each.entry.family if each else ""


def describe_meaning(text: str) -> str:
    """What a text means, in one clause; "" where it is unknown, or says it well enough by itself."""
    each = diagnose(text)
    return "" if each is None or each.entry.general else each.means


def describe_fix(text: str) -> str:
    """What is to be done, in words that are the same for all releases; "" where the text is unknown."""
    each = diagnose(text)
    return each.anywhere if each else ""


def failure_key(text: str) -> tuple[str, ...]:
    """What a text says, without what differs between a model and one of its nodes alone: its family, and its words."""
    each, name = diagnose(text), failure_family(text)
    if each and name:
        return (name, *each.captured.values())
    return ("", " ".join(_cached_regex(_LOAD_PREFIX).sub("", text).split()))


def find_node_name(text: str) -> str | None:
    """The node that a text names; most texts name none, or one without a name."""
    for pattern in _NODE_PATTERNS:
        if found := _cached_regex(pattern).search(text):
            return found.group(1)
    return None


def find_missing_operator(text: str) -> tuple[str, str] | None:
    """Domain ("" where it is not said, or the default one) and name of the operator that a runtime does not have."""
    each = diagnose(text)
    if each is None or each.entry.family not in ("no_op", "no_kernel") or not (name := each.captured.get("op")):
        return None
    prefix, _, last = name.rpartition(".")
    return (each.captured.get("domain", prefix), last)


def list_unsupported_operators(text: str) -> tuple[str, ...]:
    """All operators that an engine does not have, where its text lists every one: `Det`, `my.domain.Op`."""
    found = _cached_regex(_UNCONVERTED_OPERATORS).search(text)
    names = found.group(1).split(", ") if found else []
    return tuple(dict.fromkeys(re.sub(r"-\d{1,9}$", "", name.strip()) for name in names))


def find_missing_locale(text: str) -> str | None:
    """The locale that a text says this machine lacks, whether the model was loaded or run; None for other texts."""
    each = diagnose(text)
    return each.captured.get("locale") if each and each.entry.name == "locale-missing" else None


@functools.cache
def _cached_regex(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
