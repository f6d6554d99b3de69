"""Runtime stage: plan the runs of a model, and turn the observations into evidence per runtime."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from onnxgate.core.findings import IncompleteCheck, Place, Stage
from onnxgate.core.jobs import (
    CaseResult,
    Completed,
    Crashed,
    Failure,
    InputCase,
    Observation,
    Optimization,
    Refused,
    Run,
    RunResult,
    TimedOut,
    Unavailable,
)
from onnxgate.diagnostics.catalogue.engines import find_text_limit
from onnxgate.diagnostics.classification import (
    describe_fix,
    describe_meaning,
    failure_family,
    find_missing_locale,
    find_missing_operator,
    find_node_name,
    list_unsupported_operators,
)
from onnxgate.evidence.runtime import (
    Attempt,
    AttemptCase,
    Interruption,
    IsolatedNode,
    ModelRuns,
    OutputFaults,
    Refusal,
    UnsupportedOperator,
)
from onnxgate.evidence.support import NodeGroup
from onnxgate.model.facts import ModelFacts
from onnxgate.model.numeric_traits import find_random_outputs
from onnxgate.model.reading.structure import iter_nodes
from onnxgate.model.subgraphs.node_context import find_node, find_source_line
from onnxgate.numerics.agreement import are_both_nan, find_not_finite
from onnxgate.project.engines import engine_family
from onnxgate.runtimes.protocol import INVALID_ANSWER
from onnxgate.stages.runtime.output_shapes import DeclaredOutputs, read_declared_outputs

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto, NodeProto


NO_ISOLATED_NODES: Mapping[str, tuple[IsolatedNode, ...]] = {}
CASE_PHASE = "case "  # how a worker calls the phase in which it runs a case
NO_DECLARED_OUTPUTS = DeclaredOutputs({}, {})
PROVIDER_NOT_USED = "ProviderNotUsedError"  # how a worker says that a session silently took other providers


@dataclass(frozen=True, slots=True)
class ExecutedModel:
    """The model that was run, and the folders to which places are relative."""

    path: str
    place: Place
    proto: ModelProto
    root: Path  # git's root
    folder: Path  # the config's folder, which places are relative to
    memory_limit_mib: int = 0
    facts: ModelFacts | None = None  # None: shapes of outputs are not judged


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """One job on one runtime with its observation."""

    runtime: str  # "onnxruntime 1.18.1"
    job: Run
    observation: Observation


def create_runtime_jobs(
    model: Path,
    cases: Sequence[InputCase],
    levels: Sequence[Optimization],
    providers: Sequence[str],
    folder: Path,
    extensions: Sequence[str] = (),
) -> tuple[Run, ...]:
    """One job per optimisation level for one runtime, with its folder for outputs below `folder`.

    Without cases, the model is only loaded.
    """
    jobs = plan_runtime_jobs(model, cases, levels, providers, folder, extensions)
    for job in jobs:
        Path(job.output).mkdir(parents=True)
    return jobs


def plan_runtime_jobs(
    model: Path,
    cases: Sequence[InputCase],
    levels: Sequence[Optimization],
    providers: Sequence[str],
    folder: Path,
    extensions: Sequence[str] = (),
) -> tuple[Run, ...]:
    """Return the same jobs without preparing their folders."""
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


def collect_evidence(
    model: ExecutedModel,
    ran: Sequence[ObservedRun],
    eager: Mapping[str, CaseResult],
    predicted: Mapping[str, tuple[str, ...]],
    alone: Mapping[str, tuple[IsolatedNode, ...]] = NO_ISOLATED_NODES,
    optional: Collection[str] = (),
) -> tuple[tuple[ModelRuns, ...], tuple[IncompleteCheck, ...]]:
    """What became of one model on each runtime, and on which runtimes nothing could be run.

    `eager` is what the source gave, by case; `predicted` are the rules that say a runtime refuses the model, `alone` is
    what its nodes do there by themselves. `optional` are the runtimes that need not be able to run it.
    """
    undone = {
        each.runtime: IncompleteCheck(
            Stage.RUNTIME, model.path, each.runtime, each.observation.reason, each.observation.hint
        )
        for each in ran
        if isinstance(each.observation, Unavailable)
    }
    attempts: dict[str, list[Attempt]] = {}
    for each in ran:
        if each.runtime not in undone:
            attempts.setdefault(each.runtime, []).extend(
                explain_refusals(each.runtime, _create_attempts(each, eager, model), model)
            )
    optional_there = [(runtime, found[0]) for runtime, found in attempts.items() if runtime in optional]
    undone |= {
        runtime: not_used for runtime, first in optional_there if (not_used := _skip_optional(model, runtime, first))
    }
    undone |= {
        runtime: lacking
        for runtime, found in attempts.items()
        if (lacking := _find_missing_locale(model, runtime, found))
    }
    named = _share_node_names({runtime: found for runtime, found in attempts.items() if runtime not in undone})
    runs = tuple(_create_model_runs(model, each, named, predicted.get(each, ()), alone.get(each, ())) for each in named)
    return runs, tuple(undone.values())


def _find_missing_locale(model: ExecutedModel, runtime: str, attempts: Sequence[Attempt]) -> IncompleteCheck | None:
    """Return what this machine lacks to run the model."""
    texts = [attempt.refusal.failure.text for attempt in attempts if attempt.refusal.failure is not None]
    locale = next((locale for text in texts if (locale := find_missing_locale(text))), None)
    if locale is None:
        return None
    reason = f"this machine lacks the locale `{locale}`, which the model asks for"
    return IncompleteCheck(Stage.RUNTIME, model.path, runtime, reason, f"install the locale `{locale}`")


def _create_model_runs(
    model: ExecutedModel,
    runtime: str,
    attempts: Mapping[str, Sequence[Attempt]],
    predicted: tuple[str, ...],
    alone: tuple[IsolatedNode, ...],
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
        usable_cases=tuple(
            sorted({other.case.name for other in others if other.outcome == "completed" and other.case.name})
        ),
        drawn=_find_random_operators(model, attempts[runtime]),
        unused_providers=_find_unused_providers(attempts[runtime]),
        node_places=_find_node_places(model, {attempt.refusal.node for attempt in attempts[runtime]}),
    )


def _find_random_operators(model: ExecutedModel, attempts: Sequence[Attempt]) -> dict[str, tuple[str, ...]]:
    """The random operators that reach the outputs which differ from run to run."""
    unstable = {name for attempt in attempts for name in attempt.outputs.unstable}
    drawn = find_random_outputs(model.proto) if unstable else {}
    return {name: tuple(sorted(drawn[name])) for name in sorted(unstable & drawn.keys())}


def _find_unused_providers(attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """Return the requested providers that the worker reports as unused."""
    said = [
        attempt.refusal.failure.text
        for attempt in attempts
        if attempt.outcome == "provider-not-used" and attempt.refusal.failure is not None
    ]
    return tuple(dict.fromkeys(name for text in said for name in re.findall(r"`(\w+)`", text.partition(";")[0])))


def _skip_optional(model: ExecutedModel, runtime: str, attempt: Attempt) -> IncompleteCheck | None:
    """That a runtime which need not be able to run the model silently takes other providers."""
    if attempt.outcome != "provider-not-used" or attempt.refusal.failure is None:
        return None
    return IncompleteCheck(
        Stage.RUNTIME, model.path, runtime, attempt.refusal.failure.text, "run it where the provider works"
    )


def _find_node_places(model: ExecutedModel, names: set[str]) -> dict[str, Place]:
    places = {}
    for name in sorted(names):
        node = find_node(model.proto, name)
        place = find_source_line(node, model.root, model.folder) if node is not None else None
        if place is not None:
            places[name] = place
    return places


def _create_attempts(ran: ObservedRun, eager: Mapping[str, CaseResult], model: ExecutedModel) -> list[Attempt]:
    level = ran.job.optimization
    match ran.observation:
        case Completed(result=RunResult() as result) if _has_other_outputs(result, ran.runtime, model):
            return [
                Attempt(optimization=level, outcome="crashed", end=Interruption(signal=INVALID_ANSWER, during="run"))
            ]
        case Completed(result=RunResult() as result):
            return _completed_attempts(ran.job, result, eager, model)
        case Refused(failure=failure) if failure.type == PROVIDER_NOT_USED:
            return [Attempt(optimization=level, outcome="provider-not-used", refusal=Refusal(failure=failure))]
        case Refused(failure=failure):
            return [_refused_attempt(Attempt(optimization=level, outcome="load-refused"), failure, model.proto)]
        case Crashed(signal=signal, during=during):
            begun = _interrupted_attempt(ran.job, during)
            return [msgspec.structs.replace(begun, outcome="crashed", end=Interruption(signal=signal, during=during))]
        case TimedOut(limit_s=limit_s, during=during):
            begun = _interrupted_attempt(ran.job, during)
            return [
                msgspec.structs.replace(begun, outcome="timed-out", end=Interruption(limit_s=limit_s, during=during))
            ]
        case other:
            raise TypeError(f"{type(other).__name__} is no answer to a run")


def _has_other_outputs(result: RunResult, runtime: str, model: ExecutedModel) -> bool:
    """Whether ONNX Runtime names other outputs than the model has, which it never does: nothing would be compared."""
    if model.facts is None or engine_family(runtime.partition(" ")[0]) != "onnxruntime":
        return False
    return set(_output_names(result.outputs)) != {output.name for output in model.facts.outputs}


def _completed_attempts(
    job: Run, result: RunResult, eager: Mapping[str, CaseResult], model: ExecutedModel
) -> list[Attempt]:
    if not job.cases:
        return [Attempt(optimization=job.optimization, outcome="completed")]
    attempts = []
    for case, got in zip(job.cases, result.cases, strict=True):
        attempt = _with_source_result(_create_attempt(job, case), eager.get(case.name))
        if got.failure is not None:
            attempts.append(
                _refused_attempt(msgspec.structs.replace(attempt, outcome="run-refused"), got.failure, model.proto)
            )
        else:
            attempts.append(
                _with_outputs(attempt, result.outputs, got, eager.get(case.name), _declared_outputs(model, case))
            )
    return attempts


def _create_attempt(job: Run, case: InputCase) -> Attempt:
    return Attempt(
        optimization=job.optimization,
        outcome="completed",
        case=AttemptCase(
            name=case.name, origin=case.origin, sizes=case.sizes, guessed=case.guessed, leading=case.leading
        ),
    )


def _interrupted_attempt(job: Run, during: str) -> Attempt:
    """Return the attempt at the case during which the worker ended; without a case if none had begun."""
    case = next((case for case in job.cases if during == CASE_PHASE + case.name), None)
    return _create_attempt(job, case) if case is not None else Attempt(optimization=job.optimization, outcome="crashed")


def _with_source_result(attempt: Attempt, reference: CaseResult | None) -> Attempt:
    if reference is None:
        return attempt
    return msgspec.structs.replace(attempt, source="finite" if reference.failure is None else "failed")


def _refused_attempt(attempt: Attempt, failure: Failure, proto: ModelProto) -> Attempt:
    """Add the refusal. A node that the model does not have was made by fusing others, and is dropped."""
    node = find_node_name(failure.text) or ""
    known = node if find_node(proto, node) is not None else _find_only_node(proto, failure.text)
    text = failure.text
    refusal = Refusal(
        failure=failure, family=failure_family(text), means=describe_meaning(text), fix=describe_fix(text), node=known
    )
    return msgspec.structs.replace(attempt, refusal=refusal)


def _find_only_node(proto: ModelProto, text: str) -> str:
    """Return the only node with the operator that a text names; "" if there are several."""
    domain, name = find_missing_operator(text) or ("", "")
    found = [node for node in iter_nodes(proto) if name and node.op_type == name and domain in ("", node.domain)]
    return found[0].name if len(found) == 1 else ""


def _declared_outputs(model: ExecutedModel, case: InputCase) -> DeclaredOutputs:
    return NO_DECLARED_OUTPUTS if model.facts is None else read_declared_outputs(model.facts, case)


def _with_outputs(
    attempt: Attempt, names: Sequence[str], result: CaseResult, reference: CaseResult | None, file: DeclaredOutputs
) -> Attempt:
    references: Sequence[str | None] = [None] * len(names)
    if reference is not None and len(reference.outputs) == len(names):
        references = reference.outputs
    arrays = {name: _load_array(path) for name, path in zip(names, result.outputs, strict=True)}
    others = dict(zip(names, references, strict=True))
    strange = {name: _locate_not_finite(array, _load_array(others[name])) for name, array in arrays.items()}
    here = tuple(name for name, state in strange.items() if state == "here")
    only_as_in_source = "both" in strange.values() and not here
    outputs = OutputFaults(
        not_finite=here,
        blank=tuple(name for name, array in arrays.items() if _is_all_nan(array, _load_array(others[name]))),
        unstable=_output_names(result.unstable),
        aliased=_output_names(result.aliased),
        wrong_shapes=tuple(filter(None, (file.wrong(name, array) for name, array in arrays.items()))),
    )
    source = "not-finite" if attempt.source == "finite" and only_as_in_source else attempt.source
    return msgspec.structs.replace(attempt, source=source, outputs=outputs)


def _output_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the outputs of these arrays: an output other than a tensor has two arrays."""
    return tuple(dict.fromkeys(name.removesuffix(" (layout)") for name in names))


