"""`lock --upgrade --preview`: the gate before and after, and what to say of it."""

from __future__ import annotations

import functools
import itertools
import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from onnxgate.cli.options import CommonOptions
from onnxgate.config.project import Project
from onnxgate.lock.types import Lock
from onnxgate.preview import Preview
from onnxgate.scratch import scratch_folder


def show(project: Project, old: Lock, new: Lock, upgrades: Sequence[str], options: CommonOptions) -> int:
    """Print the preview. 1 where something would break or change beyond what is allowed, 3 where that is unknown."""
    from onnxgate.cli.outputs import uses_color, width
    from onnxgate.formats import preview_text
    from onnxgate.lock.writing import render

    if render(new) == render(old):
        click.echo("preview: nothing would change; the lock has the newest releases that the config asks for")
        return 0
    preview = _preview(project, old, new, options)
    click.echo(
        preview_text.format(preview, _command(upgrades), color=uses_color(), width=width(), quiet=options.quiet),
        nl=False,
    )
    return status(preview)


def _command(upgrades: Sequence[str]) -> str:
    """What writes the lock that was tried."""
    asked = [f"--upgrade {shlex.quote(each)}" if each else "--upgrade" for each in upgrades]
    return " ".join(["onnxgate lock", *asked])


def status(preview: Preview) -> int:
    """What is known to break is known, before what could not be found out."""
    if preview.breaks or preview.beyond:
        return 1
    return 3 if preview.undecided or preview.after.undecided else 0


def _preview(project: Project, old: Lock, new: Lock, options: CommonOptions) -> Preview:
    import datetime

    from onnxgate.cli.hosting import shown_host
    from onnxgate.findings import ALL_STAGES
    from onnxgate.request import Request
    from onnxgate.runtimes.store import support_dir
    from onnxgate.upgrading import preview

    request = Request(
        project=project,
        lock=old,
        lock_text=project.lock_path.read_text(encoding="utf-8"),
        lock_name=project.lock_path.name,
        models=project.models(),
        stages=frozenset(ALL_STAGES),
        today=datetime.datetime.now(tz=datetime.timezone.utc).date(),
        open_host=functools.partial(shown_host, project, options),
        honour_ignores=not options.no_ignores,
        support_folder=support_dir,
    )
    with scratch_folder() as scratch:
        numbers = itertools.count()
        return preview(request, new, options.fail_on, lambda: Path(scratch, str(next(numbers))))
