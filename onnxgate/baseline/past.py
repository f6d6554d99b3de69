"""A model as it was at a revision, written to a folder with all of its external data."""

from __future__ import annotations

from pathlib import Path

from onnxgate.baseline.revisions import AbsentError, Revision, inside
from onnxgate.model.external import entries, is_external
from onnxgate.model.structure import UnreadableModel, read_structure, tensors


def write_past(revision: Revision, path: str, folder: Path) -> Path:
    """Write the model; `path` is relative to git's root.

    Raises:
        AbsentError: the model, or some of its data, cannot be had.
    """
    folder.mkdir(parents=True)
    model = folder / "model.onnx"
    revision.write(path, model)
    for location in _locations(model, path, revision):
        at = inside(path, location)
        if at is None:
            raise AbsentError(f"`{path}` at `{revision.name}` has data outside of its folder: `{location}`")
        to = folder / location
        to.parent.mkdir(parents=True, exist_ok=True)
        revision.write(at, to)
    return model


def _locations(model: Path, path: str, revision: Revision) -> list[str]:
    try:
        proto = read_structure(model)
    except UnreadableModel as reason:
        raise AbsentError(f"`{path}` at `{revision.name}` cannot be read: it is {reason}") from reason
    found = (entries(tensor).get("location", "") for _, tensor in tensors(proto) if is_external(tensor))
    return sorted({location for location in found if location})