def _locate_not_finite(array: NDArray[Any] | None, reference: NDArray[Any] | None) -> str:
    """Whether an output holds NaN or infinity: "" nowhere, "both" only where its source does too, else "here"."""
    if array is None or not (places := find_not_finite(array)).any():
        return ""
    if reference is None:
        return "here"
    theirs = find_not_finite(reference)
    if theirs.shape != places.shape:
        return "both" if theirs.any() else "here"
    return "here" if (places & ~theirs).any() else "both"


def _is_all_nan(array: NDArray[Any] | None, reference: NDArray[Any] | None) -> bool:
    return array is not None and reference is not None and are_both_nan(array, reference)


def _load_array(path: str | None) -> NDArray[Any] | None:
    return None if path is None else np.load(path, allow_pickle=False)


def _share_node_names(attempts: Mapping[str, Sequence[Attempt]]) -> dict[str, list[Attempt]]:
    """A failure whose text names no node gets the node that another release names for the same failure.

    Without it, one fault would be two findings: with the node's source line and without.
    """
    named: dict[tuple[str, str, str], str] = {}
    for each in (each for found in attempts.values() for each in found if each.refusal.node):
        key = (each.outcome, each.case.name, each.refusal.family)
        named[key] = min(named.get(key, each.refusal.node), each.refusal.node)
    return {runtime: [_with_node_name(each, named) for each in found] for runtime, found in attempts.items()}


