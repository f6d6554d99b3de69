"""Registry of all faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from campaigns.faults.invariants import FaultOutcome
from campaigns.faults.project_under_test import Ground

Make = Callable[[Ground], Iterator[FaultOutcome]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `what` is its description in the table; `make` runs onnxgate under the fault."""

    name: str
    group: str
    what: str
    make: Make
    quick: bool  # also part of the regular tests
    runs: bool  # needs real runtimes


REGISTERED: dict[str, Fault] = {}


def fault(group: str, what: str, *, quick: bool = False, runs: bool = True) -> Callable[[Make], Make]:
    """Register a fault under the name of its function."""

    def register(make: Make) -> Make:
        name = make.__name__.replace("_", "-")
        assert name not in REGISTERED
        REGISTERED[name] = Fault(name, group, what, make, quick, runs)
        return make

    return register
