"""Run all model readers on hostile models, and report failures.

    python -m campaigns.fuzz models --count 1000000 --jobs 2 --seed 1
    python -m campaigns.fuzz onnx --count 20000 --jobs 2 --seed 1
    python -m campaigns.fuzz guided --time-s 600 --corpus corpus
    python -m campaigns.fuzz scale nodes_in_chain value_infos --commands check diff
    python -m campaigns.fuzz show --seed 1 --index 4711 --save found.onnx

An input depends only on its seed and its index. A reader fails if it raises an undocumented error, crashes, hangs or
needs far more memory than the size of the file. If a reader fails, the exit status is 1. `scale` marks a command
whose costs grow faster than a dimension of the model, and then exits with 1, too.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from campaigns.fuzz.mutation_kinds import KINDS, mutant

if TYPE_CHECKING:
    from campaigns.fuzz.supervisor import Discovery, Result


def main() -> int:
    """Run the selected campaign."""
    arguments = _arguments()
    return int(arguments.run(arguments))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m campaigns.fuzz", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    models = commands.add_parser("models", help="run the model readers of onnxgate on mutated models")
    models.set_defaults(run=_models)
    models.add_argument("--count", type=int, default=10_000)
    models.add_argument("--jobs", type=int, default=1)
    models.add_argument("--time-s", type=float, default=float("inf"))
    models.add_argument("--costly-every", type=int, default=1, help="run slow readers only on every Nth input")
    models.add_argument("--keep", type=Path, help="folder in which failing inputs are saved")
    native = commands.add_parser("onnx", help="run onnx's C++ code on mutated models, in child processes")
    native.set_defaults(run=_onnx)
    native.add_argument("--count", type=int, default=2_000)
    native.add_argument("--jobs", type=int, default=1)
    native.add_argument("--time-s", type=float, default=float("inf"))
    guided = commands.add_parser("guided", help="coverage-guided fuzzing with atheris")
    guided.set_defaults(run=_guided)
    guided.add_argument("--count", type=int, default=-1)
    guided.add_argument("--time-s", type=int, default=300)
    guided.add_argument("--corpus", type=Path, help="folder for inputs that reach new lines")
    guided.add_argument("--seed", type=int, default=1)
    scale = commands.add_parser("scale", help="measure how costs of commands grow with each dimension of a model")
    scale.set_defaults(run=_scale)
    scale.add_argument("dimensions", nargs="*", metavar="DIMENSION", help="functions in scaled_models.py; default: all")
    scale.add_argument("--commands", nargs="*", default=("check", "diff", "against", "lock", "fix"))
    scale.add_argument("--count", type=int, default=1000, help="measured at 1, 4 and 16 times this size")
    scale.add_argument("--time-s", type=float, default=100.0, help="time limit of one command")
    show = commands.add_parser("show", help="show one input")
    show.set_defaults(run=_show)
    show.add_argument("--index", type=int, required=True)
    show.add_argument("--save", type=Path)
    for each in (models, native, show):
        each.add_argument("--seed", type=int, default=1)
        each.add_argument("--kinds", nargs="*", default=(), choices=list(KINDS))
    return parser.parse_args()


def _models(arguments: argparse.Namespace) -> int:
    from campaigns.fuzz.reader_checks import Bench
    from campaigns.fuzz.supervisor import Run, supervise

    kinds = tuple(arguments.kinds)
    make = functools.partial(mutant, arguments.seed, kinds=kinds)
    bench = functools.partial(Bench, costly_every=arguments.costly_every)
    result = supervise(Run(make, arguments.count, arguments.jobs, bench, arguments.time_s))
    report(result)
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        for each in distinct(result):
            (arguments.keep / f"{arguments.seed}-{each.index}.onnx").write_bytes(make(each.index).data)
    return 1 if result.found else 0


def _onnx(arguments: argparse.Namespace) -> int:
    from campaigns.fuzz.onnx_library import ask

    make = functools.partial(mutant, arguments.seed, kinds=tuple(arguments.kinds))
    answers = ask(make, arguments.count, arguments.jobs, arguments.time_s)
    for kind, count in sorted(answers.inputs.items()):
        print(f"{count:>9,}  {kind}")
    print(f"{sum(answers.inputs.values()):>9,}  inputs in {answers.seconds:.1f} s")
    for name, count in answers.answered.items():
        print(f"{count:>9,}  completed by {name}")
    for (asked, how), count in Counter((each.asked, each.how) for each in answers.lost).most_common():
        first = next(each for each in answers.lost if (each.asked, each.how) == (asked, how))
        print(f"{count:>9,}  crashed in {asked}: {how} ({first.kind}, index {first.index})")
    return 1 if answers.faults else 0


def _guided(arguments: argparse.Namespace) -> int:
    from campaigns.fuzz.coverage_guided import guide

    guide(arguments.count, arguments.time_s, arguments.seed, arguments.corpus)
    return 0


def _scale(arguments: argparse.Namespace) -> int:
    from campaigns.fuzz.scaled_models import SCALED
    from campaigns.fuzz.scaling import print_costs

    counts = tuple(factor * arguments.count for factor in (1, 4, 16))
    return 1 if print_costs(arguments.commands, arguments.dimensions or list(SCALED), counts, arguments.time_s) else 0


def report(result: Result) -> None:
    """Print inputs by kind, then each distinct failure."""
    for kind, count in sorted(result.inputs.items()):
        print(f"{count:>9,}  {kind}")
    rate = result.count / max(result.seconds, 1e-9)
    print(f"{result.count:>9,}  inputs in {result.seconds:.1f} s ({rate:.0f} per second)")
    seconds, index, kind = result.slowest
    print(f"the slowest took {seconds:.2f} s: {kind}, index {index}")
    often = Counter((each.find.reader, each.find.what) for each in result.found)
    for each in distinct(result):
        count = often[each.find.reader, each.find.what]
        print(
            f"{count:>7}x {each.find.reader}: {each.find.what} ({each.kind}, index {each.index}) {each.find.detail!r}"
        )
    print(f"{len(often)} distinct failures")


def distinct(result: Result) -> list[Discovery]:
    """Return one discovery per distinct failure."""
    return list({(each.find.reader, each.find.what): each for each in reversed(result.found)}.values())


def _show(arguments: argparse.Namespace) -> int:
    given = mutant(arguments.seed, arguments.index, tuple(arguments.kinds))
    print(f"{given.kind}, {len(given.data):,} bytes: {given.data[:200]!r}")
    if arguments.save:
        arguments.save.write_bytes(given.data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
