"""`onnxgate fix`: repairs what can be proven safe."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxgate.cli.options import CommonOptions, common_options

if TYPE_CHECKING:
    from onnxgate.config.project import Project
    from onnxgate.proving import Proof
    from onnxgate.repairing import Repair, Wish
    from onnxgate.request import Request

BACKUPS = "backups"
"""The folder below the cache's: outside of the repository, where git would track what is kept."""
HANG = 2
NARROWEST = 40
LEFT = 1
NO_VERDICT = 3
NOUNS = {
    "sound": "with nothing to fix",
    "repaired": "repaired",
    "unsafe": "waiting for `--unsafe`",
    "left": "that no fix can repair",
    "refuted": "whose repair was refused",
    "unproven": "whose repair is not proven",
    "away": "that cannot be read here",
    "not written": "not written",
}


@click.command("fix")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--rule", "rules", multiple=True, metavar="NAME", help="Only what this rule found. Repeatable.")
@click.option(
    "--unsafe",
    is_flag=True,
    help="Also repairs that change a name, and those that could be proven on some of the runtimes alone.",
)
@click.option("--dry-run", is_flag=True, help="Write nothing: say what would be changed, and prove it.")
@click.option(
    "--against",
    metavar="REF",
    help="Also what `check --against REF` finds: a data file that the model did not need at that git revision.",
)
@click.option(
    "--target",
    metavar="REQUIREMENT",
    help="Without a config: the releases that are to load it ('onnxruntime>=1.18').",
)
@common_options
def command(
    paths: tuple[Path, ...],
    rules: tuple[str, ...],
    unsafe: bool,
    dry_run: bool,
    against: str | None,
    target: str | None,
    options: CommonOptions,
) -> int:
    """Repair what can be proven safe: the result computes what the model computed, on every locked runtime.

    Each repair is shown and proven before anything is written: old and new are run on the same inputs at both levels,
    and the static stages must find the fault gone and no other. The old file is kept, and its path is said.

    The exit status is 0 where nothing is left to fix, 1 where something is (with --dry-run, or for --unsafe), and 3
    where a repair could not be proven.
    """
    from onnxgate.repairing import Wish

    wish = Wish(_known(rules), unsafe)
    project, request, runs = _asked(paths, target, against, options)
    counts: Counter[str] = Counter()
    accepted = 0
    for state, repair in _repaired(project, request, wish, options, runs=runs, dry_run=dry_run):
        counts[state] += 1
        accepted += repair.accepted
    _say([_summed_up(counts, dry_run=dry_run, locked=runs, named=bool(paths)), *_left_accepted(accepted)])
    return _status(counts, dry_run=dry_run)


def _known(rules: tuple[str, ...]) -> frozenset[str]:
    from onnxgate.errors import UsageError
    from onnxgate.repairing import rules_with_fixes

    known = rules_with_fixes()
    for rule in rules:
        if rule not in known:
            message = f"no fix answers `{rule}`"
            raise UsageError(message, hint=f"rules with a fix: {', '.join(sorted(known))}")
    return frozenset(rules)


def _asked(
    paths: tuple[Path, ...], target: str | None, against: str | None, options: CommonOptions
) -> tuple[Project, Request, bool]:
    """The project, what is asked of it, and whether there are runtimes that can be started."""
    from onnxgate.cli.project import find_project

    project = find_project(options) if target is None else None
    if project is None:
        return _of_files(paths, target, options)
    return project, _of_project(project, paths, against, options), True


def _of_files(paths: tuple[Path, ...], target: str | None, options: CommonOptions) -> tuple[Project, Request, bool]:
    """Files that no config knows: nothing is promised of them but what `--target` says."""
    import dataclasses

    from onnxgate.cli.unconfigured import ask
    from onnxgate.lock.types import Lock

    request = ask(paths, target, options, "minors")
    if target is None:
        request = dataclasses.replace(request, lock=Lock())
    return request.project, request, False


def _of_project(project: Project, paths: tuple[Path, ...], against: str | None, options: CommonOptions) -> Request:
    import datetime

    from onnxgate.baseline.choosing import choose
    from onnxgate.cli.hosting import shown_host
    from onnxgate.config.discovery import find_root
    from onnxgate.errors import LockError
    from onnxgate.findings import STATIC_STAGES
    from onnxgate.lock.loading import load_lock
    from onnxgate.request import Request
    from onnxgate.runtimes.store import support_dir

    if not project.lock_path.exists():
        raise LockError(f"there is no `{project.lock_path.name}`", hint=_without_lock(project, paths))
    chosen = choose(find_root(project.folder), against or "none", os.environ, offline=options.offline)
    return Request(
        project=project,
        lock=load_lock(project.lock_path),
        lock_text=project.lock_path.read_text(encoding="utf-8"),
        lock_name=project.lock_path.name,
        models=project.models([str(path) for path in paths], base=options.start),
        stages=frozenset(STATIC_STAGES),
        today=datetime.datetime.now(tz=datetime.timezone.utc).date(),
        open_host=functools.partial(shown_host, project, options),
        honour_ignores=not options.no_ignores,
        support_folder=support_dir,
        against=chosen.revision,
    )


def _without_lock(project: Project, paths: tuple[Path, ...]) -> str:
    """What to do first; a model that cannot be locked as it is can be repaired without a lock."""
    import shlex

    requirement = next((each.runtime for each in project.config.targets.values()), "onnxruntime")
    command = ["onnxgate", "fix", "--target", requirement, *map(str, paths or ("PATH",))]
    return f"run `onnxgate lock`; what that refuses is repaired without it: `{shlex.join(command)}`"


