"""Outputs of runs, and the order of the runtimes that computed them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packaging.version import Version

from onnxgate.core.findings import runtime_sort_key
from onnxgate.core.jobs import Completed, InputCase, RunResult
from onnxgate.project.engines import ENGINES, ONNXRUNTIME, engine_family, parse_engine
from onnxgate.stages.parity.output_comparison import CaseOutput
from onnxgate.stages.runtime import ObservedRun


@dataclass(frozen=True, slots=True)
class RunOutputs:
    """Outputs of one run: paths of `.npy` files by case and output; None if NumPy does not support the type."""

    names: tuple[str, ...]
    paths: dict[CaseOutput, str | None]


OutputsByLevel = dict[str, RunOutputs]  # by optimization level
OutputsByRuntime = dict[str, OutputsByLevel]


def collect_outputs(runs: Iterable[ObservedRun]) -> OutputsByRuntime:
    """Group the outputs by runtime and optimization level, in release order."""
    outputs: OutputsByRuntime = {}
    for run in runs:
        match run.observation:
            case Completed(result=RunResult() as result) if run.job.cases:
                outputs.setdefault(run.runtime, {})[run.job.optimization] = list_outputs(run.job.cases, result)
            case _:
                pass
    return dict(sorted(outputs.items(), key=lambda item: runtime_sort_key(item[0])))


def list_outputs(cases: Sequence[InputCase], result: RunResult) -> RunOutputs:
    """Return the outputs of one run, without failed cases."""
    paths = {
        (case.name, name): path
        for case, case_result in zip(cases, result.cases, strict=True)
        if case_result.failure is None
        for name, path in zip(result.outputs, case_result.outputs, strict=True)
    }
    return RunOutputs(result.outputs, paths)


def reference_rank(runtime: str) -> tuple[bool, int, Version]:
    """Return a sort key: other engines in reverse order of `ENGINES`, then ONNX Runtime. Newer releases come last."""
    engine = parse_engine(runtime)
    position = ENGINES.index(engine) if engine in ENGINES else len(ENGINES)
    return is_onnxruntime(runtime), -position, runtime_sort_key(runtime)[1]


def runtime_family(runtime: str) -> str:
    """Return the engine without its build variant."""
    return engine_family(parse_engine(runtime))


def is_onnxruntime(runtime: str) -> bool:
    """Return whether the runtime is any build of ONNX Runtime."""
    return runtime_family(runtime) == ONNXRUNTIME
