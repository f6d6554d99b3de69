"""Verification of a repaired model: original and repaired model run on every runtime with the same inputs.

On each runtime, the outputs of both must be equal or within the tolerance of the model. If the original does not load
on a runtime, its outputs on another runtime are the reference. If no runtime loads it, its outputs on ONNX's reference
evaluator are used.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from onnxgate.core.findings import runtime_sort_key
from onnxgate.core.jobs import (
    Completed,
    Crashed,
    InputCase,
    Observation,
    Refused,
    RunResult,
    TimedOut,
    Unavailable,
)
from onnxgate.core.text import first_line
from onnxgate.gate.execution import size_search
from onnxgate.inputs.cases import CaseGenerator, InputCases
from onnxgate.model.reading.fact_extraction import ParsedModel, read_model
from onnxgate.numerics.streams import load_array
from onnxgate.project.config.project import SelectedModel
from onnxgate.project.lock.types import LockedModel, LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.stages.parity.output_comparison import ParityModel, create_parity_model
from onnxgate.stages.parity.run_outputs import RunOutputs, collect_outputs
from onnxgate.stages.parity.stage import compare_runtimes
from onnxgate.stages.runtime import ObservedRun, prepare_runs

VerificationVerdict = Literal["verified", "partial", "failed", "unverified"]
"""Verdicts of a verification, in this order: outputs are equal on all required runtimes; equal on some and unknown on
others; different; not compared.
"""


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of running the original and the repaired model."""

    rows: tuple[RuntimeComparison, ...] = ()
    cases: int = 0
    largest: float = 0.0  # the largest difference of one element, for numeric outputs
    reason: str = ""  # why no run was possible
    hint: str = ""

    @property
    def verdict(self) -> VerificationVerdict:
        """The combined verdict of all runtimes. A difference takes precedence over unknown results."""
        states = {row.state for row in self.rows}
        if "differs" in states:
            return "failed"
        if self.reason or "equal" not in states:
            return "unverified"
        return "partial" if any(row.state == "unknown" and row.required for row in self.rows) else "verified"


@dataclass(frozen=True, slots=True)
class ModelPair:
    """An original model and its repaired version. `old` may be a copy that runtimes can load."""

    model: SelectedModel
    old: Path
    new: Path
    renamed: Mapping[str, str]  # outputs: old name -> new name
    locked: LockedModel | None


MakeInputs = Callable[[ParsedModel, Path], InputCases]


def verify_fix(
    pair: ModelPair, specs: Mapping[PlannedRuntime, WorkerSpec], pool: WorkerPool, create: MakeInputs, scratch: Path
) -> Verification:
    """Run both models on the runtimes in `specs` and compare their outputs. `create` writes input cases to a folder."""
    return _Verifier(pair, dict(specs), pool, create, scratch).proof()


