"""Find known errors in a log, such as that of a CI job, and explain them."""

from __future__ import annotations

import codecs
import functools
import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import msgspec

from onnxgate.diagnostics.classification import Diagnosis, find_literals, match_patterns, normalize_text


class ExplainedError(msgspec.Struct, frozen=True, kw_only=True):
    """A known error that occurs in a log, its explanation, and its occurrences."""

    name: str  # entry in the error reference
    says: str  # first line of the error, as logged
    means: str  # meaning of the error, as one clause
    why: str  # cause of the error; "" if `means` includes the cause
    fix: str  # how to resolve the error
    affected: str  # affected releases; "" if unknown or irrelevant
    rules: tuple[str, ...]  # rules that report the problem in advance
    count: int  # number of occurrences
    lines: tuple[int, ...]  # line numbers of the first 5 occurrences


class UnknownLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a log that looks like an error but matches no known error."""

    line: int  # line number, starting at 1
    says: str  # the line, as logged


class ExplainedLog(msgspec.Struct, frozen=True, kw_only=True):
    """The result of explaining a log: the known errors, and the lines that look like unknown errors."""

    version: int = 1  # version of this format
    onnxgate: str  # version of onnxgate that explained the log
    lines: int  # number of lines in the log
    errors: tuple[ExplainedError, ...]  # known errors, in order of their first occurrence
    more_errors: int = 0  # number of known errors beyond the limit of 200
    unknown: int  # number of lines that look like errors but are not known
    first_unknown: tuple[UnknownLine, ...]  # the first 5 lines that look like errors but are not known

    @property
    def exit(self) -> int:
        """Return the exit status of the command: 3 if the log contains only unknown errors, otherwise 0."""
        return 3 if self.unknown and not self.errors else 0


CHUNK_BYTES = 65_536
MAX_LINE_LENGTH = 16_384
"""Maximum length of a line of a log, in characters. Longer lines are split, at a space if possible."""
_ANSI = re.compile(r"\x1b\[[0-?]{0,32}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|\\u001b\[[\d;]{0,32}m")
_TIMESTAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d)?"
# Source: logs of GitHub (web and `gh run view`), GitLab, Jenkins, docker compose, buildkit and pytest.
_PREFIX = re.compile(
    rf"(?:\s{{0,40}}(?:{_TIMESTAMP}|\[{_TIMESTAMP}\])\s{{1,8}}"
    r"|[^\t\n]{1,120}\t[^\t\n]{1,120}\t(?=\d{4}-)"
    r"|\s{0,40}##\[\w{1,20}\]"
    r"|\s{0,40}::(?:error|warning|notice|debug)[^:\n]{0,300}::"
    r"|\s{0,8}[\w.-]{1,80} {0,20}\| "
    r"|#\d{1,6} \d{1,6}\.\d{1,4} "
    r"|E {2,8}(?=\S))"
)
_MAX_PREFIXES = 4
_JSON_FIELD = re.compile(r'"[\w.@-]{1,40}" ?: ?"')


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log, or part of a long line."""

    number: int  # 1-based
    text: str  # normalized


def read_lines(stream: BinaryIO) -> Iterator[LogLine]:
    """Yield the lines of a log that are not blank. Memory usage does not depend on the length of lines."""
    for number, text in _read_pieces(stream):
        pieces = text.split("\r")
        if "\\n" in text and _JSON_FIELD.search(text):  # escaped line breaks in a JSON string
            pieces = text.replace("\\r", "").replace("\\t", " ").replace('\\"', '"').split("\\n")
        for piece in pieces:
            if piece and (plain := normalize_text(strip_prefixes(piece))):
                for line in plain.split("\n"):
                    yield LogLine(number, line)


def strip_prefixes(text: str) -> str:
    """Remove ANSI colors from a line of a log, and the prefixes that CI services and container tools add."""
    plain = _ANSI.sub("", text)
    for _ in range(_MAX_PREFIXES):
        match = _PREFIX.match(plain)
        if not match:
            break
        plain = plain[match.end() :]
    return plain


def _read_pieces(stream: BinaryIO) -> Iterator[tuple[int, str]]:
    first = stream.read(CHUNK_BYTES)
    is_utf16 = first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # written by PowerShell
    decoder = codecs.getincrementaldecoder("utf-16" if is_utf16 else "utf-8-sig")(errors="replace")
    number, rest, chunk = 1, "", first
    while chunk:
        rest += decoder.decode(chunk)
        *lines, rest = rest.split("\n")
        for line in lines:
            yield from ((number, piece) for piece in _split_long_line(line))
            number += 1
        *pieces, rest = _split_long_line(rest)
        yield from ((number, piece) for piece in pieces)
        chunk = stream.read(CHUNK_BYTES)
    yield number, rest + decoder.decode(b"", final=True)