def _repaired(
    project: Project, request: Request, wish: Wish, options: CommonOptions, *, runs: bool, dry_run: bool
) -> Iterator[tuple[str, Repair]]:
    """What became of each model, which is said as soon as it is known."""
    from onnxgate.cli.hosting import open_host, say_what_is_not_limited
    from onnxgate.cli.progress import aside, display
    from onnxgate.repairing import repairs
    from onnxgate.scratch import scratch_folder

    with (
        scratch_folder() as scratch,
        display(quiet=options.quiet) as progress,
        open_host(project, options, progress) as host,
    ):
        for repair in repairs(request, wish, host, Path(scratch), runs=runs):
            state, lines = _settle(project, repair, options, dry_run=dry_run)
            with aside(progress):
                _say([] if options.quiet else lines)
            yield state, repair
    say_what_is_not_limited(host, options)


def _settle(project: Project, repair: Repair, options: CommonOptions, *, dry_run: bool) -> tuple[str, list[str]]:
    from onnxgate.errors import OnnxgateError

    lines = list(_told(repair, options))
    if repair.state != "repaired" or dry_run:
        return repair.state, [*lines, *_unwritten(repair)]
    try:
        kept = _write(project, repair)
    except OnnxgateError as error:
        return "not written", [*lines, f"  not written: {error.message}", *_hint(error.hint), ""]
    return "repaired", [*lines, f"  written; the old file is kept: {kept}", *_afterwards(repair), ""]


def _write(project: Project, repair: Repair) -> Path:
    from onnxgate.repair.replacing import place_of, replace
    from onnxgate.runtimes.store import cache_dir
    from onnxgate.trying import root_of

    assert repair.fresh is not None  # what is proven was made
    place = place_of(repair.model.absolute, root_of(project, repair.model), repair.sha256)
    return replace(place, repair.fresh, cache_dir() / BACKUPS)


def _told(repair: Repair, options: CommonOptions) -> Iterator[str]:
    """What is wrong, what would be changed, and the proof; nothing of a model that has nothing to fix."""
    if repair.state == "sound":
        return
    yield repair.model.path
    yield from (f"  {each.level} {each.rule}: {each.message}" for each in repair.findings)
    yield from (f"  fix: {word}" for word in repair.words)
    for name, left in repair.left:
        yield from (f"  no fix by `{name}`: {left.reason}", *_hint(left.hint))
    yield from (f"  only with `--unsafe`: {each}" for each in repair.unsafe)
    yield from _changed(repair, options)
    if repair.proof is not None and repair.proof.rows:
        yield from _proof(repair.proof)


def _changed(repair: Repair, options: CommonOptions) -> Iterator[str]:
    from onnxgate.formats import diff_text

    if repair.difference is not None:
        text = diff_text.format(repair.difference, verbose=options.verbose)
        yield from (f"    {line}" if line else "" for line in text.splitlines())


def _proof(proof: Proof) -> Iterator[str]:
    yield f"  proof: {_count(proof.cases, 'input case')}, old and new on {_count(len(proof.rows), 'runtime')}"
    yield from (f"    {row.runtime}: {row.text}" for row in proof.rows)


def _unwritten(repair: Repair) -> list[str]:
    """The last word on a model that is not written."""
    if repair.state == "sound":
        return []
    if repair.state == "repaired":
        return ["  not written: this is a dry run", *_afterwards(repair), ""]
    why = f": {repair.reason}" if repair.reason else ""
    return [f"  nothing is written{why}", *_hint(repair.hint), ""]


def _afterwards(repair: Repair) -> Iterator[str]:
    """What is left to the user."""
    settings = repair.model.settings
    if made_from := settings.source or " ".join(settings.command or ()):
        yield f"  note: it is exported from `{made_from}`, and the next export writes it anew: repair that, too"
    for name in repair.unlinked:
        yield f"  note: it does not use `{name}` any more; remove the file where no other model does"


def _hint(text: str | None) -> list[str]:
    return [f"    hint: {text}"] if text else []


def _left_accepted(count: int) -> list[str]:
    if not count:
        return []
    return [f"note: {_count(count, 'finding')} accepted by `[[ignore]]`, left alone; `--no-ignores` repairs these, too"]


def _summed_up(counts: Counter[str], *, dry_run: bool, locked: bool, named: bool) -> str:
    if not counts:
        return f"nothing to fix: {'what was named is no model' if named else 'there is no model'} of this project"
    if not counts.keys() - {"sound"}:
        return f"nothing to fix in {_count(counts['sound'], 'model')}"
    nouns = {**NOUNS, "repaired": "that can be repaired"} if dry_run else NOUNS
    said = ", ".join(f"{_count(counts[state], 'model')} {noun}" for state, noun in nouns.items() if counts[state])
    return f"{said}; run `onnxgate lock` next" if counts["repaired"] and locked and not dry_run else said


def _status(counts: Counter[str], *, dry_run: bool) -> int:
    """What is known to be left is known, before what is not known."""
    if counts["unsafe"] or counts["left"] or counts["refuted"] or (dry_run and counts["repaired"]):
        return LEFT
    return NO_VERDICT if counts["unproven"] or counts["away"] or counts["not written"] else 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _say(lines: Iterable[str]) -> None:
    """Lines as wide as the terminal, where there is one; words and paths are left whole."""
    import textwrap

    from onnxgate.cli.outputs import width
    from onnxgate.formats.escape import log_line

    room = width()
    for line in lines:
        shown = log_line(line)
        hang = " " * (len(shown) - len(shown.lstrip()) + HANG)
        wrapped = textwrap.wrap(
            shown, max(room, NARROWEST), subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
        )
        click.echo("\n".join(wrapped) if room else shown)
