"""The type of a rule: a function that creates findings from evidence, with an ID, a level and a documentation page."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from onnxgate.core.findings import Hit, Level, Stage

FIRST_RELEASE = "0.1.0"
"""First release of onnxgate. The pages of rules added in this release do not show the release."""
Subject = TypeVar("Subject")
CheckFunction = Callable[[Subject], Iterator[Hit]]


class Rule(msgspec.Struct, Generic[Subject], frozen=True):
    """A named check. Its function `judge` yields the findings for one piece of evidence."""

    id: str
    subject: type[Subject]
    level: Level
    since: str
    judge: CheckFunction[Subject]
    blocks_run: bool = True  # for rules of the file stage: a model with this error is not run

    @property
    def stage(self) -> Stage:
        """Return the stage whose evidence the rule checks. The folder of the rule is named after the stage."""
        return Stage(self.judge.__module__.split(".")[-2])

    @property
    def page(self) -> str:
        """Return the documentation page of the rule, which is the docstring of its function."""
        return inspect.getdoc(self.judge) or ""

    @property
    def summary(self) -> str:
        """Return the summary of the rule, which is the first line of its documentation page."""
        return self.page.partition("\n")[0]


def rule(
    subject: type[Subject], id: str, *, level: Level, since: str, blocks_run: bool = True
) -> Callable[[CheckFunction[Subject]], Rule[Subject]]:
    """Turn a function that yields findings into a rule. `subject` is the type of evidence that the rule checks."""

    def decorate(judge: CheckFunction[Subject]) -> Rule[Subject]:
        return Rule(id, subject, level, since, judge, blocks_run)

    return decorate


AnyRule = Rule[Any]
