"""The rule `data-file-added`."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import PurePosixPath

import msgspec

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.model.facts import ModelFacts
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_breaking_hit, quote_names


@rule(ModelChange, "data-file-added", level=Level.ERROR, since="0.1.0")
def data_file_added(subject: ModelChange) -> Iterator[Hit]:
    """
    An external data file has been added since the baseline.

    ## Why it matters
    Deployments that copy only the `.onnx` file break. Since PyTorch 2.9, `torch.onnx.export` writes weights to
    `model.onnx.data` by default.

    ## What to do
    - Run `onnxgate fix --against REF MODEL` to move the data into the model (up to 2 GiB), or keep the old file name.
    - To accept the change, run the same check with `--show-ignores`, and add the printed entry to `onnxgate.toml`.
    """
    new, had = find_new_data_files(subject), sorted(list_data_locations(subject.before).values())
    if new:
        noun = "data file" if len(new) == 1 else "data files"
        yield create_breaking_hit(
            subject,
            f"needs {noun} {quote_names(new)}; "
            f"it needed {f'only {quote_names(had)}' if had else 'none'} {subject.baseline}",
            "keep the old file name" if had else "export a single file (`external_data=False`)",
            identity=" ".join(new),
        )


def find_new_data_files(change: ModelChange) -> list[str]:
    """Return the paths of external data files that a model did not need at the baseline.

    Files that were renamed together with the model are left out, as are missing files if the lock is the baseline,
    because it does not list those that no node uses.
    """
    after_facts = msgspec.structs.replace(change.after, unread=()) if change.from_lock else change.after
    before, after = list_data_locations(change.before), list_data_locations(after_facts)
    old, new = PurePosixPath(change.before.path), PurePosixPath(change.after.path)
    renamed = set()  # expected new names of data files that are named after the model
    for location in before:
        folder, name = posixpath.split(location)
        if name.startswith(old.name):
            name = new.name + name[len(old.name) :]
        elif name.startswith(f"{old.stem}."):
            name = new.stem + name[len(old.stem) :]
        renamed.add(posixpath.join(folder, name))
    return sorted(written for name, written in after.items() if name not in before and name not in renamed)


def list_data_locations(facts: ModelFacts) -> dict[str, str]:
    """Map the normalized path of each external data file of a model to its path as stored in the model."""
    written = [*(file.location for file in facts.external), *facts.unread]
    return {posixpath.normpath(location): location for location in written}
