"""`onnxgate fix`: repairs models and verifies each repair."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from onnxgate.cli.shared.hint_commands import set_command_folder
from onnxgate.cli.shared.options import EXIT_FAIL, EXIT_UNDECIDED, CommonOptions, common_options_without, target_option
from onnxgate.cli.shared.project_request import find_project, make_project_request, require_selection
from onnxgate.cli.shared.terminal import print_wrapped
from onnxgate.cli.shared.worker_pool import open_pool, open_progress, pause_progress, print_limit_notes
from onnxgate.commands.files_without_config import make_request
from onnxgate.commands.fix.model_file import replace_model_file
from onnxgate.commands.fix.pipeline import FixOptions, FixResult, fix_models, fixable_rules, model_root
from onnxgate.core.bug_reports import ErrorBoundary
from onnxgate.core.errors import LockError, OnnxgateError, UsageError
from onnxgate.core.files import cache_dir, temporary_folder
from onnxgate.core.findings import STATIC_STAGES
from onnxgate.core.report import Finding
from onnxgate.core.text import join_command, pluralize, suggest_spelling
from onnxgate.formats import model_diff
from onnxgate.gate.request import Baseline, GateRequest
from onnxgate.project.config.project import Project
from onnxgate.project.git.baseline import choose_baseline
from onnxgate.project.git.repository import find_git_root
from onnxgate.project.lock.lock_file import load_lock
from onnxgate.project.lock.types import Lock
from onnxgate.rules import by_id

BACKUP_FOLDER = "backups"
"""Name of the folder for backups. It is in the cache, so that git does not track the backups."""
STATE_PHRASES = {
    "unchanged": "with nothing to fix",
    "repaired": "repaired",
    "unsafe": "that `--unsafe` can repair",
    "unfixable": "not repaired",
    "failed": "whose repair failed verification",
    "unverified": "whose repair could not be verified",
    "unchecked": "that could not be checked",
    "unreadable": "could not be read",
    "not written": "could not be written",
}


@click.command("fix")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--rule", "rules", multiple=True, metavar="NAME", help="Fix only the findings of this rule. Repeatable.")
@click.option(
    "--unsafe",
    is_flag=True,
    help="Also apply repairs that rename an output, or that could be verified only on some runtimes.",
)
@click.option("--dry-run", is_flag=True, help="Print and verify the repairs, but write nothing.")
@click.option(
    "--against",
    metavar="REF",
    help="Also fix findings of `check --against REF`, such as external data files that were added since REF.",
)
@target_option(
    "Ignore the config, and fix the models for all releases that match REQUIREMENT, such as 'onnxruntime>=1.18'."
)
@common_options_without("fail_on")
def command(
    paths: tuple[Path, ...],
    rules: tuple[str, ...],
    unsafe: bool,
    dry_run: bool,
    against: str | None,
    target: str | None,
    options: CommonOptions,
) -> int:
    """Repair models, and verify each repair before it is written.

    A repaired model must pass the static stages and compute the same outputs as the original on every locked runtime,
    with graph optimizations enabled and disabled. A backup of the original is kept in the cache.

    With `--target` or without a config, no runtime is started. The reference evaluator of the onnx package computes the
    outputs that are compared. Without a config and `--target`,
    only problems that occur on every release are fixed.

    Exit status: 0 if no error remains; 1 if errors remain, a repair was rejected or requires `--unsafe`, or `--dry-run`
    found a repair; 3 if a repair could not be verified or written, a check could not be completed, or a file could not
    be read.
    """
    fixable = fixable_rules()
    for rule in rules:
        hint = f"rules with an automatic fix: {', '.join(sorted(fixable))}"
        if rule not in by_id:
            raise UsageError(f"unknown rule `{rule}`{suggest_spelling(rule, by_id)}", hint=hint)
        if rule not in fixable:
            raise UsageError(f"`{rule}` has no automatic fix", hint=hint)
    fix_options = FixOptions(frozenset(rules), unsafe)
    project, request, runs = _make_request(paths, target, against, options)
    counts: Counter[str] = Counter()
    accepted = 0
    unlocked = is_undecided = False
    remaining: list[tuple[Finding, bool]] = []  # with whether no fix applies to it
    for state, repair in _fix_models(project, request, fix_options, options, runs=runs, dry_run=dry_run):
        counts[state] += 1
        accepted += repair.accepted
        is_undecided = is_undecided or bool(repair.unchecked)
        unlocked = unlocked or (runs and (repair.unlocked or (state == "repaired" and not dry_run)))
        left = repair.findings if state == "not written" else ()
        is_final = state in {"repaired", "unfixable"}
        if state != "unreadable":
            findings = dict.fromkeys((*repair.remaining, *left))
            remaining += [(finding, is_final or finding.rule not in fixable) for finding in findings]
    summary = _render_summary(counts, dry_run=dry_run, named=bool(paths))
    summary += _render_remaining(remaining)
    print_wrapped([f"{summary}; run `onnxgate lock` next" if unlocked else summary])
    if counts and target is None and not runs:
        note = "note: problems that occur only on some releases were not checked; use `--target` to fix these as well"
        print_wrapped([note])
    if accepted:
        ignored = f"{pluralize(accepted, 'finding')} ignored by `[[ignore]]`"
        print_wrapped([f"note: {ignored}; use `--no-ignores` to fix ignored findings as well"])
    is_refused = bool(rules and counts["unfixable"])  # findings of runs are not collected here, so none may remain
    has_errors = is_refused or any(final and (it.level == "error" or it.rule in fixable) for it, final in remaining)
    if has_errors or counts["unsafe"] or counts["failed"] or (dry_run and counts["repaired"]):
        return EXIT_FAIL  # a known problem takes precedence
    is_undecided = is_undecided or any(counts[state] for state in ("unverified", "unreadable", "not written"))
    return EXIT_UNDECIDED if is_undecided else 0


def _make_request(
    paths: tuple[Path, ...], target: str | None, against: str | None, options: CommonOptions
) -> tuple[Project, GateRequest, bool]:
    """Return the project, the request to check its models, and whether the locked runtimes can be started."""
    project = find_project(options, paths) if target is None else None
    if project is None:
        set_command_folder(options.start)
        if target is None:
            require_selection(paths, options)
        request = make_request(paths, target, options.start, options.jobs, "minors", example="onnxgate fix .")
        if target is None:
            request = msgspec.structs.replace(request, checkout=msgspec.structs.replace(request.checkout, lock=Lock()))
        return request.project, request, False
    if not project.lock_path.exists():  # a model may have to be repaired before it can be locked
        requirement = next((target.runtime for target in project.config.targets.values()), "onnxruntime")
        named = [Path(os.path.relpath(options.start / path, project.folder)).as_posix() for path in paths] or ["PATH"]
        repair = join_command(("onnxgate", "fix", "--target", requirement), *named)
        hint = f"run `onnxgate lock`; if a model cannot be locked, run `{repair}` first"
        raise LockError(f"`{project.lock_path.name}` does not exist", hint=hint)
    chosen = choose_baseline(find_git_root(project.folder), against or "none", os.environ, offline=options.offline)
    lock = load_lock(project.lock_path)
    models = project.models([str(path) for path in paths], base=options.start)
    request = make_project_request(project, lock, models, frozenset(STATIC_STAGES), options)
    return project, msgspec.structs.replace(request, baseline=Baseline(chosen.revision)), True


def _fix_models(
    project: Project,
    request: GateRequest,
    fix_options: FixOptions,
    options: CommonOptions,
    *,
    runs: bool,
    dry_run: bool,
) -> Iterator[tuple[str, FixResult]]:
    """Fix each model and print what was done. Yield the final state of each model with the result of its repair."""
    with (
        temporary_folder() as scratch,
        open_progress(quiet=options.quiet) as progress,
        open_pool(project, options, progress) as pool,
    ):
        for repair in fix_models(request, fix_options, pool, Path(scratch), runs=runs):
            state, lines = "not written", [repair.model.path]
            with ErrorBoundary() as caught:
                state, lines = _apply_result(project, repair, options, dry_run=dry_run)
            if caught.reason:
                lines += [f"  not written: {caught.reason}", *_hint_lines(caught.hint), ""]
            with pause_progress(progress):
                print_wrapped([] if options.quiet else lines)
            yield state, repair
    print_limit_notes(pool, options)


def _apply_result(
    project: Project, repair: FixResult, options: CommonOptions, *, dry_run: bool
) -> tuple[str, list[str]]:
    """Write the repaired model. Return the model's state and the lines to print (none if there was nothing to fix)."""
    if repair.state == "unchanged":
        return repair.state, []
    lines = list(_render_result(repair, options))
    if repair.state != "repaired":
        reason = f": {repair.reason}" if repair.reason else ""
        if repair.state == "unfixable" and not repair.unfixed:
            reason = ": no automatic fix"
        if repair.state == "unchecked":
            reason = ": the other checks found no problem"
        return repair.state, [*lines, *_render_others(repair), f"  not written{reason}", *_hint_lines(repair.hint), ""]
    if dry_run:
        return repair.state, [*lines, "  not written (dry run)", *_render_follow_ups(repair), ""]
    try:
        assert repair.repaired is not None  # a verified repair has a file
        root, old_sha256 = model_root(project, repair.model), repair.repaired.replaced_sha256
        backups = cache_dir() / BACKUP_FOLDER
        backup = replace_model_file(repair.model.absolute, root, old_sha256, repair.repaired.path, backups)
    except OnnxgateError as error:
        return "not written", [*lines, f"  not written: {error.message}", *_hint_lines(error.hint), ""]
    return "repaired", [*lines, f"  written; backup of the old file: {backup}", *_render_follow_ups(repair), ""]