def _split_long_line(line: str) -> list[str]:
    pieces = []
    while len(line) > MAX_LINE_LENGTH:
        end = line.rfind(" ", MAX_LINE_LENGTH // 2, MAX_LINE_LENGTH)
        end = MAX_LINE_LENGTH if end < 0 else end
        pieces.append(line[:end])
        line = line[end:]
    return [*pieces, line]


WINDOW_LINES = 10
"""Number of lines of a log that are searched for one error message. All known messages are shorter."""
MAX_MESSAGE_LENGTH = 4_000
"""Number of characters after the first line of an error message that are searched for the rest of the message."""
LOOKAHEAD_LINES = 4
"""Number of lines that are searched for a more specific error if the first of them matches a general one."""
REPEAT_LINES = 25
"""Maximum distance, in lines of a log, at which different texts of the same error count as one occurrence."""
RECENT_ERRORS = 8
"""Number of previous errors of the same kind with which a new error is compared, to recognize repetitions."""
MAX_ERRORS = 200
"""Maximum number of different errors that are explained for one log."""
MAX_SHOWN = 5
QUOTE_LENGTH = 240
_ERROR_LIKE = re.compile(
    r"(?<![\w.])[A-Za-z_][\w.]{0,120}(?:Error|Exception|Failure): "
    r"|\[ONNXRuntimeError\]"
    r"|(?:^|[^\w`'\"/.-])(?:ERROR|FATAL|CRITICAL)(?:[: \]]|$)"
    r"|^(?:error|fatal|panic|fatal error)(?:\[\w{1,20}\])?: "
    r"|^(?:Uncaught )?(?:\(in promise\) )?Error: |^triggerUncaughtException\("
    r"|^pybind11_state\.\w{1,40}: "
    r"|Segmentation fault|core dumped"
)
# Lines that follow an error and are not errors themselves.
_CONSEQUENCE = re.compile(
    r"Process completed with exit code|returned non-zero exit status|CalledProcessError|(?:0|no) errors?\b"
    r"|make(?:\[\d{1,4}\])?: \*\*\*|SystemError: <built-in function __import__>|errors? found in 0"
    r"|^=+ .{0,80} =+$|^_* ?ERROR (?:collecting|at \w{1,20} of) |short test summary|ELIFECYCLE|Command exited with"
)
_PYTEST_SUMMARY = re.compile(r"^(?:FAILED|ERROR) \S{1,400}\.py(?:::\S{1,400})?(?: - |$)")


@dataclass(slots=True)
class _ErrorGroup:
    """A known error, and its occurrences found so far in a log."""

    diagnosis: Diagnosis
    quote: str
    last: int
    patterns: set[
        str
    ]  # patterns that matched in the last occurrence, because a program may print several texts for one error
    count: int = 1
    lines: list[int] = field(default_factory=list)

    def to_explained_error(self) -> ExplainedError:
        return ExplainedError(
            name=self.diagnosis.entry.name,
            says=self.quote,
            means=self.diagnosis.means,
            why=self.diagnosis.why,
            fix=self.diagnosis.fix,
            affected=self.diagnosis.affected,
            rules=self.diagnosis.entry.rules,
            count=self.count,
            lines=tuple(self.lines),
        )


@dataclass(slots=True)
class _LogErrors:
    groups: list[_ErrorGroup] = field(default_factory=list)
    exact: dict[tuple[object, ...], _ErrorGroup] = field(default_factory=dict)
    more: set[tuple[object, ...]] = field(default_factory=set)
    unknown: int = 0
    first_unknown: list[UnknownLine] = field(default_factory=list)

    def add(self, diagnosis: Diagnosis, line: LogLine) -> None:
        """Add a known error that was found in the log, or count another occurrence if it was found before."""
        group = self._find_similar(diagnosis)
        if group is None and len(self.groups) < MAX_ERRORS:
            quote = _quote_line(line.text, diagnosis.start)
            group = _ErrorGroup(diagnosis, quote, line.number, {diagnosis.pattern}, lines=[line.number])
            self.groups.append(group)
            self.exact[_diagnosis_key(diagnosis)] = group
            return
        if group is None:
            if len(self.more) < MAX_ERRORS:
                self.more.add(_diagnosis_key(diagnosis))
            return
        if line.number - group.last > REPEAT_LINES or diagnosis.pattern in group.patterns:
            group.count += 1
            group.lines = [*group.lines, line.number][:MAX_SHOWN]
            group.patterns = set()
        group.patterns.add(diagnosis.pattern)
        if len(diagnosis.captured) > len(group.diagnosis.captured):
            group.diagnosis = diagnosis
            self.exact[_diagnosis_key(diagnosis)] = group
        group.last = line.number

    def _find_similar(self, diagnosis: Diagnosis) -> _ErrorGroup | None:
        """Return the earlier error that a new error repeats; None if it is a different error.

        Both errors have the same entry, and one has all names and numbers that were captured from the other.
        """
        if group := self.exact.get(_diagnosis_key(diagnosis)):
            return group
        latest = [group for group in self.groups if group.diagnosis.entry is diagnosis.entry][-RECENT_ERRORS:]
        new = diagnosis.captured.items()
        return next(
            (group for group in reversed(latest) if new <= (old := group.diagnosis.captured.items()) or old <= new),
            None,
        )

    def add_unknown(self, line: LogLine) -> None:
        """Count a line of the log that looks like an unknown error.

        Lines of pytest's summary are ignored, because they repeat earlier errors.
        """
        if not _ERROR_LIKE.search(line.text) or _CONSEQUENCE.search(line.text):
            return
        if _PYTEST_SUMMARY.search(line.text) and (self.groups or self.unknown):
            return
        self.unknown += 1
        if len(self.first_unknown) < MAX_SHOWN:
            self.first_unknown.append(UnknownLine(line=line.number, says=_quote_line(line.text, 0)))


def _diagnosis_key(diagnosis: Diagnosis) -> tuple[object, ...]:
    return (diagnosis.entry.name, *diagnosis.captured.items())


def explain_log(stream: BinaryIO, onnxgate: str) -> ExplainedLog:
    """Find and explain the errors in a log, reading the log only once."""
    findings, last = _LogErrors(), 0
    covered = 0  # lines of the window that belong to the previous message
    for window in _windows(read_lines(stream)):
        last = max(last, window[0].line.number)
        if covered:
            covered -= 1
            continue
        text = "\n".join(scanned.line.text for scanned in window)
        places = sorted({place for scanned in window for place in scanned.hits})
        diagnosis = _diagnose_first_line(window, text, places)
        if diagnosis is not None:
            findings.add(diagnosis, window[0].line)
            covered = text[: diagnosis.end].count("\n")
        elif not window[0].line.text.endswith(":") or next(match_patterns(text, places, len(text)), None) is None:
            findings.add_unknown(window[0].line)  # a line that ends with a colon may introduce a known error
    return ExplainedLog(
        onnxgate=onnxgate,
        lines=last,
        errors=tuple(group.to_explained_error() for group in findings.groups),
        more_errors=len(findings.more),
        unknown=findings.unknown,
        first_unknown=tuple(findings.first_unknown),
    )


_find_literals = functools.lru_cache(maxsize=64)(find_literals)
"""Cached version of `find_literals`. The cache is useful because logs often contain the same line several times."""


@dataclass(frozen=True, slots=True)
class _ScannedLine:
    """A line of a log, and the indexes of the patterns whose longest literal text it contains."""

    line: LogLine
    hits: tuple[int, ...]


def _windows(stream: Iterable[LogLine]) -> Iterator[deque[_ScannedLine]]:
    """Yield each line of a log together with the next `WINDOW_LINES` lines."""
    window: deque[_ScannedLine] = deque()
    following, stream = itertools.tee(stream)
    texts = itertools.chain((f" {line.text}" for line in itertools.islice(following, 1, None)), [""])
    for line, next_text in zip(stream, texts, strict=False):
        window.append(_ScannedLine(line, _find_literals(line.text + next_text)))
        if len(window) > WINDOW_LINES:
            yield window
            window.popleft()
    while window:
        yield window
        window.popleft()


def _diagnose_first_line(window: deque[_ScannedLine], text: str, places: list[int]) -> Diagnosis | None:
    """Return the known error whose text starts in the first line of the window; None if there is none.

    A general error is not returned if a more specific error follows within the next few lines.
    """
    first = len(window[0].line.text)
    text = text[: first + MAX_MESSAGE_LENGTH]
    diagnosis = next(match_patterns(text, places, first), None)
    if diagnosis is None or not diagnosis.entry.general:
        return diagnosis
    ahead = sum(len(scanned.line.text) + 1 for scanned in itertools.islice(window, LOOKAHEAD_LINES))
    better = next(match_patterns(text, places, ahead), diagnosis)
    return diagnosis if better.entry.general else None


def _quote_line(text: str, start: int) -> str:
    if len(text) <= QUOTE_LENGTH:
        return text
    begin = max(0, start - QUOTE_LENGTH // 4)
    end = begin + QUOTE_LENGTH
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"
