"""`onnxgate runtimes`: the locked environments on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxgate.cli.options import CommonOptions, common_options, documents_option

if TYPE_CHECKING:
    from onnxgate.inventory import Inventory

FORMATS = ("text", "json", "markdown")


@click.group("runtimes")
def command() -> None:
    """List, prepare or remove the environments that locked runtimes run in.

    They lie in `ONNXGATE_CACHE_DIR`, else in the user's cache folder, and are shared by all projects.
    """


@command.command("list", short_help="Say which are ready, and what they take.")
@documents_option
@common_options
def list_(outputs: tuple[str, ...], options: CommonOptions) -> int:
    """Say of each locked runtime whether its environment is ready, and what it takes.

    Nothing is made or fetched. Also said are the interpreters that were found for them.
    """
    from onnxgate.cli.outputs import Sink, parse_outputs, write_sinks

    sinks = parse_outputs(outputs, FORMATS)
    found = _inventory(options)

    def rendered(sink: Sink, color: bool, width: int) -> str:
        return _render(found, sink.format, options, color=color, width=width)

    write_sinks(sinks, rendered)
    return 0


def _inventory(options: CommonOptions) -> Inventory:
    from onnxgate.cli.project import load_project
    from onnxgate.lock.loading import load_lock
    from onnxgate.runtimes import stock
    from onnxgate.runtimes.environments import Environments
    from onnxgate.runtimes.store import cache_dir

    project = load_project(options)
    lock = load_lock(project.lock_path)
    return stock.inventory(lock, project.folder, cache_dir(), Environments(cache_dir(), offline=True))


def _render(inventory: Inventory, format_name: str, options: CommonOptions, *, color: bool, width: int) -> str:
    from onnxgate.formats import inventory_json, inventory_markdown, inventory_text

    match format_name:
        case "json":
            return inventory_json.format(inventory)
        case "markdown":
            return inventory_markdown.format(inventory)
        case _:
            return inventory_text.format(inventory, color=color, width=width, quiet=options.quiet)


@command.command("prepare", short_help="Make them, or those of some targets.")
@click.argument("names", nargs=-1)
@common_options
def prepare(names: tuple[str, ...], options: CommonOptions) -> int:
    """Make the environments of all locked runtimes, or of those that NAMES select: targets or runtimes.

    A runtime is named as in the lock: `onnxruntime 1.18.1`, in quotes. What is ready is left as it is. The exit status
    is 3 where one cannot be had; not where only targets want it that are not required.
    """
    from onnxgate.cli.preparing import prepare as work

    return work(names, options)


@command.command("prune", short_help="Remove what no lock names and nobody used lately.")
@click.option("--all", "everything", is_flag=True, help="Remove what the locks name, too, and whatever its age.")
@click.option(
    "--older-than",
    "age",
    default="30d",
    show_default=True,
    metavar="AGE",
    help="Leave what was used since: `12h`, `30d`, `0d`.",
)
@click.option(
    "--lock",
    "locks",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Leave what this lock names, too, besides the project's own. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@common_options
def prune(everything: bool, age: str, locks: tuple[Path, ...], dry_run: bool, options: CommonOptions) -> int:
    """Remove from the cache what no lock names and nobody used for a while.

    These are environments, results, inputs, harvests, and all else that can be made again. What a running check works
    with stays in any case.
    """
    from onnxgate.cli.pruning import prune as work

    return work(None if everything else seconds(age), locks, options, really=not dry_run)


def seconds(age: str) -> float:
    """`30d` in seconds.

    Raises:
        UsageError: it is no age.
    """
    from onnxgate.errors import UsageError

    found = re.fullmatch(r"(\d{1,6})([hdw])", age.strip(), re.ASCII)
    if found is None:
        raise UsageError(f"`--older-than` is `{age}`, which is no age", hint="`12h`, `30d` or `8w`")
    return int(found[1]) * {"h": 3600, "d": 86400, "w": 604800}[found[2]]
