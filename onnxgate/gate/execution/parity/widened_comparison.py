"""Comparison of float16 models with their source without most rounding: the model in float32, the source in float64.

Rounding in float16 hides small faults, such as a weight that is 1 % off. Weights that the model stores in float16 are
rounded in the source as well. The remaining differences are float32 rounding, and the rounding of constants and weights
that a tool computed, such as convolutions with folded normalizations. Runs in which both are changed at random show the
effect of this rounding. A weight that differs from a fresh export is not changed, because its difference is not
rounding, if its replacement alone brings the outputs closer to the source. Weights that were combined with a
normalization in only one of the two exports also differ, but replacing one of them does not bring the outputs closer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from onnxgate.core.jobs import CaseResult, Completed, ExportResult, InputCase, Observation
from onnxgate.evidence.parity import IN_FLOAT32, Difference
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns, NoOutputsError, UnmeasurableError
from onnxgate.gate.execution.parity.noise import computes_in_half
from onnxgate.model.reading.structure import read_structure
from onnxgate.model.subgraphs.widened_models import ROUNDED_ONCE, Rounding, write_widened_model
from onnxgate.numerics.metrics import OutputScale, compute_snr_db
from onnxgate.numerics.streams import load_array
from onnxgate.stages.parity.differing_weights import DifferingWeight, find_differing_weights
from onnxgate.stages.parity.output_comparison import CaseOutput
from onnxgate.stages.parity.run_outputs import RunOutputs
from onnxgate.stages.parity.source_difference import match_fresh_export

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

MAX_WIDENED_DB = 105.0
"""Maximum required SNR in dB, which is an error of about 6e-6. Faults with a smaller effect are not found.

For example, with the tanh approximation of one GELU, BERT and ViT with small random weights have an SNR of 105 to
116 dB. With weights that are three times as large, they have 81 to 84 dB, and the fault is found. Measured 2026-11-28.
"""
MARGIN_DB = 10.0
"""The bound is this much below the SNR of runs with other rounding.

