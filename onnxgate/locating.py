"""Where mismatches begin: one search for all comparisons that share a fault, and what could not be found out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.errors import UnavailableError
from onnxgate.evidence.mismatches import mismatches, worst
from onnxgate.evidence.parity import Comparison, Difference, FirstDifference
from onnxgate.findings import Stage, Undone
from onnxgate.plan import PlannedRuntime
from onnxgate.runtimes.jobs import Case, CaseResult, Completed, Export, ExportResult, Job, Observation, Run
from onnxgate.runtimes.seats import JobLimits
from onnxgate.stages.beginning import AtNoNodeError, Begun, SearchError, Side, described, gap, search, search_levels
from onnxgate.stages.counterpart import exported_anew, fresh_of, said_weight, search_trace
from onnxgate.stages.runtime import Ran
from onnxgate.underway import Exporting, Started
from onnxgate.work import Work

if TYPE_CHECKING:
    from onnx import ModelProto

MOST_SEARCHES = 4
"""So many are made for one model: mismatches that look alike share one."""
PATIENCE_S = 120.0
"""After this time no further one is begun for a model."""
JOB_TIME_S = 120.0
ALIKE = 2.0
"""Mismatches of the same outputs that are no more than so many times larger than each other are taken for one fault."""
SOURCE = "the source"
PAIRS = ("source", "runtime", "optimization", "engine")
FIGURES = ("worst_abs", "mismatched elements", "not finite")
RATIOS = ("sqnr_db", "cosine", "top1")

Submit = Callable[[PlannedRuntime, Job, JobLimits], Future[Observation]]
Ask = Callable[[Job], Observation]  # the toolchain


@dataclass(frozen=True, slots=True)
class Located:
    """The model whose mismatches are looked into."""

    path: str
    absolute: Path
    proto: ModelProto
    root: Path  # git's root
    folder: Path  # the config's folder
    cases: Mapping[str, Case]
    runtimes: Mapping[str, PlannedRuntime]
    eager: Mapping[str, CaseResult] | None
    fresh: Path | None  # what its source was exported to in this run
    source: Export | None  # what the source was asked for in this run


def located(work: Work, started: Started, ran: Sequence[Ran]) -> Located:
    """A model that was run, with what its source was asked for."""
    prepared = started.prepared
    return Located(
        path=prepared.path,
        absolute=prepared.planned.model.absolute,
        proto=prepared.reading.proto,
        root=work.project.root,
        folder=work.project.folder,
        cases={case.name: case for each in ran for case in each.job.cases},
        runtimes={planned.name: planned for planned in started.levels},
        eager=started.sourced.eager,
        fresh=_fresh(prepared.exporting),
        source=prepared.exporting.planned.source if prepared.exporting else None,
    )


def _fresh(exporting: Exporting | None) -> Path | None:
    observation = exporting.source.result() if exporting and exporting.source else None
    match observation:
        case Completed(result=ExportResult(model=str(path))):
            return Path(path)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class _Began:
    """Where mismatches begin: at a node, or in words."""

    first: FirstDifference | None
    at_no_node: str = ""


@dataclass(slots=True)
class Locator:
    """Makes searches; `place` gives an unused path for what they write."""

    submit: Submit
    ask: Ask
    place: Callable[[], Path]
    _made: int = field(default=0)
    _ends_at: float = field(default=0.0)

    def locate(
        self, model: Located, comparisons: Sequence[Comparison]
    ) -> tuple[tuple[Comparison, ...], tuple[Undone, ...]]:
        """The comparisons, each mismatch with where it begins; and why that is not known of some."""
        self._made, self._ends_at = 0, time.monotonic() + PATIENCE_S
        named, undone = list(comparisons), list[Undone]()
        for group in _alike(comparisons):
            began = self._try(model, comparisons[group[0]])
            if isinstance(began, str):
                undone.append(_unknown(model, [comparisons[index] for index in group], began))
                continue
            for index in group:
                named[index] = msgspec.structs.replace(named[index], first=began.first, at_no_node=began.at_no_node)
        return tuple(named), tuple(undone)

    def _try(self, model: Located, comparison: Comparison) -> _Began | str:
        """Where it begins, or why that is not known."""
        if self._made >= MOST_SEARCHES or time.monotonic() > self._ends_at:
            return "the time for that is spent on other mismatches of the model"
        self._made += 1
        try:
            return _Began(self._searched(model, comparison))
        except AtNoNodeError as elsewhere:
            return _Began(None, str(elsewhere))
        except (SearchError, UnavailableError) as reason:
            return str(reason)
        except (OSError, ValueError, KeyError) as error:  # a search is no verdict, and never ends a check
            return f"{type(error).__name__}: {error}"

    def _searched(self, model: Located, comparison: Comparison) -> FirstDifference:
        asked = _asked(comparison)
        if asked.case not in model.cases:
            raise SearchError(f"the inputs of `{asked.case}` are not there any more")
        output, detail = asked.output.removesuffix(" (layout)"), ""
        side = self._side(model, comparison.runtime, asked.optimization, asked.case)
        if comparison.pair == "optimization" or _only_optimised(comparison, asked):
            plain = self._side(model, comparison.runtime, "disabled", asked.case)
            begun = search_levels(plain, side, output)
        elif comparison.reference == SOURCE:
            begun, detail = self._against_source(model, comparison, side, asked, output)
        else:
            other = self._reference(model, comparison, asked)
            begun = search(side, other.values, None, [output], exact=False)
        if begun is None:
            raise SearchError("no node by itself is off by more than rounding, which grows from node to node")
        return described(model.proto, begun, asked.case, model.root, model.folder, detail)

    def _reference(self, model: Located, comparison: Comparison, asked: Difference) -> Side:
        planned = model.runtimes.get(comparison.reference)
        if planned is None:
            raise SearchError(f"{comparison.reference} is not there to be asked")
        level = asked.optimization if asked.optimization in planned.levels else planned.levels[-1]
        return self._side(model, comparison.reference, level, asked.case)

    def _against_source(
        self, model: Located, comparison: Comparison, side: Side, asked: Difference, output: str
    ) -> tuple[Begun | None, str]:
        """Against a fresh export on the same runtime, where that one is right; else against the source's own values."""
        if model.source is None:
            raise SearchError("its source cannot be asked for intermediate values")
        path = model.fresh or exported_anew(model.source, self.ask, self.place())
        fresh = fresh_of(model.proto, path) if path else None
        if fresh is not None:
            made = Written(fresh.path, fresh.proto)
            other = self._side(model, comparison.runtime, asked.optimization, asked.case, made)
            if _is_nearer(other, side, model, asked, output):
                begun = search(side, fresh.reference(other), fresh.names, [output], exact=True)
                return begun, said_weight(fresh, model.proto, model.absolute, begun)
        return search_trace(model.source, self.ask, side, fresh, output, self.place()), ""

    def _side(self, model: Located, runtime: str, level: str, case: str, written: Written | None = None) -> Side:
        planned = model.runtimes[runtime]
        written = written or Written(model.absolute, model.proto)

        def run(at: Path, fed: Case, output: Path) -> Observation:
            job = Run(
                model=str(at),
                cases=(fed,),
                output=str(output),
                optimization="all" if level == "all" else "disabled",
                providers=planned.providers,
                extensions=planned.extensions,
                again=False,
            )
            return self.submit(planned, job, JobLimits(time_s=JOB_TIME_S)).result()

        return Side(written.path, written.proto, model.cases[case], run, self.place())


