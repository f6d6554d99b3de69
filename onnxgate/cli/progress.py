"""What is being done right now: a live line per runtime on a terminal, nothing anywhere else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from onnxgate.runtimes.progress import Progress, Silent

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

PREPARE = "prepare"
LOOK_UP = "look up"
WORDS = {PREPARE: "preparing its environment", LOOK_UP: "looking up its wheels"}
"""What is no job."""


@contextmanager
def display(*, quiet: bool = False, board: Board | None = None) -> Iterator[Progress]:
    """A live display on stderr while the block runs, where stderr is a terminal that can have one."""
    if quiet or not sys.stderr.isatty():
        yield Silent()
        return
    from rich.console import Console

    console = Console(stderr=True, emoji=False, highlight=False)
    if console.is_dumb_terminal:
        yield Silent()
        return
    board = board or Board()
    with board.on(console):
        yield board


def aside(progress: Progress) -> AbstractContextManager[None]:
    """Nothing is displayed while the block prints: a line would begin where the display ends, and be painted over."""
    return progress.aside() if isinstance(progress, Board) else nullcontext()


class Board:
    """One line for each runtime that has begun; told from several threads."""

    def __init__(self) -> None:
        self._doing: dict[str, str] = {}
        self._done: dict[str, int] = {}
        self._lock = threading.Lock()
        self._console: Console | None = None
        self._live: Live | None = None

    @contextmanager
    def on(self, console: Console) -> Iterator[None]:
        """It is displayed there while the block runs."""
        self._console = console
        self._show()
        try:
            yield
        finally:
            self._hide()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """It is not displayed while the block runs."""
        self._hide()
        try:
            yield
        finally:
            self._show()

    def _show(self) -> None:
        """By a new display each time: a used one would take away as many lines as it had at last, whatever is there."""
        from rich.live import Live

        if self._console is not None:
            self._live = Live(
                get_renderable=self.lines,
                console=self._console,
                transient=True,
                refresh_per_second=8,
                redirect_stdout=False,
            )
            self._live.start()

    def _hide(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def started(self, seat: str, what: str) -> None:
        """The runtime begins with something."""
        with self._lock:
            self._doing[seat] = what
            self._done.setdefault(seat, 0)

    def finished(self, seat: str, what: str, outcome: str) -> None:
        """It is done with it; an environment that is ready is no job."""
        with self._lock:
            self._doing[seat] = "" if outcome != "unavailable" else "not available here"
            self._done[seat] = self._done.get(seat, 0) + (what not in WORDS)

    def lines(self) -> RenderableType:
        """What is shown now; strings of models are text, never markup."""
        from rich.table import Table
        from rich.text import Text

        from onnxgate.formats.escape import log_line

        table = Table.grid(padding=(0, 2))
        with self._lock:
            for seat, doing in self._shown():
                words = (log_line(seat), log_line(said(doing)), f"{self._done[seat]} done")
                table.add_row(
                    *(Text(word, style=style, no_wrap=True) for word, style in zip(words, STYLES, strict=True))
                )
        return table

    def _shown(self) -> Iterable[tuple[str, str]]:
        return sorted(self._doing.items())


class Tally(Board):
    """For many runtimes: a line for each that is at work, and how many of all jobs are done."""

    def __init__(self, jobs: int) -> None:
        super().__init__()
        self._jobs = jobs

    def lines(self) -> RenderableType:
        """The runtimes at work, above the count."""
        from rich.console import Group
        from rich.text import Text

        at_work = super().lines()
        with self._lock:
            done = sum(self._done.values())
        return Group(at_work, Text(f"{done} of {self._jobs} done", style="dim"))

    def _shown(self) -> Iterable[tuple[str, str]]:
        return sorted(each for each in self._doing.items() if each[1])


STYLES = ("bold", "", "dim")


def said(doing: str) -> str:
    """What a runtime does, in words: `preparing its environment`, `run classifier.onnx`."""
    return WORDS.get(doing, doing) or "waiting"