@dataclass(slots=True)
class _Verifier:
    pair: ModelPair
    specs: dict[PlannedRuntime, WorkerSpec]
    pool: WorkerPool
    create: MakeInputs
    scratch: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def proof(self) -> Verification:
        reading = read_model(self.pair.old, self.pair.model.path)
        inputs = self.create(reading, self._folder())
        if not inputs.cases:
            return Verification(reason=f"no inputs are available: {inputs.reason}", hint=inputs.hint)
        has_runtimes = bool(self.specs)
        old, cases = self._repeat_at_other_sizes(reading, self._run(self.pair.old, inputs.cases), inputs.cases)
        if not _has_outputs(old):
            old += self._run_evaluator(cases)
        if not _has_outputs(old):
            first = next((run for run in old if not isinstance(run.observation, Unavailable)), old[0])
            error = f"{first.runtime}: {describe_observation(first.observation)}"
            if has_runtimes:
                reason = f"the original model does not run on any runtime, so its outputs are unknown; {error}"
                return Verification(cases=len(cases), reason=reason, hint="run `onnxgate check` for details")
            reason = (
                f"the reference evaluator of onnx cannot run the original model, so its outputs are unknown; {error}"
            )
            hint = "to verify repairs on locked runtimes, use a config and omit `--target`"
            return Verification(cases=len(cases), reason=reason, hint=hint)
        new = self._run(self.pair.new, cases)
        model = create_parity_model(self.pair.model, self.pair.old, reading, cases, self.pair.locked)
        comparison = RunComparison(model, self.pair.renamed, old, new)
        rows = tuple(comparison.row(runtime.name, runtime.levels, required=runtime.required) for runtime in self.specs)
        return Verification(rows, len(cases), comparison.largest)

    def _run_evaluator(self, cases: Sequence[InputCase]) -> list[ObservedRun]:
        """Run the original model on ONNX's reference evaluator in this interpreter, unless it is a locked runtime."""
        locked = LockedRuntime(engine="onnx", release=version("onnx"), python="", packages=())
        evaluator = PlannedRuntime(locked, targets=(), levels=("all",), providers=(), required=True)
        if any(runtime.name == evaluator.name for runtime in self.specs):
            return []
        self.specs[evaluator] = WorkerSpec(evaluator.name, "onnx", interpreter=Path(sys.executable))
        return self._run(self.pair.old, cases, [evaluator])

    def _folder(self) -> Path:
        return self.scratch / str(next(self.numbers))

    def _run(
        self, model: Path, cases: Sequence[InputCase], runtimes: Sequence[PlannedRuntime] = ()
    ) -> list[ObservedRun]:
        """Run a model on the given runtimes, or on all runtimes if none are given."""
        submitted = []
        for runtime in runtimes or self.specs:
            for job in prepare_runs(model, cases, runtime, self._folder()):
                submitted.append((runtime.name, job, self.pool.submit(self.specs[runtime], job)))
        return [ObservedRun(name, job, future.result()) for name, job, future in submitted]

    def _repeat_at_other_sizes(
        self, reading: ParsedModel, ran: list[ObservedRun], cases: tuple[InputCase, ...]
    ) -> tuple[list[ObservedRun], tuple[InputCase, ...]]:
        """If the model rejected all generated cases, repeat the runs with input sizes that it accepts."""

        def create_at(sizes: Sequence[Mapping[str, int]]) -> tuple[InputCase, ...]:
            generator = CaseGenerator(reading.facts, reading.view, self.pair.model.settings.sizes)
            return generator.try_write(generator.plan(sizes, probes=False), self._folder())

        def attempt(name: str, setting: Mapping[str, int]) -> list[ObservedRun]:
            newest = next(runtime for runtime in self.specs if runtime.name == name)
            return self._run(self.pair.old, create_at([setting]), [newest])

        sizes = size_search.find_sizes(reading, self.pair.model, ran, None, attempt).settings
        other_cases = create_at(sizes) if sizes else ()
        return (self._run(self.pair.old, other_cases), other_cases) if other_cases else (ran, cases)


def _has_outputs(ran: Sequence[ObservedRun]) -> bool:
    """Return whether any of the runs produced an output."""
    return any(outputs.paths for levels in collect_outputs(ran).values() for outputs in levels.values())


ComparisonState = Literal["differs", "unknown", "equal"]
WORST_FIRST: tuple[ComparisonState, ...] = ("differs", "unknown", "equal")
_StateText = tuple[ComparisonState, str]


@dataclass(frozen=True, slots=True)
class RuntimeComparison:
    """Comparison of the two models on one runtime. `text` describes the result."""

    runtime: str
    text: str
    state: ComparisonState
    required: bool = True


