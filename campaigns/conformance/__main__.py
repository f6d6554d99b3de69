"""Compare predictions with real loads; fail if there is an unexplained difference.

    python -m campaigns.conformance [--corpus backend|fuzz|pairs|mutants|structure] [--releases 1.16.3,1.31.1]
        [--optimization all|disabled] [--seed 0] [--count 12000]
    python -m campaigns.conformance --engine onnxruntime-web [--releases 1.24.3,1.30.0]

Without arguments, all corpora run on their default releases. `--releases all` selects all releases with known kernels,
and `--list` prints every disagreement and every ignored model. `--seed` and `--count` choose the mutants.
The corpus `structure` only runs if it is selected: mutants of nodes, names, subgraphs and functions. Other engines than
ONNX Runtime load the backend corpus in the environments and workers of onnxgate; a wrongly predicted refusal and
more than 1 % of missed refusals fail. Downloads and measurements are stored in `ONNXGATE_CONFORMANCE_CACHE`, so that an
interrupted run can continue.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Mapping

from campaigns.conformance import backend_models, corpora, mutants, structure_mutations
from campaigns.conformance.comparison import Comparison, Disagreement, Kind
from campaigns.conformance.environments import cache
from campaigns.conformance.known_disagreements import explanation, idle, unexplained
from campaigns.conformance.load_outcome import BACKEND
from campaigns.conformance.mutant_comparison import MUTANTS, compare_mutants
from campaigns.conformance.real_loads import LEVELS
from campaigns.conformance.suite import ENGINE_RELEASES, RELEASES, compared, compared_on
from campaigns.fuzz import seed_models
from onnxgate.support.operators import list_known_releases

ONNXRUNTIME = "onnxruntime"
MAX_MISSED = 0.01
"""Share of models that releases of other engines may refuse although they are predicted to load."""
STRUCTURE = "structure"
SEED_WEIGHT = 20
"""How often each seed model is chosen compared with a backend model; only few of these have subgraphs and functions."""
MUTANT_COUNT = 12_000
MUTANT_RELEASES = ("1.18.1", "1.22.1", "1.25.1", "1.31.1")
TEXT_LENGTH = 120
COLUMNS = ("release", "models", "counted", "loads", "refused", "refused but loads", "loads but refused", "unknown")


def main() -> int:
    """Run the selected corpora; return 1 on an unexplained disagreement."""
    arguments = _arguments()
    if arguments.engine != ONNXRUNTIME:
        return _check_engine(arguments)
    failures = 0
    for corpus in arguments.corpus or (*RELEASES, MUTANTS):
        if corpus in (MUTANTS, STRUCTURE):
            failures += _check_mutants(arguments, corpus)
            continue
        releases = _releases(arguments.releases, corpus)
        comparisons = []
        print(f"{corpus}, optimization {arguments.optimization}", flush=True)
        print(_row(COLUMNS), "  right", flush=True)
        for comparison in compared(corpus, releases, cache(), arguments.optimization):
            print(figures(comparison), flush=True)
            comparisons.append(comparison)
        failures += report(comparisons, every=arguments.list)
    return 1 if failures else 0


def _check_engine(arguments: argparse.Namespace) -> int:
    """Print one row per release; return 1 if a release has a false alarm or too many misses."""
    engine = arguments.engine
    releases = _releases(arguments.releases, BACKEND, engine)
    failures = 0
    print(f"{engine}, {BACKEND}, optimization {arguments.optimization}", flush=True)
    print(_row(COLUMNS), "  right", flush=True)
    for comparison in compared_on(engine, releases, cache(), arguments.optimization):
        print(figures(comparison), flush=True)
        _excluded([comparison], arguments.list)
        _differing_texts(comparison.disagreements, every=arguments.list)
        too_many = comparison.number("loads but refused") > MAX_MISSED * comparison.counted
        failures += comparison.number("refused but loads") + too_many
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m campaigns.conformance", description=__doc__.partition("\n")[0])
    parser.add_argument("--corpus", action="append", choices=[*RELEASES, MUTANTS, STRUCTURE])
    parser.add_argument(
        "--releases", default="", help="releases, separated by commas; `all`: every release with known kernels"
    )
    parser.add_argument("--engine", choices=[ONNXRUNTIME, *ENGINE_RELEASES], default=ONNXRUNTIME)
    parser.add_argument("--optimization", choices=list(LEVELS), default="all")
    parser.add_argument("--list", action="store_true", help="list every disagreement and every ignored model")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mutants")
    parser.add_argument("--count", type=int, default=MUTANT_COUNT, help="number of mutants")
    return parser.parse_args()


def _check_mutants(arguments: argparse.Namespace, corpus_name: str) -> int:
    """Print one row per release; return the number of releases with a false alarm or too many misses."""
    folder = cache()
    models = list(backend_models.distinct(backend_models.generated()).items())
    mutations: Mapping[str, mutants.Mutation] = mutants.MUTATIONS
    if corpus_name == STRUCTURE:
        seeds = {name: model for name, model in seed_models.seeds().items() if name != "external"}
        models += [(name, model.SerializeToString()) for name, model in seeds.items()] * SEED_WEIGHT
        mutations = structure_mutations.MUTATIONS
    chosen = dict(mutants.every(models, arguments.count, arguments.seed, mutations))
    corpus = corpora.write(chosen, folder / f"{corpus_name}-{arguments.seed}-{arguments.count}.zip")
    releases = arguments.releases.split(",") if arguments.releases else MUTANT_RELEASES
    failures = 0
    for counts in compare_mutants(corpus, releases, folder):
        print(counts.line(), flush=True)
        for problem in (*counts.false_alarms, *(counts.misses if arguments.list else ())):
            print(f"  {problem}")
        failures += not counts.is_good
    return failures


def _releases(asked: str, corpus: str, engine: str = ONNXRUNTIME) -> tuple[str, ...]:
    if not asked:
        return RELEASES[corpus] if engine == ONNXRUNTIME else ENGINE_RELEASES[engine]
    return list_known_releases(engine) if asked == "all" else tuple(asked.split(","))


def figures(comparison: Comparison) -> str:
    """Return one row of the table."""
    right = comparison.right
    cells = (
        comparison.release,
        comparison.counted + len(comparison.excluded),
        comparison.counted,
        right["loads"],
        right["refused"],
        comparison.number("refused but loads"),
        comparison.number("loads but refused"),
        comparison.number("unknown"),
    )
    return f"{_row(cells)}  {100 * right.total() / comparison.counted:7.3f} %"


def _row(cells: tuple[object, ...]) -> str:
    return "  ".join(f"{cell:>{len(title)}}" for title, cell in zip(COLUMNS, map(str, cells), strict=True))


def report(comparisons: list[Comparison], every: bool) -> int:
    """Print ignored models and disagreements; return the number of problems that fail the suite."""
    _excluded(comparisons, every)
    disagreements = [disagreement for comparison in comparisons for disagreement in comparison.disagreements]
    reasons = Counter(found.why for disagreement in disagreements if (found := explanation(disagreement)))
    for why, number in reasons.items():
        print(f"  explained, {number}: {why}")
    wrong = unexplained(disagreements)
    _differing(disagreements, wrong, every)
    idlers = idle(comparisons)
    for idler in idlers:
        print(f"  UNUSED explanation, remove it: {idler.why}")
    print(f"  {len(disagreements)} disagreements, {len(wrong)} unexplained\n")
    return len(wrong) + len(idlers)


def _differing(disagreements: list[Disagreement], wrong: list[Disagreement], every: bool) -> None:
    """Print every disagreement, or one unexplained disagreement per kind and operator or test."""
    if every:
        for disagreement in disagreements:
            print(f"  {'' if explanation(disagreement) else 'UNEXPLAINED '}{disagreement.line()}")
        return
    alike: dict[tuple[Kind, str], list[Disagreement]] = {}
    for problem in wrong:
        alike.setdefault((problem.kind, problem.name.partition("(")[0]), []).append(problem)
    for group in alike.values():
        print(f"  UNEXPLAINED, {len(group)}: {group[0].line()}")


def _differing_texts(disagreements: list[Disagreement], every: bool) -> None:
    """Print every disagreement, or one per kind and error text; numbers in a text are ignored."""
    alike: dict[tuple[Kind, str], list[Disagreement]] = {}
    for problem in disagreements:
        key = problem.name if every else re.sub(r"\d+", "", problem.text)[:TEXT_LENGTH]
        alike.setdefault((problem.kind, key), []).append(problem)
    for group in alike.values():
        print(f"  {len(group)}: {group[0].line()}")


def _excluded(comparisons: list[Comparison], every: bool) -> None:
    reasons = Counter(reason for comparison in comparisons for reason in comparison.excluded.values())
    for reason, number in reasons.most_common():
        print(f"  ignored, {number}: {reason}")
        names = {name for each in comparisons for name, said in each.excluded.items() if said == reason}
        for name in sorted(names) if every or "locale" in reason else ():
            print(f"    {name}")


if __name__ == "__main__":
    sys.exit(main())
