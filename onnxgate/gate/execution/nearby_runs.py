"""Runs of a model on slightly changed inputs, which show which items of ranked outputs rounding errors may change."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from onnxgate.core.jobs import Completed, InputCase, Job, Observation, Optimization, RunResult
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.subgraphs.instrumented_models import SELECTION_NOISE, add_selection_noise
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.worker_spec import JobLimits
from onnxgate.stages.runtime import plan_run

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEARBY_SHARES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""Changes of float inputs that show which items of ranked outputs are unstable, relative to the largest value.

Networks amplify or attenuate changes of their inputs, so small and large changes are tried. A run whose stable items
change by more than their tolerance is not used.

Source: of a Faster R-CNN with random weights (torchvision, MobileNetV3), inputs changed by 1e-6 to 1e-3 list all 99
stable items again, and by 1e-2 95 to 98 of them. The smallest share is about 8 ULP of float32.
"""
MIN_HALF_SHARE = 1e-3
"""Minimum change if a model computes in 16 bits, or if an input has 16 bits.

Source: the relative precision of float16, 2**-10; no float16 detector was measured.
"""
SELECTION_NOISES = (0.0, 1e-6, 1e-6, 1e-5)
"""Noise of the scores in the runs with each change, relative to each score: it changes the order of equal scores.

Source: of a Faster R-CNN with random weights, many of whose scores are equal, runs with this noise list 16 to 38 of 99
items again.
"""


@dataclass(frozen=True, slots=True)
class NearbyRuns:
    """Runs of a model on inputs that differ from those of a case by rounding errors."""

    submit: Callable[[PlannedRuntime, Job, JobLimits | None], Future[Observation]]
    place: Callable[[], Path]
    model: Path
    cases: Sequence[InputCase]
    runtimes: Collection[PlannedRuntime]
    half: bool  # whether the model computes in 16 bits

    def run(self, runtime: str, level: str, case: str, attempt: int) -> list[list[dict[str, str]]]:
        """Return the output files of each run, by output, grouped by the size of the changes of the inputs.

        The result is empty if the case has no float inputs or does not run.
        """
        planned = next((planned for planned in self.runtimes if planned.name == runtime), None)
        original = next((original for original in self.cases if original.name == case), None)
        if planned is None or original is None:
            return []
        optimization: Optimization = "all" if level == "all" else "disabled"
        noisy = self._add_noise(attempt)
        if noisy is not None:
            cases = tuple(self._vary(original, attempt, SELECTION_NOISES))
            if runs := self._run(planned, noisy, optimization, cases):
                return runs
        cases = tuple(self._vary(original, attempt, (None,) * len(SELECTION_NOISES)))
        return self._run(planned, self.model, optimization, cases)

    def _run(
        self, planned: PlannedRuntime, model: Path, level: Optimization, cases: tuple[InputCase, ...]
    ) -> list[list[dict[str, str]]]:
        output = self.place()
        output.mkdir(parents=True)
        job = msgspec.structs.replace(plan_run(model, cases, planned, level, output), again=False)
        match self.submit(planned, job, None).result() if cases else None:
            case Completed(result=RunResult(outputs=names) as result):
                runs = [
                    {name: path for name, path in zip(names, run.outputs, strict=True) if path}
                    if run.failure is None
                    else {}
                    for run in result.cases
                ]
                size = len(SELECTION_NOISES)
                return [list(filter(None, runs[start : start + size])) for start in range(0, len(runs), size)]
            case _:
                return []

    def _add_noise(self, seed: int) -> Path | None:
        """Return a copy of the model with noise in its scores; None if this is not possible."""
        with suppress(OSError, ValueError, UnreadableModel):
            return add_selection_noise(self.model, self.place(), seed + 1)
        return None

    def _vary(self, case: InputCase, seed: int, noises: Sequence[float | None]) -> Iterator[InputCase]:
        """Yield copies of the case whose float inputs are changed at random, with the noise of the scores if any."""
        inputs = {name: np.load(path, allow_pickle=False) for name, path in case.inputs.items()}
        floats = {name: array for name, array in inputs.items() if array.dtype.kind == "f"}
        if not floats and None in noises:
            return
        generator = np.random.default_rng(seed)
        least = MIN_HALF_SHARE if self.half or any(it.dtype.itemsize == 2 for it in floats.values()) else 0.0
        for share, noise in itertools.product(NEARBY_SHARES, noises):
            arrays = {name: _change(array, max(share, least), generator) for name, array in floats.items()}
            if noise is not None:
                arrays[SELECTION_NOISE] = np.array(max(noise, least), np.float32)
            folder = self.place()
            folder.mkdir(parents=True)
            changed = {name: str(folder / f"{number}.npy") for number, name in enumerate(arrays)}
            for name, array in arrays.items():
                np.save(changed[name], array)
            yield msgspec.structs.replace(case, inputs={**case.inputs, **changed})


def _change(array: NDArray[Any], share: float, generator: np.random.Generator) -> NDArray[Any]:
    largest = float(np.abs(array[np.isfinite(array)].astype(np.float64)).max(initial=0.0))
    noise = generator.uniform(-share * largest, share * largest, array.shape)
    return (array.astype(np.float64) + noise).astype(array.dtype)
