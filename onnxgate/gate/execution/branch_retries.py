"""Search for other inputs that reach a branch, if the model rejects the first ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from onnxgate.core.jobs import CaseResult, Completed, InputCase, RunResult
from onnxgate.gate.execution import size_search
from onnxgate.inputs.case_selection import Choice
from onnxgate.inputs.cases import CaseGenerator, PlannedCase
from onnxgate.model.reading.fact_extraction import ParsedModel
from onnxgate.project.config.project import SelectedModel
from onnxgate.stages.runtime import ObservedRun

MAX_OTHER_VALUES = 6
"""Maximum number of other values that are tried for a branch, each with one run."""

AttemptCases = Callable[[str, Sequence[PlannedCase]], Sequence[ObservedRun]]


def find_replacements(
    reading: ParsedModel,
    model: SelectedModel,
    generator: CaseGenerator,
    ran: Sequence[ObservedRun],
    eager: Mapping[str, CaseResult] | None,
    attempt: AttemptCases,
) -> dict[str, tuple[PlannedCase, ...]]:
    """Return the cases that replace others, by name, since the model rejects the values that these chose for a branch.

    The new cases reach the same branches with other values or, if the model rejects those as well, with other sizes.
    """
    replaced: dict[str, tuple[PlannedCase, ...]] = {}
    for cases in _group_rejected(ran, eager):
        first = cases[0]
        sizes = [case.sizes for case in cases]
        values = next(_iter_accepted_values(generator, first, ran, attempt), first.chosen)
        if values is first.chosen:
            sizes = [*_find_sizes(reading, model, first, ran, eager, attempt)]
        if sizes:
            replaced |= {case.name: () for case in cases}
            replaced[first.name] = tuple(PlannedCase(Choice(values, setting)) for setting in sizes)
    return replaced


def _group_rejected(ran: Sequence[ObservedRun], eager: Mapping[str, CaseResult] | None) -> list[list[InputCase]]:
    """Return the cases with values that no run accepted, grouped by these values.

    A value with which a node compares the input is valid unless the sizes may be the cause.
    """
    generated = {case.name: case for _, case, _ in size_search.case_results(ran) if case.origin == "generated"}
    failing = size_search.list_failing(ran, eager)
    accepted = [case.chosen for case in generated.values() if case.name not in failing]
    rejected: dict[tuple[object, ...], list[InputCase]] = {}
    for case in generated.values():
        is_certain = len(case.chosen) == 1 and bool(case.named) and set(case.guessed) <= set(case.leading)
        if case.name not in failing or not case.chosen or case.probe or is_certain:
            continue
        if not any(case.chosen.items() <= chosen.items() for chosen in accepted):
            rejected.setdefault(tuple(case.chosen.items()), []).append(case)
    return list(rejected.values())


def _iter_accepted_values(
    generator: CaseGenerator, case: InputCase, ran: Sequence[ObservedRun], attempt: AttemptCases
) -> Iterator[Mapping[str, int | float | bool]]:
    """Yield values that reach the branches of a case and that the newest runtime accepts."""
    newest = size_search.find_newest(ran)
    for choice in itertools.islice(_iter_other_choices(generator, case), MAX_OTHER_VALUES):
        results = [result for _, _, result in size_search.case_results(attempt(newest, [PlannedCase(choice)]))]
        if not results:
            return
        if all(result.failure is None for result in results):
            yield choice.values


def _iter_other_choices(generator: CaseGenerator, case: InputCase) -> Iterator[Choice]:
    search = generator.search_choices(case.sizes)
    if search is None:
        return
    reached = search.evaluate(Choice(case.chosen, case.sizes)).chosen
    for name, numbers in search.list_candidates().items():
        for number in numbers if name in case.chosen else ():
            choice = Choice({**case.chosen, name: number}, case.sizes)
            if number == case.chosen[name]:
                continue
            result = search.evaluate(choice)
            if result.chosen >= reached and search.is_valid(choice, result):
                yield choice


def _find_sizes(
    reading: ParsedModel,
    model: SelectedModel,
    case: InputCase,
    ran: Sequence[ObservedRun],
    eager: Mapping[str, CaseResult] | None,
    attempt: AttemptCases,
) -> tuple[dict[str, int], ...]:
    """Return sizes with which the model accepts the values of a case, as for the first case of a model."""

    def attempt_sizes(runtime: str, setting: Mapping[str, int]) -> Sequence[ObservedRun]:
        return attempt(runtime, [PlannedCase(Choice(case.chosen, setting))])

    return size_search.find_sizes(reading, model, [*_select_runs(ran, case)], eager, attempt_sizes).settings


def _select_runs(ran: Sequence[ObservedRun], case: InputCase) -> Iterator[ObservedRun]:
    """Yield the completed runs with the result of one case only."""
    for run in ran:
        match run.observation:
            case Completed(result=RunResult(cases=results) as result) if case in run.job.cases:
                results = (results[run.job.cases.index(case)],)
                completed = Completed(result=msgspec.structs.replace(result, cases=results))
                yield ObservedRun(run.runtime, msgspec.structs.replace(run.job, cases=(case,)), completed)
