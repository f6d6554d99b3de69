"""Count false alarms: compare a model with its source for many seeds, on locked runtimes, at both optimization levels.

    python bench/seeds.py PROJECT MODEL [--seeds 50] [--releases 1.18.1,1.23.2,1.31.1] [--sizes batch=1,time=16]...

Each `--sizes` adds one set of sizes for the dynamic axes; the default is the sizes that `check` uses. All seeds and
sizes are cases of one job per runtime and optimization level, so that each session is created only once. The source
runs once for all cases. MODEL must be correct, so that every disagreement is a false alarm. The exit status is 1 if
there is a false alarm, or if a case did not run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from onnxgate.cli.shared.options import CommonOptions
from onnxgate.cli.shared.worker_pool import open_pool
from onnxgate.core.jobs import CaseResult, Completed, ExportResult, InputCase, RunResult
from onnxgate.evidence.parity import Comparison
from onnxgate.inputs.case_selection import make_example_case
from onnxgate.inputs.cases import generate_cases
from onnxgate.model.numeric_traits import detect_numeric_traits
from onnxgate.model.reading.fact_extraction import ParsedModel, read_model
from onnxgate.project.config.loader import load_config
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.lock.lock_file import load_lock
from onnxgate.project.lock.types import Lock
from onnxgate.project.plan import PlannedRuntime, plan_models
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.stages import export_jobs as jobs
from onnxgate.stages import runtime as runtime_stage
from onnxgate.stages.parity import stage
from onnxgate.stages.parity.output_comparison import ParityModel
from onnxgate.stages.runtime import ObservedRun


def main() -> int:
    """Run all cases, print the disagreements and return the exit status."""
    asked = _arguments()
    project = load_config(asked.project / "onnxgate.toml")
    lock = load_lock(project.lock_path)
    (model,) = (each for each in project.models() if each.path == asked.model)
    reading = read_model(model.absolute, model.path)
    with tempfile.TemporaryDirectory() as scratch, open_pool(project, CommonOptions(jobs=2)) as host:
        cases = tuple(_cases(reading, model, asked, Path(scratch)))
        eager, sample = _eager(project, lock, model, reading, cases, Path(scratch) / "source", host)
        runtimes = _runtimes(project, lock, model, asked.releases)
        every = (*cases, *([sample] if sample else []))
        ran = [each for one in runtimes for each in _run(project, lock, model, one, every, Path(scratch), host)]
        comparisons, undone = stage.collect_evidence(_subject(model, reading, lock), ran, eager, ())
    return _describe(ran, comparisons, [entry.reason for entry in undone])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Count false alarms over many seeds.")
    parser.add_argument("project", type=Path)
    parser.add_argument("model")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--releases", type=lambda text: text.split(","), default=[])
    parser.add_argument("--sizes", action="append", type=_setting, default=[])
    return parser.parse_args()


def _setting(text: str) -> dict[str, int]:
    return {name: int(size) for name, size in (each.split("=") for each in text.split(","))}


def _cases(reading: ParsedModel, model: SelectedModel, asked: argparse.Namespace, folder: Path) -> Iterator[InputCase]:
    for seed in range(asked.seeds):
        made = generate_cases(reading.facts, reading.view, model.settings.sizes, folder / str(seed), asked.sizes, seed)
        for case in made:
            yield msgspec.structs.replace(case, name=f"{case.name}, seed {seed}")


def _eager(
    project: Project,
    lock: Lock,
    model: SelectedModel,
    reading: ParsedModel,
    cases: tuple[InputCase, ...],
    folder: Path,
    host: WorkerPool,
) -> tuple[dict[str, CaseResult] | None, InputCase | None]:
    """Return the outputs of the source, and its example inputs as a case; (None, None) if the model has no source."""
    if model.settings.source is None:
        return None, None
    toolchain = jobs.ProjectToolchain.of_project(project)
    (planned,) = plan_models(project, lock, [model])
    source = jobs.plan_export(toolchain, planned, folder, cases=cases).source
    assert source is not None
    job = msgspec.structs.replace(source, export=False)
    answer = host.submit(toolchain.spec, job).result()
    if not isinstance(answer, Completed) or not isinstance(answer.result, ExportResult):
        raise SystemExit(f"the source returned no outputs: {answer}")
    result = answer.result
    eager = {case.name: found for case, found in zip(cases, result.eager, strict=False)}
    sample = make_example_case(reading.facts, result.input_names, result.sample)
    return (eager, None) if sample is None else ({**eager, sample.name: result.eager[-1]}, sample)


def _runtimes(project: Project, lock: Lock, model: SelectedModel, releases: list[str]) -> list[PlannedRuntime]:
    (planned,) = plan_models(project, lock, [model])
    return [runtime for runtime in planned.runtimes if not releases or runtime.runtime.release in releases]


def _run(
    project: Project,
    lock: Lock,
    model: SelectedModel,
    planned: PlannedRuntime,
    cases: tuple[InputCase, ...],
    scratch: Path,
    host: WorkerPool,
) -> Iterator[ObservedRun]:
    worker_spec = WorkerSpec.of_runtime(planned.runtime, lock.packages, project.folder)
    for job in runtime_stage.prepare_runs(model.absolute, cases, planned, scratch / planned.name):
        yield ObservedRun(planned.name, job, host.submit(worker_spec, job).result())


def _subject(model: SelectedModel, reading: ParsedModel, lock: Lock) -> ParityModel:
    return ParityModel(
        path=model.path,
        place=model.place,
        comparability=detect_numeric_traits(reading.facts, reading.view),
        tolerance=model.settings.tolerance,
        locked=lock.models.get(model.path),
    )


def _describe(ran: list[ObservedRun], comparisons: tuple[Comparison, ...], undone: list[str]) -> int:
    done: Counter[str] = Counter()
    failed = 0
    for each in ran:
        match each.observation:
            case Completed(result=RunResult(cases=results)):
                done[each.runtime] += sum(one.failure is None for one in results)
                failed += sum(one.failure is not None for one in results)
            case other:
                print(f"{each.runtime}: {other}")
                failed += len(each.job.cases)
    alarms = 0
    for comparison in comparisons:
        beyond = [one for one in comparison.differences if not one.agrees]
        alarms += len(beyond)
        used = max((one.value / one.bound for one in comparison.differences if one.bound), default=0.0)
        share = f"largest difference relative to its tolerance: {used:.2f}"
        result = f"{len(beyond)} of {len(comparison.differences)} outputs disagree; {share}"
        print(f"{comparison.runtime} compared with {comparison.reference}: {result}")
        for one in beyond[:5]:
            print(f"  {one.output} in {one.case}, {one.optimization}: {one.value:.3g} > {one.bound:.3g}")
    print(f"{sum(done.values())} cases ran, {failed} did not; {alarms} false alarms")
    for reason in undone:
        print(f"not compared: {reason}")
    return 1 if alarms or failed or undone else 0


if __name__ == "__main__":
    sys.exit(main())