def _render_result(repair: FixResult, options: CommonOptions) -> Iterator[str]:
    """Yield output lines about a model's findings, the repairs and their verification."""
    yield repair.model.path
    yield from (f"  {finding.level} {finding.rule}: {finding.message}" for finding in repair.findings)
    if repair.repaired is not None:
        yield from (f"  fix: {word}" for word in repair.repaired.words)
    for name, no_fix in repair.unfixed:
        yield f"  `{name}` cannot fix this: {no_fix.reason}"
        yield from [f"    {no_fix.error}"] if no_fix.error and options.verbose else []
        yield from _hint_lines(no_fix.hint)
    yield from (f"  requires `--unsafe`: {reason}" for reason in repair.unsafe)
    if repair.repaired is not None:
        text = model_diff.format_text(repair.repaired.difference, verbose=options.verbose)
        yield from (f"    {line}" if line else "" for line in text.splitlines())
    proof = repair.proof
    if proof is not None and proof.rows:
        yield f"  verified: {pluralize(proof.cases, 'input case')} on {pluralize(len(proof.rows), 'runtime')}"
        yield from (f"    {row.runtime}: {row.text}" for row in proof.rows)


def _render_follow_ups(repair: FixResult) -> Iterator[str]:
    """Yield output lines about the remaining findings, and about changes that the user has to make."""
    yield from _render_others(repair)
    settings = repair.model.settings
    if made_from := settings.source or " ".join(settings.command or ()):
        yield f"  note: re-exporting from `{made_from}` will undo this fix; update the source too"
    for name in repair.repaired.unlinked if repair.repaired is not None else ():
        yield f"  note: this model no longer uses `{name}`; remove this file unless another model uses it"


