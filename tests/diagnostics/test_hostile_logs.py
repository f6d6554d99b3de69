"""A log is written by anybody: no line takes long, none takes memory, and none is obeyed."""

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


def nearly(pattern: str) -> str:
    """A text that begins like one which matches: groups are filled, escapes are taken away."""
    filled = re.sub(r"\(\?P<\w+>[^()]*(?:\([^()]*\)[^()]*)*\)\??", "aaa", pattern)
    return re.sub(r"\\(.)", r"\1", filled)


def units(pattern: str, literal: str) -> Iterator[str]:
    """What is repeated to make a pattern try again and again."""
    near = nearly(pattern)
    yield from (literal, literal + " ", near[: len(near) // 2], near[: max(1, len(near) - 2)], "a", "a.", " ", "'", "(")


def seconds(pattern: str, text: str) -> float:
    """The best of three tries; the first one if it is below what counts."""
    found = []
    for _ in range(3):
        begin = time.process_time()
        compile_pattern(pattern).search(text)
        found.append(time.process_time() - begin)
        if found[-1] <= NEGLIGIBLE_S:
            break
    return min(found)


def is_superlinear(pattern: str, text: str, first: float) -> bool:
    """Whether eight times the text takes far more than eight times as long; a quadratic search takes 64 times."""
    return seconds(pattern, text * 8) > 22 * first


def test_no_pattern_takes_more_than_its_share() -> None:
    """No pattern of the catalogue is quadratic in the length of a line."""
    slow = []
    for entry, pattern, literal in list_patterns():
        for unit in units(pattern, literal):
            short = (unit * (SIZE // len(unit) + 1))[:SIZE]
            first = seconds(pattern, short)
            if first > NEGLIGIBLE_S and is_superlinear(pattern, short, first):
                slow.append((entry.name, pattern, unit))

    assert slow == []


def test_a_quadratic_pattern_is_seen() -> None:
    """The measure tells a quadratic pattern from the others."""
    text = "(" * (SIZE // 8)
    pattern = r"\(.*x"

    assert is_superlinear(pattern, text, seconds(pattern, text))


@pytest.mark.parametrize("unit", ["Type Error: Type 'aaa", "a", "\\n", "\r", '{"m": "x\\n', "\x1b[31m", "E  ", "a | "])
def test_one_line_of_a_megabyte(unit: str) -> None:
    """It is read in pieces, and all of it."""
    size = 1 << (20 if len(unit) > 8 or unit == "a" else 17)
    text = (unit * (size // len(unit) + 1))[:size]
    longest = max((len(line.text) for line in read_lines(io.BytesIO(text.encode()))), default=0)

    assert longest <= MAX_LINE_LENGTH
    assert explain_log(io.BytesIO(text.encode()), "0").lines <= 1


def test_an_error_at_the_end_of_a_long_line() -> None:
    """It is found wherever it is, with what is around it as its quote."""
    said = "Unsupported model IR version: 13, max supported IR version: 9"
    found = explain_log(io.BytesIO(b"x" * 300_000 + b" " + said.encode() + b" " + b"y" * 300_000), "0")

    assert [(error.name, error.lines) for error in found.errors] == [("ir-version-too-new", (1,))]
    assert said[:30] in found.errors[0].says
    assert len(found.errors[0].says) < 300


class Endless(io.RawIOBase):
    """A log of this many bytes, that is nowhere as a whole."""

    def __init__(self, unit: bytes, size: int) -> None:
        self._unit, self._left = unit, size

    def read(self, size: int = -1) -> bytes:
        """Some more of it."""
        size = min(size, self._left)
        self._left -= size
        return (self._unit * (size // len(self._unit) + 1))[:size]


def test_memory_is_bounded() -> None:
    """Of a log with a different error on each line the first are told apart, and a long one takes no memory."""
    import tracemalloc

    many = (f"Could not find an implementation for Op{n}(1) node with name 'n{n}'\n".encode() for n in range(1_500))
    log = io.BytesIO(b"".join(many))
    found = explain_log(log, "0")
    tracemalloc.start()
    explain_log(Endless(b"nothing of interest is here\n", 1 << 19), "0")  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (len(found.errors), found.more_errors) == (200, 200)
    assert peak < 4 << 20


def test_nothing_in_a_log_is_obeyed() -> None:
    """Neither by a terminal nor by GitHub's runner."""
    hostile = "::error::x ##[error]x \x1b]0;title\x07 \u202e"
    known = f"No Op registered for {hostile.replace(' ', '')} with domain_version of 3"
    log = f"{known}\nSomeError: {hostile}\n::warning::ValueError: y\n"
    found = explain_log(io.BytesIO(log.encode()), "0")
    shown = explained_log.format_text(found) + encode_json(found)

    assert [error.name for error in found.errors] == ["operator-unknown"]
    assert found.unknown == 2
    assert not re.search(r"(?m)^\s*::|##\[|[\x00-\x08\x0b-\x1f\u202e]", shown)


def test_templates_are_not_filled_twice() -> None:
    """Captured braces are text."""
    known = classify("No opset import for domain '{0.__class__}{domain}'")

    assert known is not None
    assert "`{0.__class__}{domain}`" in known.means
