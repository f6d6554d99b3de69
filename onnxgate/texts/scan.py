"""Finds known errors in the lines of a log, as they come."""

from __future__ import annotations

import functools
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from onnxgate.texts.classify import Known, patterns, recognised
from onnxgate.texts.explained import ExplainedError, ExplainedLog, UnknownLine
from onnxgate.texts.lines import Line, lines

WINDOW = 10
"""Lines that one message may take, and more than any that is known does."""
ROOM = 4_000
"""Characters behind its first line that a message may take."""
AHEAD = 4
"""Lines in which something that says more takes the place of something general."""
NEAR = 25
"""Lines within which the same error is said once more, and did not happen again."""
RECENT = 8
"""Errors of one kind that a text with fewer words may belong to."""
KEPT = 200
"""Different errors that are told apart."""
SHOWN = 5
QUOTE = 240
_SUSPECT = re.compile(
    r"(?<![\w.])[A-Za-z_][\w.]{0,120}(?:Error|Exception|Failure): "
    r"|\[ONNXRuntimeError\]"
    r"|(?:^|[^\w`'\"/.-])(?:ERROR|FATAL|CRITICAL)(?:[: \]]|$)"
    r"|^(?:error|fatal|panic|fatal error)(?:\[\w{1,20}\])?: "
    r"|^(?:Uncaught )?(?:\(in promise\) )?Error: |^triggerUncaughtException\("
    r"|^pybind11_state\.\w{1,40}: "
    r"|Segmentation fault|core dumped"
)
# What follows from an error, and is none by itself.
_FOLLOWS = re.compile(
    r"Process completed with exit code|returned non-zero exit status|CalledProcessError|(?:0|no) errors?\b"
    r"|make(?:\[\d{1,4}\])?: \*\*\*|SystemError: <built-in function __import__>|errors? found in 0"
    r"|^=+ .{0,80} =+$|^_* ?ERROR (?:collecting|at \w{1,20} of) |short test summary|ELIFECYCLE|Command exited with"
)
# What pytest says once more at its end.
_AGAIN = re.compile(r"^(?:FAILED|ERROR) \S{1,400}\.py(?:::\S{1,400})?(?: - |$)")


@dataclass(slots=True)
class _Group:
    """One error while it is counted."""

    known: Known
    says: str
    last: int
    patterns: set[str]  # of its last occurrence: a program may say one thing in several ways
    count: int = 1
    lines: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Findings:
    groups: list[_Group] = field(default_factory=list)
    of_entry: dict[str, list[_Group]] = field(default_factory=dict)
    exact: dict[tuple[object, ...], _Group] = field(default_factory=dict)
    more: set[tuple[object, ...]] = field(default_factory=set)
    unknown: int = 0
    first_unknown: list[UnknownLine] = field(default_factory=list)

    def add(self, known: Known, line: Line) -> None:
        """Count an error: anew, or as one that is there already."""
        group = self._like(known)
        if group is None:
            self._begin(known, line)
            return
        if line.number - group.last > NEAR or known.pattern in group.patterns:
            group.count += 1
            group.lines = [*group.lines, line.number][:SHOWN]
            group.patterns = set()
        group.patterns.add(known.pattern)
        if len(known.captured) > len(group.known.captured):
            group.known = known
            self.exact[_key(known)] = group
        group.last = line.number

    def _begin(self, known: Known, line: Line) -> None:
        if len(self.groups) < KEPT:
            group = _Group(known, _quote(line.text, known.start), line.number, {known.pattern}, lines=[line.number])
            self.groups.append(group)
            self.of_entry.setdefault(known.entry.name, []).append(group)
            self.exact[_key(known)] = group
        elif len(self.more) < KEPT:
            self.more.add(_key(known))

    def _like(self, known: Known) -> _Group | None:
        """The one that says the same, or the same with more or fewer words."""
        if group := self.exact.get(_key(known)):
            return group
        latest = self.of_entry.get(known.entry.name, [])[-RECENT:]
        new = known.captured.items()
        return next(
            (each for each in reversed(latest) if new <= (old := each.known.captured.items()) or old <= new), None
        )

    def suspect(self, line: Line) -> None:
        """Count a line that looks like an error, and that nobody knows."""
        self.unknown += 1
        if len(self.first_unknown) < SHOWN:
            self.first_unknown.append(UnknownLine(line=line.number, says=_quote(line.text, 0)))


