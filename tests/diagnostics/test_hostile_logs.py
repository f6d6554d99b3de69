"""Logs are untrusted: time and memory per line are limited, and no control sequence reaches the output."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator

import pytest

from onnxgate.core.report_json import encode_json
from onnxgate.diagnostics.catalogue import compile_pattern
from onnxgate.diagnostics.classification import classify, list_patterns
from onnxgate.diagnostics.log_explanation import MAX_LINE_LENGTH, explain_log, read_lines
from onnxgate.formats import explained_log

SIZE = 16_000
NEGLIGIBLE_S = 0.004


def build_near_match(pattern: str) -> str:
    """Return a text that starts like a match: groups are filled, escapes are removed."""
    filled = re.sub(r"\(\?P<\w+>[^()]*(?:\([^()]*\)[^()]*)*\)\??", "aaa", pattern)
    return re.sub(r"\\(.)", r"\1", filled)


def yield_units(pattern: str, literal: str) -> Iterator[str]:
    """Yield texts whose repetition makes a pattern backtrack."""
    near = build_near_match(pattern)
    yield from (literal, literal + " ", near[: len(near) // 2], near[: max(1, len(near) - 2)], "a", "a.", " ", "'", "(")


def measure_s(pattern: str, text: str) -> float:
    """Return the CPU time of a search: the best of three, or the first one that is negligible."""
    times_s = []
    for _ in range(3):
        begin = time.process_time()
        compile_pattern(pattern).search(text)
        times_s.append(time.process_time() - begin)
        if times_s[-1] <= NEGLIGIBLE_S:
            break
    return min(times_s)


def is_superlinear(pattern: str, text: str, first: float) -> bool:
    """Return whether eight times the text takes much more than eight times as long; a quadratic search takes 64."""
    return measure_s(pattern, text * 8) > 22 * first


def test_search_time_is_linear() -> None:
    """The search time of each pattern grows at most linearly with the length of a line."""
    slow = []
    for entry, pattern, literal in list_patterns():
        for unit in yield_units(pattern, literal):
            short = (unit * (SIZE // len(unit) + 1))[:SIZE]
            first = measure_s(pattern, short)
            if first > NEGLIGIBLE_S and is_superlinear(pattern, short, first):
                slow.append((entry.name, pattern, unit))

    assert slow == []


def test_a_quadratic_pattern_is_detected() -> None:
    """The measurement detects a pattern with quadratic time."""
    text = "(" * (SIZE // 8)
    pattern = r"\(.*x"

    assert is_superlinear(pattern, text, measure_s(pattern, text))


@pytest.mark.parametrize("unit", ["Type Error: Type 'aaa", "a", "\\n", "\r", '{"m": "x\\n', "\x1b[31m", "E  ", "a | "])
def test_one_line_of_a_megabyte(unit: str) -> None:
    """A very long line is read completely, in pieces."""
    size = 1 << (20 if len(unit) > 8 or unit == "a" else 17)
    text = (unit * (size // len(unit) + 1))[:size]
    longest = max((len(line.text) for line in read_lines(io.BytesIO(text.encode()))), default=0)

    assert longest <= MAX_LINE_LENGTH
    assert explain_log(io.BytesIO(text.encode()), "0").lines <= 1


def test_an_error_at_the_end_of_a_long_line() -> None:
    """An error in a very long line is found, and the quote contains the text around it."""
    message = "Unsupported model IR version: 13, max supported IR version: 9"
    explanations = explain_log(io.BytesIO(b"x" * 300_000 + b" " + message.encode() + b" " + b"y" * 300_000), "0")

    assert [(error.name, error.lines) for error in explanations.errors] == [("ir-version-too-new", (1,))]
    assert message[:30] in explanations.errors[0].says
    assert len(explanations.errors[0].says) < 300


class Endless(io.RawIOBase):
    """A log of a given size that is generated while it is read."""

    def __init__(self, unit: bytes, size: int) -> None:
        self._unit, self._left = unit, size

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        size = min(size, self._left)
        self._left -= size
        return (self._unit * (size // len(self._unit) + 1))[:size]


def test_memory_is_bounded() -> None:
    """Only the first distinct errors of a log are explained, and memory does not grow with the log's length."""
    import tracemalloc

    many = (f"Could not find an implementation for Op{n}(1) node with name 'n{n}'\n".encode() for n in range(1_500))
    log = io.BytesIO(b"".join(many))
    explanations = explain_log(log, "0")
    tracemalloc.start()
    explain_log(Endless(b"nothing of interest is here\n", 1 << 19), "0")  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (len(explanations.errors), explanations.more_errors) == (200, 200)
    assert peak < 4 << 20


def test_control_sequences_and_commands_are_neutralized() -> None:
    """No part of a log is executed by a terminal or by GitHub's runner."""
    hostile = "::error::x ##[error]x \x1b]0;title\x07 \u202e"
    known = f"No Op registered for {hostile.replace(' ', '')} with domain_version of 3"
    log = f"{known}\nSomeError: {hostile}\n::warning::ValueError: y\n"
    explanations = explain_log(io.BytesIO(log.encode()), "0")
    shown = explained_log.format_text(explanations) + encode_json(explanations)

    assert [error.name for error in explanations.errors] == ["operator-unknown"]
    assert explanations.unknown == 2
    assert not re.search(r"(?m)^\s*::|##\[|[\x00-\x08\x0b-\x1f\u202e]", shown)


def test_templates_are_not_filled_twice() -> None:
    """Braces in captured text are not treated as placeholders."""
    known = classify("No opset import for domain '{0.__class__}{domain}'")

    assert known is not None
    assert "`{0.__class__}{domain}`" in known.means
