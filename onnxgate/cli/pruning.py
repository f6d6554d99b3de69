"""Removing from the cache what nobody needs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxgate.cli.options import CommonOptions

if TYPE_CHECKING:
    from onnxgate.runtimes.stock import Pruned

ANY_AGE = float("inf")


def prune(age_s: float | None, locks: Sequence[Path], options: CommonOptions, *, really: bool) -> int:
    """Remove what no lock names and nobody used for so long; without an age, all that is not in use."""
    from onnxgate.runtimes.stock import Pruner
    from onnxgate.runtimes.store import cache_dir

    before = ANY_AGE if age_s is None else time.time() - age_s
    named = set() if age_s is None else _named(locks, options)
    pruned = Pruner(cache_dir(), named=named, before=before, really=really).prune()
    _say(pruned, options, really=really)
    return 0


def _named(locks: Sequence[Path], options: CommonOptions) -> set[Path]:
    """The environments that locks name: those given, and the project's where there is one."""
    from onnxgate.cli.project import find_project
    from onnxgate.lock.loading import load_lock
    from onnxgate.runtimes.environments import Environments
    from onnxgate.runtimes.stock import folders_of
    from onnxgate.runtimes.store import cache_dir

    project = find_project(options)
    own = [project.lock_path] if project is not None and project.lock_path.is_file() else []
    environments = Environments(cache_dir(), offline=True)
    return folders_of([load_lock(path) for path in (*own, *locks)], environments)


def _say(pruned: Pruned, options: CommonOptions, *, really: bool) -> None:
    from onnxgate.formats.escape import log_line
    from onnxgate.formats.inventory_text import size
    from onnxgate.formats.phrases import count
    from onnxgate.runtimes.stock import OTHERS

    done = "removed" if really else "would remove"
    for name, number in pruned.removed.items() if not options.quiet else ():
        click.echo(log_line(f"{done} {f'{number} of {name}' if name in OTHERS else name}"))
    for name in pruned.in_use if not options.quiet else ():
        click.echo(log_line(f"left {name}: it is in use"))
    shared = pruned.size_bytes - pruned.freed_bytes
    aside = f"; another {size(shared)} stays in other caches, such as uv's" if shared else ""
    in_use = f", {len(pruned.in_use)} in use" if pruned.in_use else ""
    freed = "freed" if really else "would free"
    click.echo(f"{freed} {size(pruned.freed_bytes)}{aside}; {count(pruned.kept, 'environment')} kept{in_use}")
