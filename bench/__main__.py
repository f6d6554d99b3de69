"""
Measure the time and memory that onnxgate needs, compared with other tools and with lower bounds in the same run.

`--corpus`, `--project` and `--startup` select what is measured and can be combined; the default is everything. Progress
is printed to standard error, the tables to standard output.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench import contests, corpora, full, peers, static, tables
from bench.contestants import HERE, ROOT
from bench.figures import Pair, Result, Row

_PAIRS, _QUICK_PAIRS = 11, 3
_REPEAT, _QUICK_REPEAT = 2, 1


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmarks and write the requested files; return 1 if onnxgate itself failed."""
    arguments = _parse(words)
    if arguments.source is not None:
        result = msgspec.json.decode(arguments.source.read_bytes(), type=Result)
    else:
        with tempfile.TemporaryDirectory(prefix="onnxgate-bench-") as scratch:
            result = _measure(arguments, arguments.folder or Path(scratch), Path(scratch))
    print(tables.markdown(result))
    if arguments.json is not None:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    if arguments.figures is not None:
        tables.write_figures(result, arguments.figures)
    return 1 if _has_own_failure(result) else 0


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m bench", description=__doc__, formatter_class=form)
    names = [corpus.name for corpus in corpora.ALL if corpus.name != "one"]
    parts = parser.add_argument_group("parts")
    parts.add_argument("--quick", action="store_true", help="three small corpora and start-up, once each (2 minutes)")
    parts.add_argument("--corpus", action="append", choices=names, help="static check of this corpus (repeatable)")
    parts.add_argument("--project", action="append", choices=list(full.PROJECTS), help="full check (repeatable)")
    parts.add_argument("--startup", action="store_true", help="start-up and predictions")
    parts.add_argument("--no-peers", action="store_true", help="skip onnx-doctor and Polygraphy")
    parts.add_argument("--pip", action="store_true", help="also measure installations with pip (takes minutes)")
    how = parser.add_argument_group("measurement")
    how.add_argument("--also", action="append", type=_checkout, default=[], metavar="NAME=CHECKOUT")
    how.add_argument("--models", type=Path, help="folder with the .onnx files for the project `models`")
    how.add_argument("--repeat", type=int, help="number of repetitions (default: 2, or 1 with --quick)")
    how.add_argument("--limit", type=float, default=60.0, help="time limit for a tool on a corpus, in seconds")
    how.add_argument("--folder", type=Path, help="folder for the corpora and for the environment of the other tools")
    how.add_argument("--keep", action="store_true", help="do not remove the corpora from --folder")
    files = parser.add_argument_group("files")
    files.add_argument(
        "--figures", type=Path, metavar="FOLDER", help="folder for the tables that the documentation includes"
    )
    files.add_argument("--json", type=Path, help="file for all measured values")
    files.add_argument("--from", dest="source", type=Path, help="read values written by --json, do not measure")
    arguments = parser.parse_args(words)
    if arguments.keep and arguments.folder is None:
        parser.error("--keep requires --folder")
    if arguments.models is not None and not arguments.models.is_dir():
        parser.error(f"--models: {arguments.models} is not a folder")
    return arguments


def _checkout(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    folder = Path(path).resolve()
    if not name or not (folder / "onnxgate" / "__main__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text}: not a checkout of onnxgate")
    return name, folder


def _measure(arguments: argparse.Namespace, folder: Path, scratch: Path) -> Result:
    checkouts = {HERE: ROOT, **dict(arguments.also)}
    is_quick = arguments.quick
    is_chosen = bool(arguments.corpus or arguments.project or arguments.startup)
    names = arguments.corpus or (() if is_chosen else static.QUICK if is_quick else static.ALL)
    programs, missing_peers = _install_peers(folder) if names and not arguments.no_peers else (None, {})
    measured_corpora = static.measure_corpora(
        names,
        checkouts,
        folder,
        scratch,
        repeat=arguments.repeat or (_QUICK_REPEAT if is_quick else _REPEAT),
        limit_s=arguments.limit,
        keep=arguments.keep,
        programs=programs,
    )
    pairs: tuple[Pair, ...] = ()
    commands: tuple[Row, ...] = ()
    if arguments.startup or not is_chosen:
        count = _QUICK_PAIRS if is_quick else _PAIRS
        pairs = static.measure_startup(
            checkouts, folder, scratch, count=count, limit_s=arguments.limit, keep=arguments.keep
        )
        commands = () if is_quick else (contests.predictions(scratch),)
    options = full.Options(checkouts, folder, arguments.models, arguments.keep, arguments.pip)
    projects = tuple(arguments.project or (() if is_chosen or is_quick else full.PROJECTS))
    measured_projects, skipped = full.measure_projects(projects, options, scratch, arguments.repeat or _REPEAT)
    return Result(contests.machine(), measured_corpora, measured_projects, pairs, commands, missing_peers | skipped)


def _install_peers(folder: Path) -> tuple[Path | None, dict[str, str]]:
    """Return the folder with the programs of the other tools, or the reason why they are missing."""
    try:
        return peers.environment(folder), {}
    except peers.NotInstallableError as error:
        return None, {"onnx-doctor and Polygraphy": str(error)}


def _has_own_failure(result: Result) -> bool:
    rows = [row for work in (*result.corpora, *result.projects) for row in work.rows]
    rows += [pair.subject for pair in result.pairs]
    return any(row.failure and row.name.startswith(HERE) for row in (*rows, *result.commands))


if __name__ == "__main__":
    sys.exit(main())
