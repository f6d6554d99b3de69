"""The rule `external-data-refused`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime, follows_from
from onnxgate.core.text import pluralize
from onnxgate.evidence.support import ExternalDataOnRuntime
from onnxgate.rules.definition import rule

LAYOUT_PHRASES = {
    "absolute": "by an absolute path",
    "outside": "outside the model's folder",
    "link": "by a link to a file outside the model's folder",
    "linked-model": "by a link, as it is a link itself, into a folder elsewhere",
}

COPY_FIX = "copy model and data to where they are used, in place of linking them"
MOVE_FIX = "save the model again with its data in its own folder, or run `onnxgate fix`: it moves them into the model"


@rule(ExternalDataOnRuntime, "external-data-refused", level=Level.ERROR, since="0.1.0")
def external_data_refused(subject: ExternalDataOnRuntime) -> Iterator[Hit]:
    """
    A locked runtime does not read a model's external data from where they lie.

    ## Why it matters
    From 1.24 on, ONNX Runtime reads external data from the model's own folder only, so that a model cannot make it open
    any file of the machine. 1.24.1 also refuses a model and data that are both links into one folder, as the Hugging
    Face cache has them. Absolute paths were read by 1.19 to 1.23 alone. The layouts were tried on each release.

    ## What to do
    Save the model again with its data beside it: `onnx.save(onnx.load(path), path, save_as_external_data=True,
    location="model.onnx.data")`; or copy both files to where they are used, in place of linking them.
    """
    tensors = pluralize(subject.tensors, "tensor")
    yield Hit(
        subject.place,
        f"keeps weights in `{subject.location}` {LAYOUT_PHRASES[subject.layout]} ({tensors})",
        model=subject.model,
        fix=COPY_FIX if subject.layout == "linked-model" else MOVE_FIX,
        on=OnRuntime(
            subject.runtime,
            "does not read them there",
            works_since=subject.works_since,
            works_until=subject.works_until,
        ),
        relations=follows_from("external-data-escapes"),
        identity=f"{subject.layout} {subject.location}",
    )
