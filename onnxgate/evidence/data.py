"""Which files of external data a model needs, and what it takes with them."""

from __future__ import annotations

import posixpath
from pathlib import PurePosixPath

from onnxgate.evidence.changes import ModelChange
from onnxgate.model.facts import ModelFacts


def new_data_files(change: ModelChange) -> list[str]:
    """The locations that the model did not name before, as it writes them; none that was renamed with the model."""
    before, after = locations(change.before), locations(change.after)
    renamed = {_renamed(name, change.before.path, change.after.path) for name in before}
    return sorted(written for name, written in after.items() if name not in before and name not in renamed)


def locations(facts: ModelFacts) -> dict[str, str]:
    """Every location that the model names: normalised, and as it is written."""
    written = [*(file.location for file in facts.external), *facts.unread]
    return {posixpath.normpath(location): location for location in written}


def _renamed(location: str, before: str, after: str) -> str:
    """What a data file that has its model's name would be called beside the model as it is called now."""
    old, new = PurePosixPath(before), PurePosixPath(after)
    folder, name = posixpath.split(location)
    if name.startswith(old.name):
        name = new.name + name[len(old.name) :]
    elif name.startswith(f"{old.stem}."):
        name = new.stem + name[len(old.stem) :]
    return posixpath.join(folder, name)


def size_bytes(facts: ModelFacts) -> int | None:
    """The model's size with its external data; None where some of that is not there."""
    return None if facts.unread else facts.size_bytes + sum(file.size_bytes for file in facts.external)
