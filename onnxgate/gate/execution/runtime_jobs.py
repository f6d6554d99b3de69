"""Jobs on the locked runtimes; results of runs are reused from the cache."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.core.jobs import Job, Observation, Probe, Run
from onnxgate.gate.request import ExecutionSettings, RunnableModel
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec
from onnxgate.stages.runtime import plan_run

if TYPE_CHECKING:
    from onnxgate.gate.result_cache import ResultCache


class RuntimeJobs:
    """Submits jobs to the runtimes of a check.

    `reused` lists the models and runtimes whose results came from the cache.
    """

    def __init__(self, settings: ExecutionSettings, host: WorkerPool, cache: ResultCache | None) -> None:
        self._settings = settings
        self._host = host
        self._cache = cache
        self._answers: defaultdict[Path, list[Future[Observation]]] = defaultdict(list)  # by model file
        self.reused: list[tuple[str, str]] = []

    def warm_up(self, models: Sequence[RunnableModel]) -> None:
        """Create every environment that will be used, and import its engine there."""
        plans = [model.planned for model in models]
        runtimes = [(plan.model.absolute, runtime) for plan in plans for runtime in plan.runtimes]
        for runtime in dict.fromkeys(it.runtime for model, it in runtimes if not self._is_spared(model, it)):
            self._host.submit(self._spec(runtime), Probe())

    def _is_spared(self, model: Path, planned: PlannedRuntime) -> bool:
        """Return whether all results of a runtime are probably cached, so its environment need not be created."""
        if self._cache is None:
            return False
        jobs = [plan_run(model, (), planned, level, Path(level)) for level in planned.levels]
        return self._cache.expects(self._spec(planned.runtime), jobs)

    def _spec(self, runtime: LockedRuntime) -> WorkerSpec:
        return WorkerSpec.of_runtime(runtime, self._settings.lock.pinned, self._settings.project.folder)

    def submit(self, planned: PlannedRuntime, job: Job, limits: JobLimits | None = None) -> Future[Observation]:
        """Run a job."""
        return self._host.submit(self._spec(planned.runtime), job, limits=limits)

    def submit_for(
        self, model: Path, planned: PlannedRuntime, job: Job, limits: JobLimits | None = None
    ) -> Future[Observation]:
        """Run a job and record that the outcome of the model depends on it."""
        answer = self.submit(planned, job, limits)
        self._answers[model].append(answer)
        return answer

    def run(self, planned: PlannedRuntime, job: Run) -> Future[Observation]:
        """Run a model or return its cached result."""
        answer = self._find_or_run(planned, job)
        self._answers[Path(job.model)].append(answer)
        return answer

    def _find_or_run(self, planned: PlannedRuntime, job: Run) -> Future[Observation]:
        cache, spec = self._cache, self._spec(planned.runtime)
        observation = cache.find(spec, job) if cache is not None else None
        if observation is not None:
            self.reused.append((job.model, planned.name))
            reused: Future[Observation] = Future()
            reused.set_result(observation)
            return reused

        def store(done: Future[Observation]) -> None:
            if cache is not None and not done.cancelled() and done.exception() is None:
                cache.keep(spec, job, done.result())

        future = self._host.submit(spec, job)
        future.add_done_callback(store)
        return future

    def take_answers(self, model: Path) -> tuple[Future[Observation], ...]:
        """Remove and return the observations on which the outcome of the model at this path depends."""
        return tuple(self._answers.pop(model, ()))
