"""The rule `no-support-data`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import OPEN_UNTIL_RUN, Hit, Level, OnRuntime, follows_from, mask_numbers
from onnxgate.evidence.support import PredictionGap
from onnxgate.rules.definition import rule


@rule(PredictionGap, "no-support-data", level=Level.NOTE, since="0.1.0")
def no_support_data(subject: PredictionGap) -> Iterator[Hit]:
    """
    Something is not predicted: there is no data of a release, of its kernels, or of what a node is given.

    For ONNX Runtime there are limits of every release since 1.8.0, and kernels of every one since 1.16.0, whose wheels
    tell them. Of `onnxruntime-gpu` the limits and the operators' definitions are those of the same release. A newer
    release and a build of one's own are asked themselves where the runtime stage runs them; what they say is kept in
    the cache, and predicted from then on. Another engine, and an operator that an extension registers, are looked at by
    the runtime stage alone.

    What one model asks for is not said any more once the model was run there.

    ## Why it matters
    Where the static stages say nothing, their pass is not a pass. The runtime stage still loads and runs every model.

    ## What to do
    Update onnxgate if the release is newer than its data, or run the runtime stage once with the same cache.
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
        identity=mask_numbers(subject.what),
    )