def _key(known: Known) -> tuple[object, ...]:
    return (known.entry.name, *known.captured.items())


def explain(stream: BinaryIO, onnxgate: str) -> ExplainedLog:
    """What a log says, read once from its beginning to its end."""
    findings, last = _Findings(), 0
    covered = 0  # lines of the window that a message took
    for window in _windows(lines(stream)):
        last = max(last, window[0].line.number)
        if covered:
            covered -= 1
            continue
        known = _first(window)
        if known is None:
            if not _announces(window):
                _suspect(window[0].line, findings)
            continue
        findings.add(known, window[0].line)
        covered = _text(window)[: known.end].count("\n")
    return ExplainedLog(
        onnxgate=onnxgate,
        lines=last,
        errors=tuple(_error(each) for each in findings.groups),
        more_errors=len(findings.more),
        unknown=findings.unknown,
        first_unknown=tuple(findings.first_unknown),
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """A line with the places of patterns whose literal piece it holds."""

    line: Line
    hits: tuple[int, ...]


def _windows(stream: Iterable[Line]) -> Iterator[deque[_Seen]]:
    """Each line with those behind it."""
    window: deque[_Seen] = deque()
    before: Line | None = None
    for line in stream:
        if before is not None:
            window.append(_Seen(before, _hits(f"{before.text} {line.text}")))
        before = line
        if len(window) > WINDOW:
            yield window
            window.popleft()
    if before is not None:
        window.append(_Seen(before, _hits(before.text)))
    while window:
        yield window
        window.popleft()


@functools.lru_cache(maxsize=64)
def _hits(flat: str) -> tuple[int, ...]:
    return tuple(place for place, (_, _, literal) in enumerate(patterns()) if literal in flat)


def _text(window: deque[_Seen]) -> str:
    return "\n".join(each.line.text for each in window)


def _first(window: deque[_Seen]) -> Known | None:
    """What begins in the window's first line; what says less than something just behind it is left to that."""
    places = sorted({place for each in window for place in each.hits})
    if not places:
        return None
    text, first = _text(window), len(window[0].line.text)
    text = text[: first + ROOM]
    known = next(recognised(text, places, first), None)
    if known is None or not known.entry.general:
        return known
    ahead = sum(len(each.line.text) + 1 for _, each in zip(range(AHEAD), window, strict=False))
    better = next(recognised(text, places, ahead), known)
    return known if better.entry.general else None


def _announces(window: deque[_Seen]) -> bool:
    """Whether a line ends in a colon, and what is known comes behind it."""
    if not window[0].line.text.endswith(":"):
        return False
    places, text = sorted({place for each in window for place in each.hits}), _text(window)
    return any(True for _ in recognised(text, places, len(text)))


def _suspect(line: Line, findings: _Findings) -> None:
    if not _SUSPECT.search(line.text) or _FOLLOWS.search(line.text):
        return
    if not (_AGAIN.search(line.text) and (findings.groups or findings.unknown)):
        findings.suspect(line)


def _quote(text: str, start: int) -> str:
    """The line, or what is around the place in it."""
    if len(text) <= QUOTE:
        return text
    begin = max(0, start - QUOTE // 4)
    return f"{'…' if begin else ''}{text[begin : begin + QUOTE]}{'…' if begin + QUOTE < len(text) else ''}"


def _error(group: _Group) -> ExplainedError:
    known = group.known
    return ExplainedError(
        name=known.entry.name,
        says=group.says,
        means=known.means,
        why=known.why,
        fix=known.fix,
        affected=known.affected,
        rules=known.entry.rules,
        count=group.count,
        lines=tuple(group.lines),
    )
