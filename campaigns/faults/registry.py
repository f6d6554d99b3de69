"""All faults by name, and what is known of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from campaigns.faults.invariants import Seen
from campaigns.faults.project_under_test import Ground

Make = Callable[[Ground], Iterator[Seen]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: a name that stays, a group, the words of the table, and what makes it."""

    name: str
    group: str
    what: str
    make: Make
    quick: bool  # part of the usual tests, not of the exhaustive run alone
    runs: bool  # needs real runtimes


REGISTERED: dict[str, Fault] = {}


def fault(group: str, what: str, *, quick: bool = False, runs: bool = True) -> Callable[[Make], Make]:
    """Register what makes a fault; its function's name is its own."""

    def register(make: Make) -> Make:
        name = make.__name__.replace("_", "-")
        assert name not in REGISTERED
        REGISTERED[name] = Fault(name, group, what, make, quick, runs)
        return make

    return register
