"""The runtime stage: what is run, and what the observations say of one model on each of its runtimes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from onnxgate.config.engines import family_of
from onnxgate.evidence.runtime import Alone, Attempt, ModelRuns
from onnxgate.findings import Place, Stage, Undone
from onnxgate.model.facts import ModelFacts
from onnxgate.model.places import named_node, node_place
from onnxgate.model.structure import nodes
from onnxgate.runtimes.jobs import (
    Case,
    CaseResult,
    Completed,
    Crashed,
    Failure,
    Observation,
    Optimization,
    Refused,
    Run,
    RunResult,
    TimedOut,
    Unavailable,
)
from onnxgate.runtimes.talk import NONSENSE
from onnxgate.stages.engine_words import understood
from onnxgate.stages.shapes import Declared, declared
from onnxgate.texts.families import family, fix_anywhere, meaning, missing_locale, node_name, operator

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

NOTHING_ALONE: Mapping[str, tuple[Alone, ...]] = {}
CASE = "case "  # how a worker calls the phase in which it runs a case
NOTHING_DECLARED = Declared({}, {})
NOT_USED = "ProviderNotUsedError"  # how a worker says that a session silently took other providers


@dataclass(frozen=True, slots=True)
class RunModel:
    """The model that was run, and what places its faults."""

    path: str
    place: Place
    proto: ModelProto
    root: Path  # git's root
    folder: Path  # the config's folder, which places are relative to
    memory_limit_mib: int = 0
    facts: ModelFacts | None = None  # None: shapes of outputs are not judged


@dataclass(frozen=True, slots=True)
class Ran:
    """One job on one runtime, and what came of it."""

    runtime: str  # "onnxruntime 1.18.1"
    job: Run
    observation: Observation


def runtime_jobs(
    model: Path,
    cases: Sequence[Case],
    levels: Sequence[Optimization],
    providers: Sequence[str],
    folder: Path,
    extensions: Sequence[str] = (),
) -> tuple[Run, ...]:
    """One job per optimisation level for one runtime, with its folder for outputs below `folder`.

    Without cases, the model is only loaded.
    """
    jobs = planned_jobs(model, cases, levels, providers, folder, extensions)
    for job in jobs:
        Path(job.output).mkdir(parents=True)
    return jobs


def planned_jobs(
    model: Path,
    cases: Sequence[Case],
    levels: Sequence[Optimization],
    providers: Sequence[str],
    folder: Path,
    extensions: Sequence[str] = (),
) -> tuple[Run, ...]:
    """The same jobs, of which nothing is prepared yet."""
    return tuple(
        Run(
            model=str(model.absolute()),
            cases=tuple(cases),
            output=str((folder / level).absolute()),
            optimization=level,
            providers=tuple(providers),
            extensions=tuple(extensions),
        )
        for level in levels
    )


def gather(
    model: RunModel,
    ran: Sequence[Ran],
    eager: Mapping[str, CaseResult],
    predicted: Mapping[str, tuple[str, ...]],
    alone: Mapping[str, tuple[Alone, ...]] = NOTHING_ALONE,
    optional: Collection[str] = (),
) -> tuple[tuple[ModelRuns, ...], tuple[Undone, ...]]:
    """What became of one model on each runtime, and on which runtimes nothing could be run.

    `eager` is what the source gave, by case; `predicted` are the rules that say a runtime refuses the model, `alone` is
    what its nodes do there by themselves. `optional` are the runtimes that need not be able to run it.
    """
    undone = {
        each.runtime: Undone(Stage.RUNTIME, model.path, each.runtime, each.observation.reason, each.observation.hint)
        for each in ran
        if isinstance(each.observation, Unavailable)
    }
    attempts: dict[str, list[Attempt]] = {}
    for each in ran:
        if each.runtime not in undone:
            attempts.setdefault(each.runtime, []).extend(understood(each.runtime, _attempts(each, eager, model), model))
    optional_there = [(runtime, found[0]) for runtime, found in attempts.items() if runtime in optional]
    undone |= {runtime: not_used for runtime, first in optional_there if (not_used := _skipped(model, runtime, first))}
    undone |= {runtime: lacking for runtime, found in attempts.items() if (lacking := _lacking(model, runtime, found))}
    named = _same_nodes({runtime: found for runtime, found in attempts.items() if runtime not in undone})
    runs = tuple(_runs(model, each, named, predicted.get(each, ()), alone.get(each, ())) for each in named)
    return runs, tuple(undone.values())


def _lacking(model: RunModel, runtime: str, attempts: Sequence[Attempt]) -> Undone | None:
    """What this machine lacks to run the model, and is no fault of it."""
    texts = [each.failure.text for each in attempts if each.failure is not None]
    locale = next((locale for text in texts if (locale := missing_locale(text))), None)
    if locale is None:
        return None
    reason = f"this machine lacks the locale `{locale}`, which the model asks for"
    return Undone(Stage.RUNTIME, model.path, runtime, reason, f"install the locale `{locale}`")


def _runs(
    model: RunModel,
    runtime: str,
    attempts: Mapping[str, Sequence[Attempt]],
    predicted: tuple[str, ...],
    alone: tuple[Alone, ...],
) -> ModelRuns:
    others = [each for name, found in attempts.items() if name != runtime for each in found]
    return ModelRuns(
        model=model.path,
        place=model.place,
        runtime=runtime,
        attempts=tuple(attempts[runtime]),
        predicted=predicted,
        alone=alone,
        memory_limit_mib=model.memory_limit_mib,
        usable_cases=tuple(sorted({each.case for each in others if each.outcome == "completed" and each.case})),
        drawn=_drawn(model, attempts[runtime]),
        unused_providers=_unused_providers(attempts[runtime]),
        node_places=_places(model, {each.node for each in attempts[runtime]}),
    )


def _drawn(model: RunModel, attempts: Sequence[Attempt]) -> dict[str, tuple[str, ...]]:
    """The random operators that reach the outputs which differ from run to run."""
    from onnxgate.agreement.randomness import random_outputs

    unstable = {name for each in attempts for name in each.unstable}
    drawn = random_outputs(model.proto) if unstable else {}
    return {name: tuple(sorted(drawn[name])) for name in sorted(unstable & drawn.keys())}


def _unused_providers(attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """What the worker names in front of what the session has instead."""
    said = [each.failure.text for each in attempts if each.outcome == "provider-not-used" and each.failure is not None]
    return tuple(dict.fromkeys(name for text in said for name in re.findall(r"`(\w+)`", text.partition(";")[0])))


def _skipped(model: RunModel, runtime: str, attempt: Attempt) -> Undone | None:
    """That a runtime which need not be able to run the model silently takes other providers."""
    if attempt.outcome != "provider-not-used" or attempt.failure is None:
        return None
    return Undone(Stage.RUNTIME, model.path, runtime, attempt.failure.text, "run it where the provider works")


def _places(model: RunModel, names: set[str]) -> dict[str, Place]:
    places = {}
    for name in sorted(names):
        node = named_node(model.proto, name)
        place = node_place(node, model.root, model.folder) if node is not None else None
        if place is not None:
            places[name] = place
    return places


def _attempts(ran: Ran, eager: Mapping[str, CaseResult], model: RunModel) -> list[Attempt]:
    level = ran.job.optimization
    match ran.observation:
        case Completed(result=RunResult() as result) if _are_of_another(result, ran.runtime, model):
            return [Attempt(optimization=level, outcome="crashed", signal=NONSENSE, during="run")]
        case Completed(result=RunResult() as result):
            return _completed(ran.job, result, eager, model)
        case Refused(failure=failure) if failure.type == NOT_USED:
            return [Attempt(optimization=level, outcome="provider-not-used", failure=failure)]
        case Refused(failure=failure):
            return [_refused(Attempt(optimization=level, outcome="load-refused"), failure, model.proto)]
        case Crashed(signal=signal, during=during):
            begun = _begun(ran.job, during)
            return [msgspec.structs.replace(begun, outcome="crashed", signal=signal, during=during)]
        case TimedOut(limit_s=limit_s, during=during):
            begun = _begun(ran.job, during)
            return [msgspec.structs.replace(begun, outcome="timed-out", limit_s=limit_s, during=during)]
        case other:
            raise TypeError(f"{type(other).__name__} is no answer to a run")


def _are_of_another(result: RunResult, runtime: str, model: RunModel) -> bool:
    """Whether ONNX Runtime names other outputs than the model has, which it never does: nothing would be compared."""
    if model.facts is None or family_of(runtime.partition(" ")[0]) != "onnxruntime":
        return False
    return set(_outputs_of(result.outputs)) != {each.name for each in model.facts.outputs}


def _completed(job: Run, result: RunResult, eager: Mapping[str, CaseResult], model: RunModel) -> list[Attempt]:
    if not job.cases:
        return [Attempt(optimization=job.optimization, outcome="completed")]
    attempts = []
    for case, got in zip(job.cases, result.cases, strict=True):
        attempt = _with_source(_attempt(job, case), eager.get(case.name))
        if got.failure is not None:
            attempts.append(_refused(msgspec.structs.replace(attempt, outcome="run-refused"), got.failure, model.proto))
        else:
            attempts.append(_with_outputs(attempt, result.outputs, got, eager.get(case.name), _declared(model, case)))
    return attempts


def _attempt(job: Run, case: Case) -> Attempt:
    return Attempt(
        optimization=job.optimization,
        outcome="completed",
        case=case.name,
        origin=case.origin,
        sizes=case.sizes,
        guessed=case.guessed,
        leading=case.leading,
    )


def _begun(job: Run, during: str) -> Attempt:
    """The attempt at the case that the worker was running when it ended; without a case where it had not begun one."""
    case = next((case for case in job.cases if during == CASE + case.name), None)
    return _attempt(job, case) if case is not None else Attempt(optimization=job.optimization, outcome="crashed")


def _with_source(attempt: Attempt, reference: CaseResult | None) -> Attempt:
    if reference is None:
        return attempt
    failed = reference.failure is not None
    return msgspec.structs.replace(attempt, reference_failed=failed, reference_finite=None if failed else True)


def _refused(attempt: Attempt, failure: Failure, proto: ModelProto) -> Attempt:
    """With what the text tells; a node that the model does not have is one that the runtime made by fusing others."""
    node = node_name(failure.text) or ""
    known = node if named_node(proto, node) is not None else _only_node(proto, failure.text)
    text = failure.text
    return msgspec.structs.replace(
        attempt, failure=failure, family=family(text), means=meaning(text), fix=fix_anywhere(text), node=known
    )


def _only_node(proto: ModelProto, text: str) -> str:
    """The name of the one node that has the operator which a text is about; "" where there are several."""
    domain, name = operator(text) or ("", "")
    found = [each for each in nodes(proto) if name and each.op_type == name and domain in ("", each.domain)]
    return found[0].name if len(found) == 1 else ""


def _declared(model: RunModel, case: Case) -> Declared:
    return NOTHING_DECLARED if model.facts is None else declared(model.facts, case)


def _with_outputs(
    attempt: Attempt, names: Sequence[str], result: CaseResult, reference: CaseResult | None, file: Declared
) -> Attempt:
    references: Sequence[str | None] = [None] * len(names)
    if reference is not None and len(reference.outputs) == len(names):
        references = reference.outputs
    arrays = {name: _load(path) for name, path in zip(names, result.outputs, strict=True)}
    others = dict(zip(names, references, strict=True))
    strange = {name: _strange(array, _load(others[name])) for name, array in arrays.items()}
    here = tuple(name for name, state in strange.items() if state == "here")
    finite = attempt.reference_finite and ("both" not in strange.values() or bool(here))
    return msgspec.structs.replace(
        attempt,
        not_finite=here,
        blank=tuple(name for name, array in arrays.items() if _is_blank(array, _load(others[name]))),
        reference_finite=finite,
        unstable=_outputs_of(result.unstable),
        aliased=_outputs_of(result.aliased),
        wrong_shapes=tuple(filter(None, (file.wrong(name, array) for name, array in arrays.items()))),
    )


def _outputs_of(names: Sequence[str]) -> tuple[str, ...]:
    """The outputs that these arrays are of: one that is no tensor is two arrays."""
    return tuple(dict.fromkeys(name.removesuffix(" (layout)") for name in names))


def _strange(array: NDArray[Any] | None, reference: NDArray[Any] | None) -> str:
    """Whether an output holds NaN or infinity: "" nowhere, "both" only where its source does too, else "here"."""
    from onnxgate.agreement.compare import not_finite

    if array is None or not (places := not_finite(array)).any():
        return ""
    if reference is None:
        return "here"
    theirs = not_finite(reference)
    if theirs.shape != places.shape:
        return "both" if theirs.any() else "here"
    return "here" if (places & ~theirs).any() else "both"


def _is_blank(array: NDArray[Any] | None, reference: NDArray[Any] | None) -> bool:
    from onnxgate.agreement.emptiness import tells_nothing

    return array is not None and reference is not None and tells_nothing(array, reference)


def _load(path: str | None) -> NDArray[Any] | None:
    import numpy as np

    return None if path is None else np.load(path, allow_pickle=False)


def _same_nodes(attempts: Mapping[str, Sequence[Attempt]]) -> dict[str, list[Attempt]]:
    """A failure whose text names no node gets the node that another release names for the same failure.

    Without it, one fault would be two findings: with the node's source line and without.
    """
    named: dict[tuple[str, str, str], str] = {}
    for each in (each for found in attempts.values() for each in found if each.node):
        key = (each.outcome, each.case, each.family)
        named[key] = min(named.get(key, each.node), each.node)
    return {runtime: [_renamed(each, named) for each in found] for runtime, found in attempts.items()}


def _renamed(attempt: Attempt, named: Mapping[tuple[str, str, str], str]) -> Attempt:
    if attempt.node or attempt.failure is None:
        return attempt
    node = named.get((attempt.outcome, attempt.case, attempt.family), "")
    return msgspec.structs.replace(attempt, node=node)
