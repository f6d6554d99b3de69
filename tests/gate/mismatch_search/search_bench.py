"""Runs, compares and searches models as the gate does, and creates models with one incorrect weight."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

import numpy as np
import onnx
from onnx import numpy_helper

from onnxgate.core.findings import IncompleteCheck, Place
from onnxgate.core.jobs import CaseResult, Completed, Export, ExportResult, InputCase, Job, Observation
from onnxgate.evidence.parity import Comparison, FirstDifference, find_mismatches
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns
from onnxgate.gate.execution.parity.mismatch_search import MismatchSearch, SearchedModel
from onnxgate.inputs.cases import generate_cases
from onnxgate.model.numeric_traits import detect_numeric_traits
from onnxgate.model.reading.fact_extraction import read_model
from onnxgate.model.subgraphs.instrumented_models import list_search_nodes
from onnxgate.numerics.tolerance import measure_noise
from onnxgate.project.lock.types import LockedModel, LockedPackage, LockedRuntime, MeasuredTolerance
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec
from onnxgate.stages.export_jobs import create_toolchain_spec
from onnxgate.stages.parity import stage
from onnxgate.stages.parity.output_comparison import ParityModel
from onnxgate.stages.parity.source_difference import find_node_weights
from onnxgate.stages.runtime import ObservedRun, prepare_runs

Verdict = Literal["right", "neighbour", "wrong", "nothing"]


@dataclass(slots=True)
class Bench:
    """Runtimes, and a folder for their output."""

    host: WorkerPool
    folder: Path
    runtimes: dict[PlannedRuntime, WorkerSpec]
    toolchain: Path | None = None
    _count: itertools.count[int] = field(default_factory=itertools.count)

    @classmethod
    def of(
        cls, host: WorkerPool, folder: Path, locked: Sequence[tuple[LockedRuntime, tuple[LockedPackage, ...]]]
    ) -> Bench:
        """Create a bench with both optimization levels of each release."""
        runtimes = {
            PlannedRuntime(
                runtime, ("server",), ("all", "disabled"), ("CPUExecutionProvider",), True
            ): WorkerSpec.of_runtime(runtime, packages)
            for runtime, packages in locked
        }
        return cls(host, folder, runtimes)

    def place(self) -> Path:
        """Return an unused path."""
        return self.folder / f"search {next(self._count)}"

    def submit(self, planned: PlannedRuntime, job: Job, limits: JobLimits | None) -> Future[Observation]:
        """Submit a job to a runtime."""
        return self.host.submit(self.runtimes[planned], job, limits=limits)

    def run(self, model: Path, cases: Sequence[InputCase]) -> list[ObservedRun]:
        """Run all cases on every runtime at every level."""
        asked = [
            (planned, job) for planned in self.runtimes for job in prepare_runs(model, cases, planned, self.place())
        ]
        futures = [self.submit(planned, job, JobLimits(time_s=120)) for planned, job in asked]
        return [
            ObservedRun(planned.name, job, future.result())
            for (planned, job), future in zip(asked, futures, strict=True)
        ]

    def ask(self, job: Job) -> Observation:
        """Run a job in the toolchain."""
        assert self.toolchain is not None
        return self.host.submit(create_toolchain_spec(self.toolchain), job).result()


@dataclass(frozen=True, slots=True)
class Sourced:
    """An exported source, run on its model's cases."""

    asked: Export
    model: Path
    cases: tuple[InputCase, ...]
    eager: Mapping[str, CaseResult]
    tolerance: Mapping[str, MeasuredTolerance]


def export(bench: Bench, source: Path, name: str, sizes: Mapping[str, Sequence[int]], seed: int = 0) -> Sourced:
    """Export a source, generate cases for its model, and compute the source's outputs in both precisions."""
    asked = Export(
        source=f"{source}:{name}",
        output=str(_create(bench.place())),
        folder=str(source.parent),
        opset=18,
        ir_version_max=10,
    )
    model = Path(str(_exported(bench, asked).model))
    reading = read_model(model, "model.onnx")
    cases = generate_cases(reading.facts, reading.view, sizes, bench.place(), seed=seed)
    return with_cases(bench, asked, model, cases)


