"""The rule `no-support-data`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import OPEN_UNTIL_RUN, Hit, Level, OnRuntime, follows_from
from onnxgate.evidence.support import PredictionGap
from onnxgate.rules.definition import rule


@rule(PredictionGap, "no-support-data", level=Level.NOTE, since="0.1.0")
def no_support_data(subject: PredictionGap) -> Iterator[Hit]:
    """
    No prediction is possible for a release or a node.

    onnxgate knows the limits of ONNX Runtime since 1.8.0 and its kernels since 1.16.0. The runtime stage collects and
    caches those of newer releases and custom builds. Other engines and extensions are only checked by running the
    model.

    ## Why it matters
    A pass with `--static` does not cover this; the runtime stage does.

    ## What to do
    - Update onnxgate if the release is newer than its data, or
    - run `onnxgate check` without `--static` once, with the same cache.
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
