"""The worker pool of a command, its progress display, and the timings that `-v` prints."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from onnxgate.cli.shared.options import CommonOptions
from onnxgate.core.escape import escape_log_line
from onnxgate.core.files import cache_dir
from onnxgate.core.findings import runtime_sort_key
from onnxgate.core.text import pluralize
from onnxgate.project.config.project import Project
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.environments.storage import shared_cache_dir
from onnxgate.runtimes.pool import LOOK_UP_ACTIVITY, PREPARE_ACTIVITY, UNSANDBOXED_NOTE, Progress, WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits, JobMeter


def open_pool(
    project: Project, options: CommonOptions, progress: Progress | None = None, meter: JobMeter | None = None
) -> WorkerPool:
    """Return a worker pool with the limits from the config. The caller has to close it."""
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
    """Open the pool with a live progress display if stderr is a terminal. With `-v`, print timings at the end."""
    with open_progress(quiet=options.quiet) as progress:
        log = ActivityLog(progress)
        with open_pool(project, options, log, meter) as pool:
            yield pool
    if options.verbose and not options.quiet:
        log_lines = log.lines(each=options.verbosity > 1)
        if log_lines:
            log_lines.insert(0, f"environments: {pool.environments.folder}")
        commands = (f"command: {command}" for command in dict.fromkeys(pool.environments.commands.executed))
        for line in (*log_lines, *commands):
            click.echo(escape_log_line(line), err=True)
    print_limit_notes(pool, options)


def print_limit_notes(pool: WorkerPool, options: CommonOptions) -> None:
    """Print the pool's notes: always those about unsandboxed engines, the others only with `-v`."""
    for note in pool.notes:
        if (options.verbose or UNSANDBOXED_NOTE in note) and not options.quiet:
            click.echo(escape_log_line(f"note: {note}"), err=True)


ACTIVITY_PHRASES = {PREPARE_ACTIVITY: "preparing the environment", LOOK_UP_ACTIVITY: "resolving wheels"}
"""How the progress display describes activities of a runtime other than jobs."""


class ActivityLog(Progress):
    """Record of each runtime's activities and their durations. Thread-safe."""

    def __init__(self, display: Progress) -> None:
        self._display = display
        self._started_s: dict[str, float] = {}
        self._finished: list[tuple[str, str, str, float]] = []  # runtime, activity, outcome, seconds
        self._lock = threading.Lock()

    def started(self, worker: str, activity: str) -> None:
        """Record that a runtime begins an activity."""
        with self._lock:
            self._started_s[worker] = time.monotonic()
        self._display.started(worker, activity)

    def finished(self, worker: str, activity: str, outcome: str) -> None:
        """Record that a runtime ended an activity."""
        with self._lock:
            elapsed_s = time.monotonic() - self._started_s.pop(worker, time.monotonic())
            self._finished.append((worker, activity, outcome, elapsed_s))
        self._display.finished(worker, activity, outcome)

    def lines(self, *, each: bool = False) -> list[str]:
        """Return a line with the durations for each runtime; with `each`, also a line for each activity."""
        lines = []
        for worker in sorted({worker for worker, *_ in self._finished}, key=runtime_sort_key):
            entries = [entry[1:] for entry in self._finished if entry[0] == worker]
            prepared = [(outcome, seconds) for activity, outcome, seconds in entries if activity == PREPARE_ACTIVITY]
            jobs = [seconds for activity, _, seconds in entries if activity not in ACTIVITY_PHRASES]
            parts = [f"environment {outcome} ({seconds:.1f} s)" for outcome, seconds in prepared]
            parts += [f"{pluralize(len(jobs), 'job')} ({sum(jobs):.1f} s)"] if jobs else []
            lines.append(f"{worker}: {', '.join(parts)}")
            if each:
                lines += (f"  {activity}: {outcome} ({seconds:.1f} s)" for activity, outcome, seconds in entries)
        return lines


@contextmanager
def open_progress(*, quiet: bool = False, board: ProgressBoard | None = None) -> Iterator[Progress]:
    """Show a live progress display on stderr during the `with` block, if stderr is a terminal that supports it."""
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
    """Hide the progress display during the `with` block, since it would overwrite printed lines."""
    return progress.aside() if isinstance(progress, ProgressBoard) else nullcontext()


class ProgressBoard(Progress):
    """A live progress display with one line per runtime. Thread-safe.

    With `jobs`, it shows only active runtimes and the number of completed jobs.
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
        """Show the progress display on the console during the `with` block."""
        self._console = console
        self._show()
        try:
            yield
        finally:
            self._hide()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Hide the progress display during the `with` block."""
        self._hide()
        try:
            yield
        finally:
            self._show()

    def _show(self) -> None:
        """Start a new live display. Restarting the previous one would erase lines printed in between."""
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
        """Record that a runtime ended an activity. Only completed jobs are counted."""
        with self._lock:
            self._activities[runtime] = "" if outcome != "unavailable" else "not available"
            self._done[runtime] = self._done.get(runtime, 0) + (activity not in ACTIVITY_PHRASES)

    def lines(self) -> RenderableType:
        """Return the lines of the progress display. Model names are not interpreted as markup."""
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
