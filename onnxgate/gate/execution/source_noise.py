"""Rounding errors of a source, measured by running it in its own precision and in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onnxgate.core.jobs import CaseResult, Completed, ExportResult, Observation
from onnxgate.core.text import first_line
from onnxgate.numerics.agreement import NoiseMeasurement, measure_noise
from onnxgate.numerics.streams import load_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]


class UnmeasurableError(Exception):
    """The rounding errors of a source cannot be measured; the message is the reason."""


def read_source_noise(outputs: Sequence[str], answer: Observation, *, half: bool) -> NoiseMeasurement:
    """Return the noise of each output from an observation of an `Export` job with `float64`.

    Raises:
        UnmeasurableError: the source did not run in both precisions, or no output is numeric.
    """
    match answer:
        case Completed(result=ExportResult(eager64=results) as result) if results:
            pairs = (
                (_load_outputs(outputs, narrow), _load_outputs(outputs, wide))
                for narrow, wide in zip(result.eager, results, strict=False)
                if narrow.failure is None and wide.failure is None
            )
            measurement = measure_noise(pairs, half=half)
            if measurement != NoiseMeasurement():
                return measurement
            failures = [case.failure for case in (*result.eager, *results) if case.failure is not None]
            if failures:
                raise UnmeasurableError(first_line(failures[0].summary))
            raise UnmeasurableError("no output of the source is numeric and has the same shape in float32 and float64")
        case Completed(result=ExportResult(failure=failure)) if failure is not None:
            raise UnmeasurableError(first_line(failure.summary))
        case Completed(result=ExportResult(eager_reason=reason)) if reason:
            raise UnmeasurableError(reason)
        case Completed():
            raise UnmeasurableError("the source does not run in float64")
        case _:
            raise UnmeasurableError(f"the source did not complete ({type(answer).__name__.lower()})")


def _load_outputs(outputs: Sequence[str], case: CaseResult) -> Arrays:
    paths = zip(outputs, case.outputs, strict=False)
    return {name: load_array(path) for name, path in paths if path is not None}
