"""Bugs in onnxgate: unexpected exceptions and a broken worker."""

from __future__ import annotations

from collections.abc import Iterator

from campaigns.faults.invariants import FaultOutcome
from campaigns.faults.other_releases import doctored
from campaigns.faults.project_under_test import Ground
from campaigns.faults.registry import fault

RAISES = '    raise ZeroDivisionError("division by zero")\n'


@fault("internal error", "a rule raises an exception", quick=True, runs=False)
def bug_in_a_rule(ground: Ground) -> Iterator[FaultOutcome]:
    """The exit status is 3, and the message asks the user to report a bug."""
    broken = {"rules/file/input_passthrough.py": (r"^    affected = ", f"{RAISES}    affected = ")}
    variables = doctored(ground, "broken", broken)
    yield ground.check("--static", expected=(3,), variables=variables, bug=True)


@fault("internal error", "a report format raises an exception", runs=False)
def bug_in_a_format(ground: Ground) -> Iterator[FaultOutcome]:
    """The exit status is 3, and the message asks the user to report a bug."""
    broken = {"formats/sarif.py": (r"^def format\(", "def format(*_):\n    raise ZeroDivisionError\ndef _format(")}
    variables = doctored(ground, "broken", broken)
    yield ground.check("--static", "--output", "sarif=-", expected=(3,), true=False, variables=variables, bug=True)


@fault("internal error", "the worker raises an exception")
def bug_in_the_worker(ground: Ground) -> Iterator[FaultOutcome]:
    """There is no finding about a model."""
    broken = {"runtimes/worker/server.py": (r"^def main\(", "raise ZeroDivisionError\ndef main(")}
    variables = doctored(ground, "broken", broken)
    yield ground.check(expected=(3,), variables=variables)
    yield ground.check(expected=(0,), about="the next")
