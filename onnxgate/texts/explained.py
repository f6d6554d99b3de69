"""What a log says, in words: each known error once."""

from __future__ import annotations

import msgspec


class ExplainedError(msgspec.Struct, frozen=True, kw_only=True):
    """One known error of a log, however often it is in it."""

    name: str  # of the entry
    says: str  # the first line, as it was printed
    means: str
    why: str
    fix: str
    affected: str  # the releases concerned; "" where that is not known, or no matter of releases
    rules: tuple[str, ...]  # of onnxgate, that say it before it happens
    count: int
    lines: tuple[int, ...]  # the first ones


class UnknownLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that looks like an error, and that nobody knows."""

    line: int
    says: str


class ExplainedLog(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found in one log."""

    version: int = 1
    onnxgate: str
    lines: int
    errors: tuple[ExplainedError, ...]  # in the order in which they come first
    more_errors: int = 0  # different ones that there was no room for
    unknown: int  # lines that look like errors, and are not explained
    first_unknown: tuple[UnknownLine, ...]

    @property
    def exit(self) -> int:
        """0 where something is explained, or nothing looks like an error; 3 where all that does is unknown."""
        return 3 if self.unknown and not self.errors else 0