@dataclass(frozen=True, slots=True)
class Written:
    """A file with its structure."""

    path: Path
    proto: ModelProto


def _is_nearer(fresh: Side, committed: Side, model: Located, asked: Difference, output: str) -> bool:
    """Whether the fresh export is much nearer to the source on this runtime than the committed model is."""
    names = [value.name for value in committed.proto.graph.output]
    eager = (model.eager or {}).get(asked.case)
    if eager is None or len(eager.outputs) != len(names) or len(fresh.proto.graph.output) != len(names):
        return False
    index = names.index(output)
    right = eager.outputs[index]
    try:
        near = gap(fresh.value(fresh.proto.graph.output[index].name), Path(right)) if right else None
    except SearchError:
        return False
    return near is not None and near.relative < gap(committed.value(output), Path(str(right))).relative / 4


def _asked(comparison: Comparison) -> Difference:
    """The mismatch to look into: the worst one without optimisation, where there is one."""
    found = [each for each in mismatches(comparison) if each.metric in FIGURES]
    if not found and any(each.metric in RATIOS for each in mismatches(comparison)):
        raise SearchError("outputs of a quantized model are held by ratios, and every node of it rounds")
    if not found:
        raise SearchError("it is one of type, shape or number")
    return worst([each for each in found if each.optimization == "disabled"] or found)


def _only_optimised(comparison: Comparison, asked: Difference) -> bool:
    """Whether the same output of the same case is right without optimisation."""
    return asked.optimization == "all" and any(
        each.agrees and each.optimization == "disabled" and (each.case, each.output) == (asked.case, asked.output)
        for each in comparison.differences
    )


def _alike(comparisons: Sequence[Comparison]) -> list[list[int]]:
    """The mismatches in groups that are taken for one fault each, by position; the worst of a group comes first."""
    groups: dict[tuple[object, ...], list[list[int]]] = {}
    found = [index for index, each in enumerate(comparisons) if mismatches(each) and each.pair in PAIRS]
    for index in sorted(found, key=lambda index: -_figure(comparisons[index])):
        each = comparisons[index]
        key = (each.pair, frozenset(one.output for one in mismatches(each)), frozenset(_levels(each)))
        known = groups.setdefault(key, [])
        near = [group for group in known if _figure(comparisons[group[0]]) <= ALIKE * _figure(each)]
        if not near:
            near = [[]]
            known += near
        near[0].append(index)
    return [group for known in groups.values() for group in known]


def _levels(comparison: Comparison) -> set[str]:
    return {each.optimization for each in mismatches(comparison)}


def _figure(comparison: Comparison) -> float:
    return max((each.value for each in mismatches(comparison)), default=0.0)


def _unknown(model: Located, comparisons: Sequence[Comparison], reason: str) -> Undone:
    """Why it is not known, once for all runtimes."""
    references = " or ".join(dict.fromkeys(each.reference for each in comparisons))
    runtimes = {each.runtime for each in comparisons}
    said = f"the first node that differs from {references} was not found: {reason}"
    return Undone(Stage.PARITY, model.path, runtimes.pop() if len(runtimes) == 1 else "", said, by_design=True)
