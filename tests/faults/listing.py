"""All faults, in the order of the table."""

from __future__ import annotations

from tests.faults import (
    bugs,
    caches,
    clock,
    disk,
    git,
    halves,
    index,
    moments,
    runtimes,
    streams,
    surroundings,
    versions,
)
from tests.faults.catalogue import REGISTERED, Fault

MODULES = (disk, caches, moments, streams, index, halves, clock, versions, runtimes, git, surroundings, bugs)
FAULTS: dict[str, Fault] = {
    name: each for module in MODULES for name, each in REGISTERED.items() if each.make.__module__ == module.__name__
}
