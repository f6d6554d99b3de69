"""From which release on something works, and up to which one it did."""

from __future__ import annotations

from collections.abc import Sequence


def span(releases: Sequence[str], works: Sequence[bool]) -> tuple[str, str]:
    """The first release from which on it works in all, and the last one up to which it did, given them ascending.

    "" where there is none, and both where it works everywhere.
    """
    if all(works):
        return "", ""
    after = list(reversed(works)).index(False)
    before = list(works).index(False)
    return releases[-after] if after else "", releases[before - 1] if before else ""
