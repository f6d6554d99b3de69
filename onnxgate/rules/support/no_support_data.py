"""The rule `no-support-data`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import OPEN_UNTIL_RUN, Hit, Level, OnRuntime, follows_from
from onnxgate.evidence.support import PredictionGap
from onnxgate.rules.definition import rule


@rule(PredictionGap, "no-support-data", level=Level.NOTE, since="0.1.0")
def no_support_data(subject: PredictionGap) -> Iterator[Hit]:
    """
    onnxgate cannot predict whether a model or node loads.

    ## Why it matters
    `onnxgate check --static` may miss a failure that the runtime stage would find. The last line of the output names
    the runtimes for which there is no prediction (`not predicted: onnxruntime 1.99.0`); the exit status is still 0.

    onnxgate contains data about the IR versions and opsets of ONNX Runtime since 1.8.0 and its kernels since 1.16.0.
    For newer releases and custom builds, the runtime stage collects this data and caches it. onnxgate also contains
    data about releases of ONNX Runtime Web, OpenVINO and tract; for extensions and other engines, there are no
    predictions.

    ## What to do
    - Update onnxgate, or
    - run `onnxgate check` once without `--static`.
    """
    yield Hit(
        subject.place,
        subject.what,
        model=subject.model,
        node=subject.node,
        on=OnRuntime(subject.runtime, subject.reason) if subject.runtime else None,
        fix=subject.fix,
        relations=(
            *follows_from(*subject.follows_from),
            *([OPEN_UNTIL_RUN] if subject.model and subject.runtime else []),
        ),
        identity=subject.about,
    )