Source: 43 architectures converted from float32 by onnxconverter-common, and 20 exported in float16, with 3 inputs each.
The SNR of correct outputs is up to 5 dB lower than that of these runs if that is at least 55 dB, and up to 10 dB below.
With 1 % of a query or value weight in BERT and ViT, it is 20 to 35 dB lower. In ELECTRA, it is less than 10 dB lower:
this fault is found only because the weight differs from a fresh export. Measured 2026-11-28.
"""
MIN_NOISE_DB = 55.0
"""Minimum SNR of runs with other rounding. Otherwise, the bound would not exceed that of float16 outputs (45 dB)."""
SAMPLES = 2
"""Number of runs with other rounding."""
FLOAT_STEPS, HALF_STEPS = ROUNDED_ONCE, 2.0
"""Maximum change of computed weights in float16 steps: they are rounded once after computing in float32, but several
times in float16, unless computing does not change them."""


MAX_REPLACED = 8
"""Maximum number of weights that differ from a fresh export. If more differ, they were probably computed differently,
or the outputs differ in float16 as well."""
MIN_GAIN_DB = 1.0
"""Minimum increase of the lowest SNR if a wrong weight is replaced. Other rounding changes it by less; chosen."""


class WidenedDifferences(NamedTuple):
    """Differences in the outputs, and the SNR of outputs that cannot be compared because rounding changes them."""

    differences: tuple[Difference, ...]
    limits: Mapping[str, float]  # output -> SNR in dB
    wrong_weights: tuple[str, ...] = ()  # names of weights that differ from the fresh export


@dataclass(frozen=True, slots=True)
class WidenedComparison:
    """Compares a model on one runtime. `exported` is the path of a fresh export, if there is one."""

    extra: ExtraRuns
    runtime: str
    exported: Path | None

    def compare(self, model: Path, cases: Sequence[InputCase], source: Observation) -> WidenedDifferences:
        """Compare the outputs; `source` ran in float64 as well, with the weights of the model.

        Raises:
            UnmeasurableError: the model does not run in float32, or the source not in float64.
        """
        result = source.result if isinstance(source, Completed) else None
        if not isinstance(result, ExportResult) or not result.eager64:
            raise UnmeasurableError("the source does not run in float64")
        run = partial(self._run, model, cases)
        exact = frozenset(result.half_weights)
        found = _compare_with_rounding(run, cases, result, exact)
        if all(it.agrees and it.bound >= MAX_WIDENED_DB for it in found.differences) and not found.limits:
            return found
        wrong = self._find_wrong_weights(model, cases, result, exact)
        if not wrong:
            return found
        found = _compare_with_rounding(run, cases, result, exact.union(it.sha256 for it in wrong))
        return found._replace(wrong_weights=tuple(it.name for it in wrong))

    def _find_wrong_weights(
        self, model: Path, cases: Sequence[InputCase], result: ExportResult, exact: frozenset[str]
    ) -> list[DifferingWeight]:
        """Return the weights that differ from the fresh export and whose replacement improves the outputs."""
        fresh = match_fresh_export(read_structure(model), model, self.exported) if self.exported is not None else None
        differing = find_differing_weights(fresh, model) if fresh is not None else ()
        chosen = list(islice(differing, MAX_REPLACED + 1))
        if not chosen or len(chosen) > MAX_REPLACED:
            return []

        def measure(replaced: Mapping[str, Array]) -> float:
            outputs = self._run(model, cases, exact, restore=True, replaced=replaced)
            return min(_measure_snr(outputs, cases, result.eager64).values(), default=0.0)

        own_db = measure({})
        return [it for it in chosen if measure({it.sha256: it.fresh}) > own_db + MIN_GAIN_DB]

    def _run(
        self,
        model: Path,
        cases: Sequence[InputCase],
        exact: Collection[str],
        *,
        restore: bool = False,
        rounding: Rounding | None = None,
        replaced: Mapping[str, Array] | None = None,
    ) -> RunOutputs:
        folder = self.extra.create_folder()
        path = folder / "model.onnx"
        try:
            if not write_widened_model(model, path, exact, restore=restore, rounding=rounding, replaced=replaced):
                raise UnmeasurableError("it is too large for a copy in float32")
        except (OSError, ValueError) as error:
            raise UnmeasurableError(f"it cannot be copied: {error}") from error
        fed = [_widen_case(case, folder / str(index)) for index, case in enumerate(cases)]
        try:
            return self.extra.start(self.runtime, path, fed, "disabled").outputs()
        except NoOutputsError as error:
            raise UnmeasurableError(f"it does not run in float32 on {self.runtime} ({error})") from error


def _compare_with_rounding(
    run: Callable[..., RunOutputs], cases: Sequence[InputCase], source: ExportResult, exact: frozenset[str]
) -> WidenedDifferences:
    """Compare with the source, with a bound from runs with other rounding of the weights that are not in `exact`."""
    steps = HALF_STEPS if computes_in_half(source) else FLOAT_STEPS
    folded = frozenset(source.folded_weights)
    changed = [run(exact, restore=True, rounding=Rounding(steps, seed, folded)) for seed in range(SAMPLES)]
    found = _compare_cases(run(exact, restore=True), changed, cases, source.eager64)
    if all(difference.agrees for difference in found.differences):
        return found
    return _compare_cases(run(exact), changed, cases, source.eager64)  # a restored constant may be wrong


def _widen_case(case: InputCase, folder: Path) -> InputCase:
    folder.mkdir()
    inputs = dict(case.inputs)
    for index, (name, path) in enumerate(case.inputs.items()):
        if load_array(path).dtype == np.float16:
            inputs[name] = str((folder / f"{index}.npy").absolute())
            np.save(inputs[name], load_array(path).astype(np.float32), allow_pickle=False)
    return msgspec.structs.replace(case, inputs=inputs)


def _compare_cases(
    outputs: RunOutputs, changed: Sequence[RunOutputs], cases: Sequence[InputCase], source: Sequence[CaseResult]
) -> WidenedDifferences:
    differences: list[Difference] = []
    limits: dict[str, float] = {}
    for key, snr_db in _measure_snr(outputs, cases, source).items():
        own = load_array(outputs.paths[key] or "")
        others = [load_array(other) for run in changed if (other := run.paths.get(key))]
        noise_db = min((compute_snr_db(other, own, OutputScale()) for other in others), default=0.0)
        if noise_db < MIN_NOISE_DB:
            limits[key[1]] = min(noise_db, limits.get(key[1], noise_db))
        else:
            differences.append(_create_difference(key, snr_db, noise_db))
    return WidenedDifferences(tuple(differences), limits)


def _measure_snr(
    outputs: RunOutputs, cases: Sequence[InputCase], source: Sequence[CaseResult]
) -> dict[CaseOutput, float]:
    """Return the SNR in dB of each output that can be compared with the source."""
    measured: dict[CaseOutput, float] = {}
    for case, wide in zip(cases, source, strict=False):
        for name, path in zip(outputs.names, wide.outputs, strict=False):
            candidate = outputs.paths.get((case.name, name))
            if candidate is None or path is None:
                continue
            a, b = load_array(candidate), load_array(path)
            is_comparable = a.shape == b.shape and a.dtype.kind == b.dtype.kind == "f"
            if is_comparable and np.abs(b[np.isfinite(b)]).max(initial=0.0) <= np.finfo("f2").max:
                measured[case.name, name] = compute_snr_db(a, b, OutputScale())
    return measured


def _create_difference(key: CaseOutput, snr_db: float, noise_db: float) -> Difference:
    bound = min(MAX_WIDENED_DB, noise_db - MARGIN_DB)
    return Difference(
        output=key[1],
        case=key[0],
        optimization="disabled",
        agrees=snr_db >= bound,
        metric="sqnr_db",
        value=snr_db,
        bound=bound,
        bound_from="type" if bound == MAX_WIDENED_DB else "measured",
        detail=IN_FLOAT32,
    )