@dataclass(slots=True)
class RunComparison:
    """Compares the outputs of both models. `largest` is the largest difference within the tolerance so far."""

    model: ParityModel
    renamed: Mapping[str, str]
    old: Sequence[ObservedRun]
    new: Sequence[ObservedRun]
    largest: float = 0.0

    def row(self, runtime: str, levels: Sequence[str], *, required: bool) -> RuntimeComparison:
        """Return the result of the comparison on one runtime: the worst result of its optimization levels."""
        results = [self._level(runtime, level) for level in levels]
        state, text = min(results, key=lambda result: WORST_FIRST.index(result[0]))
        return RuntimeComparison(runtime, text, state, required)

    def _level(self, runtime: str, level: str) -> _StateText:
        old, new = _find_run(self.old, runtime, level), _find_run(self.new, runtime, level)
        before, now = _run_outputs(old), _run_outputs(new)
        if isinstance(new.observation, Unavailable):
            return "unknown", describe_observation(new.observation)
        if now is None and before is not None:
            return (
                "differs",
                f"the original runs, but the repaired model does not: {describe_observation(new.observation)}",
            )
        if now is None:
            return (
                "unknown",
                f"neither the original nor the repaired model runs: {describe_observation(new.observation)}",
            )
        if before is not None:
            return self._compare(runtime, level, now, before)
        reference = self._find_reference(runtime, level)
        if reference is None:
            return "unknown", "now runs, but the original model produced no outputs for comparison"
        state, text = self._compare(runtime, level, now, reference[1])
        return state, f"now runs; result of comparison with the original on {reference[0]}: {text}"

    def _find_reference(self, runtime: str, level: str) -> tuple[str, RunOutputs] | None:
        """Return another runtime on which the original model produced outputs, and these outputs.

        The newest runtime is preferred; the reference evaluator comes last. Outputs of `level` are preferred.
        """
        runs = {name: levels for name, levels in collect_outputs(self.old).items() if name != runtime}
        for name in sorted(runs, key=lambda name: (not name.startswith("onnx "), runtime_sort_key(name)), reverse=True):
            outputs = runs[name].get(level) or next(iter(runs[name].values()))
            if outputs.paths:
                return name, outputs
        return None

    def _compare(self, runtime: str, level: str, new: RunOutputs, old: RunOutputs) -> _StateText:
        new = self._with_old_names(new)
        missing = sorted(case for case, _ in old.paths.keys() - new.paths.keys())
        if old.names != new.names:
            return "differs", "the outputs have different names"
        if missing:
            return "differs", f"case `{missing[0]}` no longer has outputs"
        retyped = [key for key in old.paths if _element_type(new.paths[key]) != _element_type(old.paths[key])]
        if retyped:
            case, output = min(retyped)
            return "differs", f"the element type of output `{output}` changed in case `{case}`"
        unlike = {key for key in old.paths if not _is_bit_identical(new.paths[key], old.paths[key])}
        if not unlike:
            return "equal", "bit-identical"
        now, then = (RunOutputs(outputs.names, {key: outputs.paths[key] for key in unlike}) for outputs in (new, old))
        comparisons = compare_runtimes(self.model, runtime, {level: now}, "before", {level: then})
        differences = [difference for comparison in comparisons for difference in comparison.differences]
        for difference in differences:
            if not difference.agrees:
                what = f"{difference.metric} is {difference.value:.3g} (allowed: {difference.bound:.3g})"
                where = f"output `{difference.output}` differs in case `{difference.case}`"
                return "differs", f"{where}: {difference.detail or what}"
        if uncompared := sorted(unlike - {(difference.case, difference.output) for difference in differences}):
            case, output = uncompared[0]
            return "unknown", f"output `{output}` could not be compared in case `{case}`"
        largest = max((diff.value for diff in differences if diff.metric == "worst_abs"), default=0.0)
        self.largest = max(self.largest, largest)
        return "equal", f"within tolerance (max difference {largest:.2g})"

    def _with_old_names(self, new: RunOutputs) -> RunOutputs:
        """Return the repaired model's outputs under the names that they have in the original model.

        If a name has a suffix that describes the layout of a container, the suffix is kept.
        """
        back = {now: before for before, now in self.renamed.items()}
        names = {}
        for name in new.names:
            base, space, rest = name.partition(" ")
            names[name] = back.get(name) or f"{back.get(base, base)}{space}{rest}"
        paths = {(case, names.get(name, name)): path for (case, name), path in new.paths.items()}
        return RunOutputs(tuple(names[name] for name in new.names), paths)


def _find_run(ran: Sequence[ObservedRun], name: str, level: str) -> ObservedRun:
    return next(run for run in ran if run.runtime == name and run.job.optimization == level)


def _run_outputs(ran: ObservedRun) -> RunOutputs | None:
    """Return the outputs of a run; None if the run has no outputs for any case."""
    outputs = collect_outputs([ran]).get(ran.runtime, {}).get(ran.job.optimization)
    return outputs if outputs is not None and outputs.paths else None


def _is_bit_identical(new: str | None, old: str | None) -> bool:
    if new is None or old is None:
        return False
    a, b = load_array(Path(new)), load_array(Path(old))
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _element_type(path: str | None) -> str:
    """Return the element type of a stored array, equal for strings of any length; "" if there is no array."""
    if path is None:
        return ""
    dtype = load_array(Path(path)).dtype
    return str(dtype.kind if dtype.kind in "SU" else dtype)


def describe_observation(observation: Observation) -> str:
    """Describe in one line why a run of a model has no outputs."""
    match observation:
        case Unavailable(reason=reason):
            return f"not available: {reason}"
        case Refused(failure=failure):
            return f"failed to load: {first_line(failure.text)[:300]}"
        case Crashed(signal=signal, during=during):
            return f"{signal} during {during}"
        case TimedOut(limit_s=limit_s, during=during):
            return f"timed out after {limit_s:g} s during {during}"
        case Completed(result=RunResult(cases=cases)):
            failures = [case.failure for case in cases if case.failure]
            return f"all cases failed: {first_line(failures[0].text)[:300]}" if failures else "no case ran"
        case Completed():
            return "did not run"
