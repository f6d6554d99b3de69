"""Runs of a model on slightly changed inputs, which show which items of ranked outputs rounding errors may change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from onnxgate.core.jobs import Completed, InputCase, Optimization, RunResult
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.subgraphs.instrumented_models import SELECTION_NOISE, add_selection_noise
from onnxgate.numerics.ranking import NOISES

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUNS_PER_LEVEL = 8
"""Number of runs at each level. All 16 list an item that each omits with a probability of 44 % in 1 of 10,000 cases.

Source: the probability that a uniform change exceeds an eighth of its maximum in one direction.
"""
MIN_HALF_NOISE = 1e-3
"""Minimum change if a model computes in 16 bits, or if an input has 16 bits.

Source: the relative precision of float16, 2**-10; no float16 detector was measured.
"""

Outputs = Mapping[str, str]  # output -> path of its .npy file


@dataclass(frozen=True, slots=True)
class NearbyRuns:
    """Runs of a model on inputs that differ from those of a case by rounding errors. The runs are cached."""

    extra: ExtraRuns
    model: Path
    cases: Sequence[InputCase]
    half: bool  # whether the model computes in 16 bits
    _cache: dict[tuple[str, str, str, int], Sequence[Outputs]] = field(default_factory=dict)

    def run(self, runtime: str, optimization: str, case: str, level: int) -> Sequence[Outputs]:
        """Return the output files of the runs at one level of `NOISES`; empty if the case does not run."""
        key = runtime, optimization, case, level
        if key not in self._cache:
            self._cache[key] = self._run_case(*key)
        return self._cache[key]

    def _run_case(self, runtime: str, optimization: str, case: str, level: int) -> Sequence[Outputs]:
        original = next((original for original in self.cases if original.name == case), None)
        if original is None or runtime not in self.extra.runtimes:
            return ()
        chosen: Optimization = "all" if optimization == "all" else "disabled"
        noisy = self._add_noise(level)
        runs = self._run(runtime, noisy, chosen, tuple(self._vary(original, level, True))) if noisy is not None else ()
        return runs or self._run(runtime, self.model, chosen, tuple(self._vary(original, level, False)))

    def _run(
        self, runtime: str, model: Path, optimization: Optimization, cases: tuple[InputCase, ...]
    ) -> Sequence[Outputs]:
        match self.extra.start(runtime, model, cases, optimization).answer.result() if cases else None:
            case Completed(result=RunResult(outputs=names) as result):
                return [
                    {name: path for name, path in zip(names, run.outputs, strict=True) if path}
                    for run in result.cases
                    if run.failure is None
                ]
            case _:
                return ()

    def _add_noise(self, seed: int) -> Path | None:
        """Return a copy of the model with noise in its scores; None if this is not possible."""
        with suppress(OSError, ValueError, UnreadableModel):
            return add_selection_noise(self.model, self.extra.place(), seed + 1)
        return None

    def _vary(self, case: InputCase, level: int, has_noise: bool) -> Iterator[InputCase]:
        """Yield copies of the case with changed float inputs, and with the noise of the selections if they have any."""
        inputs = {name: np.load(path, allow_pickle=False) for name, path in case.inputs.items()}
        floats = {name: array for name, array in inputs.items() if array.dtype.kind == "f"}
        if not floats and not has_noise:
            return
        is_half = self.half or any(array.dtype.itemsize == 2 for array in floats.values())
        noise = max(NOISES[level], MIN_HALF_NOISE if is_half else 0.0)
        generator = np.random.default_rng(level)
        for _ in range(RUNS_PER_LEVEL):
            arrays = {name: _change(array, noise, generator) for name, array in floats.items()}
            if has_noise:
                arrays[SELECTION_NOISE] = np.array(noise, np.float32)
            folder = self.extra.create_folder()
            changed = {name: str(folder / f"{number}.npy") for number, name in enumerate(arrays)}
            for name, array in arrays.items():
                np.save(changed[name], array)
            yield msgspec.structs.replace(case, inputs={**case.inputs, **changed})


def _change(array: NDArray[Any], share: float, generator: np.random.Generator) -> NDArray[Any]:
    largest = float(np.abs(array[np.isfinite(array)].astype(np.float64)).max(initial=0.0))
    noise = generator.uniform(-share * largest, share * largest, array.shape)
    return (array.astype(np.float64) + noise).astype(array.dtype)
