"""Runtime stage: plan the runs of a model, and convert the observations on each runtime into evidence."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from onnxgate.core import jobs
from onnxgate.core.errors import OPTIONAL_TARGET_HINT
from onnxgate.core.findings import HitReference, IncompleteCheck, Place, Stage
from onnxgate.diagnostics import classification
from onnxgate.diagnostics.catalogue.engines import find_text_limit
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
from onnxgate.model.facts import ModelFacts
from onnxgate.model.numeric_traits import find_random_outputs
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.node_context import describe_nodes, find_node, find_source_line
from onnxgate.numerics.agreement import are_both_nan, find_not_finite
from onnxgate.numerics.streams import iter_chunks, iter_parts, load_array
from onnxgate.project.engines import engine_family
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.protocol import INVALID_ANSWER
from onnxgate.stages.output_shapes import DeclaredOutputs, find_read_outputs, read_declared_outputs
from onnxgate.stages.wrong_constants import add_wrong_constants

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxgate.support.matching.operations import RefusedOperations

NO_ISOLATED_NODES: Mapping[str, tuple[IsolatedNode, ...]] = {}
CASE_PHASE = "case "
"""Prefix of the phase name that a worker reports while it runs a case."""
COUNTING_OPERATORS = frozenset({"NonZero", "NonMaxSuppression", "Compress", "Unique"})
"""Operators whose output sizes depend on the elements of their inputs."""
INVALID_NODE_FAMILIES = frozenset({"shape_inference", "attribute", "attribute_missing", "arity"})
"""Families of error texts from loading a model about nodes that are invalid on all releases."""
PROVIDER_NOT_USED = "ProviderNotUsedError"
"""Error type that a worker reports if its session silently fell back to other providers."""


@dataclass(frozen=True, slots=True)
class ExecutedModel:
    """A model that was run, and the folders that its places are relative to."""

    path: str
    place: Place
    view: ModelView
    root: Path  # repository root
    folder: Path  # config folder; places are relative to it
    memory_limit_mib: int = 0
    facts: ModelFacts | None = None  # None disables the check of output shapes


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """A job on a runtime, with its observation."""

    runtime: str  # "onnxruntime 1.18.1"
    job: jobs.Run
    observation: jobs.Observation


def prepare_runs(
    model: Path, cases: Sequence[jobs.InputCase], planned: PlannedRuntime, folder: Path
) -> tuple[jobs.Run, ...]:
    """Return one job for each optimization level of a runtime, with separate output folders below `folder`."""
    runs = tuple(plan_run(model, cases, planned, level, folder / level) for level in planned.levels)
    for run in runs:
        Path(run.output).mkdir(parents=True)
    return runs


def plan_run(
    model: Path, cases: Sequence[jobs.InputCase], planned: PlannedRuntime, level: jobs.Optimization, output: Path
) -> jobs.Run:
    """Return the job that runs a model at one optimization level. Without cases, the model is only loaded."""
    return jobs.Run(
        model=str(model.absolute()),
        cases=tuple(cases),
        output=str(output.absolute()),
        optimization=level,
        providers=planned.providers,
        extensions=planned.extensions,
    )


def collect_evidence(
    model: ExecutedModel,
    runs: Sequence[ObservedRun],
    eager: Mapping[str, jobs.CaseResult],
    predicted: Mapping[str, tuple[str, ...]],
    alone: Mapping[str, tuple[IsolatedNode, ...]] = NO_ISOLATED_NODES,
    optional: Collection[str] = (),
) -> tuple[tuple[ModelRuns, ...], tuple[IncompleteCheck, ...]]:
    """Return the runs of one model on each runtime, and the runtimes that could not run it.

    `eager` contains the outputs of the source by case; `predicted` contains the rules that predict a refusal, and
    `alone` the results of isolated nodes, by runtime. Runtimes in `optional` are allowed not to run the model.
    """
    undone = {
        run.runtime: IncompleteCheck(
            Stage.RUNTIME,
            model.path,
            run.runtime,
            run.observation.reason,
            run.observation.hint.removesuffix(OPTIONAL_TARGET_HINT if run.runtime in optional else ""),
        )
        for run in runs
        if isinstance(run.observation, jobs.Unavailable)
    }
    attempts: dict[str, list[Attempt]] = {}
    for run in _drop_failed_probes(runs):
        if run.runtime not in undone:
            attempts.setdefault(run.runtime, []).extend(_create_attempts(run, eager, model))
    undone |= {
        runtime: skipped
        for runtime, own in attempts.items()
        if runtime in optional and (skipped := _skip_optional(model, runtime, own[0]))
    }
    undone |= {
        runtime: lacking for runtime, own in attempts.items() if (lacking := _find_missing_locale(model, runtime, own))
    }
    named = _share_node_names({runtime: own for runtime, own in attempts.items() if runtime not in undone})
    named = add_wrong_constants(named, model.view, partial(find_source_line, root=model.root, folder=model.folder))
    subjects = tuple(
        _create_model_runs(model, runtime, named, predicted.get(runtime, ()), alone.get(runtime, ()))
        for runtime in named
    )
    return subjects, tuple(undone.values())


def find_predicted_crashes(runs: ModelRuns, prediction: RefusedOperations | None) -> tuple[HitReference, ...]:
    """Return the predictions that loading the model crashes the runtime with the signal with which it crashed."""
    ends = [it.end for it in runs.attempts if it.outcome == "crashed"]
    signals = {end.signal for end in ends if end.during == "load"}
    gaps = [gap for gap, _ in prediction.gaps] if prediction is not None else []
    return tuple(dict.fromkeys(HitReference(gap.rule, gap.problem) for gap in gaps if gap.signal in signals))


def _drop_failed_probes(runs: Sequence[ObservedRun]) -> list[ObservedRun]:
    """Return the runs without the probes that failed on all runtimes, as their sizes are only a guess."""
    results = [
        (case, result)
        for run in runs
        if isinstance(run.observation, jobs.Completed) and isinstance(run.observation.result, jobs.RunResult)
        for case, result in zip(run.job.cases, run.observation.result.cases, strict=True)
    ]
    completed = {case.name for case, result in results if result.failure is None}
    failed = {case.name for case, _ in results if case.probe} - completed
    return [_without_cases(run, failed) for run in runs] if failed else list(runs)


def _without_cases(run: ObservedRun, names: Collection[str]) -> ObservedRun:
    observation = run.observation
    if isinstance(observation, jobs.Completed) and isinstance(observation.result, jobs.RunResult):
        pairs = zip(run.job.cases, observation.result.cases, strict=True)
        kept = tuple(result for case, result in pairs if case.name not in names)
        result = msgspec.structs.replace(observation.result, cases=kept)
        observation = msgspec.structs.replace(observation, result=result)
    cases = tuple(case for case in run.job.cases if case.name not in names)
    return ObservedRun(run.runtime, msgspec.structs.replace(run.job, cases=cases), observation)


def _skip_optional(model: ExecutedModel, runtime: str, attempt: Attempt) -> IncompleteCheck | None:
    """Return a skipped check if an optional runtime fell back to other providers."""
    if attempt.outcome != "provider-not-used" or attempt.refusal.failure is None:
        return None
    reason, hint = attempt.refusal.failure.text, "run the check on a machine that supports the provider"
    return IncompleteCheck(Stage.RUNTIME, model.path, runtime, reason, hint)


def _find_missing_locale(model: ExecutedModel, runtime: str, attempts: Sequence[Attempt]) -> IncompleteCheck | None:
    """Return an incomplete check if the model needs a locale that is not installed."""
    texts = [attempt.refusal.failure.text for attempt in attempts if attempt.refusal.failure is not None]
    locale = next(filter(None, map(classification.find_missing_locale, texts)), None)
    if locale is None:
        return None
    reason = f"the model needs the locale `{locale}`, which is not installed on this machine"
    return IncompleteCheck(Stage.RUNTIME, model.path, runtime, reason, f"install the locale `{locale}`")


def _create_model_runs(
    model: ExecutedModel,
    runtime: str,
    attempts: Mapping[str, Sequence[Attempt]],
    predicted: tuple[str, ...],
    alone: tuple[IsolatedNode, ...],
) -> ModelRuns:
    own = attempts[runtime]
    elsewhere = [attempt for name, others in attempts.items() if name != runtime for attempt in others]
    refusals = [attempt.refusal for attempt in elsewhere if attempt.outcome == "load-refused"]
    unstable = {name for attempt in own for name in attempt.outputs.unstable}
    drawn = find_random_outputs(model.view) if unstable else {}
    not_used = [
        attempt.refusal.failure.text.partition(";")[0]
        for attempt in own
        if attempt.outcome == "provider-not-used" and attempt.refusal.failure is not None
    ]
    nodes = {name: find_node(model.view, name) for name in sorted({attempt.refusal.node for attempt in own})}
    places = {
        name: find_source_line(node, model.root, model.folder) for name, node in nodes.items() if node is not None
    }
    return ModelRuns(
        model=model.path,
        place=model.place,
        runtime=runtime,
        attempts=tuple(own),
        predicted=predicted,
        alone=alone,
        memory_limit_mib=model.memory_limit_mib,
        usable_cases=tuple(
            sorted({attempt.case.name for attempt in elsewhere if attempt.outcome == "completed" and attempt.case.name})
        ),
        drawn={name: tuple(sorted(drawn[name])) for name in sorted(unstable & drawn.keys())},
        invalid_nodes=tuple(sorted({it.node for it in refusals if it.node and it.family in INVALID_NODE_FAMILIES})),
        unused_providers=tuple(dict.fromkeys(name for text in not_used for name in re.findall(r"`(\w+)`", text))),
        node_places={name: place for name, place in places.items() if place is not None},
    )


def _create_attempts(run: ObservedRun, eager: Mapping[str, jobs.CaseResult], model: ExecutedModel) -> list[Attempt]:
    level = run.job.optimization
    match run.observation:
        case jobs.Completed(result=jobs.RunResult() as result) if _has_other_outputs(result, run.runtime, model):
            end = Interruption(signal=INVALID_ANSWER, during="run")
            return [Attempt(optimization=level, outcome="crashed", end=end)]
        case jobs.Completed(result=jobs.RunResult() as result):
            return _completed_attempts(run, result, eager, model)
        case jobs.Refused(failure=failure) if failure.type == PROVIDER_NOT_USED:
            refusal = Refusal(failure=failure, known_limit=find_text_limit(run.runtime, failure.text))
            return [Attempt(optimization=level, outcome="provider-not-used", refusal=refusal)]
        case jobs.Refused(failure=failure):
            attempt = Attempt(optimization=level, outcome="load-refused")
            return [_refused_attempt(attempt, failure, run.runtime, model)]
        case jobs.Crashed(signal=signal, during=during):
            return [_create_interrupted(run.job, "crashed", Interruption(signal=signal, during=during))]
        case jobs.TimedOut(limit_s=limit_s, during=during):
            return [_create_interrupted(run.job, "timed-out", Interruption(limit_s=limit_s, during=during))]
        case other:
            raise TypeError(f"unexpected result of a run: {type(other).__name__}")


def _has_other_outputs(result: jobs.RunResult, runtime: str, model: ExecutedModel) -> bool:
    """Return whether the outputs reported by ONNX Runtime differ from the outputs of the model."""
    if model.facts is None or engine_family(runtime.partition(" ")[0]) != "onnxruntime":
        return False
    return set(_output_names(result.outputs)) != {output.name for output in model.facts.outputs}


def _completed_attempts(
    run: ObservedRun, result: jobs.RunResult, eager: Mapping[str, jobs.CaseResult], model: ExecutedModel
) -> list[Attempt]:
    job = run.job
    if not job.cases:
        return [_create_attempt(job, None)]
    attempts, read = [], find_read_outputs(model.facts, model.view) if model.facts is not None else frozenset()
    counts_data = any(node.operator[1] in COUNTING_OPERATORS for node in model.view.nodes())
    for case, case_result in zip(job.cases, result.cases, strict=True):
        attempt, source = _create_attempt(job, case), eager.get(case.name)
        if source is not None:
            attempt = msgspec.structs.replace(attempt, source="finite" if source.failure is None else "failed")
        if case_result.failure is not None:
            attempt = msgspec.structs.replace(attempt, outcome="run-refused")
            attempt = _refused_attempt(attempt, case_result.failure, run.runtime, model)
        else:
            facts = model.facts
            declared = read_declared_outputs(facts, case, read, counts_data=counts_data) if facts is not None else None
            attempt = _with_outputs(attempt, result.outputs, case_result, source, declared)
        attempts.append(attempt)
    return attempts


def _create_attempt(job: jobs.Run, case: jobs.InputCase | None) -> Attempt:
    of_case = msgspec.convert(case, AttemptCase, from_attributes=True) if case is not None else AttemptCase()
    return Attempt(optimization=job.optimization, outcome="completed", case=of_case)


def _create_interrupted(job: jobs.Run, outcome: Literal["crashed", "timed-out"], end: Interruption) -> Attempt:
    """Create the attempt for a worker that crashed or timed out, with the case that it was running, if any."""
    case = next((case for case in job.cases if end.during == CASE_PHASE + case.name), None)
    return msgspec.structs.replace(_create_attempt(job, case), outcome=outcome, end=end)


def _refused_attempt(attempt: Attempt, failure: jobs.Failure, runtime: str, model: ExecutedModel) -> Attempt:
    """Add the refusal and the node that caused it.

    A node that is not in the model was created by fusion, and is ignored. If the error text names only an operator, the
    node is known only if no other node uses this operator.
    """
    text = failure.text
    node = classification.find_node_name(text) or ""
    if find_node(model.view, node) is None:
        domain, operator = classification.find_missing_operator(text) or ("", "")
        nodes = (it.proto for it in model.view.nodes()) if operator else ()
        names = [node.name for node in nodes if node.op_type == operator and domain in ("", node.domain)]
        node = names[0] if len(names) == 1 else ""
    refusal = Refusal(
        failure=failure,
        family=classification.failure_family(text),
        means=classification.describe_meaning(text),
        fix=classification.describe_fix(text),
        node=node,
        unsupported=tuple(_locate_operator(name, model) for name in classification.list_unsupported_operators(text)),
        known_limit=find_text_limit(runtime, text),
    )
    return msgspec.structs.replace(attempt, refusal=refusal)


def _with_outputs(
    attempt: Attempt,
    names: Sequence[str],
    result: jobs.CaseResult,
    source: jobs.CaseResult | None,
    declared: DeclaredOutputs | None,
) -> Attempt:
    has_references = source is not None and len(source.outputs) == len(names)
    references = dict(zip(names, source.outputs, strict=True)) if source is not None and has_references else {}
    not_finite: list[str] = []
    not_finite_in_source, blank, wrong_shapes = False, [], []
    for name, path in zip(names, result.outputs, strict=True):
        if path is None:
            continue
        expected = references.get(name)
        array = load_array(path)
        reference = load_array(expected) if expected is not None else None
        match _locate_not_finite(array, reference):
            case "own":
                not_finite.append(name)
            case "both":
                not_finite_in_source = True
        if reference is not None and are_both_nan(array, reference):
            blank.append(name)
        if declared is not None and (wrong_shape := declared.find_contradiction(name, array)):
            wrong_shapes.append(wrong_shape)
    outputs = OutputFaults(
        not_finite=tuple(not_finite),
        blank=tuple(blank),
        unstable=_output_names(result.unstable),
        aliased=_output_names(result.aliased),
        wrong_shapes=tuple(wrong_shapes),
    )
    if attempt.source == "finite" and not_finite_in_source and not not_finite:
        attempt = msgspec.structs.replace(attempt, source="not-finite")
    return msgspec.structs.replace(attempt, outputs=outputs)


def _output_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the output names without duplicates, because an output that is not a tensor has two arrays."""
    return tuple(dict.fromkeys(name.removesuffix(" (layout)") for name in names))