def with_cases(bench: Bench, asked: Export, model: Path, cases: tuple[InputCase, ...]) -> Sourced:
    """Compute the source's outputs for these cases."""
    again = {name: getattr(asked, name) for name in asked.__struct_fields__}
    again.update(output=str(_create(bench.place())), cases=cases, export=False)
    answer = _exported(bench, Export(**again))
    eager = {case.name: got for case, got in zip(cases, answer.eager, strict=False)}
    names = [value.name for value in read_model(model, "model.onnx").facts.outputs]
    arrays = [
        tuple(
            {name: np.load(str(path)) for name, path in zip(names, got.outputs, strict=True)} for got in (narrow, wide)
        )
        for narrow, wide in zip(answer.eager[: len(cases)], answer.eager64, strict=False)
    ]
    return Sourced(asked, model, cases, eager, measure_noise(arrays).tolerances)  # type: ignore[arg-type]


def _exported(bench: Bench, job: Export) -> ExportResult:
    assert bench.toolchain is not None
    match bench.host.submit(create_toolchain_spec(bench.toolchain), job).result():
        case Completed(result=ExportResult(failure=None) as result):
            return result
        case other:
            raise AssertionError(other)


def _create(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def compared(
    bench: Bench,
    model: Path,
    cases: Sequence[InputCase],
    *,
    eager: Mapping[str, CaseResult] | None = None,
    tolerance: Mapping[str, MeasuredTolerance] | None = None,
    fresh: Path | None = None,
    source: Export | None = None,
) -> tuple[tuple[Comparison, ...], tuple[IncompleteCheck, ...]]:
    """Return the parity stage's comparisons, with the first differing node of each mismatch."""
    reading = read_model(model, "model.onnx")
    ran = bench.run(model, cases)
    locked = LockedModel(sha256="", size_bytes=0, ir_version=8, opsets={}, tolerance=dict(tolerance or {}))
    subject = ParityModel(
        "model.onnx", Place("onnxgate.toml", 1), detect_numeric_traits(reading.facts, reading.view), None, locked
    )
    comparisons, _ = stage.collect_evidence(subject, ran, eager, ())
    located = SearchedModel(
        path="model.onnx",
        absolute=model,
        proto=reading.proto,
        root=model.parent,
        folder=model.parent,
        cases={case.name: case for case in cases},
        eager=eager,
        fresh=fresh,
        source=source,
    )
    extra = ExtraRuns({planned.name: planned for planned in bench.runtimes}, bench.submit, bench.place)
    return MismatchSearch(extra, bench.ask).locate(located, comparisons)


def firsts(comparisons: Sequence[Comparison]) -> set[FirstDifference | None]:
    """Return the first differing nodes of the mismatches."""
    return {comparison.first for comparison in comparisons if find_mismatches(comparison)}


# One incorrect weight


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A model with one weight, or one element of it, that is 1 % too large."""

    model: Path
    weight: str


Spoil = Callable[[onnx.ModelProto, Random], str]


def scale_tensor(model: onnx.ModelProto, random: Random) -> str:
    """Multiply one randomly chosen weight by 1.01."""
    tensor = random.choice(_weights(model))
    array = numpy_helper.to_array(tensor) * np.float32(1.01)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return tensor.name


def scale_element(model: onnx.ModelProto, random: Random) -> str:
    """Multiply one element of a randomly chosen weight by 1.01."""
    tensor = random.choice(_weights(model))
    array = numpy_helper.to_array(tensor).copy()
    array.reshape(-1)[random.randrange(array.size)] *= np.float32(1.01)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return tensor.name


def _weights(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return floating-point initializers of at least 8 elements that affect an output."""
    outputs = [value.name for value in model.graph.output]
    used = {name for step in list_search_nodes(model, outputs) for name in find_node_weights(model, step.index)}
    return [
        tensor
        for tensor in model.graph.initializer
        if tensor.name in used and tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) >= 8
    ]


def spoiled(model: Path, folder: Path, spoil: Spoil, random: Random) -> Spoiled:
    """Create a copy of the model with one incorrect weight."""
    proto = onnx.load(str(model))
    weight = spoil(proto, random)
    path = _create(folder) / "model.onnx"
    onnx.save(proto, str(path))
    return Spoiled(path, weight)


def verdict(spoiled: Spoiled, first: FirstDifference | None) -> Verdict:
    """Return whether the reported node uses the weight, is a neighbor of one that does, or neither."""
    if first is None:
        return "nothing"
    proto = onnx.load(str(spoiled.model), load_external_data=False)
    outputs = [value.name for value in proto.graph.output]
    every = {step.index: step for step in list_search_nodes(proto, outputs)}
    right = {index for index in every if spoiled.weight in find_node_weights(proto, index)}
    named = next(step for step in every.values() if first.output in step.outputs)
    if named.index in right:
        return "right"
    near = [every[index] for index in right]
    touching = any(set(named.inputs) & set(each.outputs) or set(each.inputs) & set(named.outputs) for each in near)
    return "neighbour" if touching else "wrong"
