"""Search for values of integers among the inputs, if a model rejects its inputs at all sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from onnxgate.core.jobs import CaseResult, InputCase
from onnxgate.gate.execution import size_search
from onnxgate.inputs.axis_sizes import is_small, list_guessed_axes, vary_setting
from onnxgate.inputs.case_selection import Choice
from onnxgate.inputs.cases import CaseGenerator, PlannedCase
from onnxgate.model.facts import ModelFacts
from onnxgate.stages.runtime import ObservedRun

VALUES = (64, 512)
"""Values that are tried, such as the sizes of a resized image."""
NEUTRAL_VALUE = 1
"""Value that is tried first for inputs from which sizes are computed. An axis of this size fits others."""
EQUAL_SIZE = 64
"""Size of all guessed axes that is tried with each value, besides the first guess."""

AttemptCases = Callable[[str, Sequence[PlannedCase]], Sequence[ObservedRun]]


def find_cases(
    facts: ModelFacts,
    sizes: Mapping[str, Sequence[int]],
    generator: CaseGenerator,
    ran: Sequence[ObservedRun],
    eager: Mapping[str, CaseResult] | None,
    attempt: AttemptCases,
) -> tuple[PlannedCase, ...]:
    """Return cases with other values of the integers that have no known meaning, if no case completed.

    Generated integers are small, but one that a shape is computed from may have to be large. `sizes` are those in the
    config. Each attempt is one run on the newest runtime. Return nothing if the model rejects all values.
    """
    generated = [case for _, case, _ in size_search.case_results(ran) if case.origin == "generated"]
    failing = size_search.list_failing(ran, eager)
    if not generated or any(case.name not in failing for case in generated):
        return ()
    guessed, newest = list_guessed_axes(facts.inputs, sizes), size_search.find_newest(ran)
    for choice in _list_choices(generated[0], generator.list_uncertain_numbers(), guessed):
        if not is_small(facts.inputs, choice.sizes):
            continue
        results = [result for _, _, result in size_search.case_results(attempt(newest, [PlannedCase(choice)]))]
        if not results:
            return ()
        if all(result.failure is None for result in results):
            settings = vary_setting(facts.inputs, sizes, choice.sizes, generator.states)
            return tuple(PlannedCase(Choice(choice.values, setting)) for setting in settings)
    return ()


def _list_choices(case: InputCase, names: Sequence[str], guessed: Sequence[str]) -> Iterator[Choice]:
    """Yield choices for the integers that no branch determines, with the sizes of a case, then with larger ones."""
    names = [name for name in names if name not in case.chosen]
    if case.assumed:
        yield Choice({**case.chosen, **dict.fromkeys(case.assumed, NEUTRAL_VALUE)}, case.sizes)
    for value in VALUES if names else ():
        values = {**case.chosen, **dict.fromkeys(names, value)}
        yield Choice(values, case.sizes)
        if guessed:
            yield Choice(values, {**case.sizes, **dict.fromkeys(guessed, EQUAL_SIZE)})
