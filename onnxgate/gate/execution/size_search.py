"""Search for input sizes that a model supports, if the guessed sizes fail."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.findings import runtime_sort_key
from onnxgate.core.jobs import CaseResult, Completed, Crashed, Failure, InputCase, RunResult
from onnxgate.gate.execution.size_variations import CRASH, FoundSizes, VariationSearch
from onnxgate.inputs.axis_sizes import (
    StateAxes,
    has_declared_name,
    is_small,
    list_alternative_settings,
    list_guessed_axes,
    list_leading_axes,
    name_axes,
    resolve_shape,
    vary_setting,
)
from onnxgate.inputs.branches import BRANCH_FAULTS, BranchGraph
from onnxgate.inputs.dataflow import DataflowGraph
from onnxgate.inputs.recurrent_states import AxisKind, find_origins, find_state_axes
from onnxgate.inputs.size_corrections import Corrections, list_corrections
from onnxgate.model.facts import Dim, ModelFacts
from onnxgate.model.reading.fact_extraction import ParsedModel
from onnxgate.project.config.project import SelectedModel
from onnxgate.stages.runtime import CASE_PHASE, ObservedRun

if TYPE_CHECKING:
    from onnx import NodeProto

MAX_CORRECTIONS = 32
"""Maximum number of settings from error texts that are tried."""

MAX_WEIGHT_SETTINGS = 8
"""Maximum number of settings from the sizes of weights that are tried."""
MAX_CRASHES = 8
"""Maximum number of settings that may crash a runtime before a search ends."""

WEIGHT_AXES = {"MatMul": -2, "BatchNormalization": -1}
"""Axis of the weight that must have the size of an axis of the data. Source: operator specifications of ONNX 1.21."""

MAX_MATMUL_RANK = 5
"""Maximum rank of the data of `MatMul` nodes for which the multiplied axis is found."""

Setting = Mapping[str, int]
Attempt = Callable[[str, Setting], Sequence[ObservedRun]]


def has_failed_case(ran: Sequence[ObservedRun]) -> bool:
    """Return whether a generated case failed on a runtime or crashed it.

    The source then shows whether the inputs are valid.
    """
    cases = ((case, result) for _, case, result in case_results(ran) if case.origin == "generated" and not case.probe)
    return any(result.failure is not None for _, result in cases)


def has_completed_all(ran: Sequence[ObservedRun]) -> bool:
    """Return whether all cases of the runs completed, and there are any."""
    results = [result for _, _, result in case_results(ran)]
    return bool(results) and all(result.failure is None for result in results)


def find_sizes(
    reading: ParsedModel,
    model: SelectedModel,
    ran: Sequence[ObservedRun],
    eager: Mapping[str, CaseResult] | None,
    attempt: Attempt,
) -> FoundSizes:
    """Find valid input sizes if the guessed sizes are invalid; no settings if no other sizes are needed or found.

    A crash of any runtime is treated like a size that all runtimes reject. `attempt` tries one set of sizes on the
    newest runtime that ran any case, and on those that crashed. A timeout ends the search.
    """
    facts, graph = reading.facts, DataflowGraph(reading.view)
    states = find_state_axes(facts.inputs, graph)
    search = _SizeSearch(facts, graph, model.settings.sizes, states, ran, attempt)
    failing = _list_failing_bases(ran, eager)
    if not failing:
        return search.replace_variations(eager)
    found = search.find(len(failing))
    if found is None:
        return FoundSizes()
    required = msgspec.structs.replace(states, sizes={**states.sizes, **search.multiplied})
    varied = search.vary(found)
    usual = vary_setting(facts.inputs, model.settings.sizes, found, required)
    return replace(varied, settings=(*(search.scale_with_leading(found, it) for it in usual), *varied.settings))


def find_refused_axes(
    reading: ParsedModel,
    model: SelectedModel,
    ran: Sequence[ObservedRun],
    eager: Mapping[str, CaseResult] | None,
    attempt: Attempt,
) -> dict[str, tuple[str, ...]]:
    """Return the selected cases that fail because some axes have only one valid size, with these axes.

    That is the size of another selected case. A search for further sizes found no other one.
    """
    facts, graph = reading.facts, DataflowGraph(reading.view)
    search = _SizeSearch(facts, graph, model.settings.sizes, find_state_axes(facts.inputs, graph), ran, attempt)
    failing = list_failing(ran, eager)
    cases = {case.name: case for _, case, _ in case_results(ran) if case.origin == "generated"}
    base = next((dict(case.sizes) for name, case in cases.items() if name not in failing), None)
    others = {name: case.sizes for name, case in cases.items() if name in failing and case.sizes}
    fixed = search.vary(base).fixed if base and others else ()
    return {name: fixed for name, sizes in others.items() if base and _differs_only(sizes, base, fixed)}


def _list_failing_bases(ran: Sequence[ObservedRun], eager: Mapping[str, CaseResult] | None) -> list[str]:
    """Return the cases with the first guessed sizes that fail in the source and on all runtimes."""
    generated = _list_generated(ran)
    if not generated or not generated[0].guessed:
        return []
    first = [case.name for case in generated if case.sizes == generated[0].sizes]
    failing = list_failing(ran, eager)
    return [name for name in first if name in failing]


def _list_generated(ran: Sequence[ObservedRun]) -> list[InputCase]:
    """Return the generated cases of the runs that completed or crashed, without duplicates, in their order."""
    ended = [run for run in ran if isinstance(run.observation, Completed) or list_crashing(run)]
    cases = {case.name: case for run in ended for case in run.job.cases if case.origin == "generated"}
    return list(cases.values())


def list_failing(ran: Sequence[ObservedRun], eager: Mapping[str, CaseResult] | None) -> set[str]:
    """Return the generated cases that fail in the source and on all runtimes, or that crash a runtime.

    A runtime that completes a case only after optimization does not accept its sizes: optimization can replace a
    computed size by -1.
    """
    unoptimized = [run for run in ran if run.job.optimization == "disabled"]
    refused = {(name, case.name) for name, case, result in case_results(unoptimized) if result.failure is not None}
    results = [(name, case, result) for name, case, result in case_results(ran) if case.origin == "generated"]
    completed = {
        case.name for name, case, result in results if result.failure is None and (name, case.name) not in refused
    }
    completed -= {case.name for _, case, result in results if is_crash(result)}
    accepted = {name for name, result in (eager or {}).items() if result.failure is None}
    return {case.name for _, case, _ in results} - completed - accepted


def find_newest(ran: Sequence[ObservedRun]) -> str:
    """Return the newest runtime that ran any case; "" if there is none."""
    return max((name for name, _, _ in case_results(ran)), key=runtime_sort_key, default="")


class _SizeSearch:
    def __init__(
        self,
        facts: ModelFacts,
        graph: DataflowGraph,
        sizes: Mapping[str, Sequence[int]],
        states: StateAxes,
        ran: Sequence[ObservedRun],
        attempt: Attempt,
    ) -> None:
        self._graph = graph
        self._facts, self._sizes, self._states, self._ran, self._attempt = facts, sizes, states, ran, attempt
        self._guessed = list_guessed_axes(facts.inputs, sizes)
        self._leading = list_leading_axes(facts.inputs, states)
        self._newest = find_newest(ran)
        self._corrections = Corrections([], [], [], [])
        self._tried: list[Setting] = []
        self._count = 0

    def find(self, failing: int) -> dict[str, int] | None:
        """Return a setting that all cases accept or, without one, the first that most cases accept.

        `failing` is the number of cases that fail with the first setting. Return None if no setting is better.
        """
        best: tuple[int, dict[str, int] | None] = (failing, None)
        crashes = 0
        for setting in self._list_settings():
            results = [result for _, _, result in case_results(self._attempt(self._newest, setting))]
            crashes += any(map(is_crash, results))
            if not results or crashes == MAX_CRASHES:
                break
            if any(map(is_crash, results)):
                continue
            failures = [result.failure.text for result in results if result.failure is not None]
            if len(failures) < min(best[0], len(results)):
                best = (len(failures), setting)
            if not failures:
                break
            self._correct(failures[0], setting)
        return best[1]

    def replace_variations(self, eager: Mapping[str, CaseResult] | None) -> FoundSizes:
        """Vary the guessed axes one by one if they cannot change together; empty if the usual sizes are to be used.

        Then find other sizes of the axes that cannot change alone either.
        """
        failing = list_failing(self._ran, eager)
        cases = _list_generated(self._ran)
        settings = [dict(case.sizes) for case in cases if not case.probe]
        inner = [name for name in self._guessed if name not in self._leading]
        changed = [case.sizes for case in cases if case.name in failing and not case.probe]
        changed = [sizes for sizes in changed if _differs_only(sizes, settings[0], inner)]
        if not changed:
            return FoundSizes()
        kept = [setting for setting in settings if setting not in changed]
        unchanged = [name for name in inner if changed[0][name] != settings[0][name]]
        for name in [*unchanged] if len(unchanged) > 1 else ():
            setting = {**settings[0], name: changed[0][name]}
            results = [result for _, _, result in case_results(self._attempt(self._newest, setting))]
            if any(result.failure is None for result in results):
                unchanged.remove(name)
                kept.append(setting)
        varied = self.vary(settings[0], unchanged)
        kept += varied.settings
        return replace(varied, settings=tuple(it for index, it in enumerate(kept) if it not in kept[:index]))

    def scale_with_leading(self, base: Setting, setting: dict[str, int]) -> dict[str, int]:
        """Return a setting; if the model rejects it, with another axis that is a multiple of a changed leading axis.

        `base` is a setting that the model accepts. Only sizes of leading axes may differ in `setting`.
        """
        ratios = {setting[name] // base[name] for name in self._leading if setting[name] != base[name]}
        if len(ratios) != 1 or not _differs_only(setting, base, self._leading) or self._is_accepted(setting):
            return setting
        (ratio,) = ratios
        inner = [name for name in self._guessed if name not in self._leading and setting[name] > 1]
        scaled = ({**setting, name: ratio * setting[name]} for name in inner)
        return next((it for it in scaled if is_small(self._facts.inputs, it) and self._is_accepted(it)), setting)

    def _list_completed(self) -> list[InputCase]:
        """Return the cases that completed on a runtime and whose sizes crashed none, with any batch size."""
        inner = [name for name in self._guessed if name not in self._leading]
        crashed = [case.sizes for run in self._ran for case in list_crashing(run)]
        cases = [case for _, case, result in case_results(self._ran) if result.failure is None]
        return [case for case in cases if all(_differs_along(case.sizes, sizes, inner) for sizes in crashed)]

    def _is_accepted(self, setting: Setting) -> bool:
        return has_completed_all(self._attempt(self._newest, setting))

    def vary(self, base: dict[str, int], axes: Sequence[str] | None = None) -> FoundSizes:
        """Find other sizes of inner axes than those in `base`; by default, of all that the author of the model named.

        An unnamed axis may have only one size, as nothing declares that it may vary. A setting that only some of the
        values for branches accept is not used, but shows that the size may vary.
        """
        inner = [name for name in self._guessed if name not in self._leading] if axes is None else axes
        declared = [name for name in inner if has_declared_name(name) and name not in self._states.sizes]
        completed = [case.sizes for case in self._list_completed()]

        def run(setting: Setting) -> list[CaseResult]:
            return [result for _, _, result in case_results(self._attempt(self._newest, setting))]

        search = VariationSearch(self._facts.inputs, self._sizes, self._guessed, base, run)
        return search.find(declared, completed)

    def _list_settings(self) -> Iterator[dict[str, int]]:
        """Yield sizes of other cases that ran, then those that error texts suggest, then alternatives."""
        results = [(case, result) for _, case, result in case_results(self._ran)]
        completed = self._list_completed()
        self._tried = [case.sizes for case, result in results if result.failure is not None]
        yield from self._select(dict(case.sizes) for case in sorted(completed, key=_is_not_from_source) if case.sizes)
        multiplied = {**results[0][0].sizes, **self.multiplied}
        if multiplied in self._tried:
            for case, result in reversed(results):  # the sizes suggested last are tried first
                if result.failure is not None and case.origin == "generated":
                    self._correct(result.failure.text, case.sizes)
        else:
            yield from self._select([multiplied])
        yield from self._select(self._take_corrections())
        yield from self._select(self._list_product_settings(results[0][0].sizes))
        yield from self._select(self._list_weight_settings(multiplied))
        for setting in list_alternative_settings(self._facts.inputs, self._sizes, self._states):
            yield from self._select([setting])
            yield from self._select(self._take_corrections())

    def _list_product_settings(self, base: dict[str, int]) -> list[dict[str, int]]:
        """Return settings for the first `MatMul` node whose data, such as a flattened image, does not fit its weight.

        The error text of this operator does not contain the sizes.
        """
        shapes: Mapping[str, Sequence[int]] = {}
        with suppress(*BRANCH_FAULTS):
            shapes = BranchGraph(self._graph.model).infer_shapes(
                {value.name: resolve_shape(value, base) for value in self._facts.inputs}
            )
        for node in self._graph.nodes(("MatMul",)):
            data, weight = shapes.get(node.input[0], ()), self._graph.dims(node.input[1]) or ()
            if data and len(weight) > 1 and isinstance(weight[-2], int) and data[-1] != weight[-2]:
                text = f"Got: {data[-1]} Expected: {weight[-2]}"
                kinds = list_corrections(text, base, self._guessed, self._leading)
                return [setting for kind in kinds for setting in kind][:MAX_WEIGHT_SETTINGS]
        return []

    def _list_weight_settings(self, base: dict[str, int]) -> list[dict[str, int]]:
        """Return settings with the sizes of weights, since some error texts do not contain them."""
        nodes = self._graph.nodes(WEIGHT_AXES)
        dims = ((self._graph.dims(node.input[1]) or (), WEIGHT_AXES[node.op_type]) for node in nodes)
        sizes = dict.fromkeys(shape[axis] for shape, axis in dims if len(shape) >= abs(axis))
        inner = [name for name in self._guessed if name not in self._leading]
        settings = [{**base, name: size} for size in sizes if isinstance(size, int) and size for name in inner]
        return settings[:MAX_WEIGHT_SETTINGS]

    @functools.cached_property
    def multiplied(self) -> dict[str, int]:
        """Return the required sizes of guessed axes that `MatMul` and `Conv` nodes multiply by a weight."""
        named = {value.name: name_axes(value) for value in self._facts.inputs}
        found: dict[str, int] = {}
        for node in self._graph.nodes(("MatMul", "Conv")):
            for size, kinds in _list_multiplied(node, self._graph.dims(node.input[1]) or ()):
                for origin, parts in find_origins(node.input[0], kinds, self._graph):
                    axes = named.get(origin, ())
                    axis = axes[parts.index("features")] if len(axes) == len(parts) and "features" in parts else ""
                    found |= {name: size for name in self._guessed if name == axis}
        return found

    def _select(self, settings: Iterable[dict[str, int]]) -> Iterator[dict[str, int]]:
        for setting in settings:
            if setting not in self._tried and is_small(self._facts.inputs, setting):
                self._tried.append(setting)
                yield setting

    def _take_corrections(self) -> Iterator[dict[str, int]]:
        while self._count < MAX_CORRECTIONS and (setting := self._corrections.take()) is not None:
            self._count += 1
            yield setting

    def _correct(self, text: str, setting: Setting) -> None:
        """Add the settings that an error text suggests before all others of their kind."""
        kinds = zip(list_corrections(text, setting, self._guessed, self._leading), self._corrections, strict=True)
        self._corrections = Corrections(*([*new, *(it for it in known if it not in new)] for new, known in kinds))


def _list_multiplied(node: NodeProto, weight: Sequence[Dim]) -> Iterator[tuple[int, tuple[AxisKind, ...]]]:
    """Yield the size that a weight requires, and the axes of the data, for each possible rank."""
    size = weight[1] if node.op_type == "Conv" and len(weight) > 1 else weight[-2] if len(weight) > 1 else 0
    if not isinstance(size, int) or size < 1:
        return
    other: AxisKind = "other"
    if node.op_type == "Conv":
        groups = next((int(attribute.i) for attribute in node.attribute if attribute.name == "group"), 1)
        yield size * groups, (other, "features", *[other] * (len(weight) - 2))
    else:
        yield from ((size, (*[other] * count, "features")) for count in range(1, MAX_MATMUL_RANK))


def _differs_only(sizes: Setting, base: Setting, axes: Sequence[str]) -> bool:
    """Return whether sizes differ from others, but only along these axes."""
    changed = [name for name, size in sizes.items() if size != base[name]]
    return bool(changed) and set(changed) <= {*axes}


def _differs_along(sizes: Setting, base: Setting, axes: Sequence[str]) -> bool:
    """Return whether sizes differ from others along some of the axes."""
    return any(sizes.get(name) != base.get(name) for name in axes)


def _is_not_from_source(case: InputCase) -> bool:
    return case.origin != "source"


def case_results(ran: Sequence[ObservedRun]) -> Iterator[tuple[str, InputCase, CaseResult]]:
    """Yield the runtime, the case and its result for every case of the completed runs, and those that crashed."""
    for run in ran:
        for case in list_crashing(run):
            yield run.runtime, case, CaseResult(failure=Failure(type=CRASH, text=CRASH))
        if isinstance(run.observation, Completed) and isinstance(run.observation.result, RunResult):
            for case, result in zip(run.job.cases, run.observation.result.cases, strict=True):
                yield run.runtime, case, result


def list_crashing(run: ObservedRun) -> list[InputCase]:
    """Return the case that crashed the runtime, if any."""
    during = run.observation.during if isinstance(run.observation, Crashed) else ""
    return [case for case in run.job.cases if during == CASE_PHASE + case.name]


def is_crash(result: CaseResult) -> bool:
    """Return whether a result stands for a crash of the runtime."""
    return result.failure is not None and result.failure.type == CRASH