def _render_others(repair: FixResult) -> Iterator[str]:
    """Yield output lines for the remaining findings that no fix can repair, and for the undecided checks."""
    for finding in repair.remaining:
        if finding not in repair.findings:
            yield f"  not fixed: {finding.level} {finding.rule}: {finding.message}"
            yield from _hint_lines(finding.fix)
    for undone in repair.unchecked:
        yield f"  undecided: {undone.reason}"
        yield from _hint_lines(undone.hint)


def _hint_lines(text: str | None) -> list[str]:
    return [f"    hint: {text}"] if text else []


def _render_summary(counts: Counter[str], *, dry_run: bool, named: bool) -> str:
    if not counts:
        return f"nothing to fix: {'the paths match no model' if named else 'there are no models'} in this project"
    if not counts.keys() - {"unchanged"}:
        return f"nothing to fix in {pluralize(counts['unchanged'], 'model')}"
    nouns = {**STATE_PHRASES, "repaired": "that can be repaired"} if dry_run else STATE_PHRASES
    return ", ".join(f"{pluralize(counts[state], 'model')} {noun}" for state, noun in nouns.items() if counts[state])


def _render_remaining(remaining: Sequence[tuple[Finding, bool]]) -> str:
    """List findings, as in "; 1 finding remains: `missing-kernel` (no automatic fix)". Return "" if there are none."""
    if not remaining:
        return ""
    fixable = fixable_rules()
    names = dict.fromkeys(
        f"`{it.rule}`{(' (not fixed)' if it.rule in fixable else ' (no automatic fix)') if is_final else ''}"
        for it, is_final in remaining
    )
    verb = "remains" if len(remaining) == 1 else "remain"
    return f"; {pluralize(len(remaining), 'finding')} {verb}: {', '.join(names)}"
