"""The worker pool of a command, and its progress display."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from onnxgate.cli.shared.options import CommonOptions
from onnxgate.core.escape import escape_log_line
from onnxgate.project.config.project import Project
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.environments.storage import cache_dir, shared_cache_dir
from onnxgate.runtimes.pool import LOOK_UP_ACTIVITY, PREPARE_ACTIVITY, UNSANDBOXED_NOTE, Progress, WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits, JobMeter


def open_pool(
    project: Project, options: CommonOptions, progress: Progress | None = None, meter: JobMeter | None = None
) -> WorkerPool:
    """Return a pool with the limits of the config; the caller closes it."""
    limits = project.config.limits
    return WorkerPool(
        Environments(cache_dir(), offline=options.offline, shared=shared_cache_dir()),
        options.jobs,
        JobLimits(time_s=limits.time_s, memory_mib=limits.memory_mib),
        progress,
        meter=meter,
    )


@contextmanager
def open_pool_with_progress(
    project: Project, options: CommonOptions, meter: JobMeter | None = None
) -> Iterator[WorkerPool]:
    """Open the pool with a live progress display if standard error is a terminal."""
    with open_progress(quiet=options.quiet) as progress, open_pool(project, options, progress, meter) as pool:
        yield pool
    print_limit_notes(pool, options)


def print_limit_notes(pool: WorkerPool, options: CommonOptions) -> None:
    """Print notes of the pool: always for an engine that runs unsandboxed, other limits only with `-v`."""
    for note in pool.notes:
        if (options.verbose or UNSANDBOXED_NOTE in note) and not options.quiet:
            click.echo(escape_log_line(f"note: {note}"), err=True)


ACTIVITY_PHRASES = {PREPARE_ACTIVITY: "preparing its environment", LOOK_UP_ACTIVITY: "looking up its wheels"}
"""Texts for activities that are not jobs."""


@contextmanager
def open_progress(*, quiet: bool = False, board: ProgressBoard | None = None) -> Iterator[Progress]:
    """Show a live display on stderr while the block runs, if stderr is a terminal that supports it."""
    if quiet or not sys.stderr.isatty():
        yield Progress()
        return
    console = Console(stderr=True, emoji=False, highlight=False)
    if console.is_dumb_terminal:
        yield Progress()
        return
    board = board or ProgressBoard()
    with board.on(console):
        yield board


def pause_progress(progress: Progress) -> AbstractContextManager[None]:
    """Hide the display while the block prints: its lines would be overwritten."""
    return progress.aside() if isinstance(progress, ProgressBoard) else nullcontext()


class ProgressBoard(Progress):
    """A live display with one line per runtime. Its methods are called from several threads.

    With `jobs`, it has a line for each active runtime, and the number of finished jobs of that many.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self._jobs = jobs
        self._activities: dict[str, str] = {}
        self._done: dict[str, int] = {}
        self._lock = threading.Lock()
        self._console: Console | None = None
        self._live: Live | None = None

    @contextmanager
    def on(self, console: Console) -> Iterator[None]:
        """Show the display on the console while the block runs."""
        self._console = console
        self._show()
        try:
            yield
        finally:
            self._hide()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Hide the display while the block runs."""
        self._hide()
        try:
            yield
        finally:
            self._show()

    def _show(self) -> None:
        """Start a new display: a reused one would erase as many lines as it had, whatever they are now."""
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

    def started(self, runtime: str, activity: str) -> None:
        """Record that a runtime begins an activity."""
        with self._lock:
            self._activities[runtime] = activity
            self._done.setdefault(runtime, 0)

    def finished(self, runtime: str, activity: str, outcome: str) -> None:
        """Record that an activity ended; a prepared environment does not count as a job."""
        with self._lock:
            self._activities[runtime] = "" if outcome != "unavailable" else "not available here"
            self._done[runtime] = self._done.get(runtime, 0) + (activity not in ACTIVITY_PHRASES)

    def lines(self) -> RenderableType:
        """Return the current lines; names of models are text, never markup."""
        table = Table.grid(padding=(0, 2))
        with self._lock:
            for runtime, activity in sorted(self._activities.items()):
                if self._jobs is not None and not activity:
                    continue
                table.add_row(
                    Text(escape_log_line(runtime), style="bold", no_wrap=True),
                    Text(escape_log_line(ACTIVITY_PHRASES.get(activity, activity) or "waiting"), no_wrap=True),
                    Text(f"{self._done[runtime]} done", style="dim", no_wrap=True),
                )
            finished = sum(self._done.values())
        if self._jobs is None:
            return table
        return Group(table, Text(f"{finished} of {self._jobs} done", style="dim"))
