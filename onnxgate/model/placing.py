"""A model put in the place of another, with its external data; whoever reads meanwhile sees one or the other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onnxgate.model.external import entries, is_external
from onnxgate.model.structure import UnreadableModel, read_structure, tensors
from onnxgate.scratch import beside


def put_in_place(fresh: Path, committed: Path) -> None:
    """Replace `committed` (which need not be there yet) by the model at `fresh`.

    Data files keep the name that the committed model has for its own, where it has one; else they are called after it.
    They are replaced first, so that no model ever points at data that are not there.
    """
    target = Path(os.path.realpath(committed))
    target.parent.mkdir(parents=True, exist_ok=True)
    names = _new_names(fresh, target)
    for location, name in names.items():
        with _beside(target.parent / name) as temporary:
            shutil.copyfile(fresh.parent / location, temporary)
    with _beside(target) as temporary:
        _write_model(fresh, names, temporary)


def unused_data(before: tuple[str, ...], committed: Path) -> tuple[str, ...]:
    """Data files that the model named `before` and names no longer, sorted."""
    return tuple(sorted(set(before) - set(data_locations(committed))))


def data_locations(path: Path) -> tuple[str, ...]:
    """The names of a model's data files, sorted; none where there is no model that could be read."""
    try:
        structure = read_structure(path)
    except (OSError, UnreadableModel):
        return ()
    return tuple(
        sorted({entries(tensor).get("location", "") for _, tensor in tensors(structure) if is_external(tensor)})
    )


def _new_names(fresh: Path, target: Path) -> dict[str, str]:
    """Location in the fresh model -> the name that its file gets."""
    locations, known = data_locations(fresh), data_locations(target)
    if len(locations) == 1:
        (own,) = known if len(known) == 1 and Path(known[0]).name == known[0] else (f"{target.name}.data",)
        return {locations[0]: own}
    return {location: location for location in locations}


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A file to be written, which then takes the place of the target, and its permissions."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with beside(target) as temporary:
        yield temporary
        if target.exists():
            shutil.copymode(target, temporary)


def _write_model(fresh: Path, names: dict[str, str], path: Path) -> None:
    if all(location == name for location, name in names.items()):
        shutil.copyfile(fresh, path)
        return
    import onnx

    model = onnx.load(str(fresh), load_external_data=False)
    for _, tensor in tensors(model):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = names[entry.value]
    path.write_bytes(model.SerializeToString())