def _with_node_name(attempt: Attempt, named: Mapping[tuple[str, str, str], str]) -> Attempt:
    if attempt.refusal.node or attempt.refusal.failure is None:
        return attempt
    node = named.get((attempt.outcome, attempt.case.name, attempt.refusal.family), "")
    return _with_refusal(attempt, node=node)


def explain_refusals(runtime: str, attempts: Iterable[Attempt], model: ExecutedModel) -> Iterator[Attempt]:
    """Add unsupported operators and known limits to each refusal."""
    for attempt in attempts:
        if attempt.refusal.failure is None:
            yield attempt
            continue
        text = attempt.refusal.failure.text
        found = tuple(_locate_operator(name, model) for name in list_unsupported_operators(text))
        yield _with_refusal(attempt, unsupported=found, known_limit=find_text_limit(runtime, text))


def _with_refusal(attempt: Attempt, **changes: object) -> Attempt:
    return msgspec.structs.replace(attempt, refusal=msgspec.structs.replace(attempt.refusal, **changes))


def _locate_operator(name: str, model: ExecutedModel) -> UnsupportedOperator:
    """Return an operator with the nodes that use it."""
    found = [node for node in iter_nodes(model.proto) if _label_operator(node) == name]
    if not found:
        return UnsupportedOperator(operator=name)
    place = find_source_line(found[0], model.root, model.folder)
    return UnsupportedOperator(operator=name, words=_describe_nodes(found), node=found[0].name, place=place)


def _describe_nodes(found: Sequence[NodeProto]) -> str:
    first = found[0]
    return NodeGroup(name=first.name, output=next(iter(first.output), ""), others=len(found) - 1).words


def _label_operator(node: NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
