"""What is to stand on a pull request, or why nothing is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Post:
    """A comment, without its marker."""

    number: int
    body: str
    silent: bool  # a first comment would have nothing to say
    is_from_fork: bool
    subject: str = ""  # tells the comments of several projects in one job apart


class NoComment(Exception):  # noqa: N818 - it mostly is none
    """Nothing is posted; `level` is that of the annotation which says why."""

    def __init__(self, reason: str, *, hint: str = "", level: str = "warning") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.level = level
