"""`onnxgate export`: re-exports models from their sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from onnxgate.cli.shared.options import EXIT_FAIL, EXIT_UNDECIDED, CommonOptions, common_options_without
from onnxgate.cli.shared.outputs import print_lines
from onnxgate.cli.shared.project_request import load_project
from onnxgate.cli.shared.worker_pool import open_pool, open_progress
from onnxgate.commands.export import apply_export, assume_runtimes, export_models, find_toolchain_warnings
from onnxgate.core.files import temporary_folder
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.lock.lock_file import load_lock
from onnxgate.stages.export import ExportOutcome
from onnxgate.stages.export_jobs import ProjectToolchain


@click.command("export")
@click.argument("paths", nargs=-1, metavar="[MODEL]...")
@click.option(
    "--check", is_flag=True, help="Write nothing; exit with status 1 if a committed model differs from its export."
)
@common_options_without("offline", "fail_on", "no_ignores", "verbosity")
def command(paths: tuple[str, ...], check: bool, options: CommonOptions) -> int:
    """Re-export models from their sources.

    A file is replaced only if the export succeeds and the new model differs in more than names, metadata and the order
    of nodes.

    Exit status: 1 if an export failed or, with `--check`, if a model differs; 3 if a model could not be compared or
    written.
    """
    project = load_project(options, paths)
    models = project.models(paths, base=options.start, absent=True)
    exported = [model for model in models if model.settings.is_exported]
    counts: Counter[str] = Counter()
    for model, outcome in _export(project, exported, options):
        state, lines = apply_export(model, outcome, check)
        counts[state] += 1
        print_lines([] if options.quiet else lines)
    counts["without `source`"] = len(models) - len(exported)
    summary = ", ".join(f"{number} {what}" for what, number in counts.items() if number) or "no models"
    print_lines([f"{summary}; run `onnxgate lock` next" if counts["written"] else summary])
    if counts["failed"] or counts["changed"]:
        return EXIT_FAIL
    return EXIT_UNDECIDED if counts["not compared"] or counts["not written"] else 0


def _export(
    project: Project, models: Sequence[SelectedModel], options: CommonOptions
) -> Iterator[tuple[SelectedModel, ExportOutcome]]:
    """Export all models, and then yield each model with the outcome of its export."""
    if not models:
        return
    lock = load_lock(project.lock_path) if project.lock_path.exists() else assume_runtimes(project)
    toolchain = ProjectToolchain.of_project(project)
    if not options.quiet:
        print_lines(find_toolchain_warnings(toolchain, lock))
    with temporary_folder() as scratch:
        with open_progress(quiet=options.quiet) as progress, open_pool(project, options, progress) as pool:
            outcomes = export_models(toolchain, lock, models, Path(scratch), pool)
        yield from outcomes
