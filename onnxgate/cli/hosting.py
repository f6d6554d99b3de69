"""The host that a command's jobs run in, as its options and the config want it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from onnxgate.cli.options import CommonOptions
from onnxgate.cli.progress import display
from onnxgate.config.project import Project
from onnxgate.runtimes.desk import WITHOUT_LIMITS
from onnxgate.runtimes.environments import Environments
from onnxgate.runtimes.host import Host, JobLimits
from onnxgate.runtimes.metering import Meter
from onnxgate.runtimes.progress import Progress
from onnxgate.runtimes.store import cache_dir, kept_dir


def open_host(
    project: Project, options: CommonOptions, progress: Progress | None = None, meter: Meter | None = None
) -> Host:
    """A host with the config's limits; the caller closes it."""
    limits = project.config.limits
    return Host(
        Environments(cache_dir(), offline=options.offline, kept=kept_dir()),
        options.jobs,
        JobLimits(time_s=limits.time_s, memory_mib=limits.memory_mib),
        progress,
        meter=meter,
    )


@contextmanager
def shown_host(project: Project, options: CommonOptions, meter: Meter | None = None) -> Iterator[Host]:
    """The same with a live display of what is being done, where standard error is a terminal."""
    with display(quiet=options.quiet) as progress, open_host(project, options, progress, meter) as host:
        yield host
    say_what_is_not_limited(host, options)


def say_what_is_not_limited(host: Host, options: CommonOptions) -> None:
    """An engine that runs without limits is always named; what the system cannot take away, where more is asked for."""
    from onnxgate.formats.escape import log_line

    for note in host.notes:
        if (options.verbose or WITHOUT_LIMITS in note) and not options.quiet:
            click.echo(log_line(f"note: {note}"), err=True)
