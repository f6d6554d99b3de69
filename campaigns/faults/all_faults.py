"""All faults, in the order of the table."""

from __future__ import annotations

from campaigns.faults import (
    caches,
    clock,
    damaged_environments,
    full_disk,
    git,
    internal_errors,
    misbehaving_runtimes,
    other_releases,
    package_index,
    process_environment,
    standard_streams,
    termination,
)
from campaigns.faults.registry import REGISTERED, Fault

MODULES = (
    full_disk,
    caches,
    termination,
    standard_streams,
    package_index,
    damaged_environments,
    clock,
    other_releases,
    misbehaving_runtimes,
    git,
    process_environment,
    internal_errors,
)
FAULTS: dict[str, Fault] = {
    name: each for module in MODULES for name, each in REGISTERED.items() if each.make.__module__ == module.__name__
}
