"""`onnxgate fix`: repairs what can be proven safe."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec

from onnxgate.cli.shared.options import EXIT_FAIL, EXIT_UNDECIDED, CommonOptions, common_options
from onnxgate.cli.shared.outputs import terminal_width
from onnxgate.cli.shared.project_request import find_project, make_project_request
from onnxgate.cli.shared.worker_pool import open_pool, open_progress, pause_progress, print_limit_notes
from onnxgate.commands.files_without_config import make_request
from onnxgate.commands.fix.model_file import replace_model_file
from onnxgate.commands.fix.pipeline import FixOptions, FixResult, fix_models, fixable_rules, model_root
from onnxgate.core.errors import LockError, OnnxgateError, UsageError
from onnxgate.core.escape import escape_log_line
from onnxgate.core.files import temporary_folder
from onnxgate.core.findings import STATIC_STAGES
from onnxgate.core.text import pluralize
from onnxgate.formats import model_diff
from onnxgate.gate.request import Baseline, GateRequest
from onnxgate.project.config.project import Project
from onnxgate.project.git.baseline import choose_baseline
from onnxgate.project.git.repository import find_git_root
from onnxgate.project.lock.lock_file import load_lock
from onnxgate.project.lock.types import Lock
from onnxgate.runtimes.environments.storage import cache_dir

BACKUP_FOLDER = "backups"
"""The folder of backups in the cache: outside of the repository, where git would track it."""
HANGING_INDENT = 2
MIN_WIDTH = 40
STATE_PHRASES = {
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
    fixable = fixable_rules()
    for rule in rules:
        if rule not in fixable:
            hint = f"rules with a fix: {', '.join(sorted(fixable))}"
            raise UsageError(f"no fix answers `{rule}`", hint=hint)
    wish = FixOptions(frozenset(rules), unsafe)
    project, request, runs = _make_request(paths, target, against, options)
    counts: Counter[str] = Counter()
    accepted = 0
    for state, repair in _fix_models(project, request, wish, options, runs=runs, dry_run=dry_run):
        counts[state] += 1
        accepted += repair.accepted
    _print_wrapped([_render_summary(counts, dry_run=dry_run, locked=runs, named=bool(paths))])
    if accepted:
        ignored = f"{pluralize(accepted, 'finding')} accepted by `[[ignore]]`"
        _print_wrapped([f"note: {ignored}, left alone; `--no-ignores` repairs these, too"])
    if counts["unsafe"] or counts["left"] or counts["refuted"] or (dry_run and counts["repaired"]):
        return EXIT_FAIL  # a known problem counts before one that could not be decided
    return EXIT_UNDECIDED if counts["unproven"] or counts["away"] or counts["not written"] else 0


def _make_request(
    paths: tuple[Path, ...], target: str | None, against: str | None, options: CommonOptions
) -> tuple[Project, GateRequest, bool]:
    """Return the project, the request, and if there are runtimes that can be started."""
    project = find_project(options) if target is None else None
    if project is None:
        request = make_request(paths, target, options.start, options.jobs, "minors")
        if target is None:
            request = msgspec.structs.replace(request, checkout=msgspec.structs.replace(request.checkout, lock=Lock()))
        return request.project, request, False
    if not project.lock_path.exists():  # a model that cannot be locked as it is can be repaired without a lock
        requirement = next((target.runtime for target in project.config.targets.values()), "onnxruntime")
        repair = shlex.join(["onnxgate", "fix", "--target", requirement, *map(str, paths or ("PATH",))])
        hint = f"run `onnxgate lock`; what that refuses is repaired without it: `{repair}`"
        raise LockError(f"there is no `{project.lock_path.name}`", hint=hint)
    chosen = choose_baseline(find_git_root(project.folder), against or "none", os.environ, offline=options.offline)
    lock = load_lock(project.lock_path)
    models = project.models([str(path) for path in paths], base=options.start)
    request = make_project_request(project, lock, models, frozenset(STATIC_STAGES), options)
    return project, msgspec.structs.replace(request, baseline=Baseline(chosen.revision)), True


def _fix_models(
    project: Project, request: GateRequest, wish: FixOptions, options: CommonOptions, *, runs: bool, dry_run: bool
) -> Iterator[tuple[str, FixResult]]:
    """Yield the state of each model, and print it as soon as it is known."""
    with (
        temporary_folder() as scratch,
        open_progress(quiet=options.quiet) as progress,
        open_pool(project, options, progress) as pool,
    ):
        for repair in fix_models(request, wish, pool, Path(scratch), runs=runs):
            state, lines = _apply_result(project, repair, options, dry_run=dry_run)
            with pause_progress(progress):
                _print_wrapped([] if options.quiet else lines)
            yield state, repair
    print_limit_notes(pool, options)


def _apply_result(
    project: Project, repair: FixResult, options: CommonOptions, *, dry_run: bool
) -> tuple[str, list[str]]:
    """Write a repaired model. Return its state and the lines to print; none of one that has nothing to fix."""
    if repair.state == "sound":
        return repair.state, []
    lines = list(_render_result(repair, options))
    if repair.state != "repaired":
        reason = f": {repair.reason}" if repair.reason else ""
        return repair.state, [*lines, f"  nothing is written{reason}", *_hint_lines(repair.hint), ""]
    if dry_run:
        return repair.state, [*lines, "  not written: this is a dry run", *_render_follow_ups(repair), ""]
    try:
        assert repair.repaired is not None  # what is proven was made
        root, old_sha256 = model_root(project, repair.model), repair.repaired.replaced_sha256
        backups = cache_dir() / BACKUP_FOLDER
        backup = replace_model_file(repair.model.absolute, root, old_sha256, repair.repaired.path, backups)
    except OnnxgateError as error:
        return "not written", [*lines, f"  not written: {error.message}", *_hint_lines(error.hint), ""]
    return "repaired", [*lines, f"  written; the old file is kept: {backup}", *_render_follow_ups(repair), ""]


def _render_result(repair: FixResult, options: CommonOptions) -> Iterator[str]:
    """Yield the findings, the change and its verification."""
    yield repair.model.path
    yield from (f"  {finding.level} {finding.rule}: {finding.message}" for finding in repair.findings)
    if repair.repaired is not None:
        yield from (f"  fix: {word}" for word in repair.repaired.words)
    for name, no_fix in repair.unfixed:
        yield from (f"  no fix by `{name}`: {no_fix.reason}", *_hint_lines(no_fix.hint))
    yield from (f"  only with `--unsafe`: {reason}" for reason in repair.unsafe)
    if repair.repaired is not None:
        text = model_diff.format_text(repair.repaired.difference, verbose=options.verbose)
        yield from (f"    {line}" if line else "" for line in text.splitlines())
    proof = repair.proof
    if proof is not None and proof.rows:
        yield f"  proof: {pluralize(proof.cases, 'input case')}, old and new on {pluralize(len(proof.rows), 'runtime')}"
        yield from (f"    {row.runtime}: {row.text}" for row in proof.rows)


def _render_follow_ups(repair: FixResult) -> Iterator[str]:
    """Yield notes about what the user has to do."""
    settings = repair.model.settings
    if made_from := settings.source or " ".join(settings.command or ()):
        yield f"  note: it is exported from `{made_from}`, and the next export writes it anew: repair that, too"
    for name in repair.repaired.unlinked if repair.repaired is not None else ():
        yield f"  note: it does not use `{name}` any more; remove the file where no other model does"


def _hint_lines(text: str | None) -> list[str]:
    return [f"    hint: {text}"] if text else []


def _render_summary(counts: Counter[str], *, dry_run: bool, locked: bool, named: bool) -> str:
    if not counts:
        return f"nothing to fix: {'what was named is no model' if named else 'there is no model'} of this project"
    if not counts.keys() - {"sound"}:
        return f"nothing to fix in {pluralize(counts['sound'], 'model')}"
    nouns = {**STATE_PHRASES, "repaired": "that can be repaired"} if dry_run else STATE_PHRASES
    summary = ", ".join(f"{pluralize(counts[state], 'model')} {noun}" for state, noun in nouns.items() if counts[state])
    return f"{summary}; run `onnxgate lock` next" if counts["repaired"] and locked and not dry_run else summary


def _print_wrapped(lines: Iterable[str]) -> None:
    """Print lines wrapped to the width of the terminal; words and paths are not broken."""
    width = terminal_width()
    for line in lines:
        shown = escape_log_line(line)
        hang = " " * (len(shown) - len(shown.lstrip()) + HANGING_INDENT)
        wrapped = textwrap.wrap(
            shown, max(width, MIN_WIDTH), subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
        )
        click.echo("\n".join(wrapped) if width else shown)
