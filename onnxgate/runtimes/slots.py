"""How many may be busy at once, and who comes first."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum


class Rank(IntEnum):
    """Who comes first where several wait."""

    AWAITED = 0  # others can only begin once this is done
    USUAL = 1
    AHEAD = 2  # nobody waits for it yet


class Slots:
    """So many may be busy at once. Who waits lets those of a higher rank go first."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: Counter[Rank] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, rank: Rank = Rank.USUAL) -> Iterator[None]:
        """Waits for a slot, and has it."""
        self._take(rank)
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify_all()

    def _take(self, rank: Rank) -> None:
        with self._changed:
            self._waiting[rank] += 1
            self._changed.wait_for(
                lambda: self._free > 0 and not any(self._waiting[each] for each in Rank if each < rank)
            )
            self._waiting[rank] -= 1
            self._free -= 1
            self._changed.notify_all()
