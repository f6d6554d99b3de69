"""What is run once more when the sizes of generated inputs, which nobody told, do not fit a model anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from onnxgate.config.project import SelectedModel
from onnxgate.evidence.faults import is_guess, is_unusable
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.findings import runtime_order
from onnxgate.inputs.generate import HINT
from onnxgate.inputs.guesses import Setting, other_guesses, settings_around
from onnxgate.model.facts import ModelFacts
from onnxgate.runtimes.jobs import Case, CaseResult, Completed, RunResult
from onnxgate.stages.runtime import Ran

Eager = Mapping[str, CaseResult]
Try = Callable[[Setting], Sequence[Ran]]


def some_failed(ran: Sequence[Ran]) -> bool:
    """Whether a generated case was refused somewhere: whether its inputs are usable is worth asking the source."""
    return any(case.origin == "generated" and got.failure is not None for _, case, got in _results(ran))


def needs_sizes(ran: Sequence[Ran], eager: Eager | None) -> bool:
    """Whether nothing took the first generated case, whose sizes are a guess: not one runtime, nor the source."""
    found = [(case, got) for _, case, got in _results(ran) if case.origin == "generated"]
    if not found:
        return False
    base = found[0][0]
    source = (eager or {}).get(base.name)
    taken = any(case.name == base.name and got.failure is None for case, got in found)
    return bool(base.guessed) and not taken and (source is None or source.failure is not None)


def find_sizes(facts: ModelFacts, model: SelectedModel, ran: Sequence[Ran], attempt: Try) -> tuple[Setting, ...]:
    """The settings to run in place of the first ones; none where no guess runs.

    `attempt` runs one setting on one runtime. What crashes or hangs there ends the search.
    """
    sizes = model.settings.sizes
    tried: list[Setting] = [dict(case.sizes) for _, case, got in _results(ran) if got.failure is not None]
    for setting in (*_seen(ran), *other_guesses(facts.inputs, sizes)):
        if setting in tried:
            continue
        tried.append(setting)
        found = attempt(setting)
        if any(got.failure is None for _, _, got in _results(found)):
            return settings_around(facts.inputs, sizes, setting)
        if not any(True for _ in _results(found)):
            return ()
    return ()


def newest(ran: Sequence[Ran]) -> str:
    """The newest runtime on which cases were run."""
    return max((name for name, _, _ in _results(ran)), key=runtime_order)


def why_nothing_ran(runs: Sequence[ModelRuns]) -> tuple[str, str]:
    """Why nothing is known of how a model runs, and what would help; ("", "") where a case ran or none was unusable."""
    attempts = [(each, model) for model in runs for each in model.attempts]
    unusable = [each for each, model in attempts if is_unusable(each, model)]
    if not unusable or any(each.outcome == "completed" and each.case for each, _ in attempts):
        return "", ""
    if not unusable[0].sizes:
        return "its inputs cannot be run", HINT
    sized = f"{HINT}, or sizes that the model takes: `sizes`"
    return "its inputs cannot be run at any of the sizes that were tried", sized


def undecided_cases(runs: Sequence[ModelRuns]) -> set[str]:
    """Cases of which it is not known whether the model gives the right outputs; mere guesses are not promised."""
    return {
        each.case for model in runs for each in model.attempts if is_unusable(each, model) and not is_guess(each, model)
    }


def _seen(ran: Sequence[Ran]) -> list[Setting]:
    """The sizes at which the model has run already, those of its source's example first."""
    completed = [case for _, case, got in _results(ran) if got.failure is None and case.sizes]
    return [dict(case.sizes) for case in sorted(completed, key=lambda case: case.origin != "source")]


def _results(ran: Sequence[Ran]) -> Iterator[tuple[str, Case, CaseResult]]:
    """Every case that came to its end, on each runtime and at each level."""
    for each in ran:
        match each.observation:
            case Completed(result=RunResult(cases=results)):
                for case, got in zip(each.job.cases, results, strict=True):
                    yield each.runtime, case, got
            case _:
                pass
