"""The host that a command's jobs run in, as its options and the config want it."""

from __future__ import annotations

from onnxgate.cli.options import CommonOptions
from onnxgate.config.project import Project
from onnxgate.runtimes.environments import Environments
from onnxgate.runtimes.host import Host, JobLimits
from onnxgate.runtimes.progress import Progress
from onnxgate.runtimes.store import cache_dir


def open_host(project: Project, options: CommonOptions, progress: Progress | None = None) -> Host:
    """A host with the config's limits; the caller closes it."""
    limits = project.config.limits
    return Host(
        Environments(cache_dir(), offline=options.offline),
        options.jobs,
        JobLimits(time_s=limits.time_s, memory_mib=limits.memory_mib),
        progress,
    )
