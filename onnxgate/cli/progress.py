"""What is being done right now: a live line per runtime on a terminal, nothing anywhere else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onnxgate.runtimes.progress import Progress, Silent

if TYPE_CHECKING:
    from rich.console import RenderableType

PREPARE = "prepare"


@contextmanager
def display(*, quiet: bool = False) -> Iterator[Progress]:
    """A live display on stderr while the block runs, where stderr is a terminal that can have one."""
    if quiet or not sys.stderr.isatty():
        yield Silent()
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, emoji=False, highlight=False)
    if console.is_dumb_terminal:
        yield Silent()
        return
    board = Board()
    with Live(get_renderable=board.lines, console=console, transient=True, refresh_per_second=8, redirect_stdout=False):
        yield board


class Board:
    """One line for each runtime that has begun; told from several threads."""

    def __init__(self) -> None:
        self._doing: dict[str, str] = {}
        self._done: dict[str, int] = {}
        self._lock = threading.Lock()

    def started(self, seat: str, what: str) -> None:
        """The runtime begins with something."""
        with self._lock:
            self._doing[seat] = what
            self._done.setdefault(seat, 0)

    def finished(self, seat: str, what: str, outcome: str) -> None:
        """It is done with it; an environment that is ready is no job."""
        with self._lock:
            self._doing[seat] = "" if outcome != "unavailable" else "not available here"
            self._done[seat] = self._done.get(seat, 0) + (what != PREPARE)

    def lines(self) -> RenderableType:
        """What is shown now; strings of models are text, never markup."""
        from rich.table import Table
        from rich.text import Text

        from onnxgate.formats.escape import log_line

        table = Table.grid(padding=(0, 2))
        with self._lock:
            for seat, doing in sorted(self._doing.items()):
                words = (log_line(seat), log_line(said(doing)), f"{self._done[seat]} done")
                table.add_row(
                    *(Text(word, style=style, no_wrap=True) for word, style in zip(words, STYLES, strict=True))
                )
        return table


STYLES = ("bold", "", "dim")


def said(doing: str) -> str:
    """What a runtime does, in words: `preparing its environment`, `run classifier.onnx`."""
    if doing == PREPARE:
        return "preparing its environment"
    return doing or "waiting"