def _locate_not_finite(array: NDArray[Any], reference: NDArray[Any] | None) -> Literal["", "own", "both"]:
    """Return "" if all elements are finite.

    Otherwise, return "both" if the elements that are not finite are not finite in the source either, else "own".
    """
    if not _has_not_finite(array):
        return ""
    if reference is None:
        return "own"
    if reference.shape != array.shape:
        return "both" if _has_not_finite(reference) else "own"
    own = any((find_not_finite(a) & ~find_not_finite(b)).any() for _, a, b in iter_chunks(array, reference))
    return "own" if own else "both"


def _has_not_finite(array: NDArray[Any]) -> bool:
    return any(find_not_finite(part).any() for part in iter_parts(array))


def _share_node_names(attempts: Mapping[str, Sequence[Attempt]]) -> dict[str, list[Attempt]]:
    """Add missing node names to failures by copying them from the same failure on another release.

    Otherwise one fault would become two findings, one with and one without the source line of the node.
    """

    def failure_key(attempt: Attempt) -> tuple[str, str, str]:
        return attempt.outcome, attempt.case.name, attempt.refusal.family

    names: dict[tuple[str, str, str], str] = {}
    for attempt in itertools.chain.from_iterable(attempts.values()):
        if node := attempt.refusal.node:
            names[failure_key(attempt)] = min(names.get(failure_key(attempt), node), node)

    def add_name(attempt: Attempt) -> Attempt:
        if attempt.refusal.node or attempt.refusal.failure is None:
            return attempt
        refusal = msgspec.structs.replace(attempt.refusal, node=names.get(failure_key(attempt), ""))
        return msgspec.structs.replace(attempt, refusal=refusal)

    return {runtime: [*map(add_name, own)] for runtime, own in attempts.items()}


def _locate_operator(name: str, model: ExecutedModel) -> UnsupportedOperator:
    """Return an unsupported operator with the nodes that use it."""
    default = ("", "ai.onnx")
    nodes = [
        node
        for node in (it.proto for it in model.view.nodes())
        if name == (node.op_type if node.domain in default else f"{node.domain}.{node.op_type}")
    ]
    if not nodes:
        return UnsupportedOperator(operator=name)
    first = nodes[0]
    words = describe_nodes(first.name, next(iter(first.output), ""), len(nodes) - 1)
    place = find_source_line(first, model.root, model.folder)
    return UnsupportedOperator(operator=name, words=words, node=first.name, place=place)
